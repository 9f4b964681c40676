//! Signal descriptors, masks and dispositions.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

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

/// Returns every signal, including the two that the C library reserves for its threads and leaves out of
/// `sigfillset`. Otherwise a spawned process would have them ignored.
pub(super) fn truly_full_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a signal set is an array of bits. All bits set is a valid value, and all bytes are initialized.
    unsafe {
        set.as_mut_ptr().write_bytes(0xff, 1);
        set.assume_init()
    }
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = empty_set();
    for signal in signals {
        // SAFETY: `set` is initialized, and `Signal` holds valid numbers only.
        unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
    }
    set
}

fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is initialized and only read; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Blocks every signal that can be blocked, in this thread and the threads it starts later.
pub fn block_all() -> io::Result<()> {
    change_mask(libc::SIG_SETMASK, &full_set())
}

/// Blocks these signals in this thread and the threads it starts later.
pub fn block(signals: &[Signal]) -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, &set_of(signals))
}

/// Blocks SIGPIPE in this thread. A write to a closed pipe then returns EPIPE here, whatever the process does with
/// the signal elsewhere.
pub fn block_pipe_signal_here() -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, &set_of(&[Signal::PIPE]))
}

fn set_action(signal: Signal, action: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: callers pass only SIG_DFL and SIG_IGN, so no code of ours runs in a handler.
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

/// Restores the default action of every signal and unblocks all of them, as a program expects at its start.
pub(super) fn forget_all() -> io::Result<()> {
    for number in 1..=libc::SIGRTMAX() {
        // The actions of KILL, of STOP and of the signals of the C library cannot be changed and are the default.
        // SAFETY: SIG_DFL installs no handler, and an invalid number is only an error.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    change_mask(libc::SIG_SETMASK, &empty_set())
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
