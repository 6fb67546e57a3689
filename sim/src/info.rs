//! The replies of `INFO`.

use std::time::Duration;

use tokio::time::Instant;

use crate::Value;
use crate::arguments::{float, integer, text};
use crate::clients::{Blocked, Client};
use crate::commands::{Command, Handler, table};
use crate::configuration::EMPTY_SERVER;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::keyspace::DATABASES;
use crate::replication::Link;
use crate::server::Fault;

/// The version of the real server that this one is compared with.
pub(crate) const VERSION: &str = "7.0.15";

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "info" => info,
        "time" => |core, _| {
            let now = core.clock.now_us();
            Ok(Value::bulks([
                (now / 1_000_000).to_string(),
                (now % 1_000_000).to_string(),
            ]))
        },
        "role" => |core, _| Ok(role(core)),
        "wait" => wait,
        "debug" => debug,
        "command" => |core, _| Ok(Value::Array(commands(core).map(described).collect())),
        "command|count" => |core, _| Ok(Value::count(commands(core).count())),
        "command|info" => |_, call| {
            let found = call.args[2..].iter().map(|name| {
                let number = table().by_name(name);
                number.map_or(Value::NilArray, |number| {
                    described(&table().commands[number])
                })
            });
            Ok(Value::Array(found.collect()))
        },
        "command|docs" => |_, _| Ok(Value::Map(Vec::new())),
        "memory|usage" => |core, call| {
            let exists = core.keyspace.exists(&call.args[2]);
            Ok(if exists {
                Value::Integer(100)
            } else {
                Value::Nil
            })
        },
        "lastsave" => |core, _| {
            let seconds = core.started_us / 1_000_000;
            Ok(Value::Integer(seconds.cast_signed()))
        },
        "save" | "bgsave" => |_, _| Ok(Value::OK),
        "slowlog|get" => |_, _| Ok(Value::Array(Vec::new())),
        "slowlog|len" => |_, _| Ok(Value::Integer(0)),
        "slowlog|reset" => |_, _| Ok(Value::OK),
        _ => return None,
    })
}

/// Returns all commands, without their subcommands.
fn commands(core: &Core) -> impl Iterator<Item = &'static Command> {
    let in_sentinel = core.sentinel.is_some();
    let commands = table().commands.iter();
    commands.filter(move |command| command.parent.is_none() && command.exists_in(in_sentinel))
}

fn described(command: &Command) -> Value {
    let flags = command
        .flags()
        .iter()
        .map(|flag| Value::Simple((*flag).into()));
    let categories = command.categories.iter();
    let categories = categories.map(|category| Value::Simple(format!("@{category}").into()));
    let mut fields = vec![
        Value::bulk(command.name),
        Value::Integer(command.arity),
        Value::Set(flags.collect()),
    ];
    fields.extend(command.range.map(Value::Integer));
    fields.push(Value::Set(categories.collect()));
    Value::Array(fields)
}

fn is_replica(core: &Core) -> bool {
    core.is_replica()
}

fn role(core: &Core) -> Value {
    if let Some(sentinel) = &core.sentinel {
        let names = Value::bulks(sentinel.names());
        return Value::Array(vec![Value::bulk("sentinel"), names]);
    }
    let offset = |offset: u64| Value::Integer(offset.cast_signed());
    if !is_replica(core) {
        let replicas = core
            .replicas
            .iter()
            .filter(|link| link.is_up())
            .map(|link| {
                let (host, port) = &link.replica;
                Value::bulks([host, &port.to_string(), &link.acknowledged().to_string()])
            });
        let replicas = Value::Array(replicas.collect());
        return Value::Array(vec![Value::bulk("master"), offset(core.offset), replicas]);
    }
    let (host, port) = core
        .master
        .as_ref()
        .map_or(("127.0.0.1", 6379), |link| (&link.master.0, link.master.1));
    let is_up = core.master.as_ref().is_none_or(Link::is_up);
    Value::Array(vec![
        Value::bulk("slave"),
        Value::bulk(host),
        Value::Integer(port.into()),
        Value::bulk(if is_up { "connected" } else { "connect" }),
        offset(core.offset),
    ])
}

