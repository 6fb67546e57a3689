//! A `run` inside another: the holds of the outer runs.
//!
//! A run passes its holds to its command in the environment. A variable can be copied anywhere and outlive the hold, so
//! it is only a hint: the store has the last word.

use distlock::{Client, Error};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::tree;

/// The lock of the innermost run.
pub(crate) const NAME: &str = "DISTLOCK_NAME";
/// The owner of that lock.
pub(crate) const OWNER: &str = "DISTLOCK_OWNER";
/// The token of the grant, for a fenced lock.
pub(crate) const TOKEN: &str = "DISTLOCK_TOKEN";
/// The holds of all outer runs, as JSON: names may contain any character.
const ALL: &str = "DISTLOCK_HELD";

/// A hold of an outer run.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Hold {
    pub(crate) name: String,
    pub(crate) owner: String,
    /// The token of the grant: the store may have an older hold of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// Whether the hold is a reader's, which other readers may share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reads: bool,
    /// The total number of permits of the semaphore, if the hold is a permit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u32>,
}

/// The variables of a command and their values; a variable without a value is removed.
pub(crate) type Environment = [(&'static str, Option<String>); 4];

/// Returns the holds of the outer runs, as far as the environment has them.
pub(crate) fn outer_holds() -> Vec<Hold> {
    std::env::var(ALL).map_or_else(|_| Vec::new(), |text| parse(&text))
}

/// Returns the outer hold of this lock, if the store still has it.
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
        // Another library's lock by now, or no lock: in any case not that hold.
        Ok(None) | Err(Error::WrongKind { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let holds = |owner: &str| seen.holders.iter().any(|holder| holder.owner == owner);
    Ok(same.find(|hold| holds(&hold.owner)).cloned())
}

/// Returns whether a process was started under a hold of this owner, also inside of further runs.
pub(crate) fn is_under(process: Pid, owner: &str) -> bool {
    // With quotes, because one owner may be a prefix of another.
    !owner.is_empty() && tree::has_in_environment(process, ALL, &format!("\"{owner}\""))
}

/// Returns the environment of a command under these holds; several holds have a line each.
pub(crate) fn environment(mut outer: Vec<Hold>, holds: Vec<Hold>) -> Environment {
    let lines = |line: fn(&Hold) -> String| holds.iter().map(line).collect::<Vec<_>>().join("\n");
    let name = lines(|hold| hold.name.clone());
    let owner = lines(|hold| hold.owner.clone());
    // Without this variable, the token of an outer run would be mistaken for this lock's token.
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
    // Serializing strings as JSON cannot fail.
    let all = serde_json::to_string(&outer).unwrap_or_default();
    [
        (NAME, Some(name)),
        (OWNER, Some(owner)),
        (TOKEN, token),
        (ALL, Some(all)),
    ]
}

/// Parses the list of holds; unreadable text means no holds.
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
    fn holds_round_trip_through_the_environment() {
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
    fn a_token_belongs_to_its_hold_and_to_no_other() {
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
    fn an_invalid_environment_variable_is_ignored() {
        for text in ["", "{}", "[1]", "[{\"name\":\"a\"}]", "a"] {
            assert_eq!(parse(text), []);
        }
    }
}
