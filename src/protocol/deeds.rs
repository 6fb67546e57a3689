//! Changes of what is nobody's, each carried out once however often it is asked for.
//!
//! A count that is lowered by one is lowered twice if the request comes twice: nothing in the number tells. So each such
//! request brings a number of its client's own, and what came of it is kept beside the count until the client has said
//! that it knows. Every request says so of those before it; what is below that is refused if it still comes, out of a
//! connection that was given up.

use super::marks::MARK_TTL;
use super::{ClientId, Moment, OwnerId, Reply};

/// Which request of which client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deed {
    /// The client, and the request's number: greater than those of all it asked before.
    pub id: OwnerId,
    /// No answer to a lesser number is waited for any more.
    pub settled: i64,
}

/// Whether a store surely still knows of a request that was first sent then.
pub fn is_remembered(begun: Moment, now: Moment) -> bool {
    // The rest is for a request that takes its time.
    now.since(begun) < MARK_TTL / 2
}

/// The effect of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Effect {
    /// It found the one number and left the other.
    Altered(Option<i64>, Option<i64>),
    /// It took so many permits.
    Took(u32),
    /// It is not to be.
    Undone,
}

/// Those of one name.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Deeds(Vec<Book>);

/// Those of one client.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
struct Book {
    /// Whose, and the least number that is not refused.
    least: OwnerId,
    done: Vec<(i64, Effect)>,
    until: Moment,
}

impl Deeds {
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What came of a request, if it has come before, or is too late.
    pub fn known(&self, id: OwnerId) -> Option<Effect> {
        let book = self.0.iter().find(|book| book.is_of(id.client()))?;
        if id.number() < book.least.number() {
            return Some(Effect::Undone);
        }
        let done = book.done.iter().find(|(number, _)| *number == id.number());
        done.map(|(_, effect)| *effect)
    }

    /// A request was carried out; those before it that are settled are forgotten.
    pub fn note(&mut self, deed: Deed, effect: Effect, now: Moment) {
        let book = self.book(deed.id, now);
        let least = book.least.number().max(deed.settled);
        book.least = OwnerId::new(deed.id.client(), least);
        book.done.retain(|(number, _)| *number >= least);
        book.done.push((deed.id.number(), effect));
    }

    /// A request is not to be. How many permits it had taken, if it had come.
    pub fn undo(&mut self, id: OwnerId, now: Moment) -> Option<u32> {
        match self.known(id) {
            Some(Effect::Undone | Effect::Altered(..)) => None,
            known => {
                let book = self.book(id, now);
                book.done.retain(|(number, _)| *number != id.number());
                book.done.push((id.number(), Effect::Undone));
                match known {
                    Some(Effect::Took(count)) => Some(count),
                    _ => None,
                }
            }
        }
    }

    /// Forgets what cannot come any more.
    pub fn expire(&mut self, now: Moment) {
        self.0.retain(|book| book.until > now);
    }

    /// Forgets a client of which nothing can come any more.
    pub fn leave(&mut self, client: ClientId) {
        self.0.retain(|book| !book.is_of(client));
    }

    fn book(&mut self, id: OwnerId, now: Moment) -> &mut Book {
        let place = self.0.iter().position(|book| book.is_of(id.client()));
        let place = place.unwrap_or_else(|| {
            self.0.push(Book {
                least: OwnerId::new(id.client(), i64::MIN),
                done: Vec::new(),
                until: now,
            });
            self.0.len() - 1
        });
        let book = &mut self.0[place];
        book.until = now + MARK_TTL;
        book
    }
}

impl Book {
    fn is_of(&self, client: ClientId) -> bool {
        self.least.client() == client
    }
}

impl From<Effect> for Reply {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Altered(before, after) => Self::Altered { before, after },
            Effect::Took(_) => Self::Granted { token: None },
            Effect::Undone => Self::Undone,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn now() -> Moment {
        Moment::at(Duration::from_secs(1))
    }

    fn id(number: i64) -> OwnerId {
        OwnerId::new(ClientId::new([7; 16]), number)
    }

    fn deed(number: i64, settled: i64) -> Deed {
        Deed {
            id: id(number),
            settled,
        }
    }

    #[test]
    fn what_was_done_is_known_until_it_is_settled_and_refused_from_then_on() {
        let mut deeds = Deeds::default();
        let effect = Effect::Altered(Some(2), Some(1));
        deeds.note(deed(5, 5), effect, now());
        assert_eq!(deeds.known(id(5)), Some(effect));
        assert_eq!(deeds.known(id(6)), None, "it may come");
        deeds.note(deed(7, 6), effect, now());
        assert_eq!(deeds.known(id(5)), Some(Effect::Undone));
        assert_eq!(deeds.known(id(6)), None, "it may still come");
        assert_eq!(deeds.0[0].done.len(), 1, "what is settled is forgotten");
    }

    #[test]
    fn a_request_that_comes_late_settles_nothing_anew() {
        let mut deeds = Deeds::default();
        deeds.note(deed(9, 8), Effect::Took(1), now());
        deeds.note(deed(8, 2), Effect::Took(1), now());
        assert_eq!(deeds.known(id(7)), Some(Effect::Undone));
    }

    #[test]
    fn what_was_taken_is_given_back_once() {
        let mut deeds = Deeds::default();
        deeds.note(deed(1, 1), Effect::Took(3), now());
        assert_eq!(deeds.undo(id(1), now()), Some(3));
        assert_eq!(deeds.undo(id(1), now()), None);
        assert_eq!(deeds.undo(id(2), now()), None);
        assert_eq!(deeds.known(id(2)), Some(Effect::Undone), "it never will be");
    }

    #[test]
    fn all_is_forgotten_when_nothing_can_come_any_more() {
        let mut deeds = Deeds::default();
        deeds.note(deed(1, 1), Effect::Undone, now());
        deeds.expire(now() + MARK_TTL / 2);
        assert!(!deeds.is_empty());
        deeds.expire(now() + MARK_TTL);
        assert!(deeds.is_empty());
    }

    #[test]
    fn who_asks_again_does_so_long_before_all_is_forgotten() {
        let mut deeds = Deeds::default();
        deeds.note(deed(1, 1), Effect::Undone, now());
        let late = now() + MARK_TTL / 2;
        assert!(is_remembered(now(), now() + MARK_TTL / 3) && !is_remembered(now(), late));
        deeds.expire(late + MARK_TTL / 3);
        assert!(!deeds.is_empty());
    }
}
