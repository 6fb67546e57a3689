//! The program of a server, and a process of it that ends when this one does.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};
use std::{env, io, thread};

use nix::unistd::Pid;

/// One that is killed when it is dropped.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) stopped: bool,
}

impl Process {
    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid fits"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both only fail for a child that is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that is killed when this process dies, however it dies, where the system can do that.
pub(super) fn mortal(program: &Path) -> Command {
    let Some(setpriv) = find("setpriv") else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Spawns from a thread that lives as long as the process.
///
/// Linux sends the parent-death signal when the *thread* that spawned ends, and every test is a
/// thread: a server shared by several tests would die with the first.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, child) = mpsc::channel();
    SPAWNER
        .send((command, answer))
        .expect("the spawner never ends");
    child.recv().expect("the spawner answers every order")
}

/// The server's program: the one that is named, or else what is on the `PATH`.
pub(super) fn program() -> PathBuf {
    match env::var_os(PROGRAM) {
        Some(named) => {
            let named = PathBuf::from(named);
            assert!(named.is_file(), "{PROGRAM} names no file: {named:?}");
            named
        }
        None => find("redis-server").unwrap_or_else(|| {
            panic!("there is no redis-server on the PATH; `scripts/test` installs it")
        }),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Names the server's program, as `scripts/matrix` does.
pub(crate) const PROGRAM: &str = "DISTLOCK_REDIS_SERVER";
