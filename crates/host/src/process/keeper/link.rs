//! The control socket: non-blocking frames of bytes, with descriptors attached.
//!
//! A frame is the length of its body (u32, little-endian) followed by the body. The kernel delivers descriptors in
//! order, with the first byte of the write that carried them, so one queue next to the bytes is enough.

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
use super::wire::WireError;

/// The most descriptors attached to one frame: stdin, stdout, stderr.
const MAX_FDS: usize = 3;
/// The size of one read. Most orders are a few hundred bytes long.
const CHUNK: usize = 16 * 1024;
/// An empty buffer with more capacity than this is freed, to keep the keeper small.
const KEEP: usize = 64 * 1024;
const HEADER: usize = 4;

/// The result of [`Link::receive`].
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes arrived, maybe a complete frame: see [`Link::next_frame`].
    Some,
    /// No bytes are available now.
    Nothing,
    /// The other end is closed.
    Closed,
}

/// One end of the control socket.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Received descriptors, in order.
    pub fds: VecDeque<OwnedFd>,
}

impl Link {
    /// Wraps a connected socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, input: Vec::new(), output: Vec::new(), fds: VecDeque::new() }
    }

    /// Reads the available bytes, at most one chunk.
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

    /// Removes and returns the body of one complete frame, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let Some((header, rest)) = self.input.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*header)).map_err(|_| WireError)?;
        if length > MAX_FRAME {
            return Err(WireError);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let body = rest[..length].to_vec();
        self.input.drain(..HEADER + length);
        free_if_large(&mut self.input);
        Ok(Some(body))
    }

    /// Queues a frame for `send_some`. Rejects a body that is too long.
    pub fn push(&mut self, body: &[u8]) -> io::Result<()> {
        let fits = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_FRAME);
        let length = fits.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("frame too long: {} bytes (at most {MAX_FRAME})", body.len()),
            )
        })?;
        self.output.extend_from_slice(&length.to_le_bytes());
        self.output.extend_from_slice(body);
        Ok(())
    }

    /// Returns the number of queued bytes.
    pub fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Sends as much as the socket accepts now. `fds` are attached to the first byte. Returns whether any byte was
    /// sent; if so, the descriptors were sent as well.
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

    /// Returns whether the other end has read all sent bytes.
    pub fn is_read(&self) -> bool {
        self.output.is_empty()
            && crate::sys::unread_by_peer(self.socket.as_fd()).is_ok_and(|bytes| bytes == 0)
    }

    /// Closes the sending direction. Receiving still works.
    pub fn hang_up(&self) {
        // Fails only if the other end is closed already.
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
        assert!(!ours.is_read(), "queued on this end");
        ours.send_some(&[]).expect("there is room");
        assert!(!ours.is_read(), "unread on the other end");
        assert_eq!(theirs.receive().expect("receives"), Received::Some);
        assert!(ours.is_read());
    }
}
