//! Requests as script calls, and script results as replies: a module for each primitive.

use redis::{Cmd, Value};

mod answers;
mod batch;
mod exclusive;
mod inspect;
mod number;
mod semaphore;
mod shared;
mod text;
mod words;

pub(crate) use self::inspect::{Inspection, Readable};
use self::text::Script;
use self::words::Words;
use super::keys::Keys;
use crate::engine::Failure;
use crate::protocol::{Action, ClientId, Count, Entry, Kind, Reply, Request};

/// One primitive's scripts.
trait Primitive: Sync {
    /// The script that carries out one action.
    fn script(&'static self, action: &Action) -> &'static Script;
    /// The arguments of that script.
    fn args(&self, request: &Request, keys: &Keys, words: &mut Words);
    /// The keys of that script.
    fn places(&self, action: &Action) -> &'static [Place];
    /// What a script's result means for this action.
    fn reply(&self, action: &Action, result: Value) -> Result<Reply, Failure>;
}

/// One script, run for some requests. Their keys and arguments are written when it is sent, not before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    script: &'static Script,
    requests: &'a [Request],
    keys: &'a Keys,
    form: Form<'a>,
    /// Whether its keys are on their way to the server it is sent to.
    pub(crate) asking: bool,
    /// Whether it is granted only to one that holds the other side.
    pub(crate) only_of_a_holder: bool,
}

/// How a script is told its requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form<'a> {
    /// Their keys and arguments, one after the other.
    Plain,
    /// Each is a passenger, told by the number of its own script.
    Batch,
    /// A page of what is held under a name; by the first of its keys, if the user may not read all.
    Inspect(Readable, &'a str),
}

impl<'a> Call<'a> {
    /// The call that carries out one request.
    pub(crate) fn new(request: &'a Request, keys: &'a Keys) -> Self {
        Self {
            script: set(request.subject.kind).script(&request.action),
            requests: std::slice::from_ref(request),
            keys,
            form: Form::Plain,
            asking: false,
            only_of_a_holder: false,
        }
    }

    /// One call that renews many holds of this kind.
    pub(crate) fn renew_all(kind: Kind, requests: &'a [Request], keys: &'a Keys) -> Self {
        Self {
            // One for as many as there are.
            script: requests.first().map_or_else(
                || set(kind).script(&Action::Inspect),
                |request| set(kind).script(&request.action),
            ),
            requests,
            keys,
            form: Form::Plain,
            asking: false,
            only_of_a_holder: false,
        }
    }

    /// One call for many requests of this kind that [`may_travel`], each with its own answer in the same order.
    pub(crate) fn batch(kind: Kind, requests: &'a [Request], keys: &'a Keys) -> Option<Self> {
        Some(Self {
            script: batch::script(kind)?,
            requests,
            keys,
            form: Form::Batch,
            asking: false,
            only_of_a_holder: false,
        })
    }

    /// One call that reports a page of what is held under a request's name, whatever kind of lock it is.
    pub(crate) fn inspect(
        request: &'a Request,
        keys: &'a Keys,
        readable: Readable,
        cursor: Option<&'a str>,
    ) -> Self {
        let cursor = cursor.unwrap_or(inspect::START);
        Self {
            script: &inspect::SCRIPT,
            form: Form::Inspect(readable, cursor),
            ..Self::new(request, keys)
        }
    }

    /// Whether its script only reads.
    pub(crate) fn only_reads(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.all(|request| {
            let is_look = request.action == Action::Count(Count::Look);
            is_look || request.action == Action::Inspect
        })
    }

    /// Whether each item of the answer is the result of one request, and a text in it the error of that request.
    pub(crate) fn has_item_results(&self) -> bool {
        let renewals = || {
            let mut requests = self.requests.iter();
            requests.all(|request| renewal(request).is_some())
        };
        match self.form {
            Form::Batch => true,
            Form::Plain => renewals(),
            Form::Inspect(..) => false,
        }
    }

    /// Whether it may grant something to somebody who has nothing of it.
    pub(crate) fn takes(&self) -> bool {
        let mut requests = self.requests.iter();
        let anew = requests.any(|request| match request.action {
            Action::Acquire { entry, .. } => entry == Entry::First,
            _ => false,
        });
        anew && !self.only_of_a_holder
    }

    /// By hash: a few bytes, once the server knows the script. With `_RO` the server refuses any write of the script.
    pub(crate) fn by_hash(&self, read_only: bool) -> Cmd {
        let word = if read_only { "EVALSHA_RO" } else { "EVALSHA" };
        self.command(word, self.script.hash(self.keys.manner()))
    }

    /// By text: for a server that does not know it yet, or no longer.
    pub(crate) fn by_text(&self, read_only: bool) -> Cmd {
        let word = if read_only { "EVAL_RO" } else { "EVAL" };
        self.command(word, self.script.text(self.keys.manner()))
    }

    fn command(&self, word: &str, script: &str) -> Cmd {
        let mut words = Words::new(word, script, self.requests.len());
        if let (Form::Inspect(readable, cursor), [request]) = (self.form, self.requests) {
            let places = readable.places();
            words.number(places.len());
            write_places(places, request, self.keys, &mut words);
            inspect::args(request, self.keys, (readable, cursor), &mut words);
            return words.finish();
        }
        let keys = self.requests.iter().map(|request| places(request).len());
        words.number(keys.sum::<usize>());
        for request in self.requests {
            write_keys(request, self.keys, &mut words);
        }
        for request in self.requests {
            if self.form == Form::Batch
                && let Some((number, omitted)) = batch::passenger(request)
            {
                words.number(number);
                words.omit(omitted);
            }
            set(request.subject.kind).args(request, self.keys, &mut words);
        }
        if self.only_of_a_holder {
            words.number(1_u32);
        }
        words.finish()
    }
}

