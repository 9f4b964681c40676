//! The control socket: frames of bytes, with descriptors beside them, never blocking.
//!
//! A frame is its body's length (u32, little-endian), then the body. The kernel delivers descriptors
//! with the first byte of the write that carried them, in order, so a queue beside the bytes suffices.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::MAX_FRAME;
use super::wire::Garbage;

/// The most descriptors beside one frame: stdin, stdout, stderr.
const MAX_FDS: usize = 3;
/// Read at a time. A job's order is mostly a few hundred bytes.
const CHUNK: usize = 16 * 1024;
/// A buffer that grew over this is given back once it is empty: the keeper stays small.
const KEEP: usize = 64 * 1024;
const HEADER: usize = 4;

/// What a receive brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes, maybe a whole frame: see [`Link::next_frame`].
    Some,
    /// Nothing there now.
    Nothing,
    /// The other end is closed.
    Closed,
}

#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    pub fds: VecDeque<OwnedFd>,
}

impl Link {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, input: Vec::new(), output: Vec::new(), fds: VecDeque::new() }
    }

    /// Reads what is there, at most one chunk.
    pub fn receive(&mut self) -> io::Result<Received> {
        let mut chunk = [0_u8; CHUNK];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut attached = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut chunk)], &mut attached, flags) {
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::Closed),
            Err(error) => return Err(error.into()),
        };
        for message in attached.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        self.input.extend_from_slice(&chunk[..got]);
        Ok(if got == 0 { Received::Closed } else { Received::Some })
    }

    /// Takes one whole frame's body, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Garbage> {
        let Some((header, rest)) = self.input.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*header)).map_err(|_| Garbage)?;
        if length > MAX_FRAME {
            return Err(Garbage);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let body = rest[..length].to_vec();
        self.input.drain(..HEADER + length);
        free_if_large(&mut self.input);
        Ok(Some(body))
    }

    /// Puts a frame into the outgoing bytes; `send_some` sends them. Refuses what is too long.
    pub fn push(&mut self, body: &[u8]) -> io::Result<()> {
        let fits = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_FRAME);
        let length = fits.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("an order of {} bytes is too long", body.len()),
            )
        })?;
        self.output.extend_from_slice(&length.to_le_bytes());
        self.output.extend_from_slice(body);
        Ok(())
    }

    /// Bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Sends what the socket takes now. `fds` travel with the first byte; they are gone once anything
    /// was sent, so the answer tells whether that happened.
    pub fn send_some(&mut self, fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
        if self.output.is_empty() {
            return Ok(true);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !attached.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.socket, &[IoSlice::new(&self.output)], &mut attached, flags) {
            Ok(sent) => {
                self.output.drain(..sent);
                free_if_large(&mut self.output);
                Ok(sent > 0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the other end has read everything that was sent.
    pub fn is_read(&self) -> bool {
        self.output.is_empty()
            && crate::sys::unread_by_peer(self.socket.as_fd()).is_ok_and(|bytes| bytes == 0)
    }

    /// Says that nothing more will be sent, and can still receive.
    pub fn hang_up(&self) {
        // It fails only when the other end has gone already, which is as good.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn free_if_large(buffer: &mut Vec<u8>) {
    if buffer.is_empty() && buffer.capacity() > KEEP {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn unread_bytes_are_detected() {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("a pair of sockets");
        let (mut ours, mut theirs) = (Link::new(ours), Link::new(theirs));
        assert!(ours.is_read(), "nothing was sent");
        ours.push(b"order").expect("short enough");
        assert!(!ours.is_read(), "it waits here");
        ours.send_some(&[]).expect("there is room");
        assert!(!ours.is_read(), "it waits there");
        assert_eq!(theirs.receive().expect("receives"), Received::Some);
        assert!(ours.is_read());
    }
}
