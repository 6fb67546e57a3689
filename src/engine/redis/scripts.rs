//! Requests as script calls, and script results as replies: a module for each primitive.

use redis::{Cmd, Value};

mod arg_writer;
mod batch;
mod counter;
mod exclusive;
mod inspect;
mod read_write;
mod replies;
mod script;
mod semaphore;

use self::arg_writer::ArgWriter;
pub(crate) use self::inspect::{InspectScope, Inspection};
use self::script::Script;
use super::keys::Keys;
use crate::engine::StoreError;
use crate::protocol::{Action, ClientId, Entry, Kind, Reply, Request, SemaphoreOp};

/// The scripts of one primitive.
trait KindScripts: Sync {
    /// Returns the script that carries out one action.
    fn script(&'static self, action: &Action) -> &'static Script;
    /// Writes the arguments of that script.
    fn args(&self, request: &Request, keys: &Keys, args: &mut ArgWriter);
    /// Returns the keys of that script.
    fn key_roles(&self, action: &Action) -> &'static [KeyRole];
    /// Returns the reply that a script's result means for this action.
    fn reply(&self, action: &Action, result: Value) -> Result<Reply, StoreError>;
}

/// One script, run for some requests. Their keys and arguments are written when it is sent, not before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptCall<'a> {
    script: &'static Script,
    requests: &'a [Request],
    keys: &'a Keys,
    form: CallForm<'a>,
    /// Whether its keys are being migrated to the server it is sent to.
    pub(crate) asking: bool,
    /// Whether it is granted only to a holder of the other side.
    pub(crate) only_for_holder: bool,
}

/// How a script receives its requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CallForm<'a> {
    /// As keys and arguments, one request after the other.
    Plain,
    /// As batch items, each with the number of its own script.
    Batch,
    /// A page of what is held under a name, read from the set of keys that the user may read.
    Inspect(InspectScope, &'a str),
}

impl<'a> ScriptCall<'a> {
    /// Creates the call that carries out one request.
    pub(crate) fn new(request: &'a Request, keys: &'a Keys) -> Self {
        Self {
            script: scripts_of(request.subject.kind).script(&request.action),
            requests: std::slice::from_ref(request),
            keys,
            form: CallForm::Plain,
            asking: false,
            only_for_holder: false,
        }
    }

    /// Creates one call that renews many holds of this kind.
    pub(crate) fn renew_all(kind: Kind, requests: &'a [Request], keys: &'a Keys) -> Self {
        Self {
            // One script serves any number of renewals.
            script: requests.first().map_or_else(
                || scripts_of(kind).script(&Action::Inspect),
                |request| scripts_of(kind).script(&request.action),
            ),
            requests,
            keys,
            form: CallForm::Plain,
            asking: false,
            only_for_holder: false,
        }
    }

    /// Creates one call for many requests of this kind that [`can_batch`], each with its own result in the same order.
    pub(crate) fn batch(kind: Kind, requests: &'a [Request], keys: &'a Keys) -> Option<Self> {
        Some(Self {
            script: batch::script(kind)?,
            requests,
            keys,
            form: CallForm::Batch,
            asking: false,
            only_for_holder: false,
        })
    }

    /// Creates one call that reports a page of what is held under a request's name, whatever kind of lock it is.
    pub(crate) fn inspect(
        request: &'a Request,
        keys: &'a Keys,
        scope: InspectScope,
        cursor: Option<&'a str>,
    ) -> Self {
        let cursor = cursor.unwrap_or(inspect::FIRST_CURSOR);
        Self {
            script: &inspect::SCRIPT,
            form: CallForm::Inspect(scope, cursor),
            ..Self::new(request, keys)
        }
    }

    /// Returns whether the script only reads.
    pub(crate) fn only_reads(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.all(|request| {
            let is_read = request.action == Action::SemaphoreOp(SemaphoreOp::Get);
            is_read || request.action == Action::Inspect
        })
    }

    /// Returns whether each item of the reply is the result of one request, and a text in it the error of that request.
    pub(crate) fn has_item_results(&self) -> bool {
        let renewals = || {
            let mut requests = self.requests.iter();
            requests.all(|request| renewal(request).is_some())
        };
        match self.form {
            CallForm::Batch => true,
            CallForm::Plain => renewals(),
            CallForm::Inspect(..) => false,
        }
    }

