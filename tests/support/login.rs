//! The users of a test server: clients log in as the default user, who has all rights or the documented minimum.

use std::env;

use super::rights;

/// The rights of the default user, as whom a client acts that does not log in.
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

    /// An address for what a test does there itself.
    pub(crate) fn own(self, url: &str) -> String {
        match (self, url.starts_with("redis+unix")) {
            (Self::All, _) => url.to_owned(),
            (Self::Least, true) => format!("{url}?user={ROOT}&pass={ROOT}"),
            (Self::Least, false) => url.replacen("://", &format!("://{ROOT}:{ROOT}@"), 1),
        }
    }

    /// What is said first on a connection that a test has made by hand, each line of which is answered by one.
    pub(crate) fn greeting(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Least => format!("AUTH {ROOT} {ROOT}\r\n"),
        }
    }

    /// What `MIGRATE` is told, so that it is let in at another server.
    pub(crate) fn for_migrating(self) -> &'static [&'static str] {
        match self {
            Self::All => &[],
            Self::Least => &["AUTH2", ROOT, ROOT],
        }
    }

    /// What sentinels are told, so that they are let in at their servers and at each other.
    pub(crate) fn for_sentinels(self, master: &str) -> String {
        match self {
            Self::All => String::new(),
            Self::Least => format!(
                "sentinel auth-user {master} {ROOT}\nsentinel auth-pass {master} {ROOT}\n\
                 sentinel sentinel-user {ROOT}\nsentinel sentinel-pass {ROOT}\n"
            ),
        }
    }

    /// Who may do what at a server with these arguments, in the words of its file.
    pub(super) fn users(self, args: &[String], password: Option<&str>) -> Vec<String> {
        let has = |arg: &str| args.iter().any(|other| other == arg);
        let rules = match self {
            Self::All => return Vec::new(),
            Self::Least if has("--sentinel") => rights::at_sentinels(),
            Self::Least => {
                let commands = rights::every_command(has("--cluster-enabled"));
                // A server reads what it has written down as this very user, who may do the less for it.
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

    /// The same as arguments.
    pub(super) fn as_arguments(self, args: &[String], password: Option<&str>) -> Vec<String> {
        if self == Self::All {
            return Vec::new();
        }
        // What one server needs of another is not what locks need.
        let mut words = vec!["--masteruser", ROOT, "--masterauth", ROOT];
        let users = self.users(args, password);
        for user in &users {
            words.push("--user");
            words.extend(user.split(' '));
        }
        words.into_iter().map(ToOwned::to_owned).collect()
    }
}

/// Has every test be somebody who may do what the documentation says that locks need, and no more.
pub(crate) const LEAST_PRIVILEGE: &str = "DISTLOCK_LEAST_PRIVILEGE";

/// Who may do everything where others may not; the password is the same.
const ROOT: &str = "root";
