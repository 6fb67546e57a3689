//! Every operation, applied to every name in the corpus.

use std::time::Duration;

use distlock::Client;

use super::PATIENCE;
use super::corpus::shapes;
use super::operations::{Case, Effect, Kind, Operation, all};
use super::outcome::{Outcome, returned};
use super::stage::Stage;

#[tokio::test]
async fn no_operation_changes_the_data_of_other_programs() {
    ask_everything("").await;
}

#[tokio::test]
async fn no_operation_without_scripts_changes_the_data_of_other_programs() {
    ask_everything("?scripts=off").await;
}

async fn ask_everything(parameters: &str) {
    let mut stage = Stage::start();
    if !parameters.is_empty() {
        // Without scripts an operator's request reads the values of a hash's fields, few of them, and whole.
        stage.most_sent = 16 << 20;
    }
    let client = stage.client(parameters).await;
    let peers = [memory().await, memory().await];
    let operations = all();
    let groups: Vec<&[Operation]> = operations
        .chunk_by(|one, next| one.kind == next.kind)
        .collect();
    for shape in shapes() {
        for name in shape.names() {
            let mut case = Case {
                client: client.clone(),
                peers: peers.clone(),
                name: name.to_owned(),
                wait: PATIENCE,
                has_scripts: parameters.is_empty(),
            };
            for group in &groups {
                ask(&mut stage, shape.key, &mut case, group).await;
            }
        }
        stage.all_unchanged(&format!("everything asked of `{}`", shape.key));
    }
    let closed = client.close().await;
    closed.expect("everything is released");
    stage.end();
}

/// Applies all operations of one kind.
async fn ask(stage: &mut Stage, key: &str, case: &mut Case, group: &[Operation]) {
    let kind = group[0].kind;
    let rules = Rules::of(stage, &case.name, kind, case.has_scripts);
    case.wait = if rules.is_busy() { SHORT } else { PATIENCE };
    let what = format!("{kind:?} `{}`", case.name);
    let before = stage.reading();
    let mut refused = true;
    for operation in group {
        // An operation that waits would do so for long if the others were not refused, and that is reported already.
        let waits = matches!(operation.effect, Effect::Waits | Effect::WaitsInVain);
        let returns = refused || rules.is_free || rules.is_busy();
        if !rules.asks(operation) || (waits && !returns) {
            continue;
        }
        let outcome = returned(operation.run(case), PATIENCE).await;
        if outcome == Outcome::NeedsScripts && NEED_SCRIPTS.contains(&kind) {
            break;
        }
        refused = outcome == Outcome::Refused;
        if !rules.allows(operation, &outcome) {
            stage.fail(format!("{what}, {}: {outcome:?}", operation.covers));
        }
    }
    stage.judge(&what, &[key, &case.name], before);
    stage.sweep(&what, refused && !rules.is_free);
}

/// The permitted outcomes of the operations on a name.
struct Rules {
    kind: Kind,
    /// No key of the corpus has the name; one has a name that a lock keeps beside its own.
    is_free: bool,
    is_string: bool,
    is_integer: bool,
    is_owner: bool,
    /// Without scripts the names of a hash's fields are read, and not their values, which may be of any size: a hash all of whose fields
    /// are owners counts as a held lock.
    is_waited_for: bool,
}

impl Rules {
    fn of(stage: &Stage, name: &str, kind: Kind, has_scripts: bool) -> Self {
        let out = match name.contains('{') {
            true => format!("{name}:timeout"),
            false => format!("{{{name}}}:timeout"),
        };
        // The permits in use are in a key of their own, which shows whether the number belongs to a semaphore.
        let is_semaphores = kind != Kind::Semaphore || !stage.has(&out);
        Self {
            kind,
            is_free: !stage.has(name),
            is_string: stage.is_string(name),
            is_integer: stage.is_integer(name) && is_semaphores,
            is_owner: stage.is_owner(name),
            is_waited_for: !has_scripts && COUNTLESS.contains(&name),
        }
    }

    fn is_of_numbers(&self) -> bool {
        matches!(self.kind, Kind::Semaphore | Kind::Counting | Kind::Latch)
    }

    /// Returns whether the key may be another library's lock, or a count that other clients wait for: then it is busy.
    fn is_busy(&self) -> bool {
        match self.kind {
            Kind::Simple | Kind::Quorum => self.is_string,
            Kind::Latch => self.is_integer,
            Kind::Plain | Kind::Fenced => self.is_waited_for,
            _ => false,
        }
    }

    /// Returns whether an operation is applied. It is not if it may change a key that cannot be distinguished from a lock's, or if it waits
    /// for as long as that key exists.
    fn asks(&self, operation: &Operation) -> bool {
        match operation.effect {
            Effect::Reads => true,
            Effect::WaitsInVain if self.kind == Kind::Latch => true,
            Effect::Waits if self.is_busy() => false,
            _ if self.kind == Kind::Admin => !self.is_owner,
            _ => !(self.is_of_numbers() && self.is_integer),
        }
    }

    fn allows(&self, operation: &Operation, outcome: &Outcome) -> bool {
        let is_exempt = self.is_of_numbers() && self.is_integer;
        match outcome {
            Outcome::Refused => true,
            // On a busy machine the server has not replied in so short a time.
            Outcome::Late => self.is_busy() && operation.effect == Effect::WaitsInVain,
            Outcome::Nothing => {
                self.is_free || self.is_busy() || is_exempt || self.kind == Kind::Admin
            }
            // The other servers of a quorum are enough.
            Outcome::Done => {
                let is_seen = self.kind == Kind::Admin && self.is_owner;
                self.is_free || is_exempt || is_seen || self.kind == Kind::Quorum
            }
            Outcome::NeedsScripts | Outcome::Failed(_) => false,
        }
    }
}

async fn memory() -> Client {
    let client = Client::connect("memory:").await;
    client.expect("it is in memory")
}

/// The wait limit of an operation on a lock that is not released.
const SHORT: Duration = Duration::from_millis(20);
/// Kinds of locks that are not available if the url turns scripts off.
const NEED_SCRIPTS: [Kind; 6] = [
    Kind::Fair,
    Kind::Read,
    Kind::Write,
    Kind::Semaphore,
    Kind::Counting,
    Kind::Latch,
];
/// Hashes whose fields are owners, and whose values are not counts.
const COUNTLESS: [&str; 7] = [
    "presence:9",
    "presence:10",
    "presence:11",
    "presence:12",
    "presence:13",
    "presence:14",
    "presence:15",
];
