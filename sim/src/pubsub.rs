//! Messages: channels, patterns of channels, and shard channels.

use std::collections::BTreeMap;

use crate::Value;
use crate::arguments::text;
use crate::cluster_slots::slot_of;
use crate::cluster_view::Publication;
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::glob;

/// The subscriptions, in the order in which clients have subscribed.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: Subscriptions,
    patterns: Subscriptions,
    shard_channels: Subscriptions,
}

type Subscriptions = BTreeMap<Vec<u8>, Vec<u64>>;

/// One of the three ways to subscribe.
#[derive(Clone, Copy, Debug)]
enum SubscriptionKind {
    Channel,
    Pattern,
    Shard,
}

impl SubscriptionKind {
    /// Returns the way for a command, by the beginning of its name, which the names of its messages share.
    fn of(command: &str) -> Self {
        match command.as_bytes().first() {
            Some(b'p') => Self::Pattern,
            Some(b's') if command.starts_with("ss") || command.starts_with("sun") => Self::Shard,
            _ => Self::Channel,
        }
    }
}

impl PubSub {
    const fn of(&mut self, manner: SubscriptionKind) -> &mut Subscriptions {
        match manner {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => &mut self.shard_channels,
        }
    }

    /// Returns whether a connection has subscribed to anything.
    pub(crate) fn is_subscribed(&self, client: u64) -> bool {
        let all = [&self.channels, &self.patterns, &self.shard_channels];
        all.into_iter()
            .any(|subscriptions| count(subscriptions, client) > 0)
    }

    /// Counts a connection's channels and patterns.
    pub(crate) fn counts(&self, client: u64) -> (usize, usize) {
        (count(&self.channels, client), count(&self.patterns, client))
    }

    /// Ends all subscriptions of a connection.
    pub(crate) fn forget(&mut self, client: u64) {
        for manner in [
            SubscriptionKind::Channel,
            SubscriptionKind::Pattern,
            SubscriptionKind::Shard,
        ] {
            self.of(manner).retain(|_, clients| {
                clients.retain(|&each| each != client);
                !clients.is_empty()
            });
        }
    }

    /// Returns the number with which a subscription is confirmed.
    fn total(&self, manner: SubscriptionKind, client: u64) -> Value {
        Value::count(match manner {
            SubscriptionKind::Shard => count(&self.shard_channels, client),
            SubscriptionKind::Channel | SubscriptionKind::Pattern => {
                count(&self.channels, client) + count(&self.patterns, client)
            }
        })
    }
}

fn count(subscriptions: &Subscriptions, client: u64) -> usize {
    let subscriptions = subscriptions.values();
    subscriptions
        .filter(|clients| clients.contains(&client))
        .count()
}

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "subscribe" | "psubscribe" | "ssubscribe" => subscribe,
        "unsubscribe" | "punsubscribe" | "sunsubscribe" => unsubscribe,
        "publish" => |core, call| {
            if core.sentinel.is_some() {
                return Err(Failure::general(
                    "Only HELLO messages are accepted by Sentinel instances.",
                ));
            }
            core.broadcast(&call.args[1], &call.args[2], false);
            Ok(publish(core, &call.args[1], &call.args[2]))
        },
        "spublish" => |core, call| {
            core.broadcast(&call.args[1], &call.args[2], true);
            Ok(publish_to_shard(core, &call.args[1], &call.args[2]))
        },
        "pubsub|channels" => |core, call| names(&core.pubsub.channels, call),
        "pubsub|shardchannels" => |core, call| names(&core.pubsub.shard_channels, call),
        "pubsub|numsub" => |core, call| Ok(numbers(&core.pubsub.channels, call)),
        "pubsub|shardnumsub" => |core, call| Ok(numbers(&core.pubsub.shard_channels, call)),
        "pubsub|numpat" => |core, _| Ok(Value::count(core.pubsub.patterns.len())),
        _ => return None,
    })
}

fn subscribe(core: &mut Core, call: &Call<'_>) -> Reply {
    let manner = SubscriptionKind::of(call.name);
    let mut replies = Vec::new();
    for channel in &call.args[1..] {
        let clients = core.pubsub.of(manner).entry(channel.clone()).or_default();
        if !clients.contains(&call.client) {
            clients.push(call.client);
        }
        let total = core.pubsub.total(manner, call.client);
        replies.push(Value::Push(vec![
            Value::bulk(call.name),
            Value::bulk(channel),
            total,
        ]));
    }
    Ok(Value::Several(replies))
}

