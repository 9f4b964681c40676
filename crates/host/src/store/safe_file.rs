//! Opens the files of dogwatch safely: journal, locks, token, registry, session files, raw output, logs.
//!
//! These functions never follow a link in place of a file and open only regular files, so a FIFO, a directory or a
//! dangling link fails immediately and never hangs. A file opened for writing must belong to this user, to root, or
//! to the owner of its directory: root may work in the tree of a user, and a mount may assign one owner to all files.
//! A file that another user put into a directory of this user is refused.
//!
//! A directory, or a link to it, must belong to this user or to root. For root it may also belong to the owner of the
//! directory around it, and so it may on a mount that assigns one owner to all files. People move and link directories, so
//! links are followed.

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use std::fs::{File, FileType, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The mode of files that only this user may read and write.
pub const PRIVATE: u32 = 0o600;
/// The mode of files that hold no secret; the umask applies.
pub const PLAIN: u32 = 0o666;

/// Opens a file for appending. Creates it if it is missing.
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    ours(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE, mode)
}

/// Opens an existing file for appending.
pub fn append_existing(path: &Path) -> io::Result<File> {
    ours(path, OFlags::WRONLY | OFlags::APPEND, 0)
}

/// Opens a file for reading and writing. Creates it if it is missing and keeps its content.
pub fn update(path: &Path, mode: u32) -> io::Result<File> {
    ours(path, OFlags::RDWR | OFlags::CREATE, mode)
}

/// Opens a file for writing and truncates it, but only after its owner is checked.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let file = ours(path, OFlags::WRONLY | OFlags::CREATE, mode)?;
    // ext4 writes a truncated file to disk when it is closed, also one that was empty, and the next sync waits for it.
    if file.metadata()?.len() > 0 {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Creates a file for appending. Fails if a file or a link exists.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL, mode)
}

/// Opens a regular file of any owner for reading.
pub fn read(path: &Path) -> io::Result<File> {
    let file = open(path, OFlags::RDONLY, 0)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Returns the first `max` bytes of a regular file of any owner.
pub fn read_up_to(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses the JSON document in the first `max` bytes of a regular file of any owner.
pub fn read_json<T: DeserializeOwned>(path: &Path, max: u64) -> io::Result<T> {
    Ok(serde_json::from_slice(&read_up_to(path, max)?)?)
}

/// Reads a file that the user names. A file of more than `max` bytes is an error.
pub fn read_named_whole(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_named(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {max} bytes")));
    }
    Ok(bytes)
}

/// Opens a file that the user names, for reading. Follows links, and refuses everything but a regular file without
/// waiting for it.
pub fn read_named(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Replaces the content of a file that is often rewritten. Unlike [`write()`], it never makes the file empty, after which
/// ext4 would write the new content to disk at once. A crash may leave a mix of both contents.
pub fn overwrite(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut file = ours(path, OFlags::WRONLY | OFlags::CREATE, mode)?;
    file.write_all(content)?;
    if file.metadata()?.len() > content.len() as u64 {
        file.set_len(content.len() as u64)?;
    }
    Ok(())
}

/// Replaces the content of a file, in place.
pub fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    create(path, mode)?.write_all(content)
}

/// Replaces a file atomically: a reader sees the old content or the new one, and an interrupted write leaves the file as
/// it was.
pub fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}.new", std::process::id()));
    let replaced = write(Path::new(&aside), mode, content).and_then(|()| std::fs::rename(&aside, path));
    if replaced.is_err() {
        // The file may not exist. The caller reports the original error.
        let _ = std::fs::remove_file(&aside);
    }
    replaced
}

/// Checks that a directory is safe to hold files of dogwatch: see the module documentation.
pub fn check_dir(path: &Path) -> io::Result<()> {
    let named = std::fs::symlink_metadata(path)?;
    let mut place = path.to_owned();
    placed(path, &named)?;
    if named.is_symlink() {
        place = path.canonicalize()?;
        placed(&place, &std::fs::symlink_metadata(&place)?)?;
    }
    match std::fs::metadata(&place)?.file_type() {
        kind if kind.is_dir() => Ok(()),
        kind => Err(io::Error::other(format!("{} is {}, not a directory", path.display(), name_of(kind)))),
    }
}

