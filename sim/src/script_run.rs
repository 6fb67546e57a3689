//! One execution of a script: the state that it may reach, and the commands that it calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Value;
use crate::commands::{Lookup, table};
use crate::core::{Call, Core};
use crate::dispatch;
use crate::failure::Failure;

/// The shared slot with the state of the running script, for the functions that Lua calls.
pub(crate) type Slot = Arc<Mutex<Option<Box<Run>>>>;

/// One execution of a script.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) core: Box<Core>,
    pub(crate) client: u64,
    pub(crate) is_read_only: bool,
    /// Whether the script's own flags allow writes without memory.
    pub(crate) may_exceed_memory: bool,
    /// Whether there was no memory when the script began.
    pub(crate) is_out_of_memory: bool,
    pub(crate) has_written: bool,
    /// Whether all keys have to be in one slot of a cluster, since the script declares flags, but not the one that lifts this rule.
    pub(crate) has_one_slot: bool,
    /// The slot of the keys so far.
    pub(crate) slot: Option<u16>,
}

pub(crate) fn lock(slot: &Slot) -> MutexGuard<'_, Option<Box<Run>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Executes a command for the running script: the checks of Redis' `scriptCall`, in its order.
pub(crate) fn command(slot: &Slot, request: &[Vec<u8>]) -> Value {
    let mut run = lock(slot);
    let Some(run) = run.as_mut() else {
        let text = "redis.call/pcall can only be called inside a script invocation";
        return Failure::general(text).into();
    };
    run.command(request).unwrap_or_else(Value::from)
}

impl Run {
    fn command(&mut self, request: &[Vec<u8>]) -> Result<Value, Failure> {
        let Lookup::Found(number) = table().find(request, false) else {
            return Err(Failure::general("Unknown Redis command called from script"));
        };
        let command = &table().commands[number];
        if !command.takes(request.len()) {
            return Err(Failure::general(
                "Wrong number of args calling Redis command from script",
            ));
        }
        if command.has("noscript") {
            return Err(Failure::general(
                "This Redis command is not allowed from script",
            ));
        }
        let core = &mut self.core;
        let client = core.client(self.client);
        let (database, user) = (client.database, client.user.clone());
        let user = user.filter(|_| self.client != crate::clients::Client::ADMINISTRATOR);
        core.permit(user.as_deref(), number, request)
            .map_err(|denied| Failure::general(denied.in_script()))?;
        // PUBLISH is not a write, but is replicated like one.
        let may_replicate = command.name.ends_with("publish") && command.has("pubsub");
        if self.is_read_only && (command.is_write || may_replicate) {
            return Err(Failure::general(
                "Write commands are not allowed from read-only scripts.",
            ));
        }
        let is_first_write = command.is_write && !self.has_written;
        if is_first_write
            && core.is_replica()
            && self.client != crate::clients::Client::ADMINISTRATOR
        {
            return Err(dispatch::read_only());
        }
        let is_refused = self.is_out_of_memory && !self.may_exceed_memory && !self.has_written;
        if is_refused && command.denies_oom {
            return Err(dispatch::out_of_memory());
        }
        if core.cluster.is_some() && self.client != crate::clients::Client::ADMINISTRATOR {
            let routed = core.route(self.client, command, &[(number, request)], command.is_write);
            let slot = routed.map_err(|redirect| redirect.in_script())?;
            let first = self.slot.or(slot);
            if self.has_one_slot && slot.is_some() && slot != first {
                let text = "Script attempted to access keys that do not hash to the same slot";
                return Err(Failure::general(text));
            }
            self.slot = first;
        }
        self.has_written |= command.is_write;
        let now = core.keyspace.now();
        core.keyspace.select(database, now);
        let call = Call {
            client: self.client,
            protocol: 2,
            name: command.name,
            args: request,
        };
        *core.calls.entry(command.name).or_default() += 1;
        let Some(handler) = command.handler else {
            let name = command.name;
            return Err(Failure::general(format!(
                "the simulated server does not know how to execute '{name}'"
            )));
        };
        handler(core, &call)
    }
}
