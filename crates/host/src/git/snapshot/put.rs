//! Writes one file into a work tree or removes it: never through a link, and never over unknown content.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The mode of a symbolic link, in git's notation.
const LINK: &str = "120000";

/// Where the content of a file comes from.
pub(super) enum Content<'a> {
    Bytes(&'a [u8]),
    File(&'a Path),
}

/// Writes a file atomically. `known` means that the present content is in a snapshot and may be replaced. `exact` are its
/// permissions, if they are known; otherwise it keeps those of the file that it replaces.
pub(super) fn put(
    top: &Path,
    path: &[u8],
    (mode, exact): (&str, Option<u32>),
    content: Content<'_>,
    known: bool,
) -> Result<(), String> {
    let target = safe(top, path)?;
    make_parents(top, &target)?;
    let before = match fs::symlink_metadata(&target) {
        Ok(facts) if facts.is_dir() => return Err("a directory is in its place".to_owned()),
        Ok(_) if !known => return Err("an ignored file is in its place".to_owned()),
        Ok(facts) => facts.is_file().then(|| facts.permissions().mode()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.to_string()),
    };
    let beside = target.with_file_name(format!(".dogwatch-undo-{}", std::process::id()));
    let put = write(&beside, mode, content)
        .and_then(|()| match exact.filter(|_| mode != LINK) {
            Some(exact) => fs::set_permissions(&beside, fs::Permissions::from_mode(exact)),
            None => keep_mode(&beside, mode, before),
        })
        .and_then(|()| fs::rename(&beside, &target));
    put.map_err(|error| {
        let _ = fs::remove_file(&beside);
        error.to_string()
    })
}

/// Gives a file the permissions of the file that it replaces. Git knows only whether it is executable.
fn keep_mode(path: &Path, mode: &str, before: Option<u32>) -> io::Result<()> {
    let Some(before) = before.filter(|_| mode != LINK) else { return Ok(()) };
    // Everyone who may read an executable file may execute it.
    let executable = if mode == "100755" { (before & 0o444) >> 2 } else { 0 };
    fs::set_permissions(path, fs::Permissions::from_mode(before & 0o7666 | executable))
}

/// Sets the permissions of a regular file that has other ones. Returns whether it had.
pub(super) fn set_mode(top: &Path, path: &[u8], mode: u32) -> Result<bool, String> {
    let target = safe(top, path)?;
    let facts = fs::symlink_metadata(&target).map_err(|error| error.to_string())?;
    if !facts.is_file() || facts.permissions().mode() & 0o7777 == mode {
        return Ok(false);
    }
    fs::set_permissions(&target, fs::Permissions::from_mode(mode)).map_err(|error| error.to_string())?;
    Ok(true)
}

/// Removes a file, and the directories that become empty.
pub(super) fn remove(top: &Path, path: &[u8]) -> Result<(), String> {
    let target = safe(top, path)?;
    for dir in parents(top, &target) {
        match fs::symlink_metadata(&dir) {
            Ok(facts) if facts.is_dir() => {}
            // It is already gone, with its directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(_) | Err(_) => return Err(format!("{} is in the way", dir.display())),
        }
    }
    match fs::symlink_metadata(&target) {
        Ok(facts) if facts.is_dir() => return Err("a directory is in its place".to_owned()),
        Ok(_) => fs::remove_file(&target).map_err(|error| error.to_string())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
    }
    // Innermost first; the first directory that is not empty ends the loop.
    for dir in parents(top, &target).into_iter().rev() {
        if fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

/// Returns the path in the work tree. A git tree should contain only safe paths, but this check does not rely on
/// it.
fn safe(top: &Path, path: &[u8]) -> Result<PathBuf, String> {
    let bad = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.eq_ignore_ascii_case(b".git");
    if path.split(|byte| *byte == b'/').any(bad) {
        return Err("not a valid path in a work tree".to_owned());
    }
    Ok(top.join(OsStr::from_bytes(path)))
}

/// Returns the directories between the top and the file, outermost first.
fn parents(top: &Path, target: &Path) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        target.ancestors().skip(1).take_while(|dir| *dir != top).map(Path::to_owned).collect();
    dirs.reverse();
    dirs
}

fn make_parents(top: &Path, target: &Path) -> Result<(), String> {
    for dir in parents(top, target) {
        match fs::symlink_metadata(&dir) {
            Ok(facts) if facts.is_dir() => {}
            Ok(_) => return Err(format!("{} is in the way", dir.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir(&dir).map_err(|error| error.to_string())?;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

fn write(path: &Path, mode: &str, content: Content<'_>) -> io::Result<()> {
    // A leftover of a process that was killed.
    let _ = fs::remove_file(path);
    if mode == LINK {
        let Content::Bytes(to) = content else { return Err(io::ErrorKind::InvalidInput.into()) };
        return symlink(OsStr::from_bytes(to), path);
    }
    let bits = if mode == "100755" { 0o777 } else { 0o666 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(bits).open(path)?;
    match content {
        Content::Bytes(bytes) => file.write_all(bytes)?,
        Content::File(from) => drop(io::copy(&mut File::open(from)?, &mut file)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_or_removed_through_a_link_or_out_of_the_tree() {
        let dir = tempfile::tempdir().expect("a directory");
        let (top, other) = (dir.path().join("top"), dir.path().join("other"));
        fs::create_dir_all(&top).expect("a directory");
        fs::create_dir_all(&other).expect("a directory");
        fs::write(other.join("a"), "theirs").expect("written");
        symlink(&other, top.join("link")).expect("a link");
        for path in [&b"link/a"[..], b"link/b", b"../other/a", b"x/../../other/a", b".git/config", b"a//b"] {
            assert!(put(&top, path, ("100644", None), Content::Bytes(b"ours"), true).is_err(), "{path:?}");
            assert!(remove(&top, path).is_err(), "{path:?}");
        }
        assert_eq!(fs::read_to_string(other.join("a")).expect("untouched"), "theirs");
        assert_eq!(fs::read_dir(&other).expect("readable").count(), 1);
    }

    #[test]
    fn directories_are_removed_only_when_empty() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |path: &[u8]| put(dir.path(), path, ("100644", None), Content::Bytes(b""), false);
        put(b"a/b/c").expect("put");
        put(b"a/kept").expect("put");
        remove(dir.path(), b"a/b/c").expect("removed");
        assert!(!dir.path().join("a/b").exists() && dir.path().join("a/kept").exists());
        assert_eq!(put(b"a/kept"), Err("an ignored file is in its place".to_owned()));
        assert_eq!(put(b"a"), Err("a directory is in its place".to_owned()));
    }
}
