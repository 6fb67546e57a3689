//! The users of a test server: clients log in as the default user, which has all rights or the documented minimum.

use std::env;

use super::rights;

/// The rights of the default user, which is the user of a client that does not log in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    All,
    /// The documented minimum. The tests themselves log in as [`ROOT`].
    Least,
}

impl Rights {
    pub(crate) fn from_env() -> Self {
        match env::var_os(LEAST_PRIVILEGE) {
            Some(_) => Self::Least,
            None => Self::All,
        }
    }

    /// Returns an address for the test's own commands.
    pub(crate) fn own(self, url: &str) -> String {
        match (self, url.starts_with("redis+unix")) {
            (Self::All, _) => url.to_owned(),
            (Self::Least, true) => format!("{url}?user={ROOT}&pass={ROOT}"),
            (Self::Least, false) => url.replacen("://", &format!("://{ROOT}:{ROOT}@"), 1),
        }
    }

    /// Returns the first lines that a test sends on a connection of its own; the server answers each with one line.
    pub(crate) fn greeting(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Least => format!("AUTH {ROOT} {ROOT}\r\n"),
        }
    }

    /// Returns the arguments that `MIGRATE` needs to log in at another server.
    pub(crate) fn for_migrating(self) -> &'static [&'static str] {
        match self {
            Self::All => &[],
            Self::Least => &["AUTH2", ROOT, ROOT],
        }
    }

    /// Returns the lines that sentinels need to log in at their servers and at each other.
    pub(crate) fn for_sentinels(self, master: &str) -> String {
        match self {
            Self::All => String::new(),
            Self::Least => format!(
                "sentinel auth-user {master} {ROOT}\nsentinel auth-pass {master} {ROOT}\n\
                 sentinel sentinel-user {ROOT}\nsentinel sentinel-pass {ROOT}\n"
            ),
        }
    }

    /// Returns the rules of each user at a server with these arguments, in the syntax of its configuration file.
    pub(super) fn users(self, args: &[String], password: Option<&str>) -> Vec<String> {
        let has = |arg: &str| args.iter().any(|other| other == arg);
        let rules = match self {
            Self::All => return Vec::new(),
            Self::Least if has("--sentinel") => rights::at_sentinels(),
            Self::Least => {
                let commands = rights::every_command(has("--cluster-enabled"));
                // A server replays its append-only file as this very user, so the user needs `PEXPIREAT` as well.
                let reading = has("--appendonly").then_some("+pexpireat");
                let names = ["~*", "&*", "-@all"].into_iter();
                names.chain(commands).chain(reading).collect()
            }
        };
        let password = password.map_or("nopass".to_owned(), |password| format!(">{password}"));
        vec![
            format!("default on {password} {}", rules.join(" ")),
            format!("{ROOT} on >{ROOT} ~* &* +@all"),
        ]
    }

    /// Returns the same rules as command-line arguments.
    pub(super) fn as_arguments(self, args: &[String], password: Option<&str>) -> Vec<String> {
        if self == Self::All {
            return Vec::new();
        }
        // The rights that one server needs at another are not those that locks need.
        let mut words = vec!["--masteruser", ROOT, "--masterauth", ROOT];
        let users = self.users(args, password);
        for user in &users {
            words.push("--user");
            words.extend(user.split(' '));
        }
        words.into_iter().map(ToOwned::to_owned).collect()
    }
}

/// Names the variable that limits every client to the rights that the documentation lists for locks.
pub(crate) const LEAST_PRIVILEGE: &str = "DISTLOCK_LEAST_PRIVILEGE";

/// The user with all rights at a server where other users are limited; its password is the same word.
const ROOT: &str = "root";
