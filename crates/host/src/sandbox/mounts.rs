//! Makes paths read-only for a session, in a mount table of its own.

use crate::sys;
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Makes every existing path of `protect` read-only, except for what lies below one of `write`.
pub fn protect(protect: &[PathBuf], write: &[PathBuf]) -> io::Result<()> {
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
    let protect: Vec<&PathBuf> = protect.iter().filter(|path| path.exists()).collect();
    // The kernel does not move the root of a mount. Otherwise a session could move the directory around a protected path
    // away, and put another one in its place.
    for dir in around(&protect, write) {
        mount_bind(dir, dir)?;
    }
    for path in &protect {
        mount_bind(*path, *path)?;
        change(path, MountFlags::RDONLY)?;
    }
    for path in write.iter().filter(|path| protect.iter().any(|p| path.starts_with(p)) && path.exists()) {
        mount_bind(path, path)?;
        change(path, MountFlags::empty())?;
    }
    Ok(())
}

/// Returns the directories between a writable path and a protected one below it, outermost first.
fn around<'a>(protect: &[&'a PathBuf], write: &[PathBuf]) -> BTreeSet<&'a Path> {
    let movable = |dir: &&Path| write.iter().any(|top| dir.starts_with(top) && *dir != top.as_path());
    protect.iter().flat_map(|path| path.ancestors().skip(1).filter(movable)).collect()
}

/// Makes a mount read-only or writable.
fn change(path: &Path, readonly: MountFlags) -> io::Result<()> {
    // A user namespace may not drop these flags of the mount that it was copied from.
    let has = statvfs(path)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = kept.iter().filter(|(flag, _)| has.contains(*flag));
    let flags = kept.fold(MountFlags::BIND | readonly, |all, (_, flag)| all | *flag);
    mount_remount(path, flags, "")?;
    Ok(())
}

fn put(file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_between_the_work_tree_and_a_protected_path_is_held() {
        let protect = ["/w/.git/hooks", "/w/.git/config", "/w/a/b/RALPH.md", "/w/dogwatch.toml", "/x/y"]
            .map(PathBuf::from);
        let held = around(&protect.iter().collect::<Vec<_>>(), &[PathBuf::from("/w")]);
        assert_eq!(held.into_iter().collect::<Vec<_>>(), ["/w/.git", "/w/a", "/w/a/b"].map(Path::new));
    }
}
