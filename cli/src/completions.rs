//! `completions`: prints the completions for a shell.

use clap_complete::generate;

use crate::args::{self, Completions};
use crate::exit::Failure;
use crate::out::Out;

pub(crate) fn print(args: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut args::grammar(), "distlock", &mut script);
    Out::new().write(&script)?;
    Ok(0)
}
