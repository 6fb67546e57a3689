//! The decision whether a node serves a request, or which node does: Redis' `getNodeByQuery`.

use crate::cluster_slots::slot_of;
use crate::commands::{Command, table};
use crate::core::Core;
use crate::failure::Failure;

/// The reason why a node does not serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    CrossSlot,
    TryAgain,
    Down,
    NotServed,
    Moved(u16, (String, u16)),
    Ask(u16, (String, u16)),
}

impl Redirect {
    /// Returns the error of a command within a script.
    pub(crate) fn in_script(&self) -> Failure {
        Failure::general(match self {
            Self::Down => "Script attempted to execute a command while the cluster is down",
            _ => "Script attempted to access a non local key in a cluster node",
        })
    }
}

impl From<Redirect> for Failure {
    fn from(redirect: Redirect) -> Self {
        Self::coded(match redirect {
            Redirect::CrossSlot => {
                "CROSSSLOT Keys in request don't hash to the same slot".to_owned()
            }
            Redirect::TryAgain => {
                "TRYAGAIN Multiple keys request during rehashing of slot".to_owned()
            }
            Redirect::Down => "CLUSTERDOWN The cluster is down".to_owned(),
            Redirect::NotServed => "CLUSTERDOWN Hash slot not served".to_owned(),
            Redirect::Moved(slot, (host, port)) => format!("MOVED {slot} {host}:{port}"),
            Redirect::Ask(slot, (host, port)) => format!("ASK {slot} {host}:{port}"),
        })
    }
}

/// Returns whether a command is for the shard channels of one slot.
fn is_for_shard_channels(command: &Command) -> bool {
    ["ssubscribe", "sunsubscribe", "spublish"].contains(&command.name)
}

impl Core {
    /// Returns the slot of the keys in a command's request, or in the requests that `EXEC` would execute; `None` without any. The keyspace
    /// is that of the time and the database of the request.
    pub(crate) fn route(
        &mut self,
        client: u64,
        command: &Command,
        requests: &[(usize, &[Vec<u8>])],
        writes: bool,
    ) -> Result<Option<u16>, Redirect> {
        let Some(view) = &self.cluster else {
            return Ok(None);
        };
        let table = table();
        let specs = requests.iter().flat_map(|&(number, request)| {
            let specs = table.commands[number].keys.iter();
            specs.map(move |spec| (spec, request))
        });
        let keys = specs.flat_map(|(spec, request)| spec.keys_and_channels(request));
        let keys: Vec<&[u8]> = keys.collect();
        let Some(first) = keys.first() else {
            return Ok(None);
        };
        let slot = slot_of(first);
        let owner = view.owner(slot).ok_or(Redirect::NotServed)?;
        let to = view.migrating.get(&slot).copied();
        let to = to.filter(|_| owner == view.me);
        let is_importing = to.is_none() && view.importing.contains_key(&slot);
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Err(Redirect::CrossSlot);
        }
        let is_of_shard = is_for_shard_channels(command);
        if !view.is_ok && !is_of_shard {
            return Err(Redirect::Down);
        }
        let at = |node: usize| view.peers[node].address.clone();
        let several = keys.iter().any(|key| key != first);
        let is_moving = to.is_some() || is_importing;
        let (mut missing, mut existing) = (0, 0);
        // The old node serves shard channels until the slot has its new node.
        for key in keys.iter().filter(|_| is_moving && !is_of_shard) {
            if self.keyspace.exists(key) {
                existing += 1;
            } else {
                missing += 1;
            }
        }
        if let Some(to) = to.filter(|_| missing > 0) {
            return Err(if existing > 0 {
                Redirect::TryAgain
            } else {
                Redirect::Ask(slot, at(to))
            });
        }
        let (is_asking, reads_replica) = {
            let client = self.clients.get(&client);
            let flags = client.map(|client| (client.is_asking, client.reads_replica));
            flags.unwrap_or_default()
        };
        if is_importing && is_asking {
            return if several && missing > 0 {
                Err(Redirect::TryAgain)
            } else {
                Ok(Some(slot))
            };
        }
        let may_read = (reads_replica || is_of_shard) && !writes;
        if owner == view.me || may_read && view.master() == Some(owner) {
            return Ok(Some(slot));
        }
        Err(Redirect::Moved(slot, at(owner)))
    }
}
