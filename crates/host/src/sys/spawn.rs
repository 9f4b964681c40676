//! Starts processes without a copy of this one's memory, and reports the errno of a failed exec.
//!
//! `posix_spawn` works in the same way, but glibc before 2.29 cannot change the directory in it, and glibc before 2.26
//! cannot start a session. The packages must run on older systems.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;

use super::signal::{self, full_set};

/// The size of the child's stack. The child calls the kernel a few times and holds nothing large.
const STACK_BYTES: usize = 64 << 10;
/// The exit code of a child that could not become the program. The caller gets the error instead.
const NOT_STARTED: libc::c_int = 127;

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
    /// stdin, stdout and stderr. Their numbers are above 2.
    pub stdio: [BorrowedFd<'a>; 3],
}

/// What the child needs, in a form that it can use without an allocation.
struct Child<'a> {
    what: &'a Spawn<'a>,
    argv: &'a [*const libc::c_char],
    env: &'a [*const libc::c_char],
    /// The errno of the step that failed; 0 while none has.
    errno: libc::c_int,
}

/// Starts a process in its own session, with no signal blocked or ignored. Returns its pid, which is also its session
/// id and group id.
pub fn spawn(what: &Spawn<'_>) -> io::Result<i32> {
    let (argv, env) = (pointers(what.argv), pointers(what.env));
    let mut child = Child { what, argv: &argv, env: &env, errno: 0 };
    let mut stack = Box::<[u128]>::new_uninit_slice(STACK_BYTES / size_of::<u128>());
    // No handler of this process may run in the child, because both use the same memory.
    let mask = signal::replace_mask(&full_set())?;
    // SAFETY: the child has a stack of its own, which grows down from an aligned end. With CLONE_VFORK this thread waits
    // until the child has exited or become the program, so everything that `child` points to outlives its use.
    let pid = unsafe {
        libc::clone(
            become_program,
            stack.as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut child).cast(),
        )
    };
    let cloned = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
    signal::replace_mask(&mask)?;
    let pid = cloned?;
    if child.errno != 0 {
        // SAFETY: the child exits now and belongs to this process; its status is not wanted.
        unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        return Err(io::Error::from_raw_os_error(child.errno));
    }
    Ok(pid)
}

/// Returns a null-terminated pointer array.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// The child: turns itself into the program. It shares the memory of its parent, so it only calls the kernel.
extern "C" fn become_program(child: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a pointer to a `Child` and waits, so that only this code uses it now.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    let error = match prepare(child.what) {
        Ok(()) => {
            let (argv, env) = (child.argv.as_ptr(), child.env.as_ptr());
            // SAFETY: the path is a C string, and both arrays of C strings end in null.
            unsafe { libc::execve(child.what.path.as_ptr(), argv, env) };
            io::Error::last_os_error()
        }
        Err(error) => error,
    };
    child.errno = error.raw_os_error().unwrap_or(libc::EIO);
    NOT_STARTED
}

fn prepare(what: &Spawn<'_>) -> io::Result<()> {
    rustix::process::setsid()?;
    signal::forget_all()?;
    let [stdin, stdout, stderr] = what.stdio;
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    Ok(rustix::process::chdir(what.cwd)?)
}
