//! Bad input, denied rights and a server without memory, on a simulated server: each gets a clear error, and costs no hold.

use crate::support;

mod checks;
mod denied_permits;
mod fair;
mod foreign_data;
mod further;
mod least_privilege;
mod memory_limit;
mod numbers;
mod permissions;
mod read_write;
mod rounds;
mod semaphore;
mod stage;
mod times;
mod twins;
mod wrong_kind;

use self::checks::*;
