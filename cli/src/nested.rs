//! A `run` inside another: the holds of the runs around this one.
//!
//! Who starts a command under a lock tells it so in the environment. A variable can be copied anywhere and
//! outlive the hold, so it is only a hint: the store has the last word.

use distlock::{Client, Error};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::tree;

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
    /// Together with others who read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reads: bool,
    /// Together with others who have a permit: of so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u32>,
}

/// The variables of a command, and what each is; those that are nothing are taken away.
pub(crate) type Environment = [(&'static str, Option<String>); 4];

/// The holds around this process, as far as the environment says.
pub(crate) fn outer_holds() -> Vec<Hold> {
    std::env::var(ALL).map_or_else(|_| Vec::new(), |text| parse(&text))
}

/// Which of them is this lock's, and is still there.
pub(crate) async fn still_held(
    client: &Client,
    name: &str,
    outer: &[Hold],
) -> Result<Option<Hold>, Failure> {
    let mut same = outer.iter().filter(|hold| hold.name == name).peekable();
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

/// Whether a process was started under a hold of this owner, be it inside of further runs.
pub(crate) fn is_under(process: Pid, owner: &str) -> bool {
    // In quotes: an owner may begin as another does.
    !owner.is_empty() && tree::has_in_environment(process, ALL, &format!("\"{owner}\""))
}

/// What a command under these holds finds in its environment: of several a line for each.
pub(crate) fn environment(mut outer: Vec<Hold>, holds: Vec<Hold>) -> Environment {
    let lines = |line: fn(&Hold) -> String| holds.iter().map(line).collect::<Vec<_>>().join("\n");
    let name = lines(|hold| hold.name.clone());
    let owner = lines(|hold| hold.owner.clone());
    // Without one, that of a run further out would pass for this lock's.
    let fenced = holds.iter().any(|hold| hold.token.is_some());
    let token = lines(|hold| {
        hold.token
            .map_or_else(String::new, |token| token.to_string())
    });
    let token = fenced.then_some(token);
    for hold in holds {
        if !outer.contains(&hold) {
            outer.push(hold);
        }
    }
    // Strings always become JSON.
    let all = serde_json::to_string(&outer).unwrap_or_default();
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
            permits: None,
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
        let written = environment(vec![outer.clone()], vec![inner.clone()]);
        assert_eq!(variable(&written, NAME), Some("b"));
        assert_eq!(variable(&written, OWNER), Some("2:1"));
        let all = |written| parse(variable(written, ALL).expect("they are told"));
        assert_eq!(all(&written), [outer.clone(), inner]);
        let again = environment(vec![outer.clone()], vec![outer.clone()]);
        assert_eq!(all(&again), [outer]);
    }

    #[test]
    fn a_token_goes_with_its_hold_and_with_no_other() {
        let fenced = Hold {
            token: Some(1_790_000_000_000_001),
            ..hold("a", "1:1")
        };
        let outer = environment(vec![], vec![fenced.clone()]);
        assert_eq!(variable(&outer, TOKEN), Some("1790000000000001"));
        let outer = parse(variable(&outer, ALL).expect("they are told"));
        assert_eq!(outer, std::slice::from_ref(&fenced));
        let inner = environment(outer.clone(), vec![hold("b", "2:1")]);
        assert_eq!(variable(&inner, TOKEN), None);
        let again = environment(outer, vec![fenced]);
        assert_eq!(variable(&again, TOKEN), Some("1790000000000001"));
    }

    #[test]
    fn several_holds_have_a_line_each() {
        let fenced = Hold {
            token: Some(7),
            ..hold("b", "2:1")
        };
        let both = environment(vec![], vec![hold("a", "1:1"), fenced]);
        assert_eq!(variable(&both, NAME), Some("a\nb"));
        assert_eq!(variable(&both, OWNER), Some("1:1\n2:1"));
        assert_eq!(variable(&both, TOKEN), Some("\n7"));
    }

    #[test]
    fn nonsense_in_the_environment_says_nothing() {
        for text in ["", "{}", "[1]", "[{\"name\":\"a\"}]", "a"] {
            assert_eq!(parse(text), []);
        }
    }
}
