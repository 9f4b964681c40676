//! Separates this process from others: a private mount table, and the rules of Landlock.

use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Separates the mount table of this process from that of its parent. With `user`, it also creates a user namespace,
/// which an unprivileged process needs.
pub fn own_mounts(user: bool) -> io::Result<()> {
    let user = if user { UnshareFlags::NEWUSER } else { UnshareFlags::empty() };
    // SAFETY: unshare is unsafe only for `FILES`, which would give threads different tables of descriptors. These flags
    // leave the descriptors alone.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | user)? };
    Ok(())
}

/// Applies a ruleset of Landlock to this thread and everything that it starts. It cannot be undone.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // Without this, a program with the setuid bit could leave the sandbox, so the kernel requires it.
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the call takes a descriptor and no pointers.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
