//! The token for the API on TCP: 256 random bits in a file that only this user can read.
//!
//! Every process of the machine can connect to a loopback port, but only the owner can read a file of mode 0600. The
//! token is new for each `dogwatch serve`, so a token that leaked is worthless once that server has ended. Scripts read the
//! current one from the file.

use crate::store::home;
use crate::store::journal::hex;
use crate::store::safe_file;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the file in the user's state directory.
const FILE: &str = "token";
const RANDOM_BYTES: usize = 32;
const DIGITS: usize = 2 * RANDOM_BYTES;
/// The block size of SHA-256. The token is exactly one block long.
const BLOCK: usize = 64;

/// A token of 64 hexadecimal digits. It has no `Display`, to avoid printing it by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why the token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or created.
    #[error("cannot read or create {path}: {error}")]
    Io {
        /// The path of the token file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Other users can read the file.
    #[error("{path} can be read by others (mode {mode:03o}, owner {owner}); remove it to get a new one")]
    Open {
        /// The path of the token file.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
        /// The owner of the file.
        owner: u32,
    },
    /// The file does not hold a token.
    #[error("{path} does not hold a token; remove it to get a new one")]
    NoToken {
        /// The path of the token file.
        path: PathBuf,
    },
}

impl Token {
    /// Returns the path of this user's token.
    pub fn file() -> PathBuf {
        home::user_state_dir().join(FILE)
    }

    /// Creates a new token of this user, in place of the old one.
    pub fn renew_of_user() -> Result<Token, TokenError> {
        Token::renew(&Token::file())
    }

    /// Creates a new token in this file. A file in its place that others can read, or a link, is an error.
    pub fn renew(path: &Path) -> Result<Token, TokenError> {
        match read(path) {
            Ok(_) => {
                std::fs::remove_file(path)
                    .map_err(|error| TokenError::Io { path: path.to_owned(), error })?;
            }
            Err(TokenError::Io { error, .. }) if is_missing(&error) => {}
            Err(other) => return Err(other),
        }
        Token::at(path)
    }

    /// Signs a message with the token, without revealing it: HMAC-SHA-256 in hexadecimal digits.
    pub fn mac(&self, message: &[u8]) -> String {
        let pad = |byte: u8| {
            let mut block = [byte; BLOCK];
            block.iter_mut().zip(self.0.bytes()).for_each(|(b, key)| *b ^= key);
            block
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
        hex(&Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize())
    }

    /// Returns whether `given` is the signature of a message. The time of the comparison reveals only the length.
    pub fn is_mac(&self, message: &[u8], given: &str) -> bool {
        are_equal(self.mac(message).as_bytes(), given.as_bytes())
    }

    /// Returns the token in this file. Creates it if it is missing.
    pub fn at(path: &Path) -> Result<Token, TokenError> {
        let io = |error| TokenError::Io { path: path.to_owned(), error };
        match read(path) {
            Err(TokenError::Io { error, .. }) if is_missing(&error) => {}
            known => return known,
        }
        make(path).map_err(io)?;
        // Another process may have been first; use the token that is in the file.
        read(path)
    }

    /// Returns the digits of the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether `given` is the token. The time of the comparison reveals only the length.
    pub fn fits(&self, given: &[u8]) -> bool {
        are_equal(self.0.as_bytes(), given)
    }
}

/// Returns whether the file, or a directory above it, does not exist.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Compares two secrets. The time that it takes depends on their lengths only.
pub(crate) fn are_equal(own: &[u8], given: &[u8]) -> bool {
    let differing = own.iter().zip(given).fold(0, |all, (own, other)| all | (own ^ other));
    black_box(differing) == 0 && given.len() == own.len()
}

/// Returns the SHA-256 of some bytes in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns `N` random bytes in hexadecimal digits.
pub fn random_digits<const N: usize>() -> io::Result<String> {
    let mut random = [0; N];
    getrandom::fill(&mut random).map_err(|e| io::Error::other(format!("no randomness: {e}")))?;
    Ok(hex(&random))
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

fn read(path: &Path) -> Result<Token, TokenError> {
    let io = |error: io::Error| TokenError::Io { path: path.to_owned(), error };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|e| io(e.into()))?);
    let meta = file.metadata().map_err(io)?;
    let own = rustix::process::geteuid().as_raw();
    if meta.uid() != own || meta.mode() & 0o077 != 0 {
        return Err(TokenError::Open { path: path.to_owned(), mode: meta.mode() & 0o777, owner: meta.uid() });
    }
    let mut text = String::new();
    let read = file.take(DIGITS as u64 + 2).read_to_string(&mut text);
    let token = text.trim_end();
    let whole =
        token.len() == DIGITS && token.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if read.is_err() || !whole {
        return Err(TokenError::NoToken { path: path.to_owned() });
    }
    Ok(Token(token.to_owned()))
}

