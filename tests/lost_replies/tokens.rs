//! The tokens that callers see of one fenced lock: one for each grant, and greater than all before it.

use distlock::Guard;

use crate::support::Family;

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    last: u64,
    /// The owner that was granted the last token, if the test has seen a guard of it.
    owner: Option<String>,
}

impl Tokens {
    /// Checks the token of a guard: of a new grant, or of one more guard of the last grant.
    pub(crate) fn seen<F: Family>(&mut self, guard: &Guard<F::Kind>) {
        let Some(token) = F::token(guard) else {
            return;
        };
        let owner = Some(guard.owner());
        if owner == self.owner {
            assert_eq!(token, self.last, "one grant has two tokens");
        } else {
            assert!(token > self.last, "{token} comes after {}", self.last);
        }
        *self = Self { last: token, owner };
    }

    /// Checks the store's last token, perhaps of a grant that the test has never seen. A hold that lasts has the token of the last grant.
    pub(crate) fn given<F: Family>(&mut self, last: Option<u64>, held: Option<&Guard<F::Kind>>) {
        let last = last.unwrap_or(0);
        assert!(last >= self.last, "the store goes back to {last}");
        if let Some(token) = held.and_then(F::token) {
            assert_eq!(last, token, "a grant beside one that lasts");
        }
        if last > self.last {
            *self = Self { last, owner: None };
        }
    }
}
