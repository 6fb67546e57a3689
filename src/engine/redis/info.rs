//! Parser of the reply to `INFO`. Pure.

/// The reply to `INFO`: lines of `field:value` below headings.
pub(super) struct Info<'a>(&'a str);

impl<'a> Info<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the value of a field, which may be empty; `None` if there is no such field.
    pub(super) fn get(&self, field: &str) -> Option<&'a str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(name, _)| *name == field)?;
        Some(value.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "# Replication\r\nrole:master\r\nmaster_replid:abc\r\nmaster_replid2:\r\n\r\n# Keyspace\r\ndb0:keys=1\r\n";
        let info = Info::new(text);
        for (field, said) in [
            ("role", Some("master")),
            ("master_replid", Some("abc")),
            ("master_replid2", Some("")),
            ("db0", Some("keys=1")),
            ("master", None),
            ("replid", None),
            ("Replication", None),
            ("", None),
        ] {
            assert_eq!(info.get(field), said, "{field}");
        }
    }

    #[test]
    fn a_value_is_all_that_follows_the_name() {
        let info = Info::new("listener0:name=tcp,bind=::1\r\nrole:master \nrole:slave\n");
        assert_eq!(info.get("listener0"), Some("name=tcp,bind=::1"));
        assert_eq!(info.get("role"), Some("master"), "the first counts");
    }
}
