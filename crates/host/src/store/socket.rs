//! The socket of a run: accessible to its owner only, and usable with a path of any length.
//!
//! A socket address holds at most 107 bytes of path. A longer path is reached through `/proc/self/fd/N/`, where N is
//! the open directory of the socket. That works on every Linux and keeps the socket in the directory of the run.

use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the socket in the directory of a run.
pub const FILE: &str = "socket";
/// The longest path that fits a socket address on every Unix.
const FITS: usize = 100;
/// The length of the accept queue, more than the server accepts at once.
const BACKLOG: i32 = 128;

/// Returns the socket path of a run.
pub fn path(run_dir: &Path) -> PathBuf {
    run_dir.join(FILE)
}

/// The file of a listening socket. Dropping it removes the file.
pub struct Bound {
    path: PathBuf,
    /// Device and inode, to avoid removing the socket of a successor with the same name.
    file: (u64, u64),
}

/// Listens at `path`. Replaces the socket of a dead run. Fails if another process accepts connections there.
pub fn bind(path: &Path) -> io::Result<(UnixListener, Bound)> {
    if connect(path, Duration::from_secs(1)).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("another process listens at {}", path.display()),
        ));
    }
    // Use a temporary name first, so that a socket at `path` always has its mode set and listens.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = std::fs::remove_file(&new);
    let listener = listen(&new)?;
    let placed = place(&new, path);
    if placed.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    Ok((listener, placed?))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // On Linux the file inherits its mode from the socket, so other users never have access.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let address = Address::of(path)?;
    rustix::net::bind(&socket, &address.name)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn place(new: &Path, path: &Path) -> io::Result<Bound> {
    std::fs::set_permissions(new, std::fs::Permissions::from_mode(0o600))?;
    let file = identity(new)?;
    std::fs::rename(new, path)?;
    Ok(Bound { path: path.to_owned(), file })
}

impl Drop for Bound {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Connects to the process that listens at `path`. Waits at most `patience`.
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The send timeout also limits connecting.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    // A link would lead to a socket of another run.
    if std::fs::symlink_metadata(path)?.is_symlink() {
        return Err(io::Error::other(format!("{} is a symbolic link, not a socket", path.display())));
    }
    let address = Address::of(path)?;
    rustix::net::connect(&socket, &address.name)?;
    Ok(UnixStream::from(socket))
}

/// A path as a socket address, and the directory that must stay open while it is used.
struct Address {
    name: SocketAddrUnix,
    _dir: Option<OwnedFd>,
}

impl Address {
    fn of(path: &Path) -> io::Result<Address> {
        if path.as_os_str().as_bytes().len() <= FITS {
            return Ok(Address { name: SocketAddrUnix::new(path)?, _dir: None });
        }
        let (Some(parent), Some(file)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket needs a directory and a name"));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent, flags, Mode::empty())?;
        let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(file);
        Ok(Address { name: SocketAddrUnix::new(&short)?, _dir: Some(dir) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const PATIENCE: Duration = Duration::from_secs(5);

    fn answered(path: &Path) -> bool {
        connect(path, PATIENCE).is_ok()
    }

    // promise: 14
    #[test]
    fn a_socket_is_for_its_owner_alone_and_goes_when_it_is_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = path(dir.path());
        let (_listener, bound) = bind(&at).expect("binds");
        let mode = std::fs::metadata(&at).expect("exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(bound);
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
    }

    #[test]
    fn a_path_of_any_length_works() {
        for length in [99, 100, 101, 107, 108, 300, 1000] {
            let dir = tempfile::tempdir().expect("a directory");
            let mut deep = dir.path().to_owned();
            while deep.as_os_str().len() + 1 + FILE.len() < length {
                let room = length - deep.as_os_str().len() - 2 - FILE.len();
                deep.push("d".repeat(room.clamp(1, 200)));
            }
            std::fs::create_dir_all(&deep).expect("makes it");
            let (listener, _bound) = bind(&path(&deep)).expect("binds");
            let mut caller = connect(&path(&deep), PATIENCE).expect("connects");
            caller.write_all(b"x").expect("writes");
            listener.set_nonblocking(false).expect("blocks");
            let mut byte = [0];
            listener.accept().expect("accepts").0.read_exact(&mut byte).expect("reads");
            assert_eq!(byte, *b"x", "{length}");
        }
    }

    // promise: 14
    #[test]
    fn a_link_in_place_of_the_socket_is_not_followed_and_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let (other, at) = (dir.path().join("other"), path(dir.path()));
        let _other = UnixListener::bind(&other).expect("binds");
        std::os::unix::fs::symlink(&other, &at).expect("links");
        assert!(connect(&at, PATIENCE).is_err());
        let (_listener, _bound) = bind(&at).expect("replaces it");
        assert!(answered(&at) && answered(&other));
    }

    #[test]
    fn the_socket_of_a_dead_run_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = path(dir.path());
        drop(UnixListener::bind(&at).expect("binds"));
        assert!(!answered(&at));
        let (listener, bound) = bind(&at).expect("replaces it");
        assert!(answered(&at));
        assert_eq!(bind(&at).err().expect("refused").kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let (_second, kept) = bind(&at).expect("replaces it again");
        drop(bound);
        assert!(answered(&at), "dropping the first socket must not remove the second one");
        drop(kept);
    }
}
