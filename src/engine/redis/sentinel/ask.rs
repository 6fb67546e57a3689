//! One sentinel, and what it says.

#![expect(clippy::disallowed_methods, reason = "engines may wait")]

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, FromRedisValue, Pipeline, PushInfo, PushKind, Value};
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::time::timeout;
use tracing::Level;

use super::Word;
use super::believe::{Named, Testimony};
use crate::engine::redis::door::{Address, Road};
use crate::engine::redis::failure;
use crate::engine::redis::settings::Settings;
use crate::engine::redis::site::Site;
use crate::engine::{Cause, Failure};

/// What sentinels publish when another master is the one: it knows by itself that it is; they have told each other.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// How sentinels are reached, and what they are asked about.
#[derive(Clone)]
pub(super) struct Inquiry {
    /// As whom, and how; each in its place.
    pub(super) address: Address,
    pub(super) settings: Settings,
    /// What the master is called.
    pub(super) name: String,
    /// How long connecting to one may take.
    pub(super) greeting: Duration,
    /// How long one may take to answer, once it is connected to; all of it, where an operator asks.
    pub(super) limit: Duration,
    /// Whom to tell of a switch.
    pub(super) words: WeakUnboundedSender<Word>,
}

/// What came of asking one.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    /// It knows no master of that name.
    NoSuchMaster,
    Said {
        said: Testimony,
        others: Vec<Site>,
    },
}

impl Inquiry {
    /// Asks, over the connection that there is or another; it is kept while it works.
    pub(super) async fn ask(
        &self,
        site: &Site,
        line: Option<MultiplexedConnection>,
    ) -> Result<(Heard, MultiplexedConnection), Failure> {
        let mut line = match line {
            Some(line) => line,
            None => self.connect(site).await?,
        };
        let exchange = async {
            let name = &self.name;
            let mut questions = redis::pipe();
            // The epoch before the address: an old one with a new address is put right soon, and the other way round
            // a demoted master would be believed for ever.
            for words in [
                ["MASTER", name].as_slice(),
                &["GET-MASTER-ADDR-BY-NAME", name],
                &["SENTINELS", name],
                &["MYID"],
            ] {
                questions.cmd("SENTINEL").arg(words);
            }
            let answers = answers(&mut line, &questions).await?;
            Ok((understand(site, answers)?, line))
        };
        in_time(self.limit, exchange).await
    }

    /// Asks what else there is to know, for an operator.
    pub(super) async fn details(&self, site: &Site) -> Result<Details, Failure> {
        let exchange = async {
            let mut line = self.connect(site).await?;
            let mut questions = redis::pipe();
            for word in ["MASTER", "REPLICAS"] {
                questions.cmd("SENTINEL").arg(&[word, &self.name]);
            }
            let mut answers = answers(&mut line, &questions).await?.into_iter();
            let mut next = || answers.next().unwrap_or(Value::Nil);
            let master: Fields = value(next())?;
            let replicas: Vec<Fields> = value(next())?;
            let number = |field| master.get(field).and_then(|text| text.parse().ok());
            let in_reach = |replica: &&Fields| {
                let flags = replica.get("flags").map_or("", String::as_str);
                let link = replica.get("master-link-status").map_or("", String::as_str);
                !flags.contains("down") && !flags.contains("disconnected") && link == "ok"
            };
            Ok(Details {
                quorum: number("quorum").unwrap_or(0),
                sentinels: number("num-other-sentinels").unwrap_or(0) + 1,
                in_reach: replicas.iter().filter(in_reach).count(),
                replicas: replicas.len(),
            })
        };
        in_time(self.limit, exchange).await
    }

    /// Connects, and hears of every switch from then on.
    async fn connect(&self, site: &Site) -> Result<MultiplexedConnection, Failure> {
        let road = Road::new(&self.address.at(&site.host, site.port), &self.settings)?;
        let (words, name) = (self.words.clone(), self.name.clone());
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(self.limit))
            .set_push_sender(move |push: PushInfo| {
                if let Some(word) = news(&push, &name)
                    && let Some(words) = words.upgrade()
                {
                    let _ = words.send(word);
                }
                Ok::<(), std::convert::Infallible>(())
            });
        let made = road.open(config, self.greeting).await;
        let mut line = made.map_err(of_a_sentinel)?;
        match line.subscribe(&CHANNELS).await {
            Ok(()) => Ok(line),
            Err(error) => match of_a_sentinel(failure::of_calling(&error)) {
                // Then it is asked now and then.
                failure if failure.cause == Cause::Denied => {
                    let (sentinel, why) = (site.clone(), failure.detail);
                    self.settings.events.emit(Level::DEBUG, move || {
                        tracing::debug!(%sentinel, why, "cannot listen");
                    });
                    Ok(line)
                }
                failure => Err(failure),
            },
        }
    }
}

