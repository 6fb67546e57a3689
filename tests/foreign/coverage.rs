//! The check that the corpus tests cover every public operation: the sources are read for public types and their methods.
//!
//! The blocking face is not tested: each of its operations runs the asynchronous one of the same name, and one without such a twin fails
//! here too. Nor is the command, which uses both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::operations::Kind;
use super::{held, operations, renewed, whole};

/// Methods that reach no store, or none that has any content.
const ELSEWHERE: &[(&str, &[&str])] = &[
    (
        "opens or closes a connection; every test of this program does",
        &["Client::connect", "Client::close", "ClientBuilder::connect"],
    ),
    (
        "makes a handle, and asks nothing",
        &[
            "Client::builder",
            "Client::lock",
            "Client::fair_lock",
            "Client::fenced_lock",
            "Client::rw_lock",
            "Client::semaphore",
            "Client::counting_semaphore",
            "Client::latch",
            "Client::simple_lock",
            "Client::new_owner",
            "Client::admin",
            "RwLock::read",
            "RwLock::write",
            "Semaphore::permit",
            "Semaphore::permits",
            "MultiLock::new",
            "QuorumLock::new",
            "Guard::held",
            "MultiGuard::held",
            "QuorumGuard::held",
        ],
    ),
    (
        "sets an option",
        &[
            "Lock::with_lease",
            "Lock::with_owner",
            "Lock::with_wait",
            "Lock::with_max_hold",
            "Semaphore::with_permits",
            "MultiLock::with_lease",
            "QuorumLock::with_lease",
            "QuorumLock::with_longest_lease",
        ],
    ),
    (
        "returns a name",
        &[
            "Lock::name",
            "RwLock::name",
            "Semaphore::name",
            "CountingSemaphore::name",
            "Latch::name",
        ],
    ),
    (
        "waits for the guard's own work, by the clock",
        &[
            "Guard::while_held",
            "MultiGuard::while_held",
            "QuorumGuard::while_held",
        ],
    ),
];

/// Types that act on a store. A method of any other type is considered if it is asynchronous.
const ACTORS: [&str; 13] = [
    "Admin",
    "Client",
    "CountingSemaphore",
    "Guard",
    "Latch",
    "Lock",
    "MultiGuard",
    "MultiLock",
    "QuorumGuard",
    "QuorumLock",
    "RwLock",
    "Semaphore",
    "Watch",
];

/// Types that send no request to a store: values, markers of kinds, and views of a guard's state. Their asynchronous methods are considered
/// all the same.
const WITHOUT_OPERATIONS: &[&str] = &[
    "Backoff",
    "Change",
    "ClientBuilder",
    "Durability",
    "Error",
    "Event",
    "Fair",
    "Fenced",
    "FencingToken",
    "Diagnostic",
    "FirstLost",
    "Held",
    "Holder",
    "ReleaseOn",
    "Lease",
    "ListProgress",
    "LockInfo",
    "LockKind",
    "Lost",
    "LostReason",
    "LostSignal",
    "MajorityLost",
    "Member",
    "MultiHeld",
    "ParsePermitIdError",
    "Owner",
    "Permit",
    "PermitCount",
    "PermitId",
    "Plain",
    "QuorumHeld",
    "Read",
    "Risk",
    "RunError",
    "Simple",
    "TlsProblem",
    "Severity",
    "Wait",
    "Write",
];

/// Operations of the blocking face whose asynchronous twin has another name.
const TWINS: [(&str, &str); 2] = [
    ("Client::connect_with", "ClientBuilder::connect"),
    ("Watch::next_timeout", "Watch::next"),
];

/// The kinds of locks that a [`Lock`](distlock::Lock) can be.
const LOCKS: [Kind; 7] = [
    Kind::Plain,
    Kind::Fair,
    Kind::Fenced,
    Kind::Simple,
    Kind::Read,
    Kind::Write,
    Kind::Semaphore,
];
/// The kinds that a quorum accepts; it refuses the others before it sends a request.
const OF_QUORUMS: [Kind; 2] = [Kind::Plain, Kind::Simple];

#[test]
fn every_public_operation_runs_on_the_corpus() {
    let operations = operations::all();
    let mut known: BTreeSet<&str> = operations
        .iter()
        .map(|operation| operation.covers)
        .collect();
    known.extend(held::COVERS);
    known.extend(renewed::COVERS);
    known.extend(whole::COVERS);
    for (reason, methods) in ELSEWHERE {
        for method in *methods {
            assert!(
                known.insert(method),
                "`{method}` is asked, and is listed though it {reason}"
            );
        }
    }
    let public = public_methods();
    assert!(public.len() > 60, "only {public:?}");
    let public: BTreeSet<&str> = public.iter().map(String::as_str).collect();
    let missing: Vec<_> = public.difference(&known).collect();
    assert!(
        missing.is_empty(),
        "no test asks these of other programs' data, nor says why not: {missing:?}"
    );
    let gone: Vec<_> = known.difference(&public).collect();
    assert!(gone.is_empty(), "there are no such methods: {gone:?}");
}

#[test]
fn every_operation_of_a_lock_runs_with_every_kind() {
    let mut asked: BTreeMap<&str, BTreeSet<Kind>> = BTreeMap::new();
    for operation in operations::all() {
        asked
            .entry(operation.covers)
            .or_default()
            .insert(operation.member);
    }
    let mut counted = 0;
    for (method, kinds) in asked {
        let wanted = match method.split_once("::") {
            Some(("Lock" | "MultiLock", _)) => BTreeSet::from(LOCKS),
            Some(("QuorumLock", _)) => BTreeSet::from(OF_QUORUMS),
            _ => continue,
        };
        assert_eq!(kinds, wanted, "{method}");
        counted += 1;
    }
    assert!(counted >= 12, "only {counted} operations");
}

