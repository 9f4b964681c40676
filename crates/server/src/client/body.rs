//! The body of a response: with a length, in chunks, or up to the end of the connection.

use super::bad;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;

/// The longest chunk header.
const MAX_CHUNK_LINE: u64 = 256;

pub(super) struct Body {
    from: BufReader<UnixStream>,
    left: Left,
}

enum Left {
    Bytes(u64),
    /// The bytes left in the current chunk.
    Chunk(u64),
    /// Everything up to the end of the connection.
    All,
}

impl Body {
    /// Creates a body of `length` bytes.
    pub fn of_length(from: BufReader<UnixStream>, length: u64) -> Body {
        Body { from, left: Left::Bytes(length) }
    }

    /// Creates a body in chunked encoding.
    pub fn chunked(from: BufReader<UnixStream>) -> Body {
        Body { from, left: Left::Chunk(0) }
    }

    /// Creates a body that ends with the connection.
    pub fn to_end(from: BufReader<UnixStream>) -> Body {
        Body { from, left: Left::All }
    }

    /// Returns the connection.
    pub fn get_ref(&self) -> &UnixStream {
        self.from.get_ref()
    }

    /// Reads the size of the next chunk; zero marks the end of the body.
    fn next_chunk(&mut self) -> io::Result<u64> {
        let mut line = String::new();
        (&mut self.from).take(MAX_CHUNK_LINE).read_line(&mut line)?;
        let size = line.trim_end().split(';').next().unwrap_or("");
        let size = u64::from_str_radix(size, 16).map_err(|_| broken_off(&line))?;
        if size == 0 {
            self.left = Left::Bytes(0);
        }
        Ok(size)
    }

    fn end_of_chunk(&mut self) -> io::Result<()> {
        let mut end = [0; 2];
        self.from.read_exact(&mut end)?;
        if end == *b"\r\n" { Ok(()) } else { Err(bad("chunk without a line ending")) }
    }
}

/// Returns the error for a bad chunk header. An empty one means that the connection ended early.
fn broken_off(line: &str) -> io::Error {
    if line.is_empty() { io::ErrorKind::UnexpectedEof.into() } else { bad("chunk without a size") }
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if let Left::Chunk(0) = self.left {
            match self.next_chunk()? {
                0 => return Ok(0),
                size => self.left = Left::Chunk(size),
            }
        }
        let (Left::Bytes(left) | Left::Chunk(left)) = self.left else { return self.from.read(buf) };
        // Do not read from the connection again: a server that refused without reading the request has reset it.
        if left == 0 {
            return Ok(0);
        }
        let want = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.from.read(&mut buf[..want])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = left - read as u64;
        match self.left {
            Left::Chunk(_) if left == 0 => {
                self.left = Left::Chunk(0);
                self.end_of_chunk()?;
            }
            Left::Chunk(_) => self.left = Left::Chunk(left),
            Left::Bytes(_) | Left::All => self.left = Left::Bytes(left),
        }
        Ok(read)
    }
}
