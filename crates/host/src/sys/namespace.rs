//! Separates this process from others: a private mount table, and the rules of Landlock.

use rustix::mount::MountAttrFlags;
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

/// Makes a mount read-only or writable, and leaves its other flags alone.
pub fn set_read_only(mount: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    let flag = u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
    // `struct mount_attr`: flags to set, flags to clear, propagation, and a user namespace.
    let attr: [u64; 4] = if read_only { [flag, 0, 0, 0] } else { [0, flag, 0, 0] };
    // SAFETY: the path is a string that ends with a null byte, and the kernel reads only the 32 bytes of `attr`, whose size
    // it gets. Both live until the call returns.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of_val(&attr),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Applies a ruleset of Landlock to this thread and everything that it starts. It cannot be undone.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // Without this, a program with the setuid bit could leave the sandbox, so the kernel requires it.
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the call takes a descriptor and no pointers.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
