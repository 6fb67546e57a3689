//! The process of a server, which ends when the test program does.

use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};
use std::{io, thread};

use nix::unistd::Pid;

/// A process that is killed when this is dropped.
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
        // Both calls fail only for a child that has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
