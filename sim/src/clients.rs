//! The state of each connection, and the commands about connections.

use std::sync::Arc;

use tokio::time::Instant;

use crate::Value;
use crate::acl::authenticate;
use crate::arguments::{integer, is_word, strict_integer, text};
use crate::commands::Handler;
use crate::connection::Outbox;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::keyspace::DATABASES;
use crate::transactions::Transaction;

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    name: String,
    pub(crate) protocol: u8,
    pub(crate) database: usize,
    /// The user; `None` before `AUTH`, if that is needed.
    pub(crate) user: Option<String>,
    /// The commands since `MULTI`.
    pub(crate) transaction: Option<Transaction>,
    pub(crate) outbox: Arc<Outbox>,
    /// The connection closes once its replies are sent.
    pub(crate) is_closing: bool,
    /// The deadline and the event that the reply to its last request waits for. Its next requests wait behind.
    pub(crate) blocked: Option<(Instant, Blocked)>,
    /// `ASKING`: the next request may be for a slot that is being moved here.
    pub(crate) is_asking: bool,
    /// `READONLY`: the connection reads from replicas of a cluster.
    pub(crate) reads_replica: bool,
    /// The master's offset behind the connection's last write.
    pub(crate) written: u64,
}

/// The event that a client waits for.
#[derive(Debug)]
pub(crate) enum Blocked {
    /// The passing of time, after which this is the reply.
    Moment(Value),
    /// The acknowledgement of everything up to an offset by this many replicas, or the deadline.
    Replicas {
        wanted: usize,
        offset: u64,
        deadline: Instant,
    },
}

impl Client {
    /// The client of the test itself, which may do everything and never disconnects.
    pub(crate) const ADMINISTRATOR: u64 = 0;

    pub(crate) fn new(id: u64, user: Option<String>) -> Self {
        Self {
            id,
            name: String::new(),
            protocol: 2,
            database: 0,
            user,
            transaction: None,
            outbox: Arc::default(),
            is_closing: false,
            blocked: None,
            is_asking: false,
            reads_replica: false,
            written: 0,
        }
    }

    pub(crate) fn administrator() -> Self {
        Self::new(Self::ADMINISTRATOR, Some("default".to_owned()))
    }

    /// Ends the connection: at once, or once the reply to its current request is sent.
    pub(crate) fn end(&mut self, after_reply: bool) {
        if after_reply {
            self.is_closing = true;
        } else {
            self.outbox.close();
        }
    }

    fn line(&self, channels: usize, patterns: usize) -> String {
        let multi = self.transaction.as_ref();
        let multi = multi.map_or(-1, |transaction| {
            i64::try_from(transaction.queue.len()).unwrap_or(i64::MAX)
        });
        let flags = match (channels + patterns > 0, multi >= 0) {
            (true, _) => "P",
            (false, true) => "x",
            (false, false) => "N",
        };
        format!(
            "id={} addr=127.0.0.1:{} laddr=127.0.0.1:6379 fd=8 name={} age=0 idle=0 flags={flags} db={} sub={channels} \
             psub={patterns} ssub=0 multi={multi} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=1024 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem=0 events=r cmd=NULL user={} redir=-1 resp={}\n",
            self.id,
            30000 + self.id,
            self.name,
            self.database,
            self.user.as_deref().unwrap_or("default"),
            self.protocol,
        )
    }
}

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "hello" => hello,
        "ping" => ping,
        "echo" => |_, call| Ok(Value::bulk(&call.args[1])),
        "select" => select,
        "quit" => |core, call| {
            core.client(call.client).is_closing = true;
            Ok(Value::OK)
        },
        "reset" => reset,
        "client|id" => |_, call| Ok(Value::Integer(call.client.cast_signed())),
        "client|setname" => |core, call| {
            core.client(call.client).name = valid_name(&call.args[2])?;
            Ok(Value::OK)
        },
        "client|getname" => |core, call| {
            let name = core.client(call.client).name.clone();
            Ok(if name.is_empty() {
                Value::Nil
            } else {
                Value::bulk(name)
            })
        },
        "client|no-evict" | "client|pause" | "client|unpause" => |_, _| Ok(Value::OK),
        "client|list" => list,
        "client|info" => |core, call| {
            let line = line(core, call.client);
            Ok(Value::Verbatim(line))
        },
        "client|kill" => kill,
        _ => return None,
    })
}

