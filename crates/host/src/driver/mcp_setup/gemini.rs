//! Gives Gemini CLI settings for one session. Gemini reads settings from a file named in its environment only if
//! root owns that file and all directories above it, and no other user can write to them. For all other users we
//! create a separate home: links to everything in the user's own, and the user's settings merged with ours.

use crate::store::home::make_private;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// The environment variable that makes Gemini look for its directory outside the user's home.
pub const HOME_VAR: &str = "GEMINI_CLI_HOME";
const DIRECTORY: &str = ".gemini";
const SETTINGS: &str = "settings.json";
/// The subdirectory with the conversations. It must outlive the session, or the session could not be resumed.
const KEPT: &str = "tmp";
/// The most entries of the user's directory that are linked.
const MAX_LINKS: usize = 1_000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Returns whether Gemini would read settings in this directory.
pub fn would_read(dir: &Path) -> bool {
    let safe = |found: Metadata| found.uid() == 0 && found.mode() & WRITABLE_BY_OTHERS == 0;
    let whole = fs::canonicalize(dir);
    whole.is_ok_and(|dir| dir.ancestors().all(|dir| fs::metadata(dir).is_ok_and(safe)))
}

/// Returns the home that Gemini would use by default.
pub fn users_home() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    of(HOME_VAR).or_else(|| of("HOME"))
}

/// Returns the path of the user's settings in that home.
pub fn settings_in(home: &Path) -> PathBuf {
    home.join(DIRECTORY).join(SETTINGS)
}

/// Creates the separate home from scratch. Returns the path for the settings, which the caller writes.
pub fn make_home(own: &Path, users: &Path) -> io::Result<PathBuf> {
    remove_home(own);
    let (ours, theirs) = (own.join(DIRECTORY), users.join(DIRECTORY));
    make_private(&ours)?;
    make_private(&theirs.join(KEPT))?;
    for entry in fs::read_dir(&theirs)?.take(MAX_LINKS) {
        let name = entry?.file_name();
        if name != OsStr::new(SETTINGS) {
            symlink(theirs.join(&name), ours.join(&name))?;
        }
    }
    // Gemini also reads environment variables from this file.
    let variables = users.join(".env");
    if variables.exists() {
        symlink(variables, own.join(".env"))?;
    }
    Ok(ours.join(SETTINGS))
}

/// Removes the separate home. The links are removed; their targets stay.
pub fn remove_home(own: &Path) {
    // Leftovers are harmless: the next session replaces them, and the token is no longer valid.
    let _ = fs::remove_dir_all(own);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, read, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_separate_home_links_everything_but_the_settings() {
        let dir = tempfile::tempdir().expect("a directory");
        let (users, own) = (dir.path().join("user"), dir.path().join("own"));
        fs::create_dir_all(users.join(".gemini")).expect("made");
        write(settings_in(&users), "{}").expect("written");
        write(users.join(".gemini/oauth_creds.json"), "who").expect("written");
        write(users.join(".env"), "A=1").expect("written");
        let settings = make_home(&own, &users).expect("made");
        assert_eq!(settings, own.join(".gemini/settings.json"));
        assert!(!settings.exists(), "the caller writes it");
        assert_eq!(read(own.join(".gemini/oauth_creds.json")).expect("is there"), b"who");
        assert_eq!(read(own.join(".env")).expect("is there"), b"A=1");
        write(own.join(".gemini/tmp/chat"), "said").expect("written");
        write(own.join(".gemini/oauth_creds.json"), "renewed").expect("written");
        write(&settings, "{\"ours\":1}").expect("written");
        remove_home(&own);
        assert!(!own.exists());
        assert_eq!(read(users.join(".gemini/tmp/chat")).expect("is kept"), b"said");
        assert_eq!(read(users.join(".gemini/oauth_creds.json")).expect("is kept"), b"renewed");
        assert_eq!(read(settings_in(&users)).expect("is there"), b"{}", "the user's settings are unchanged");
    }

    #[test]
    fn making_the_home_twice_works_without_a_gemini_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = dir.path().join("own");
        for _ in 0..2 {
            make_home(&own, &dir.path().join("user")).expect("made");
        }
        assert!(own.join(".gemini/tmp").is_dir());
    }

    #[test]
    fn settings_below_a_world_writable_directory_are_not_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = dir.path().join("open");
        create_dir(&open).expect("made");
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).expect("set");
        create_dir(open.join("in")).expect("made");
        assert!(!would_read(&open.join("in")));
        assert!(!would_read(&dir.path().join("not there")));
        assert!(would_read(Path::new("/")), "root's own");
    }
}
