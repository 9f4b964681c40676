//! Makes paths read-only for a session, in a mount table of its own.

use crate::sys;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree,
};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Gives this process a mount table of its own. Fails if the machine does not allow that.
pub fn separate() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let user = !uid.is_root();
    sys::own_mounts(user)?;
    if user {
        // The ids stay the same inside. Without this step they would all be `nobody`.
        put("/proc/self/setgroups", "deny")?;
        put("/proc/self/uid_map", &format!("{0} {0} 1", uid.as_raw()))?;
        put("/proc/self/gid_map", &format!("{0} {0} 1", gid.as_raw()))?;
    }
    // Nothing that is mounted here may reach the rest of the machine.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

/// Makes every existing path of `protect` read-only, except for what lies below one of `write`. Needs [`separate`].
pub fn protect(protect: &[PathBuf], write: &[PathBuf]) -> io::Result<()> {
    for (path, kind) in mounts(protect, write) {
        match mount(path, kind) {
            // A path that does not exist cannot be protected.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            mounted => mounted.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?,
        }
    }
    Ok(())
}

/// The purpose of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The kernel does not move or remove the root of a mount.
    Held,
    ReadOnly,
    Writable,
}

/// Returns the mounts of a session, outermost first, because a mount hides those below it.
fn mounts<'a>(protect: &'a [PathBuf], write: &'a [PathBuf]) -> BTreeMap<&'a Path, Kind> {
    // Otherwise a session could move a directory around a protected path away, and put another one in its place.
    let movable = |dir: &&Path| write.iter().any(|top| dir.starts_with(top) && *dir != top.as_path());
    let around = protect.iter().flat_map(|path| path.ancestors().skip(1).filter(movable));
    let mut mounts: BTreeMap<&Path, Kind> = around.map(|dir| (dir, Kind::Held)).collect();
    mounts.extend(protect.iter().map(|path| (path.as_path(), Kind::ReadOnly)));
    let inside = |path: &&PathBuf| protect.iter().any(|protected| path.starts_with(protected));
    mounts.extend(write.iter().filter(inside).map(|path| (path.as_path(), Kind::Writable)));
    mounts
}

/// Mounts a path on itself. A link is not followed: the mount is on the link, which then cannot be replaced.
fn mount(path: &Path, kind: Kind) -> Result<(), Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(CWD, path, flags)?;
    match kind {
        Kind::Held => Ok(()),
        Kind::ReadOnly => sys::set_read_only(tree.as_fd(), true),
        Kind::Writable => sys::set_read_only(tree.as_fd(), false),
    }
    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    move_mount(tree.as_fd(), "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn put(file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_between_the_work_tree_and_a_protected_path_is_held() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let protect = paths(&["/w/.git/hooks", "/w/a/b/RALPH.md", "/w/.d", "/w/.d/t/.git", "/x/y"]);
        let write = paths(&["/w", "/w/.d/t", "/z"]);
        let mounts = mounts(&protect, &write);
        let wanted = [
            ("/w/.d", Kind::ReadOnly),
            // A work tree below a protected path is writable again, and what is protected in it is on top of that.
            ("/w/.d/t", Kind::Writable),
            ("/w/.d/t/.git", Kind::ReadOnly),
            ("/w/.git", Kind::Held),
            ("/w/.git/hooks", Kind::ReadOnly),
            ("/w/a", Kind::Held),
            ("/w/a/b", Kind::Held),
            ("/w/a/b/RALPH.md", Kind::ReadOnly),
            ("/x/y", Kind::ReadOnly),
        ];
        assert_eq!(
            mounts.into_iter().collect::<Vec<_>>(),
            wanted.map(|(path, kind)| (Path::new(path), kind))
        );
    }
}
