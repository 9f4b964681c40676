//! Waiting, forking and closing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// How a process ended, as `waitpid` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowEnded {
    Code(i32),
    Signal(i32),
}

/// A child that was reaped. `cpu` is user plus system time of it and of all that it waited for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    pub pid: i32,
    pub how: HowEnded,
    pub cpu: Duration,
}

/// One answer of [`wait_any`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// A child had ended; it is reaped now.
    Gone(Gone),
    /// Children live, none has ended.
    NotYet,
    /// There is no child at all. For a subreaper: no descendant either.
    Nobody,
}

/// Reaps any one child without blocking. Only for processes that own all their children: elsewhere it
/// steals the exit status that somebody else waits for.
pub fn wait_any() -> io::Result<Waited> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for writes for the whole call, and wait4 keeps neither.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match pid {
        0 => Ok(Waited::NotYet),
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(Waited::Nobody),
            error => Err(error),
        },
        pid => {
            // SAFETY: zeroed above, and all-zero bytes are a valid rusage; wait4 has filled it in.
            let usage = unsafe { usage.assume_init() };
            Ok(Waited::Gone(Gone { pid, how: how_ended(status), cpu: cpu_of(&usage) }))
        }
    }
}

fn how_ended(status: i32) -> HowEnded {
    if libc::WIFSIGNALED(status) {
        HowEnded::Signal(libc::WTERMSIG(status))
    } else {
        HowEnded::Code(libc::WEXITSTATUS(status))
    }
}

fn cpu_of(usage: &libc::rusage) -> Duration {
    let span = |time: libc::timeval| {
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// Whether the process behind a pidfd still has its pid: alive, or a zombie that nobody has reaped.
pub fn is_unreaped(pidfd: BorrowedFd<'_>) -> bool {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: signal 0 sends nothing; a null siginfo is allowed. The descriptor is borrowed, so valid.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, nothing, 0) };
    // Not permitted means that it is there all the same.
    sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// How much of what was written to a socket the other end has yet to read. Zero when it has read all of it.
pub fn unread_by_peer(socket: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    let mut unread: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed, so valid; the call writes one int to a valid place and keeps no pointer.
    // TIOCOUTQ is the number that sockets know as SIOCOUTQ.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    if done == 0 { Ok(unread) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor from `first` on. Only for the start of a process, while nothing in it owns
/// such a descriptor yet: an owner that is left would close a stranger's file later.
pub fn close_from(first: RawFd) -> io::Result<()> {
    let first = libc::c_uint::try_from(first).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: closes numbers only; the caller holds no owner of them (documented above). The raw
    // system call, because older C libraries do not have the wrapper.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if done == 0 { Ok(()) } else { close_each_from(first) }
}

/// For kernels before 5.9, which have no `close_range`.
fn close_each_from(first: libc::c_uint) -> io::Result<()> {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| u32::try_from(*fd).is_ok_and(|fd| fd >= first))
        .collect();
    for fd in open {
        // SAFETY: as in `close_from`. The directory's own descriptor is closed already: EBADF, ignored.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

/// Moves a descriptor to a number of choice, closed on exec. Only for the start of a process, as
/// [`close_from`]: whatever lay there is closed.
pub fn move_to(fd: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the caller holds no owner of `number` (documented above), so that the new descriptor has
    // one owner, the one made here.
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
    /// In the parent, with the child's pid.
    Parent(i32),
    Child,
}

/// Forks. Only for single-threaded processes: in the child of a threaded one any lock, the
/// allocator's too, may be held by a thread that no longer exists. Refused with `EBUSY` there.
pub fn fork() -> io::Result<Forked> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: this is the only thread (just counted, and only this thread could start another), so the
    // child is a complete copy and may do all that the parent may.
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
        // The test runner has a thread of its own beside this one; make sure of it.
        let (stay, go) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || go.recv().is_err());
        assert_eq!(fork().expect_err("two threads").raw_os_error(), Some(libc::EBUSY));
        drop(stay);
        assert!(other.join().expect("it only waits"));
    }

    #[test]
    fn a_wait_status_is_decoded_by_the_rules_of_posix() {
        assert_eq!(how_ended(0), HowEnded::Code(0));
        assert_eq!(how_ended(255 << 8), HowEnded::Code(255));
        assert_eq!(how_ended(9), HowEnded::Signal(9));
        // 0x80: it dumped its core.
        assert_eq!(how_ended(0x80 | 6), HowEnded::Signal(6));
    }
}
