//! The data that the lock protects: ten apples, in a database or in Redis, by the statements of `docs/fencing.md` or without them.

use std::collections::BTreeMap;

use distlock::FencingToken;

/// The apples and the store that contains them.
pub(crate) struct Stock {
    manner: WriteMode,
    store: Store,
    name: String,
}

/// The way in which the store is written to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WriteMode {
    /// Each row has a token.
    Fenced,
    /// The lock has a row of its own, with which every transaction begins.
    InTransactions,
    Unfenced,
}

enum Store {
    Sql(rusqlite::Connection),
    Redis(redis::Client),
}

impl Stock {
    /// Parses `fenced`, `in-transactions` or `unfenced`; `sql` or `redis`; a file or an address.
    pub(crate) fn at(place: &str) -> Self {
        let words: Vec<&str> = place.splitn(3, ' ').collect();
        let [manner, store, address] = words[..] else {
            panic!("`{place}` is no place");
        };
        let manner = match manner {
            "fenced" => WriteMode::Fenced,
            "in-transactions" => WriteMode::InTransactions,
            "unfenced" => WriteMode::Unfenced,
            other => panic!("`{other}` is no manner"),
        };
        let store = match store {
            "sql" => Store::Sql(rusqlite::Connection::open(address).expect("there is room")),
            "redis" => Store::Redis(redis::Client::open(address).expect("an address")),
            other => panic!("`{other}` is no store"),
        };
        Self {
            manner,
            store,
            name: place.replace(['/', ':'], "-"),
        }
    }

    /// Returns the name of the lock that protects the apples.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn fill(&self, amount: i64) {
        match &self.store {
            Store::Sql(db) => {
                let tables = "CREATE TABLE stock (
                    item TEXT PRIMARY KEY, amount INTEGER, token INTEGER NOT NULL DEFAULT 0
                );
                CREATE TABLE fences (name TEXT PRIMARY KEY, token INTEGER NOT NULL);
                INSERT INTO fences VALUES ('apples', 0)";
                db.execute_batch(tables).expect("it is new");
                let apples = "INSERT INTO stock (item, amount) VALUES ('apples', ?1)";
                db.execute(apples, [amount]).expect("it is there");
            }
            Store::Redis(_) => {
                self.redis(redis::cmd("HSET").arg(self.key()).arg("amount").arg(amount));
            }
        }
    }

    /// Returns the number of apples, read by the holder with this token.
    pub(crate) fn read(&self, token: FencingToken) -> i64 {
        match &self.store {
            _ if self.manner == WriteMode::Unfenced => self.left(),
            Store::Sql(db) if self.manner == WriteMode::InTransactions => {
                let amount = transaction(db, token, || self.left());
                amount.expect("it is the greatest so far")
            }
            Store::Sql(db) => {
                let claim = &block("sql")[0];
                let claimed = (i64::from(token), "apples");
                db.query_row(claim, claimed, |row| row.get(0))
                    .expect("it is the greatest so far")
            }
            Store::Redis(_) => {
                let there = self.script(token, &[]).expect("it is the greatest so far");
                there["amount"].parse().expect("a number")
            }
        }
    }

    /// Writes the number of apples that are left; returns whether it was written.
    pub(crate) fn write(&self, token: FencingToken, amount: i64) -> bool {
        match &self.store {
            Store::Sql(db) => {
                let plainly = || {
                    let write = "UPDATE stock SET amount = ?1 WHERE item = 'apples'";
                    db.execute(write, [amount]).expect("it is there") == 1
                };
                match self.manner {
                    WriteMode::Fenced => {
                        let write = &block("sql")[1];
                        let written = db.execute(write, (amount, "apples", i64::from(token)));
                        written.expect("it is there") == 1
                    }
                    WriteMode::InTransactions => transaction(db, token, plainly).unwrap_or(false),
                    WriteMode::Unfenced => plainly(),
                }
            }
            Store::Redis(_) if self.manner == WriteMode::Fenced => {
                let written = self.script(token, &["amount", &amount.to_string()]);
                written.is_some()
            }
            Store::Redis(_) => {
                self.redis(redis::cmd("HSET").arg(self.key()).arg("amount").arg(amount));
                true
            }
        }
    }

    /// Returns the number of apples that are left.
    pub(crate) fn left(&self) -> i64 {
        match &self.store {
            Store::Sql(db) => {
                let left = "SELECT amount FROM stock WHERE item = 'apples'";
                db.query_row(left, [], |row| row.get(0))
                    .expect("it is there")
            }
            Store::Redis(_) => {
                let left = self.redis(redis::cmd("HGET").arg(self.key()).arg("amount"));
                redis::from_redis_value(left).expect("a number")
            }
        }
    }

    fn script(&self, token: FencingToken, write: &[&str]) -> Option<BTreeMap<String, String>> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(&block("lua")[0]).arg(1).arg(self.key());
        eval.arg(token.number()).arg(write);
        let there = self.redis(&eval);
        redis::from_redis_value(there).expect("fields and values")
    }

    fn redis(&self, cmd: &redis::Cmd) -> redis::Value {
        let Store::Redis(client) = &self.store else {
            panic!("it is in a database");
        };
        let mut connection = client.get_connection().expect("the server is up");
        cmd.query(&mut connection).expect("the server answers")
    }

    fn key(&self) -> String {
        format!("stock of {}", self.name)
    }
}

/// Runs a transaction of the holder with this token; does nothing if the token is too old.
fn transaction<T>(
    db: &rusqlite::Connection,
    token: FencingToken,
    work: impl FnOnce() -> T,
) -> Option<T> {
    let transaction = db.unchecked_transaction().expect("there is no other");
    let first = &block("sql")[2];
    let claimed = db.query_row(first, (i64::from(token), "apples"), |_| Ok(()));
    match claimed {
        Ok(()) => {}
        Err(rusqlite::Error::QueryReturnedNoRows) => return None,
        Err(error) => panic!("{error}"),
    }
    let done = work();
    transaction.commit().expect("nobody else is here");
    Some(done)
}

/// Returns the code blocks of this language in the page on fencing.
fn block(language: &str) -> Vec<String> {
    let page = include_str!("../../docs/fencing.md");
    let opening = format!("```{language}\n");
    let blocks = page.split(&opening).skip(1);
    let code = |block: &str| block.split("```").next().map(str::to_owned);
    blocks.filter_map(code).collect()
}
