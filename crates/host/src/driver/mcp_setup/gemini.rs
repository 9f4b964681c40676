//! How Gemini CLI is given settings for one session. It takes them from a file that it is told of only if root owns
//! that file and all directories above it, and nobody else may write to them. For everybody else it is given another
//! home: links to all that is in the user's own, and settings that are the user's with ours beside them.

use crate::store::home::make_private;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Where it looks for its directory, instead of in the user's home.
pub const HOME_VAR: &str = "GEMINI_CLI_HOME";
const DIRECTORY: &str = ".gemini";
const SETTINGS: &str = "settings.json";
/// The conversations are kept here: they must outlive the session, or it could not be gone on with.
const KEPT: &str = "tmp";
/// Entries of the user's directory that are linked; nobody has so many.
const MAX_LINKS: usize = 1_000;
const NOT_OURS: u32 = 0o022;

/// Whether it would read settings that lie in this directory.
pub fn would_read(dir: &Path) -> bool {
    let safe = |found: Metadata| found.uid() == 0 && found.mode() & NOT_OURS == 0;
    let whole = fs::canonicalize(dir);
    whole.is_ok_and(|dir| dir.ancestors().all(|dir| fs::metadata(dir).is_ok_and(safe)))
}

/// The home that it would use by itself.
pub fn users_home() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    of(HOME_VAR).or_else(|| of("HOME"))
}

/// The user's own settings in that home.
pub fn settings_in(home: &Path) -> PathBuf {
    home.join(DIRECTORY).join(SETTINGS)
}

/// Makes the other home, anew. Answers the file of the settings, which is still to be written.
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
    // It looks for variables there, too.
    let variables = users.join(".env");
    if variables.exists() {
        symlink(variables, own.join(".env"))?;
    }
    Ok(ours.join(SETTINGS))
}

/// Removes it: links go, what they lead to stays.
pub fn remove_home(own: &Path) {
    // What stays behind is made anew, or holds a key to nothing.
    let _ = fs::remove_dir_all(own);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, read, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn another_home_has_all_that_is_in_the_users_but_its_settings() {
        let dir = tempfile::tempdir().expect("a directory");
        let (users, own) = (dir.path().join("user"), dir.path().join("own"));
        fs::create_dir_all(users.join(".gemini")).expect("made");
        write(settings_in(&users), "{}").expect("written");
        write(users.join(".gemini/oauth_creds.json"), "who").expect("written");
        write(users.join(".env"), "A=1").expect("written");
        let settings = make_home(&own, &users).expect("made");
        assert_eq!(settings, own.join(".gemini/settings.json"));
        assert!(!settings.exists(), "it is to be written");
        assert_eq!(read(own.join(".gemini/oauth_creds.json")).expect("is there"), b"who");
        assert_eq!(read(own.join(".env")).expect("is there"), b"A=1");
        write(own.join(".gemini/tmp/chat"), "said").expect("written");
        write(own.join(".gemini/oauth_creds.json"), "renewed").expect("written");
        write(&settings, "{\"ours\":1}").expect("written");
        remove_home(&own);
        assert!(!own.exists());
        assert_eq!(read(users.join(".gemini/tmp/chat")).expect("is kept"), b"said");
        assert_eq!(read(users.join(".gemini/oauth_creds.json")).expect("is kept"), b"renewed");
        assert_eq!(read(settings_in(&users)).expect("is there"), b"{}", "the user's own stay as they are");
    }

    #[test]
    fn who_has_no_directory_of_geminis_gets_one_all_the_same_and_twice_is_as_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = dir.path().join("own");
        for _ in 0..2 {
            make_home(&own, &dir.path().join("user")).expect("made");
        }
        assert!(own.join(".gemini/tmp").is_dir());
    }

    #[test]
    fn settings_where_others_may_write_would_not_be_read() {
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
