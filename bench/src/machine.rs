//! The machine, the time and the version of a run.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::failure::Outcome;

/// The machine of a measurement, and the version that was measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    /// The commit of this project, if it is known.
    pub(crate) commit: Option<String>,
    pub(crate) system: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) redis: String,
}

impl Machine {
    pub(crate) fn detect() -> Outcome<Self> {
        let cpus = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpus
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let model = model.and_then(|line| line.split_once(": "));
        let redis = said("redis-server", &["--version"])?;
        let redis = redis
            .split_whitespace()
            .find_map(|word| word.strip_prefix("v="));
        // A copy of the project without its history has no commit.
        let commit = said("git", &["rev-parse", "--short", "HEAD"]).ok();
        Ok(Self {
            date: said("date", &["-u", "+%Y-%m-%d"])?,
            commit: commit.filter(|commit| !commit.is_empty()),
            system: said("uname", &["-sr"])?,
            processor: model.map_or("?", |(_, model)| model).to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            redis: redis.unwrap_or("?").to_owned(),
        })
    }
}

fn said(program: &str, arguments: &[&str]) -> Outcome<String> {
    let out = Command::new(program).args(arguments).output()?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
