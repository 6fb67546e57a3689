//! The keys among the arguments of a request, and the kind of access that the command has to them.

/// The positions of some of a command's keys, and their use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpec {
    begin: usize,
    extent: Extent,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// A shard channel, which is found like a key and is none.
    is_no_key: bool,
}

#[derive(Clone, Copy, Debug)]
enum Extent {
    /// The keys up to an argument, counted from the first key, or from the end if negative.
    Range { last: i64, step: usize },
    /// As many keys as an argument says, whose position is counted from the beginning of the keys.
    Counted { first: usize },
}

impl KeySpec {
    /// Parses a specification of the table, if its form is supported; the forms of `SORT` and `MIGRATE` are not.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let begin = parts.next()?.parse().ok()?;
        let extent = parts.next()?;
        let flags: Vec<&str> = parts.next()?.split(',').collect();
        let numbers: Vec<i64> = extent[1..]
            .split(':')
            .filter_map(|number| number.parse().ok())
            .collect();
        let extent = if extent.starts_with('r') {
            Extent::Range {
                last: *numbers.first()?,
                step: usize::try_from(*numbers.get(1)?).ok()?,
            }
        } else {
            Extent::Counted {
                first: usize::try_from(*numbers.get(1)?).ok()?,
            }
        };
        // Redis' rule is that a key that is updated, inserted or deleted is written; a key whose value is returned is read.
        let any = |wanted: &[&str]| wanted.iter().any(|flag| flags.contains(flag));
        Some(Self {
            begin,
            extent,
            reads: any(&["access"]),
            writes: any(&["update", "insert", "delete"]),
            is_no_key: any(&["not_key"]),
        })
    }

    /// Returns the keys in a request, or none if the arguments do not fit.
    pub(crate) fn keys<'a>(&self, request: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
        if self.is_no_key {
            return Vec::new();
        }
        self.found(request)
    }

    /// Returns the keys and the shard channels in a request, by which a node of a cluster decides whether it serves the request. A count
    /// that is too large for the request gives no keys: the request is refused when it is executed.
    pub(crate) fn keys_and_channels<'a>(&self, request: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
        let found = self.found(request);
        if let Extent::Counted { .. } = self.extent
            && self.count(request) != Some(found.len())
        {
            return Vec::new();
        }
        found
    }

    fn count(&self, request: &[Vec<u8>]) -> Option<usize> {
        let count = std::str::from_utf8(request.get(self.begin)?).ok()?;
        count.parse().ok()
    }

    fn found<'a>(&self, request: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
        if self.begin >= request.len() {
            return Vec::new();
        }
        match self.extent {
            Extent::Range { last, step } => {
                let length = i64::try_from(request.len()).unwrap_or(i64::MAX);
                let begin = i64::try_from(self.begin).unwrap_or(i64::MAX);
                let end = if last < 0 {
                    length + last
                } else {
                    begin + last
                };
                let end = usize::try_from(end.min(length - 1)).unwrap_or(0);
                let places = (self.begin..=end).step_by(step.max(1));
                places.map(|place| request[place].as_slice()).collect()
            }
            Extent::Counted { first } => {
                let count = self.count(request);
                let keys = request.iter().skip(self.begin + first);
                keys.take(count.unwrap_or(0)).map(Vec::as_slice).collect()
            }
        }
    }
}