/// Creates the file. Uses a temporary name first, so that no process reads half a token; the link fails if the file
/// exists.
fn make(path: &Path) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        home::make_private(dir)?;
    }
    let random = random_digits::<RANDOM_BYTES>()?;
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = std::fs::remove_file(&new);
    let mut file = safe_file::create_new(&new, safe_file::PRIVATE)?;
    let written = file.write_all(format!("{random}\n").as_bytes());
    let linked = written.and_then(|()| std::fs::hard_link(&new, path));
    std::fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }

    // promise: 14
    #[test]
    fn a_token_is_made_once_for_its_owner_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state/token");
        let token = Token::at(&path).expect("makes it");
        assert_eq!(Token::at(&path).expect("reads it"), token);
        assert_eq!(std::fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path().join("state")).expect("lists").count(), 1);
        let other = Token::at(&dir.path().join("other")).expect("makes it");
        assert_ne!(other, token);
        assert!(!format!("{token:?}").contains(token.as_str()));
    }

    // promise: 14
    #[test]
    fn a_renewed_token_replaces_the_old_one_and_follows_no_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let first = Token::renew(&path).expect("makes it");
        let second = Token::renew(&path).expect("makes it again");
        assert_ne!(first, second);
        assert_eq!(Token::at(&path).expect("reads it"), second);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("links");
        assert!(Token::renew(&link).is_err());
    }

    #[test]
    fn a_signature_is_an_hmac_of_the_message() {
        // The value comes from Python: hmac.new(b"a" * 64, b"nonce", "sha256").
        let token = Token("a".repeat(DIGITS));
        let expected = "8ea8e0317aa41d1813a869bdb6dc55411b15bf51f05cb5be98d7562e228490da";
        assert_eq!(token.mac(b"nonce"), expected);
        assert!(token.is_mac(b"nonce", expected));
        for wrong in ["", &expected[1..], &expected.replace('8', "9")] {
            assert!(!token.is_mac(b"nonce", wrong), "{wrong}");
        }
        assert!(!token.is_mac(b"other", expected));
    }

    // promise: 14
    #[test]
    fn only_the_token_itself_fits() {
        let dir = tempfile::tempdir().expect("a directory");
        let token = Token::at(&dir.path().join("token")).expect("makes it");
        let text = token.as_str();
        assert!(token.fits(text.as_bytes()));
        let longer = format!("{text}0");
        let last = if text.ends_with('0') { "1" } else { "0" };
        let near = format!("{}{last}", &text[..DIGITS - 1]);
        for wrong in [
            "",
            &text[..DIGITS - 1],
            &longer,
            &near,
            &text.to_uppercase().replace(|c: char| c.is_ascii_digit(), "A"),
        ] {
            assert!(!token.fits(wrong.as_bytes()), "{wrong}");
        }
    }

    // promise: 14
    #[test]
    fn a_file_that_others_can_read_or_that_holds_something_else_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        Token::at(&path).expect("makes it");
        chmod(&path, 0o640);
        assert!(matches!(Token::at(&path), Err(TokenError::Open { mode: 0o640, .. })));
        chmod(&path, 0o600);
        for text in ["", "short\n", &"g".repeat(DIGITS), &"a".repeat(DIGITS + 1)] {
            std::fs::write(&path, text).expect("writes");
            assert!(matches!(Token::at(&path), Err(TokenError::NoToken { .. })), "{text}");
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("links");
        assert!(matches!(Token::at(&link), Err(TokenError::Io { .. })));
    }
}
