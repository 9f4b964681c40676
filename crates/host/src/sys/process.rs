//! Waits for children, forks, and closes descriptors.

use dogwatch_core::run::job::Exit;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// A reaped child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReapedChild {
    /// Its former pid.
    pub pid: i32,
    /// How it ended.
    pub how: Exit,
    /// User and system time of the process and of the children that it reaped.
    pub cpu: Duration,
}

/// The result of [`wait_any`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// A child ended and was reaped.
    Reaped(ReapedChild),
    /// All children are alive.
    NotYet,
    /// The process has no children. For a subreaper this means that it has no descendants either.
    NoChild,
}

/// Reaps any one child without blocking. Use it only in a process that owns all its children: elsewhere it takes an
/// exit status that other code waits for.
pub fn wait_any() -> io::Result<Waited> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for writes for the whole call, and wait4 keeps neither.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match pid {
        0 => Ok(Waited::NotYet),
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(Waited::NoChild),
            error => Err(error),
        },
        pid => {
            // SAFETY: zeroed above, and all-zero bytes are a valid rusage; wait4 has written to it.
            let usage = unsafe { usage.assume_init() };
            Ok(Waited::Reaped(ReapedChild { pid, how: how_ended(status), cpu: cpu_of(&usage) }))
        }
    }
}

fn how_ended(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

fn cpu_of(usage: &libc::rusage) -> Duration {
    let span = |time: libc::timeval| {
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// Returns whether the process of a pidfd still has its pid: it is alive, or a zombie that is not reaped.
pub fn is_unreaped(pidfd: BorrowedFd<'_>) -> bool {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: signal 0 sends nothing; a null siginfo is allowed. The descriptor is borrowed, so valid.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, nothing, 0) };
    // EPERM means that the process exists.
    sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Returns how many bytes written to a socket the other end has not read yet.
pub fn unread_by_peer(socket: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    let mut unread: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed, so it is valid. The call writes one int to a valid place and keeps no
    // pointer. TIOCOUTQ has the same value as SIOCOUTQ, its name for sockets.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    if done == 0 { Ok(unread) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor from `first` on.
///
/// # Safety
///
/// No code may own such a descriptor: the owner would use or close an unrelated file later. So this is for the start of
/// a process, before it opens anything.
pub unsafe fn close_from(first: RawFd) -> io::Result<()> {
    let first = libc::c_uint::try_from(first).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the call only closes descriptors, and the caller promises that they have no owner. Uses the raw system
    // call because older C libraries lack the wrapper.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    // SAFETY: the caller makes the same promise.
    if done == 0 { Ok(()) } else { unsafe { close_each_from(first) } }
}

/// Closes every descriptor from `first` on except for one.
///
/// # Safety
///
/// As for [`close_from`].
pub(super) unsafe fn close_others(first: RawFd, keep: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(keep) = keep.map(|fd| fd.as_raw_fd()).filter(|fd| *fd >= first) else {
        // SAFETY: the caller makes the same promise.
        return unsafe { close_from(first) };
    };
    for fd in first..keep {
        // SAFETY: the caller promises that the descriptor has no owner. EBADF is ignored.
        unsafe { libc::close(fd) };
    }
    // SAFETY: the caller makes the same promise.
    unsafe { close_from(keep + 1) }
}

/// Closes descriptors one by one, for kernels before 5.9 without `close_range`.
///
/// # Safety
///
/// As for [`close_from`].
unsafe fn close_each_from(first: libc::c_uint) -> io::Result<()> {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| u32::try_from(*fd).is_ok_and(|fd| fd >= first))
        .collect();
    for fd in open {
        // SAFETY: the caller promises that the descriptor has no owner. That of the directory itself was closed when
        // the iterator was dropped, and no other thread exists that could have opened it again; its EBADF is ignored.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

/// Moves a descriptor to the given number, closed on exec, and closes the descriptor that was there.
///
/// # Safety
///
/// No code may own the descriptor `number`, as for [`close_from`].
pub unsafe fn move_to(fd: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the caller promises that `number` has no owner, so the new descriptor has a single owner, created here.
    unsafe {
        if libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(number))
    }
}

/// Which side of a [`fork`] this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// The parent, with the pid of the child.
    Parent(i32),
    /// The child.
    Child,
}

/// Forks a single-threaded process. Fails with `EBUSY` in a threaded one: in its child any lock, including that of
/// the allocator, may be held by a thread that no longer exists.
pub fn fork() -> io::Result<Forked> {
    // The directory has two links plus one for each thread. Listing it takes longer.
    if std::fs::metadata("/proc/self/task")?.nlink() != 3 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: this is the only thread (counted above, and only this thread could start another), so the child is a
    // complete copy and may do everything that the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_is_refused_in_a_threaded_process() {
        // The test runner has its own thread; start another one to be sure.
        let (stay, go) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || go.recv().is_err());
        assert_eq!(fork().expect_err("two threads").raw_os_error(), Some(libc::EBUSY));
        drop(stay);
        assert!(other.join().expect("it only waits"));
    }

    #[test]
    fn a_wait_status_is_decoded_by_the_rules_of_posix() {
        assert_eq!(how_ended(0), Exit::Code(0));
        assert_eq!(how_ended(255 << 8), Exit::Code(255));
        assert_eq!(how_ended(9), Exit::Signal(9));
        // 0x80 is the core dump flag.
        assert_eq!(how_ended(0x80 | 6), Exit::Signal(6));
    }
}
