//! Signal descriptors, masks and dispositions.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::Signal;

/// Delivers signals through a descriptor. Block the signals first: see [`block_all`].
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Creates a descriptor for these signals.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let set = set_of(signals);
        // SAFETY: `set` is initialized and outlives the call; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the number of the next pending signal, if any. Several pending signals of one kind count as one.
    pub fn take(&self) -> io::Result<Option<i32>> {
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut record) {
            Ok(_) => {
                // `ssi_signo` is the record's first field, a u32 in the machine's own byte order.
                let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
                Ok(i32::try_from(number).ok())
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(super) fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initializes what it is given and cannot fail on a valid pointer.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

pub(super) fn full_set() -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: `set` is initialized.
    unsafe { libc::sigfillset(&raw mut set) };
    set
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = empty_set();
    for signal in signals {
        // SAFETY: `set` is initialized, and `Signal` holds valid numbers only.
        unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
    }
    set
}

fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut old = empty_set();
    // SAFETY: `set` is initialized and only read; the old mask is written to a valid place.
    match unsafe { libc::pthread_sigmask(how, set, &raw mut old) } {
        0 => Ok(old),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Blocks exactly these signals in this thread, and returns those that were blocked before.
pub(super) fn replace_mask(set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    change_mask(libc::SIG_SETMASK, set)
}

/// Blocks every signal that can be blocked, in this thread and the threads it starts later.
pub fn block_all() -> io::Result<()> {
    replace_mask(&full_set()).map(drop)
}

/// Blocks these signals in this thread and the threads it starts later.
pub fn block(signals: &[Signal]) -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, &set_of(signals)).map(drop)
}

/// Blocks SIGPIPE in this thread. A write to a closed pipe then returns EPIPE here, whatever the process does with
/// the signal elsewhere.
pub fn block_pipe_signal_here() -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, &set_of(&[Signal::PIPE])).map(drop)
}

fn set_action(signal: Signal, action: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: callers pass only SIG_DFL and SIG_IGN, so no Rust code runs in a handler.
    if unsafe { libc::signal(signal.as_raw(), action) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Restores the default action of a signal. An ignored signal stays ignored across exec, so this process may have
/// inherited that.
pub fn default_action(signal: Signal) -> io::Result<()> {
    set_action(signal, libc::SIG_DFL)
}

/// Restores the default action of every signal and unblocks all of them, as a program expects at its start. Allocates
/// nothing and changes no memory, so that it can run right after a fork.
pub(super) fn forget_all() -> io::Result<()> {
    // A zeroed action of the kernel is SIG_DFL without flags. The C library refuses to reset its own two signals.
    let default = [0_usize; 4];
    let old = ptr::null_mut::<libc::c_void>();
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the action installs no handler and is large enough on every architecture. KILL and STOP are errors.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), old, size_of::<u64>()) };
    }
    replace_mask(&empty_set()).map(drop)
}

/// Ignores a signal in this process and, unless they change it, in the processes it starts.
pub fn ignore(signal: Signal) -> io::Result<()> {
    set_action(signal, libc::SIG_IGN)
}

/// Returns whether a signal is ignored. One that was ignored at the start, such as SIGHUP under nohup, should stay
/// so.
pub fn ignores(signal: Signal) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sets nothing; the current action is written to a valid, zeroed place.
    let now = unsafe {
        libc::sigaction(signal.as_raw(), std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

/// Restores the default action of SIGPIPE, which the Rust runtime ignores, for commands whose output may be piped to
/// `head`.
pub fn reset_pipe_signal() -> io::Result<()> {
    default_action(Signal::PIPE)
}
