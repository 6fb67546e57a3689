//! The identity of a holder, as it is stored: `<client uuid>:<number>`, Redisson's form.

use std::fmt;
use std::str::FromStr;

/// The uuid of a client.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct ClientId([u8; 16]);

/// One owner of a client.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "String", try_from = "String")
)]
pub struct OwnerId {
    client: ClientId,
    number: i64,
}

/// The length of a client's uuid as text.
pub const CLIENT_LENGTH: usize = 36;

impl ClientId {
    /// Creates the id of the client with this uuid.
    pub const fn new(uuid: [u8; 16]) -> Self {
        Self(uuid)
    }

    /// Parses the uuid in this text, which must be exactly as [`ClientId::text`] writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = Self(uuid::Uuid::try_parse(text).ok()?.into_bytes());
        (uuid.text() == text.as_bytes()).then_some(uuid)
    }

    /// Returns the uuid.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns the uuid as text, in lower case and with its hyphens.
    pub fn text(self) -> [u8; CLIENT_LENGTH] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; CLIENT_LENGTH];
        let mut at = 0;
        for (place, byte) in self.0.into_iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = DIGITS[usize::from(byte >> 4)];
            text[at + 1] = DIGITS[usize::from(byte & 0xf)];
            at += 2;
        }
        text
    }
}

impl OwnerId {
    /// Creates the `number`-th owner of a client.
    pub const fn new(client: ClientId, number: i64) -> Self {
        Self { client, number }
    }

    /// Returns the owner's client.
    pub const fn client(self) -> ClientId {
        self.client
    }

    /// Returns the owner's number within its client.
    pub const fn number(self) -> i64 {
        self.number
    }
}

/// The error that a text is no owner's id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParseOwnerIdError;

/// Parses what [`Display`](fmt::Display) writes, and nothing else: stores compare owners as text,
/// so that two spellings of one owner would be two owners.
impl FromStr for OwnerId {
    type Err = ParseOwnerIdError;

    fn from_str(text: &str) -> Result<Self, ParseOwnerIdError> {
        let (client, number) = text.split_once(':').ok_or(ParseOwnerIdError)?;
        let owner = Self {
            client: ClientId::parse(client).ok_or(ParseOwnerIdError)?,
            number: number.parse().map_err(|_| ParseOwnerIdError)?,
        };
        let same = owner.to_string() == text;
        same.then_some(owner).ok_or(ParseOwnerIdError)
    }
}

impl From<OwnerId> for String {
    fn from(owner: OwnerId) -> Self {
        owner.to_string()
    }
}

impl TryFrom<String> for OwnerId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map_err(|_| "not an owner id")
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_formatted_as_in_redisson() {
        let client = ClientId::new(0x71b9_6ce8_2746_4c1e_9f3b_0a5c_1c0f_9c11_u128.to_be_bytes());
        let owner = OwnerId::new(client, -12).to_string();
        assert_eq!(owner, "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:-12");
    }

    #[test]
    fn a_text_in_the_format_of_an_owner_is_one() {
        for text in [
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:-12",
            "00000000-0000-0000-0000-000000000000:0",
            "ffffffff-ffff-ffff-ffff-ffffffffffff:9223372036854775807",
        ] {
            let owner: OwnerId = text.parse().expect("an owner");
            assert_eq!(owner.to_string(), text);
        }
    }

    #[test]
    fn a_text_in_another_format_is_no_owner() {
        for text in [
            "",
            ":",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1:write",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:+1",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:01",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:9223372036854775808",
            "71B96CE8-2746-4c1e-9f3b-0a5c1c0f9c11:1",
            "71b96ce827464c1e9f3b0a5c1c0f9c11:1",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c1:1",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c111:1",
            "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c1g:1",
            " 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1",
        ] {
            assert_eq!(OwnerId::from_str(text), Err(ParseOwnerIdError), "{text}");
        }
    }
}