fn hello(core: &mut Core, call: &Call<'_>) -> Reply {
    let mut arguments = call.args[1..].iter();
    let mut version = None;
    if let Some(argument) = arguments.next() {
        let number = strict_integer(argument).ok_or_else(|| {
            Failure::general("Protocol version is not an integer or out of range")
        })?;
        if !(2..=3).contains(&number) {
            return Err(Failure::coded("NOPROTO unsupported protocol version"));
        }
        version = u8::try_from(number).ok();
    }
    while let Some(option) = arguments.next() {
        let left = arguments.as_slice();
        match left {
            [user, password, ..] if is_word(option, "auth") => {
                authenticate(core, call.client, user, password)?;
                arguments = left[2..].iter();
            }
            [name, ..] if is_word(option, "setname") => {
                core.client(call.client).name = valid_name(name)?;
                arguments = left[1..].iter();
            }
            _ => {
                let option = text(option);
                return Err(Failure::general(format!(
                    "Syntax error in HELLO option '{option}'"
                )));
            }
        }
    }
    let role = if core.is_replica() {
        "replica"
    } else {
        "master"
    };
    let (mode, in_sentinel) = (core.mode(), core.sentinel.is_some());
    let client = core.client(call.client);
    if client.user.is_none() {
        return Err(Failure::coded(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    client.protocol = version.unwrap_or(client.protocol);
    let fields = [
        ("server", Value::bulk("redis")),
        ("version", Value::bulk(crate::info::VERSION)),
        ("proto", Value::Integer(client.protocol.into())),
        ("id", Value::Integer(call.client.cast_signed())),
        ("mode", Value::bulk(mode)),
        ("role", Value::bulk(role)),
        ("modules", Value::Array(Vec::new())),
    ];
    let fields = fields.into_iter();
    Ok(Value::Map(
        fields
            .filter(|(name, _)| *name != "role" || !in_sentinel)
            .map(|(name, value)| (Value::bulk(name), value))
            .collect(),
    ))
}

fn ping(core: &mut Core, call: &Call<'_>) -> Reply {
    if call.args.len() > 2 {
        return Err(Failure::arity(call.name));
    }
    let payload = call.args.get(1);
    if call.protocol == 2 && core.pubsub.is_subscribed(call.client) {
        let payload = payload.map_or(&[][..], Vec::as_slice);
        return Ok(Value::bulks([&b"pong"[..], payload]));
    }
    Ok(payload.map_or(Value::Simple("PONG".into()), Value::bulk))
}

fn select(core: &mut Core, call: &Call<'_>) -> Reply {
    let number =
        strict_integer(&call.args[1]).ok_or_else(|| Failure::general("invalid DB index"))?;
    let database = usize::try_from(number)
        .ok()
        .filter(|&database| database < DATABASES);
    let Some(database) = database else {
        return Err(Failure::general("DB index is out of range"));
    };
    if core.cluster.is_some() && database != 0 {
        return Err(Failure::general("SELECT is not allowed in cluster mode"));
    }
    core.client(call.client).database = database;
    Ok(Value::OK)
}

fn reset(core: &mut Core, call: &Call<'_>) -> Reply {
    core.keyspace.unwatch(call.client);
    core.pubsub.forget(call.client);
    let outbox = Arc::clone(&core.client(call.client).outbox);
    core.clients.remove(&call.client);
    core.connect(call.client).outbox = outbox;
    Ok(Value::Simple("RESET".into()))
}

fn valid_name(name: &[u8]) -> Result<String, Failure> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(text(name));
    }
    Err(Failure::general(
        "Client names cannot contain spaces, newlines or special characters.",
    ))
}

fn line(core: &mut Core, id: u64) -> String {
    let (channels, patterns) = core.pubsub.counts(id);
    core.client(id).line(channels, patterns)
}

/// Returns whether a connection is of a type that `CLIENT LIST` and `CLIENT KILL` filter by.
fn is_of_type(core: &Core, id: u64, kind: &[u8]) -> Result<bool, Failure> {
    let (channels, patterns) = core.pubsub.counts(id);
    let listens = channels + patterns > 0;
    Ok(match text(kind).to_ascii_lowercase().as_str() {
        "normal" => !listens,
        "pubsub" => listens,
        "master" | "replica" | "slave" => false,
        unknown => {
            return Err(Failure::general(format!("Unknown client type '{unknown}'")));
        }
    })
}

fn ids(core: &Core) -> Vec<u64> {
    let ids = core.clients.keys().copied();
    ids.filter(|&id| id != Client::ADMINISTRATOR).collect()
}

fn list(core: &mut Core, call: &Call<'_>) -> Reply {
    let mut lines = String::new();
    for id in ids(core) {
        let is_wanted = match &call.args[2..] {
            [] => true,
            [option, kind] if is_word(option, "type") => is_of_type(core, id, kind)?,
            [option, wanted @ ..] if is_word(option, "id") => {
                wanted.iter().any(|wanted| text(wanted) == id.to_string())
            }
            _ => return Err(Failure::syntax()),
        };
        if is_wanted {
            lines.push_str(&line(core, id));
        }
    }
    Ok(Value::Verbatim(lines))
}

fn kill(core: &mut Core, call: &Call<'_>) -> Reply {
    let is_old_form = call.args.len() == 3;
    let mut spares_caller = true;
    let mut wanted = ids(core);
    if let [_, _, address] = call.args {
        spares_caller = false;
        wanted.retain(|id| text(address) == format!("127.0.0.1:{}", 30000 + id));
        if wanted.is_empty() {
            return Err(Failure::general("No such client"));
        }
    }
    for pair in call.args[2..].chunks(2).filter(|_| !is_old_form) {
        let [option, value] = pair else {
            return Err(Failure::syntax());
        };
        match text(option).to_ascii_lowercase().as_str() {
            "id" => {
                let id = integer(value)
                    .map_err(|_| Failure::general("client-id should be greater than 0"))?;
                wanted.retain(|each| each.cast_signed() == id);
            }
            "type" => {
                let mut of_type = Vec::new();
                for id in wanted {
                    if is_of_type(core, id, value)? {
                        of_type.push(id);
                    }
                }
                wanted = of_type;
            }
            "user" => {
                let user = text(value);
                wanted.retain(|id| core.client(*id).user.as_ref() == Some(&user));
            }
            "addr" => wanted.retain(|id| text(value) == format!("127.0.0.1:{}", 30000 + id)),
            "skipme" => spares_caller = is_word(value, "yes"),
            _ => return Err(Failure::syntax()),
        }
    }
    wanted.retain(|id| !(spares_caller && *id == call.client));
    for &id in &wanted {
        core.client(id).end(id == call.client);
    }
    Ok(if is_old_form {
        Value::OK
    } else {
        Value::count(wanted.len())
    })
}