    /// Returns whether the call may grant something to an owner that has no hold yet.
    pub(crate) fn is_fresh_acquire(&self) -> bool {
        let mut requests = self.requests.iter();
        let anew = requests.any(|request| match request.action {
            Action::Acquire { entry, .. } => entry == Entry::Fresh,
            _ => false,
        });
        anew && !self.only_for_holder
    }

    /// Builds the call by hash: a few bytes, once the server knows the script. With `_RO` the server refuses any write
    /// of the script.
    pub(crate) fn evalsha(&self, read_only: bool) -> Cmd {
        let command = if read_only { "EVALSHA_RO" } else { "EVALSHA" };
        self.command(command, self.script.hash(self.keys.pubsub_mode()))
    }

    /// Builds the call by text, for a server that does not know the script yet, or no longer.
    pub(crate) fn eval(&self, read_only: bool) -> Cmd {
        let command = if read_only { "EVAL_RO" } else { "EVAL" };
        self.command(command, self.script.text(self.keys.pubsub_mode()))
    }

    fn command(&self, command: &str, script: &str) -> Cmd {
        let mut args = ArgWriter::new(command, script, self.requests.len());
        if let (CallForm::Inspect(scope, cursor), [request]) = (self.form, self.requests) {
            let key_roles = scope.key_roles();
            args.number(key_roles.len());
            write_key_roles(key_roles, request, self.keys, &mut args);
            inspect::args(request, self.keys, (scope, cursor), &mut args);
            return args.finish();
        }
        let keys = self.requests.iter().map(|request| key_roles(request).len());
        args.number(keys.sum::<usize>());
        for request in self.requests {
            write_keys(request, self.keys, &mut args);
        }
        for request in self.requests {
            if self.form == CallForm::Batch
                && let Some((number, omitted)) = batch::sub_script(request)
            {
                args.number(number);
                args.omit(omitted);
            }
            scripts_of(request.subject.kind).args(request, self.keys, &mut args);
        }
        if self.only_for_holder {
            args.number(1_u32);
        }
        args.finish()
    }
}

/// Returns whether the request is for a holder of the other side of a read/write lock.
pub(crate) const fn has_other_side(request: &Request) -> bool {
    let one = matches!(request.subject.kind, Kind::Read | Kind::Write);
    one && matches!(
        &request.action,
        Action::Acquire {
            other_side: Some(_),
            ..
        }
    )
}

fn write_keys(request: &Request, keys: &Keys, args: &mut ArgWriter) {
    write_key_roles(key_roles(request), request, keys, args);
}

fn write_key_roles(key_roles: &[KeyRole], request: &Request, keys: &Keys, args: &mut ArgWriter) {
    let name = &request.subject.name;
    for role in key_roles {
        args.key(&match role {
            KeyRole::Lock => keys.lock(name),
            KeyRole::Tombstones => keys.tombstones(name),
            KeyRole::Token => keys.token(name),
            KeyRole::Queue => keys.queue(name),
            KeyRole::Timeout => keys.timeout(name),
            KeyRole::Alive => keys.alive(name),
            KeyRole::Writers => keys.writers(name),
            KeyRole::PermitTimeouts => keys.permit_timeouts(name),
            KeyRole::SemaphoreQueue => keys.semaphore_queue(name),
            KeyRole::Clients => keys.clients(name),
            KeyRole::Dedup => {
                args.key_of_client(&keys.dedup(name), dedup_client(&request.action));
                continue;
            }
        });
    }
}

/// The role of one of a request's keys.
#[derive(Clone, Copy, Debug)]
enum KeyRole {
    /// The state of the lock.
    Lock,
    /// Tombstones of undone acquires.
    Tombstones,
    /// Token of the last grant.
    Token,
    /// Queue of the waiters.
    Queue,
    /// Times when Redisson skips each of them.
    Timeout,
    /// Times until which our waiters are alive.
    Alive,
    /// Writers that wait.
    Writers,
    /// Permits in use.
    PermitTimeouts,
    /// Waiters for several permits.
    SemaphoreQueue,
    /// Clients that have permits in use.
    Clients,
    /// Operations that the request's client has carried out.
    Dedup,
}

