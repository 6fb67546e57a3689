//! The module in `module.c`, compiled for the server that loads it.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A module in a folder of its own, which is removed when this is dropped.
pub(crate) struct Module {
    folder: TempDir,
}

impl Module {
    /// Compiles the module. A machine on which Rust links a program has a C compiler, since Rust uses it as the linker.
    pub(crate) fn compile() -> Self {
        let folder = TempDir::with_prefix("distlock-module-").expect("the temp folder is writable");
        let module = Self { folder };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/module.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c99", "-O1", "-shared", "-fPIC", "-nostdlib", "-o"]);
        let compiled = compiler.arg(module.path()).arg(source).output();
        let compiled = compiled.expect("there is a C compiler");
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{said}");
        module
    }

    pub(crate) fn path(&self) -> String {
        let path = self.folder.path().join("foreign.so");
        path.into_os_string().into_string().expect("it is text")
    }
}
