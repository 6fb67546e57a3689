//! The commands about the cluster of which a server is a node.

use crate::Value;
use crate::arguments::{integer, is_word, strict_integer, text};
use crate::cluster_slots::{SLOTS, slot_of};
use crate::cluster_view::ClusterView;
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "asking" => |core, call| {
            view(core)?;
            core.client(call.client).is_asking = true;
            Ok(Value::OK)
        },
        "readonly" | "readwrite" => |core, call| {
            view(core)?;
            core.client(call.client).reads_replica = call.name == "readonly";
            Ok(Value::OK)
        },
        "cluster|myid" => |core, _| {
            let view = view(core)?;
            Ok(Value::bulk(&view.peers[view.me].id))
        },
        "cluster|slots" => |core, _| Ok(slots(view(core)?)),
        "cluster|nodes" => |core, _| {
            let view = view(core)?;
            let lines = (0..view.peers.len()).map(|node| line(view, node) + "\n");
            Ok(Value::Verbatim(lines.collect()))
        },
        "cluster|replicas" | "cluster|slaves" => replicas,
        "cluster|info" => |core, _| Ok(Value::Verbatim(info(view(core)?))),
        "cluster|keyslot" => |core, call| {
            view(core)?;
            Ok(Value::Integer(slot_of(&call.args[2]).into()))
        },
        "cluster|countkeysinslot" => |core, call| {
            view(core)?;
            let slot = in_range(integer(&call.args[2])?);
            let slot = slot.ok_or_else(|| Failure::general("Invalid slot"))?;
            Ok(Value::count(core.keys_in_slot(slot).len()))
        },
        "cluster|getkeysinslot" => |core, call| {
            view(core)?;
            let slot = in_range(integer(&call.args[2])?);
            let most = usize::try_from(integer(&call.args[3])?).ok();
            let Some((slot, most)) = slot.zip(most) else {
                return Err(Failure::general("Invalid slot or number of keys"));
            };
            let keys = core.keys_in_slot(slot).into_iter().take(most);
            Ok(Value::bulks(keys))
        },
        "cluster|setslot" => set_slot,
        name if name.starts_with("cluster|") => |core, call| {
            view(core)?;
            let name = call.name.replace('|', " ");
            Err(Failure::general(format!(
                "the simulated server does not know how to execute '{name}'"
            )))
        },
        _ => return None,
    })
}

fn view(core: &mut Core) -> Result<&mut ClusterView, Failure> {
    let view = core.cluster.as_deref_mut();
    view.ok_or_else(|| Failure::general("This instance has cluster support disabled"))
}

fn in_range(number: i64) -> Option<u16> {
    let number = u16::try_from(number).ok()?;
    (number < SLOTS).then_some(number)
}

fn slots(view: &ClusterView) -> Value {
    let node = |node: usize| {
        let peer = &view.peers[node];
        Value::Array(vec![
            Value::bulk(&peer.address.0),
            Value::Integer(peer.address.1.into()),
            Value::bulk(&peer.id),
            Value::Map(Vec::new()),
        ])
    };
    let masters = 0..view.peers.len();
    let mut found: Vec<(u16, u16, usize)> = masters
        .flat_map(|master| {
            let ranges = view.ranges_of(master).into_iter();
            ranges.map(move |(first, last)| (first, last, master))
        })
        .collect();
    found.sort_unstable();
    let ranges = found.into_iter().map(|(first, last, master)| {
        let mut range = vec![
            Value::Integer(first.into()),
            Value::Integer(last.into()),
            node(master),
        ];
        let replicas = view.replicas_of(master);
        let replicas = replicas.filter(|&replica| view.peers[replica].failed.is_none());
        range.extend(replicas.map(node));
        Value::Array(range)
    });
    Value::Array(ranges.collect())
}

/// Returns a node's line in `CLUSTER NODES`.
fn line(view: &ClusterView, node: usize) -> String {
    let peer = &view.peers[node];
    let (host, port) = &peer.address;
    let bus = u32::from(*port) + 10_000;
    let mut flags = Vec::new();
    if node == view.me {
        flags.push("myself");
    }
    flags.push(if peer.master.is_some() {
        "slave"
    } else {
        "master"
    });
    if peer.failed.is_some() {
        flags.push("fail");
    } else if peer.is_suspected {
        flags.push("fail?");
    }
    let master = peer.master.map_or("-", |master| &view.peers[master].id);
    let epoch = view.peers[peer.master.unwrap_or(node)].config_epoch;
    let is_gone = peer.failed.is_some() || peer.is_suspected;
    let link = if is_gone { "disconnected" } else { "connected" };
    let mut line = format!(
        "{} {host}:{port}@{bus} {} {master} 0 0 {epoch} {link}",
        peer.id,
        flags.join(",")
    );
    for (first, last) in view.ranges_of(node) {
        line += &if first == last {
            format!(" {first}")
        } else {
            format!(" {first}-{last}")
        };
    }
    if node == view.me {
        for (slot, to) in &view.migrating {
            line += &format!(" [{slot}->-{}]", view.peers[*to].id);
        }
        for (slot, from) in &view.importing {
            line += &format!(" [{slot}-<-{}]", view.peers[*from].id);
        }
    }
    line
}