/// Returns the client of the request, if one of its keys depends on it.
const fn dedup_client(action: &Action) -> Option<ClientId> {
    match action {
        Action::CounterOp { key, .. } => Some(key.id.client()),
        Action::Release { owner, .. } | Action::Undo { owner, .. } => Some(owner.client()),
        Action::Acquire { .. }
        | Action::SemaphoreOp(_)
        | Action::ForceRelease
        | Action::Inspect
        | Action::Transfer { .. }
        | Action::Renew { .. } => None,
    }
}

fn key_roles(request: &Request) -> &'static [KeyRole] {
    scripts_of(request.subject.kind).key_roles(&request.action)
}

fn scripts_of(kind: Kind) -> &'static dyn KindScripts {
    match kind {
        Kind::Mutex => &exclusive::MUTEX,
        Kind::Fenced => &exclusive::FENCED,
        Kind::Fair => &exclusive::FAIR,
        Kind::Read => &read_write::READ,
        Kind::Write => &read_write::WRITER,
        Kind::Simple => &exclusive::SIMPLE,
        Kind::Semaphore => &semaphore::SEMAPHORE,
        Kind::Counting => &counter::COUNTING,
        Kind::Latch => &counter::LATCH,
    }
}

/// Returns whether the request may be batched with others.
pub(crate) fn can_batch(request: &Request) -> bool {
    batch::sub_script(request).is_some()
}

/// Returns whether the request may free a lock.
pub(crate) const fn is_release(request: &Request) -> bool {
    match request.action {
        Action::Acquire { .. } | Action::Inspect | Action::Renew { .. } => false,
        Action::CounterOp { .. }
        | Action::SemaphoreOp(_)
        | Action::ForceRelease
        | Action::Transfer { .. }
        | Action::Release { .. }
        | Action::Undo { .. } => true,
    }
}

/// Returns whether the request grants or renews, so that the reply counts only if it meets the durability policy.
pub(crate) const fn needs_durability(request: &Request) -> bool {
    match request.action {
        Action::Acquire { .. } | Action::Transfer { .. } | Action::Renew { .. } => true,
        Action::CounterOp { .. }
        | Action::SemaphoreOp(_)
        | Action::ForceRelease
        | Action::Inspect
        | Action::Release { .. }
        | Action::Undo { .. } => false,
    }
}

/// Returns whether the script uses keys that it does not name: those of the readers of a read/write lock, of which
/// there may be any number. A server that a slot is being migrated to treats a key that has not arrived as missing.
pub(crate) const fn reads_other_keys(request: &Request) -> bool {
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

/// Writes the argument by which a script refuses to create a key if its auxiliary keys belong to another name.
fn write_alias(request: &Request, keys: &Keys, args: &mut ArgWriter) {
    match keys.alias(&request.subject.name) {
        Some(alias) => args.text(&alias),
        None => args.empty(),
    }
}

/// Returns the reply that a script's result means for this request.
pub(crate) fn reply(request: &Request, result: Value) -> Result<Reply, StoreError> {
    if let Some(failure) = replies::alias_conflict(&result) {
        return Err(failure);
    }
    scripts_of(request.subject.kind).reply(&request.action, result)
}

/// Returns the kind whose renewals can share a call with this request, if it is a renewal.
pub(crate) const fn renewal(request: &Request) -> Option<Kind> {
    match request.action {
        Action::Renew { .. } => Some(request.subject.kind),
        Action::Acquire { .. }
        | Action::CounterOp { .. }
        | Action::SemaphoreOp(_)
        | Action::ForceRelease
        | Action::Inspect
        | Action::Transfer { .. }
        | Action::Release { .. }
        | Action::Undo { .. } => None,
    }
}

/// Returns the reply that one item of the result of [`ScriptCall::renew_all`] means.
pub(crate) fn renewed(result: Value) -> Result<Reply, StoreError> {
    replies::renewal(result)
}