/// Executes `WAIT`; with too few replicas it lasts the whole time.
fn wait(core: &mut Core, call: &Call<'_>) -> Reply {
    if is_replica(core) {
        let text = "WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured \
                    to be writable (which is not the default) writes to replicas are just local and are not propagated.";
        return Err(Failure::general(text));
    }
    let wanted = integer(&call.args[1])?;
    let Some(timeout) = crate::arguments::strict_integer(&call.args[2]) else {
        return Err(Failure::general(
            "timeout is not an integer or out of range",
        ));
    };
    let timeout = u64::try_from(timeout).map_err(|_| Failure::general("timeout is negative"))?;
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let offset = core.client(call.client).written;
    let count = core.acknowledgements(offset);
    let may_block = call.client != Client::ADMINISTRATOR && !core.is_in_exec;
    if count >= wanted || !may_block {
        return Ok(Value::count(count));
    }
    // A wait lasts for a year at most; without a limit, Redis waits for ever.
    let timeout = Duration::from_millis(if timeout == 0 {
        YEAR_MS
    } else {
        timeout.min(YEAR_MS)
    });
    let deadline = Instant::now() + timeout;
    let until = core
        .acknowledged_at(offset, wanted)
        .unwrap_or(deadline)
        .min(deadline);
    let blocked = Blocked::Replicas {
        wanted,
        offset,
        deadline,
    };
    core.client(call.client).blocked = Some((until, blocked));
    Ok(Value::Several(Vec::new()))
}

fn debug(core: &mut Core, call: &Call<'_>) -> Reply {
    match (
        text(&call.args[1]).to_ascii_lowercase().as_str(),
        call.args.get(2),
    ) {
        ("sleep", Some(seconds)) => {
            let seconds = float(seconds).filter(|seconds| (0.0..1e9).contains(seconds));
            let seconds = Duration::from_secs_f64(seconds.unwrap_or(0.0));
            let until = Instant::now() + seconds;
            core.stalled_until = Some(until);
            if call.client == Client::ADMINISTRATOR {
                return Ok(Value::OK);
            }
            // The reply is sent when the time has passed.
            core.client(call.client).blocked = Some((until, Blocked::Moment(Value::OK)));
            Ok(Value::Several(Vec::new()))
        }
        ("set-active-expire", Some(_)) => Ok(Value::OK),
        (sub, _) => Err(crate::dispatch::unknown_subcommand(sub, "DEBUG")),
    }
}

fn info(core: &mut Core, call: &Call<'_>) -> Reply {
    let wanted: Vec<String> = call.args[1..]
        .iter()
        .map(|arg| text(arg).to_ascii_lowercase())
        .collect();
    let is_wanted = |section: &str| {
        let is_named = |name: &str| wanted.iter().any(|wanted| wanted == name);
        let is_default = wanted.is_empty() || is_named("default");
        is_named(section)
            || is_named("all")
            || is_named("everything")
            || is_default && section != "commandstats"
    };
    let mut sections = Vec::new();
    for (section, title) in SECTIONS {
        if is_wanted(section) && (core.sentinel.is_none() || IN_SENTINELS.contains(&section)) {
            let fields = fields(core, section);
            if fields.is_empty() && section == "sentinel" {
                continue;
            }
            let lines = fields
                .into_iter()
                .map(|(name, value)| format!("{name}:{value}\r\n"));
            sections.push(format!("# {title}\r\n{}", lines.collect::<String>()));
        }
    }
    let text = sections.join("\r\n");
    Ok(match core.sentinel {
        Some(_) => Value::bulk(text),
        None => Value::Verbatim(text),
    })
}

/// The sections of a sentinel.
const IN_SENTINELS: [&str; 4] = ["server", "clients", "stats", "sentinel"];

const SECTIONS: [(&str, &str); 11] = [
    ("server", "Server"),
    ("clients", "Clients"),
    ("memory", "Memory"),
    ("persistence", "Persistence"),
    ("stats", "Stats"),
    ("replication", "Replication"),
    ("modules", "Modules"),
    ("commandstats", "Commandstats"),
    ("cluster", "Cluster"),
    ("keyspace", "Keyspace"),
    ("sentinel", "Sentinel"),
];