/// A new type with operations must not go unnoticed by this file.
#[test]
fn every_public_type_has_operations_or_is_listed_without() {
    let exported = exported();
    let exported: BTreeSet<&str> = exported.iter().map(String::as_str).collect();
    let listed = ACTORS.iter().chain(WITHOUT_OPERATIONS).copied();
    let twice = ACTORS.len() + WITHOUT_OPERATIONS.len();
    let listed: BTreeSet<&str> = listed.collect();
    assert_eq!(listed.len(), twice, "a type is in both lists");
    assert_eq!(exported, listed);
}

#[test]
fn every_blocking_operation_has_an_asynchronous_twin() {
    let public = public_methods();
    let blocking = sources().filter(|path| is_blocking(path));
    let blocking = blocking.flat_map(|path| methods_in(&text_of(&path)));
    // Each operation that sends a request to a store can fail.
    let asks: Vec<String> = blocking
        .filter(|method| method.signature.contains("-> Result<"))
        .map(|method| method.path())
        .collect();
    assert!(asks.len() > 40, "only {asks:?}");
    for method in &asks {
        let twin = TWINS.iter().find(|(blocking, _)| blocking == method);
        let twin = twin.map_or(&**method, |(_, twin)| *twin);
        assert!(public.contains(twin), "`blocking::{method}` has no twin");
    }
}

/// Returns the public methods of the library as `Type::method`, except those of its blocking face.
fn public_methods() -> BTreeSet<String> {
    let exported = exported();
    let open = sources().filter(|path| !is_blocking(path));
    let methods = open.flat_map(|path| methods_in(&text_of(&path)));
    let public = methods.filter(|method| exported.contains(&method.of));
    let asks = public.filter(|method| method.is_asynchronous() || ACTORS.contains(&&*method.of));
    asks.map(|method| method.path()).collect()
}

/// Returns the types that the library exports, as `lib.rs` lists them.
fn exported() -> BTreeSet<String> {
    let library = text_of(&source_folder().join("lib.rs"));
    exports_in(&library)
}

fn exports_in(text: &str) -> BTreeSet<String> {
    let lists = text.split("\npub use ").skip(1);
    let names = lists.flat_map(|list| {
        let (list, _) = list.split_once(';').expect("it ends");
        let (_, names) = list.rsplit_once("::").expect("it is of some module");
        names.split(['{', '}', ','])
    });
    let names = names.map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

fn source_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns the files of the library, including those in its folders.
fn sources() -> impl Iterator<Item = PathBuf> {
    let mut folders = vec![source_folder()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for file in fs::read_dir(folder).expect("the sources are there") {
            let path = file.expect("a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.into_iter()
}

fn is_blocking(path: &Path) -> bool {
    let face = source_folder().join("blocking");
    path.starts_with(&face) || path.with_extension("") == face
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).expect("it is text")
}

/// A public method of some type.
struct Method {
    of: String,
    name: String,
    signature: String,
}

impl Method {
    fn path(&self) -> String {
        format!("{}::{}", self.of, self.name)
    }

    fn is_asynchronous(&self) -> bool {
        let (before, _) = self.signature.split_once("fn ").expect("it is a method");
        before.contains("async") || self.signature.contains("impl Future")
    }
}

/// Parses by the layout that `cargo fmt` gives to a file: an `impl` is at the beginning of a line, and a method is behind four spaces.
fn methods_in(text: &str) -> Vec<Method> {
    let mut of = None;
    let mut methods = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("impl") {
            of = (!line.contains(" for ")).then(|| implemented(line));
        }
        let (Some(of), Some(method)) = (&of, line.strip_prefix("    pub ")) else {
            continue;
        };
        let Some((_, name)) = method.split_once("fn ") else {
            continue;
        };
        let name = name.split(['(', '<']).next().unwrap_or_default();
        let mut signature = method.to_owned();
        while !signature.contains(['{', ';']) {
            signature += lines.next().unwrap_or("{");
        }
        methods.push(Method {
            of: of.clone(),
            name: name.to_owned(),
            signature,
        });
    }
    methods
}

/// Returns `Guard` for `impl<K> Guard<K> {`.
fn implemented(line: &str) -> String {
    let mut line = line.trim_start_matches("impl");
    if line.starts_with('<') {
        line = line.split_once('>').map_or(line, |(_, rest)| rest);
    }
    let name = line.trim_start().split(['<', ' ']).next();
    name.unwrap_or_default().to_owned()
}

#[test]
fn public_methods_are_parsed_from_the_sources() {
    let text = "
impl<K> Lock<K> {
    pub const fn with_lease(mut self, lease: Lease) -> Self {
    }

    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<Guard<K>, Error>> + Send + use<K> {
    }

    pub(crate) async fn start(&self) {
    }
}

impl Error {
    pub fn is_lost(&self) -> bool {
    }
}

impl Found<'_> {
    pub async fn next(&mut self) {
    }
}

impl fmt::Debug for Guard {
    pub async fn never(&self) {
    }
}
";
    let methods = methods_in(text);
    let found: Vec<_> = methods
        .iter()
        .map(|method| (method.path(), method.is_asynchronous()))
        .collect();
    let found: Vec<_> = found.iter().map(|(path, is)| (&**path, *is)).collect();
    let expected = [
        ("Lock::with_lease", false),
        ("Lock::acquire", true),
        ("Error::is_lost", false),
        ("Found::next", true),
    ];
    assert_eq!(found, expected);
    let exports = exports_in("mod a;\npub use a::{One, Two};\npub use a::b::Three;\n");
    assert_eq!(exports, ["One", "Three", "Two"].map(String::from).into());
}