/// Whether it is for somebody who holds the other side of a read/write lock.
pub(crate) const fn is_of_a_holder(request: &Request) -> bool {
    let one = matches!(request.subject.kind, Kind::Read | Kind::Write);
    one && matches!(
        &request.action,
        Action::Acquire {
            beside: Some(_),
            ..
        }
    )
}

fn write_keys(request: &Request, keys: &Keys, words: &mut Words) {
    write_places(places(request), request, keys, words);
}

fn write_places(places: &[Place], request: &Request, keys: &Keys, words: &mut Words) {
    let name = &request.subject.name;
    for place in places {
        words.key(&match place {
            Place::Lock => keys.lock(name),
            Place::Undone => keys.undone(name),
            Place::Token => keys.token(name),
            Place::Queue => keys.queue(name),
            Place::Timeout => keys.timeout(name),
            Place::Alive => keys.alive(name),
            Place::Writers => keys.writers(name),
            Place::Out => keys.out(name),
            Place::Line => keys.line(name),
            Place::Clients => keys.clients(name),
            Place::Done => {
                words.key_of_client(&keys.done(name), client(&request.action));
                continue;
            }
        });
    }
}

/// One of a request's keys.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// What is held.
    Lock,
    /// What was taken back before it came.
    Undone,
    /// The last grant's token.
    Token,
    /// Who waits in line.
    Queue,
    /// When Redisson passes each of them over.
    Timeout,
    /// Until when those of ours are there.
    Alive,
    /// Which writers wait.
    Writers,
    /// Which permits are out.
    Out,
    /// Who waits for several permits.
    Line,
    /// Whose permits are out.
    Clients,
    /// What the request's client has done.
    Done,
}

/// Whose client asks, where that matters.
const fn client(action: &Action) -> Option<ClientId> {
    match action {
        Action::Alter { deed, .. } => Some(deed.id.client()),
        Action::Release { owner, .. } | Action::Undo { owner, .. } => Some(owner.client()),
        Action::Acquire { .. }
        | Action::Count(_)
        | Action::ForceRelease
        | Action::Inspect
        | Action::Pass { .. }
        | Action::Renew { .. } => None,
    }
}

fn places(request: &Request) -> &'static [Place] {
    set(request.subject.kind).places(&request.action)
}

fn set(kind: Kind) -> &'static dyn Primitive {
    match kind {
        Kind::Mutex => &exclusive::MUTEX,
        Kind::Fenced => &exclusive::FENCED,
        Kind::Fair => &exclusive::FAIR,
        Kind::Read => &shared::READ,
        Kind::Write => &shared::WRITER,
        Kind::Simple => &exclusive::SIMPLE,
        Kind::Semaphore => &semaphore::SEMAPHORE,
        Kind::Counting => &number::COUNTING,
        Kind::Latch => &number::LATCH,
    }
}

/// Whether it may go out together with others.
pub(crate) fn may_travel(request: &Request) -> bool {
    batch::passenger(request).is_some()
}

/// Whether a lock may be free after it.
pub(crate) const fn gives_back(request: &Request) -> bool {
    match request.action {
        Action::Acquire { .. } | Action::Inspect | Action::Renew { .. } => false,
        Action::Alter { .. }
        | Action::Count(_)
        | Action::ForceRelease
        | Action::Pass { .. }
        | Action::Release { .. }
        | Action::Undo { .. } => true,
    }
}

/// Whether somebody may rely on what it is answered.
pub(crate) const fn promises(request: &Request) -> bool {
    match request.action {
        Action::Acquire { .. } | Action::Pass { .. } | Action::Renew { .. } => true,
        Action::Alter { .. }
        | Action::Count(_)
        | Action::ForceRelease
        | Action::Inspect
        | Action::Release { .. }
        | Action::Undo { .. } => false,
    }
}

/// Whether its script touches keys that it does not name: those of the readers of a read/write lock, which are as many as
/// they are. A server that a slot is on its way to takes what has not arrived for gone.
pub(crate) const fn looks_further(request: &Request) -> bool {
    match request.subject.kind {
        Kind::Read | Kind::Write => true,
        Kind::Counting
        | Kind::Fair
        | Kind::Fenced
        | Kind::Latch
        | Kind::Mutex
        | Kind::Semaphore
        | Kind::Simple => false,
    }
}

/// The argument by which a script refuses to create a key whose side keys are another's.
fn write_twin(request: &Request, keys: &Keys, words: &mut Words) {
    match keys.twin(&request.subject.name) {
        Some(twin) => words.text(&twin),
        None => words.nothing(),
    }
}

/// What a script's result means for this request.
pub(crate) fn reply(request: &Request, result: Value) -> Result<Reply, Failure> {
    if let Some(failure) = answers::twin(&result) {
        return Err(failure);
    }
    set(request.subject.kind).reply(&request.action, result)
}

/// With which others it can be renewed in one call, if it is a renewal.
pub(crate) const fn renewal(request: &Request) -> Option<Kind> {
    match request.action {
        Action::Renew { .. } => Some(request.subject.kind),
        Action::Acquire { .. }
        | Action::Alter { .. }
        | Action::Count(_)
        | Action::ForceRelease
        | Action::Inspect
        | Action::Pass { .. }
        | Action::Release { .. }
        | Action::Undo { .. } => None,
    }
}

/// What one line of the result of [`Call::renew_all`] means.
pub(crate) fn renewed(answer: Value) -> Result<Reply, Failure> {
    answers::renewal(answer)
}
