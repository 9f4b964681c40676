//! Gives this process a private mount table.

use rustix::thread::UnshareFlags;
use std::io;

/// Separates the mount table of this process from that of its parent. With `user`, it also creates a user namespace,
/// which an unprivileged process needs.
pub fn own_mounts(user: bool) -> io::Result<()> {
    let user = if user { UnshareFlags::NEWUSER } else { UnshareFlags::empty() };
    // SAFETY: unshare is unsafe only for `FILES`, which would give threads different tables of descriptors. These flags
    // leave the descriptors alone.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | user)? };
    Ok(())
}