fn unsubscribe(core: &mut Core, call: &Call<'_>) -> Reply {
    let manner = SubscriptionKind::of(call.name);
    let mut channels = call.args[1..].to_vec();
    if channels.is_empty() {
        let subscriptions = core.pubsub.of(manner).iter();
        let own = subscriptions.filter(|(_, clients)| clients.contains(&call.client));
        channels = own.map(|(channel, _)| channel.clone()).collect();
    }
    let mut replies = Vec::new();
    for channel in &channels {
        let subscriptions = core.pubsub.of(manner);
        if let Some(clients) = subscriptions.get_mut(channel) {
            clients.retain(|&each| each != call.client);
            if clients.is_empty() {
                subscriptions.remove(channel);
            }
        }
        let total = core.pubsub.total(manner, call.client);
        replies.push(Value::Push(vec![
            Value::bulk(call.name),
            Value::bulk(channel),
            total,
        ]));
    }
    if replies.is_empty() {
        let total = core.pubsub.total(manner, call.client);
        replies.push(Value::Push(vec![Value::bulk(call.name), Value::Nil, total]));
    }
    Ok(Value::Several(replies))
}

fn send(core: &Core, client: u64, words: &[&[u8]]) {
    if let Some(client) = core.clients.get(&client) {
        let message = Value::Push(words.iter().map(Value::bulk).collect());
        client.outbox.send(&message, client.protocol);
    }
}

pub(crate) fn publish(core: &Core, channel: &[u8], message: &[u8]) -> Value {
    let mut receivers = 0;
    for &client in core.pubsub.channels.get(channel).into_iter().flatten() {
        send(core, client, &[b"message", channel, message]);
        receivers += 1;
    }
    for (pattern, clients) in &core.pubsub.patterns {
        if !glob::matches(pattern, channel) {
            continue;
        }
        for &client in clients {
            send(core, client, &[b"pmessage", pattern, channel, message]);
            receivers += 1;
        }
    }
    Value::Integer(receivers)
}

fn publish_to_shard(core: &Core, channel: &[u8], message: &[u8]) -> Value {
    let clients = core.pubsub.shard_channels.get(channel);
    let clients = clients.map_or(&[][..], Vec::as_slice);
    for &client in clients {
        send(core, client, &[b"smessage", channel, message]);
    }
    Value::count(clients.len())
}

impl Core {
    /// Sends a message of another node of the cluster to its subscribers here.
    pub(crate) fn deliver(&self, publication: &Publication) {
        let (channel, message) = (&publication.channel, &publication.message);
        if publication.is_sharded {
            publish_to_shard(self, channel, message);
        } else {
            publish(self, channel, message);
        }
    }

    /// Ends the subscriptions to shard channels of a slot that this node does not serve any more, and notifies the subscribers.
    pub(crate) fn unsubscribe_slot(&mut self, slot: u16) {
        let channels = self.pubsub.shard_channels.keys();
        let channels = channels.filter(|channel| slot_of(channel) == slot);
        for channel in channels.cloned().collect::<Vec<_>>() {
            let clients = self.pubsub.shard_channels.remove(&channel);
            for client in clients.into_iter().flatten() {
                let total = self.pubsub.total(SubscriptionKind::Shard, client);
                if let Some(client) = self.clients.get(&client) {
                    let words = [Value::bulk("sunsubscribe"), Value::bulk(&channel), total];
                    let notification = Value::Push(words.into());
                    client.outbox.send(&notification, client.protocol);
                }
            }
        }
    }
}

fn names(subscriptions: &Subscriptions, call: &Call<'_>) -> Reply {
    if call.args.len() > 3 {
        let sub = text(&call.args[1]);
        return Err(Failure::general(format!(
            "unknown subcommand or wrong number of arguments for '{sub}'. Try PUBSUB HELP."
        )));
    }
    let pattern = call.args.get(2);
    let names = subscriptions.keys();
    Ok(Value::bulks(names.filter(|name| {
        pattern.is_none_or(|pattern| glob::matches(pattern, name))
    })))
}

fn numbers(subscriptions: &Subscriptions, call: &Call<'_>) -> Value {
    let mut found = Vec::new();
    for channel in &call.args[2..] {
        found.push(Value::bulk(channel));
        found.push(Value::count(subscriptions.get(channel).map_or(0, Vec::len)));
    }
    // The result is an array in both protocols.
    Value::Array(found)
}