fn replicas(core: &mut Core, call: &Call<'_>) -> Reply {
    let view = view(core)?;
    let id = text(&call.args[2]);
    let Some(master) = view.by_id(&id) else {
        return Err(Failure::general(format!("Unknown node {id}")));
    };
    if view.peers[master].master.is_some() {
        return Err(Failure::general("The specified node is not a master"));
    }
    let lines = view.replicas_of(master).map(|node| line(view, node));
    Ok(Value::bulks(lines))
}

fn info(view: &ClusterView) -> String {
    let state = if view.is_ok { "ok" } else { "fail" };
    let count = |is_wanted: &dyn Fn(usize) -> bool| -> u16 {
        let nodes = (0..view.peers.len()).filter(|&node| is_wanted(node));
        nodes.map(|node| view.count(node)).sum()
    };
    let failed = count(&|node| view.peers[node].failed.is_some());
    let suspected =
        count(&|node| view.peers[node].failed.is_none() && view.peers[node].is_suspected);
    let assigned = SLOTS - view.unassigned();
    let own = view.master().unwrap_or(view.me);
    let fields = [
        ("cluster_state", state.to_owned()),
        ("cluster_slots_assigned", assigned.to_string()),
        (
            "cluster_slots_ok",
            (assigned - failed - suspected).to_string(),
        ),
        ("cluster_slots_pfail", suspected.to_string()),
        ("cluster_slots_fail", failed.to_string()),
        ("cluster_known_nodes", view.peers.len().to_string()),
        ("cluster_size", view.voters().count().to_string()),
        ("cluster_current_epoch", view.current_epoch.to_string()),
        ("cluster_my_epoch", view.peers[own].config_epoch.to_string()),
    ];
    let lines = fields
        .iter()
        .map(|(name, value)| format!("{name}:{value}\r\n"));
    lines.collect()
}

fn set_slot(core: &mut Core, call: &Call<'_>) -> Reply {
    let view = view(core)?;
    let me = view.me;
    if view.master().is_some() {
        return Err(Failure::general("Please use SETSLOT only with masters."));
    }
    let slot = strict_integer(&call.args[2]).and_then(in_range);
    let slot = slot.ok_or_else(|| Failure::general("Invalid or out of range slot"))?;
    let (action, node) = (&call.args[3], call.args.get(4).map(|id| text(id)));
    let known = |id: &str| view.by_id(id);
    let a_master = |node: usize| match view.peers[node].master {
        Some(_) => Err(Failure::general("Target node is not a master")),
        None => Ok(node),
    };
    let unknown = |id: &str| Failure::general(format!("I don't know about node {id}"));
    match (action, node.as_deref()) {
        (action, Some(id)) if is_word(action, "migrating") => {
            if view.owner(slot) != Some(me) {
                let text = format!("I'm not the owner of hash slot {slot}");
                return Err(Failure::general(text));
            }
            let node = a_master(known(id).ok_or_else(|| unknown(id))?)?;
            view.migrating.insert(slot, node);
        }
        (action, Some(id)) if is_word(action, "importing") => {
            if view.owner(slot) == Some(me) {
                let text = format!("I'm already the owner of hash slot {slot}");
                return Err(Failure::general(text));
            }
            let node = a_master(known(id).ok_or_else(|| unknown(id))?)?;
            view.importing.insert(slot, node);
        }
        (action, None) if is_word(action, "stable") => {
            view.importing.remove(&slot);
            view.migrating.remove(&slot);
        }
        (action, Some(id)) if is_word(action, "node") => {
            let node = known(id);
            let node = node.ok_or_else(|| Failure::general(format!("Unknown node {id}")))?;
            let node = a_master(node)?;
            take_slot(core, slot, node)?;
        }
        _ => {
            let text = "Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP";
            return Err(Failure::general(text));
        }
    }
    core.update_cluster_state();
    Ok(Value::OK)
}

/// Executes `CLUSTER SETSLOT NODE`.
fn take_slot(core: &mut Core, slot: u16, node: usize) -> Result<(), Failure> {
    let is_empty = core.keys_in_slot(slot).is_empty();
    let own = view(core)?;
    let me = own.me;
    let was_mine = own.owner(slot) == Some(me);
    if was_mine && node != me && !is_empty {
        let text = format!(
            "Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
        );
        return Err(Failure::general(text));
    }
    if is_empty {
        own.migrating.remove(&slot);
    }
    core.assign_slot(slot, Some(node));
    let own = view(core)?;
    if was_mine && node != me && own.count(me) == 0 {
        own.become_replica_of(node);
    }
    if node == me && own.importing.remove(&slot).is_some() {
        own.bump_epoch();
    }
    Ok(())
}