fn fields(core: &Core, section: &str) -> Vec<(String, String)> {
    let now = core.clock.now_us();
    let uptime = now.saturating_sub(core.started_us) / 1_000_000;
    let loading = u8::from(core.fault == Some(Fault::Loading));
    let used = if core.is_out_of_memory() {
        EMPTY_SERVER * 2
    } else {
        EMPTY_SERVER
    };
    let owned = |fields: &[(&str, &dyn ToString)]| {
        let fields = fields.iter();
        fields
            .map(|(name, value)| ((*name).to_owned(), value.to_string()))
            .collect()
    };
    match section {
        "server" => owned(&[
            ("redis_version", &VERSION),
            ("redis_mode", &core.mode()),
            ("os", &"Linux simulated x86_64"),
            ("arch_bits", &64),
            ("process_id", &1),
            ("run_id", &core.run_id),
            ("tcp_port", &6379),
            ("server_time_usec", &now),
            ("uptime_in_seconds", &uptime),
            ("uptime_in_days", &(uptime / 86_400)),
            ("hz", &10),
            ("executable", &"/usr/bin/redis-server"),
            ("config_file", &""),
        ]),
        "clients" => owned(&[
            ("connected_clients", &(core.clients.len() - 1)),
            ("maxclients", &core.configuration.get("maxclients")),
            ("blocked_clients", &0),
        ]),
        "memory" => owned(&[
            ("used_memory", &used),
            ("maxmemory", &core.configuration.get("maxmemory")),
            (
                "maxmemory_policy",
                &core.configuration.get("maxmemory-policy"),
            ),
            ("number_of_cached_scripts", &core.cached_scripts),
        ]),
        "persistence" => owned(&[
            ("loading", &loading),
            ("async_loading", &0),
            ("rdb_last_bgsave_status", &"ok"),
            (
                "aof_enabled",
                &u8::from(core.configuration.get("appendonly") == "yes"),
            ),
            ("aof_last_write_status", &"ok"),
        ]),
        "stats" => owned(&[
            ("total_connections_received", &core.connections),
            ("total_commands_processed", &core.commands),
            ("rejected_connections", &0),
            ("evicted_keys", &0),
        ]),
        "replication" => replication(core),
        "commandstats" => core
            .calls
            .iter()
            .map(|(name, calls)| (format!("cmdstat_{name}"), format!("calls={calls},usec=0")))
            .collect(),
        "sentinel" => core
            .sentinel
            .as_ref()
            .map_or_else(Vec::new, |state| state.info()),
        "cluster" => owned(&[("cluster_enabled", &u8::from(core.cluster.is_some()))]),
        "keyspace" => (0..DATABASES)
            .filter_map(|number| database(core, number))
            .collect(),
        _ => Vec::new(),
    }
}

fn replication(core: &Core) -> Vec<(String, String)> {
    let mut fields = vec![(
        "role".to_owned(),
        if is_replica(core) { "slave" } else { "master" }.to_owned(),
    )];
    let mut field =
        |name: &str, value: &dyn ToString| fields.push((name.to_owned(), value.to_string()));
    if is_replica(core) {
        let (host, port) = core
            .master
            .as_ref()
            .map_or(("127.0.0.1", 6379), |link| (&link.master.0, link.master.1));
        let is_up = core.master.as_ref().is_none_or(Link::is_up);
        field("master_host", &host);
        field("master_port", &port);
        field("master_link_status", &if is_up { "up" } else { "down" });
        field("slave_repl_offset", &core.offset);
        field("slave_read_only", &1);
    }
    let replicas: Vec<&Link> = core.replicas.iter().filter(|link| link.is_up()).collect();
    field("connected_slaves", &replicas.len());
    for (number, link) in replicas.into_iter().enumerate() {
        let ((host, port), offset) = (&link.replica, link.acknowledged());
        let text = format!("ip={host},port={port},state=online,offset={offset},lag=0");
        field(&format!("slave{number}"), &text);
    }
    field("master_failover_state", &"no-failover");
    field("master_replid", &core.replication_id);
    field("master_replid2", &core.replication_id_before);
    field("master_repl_offset", &core.offset);
    fields
}

fn database(core: &Core, number: usize) -> Option<(String, String)> {
    let keys = core.keyspace.entries_of(number).count();
    let expiring = core.keyspace.entries_of(number);
    let expiring = expiring
        .filter(|(_, entry)| entry.expires.is_some())
        .count();
    (keys > 0).then(|| {
        (
            format!("db{number}"),
            format!("keys={keys},expires={expiring},avg_ttl=0"),
        )
    })
}

const YEAR_MS: u64 = 365 * 24 * 3_600_000;
