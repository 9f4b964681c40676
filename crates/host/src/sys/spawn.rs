//! `posix_spawn`: a new process without copying this one, and the exec's own errno when it fails.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::signal::{empty_set, truly_full_set};

/// What to start. The path is taken as it is (no search), relative to `cwd`.
#[derive(Debug)]
pub struct Spawn<'a> {
    pub path: &'a CStr,
    pub argv: &'a [CString],
    /// Complete: `NAME=value` each.
    pub env: &'a [CString],
    pub cwd: &'a CStr,
    pub stdio: [BorrowedFd<'a>; 3],
}

/// Starts it in a session of its own, no signal blocked, none ignored. Gives the pid, which is also
/// that of its session and its group.
pub fn spawn(what: &Spawn<'_>) -> io::Result<i32> {
    let attributes = Attributes::new()?;
    let actions = Actions::new(what)?;
    let argv = pointers(what.argv);
    let env = pointers(what.env);
    let mut pid = 0;
    // SAFETY: all pointers come from objects that live until the call returns: the vectors end in
    // null, their strings are borrowed from `what`; the child has copied or replaced its memory by then.
    let error = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            what.path.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            argv.as_ptr(),
            env.as_ptr(),
        )
    };
    check(error).map(|()| pid)
}

fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// `posix_spawn` takes `*mut` for history's sake and writes to none of them.
fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut raw = MaybeUninit::<libc::posix_spawnattr_t>::zeroed();
        // SAFETY: init makes a valid object of the memory it is given; assumed so only after success.
        let mut attributes = unsafe {
            check(libc::posix_spawnattr_init(raw.as_mut_ptr()))?;
            Self(raw.assume_init())
        };
        let flags = libc::POSIX_SPAWN_SETSID
            | libc::POSIX_SPAWN_SETSIGMASK as libc::c_short
            | libc::POSIX_SPAWN_SETSIGDEF as libc::c_short;
        let this = &raw mut attributes.0;
        // SAFETY: `this` is initialised; the two sets are copied.
        unsafe {
            check(libc::posix_spawnattr_setsigmask(this, &empty_set()))?;
            check(libc::posix_spawnattr_setsigdefault(this, &truly_full_set()))?;
            check(libc::posix_spawnattr_setflags(this, flags))?;
        }
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new(what: &Spawn<'_>) -> io::Result<Self> {
        let mut raw = MaybeUninit::<libc::posix_spawn_file_actions_t>::zeroed();
        // SAFETY: init makes a valid object of the memory it is given; assumed so only after success.
        let mut actions = unsafe {
            check(libc::posix_spawn_file_actions_init(raw.as_mut_ptr()))?;
            Self(raw.assume_init())
        };
        let this = &raw mut actions.0;
        for (target, fd) in (0..).zip(&what.stdio) {
            // SAFETY: `this` is initialised; the numbers belong to descriptors borrowed by `what`.
            unsafe { check(libc::posix_spawn_file_actions_adddup2(this, fd.as_raw_fd(), target))? };
        }
        // SAFETY: `this` is initialised; the C library copies the path.
        unsafe { check(libc::posix_spawn_file_actions_addchdir_np(this, what.cwd.as_ptr()))? };
        Ok(actions)
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}
