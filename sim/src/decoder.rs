//! The decoder of requests from a stream of bytes.

use std::collections::VecDeque;

/// A decoder of requests from bytes as they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: VecDeque<u8>,
    /// The arguments so far of a request that has not arrived whole.
    pending: Vec<Vec<u8>>,
    /// The number of arguments that this request still lacks.
    missing: usize,
}

/// The error for bytes that are no request. The server reports it and closes the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtocolError(pub String);

impl Decoder {
    /// Makes a decoder that has read nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that have arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// Returns the next request if it has arrived whole: its arguments, with the command's name first.
    ///
    /// # Errors
    /// An error means that the bytes are no request.
    pub fn next_request(&mut self) -> Result<Option<Vec<Vec<u8>>>, ProtocolError> {
        loop {
            if self.missing == 0 {
                match self.begin()? {
                    Begun::Nothing => return Ok(None),
                    Begun::Inline(words) if words.is_empty() => continue,
                    Begun::Inline(words) => return Ok(Some(words)),
                    Begun::Array(0) => continue,
                    Begun::Array(length) => self.missing = length,
                }
            }
            while self.missing > 0 {
                let Some(argument) = self.argument()? else {
                    return Ok(None);
                };
                self.pending.push(argument);
                self.missing -= 1;
            }
            return Ok(Some(std::mem::take(&mut self.pending)));
        }
    }

    fn begin(&mut self) -> Result<Begun, ProtocolError> {
        let Some(line) = self.line() else {
            return Ok(Begun::Nothing);
        };
        if line.first() != Some(&b'*') {
            let words = line.split(u8::is_ascii_whitespace);
            let words = words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec);
            return Ok(Begun::Inline(words.collect()));
        }
        match number(&line[1..]) {
            Some(length) if length <= 1024 * 1024 => {
                Ok(Begun::Array(usize::try_from(length).unwrap_or(0)))
            }
            _ => Err(ProtocolError("invalid multibulk length".to_owned())),
        }
    }

    fn argument(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        let Some(end) = self.line_end() else {
            return Ok(None);
        };
        let head: Vec<u8> = self.buffer.iter().take(end).copied().collect();
        if head.first() != Some(&b'$') {
            let found = char::from(head.first().copied().unwrap_or(b'\r'));
            return Err(ProtocolError(format!("expected '$', got '{found}'")));
        }
        let length = number(&head[1..]).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length else {
            return Err(ProtocolError("invalid bulk length".to_owned()));
        };
        let begin = end + 2;
        if self.buffer.len() < begin + length + 2 {
            return Ok(None);
        }
        self.buffer.drain(..begin);
        let argument = self.buffer.drain(..length).collect();
        self.buffer.drain(..2);
        Ok(Some(argument))
    }

    fn line_end(&self) -> Option<usize> {
        let newline = self.buffer.iter().position(|&byte| byte == b'\n')?;
        Some(newline.saturating_sub(1))
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let newline = self.buffer.iter().position(|&byte| byte == b'\n')?;
        let mut line: Vec<u8> = self.buffer.drain(..=newline).collect();
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(line)
    }
}

enum Begun {
    Nothing,
    Inline(Vec<Vec<u8>>),
    Array(usize),
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_decoded_from_any_split_of_the_bytes() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\nPING  x\r\n*1\r\n$4\r\nPING\r\n";
        for cut in 1..bytes.len() {
            let mut decoder = Decoder::new();
            let mut found = Vec::new();
            for part in bytes.chunks(cut) {
                decoder.feed(part);
                while let Some(request) = decoder.next_request().expect("these are requests") {
                    found.push(request);
                }
            }
            let expected: [&[&[u8]]; 3] = [&[b"GET", b"a\r\n"], &[b"PING", b"x"], &[b"PING"]];
            assert_eq!(found, expected, "cut {cut}");
        }
    }
}
