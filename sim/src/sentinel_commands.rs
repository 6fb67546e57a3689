//! The commands of a sentinel.

use std::time::Duration;

use tokio::time::Instant;

use crate::Value;
use crate::arguments::{strict_integer, text};
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::sentinel::{Instance, Master, State};

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "sentinel|myid" => |core, _| Ok(Value::bulk(&state(core).id)),
        "sentinel|master" => |core, call| {
            let claim = state(core).claim.clone();
            Ok(described(known(core, call)?, claim.map(|(_, epoch)| epoch)))
        },
        "sentinel|masters" => |core, _| {
            let masters = state(core).masters.values();
            Ok(Value::Array(
                masters.map(|master| described(master, None)).collect(),
            ))
        },
        "sentinel|get-master-addr-by-name" => |core, call| {
            let claim = state(core).claim.clone();
            let Ok(master) = known(core, call) else {
                return Ok(Value::NilArray);
            };
            let (host, port) =
                claim.map_or_else(|| master.address().clone(), |(address, _)| address);
            Ok(Value::bulks([host, port.to_string()]))
        },
        "sentinel|sentinels" => |core, call| {
            let master = known(core, call)?;
            let (down_after, peers) = (master.down_after, master.peers.iter());
            Ok(Value::Array(
                peers
                    .map(|(id, (address, peer))| {
                        let mut fields = common(
                            id,
                            address,
                            id,
                            flags("sentinel", peer, ""),
                            down_after,
                            peer,
                        );
                        field(&mut fields, "last-hello-message", 0);
                        field(&mut fields, "voted-leader", "?");
                        field(&mut fields, "voted-leader-epoch", 0);
                        map(fields)
                    })
                    .collect(),
            ))
        },
        "sentinel|replicas" | "sentinel|slaves" => replicas,
        "sentinel|failover" => |core, call| {
            let failed = state(core).fail_over(&text(&call.args[2]));
            failed.map(|()| Value::OK).map_err(Failure::coded)
        },
        "sentinel|monitor" => monitor,
        "sentinel|remove" => |core, call| {
            known(core, call)?;
            state(core).masters.remove(&text(&call.args[2]));
            Ok(Value::OK)
        },
        "sentinel|set" => set,
        "sentinel|ckquorum" => |core, call| {
            let master = known(core, call)?;
            let usable = 1 + master
                .peers
                .values()
                .filter(|(_, peer)| !peer.is_down)
                .count();
            if usable >= master.quorum.max(master.peers.len().div_ceil(2) + 1) {
                let text = format!(
                    "OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
                );
                return Ok(Value::Simple(text.into()));
            }
            Err(Failure::coded(format!(
                "NOQUORUM {usable} usable Sentinels."
            )))
        },
        "sentinel|debug" | "sentinel|flushconfig" => |_, _| Ok(Value::OK),
        _ => return None,
    })
}

fn state(core: &mut Core) -> &mut State {
    core.sentinel
        .as_mut()
        .expect("only sentinels know these commands")
}

/// Returns the master that a command names.
fn known<'a>(core: &'a mut Core, call: &Call<'_>) -> Result<&'a mut Master, Failure> {
    let master = state(core).masters.get_mut(&text(&call.args[2]));
    master.ok_or_else(|| Failure::general("No such master with that name"))
}

