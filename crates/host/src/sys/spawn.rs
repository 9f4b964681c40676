//! Starts processes with `posix_spawn`, which does not copy this process and reports the errno of a failed exec.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::signal::{empty_set, truly_full_set};

/// The description of a process to start. The path is used as is, without a search, relative to `cwd`.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// The path of the program.
    pub path: &'a CStr,
    /// The arguments, including the program name.
    pub argv: &'a [CString],
    /// The complete environment as `NAME=value`.
    pub env: &'a [CString],
    /// The working directory.
    pub cwd: &'a CStr,
    /// stdin, stdout and stderr.
    pub stdio: [BorrowedFd<'a>; 3],
}

/// Starts a process in its own session, with no signal blocked or ignored. Returns its pid, which is also its session
/// id and group id.
pub fn spawn(what: &Spawn<'_>) -> io::Result<i32> {
    let attributes = Attributes::new()?;
    let actions = Actions::new(what)?;
    let argv = pointers(what.argv);
    let env = pointers(what.env);
    let mut pid = 0;
    // SAFETY: all pointers come from objects that live until the call returns. The vectors end in null and their
    // strings are borrowed from `what`. The child has copied or replaced its memory by then.
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

/// Returns a null-terminated pointer array. `posix_spawn` takes `*mut` for historical reasons and writes to none of
/// the strings.
fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut raw = MaybeUninit::<libc::posix_spawnattr_t>::zeroed();
        // SAFETY: init turns the memory into a valid object; it is used only after success.
        let mut attributes = unsafe {
            check(libc::posix_spawnattr_init(raw.as_mut_ptr()))?;
            Self(raw.assume_init())
        };
        let flags = libc::POSIX_SPAWN_SETSID
            | libc::POSIX_SPAWN_SETSIGMASK as libc::c_short
            | libc::POSIX_SPAWN_SETSIGDEF as libc::c_short;
        let this = &raw mut attributes.0;
        // SAFETY: `this` is initialized; the two sets are copied.
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
        // SAFETY: initialized in `new`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new(what: &Spawn<'_>) -> io::Result<Self> {
        let mut raw = MaybeUninit::<libc::posix_spawn_file_actions_t>::zeroed();
        // SAFETY: init turns the memory into a valid object; it is used only after success.
        let mut actions = unsafe {
            check(libc::posix_spawn_file_actions_init(raw.as_mut_ptr()))?;
            Self(raw.assume_init())
        };
        let this = &raw mut actions.0;
        for (target, fd) in (0..).zip(&what.stdio) {
            // SAFETY: `this` is initialized; the numbers belong to descriptors borrowed by `what`.
            unsafe { check(libc::posix_spawn_file_actions_adddup2(this, fd.as_raw_fd(), target))? };
        }
        // SAFETY: `this` is initialized; the C library copies the path.
        unsafe { check(libc::posix_spawn_file_actions_addchdir_np(this, what.cwd.as_ptr()))? };
        Ok(actions)
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialized in `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}
