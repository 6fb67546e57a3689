//! A semaphore's permits by their ids: 16 bytes each, as Redisson keeps them.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use super::{ClientId, OwnerId};

/// The id of one permit that is out.
///
/// It identifies the permit everywhere: in another process, another language, or Redisson's own
/// `release(permitId)`.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let exports = client.semaphore("exports");
/// exports.set_total(2).await?;
/// let permit = exports.permit().acquire().await?;
/// let id = permit.permit_ids()[0];
/// assert_eq!(id.to_string().parse(), Ok(id));
/// # permit.release().await }
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "String", try_from = "String")
)]
pub struct PermitId([u8; 16]);

/// The length of the prefix that the ids of one owner's permits share.
pub const OWNER_PREFIX_LEN: usize = 12;

/// The number of permits that one owner number can encode.
pub const OWNER_STRIDE: u32 = 1 << 16;

/// Upper bound of the permits in one guard: their ids then take 64 KB.
pub const MAX_PERMITS: u32 = 4096;

/// Upper bound of a client's owner numbers, which no client reaches: an id beyond it belongs to
/// another client.
const OWNER_NUMBER_LIMIT: i64 = 1 << 56;

/// Creates an owner for this many permits, from a number that no other owner has. The owner's own
/// number says how many: a release, a renewal or an undo then knows which permits are meant, though
/// some may have gone.
pub const fn permit_owner(client: ClientId, number: i64, permits: u32) -> OwnerId {
    debug_assert!(permits >= 1 && permits <= OWNER_STRIDE);
    let permits = (permits.saturating_sub(1) % OWNER_STRIDE) as i64;
    OwnerId::new(client, number.wrapping_mul(OWNER_STRIDE as i64) + permits)
}

/// Returns how many permits an owner asks for.
pub const fn permit_count(owner: OwnerId) -> u32 {
    owner.number().rem_euclid(OWNER_STRIDE as i64) as u32 + 1
}

/// Returns all permits of an owner.
pub fn permits_of(owner: OwnerId) -> impl Iterator<Item = PermitId> {
    (1..=permit_count(owner)).map(move |number| PermitId::new(owner, number))
}

impl PermitId {
    /// Creates the id of an owner's permit, counted from 1.
    fn new(owner: OwnerId, number: u32) -> Self {
        let mut id = [0; 16];
        let (shared, own) = id.split_at_mut(OWNER_PREFIX_LEN);
        shared.copy_from_slice(&owner_prefix(owner));
        own.copy_from_slice(&number.to_be_bytes());
        Self(id)
    }

    /// Returns the id as it is stored.
    pub(crate) const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the owner's id, if one of these clients is the owner's; the permit's own id
    /// otherwise.
    pub(crate) fn owner_text(&self, clients: &[ClientId]) -> String {
        let mut owners = clients.iter().filter_map(|client| self.owner(*client));
        owners
            .next()
            .map_or_else(|| self.to_string(), |owner| owner.to_string())
    }

    /// Returns the owner of this client that has the permit, if one can have it.
    fn owner(&self, client: ClientId) -> Option<OwnerId> {
        let (shared, own) = self.0.split_at(OWNER_PREFIX_LEN);
        let own = u32::from_be_bytes(own.try_into().ok()?);
        let first = owner_prefix(OwnerId::new(client, 0));
        let number = |shared: &[u8]| Some(u64::from_be_bytes(*shared.last_chunk()?));
        let number = number(shared)?.wrapping_sub(number(&first)?).cast_signed();
        let owner = OwnerId::new(client, number);
        let has = shared[..4] == first[..4]
            && (-OWNER_NUMBER_LIMIT..OWNER_NUMBER_LIMIT).contains(&number);
        (has && (1..=permit_count(owner)).contains(&own)).then_some(owner)
    }
}

/// Returns the prefix that all ids of an owner share, and no other owner's: a part of its client's
/// uuid unchanged, then the sum of another part of the uuid and the owner's number.
pub fn owner_prefix(owner: OwnerId) -> [u8; OWNER_PREFIX_LEN] {
    let uuid = owner.client().bytes();
    let mut shared = [0; OWNER_PREFIX_LEN];
    let (client, number) = shared.split_at_mut(4);
    client.copy_from_slice(&uuid[..4]);
    let mut rest = [0; 8];
    // The version and variant bits, the same in every uuid, are left out.
    rest[..2].copy_from_slice(&uuid[4..6]);
    rest[2..].copy_from_slice(&uuid[10..]);
    let rest = u64::from_be_bytes(rest).wrapping_add_signed(owner.number());
    number.copy_from_slice(&rest.to_be_bytes());
    shared
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error that a text is no permit's id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParsePermitIdError;

impl fmt::Display for ParsePermitIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a permit id must be 32 hexadecimal digits")
    }
}

impl Error for ParsePermitIdError {}

impl FromStr for PermitId {
    type Err = ParsePermitIdError;

    fn from_str(text: &str) -> Result<Self, ParsePermitIdError> {
        let mut id = [0; 16];
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(ParsePermitIdError);
        }
        for (byte, digits) in id.iter_mut().zip(digits.chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| ParsePermitIdError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ParsePermitIdError)?;
        }
        Ok(Self(id))
    }
}

impl TryFrom<&[u8]> for PermitId {
    type Error = ParsePermitIdError;

    fn try_from(bytes: &[u8]) -> Result<Self, ParsePermitIdError> {
        bytes.try_into().map(Self).map_err(|_| ParsePermitIdError)
    }
}

impl From<PermitId> for String {
    fn from(id: PermitId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for PermitId {
    type Error = ParsePermitIdError;

    fn try_from(text: String) -> Result<Self, ParsePermitIdError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_permits_have_one_id() {
        let clients = [[0; 16], [255; 16], *b"0123456789abcdef"].map(ClientId::new);
        let mut ids = HashSet::new();
        for client in clients {
            for number in (-3..300).chain([i64::MAX >> 16]) {
                for permits in [1, 2, 5] {
                    let owner = permit_owner(client, number * 3 + i64::from(permits), permits);
                    assert_eq!(permit_count(owner), permits);
                    for id in permits_of(owner) {
                        assert!(ids.insert(id), "{owner} {id}");
                        assert_eq!(id.to_string().parse(), Ok(id));
                    }
                }
            }
        }
        let all = permit_owner(clients[0], 1, OWNER_STRIDE);
        assert_eq!(permit_count(all), OWNER_STRIDE);
    }

    #[test]
    fn a_permit_id_identifies_its_client() {
        let clients = [*b"0123456789abcdef", [255; 16], *b"0123_another_one"].map(ClientId::new);
        for client in clients {
            for (number, permits) in [(0, 1), (7, 3), (1 << 39, 2)] {
                let owner = permit_owner(client, number, permits);
                for id in permits_of(owner) {
                    assert_eq!(id.owner_text(&clients), owner.to_string());
                    let others: Vec<_> = clients.into_iter().filter(|c| *c != client).collect();
                    assert_eq!(id.owner_text(&others), id.to_string());
                }
            }
        }
        let foreign = PermitId(*b"0123 a foreigner");
        assert_eq!(foreign.owner_text(&clients), foreign.to_string());
    }

    #[test]
    fn invalid_permit_ids_are_rejected() {
        for text in ["", "0", &"g".repeat(32), &"0".repeat(33), &"ä".repeat(16)] {
            assert_eq!(PermitId::from_str(text), Err(ParsePermitIdError), "{text}");
        }
    }
}