type Fields = Vec<(&'static str, String)>;

fn field(fields: &mut Fields, name: &'static str, value: impl ToString) {
    fields.push((name, value.to_string()));
}

fn map(fields: Fields) -> Value {
    let fields = fields.into_iter();
    Value::Map(
        fields
            .map(|(name, value)| (Value::bulk(name), Value::bulk(value)))
            .collect(),
    )
}

fn millis(since: Instant) -> u128 {
    since.elapsed().as_millis()
}

fn flags(kind: &str, instance: &Instance, more: &str) -> String {
    let down = if instance.is_down { "s_down," } else { "" };
    let gone = if instance.is_down {
        ",disconnected"
    } else {
        ""
    };
    format!("{down}{more}{kind}{gone}")
}

/// Returns the fields that masters, replicas and sentinels have in common.
fn common(
    name: &str,
    (host, port): &(String, u16),
    run_id: &str,
    flags: String,
    down_after: Duration,
    instance: &Instance,
) -> Fields {
    let mut fields = Fields::new();
    field(&mut fields, "name", name);
    field(&mut fields, "ip", host);
    field(&mut fields, "port", port);
    field(&mut fields, "runid", run_id);
    field(&mut fields, "flags", flags);
    field(&mut fields, "link-pending-commands", 0);
    field(&mut fields, "link-refcount", 1);
    field(&mut fields, "last-ping-sent", 0);
    field(&mut fields, "last-ok-ping-reply", millis(instance.heard));
    field(&mut fields, "last-ping-reply", millis(instance.heard));
    let down_after = down_after.as_millis();
    field(&mut fields, "down-after-milliseconds", down_after);
    fields
}

fn described(master: &Master, claimed: Option<u64>) -> Value {
    let (address, run_id) = (master.address(), master.servers.get(master.address()));
    let Some(instance) = run_id else {
        return Value::NilArray;
    };
    let down = if master.is_down { "o_down," } else { "" };
    let more = if master.failover.is_some() {
        "failover_in_progress,"
    } else {
        ""
    };
    let kind = if more.is_empty() {
        "master"
    } else {
        "master,failover_in_progress"
    };
    let flags = flags(kind, instance, down);
    let mut fields = common(
        master.name(),
        address,
        &instance.run_id,
        flags,
        master.down_after,
        instance,
    );
    field(&mut fields, "info-refresh", millis(instance.heard));
    role(&mut fields, instance);
    field(&mut fields, "config-epoch", claimed.unwrap_or(master.epoch));
    field(&mut fields, "num-slaves", master.replicas().count());
    field(&mut fields, "num-other-sentinels", master.peers.len());
    field(&mut fields, "quorum", master.quorum);
    field(
        &mut fields,
        "failover-timeout",
        master.failover_timeout.as_millis(),
    );
    field(&mut fields, "parallel-syncs", 1);
    map(fields)
}

fn role(fields: &mut Fields, instance: &Instance) {
    field(
        fields,
        "role-reported",
        if instance.of.is_some() {
            "slave"
        } else {
            "master"
        },
    );
    field(fields, "role-reported-time", millis(instance.since));
}

fn replicas(core: &mut Core, call: &Call<'_>) -> Reply {
    let master = known(core, call)?;
    let replicas = master.replicas().map(|(address, replica)| {
        let name = format!("{}:{}", address.0, address.1);
        let flags = flags("slave", replica, "");
        let mut fields = common(
            &name,
            address,
            &replica.run_id,
            flags,
            master.down_after,
            replica,
        );
        field(&mut fields, "info-refresh", millis(replica.heard));
        role(&mut fields, replica);
        let of = replica.of.as_ref();
        let is_up = of.is_some_and(|(_, is_up)| *is_up);
        field(&mut fields, "master-link-down-time", 0);
        field(
            &mut fields,
            "master-link-status",
            if is_up { "ok" } else { "err" },
        );
        field(
            &mut fields,
            "master-host",
            of.map_or("?", |((host, _), _)| host),
        );
        field(
            &mut fields,
            "master-port",
            of.map_or(0, |((_, port), _)| *port),
        );
        field(&mut fields, "slave-priority", 100);
        field(&mut fields, "slave-repl-offset", replica.offset);
        field(&mut fields, "replica-announced", 1);
        map(fields)
    });
    Ok(Value::Array(replicas.collect()))
}

fn number(argument: &[u8]) -> Option<u64> {
    strict_integer(argument).and_then(|number| u64::try_from(number).ok())
}

fn monitor(core: &mut Core, call: &Call<'_>) -> Reply {
    let (name, host) = (text(&call.args[2]), text(&call.args[3]));
    let port = number(&call.args[4]).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or_else(|| Failure::general("Invalid port number"))?;
    let quorum = number(&call.args[5]).and_then(|quorum| usize::try_from(quorum).ok());
    let quorum = quorum.filter(|quorum| *quorum > 0);
    let quorum = quorum.ok_or_else(|| Failure::general("Quorum must be 1 or greater."))?;
    if known(core, call).is_ok() {
        return Err(Failure::general("Duplicate master name."));
    }
    state(core).monitor(&name, (host, port), quorum);
    Ok(Value::OK)
}

fn set(core: &mut Core, call: &Call<'_>) -> Reply {
    let master = known(core, call)?;
    for pair in call.args[3..].chunks(2) {
        let option = text(&pair[0]).to_ascii_lowercase();
        let refused = || {
            Failure::general(format!(
                "Unknown option or number of arguments for SENTINEL SET '{option}'"
            ))
        };
        let value = pair.get(1).ok_or_else(refused)?;
        let invalid = || {
            Failure::general(format!(
                "Invalid argument '{}' for SENTINEL SET '{option}'",
                text(value)
            ))
        };
        let positive = || {
            number(value)
                .filter(|number| *number > 0)
                .ok_or_else(invalid)
        };
        match option.as_str() {
            "down-after-milliseconds" => master.down_after = Duration::from_millis(positive()?),
            "failover-timeout" => master.failover_timeout = Duration::from_millis(positive()?),
            "quorum" => master.quorum = usize::try_from(positive()?).map_err(|_| invalid())?,
            "parallel-syncs" | "auth-user" | "auth-pass" => {}
            _ => return Err(refused()),
        }
    }
    Ok(Value::OK)
}
