//! A `run` inside another: the holds of the runs around this one.
//!
//! Who starts a command under a lock tells it so in the environment. A variable can be copied anywhere and
//! outlive the hold, so it is only a hint: the store has the last word.

use distlock::{Client, Error};
use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// The lock of the innermost run.
pub(crate) const NAME: &str = "DISTLOCK_NAME";
/// Its owner.
pub(crate) const OWNER: &str = "DISTLOCK_OWNER";
/// Which grant it is, of a fenced lock.
pub(crate) const TOKEN: &str = "DISTLOCK_TOKEN";
/// Those of all runs around, as JSON: names may hold any character.
const ALL: &str = "DISTLOCK_HELD";

/// A hold of a run around this one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Hold {
    pub(crate) name: String,
    pub(crate) owner: String,
    /// As it was granted: the store may have one of that name that is older than this hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// Together with others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reads: bool,
}

/// The variables of a command, and what each is; those that are nothing are taken away.
pub(crate) type Environment = [(&'static str, Option<String>); 4];

/// The holds around this process, as far as the environment says.
pub(crate) fn around() -> Vec<Hold> {
    std::env::var(ALL).map_or_else(|_| Vec::new(), |text| parse(&text))
}

/// Which of them is this lock's, and is still there.
pub(crate) async fn still_held(
    client: &Client,
    name: &str,
    around: &[Hold],
) -> Result<Option<Hold>, Failure> {
    let mut same = around.iter().filter(|hold| hold.name == name).peekable();
    if same.peek().is_none() {
        return Ok(None);
    }
    let seen = match client.admin().inspect(name).await {
        Ok(Some(seen)) => seen,
        // Another library's by now, or nothing that locks: at any rate not that hold.
        Ok(None) | Err(Error::WrongKind { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let holds = |owner: &str| seen.holders.iter().any(|holder| holder.owner == owner);
    Ok(same.find(|hold| holds(&hold.owner)).cloned())
}

/// What a command under this hold finds in its environment.
pub(crate) fn environment(mut around: Vec<Hold>, hold: Hold) -> Environment {
    let (name, owner) = (hold.name.clone(), hold.owner.clone());
    // Without one, that of a run further out would pass for this lock's.
    let token = hold.token.map(|token| token.to_string());
    if !around.contains(&hold) {
        around.push(hold);
    }
    // Strings always become JSON.
    let all = serde_json::to_string(&around).unwrap_or_default();
    [
        (NAME, Some(name)),
        (OWNER, Some(owner)),
        (TOKEN, token),
        (ALL, Some(all)),
    ]
}

/// What nobody can read says nothing.
fn parse(text: &str) -> Vec<Hold> {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(name: &str, owner: &str) -> Hold {
        Hold {
            name: name.to_owned(),
            owner: owner.to_owned(),
            token: None,
            reads: false,
        }
    }

    fn variable<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
        let found = environment.iter().find(|(variable, _)| *variable == name);
        found.expect("it is one of them").1.as_deref()
    }

    #[test]
    fn holds_read_back_as_they_were_written() {
        let outer = hold("a \"quoted\"\nname, =", "1:1");
        let inner = hold("b", "2:1");
        let written = environment(vec![outer.clone()], inner.clone());
        assert_eq!(variable(&written, NAME), Some("b"));
        assert_eq!(variable(&written, OWNER), Some("2:1"));
        let all = |written| parse(variable(written, ALL).expect("they are told"));
        assert_eq!(all(&written), [outer.clone(), inner]);
        let again = environment(vec![outer.clone()], outer.clone());
        assert_eq!(all(&again), [outer]);
    }

    #[test]
    fn a_token_goes_with_its_hold_and_with_no_other() {
        let fenced = Hold {
            token: Some(1_790_000_000_000_001),
            ..hold("a", "1:1")
        };
        let outer = environment(vec![], fenced.clone());
        assert_eq!(variable(&outer, TOKEN), Some("1790000000000001"));
        let around = parse(variable(&outer, ALL).expect("they are told"));
        assert_eq!(around, std::slice::from_ref(&fenced));
        let inner = environment(around.clone(), hold("b", "2:1"));
        assert_eq!(variable(&inner, TOKEN), None);
        let again = environment(around, fenced);
        assert_eq!(variable(&again, TOKEN), Some("1790000000000001"));
    }

    #[test]
    fn nonsense_in_the_environment_says_nothing() {
        for text in ["", "{}", "[1]", "[{\"name\":\"a\"}]", "a"] {
            assert_eq!(parse(text), []);
        }
    }
}
