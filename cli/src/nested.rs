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
/// Those of all runs around, as JSON: names may hold any character.
const ALL: &str = "DISTLOCK_HELD";

/// A hold of a run around this one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Hold {
    pub(crate) name: String,
    pub(crate) owner: String,
}

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
pub(crate) fn environment(mut around: Vec<Hold>, hold: Hold) -> [(&'static str, String); 3] {
    let (name, owner) = (hold.name.clone(), hold.owner.clone());
    if !around.contains(&hold) {
        around.push(hold);
    }
    // Strings always become JSON.
    let all = serde_json::to_string(&around).unwrap_or_default();
    [(NAME, name), (OWNER, owner), (ALL, all)]
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
        }
    }

    #[test]
    fn holds_read_back_as_they_were_written() {
        let outer = hold("a \"quoted\"\nname, =", "1:1");
        let inner = hold("b", "2:1");
        let written = environment(vec![outer.clone()], inner.clone());
        assert_eq!(written[0], (NAME, "b".to_owned()));
        assert_eq!(written[1], (OWNER, "2:1".to_owned()));
        assert_eq!(parse(&written[2].1), [outer.clone(), inner]);
        let again = environment(vec![outer.clone()], outer.clone());
        assert_eq!(parse(&again[2].1), [outer]);
    }

    #[test]
    fn nonsense_in_the_environment_says_nothing() {
        for text in ["", "{}", "[1]", "[{\"name\":\"a\"}]", "a"] {
            assert_eq!(parse(text), []);
        }
    }
}