fn placed(path: &Path, found: &Metadata) -> io::Result<()> {
    let (around, me) = (around(path)?, rustix::process::geteuid().as_raw());
    let inside = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if trusts(me, found.uid(), around.uid(), || assigns_owner(inside, found.uid())) {
        return Ok(());
    }
    let text = format!(
        "{} belongs to user {}, not to you; remove it, or set HOME or XDG_STATE_HOME",
        path.display(),
        found.uid()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Returns whether this user may rely on a directory of that owner. `assigns` is whether the mount gives that owner to
/// every file.
fn trusts(me: u32, owner: u32, around: u32, assigns: impl FnOnce() -> bool) -> bool {
    [me, 0].contains(&owner) || owner == around && (me == 0 || assigns())
}

/// Returns whether a new file in a directory belongs to this owner, and not to this user.
fn assigns_owner(dir: &Path, owner: u32) -> bool {
    let probe = dir.join(format!(".dogwatch-owner-{}", std::process::id()));
    let made = create_new(&probe, PRIVATE);
    let assigned = made.as_ref().is_ok_and(|file| file.metadata().is_ok_and(|facts| facts.uid() == owner));
    if made.is_ok() {
        let _ = std::fs::remove_file(&probe);
    }
    assigned
}

fn ours(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let file = open(path, flags, mode)?;
    let meta = file.metadata()?;
    regular(&meta)?;
    if is_trusted(meta.uid(), &around(path)?) {
        return Ok(file);
    }
    let text = format!("it belongs to user {}, not to you or to the owner of its directory", meta.uid());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn open(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(mode));
    opened.map(File::from).map_err(|errno| match std::fs::symlink_metadata(path) {
        // The error of the kernel does not name the cause in these cases.
        Ok(found) if !flags.contains(OFlags::EXCL) => regular(&found).err().unwrap_or_else(|| errno.into()),
        Ok(_) | Err(_) => errno.into(),
    })
}

fn regular(found: &Metadata) -> io::Result<()> {
    match found.file_type() {
        kind if kind.is_file() => Ok(()),
        kind => Err(io::Error::other(format!("it is {}, not a regular file; remove it", name_of(kind)))),
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_file() => "a file",
        _ if kind.is_dir() => "a directory",
        _ if kind.is_symlink() => "a symbolic link",
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Returns the metadata of the directory that contains an entry.
fn around(path: &Path) -> io::Result<Metadata> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::metadata(parent.unwrap_or(Path::new(".")))
}

fn is_trusted(owner: u32, around: &Metadata) -> bool {
    [rustix::process::geteuid().as_raw(), 0, around.uid()].contains(&owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    type Open = fn(&Path) -> io::Result<File>;

    const WAYS: [(&str, Open); 5] = [
        ("append", |path| append(path, PLAIN)),
        ("append_existing", append_existing),
        ("update", |path| update(path, PLAIN)),
        ("create", |path| create(path, PLAIN)),
        ("read", read),
    ];

    /// Returns the error of the call. Fails the test if the call hangs.
    fn refused(way: Open, path: &Path) -> String {
        let (sender, opened) = channel();
        let path = path.to_owned();
        std::thread::spawn(move || sender.send(way(&path).map(drop).map_err(|e| e.to_string())));
        opened.recv_timeout(Duration::from_secs(10)).expect("no open waits").expect_err("refused")
    }

    fn in_place_of_a_file(dir: &Path) -> Vec<(PathBuf, &'static str)> {
        let places = ["fifo", "dir", "dangling", "link"].map(|name| dir.join(name));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &places[0],
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("a FIFO");
        std::fs::create_dir(&places[1]).expect("a directory");
        symlink(dir.join("nowhere"), &places[2]).expect("a link");
        std::fs::write(dir.join("target"), "precious").expect("a file");
        symlink(dir.join("target"), &places[3]).expect("a link");
        let words = ["a FIFO", "a directory", "a symbolic link", "a symbolic link"];
        places.into_iter().zip(words).collect()
    }

    #[test]
    fn an_overwritten_file_holds_the_new_content_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x");
        for content in ["first", "longer than the first", "short", ""] {
            overwrite(&path, PRIVATE, content.as_bytes()).expect("writes");
            assert_eq!(std::fs::read_to_string(&path).expect("is there"), content);
        }
    }

    // promise: 14
    #[test]
    fn a_directory_of_another_user_is_trusted_only_by_root_or_on_a_mount_with_one_owner() {
        let (me, other, third) = (1001, 1002, 1003);
        assert!(trusts(me, me, other, || false) && trusts(me, 0, other, || false));
        assert!(!trusts(me, other, other, || false), "another user prepared both directories");
        assert!(trusts(me, other, other, || true) && !trusts(me, other, third, || true));
        assert!(trusts(0, other, other, || false) && !trusts(0, other, third, || false));
        let dir = tempfile::tempdir().expect("a directory");
        let me = rustix::process::geteuid().as_raw();
        assert!(assigns_owner(dir.path(), me) && !assigns_owner(dir.path(), me + 1));
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "the probe is gone");
    }

    // promise: 14
    #[test]
    fn a_file_that_is_not_regular_is_refused_at_once_and_named() {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, word) in in_place_of_a_file(dir.path()) {
            for (name, way) in WAYS {
                let said = refused(way, &path);
                assert!(
                    said.contains(word) && said.contains("remove it"),
                    "{name} {}: {said}",
                    path.display()
                );
            }
            assert!(create_new(&path, PLAIN).is_err());
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("target")).expect("reads"), "precious");
        assert!(!dir.path().join("nowhere").exists(), "nothing was created through a link");
    }

    // promise: 14
    #[test]
    fn a_file_of_another_user_in_our_directory_is_refused() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give files away");
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("theirs");
        std::fs::write(&file, "theirs").expect("writes");
        chown(&file, Some(4711), None).expect("root may");
        for (name, way) in WAYS.into_iter().filter(|(name, _)| *name != "read") {
            let said = refused(way, &file);
            assert!(said.contains("belongs to user 4711"), "{name}: {said}");
        }
        assert_eq!(std::fs::read_to_string(&file).expect("reads"), "theirs", "it was not emptied");
        // Root in the tree of a user: both the directory and the file belong to the user.
        chown(dir.path(), Some(4711), None).expect("root may");
        append(&file, PLAIN).expect("the user's own file in the user's directory");
    }

    // promise: 14
    #[test]
    fn a_directory_of_another_user_is_refused_unless_all_around_it_is_theirs() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give files away");
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let shared = dir.path().join("shared");
        std::fs::create_dir(&shared).expect("a directory");
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).expect("ours");
        let (theirs, link) = (shared.join("theirs"), shared.join("link"));
        std::fs::create_dir(&theirs).expect("a directory");
        symlink(dir.path(), &link).expect("a link");
        check_dir(&link).expect("a link of our own");
        for path in [&theirs, &link] {
            std::os::unix::fs::lchown(path, Some(4711), None).expect("root may");
            let said = check_dir(path).expect_err("refused").to_string();
            assert!(said.contains("belongs to user 4711") && said.contains("XDG_STATE_HOME"), "{said}");
        }
        // The same where only the owner of the directory around it may write.
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755)).expect("ours");
        check_dir(&theirs).expect_err("refused");
        chown(&shared, Some(4711), None).expect("root may");
        check_dir(&theirs).expect("root works in the tree of a user");
        std::fs::write(dir.path().join("plain"), "").expect("writes");
        assert!(check_dir(&dir.path().join("plain")).is_err());
    }

    #[test]
    fn a_file_is_created_truncated_and_appended_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        write(&path, PRIVATE, b"one").expect("writes");
        append(&path, PLAIN).expect("opens").write_all(b" two").expect("writes");
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), "one two");
        assert_eq!(std::fs::metadata(&path).expect("is there").mode() & 0o777, 0o600);
        write(&path, PLAIN, b"x").expect("writes");
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), "x");
        let error = create_new(&path, PLAIN).expect_err("there is one").kind();
        assert_eq!(error, io::ErrorKind::AlreadyExists);
        assert_eq!(read(&dir.path().join("gone")).expect_err("none").kind(), io::ErrorKind::NotFound);
    }
}
