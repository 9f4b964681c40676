//! Which files of a work tree only their owner may read, and whether others may read the objects of its repository.

use super::modes::umask;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The permission of the group and of others to read a file.
const READ: u32 = 0o044;
/// The permission of the group and of others to reach what is in a directory.
const ENTER: u32 = 0o011;

/// The private files below the top of a work tree.
pub(crate) struct Privacy<'a> {
    pub(super) top: &'a Path,
    /// Whether the objects of the repository are as private as any file. Then no file has to stay out.
    closed: bool,
    /// The examined directories, each with the bits of a file's mode that matter in it.
    dirs: BTreeMap<Vec<u8>, u32>,
}

impl<'a> Privacy<'a> {
    pub(crate) fn new(top: &'a Path, closed: bool) -> Privacy<'a> {
        Privacy { top, closed, dirs: BTreeMap::new() }
    }

    /// Returns whether neither the group nor others may read this file, by its mode and the directories around it, but could
    /// read it in the repository.
    pub(super) fn covers(&mut self, path: &[u8], mode: u32) -> bool {
        !self.closed && mode & self.readable_in(parent(path)) == 0
    }

    /// Returns who may read files in a directory, as bits of a file's mode.
    fn readable_in(&mut self, dir: &[u8]) -> u32 {
        if dir.is_empty() {
            return READ;
        }
        if let Some(known) = self.dirs.get(dir) {
            return *known;
        }
        let facts = fs::symlink_metadata(self.top.join(OsStr::from_bytes(dir)));
        let mode = facts.map_or(0, |facts| facts.permissions().mode());
        // The bits to read a file are two places above those to enter a directory.
        let readable = self.readable_in(parent(dir)) & (mode & ENTER) << 2;
        self.dirs.insert(dir.to_vec(), readable);
        readable
    }
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(&[], |at| &path[..at])
}

/// Returns whether others cannot read new objects in this directory: the umask makes every new file private, or the directory or
/// the repository around it cannot be entered.
pub(super) fn is_closed(objects: Option<&Path>) -> bool {
    let no_entry = |dir: &Path| fs::metadata(dir).is_ok_and(|facts| facts.permissions().mode() & ENTER == 0);
    umask() & READ == READ || objects.is_some_and(|dir| no_entry(dir) || dir.parent().is_some_and(no_entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_as_private_as_the_directories_around_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let set = |name: &str, mode: u32| {
            let path = dir.path().join(name);
            fs::create_dir_all(&path).expect("a directory");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        };
        for (name, mode) in [("open", 0o755), ("group", 0o750), ("named", 0o711), ("shut", 0o700)] {
            set(name, mode);
        }
        set("shut/open", 0o755);
        let mut privacy = Privacy::new(dir.path(), false);
        for (path, mode, private) in [
            ("f", 0o644, false),
            ("f", 0o600, true),
            ("open/f", 0o604, false),
            ("open/f", 0o700, true),
            ("group/f", 0o640, false),
            ("group/f", 0o604, true),
            ("named/f", 0o644, false),
            ("shut/f", 0o666, true),
            ("shut/link", 0o777, true),
            ("shut/open/f", 0o666, true),
        ] {
            assert_eq!(privacy.covers(path.as_bytes(), mode), private, "{path} {mode:o}");
        }
        assert!(!Privacy::new(dir.path(), true).covers(b"shut/f", 0o600));
    }

    #[test]
    fn a_repository_that_others_cannot_enter_is_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        let objects = dir.path().join("git/objects");
        fs::create_dir_all(&objects).expect("a directory");
        let set =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        let git = dir.path().join("git");
        for (outer, inner, closed) in
            [(0o755, 0o755, false), (0o711, 0o711, false), (0o700, 0o755, true), (0o755, 0o700, true)]
        {
            set(&objects, inner);
            set(&git, outer);
            assert_eq!(is_closed(Some(&objects)), closed, "{outer:o} {inner:o}");
        }
        assert!(!is_closed(None));
    }
}