/// What an operator is told of a topology, as one sentinel sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Details {
    /// How many sentinels it takes to call a master down.
    pub(crate) quorum: usize,
    /// How many there are, itself included.
    pub(crate) sentinels: usize,
    /// How many replicas follow the master.
    pub(crate) in_reach: usize,
    /// How many should.
    pub(crate) replicas: usize,
}

type Fields = HashMap<String, String>;

fn news(push: &PushInfo, name: &str) -> Option<Word> {
    match push.kind {
        PushKind::Disconnection => Some(Word::Look),
        PushKind::Message => {
            let Some(Value::BulkString(told)) = push.data.get(1) else {
                return None;
            };
            is_about(&String::from_utf8_lossy(told), name).then_some(Word::Switched)
        }
        _ => None,
    }
}

/// `name old-ip old-port new-ip new-port`, or `slave its-name ip port @ name ip port`. The epoch is in neither, so that it is
/// asked for.
fn is_about(told: &str, name: &str) -> bool {
    let subject = told.split_once(" @ ").map_or(told, |(_, master)| master);
    subject.split(' ').next() == Some(name)
}

fn understand(site: &Site, answers: Vec<Value>) -> Result<Heard, Failure> {
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or(Value::Nil);
    let (master, address, others, id) = (next(), next(), next(), next());
    let Some((host, port)) = value::<Option<(String, u16)>>(address)? else {
        return Ok(Heard::NoSuchMaster);
    };
    let master: Fields = value(master)?;
    let epoch = master
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok());
    // What it knows of others, and its own name, it may keep to itself.
    let others: Vec<Fields> = value(others).unwrap_or_default();
    let others = others.iter().filter_map(|other| {
        let host = other.get("ip").filter(|host| !host.is_empty())?.clone();
        let port = other.get("port")?.parse().ok()?;
        Some(Site { host, port })
    });
    let others: Vec<Site> = others.collect();
    Ok(Heard::Said {
        said: Testimony {
            who: value(id).unwrap_or_else(|_| site.to_string()),
            master: Named {
                site: Site { host, port },
                epoch: epoch.unwrap_or(0),
            },
            sentinels: others.len() + 1,
        },
        others,
    })
}

async fn answers(
    line: &mut MultiplexedConnection,
    questions: &Pipeline,
) -> Result<Vec<Value>, Failure> {
    let asked = line.req_packed_commands(questions, 0, questions.len());
    asked
        .await
        .map_err(|error| of_a_sentinel(failure::of_calling(&error)))
}

fn value<T: FromRedisValue>(answer: Value) -> Result<T, Failure> {
    let answer = answer.extract_error();
    let answer = answer.map_err(|error| of_a_sentinel(failure::of_calling(&error)))?;
    redis::from_redis_value(answer).map_err(|_| {
        let why = "what answers there is no sentinel";
        Failure::new(Cause::Unexpected, why)
    })
}

/// A sentinel's password is not the server's.
fn of_a_sentinel(mut failure: Failure) -> Failure {
    let detail = &mut failure.detail;
    if detail.starts_with("NOAUTH") || detail.starts_with("it asks for a password") {
        *detail = "it asks for a password of its own: ?sentinel_pass=…".into();
    } else if detail.starts_with("ERR unknown command") {
        failure.cause = Cause::Unexpected;
        *detail = "what answers there is no sentinel".into();
    }
    failure
}

async fn in_time<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, Failure>> + Send,
) -> Result<T, Failure> {
    let exchange = timeout(limit, exchange).await;
    exchange.unwrap_or_else(|_| {
        let why = format!("no answer within {limit:?}");
        Err(Failure::new(Cause::Unreachable, why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 7 words them.
    #[test]
    fn news_of_other_masters_is_none_of_ours() {
        let switched = "mine 127.0.0.1 1 127.0.0.1 2";
        let promoted = "slave 127.0.0.1:2 127.0.0.1 2 @ mine 127.0.0.1 1";
        for told in [switched, promoted] {
            assert!(is_about(told, "mine"), "{told}");
            assert!(!is_about(told, "min"), "{told}");
            assert!(!is_about(told, "127.0.0.1"), "{told}");
        }
    }
}
