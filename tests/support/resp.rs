//! RESP on the wire: cuts a stream of bytes into whole frames and reads the words of a request.
//!
//! It supports RESP2 and RESP3, but not RESP3's streamed types (`$?`, `*?`), which no server sends, nor inline commands,
//! which no client library sends.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The frames of one direction of a connection.
pub(crate) struct Frames<R> {
    from: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(from: R) -> Self {
        Self {
            from,
            buffer: Vec::new(),
        }
    }

    /// Returns the next whole frame, or `None` once the stream has ended. Half a frame at the end is dropped: the other side
    /// could not have acted on it either.
    ///
    /// # Errors          `InvalidData` if this is not RESP.
    /// # Cancel safety   Nothing is lost: the bytes read stay in the buffer.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = end_of_frame(&self.buffer, 0)? {
                return Ok(Some(self.buffer.drain(..end).collect()));
            }
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Returns the words of a request, or of any flat array or push. An element that is not a bulk string is given as written on
/// its line.
pub(crate) fn words(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let Some((_, mut at)) = line(frame, 0) else {
        return words;
    };
    while let (Some((text, body)), Ok(Some(end))) = (line(frame, at), end_of_frame(frame, at)) {
        words.push(match text[0] {
            // A null bulk string has no body.
            b'$' if end > body => frame[body..end - CRLF.len()].to_vec(),
            _ => text[1..].to_vec(),
        });
        at = end;
    }
    words
}

/// Returns where the frame that starts at `at` ends, or `None` if it has not arrived completely.
fn end_of_frame(bytes: &[u8], at: usize) -> io::Result<Option<usize>> {
    let Some((text, body)) = line(bytes, at) else {
        return Ok(None);
    };
    let elements = match text.first() {
        Some(b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(') => 0,
        Some(b'$' | b'!' | b'=') => {
            let end = length(text)?.map_or(body, |length| body + length + CRLF.len());
            return Ok((end <= bytes.len()).then_some(end));
        }
        Some(b'*' | b'~' | b'>') => length(text)?.unwrap_or(0),
        Some(b'%') => 2 * length(text)?.unwrap_or(0),
        // An attribute is no reply by itself: it belongs to the value behind it.
        Some(b'|') => 2 * length(text)?.unwrap_or(0) + 1,
        _ => return Err(malformed(text)),
    };
    let mut end = body;
    for _ in 0..elements {
        let Some(next) = end_of_frame(bytes, end)? else {
            return Ok(None);
        };
        end = next;
    }
    Ok(Some(end))
}

/// Returns the line that starts at `at`, without its end, and where the next one starts.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let length = rest.windows(CRLF.len()).position(|two| two == CRLF)?;
    Some((&rest[..length], at + length + CRLF.len()))
}

/// Returns the length behind a type byte; `None` for RESP2's nulls.
fn length(text: &[u8]) -> io::Result<Option<usize>> {
    let digits = std::str::from_utf8(&text[1..]).map_err(|_| malformed(text))?;
    if digits == "-1" {
        return Ok(None);
    }
    digits.parse().map(Some).map_err(|_| malformed(text))
}

fn malformed(text: &[u8]) -> io::Error {
    let start = String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: `{start}`"))
}

const CRLF: &[u8] = b"\r\n";
