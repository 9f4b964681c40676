//! The directory of a fleet: its book, certificates, secrets and the server's files.

use crate::error::CliError;
use dogwatch_fleet::join::encode;
use dogwatch_fleet::server::{self, Book, User, config};
use dogwatch_host::store::{home, safe_file};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes. A book of 4,000 workers with a few accounts each takes 1 MiB.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// The bytes of a secret: 256 bits.
const SECRET: usize = 32;

/// The flag that names the directory of a fleet.
#[derive(clap::Args, Clone, Debug)]
pub struct DirArgs {
    /// Directory of the fleet [default: fleet in dogwatch's state directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The directory of a fleet.
pub struct FleetDir {
    path: PathBuf,
}

impl DirArgs {
    /// Returns the directory, which may not exist yet.
    pub fn dir(&self) -> Result<FleetDir, CliError> {
        let Some(path) = &self.dir else { return Ok(FleetDir::of_user()) };
        let path = std::path::absolute(path)
            .map_err(|e| CliError::usage(format!("cannot find {}: {e}", path.display())))?;
        Ok(FleetDir { path })
    }
}

impl FleetDir {
    /// Returns the directory of the user's fleet.
    pub fn of_user() -> FleetDir {
        FleetDir { path: home::user_state_dir().join("fleet") }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates the directory. It must not hold a fleet already.
    pub fn create(&self) -> Result<(), CliError> {
        if self.file(server::BOOK).exists() {
            return Err(CliError::with_help(
                format!("{} holds a fleet already", self.path.display()),
                "start it with `dogwatch fleet up`, or name another directory with --dir",
            ));
        }
        home::make_private(&self.path).map_err(|e| self.cannot("create", &self.path, &e))
    }

    /// Reads the book.
    pub fn book(&self) -> Result<Book, CliError> {
        let path = self.file(server::BOOK);
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CliError::with_help(
                    format!("no fleet in {}", self.path.display()),
                    "make one with `dogwatch fleet init --listen HOST:4222`, or name its directory with --dir",
                ));
            }
            Err(error) => return Err(self.cannot("read", &path, &error)),
        };
        Book::parse(&text).map_err(|why| CliError::usage(format!("cannot read {}: {why}", path.display())))
    }

    /// Changes the book and the server's list of users. Only one process does so at a time.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, CliError>,
    ) -> Result<(Book, T), CliError> {
        let path = self.file("lock");
        let lock: File =
            safe_file::update(&path, safe_file::PRIVATE).map_err(|e| self.cannot("open", &path, &e))?;
        if lock.try_lock().is_err() {
            return Err(CliError::usage(format!(
                "another dogwatch changes {}; try again",
                self.path.display()
            )));
        }
        let mut book = self.book()?;
        let result = change(&mut book)?;
        self.save(&book)?;
        Ok((book, result))
    }

    /// Writes the book and the server's list of users.
    pub fn save(&self, book: &Book) -> Result<(), CliError> {
        let json = serde_json::to_vec_pretty(book).map_err(|e| CliError::internal(e.to_string()))?;
        // If the second write fails, the next change writes the users again. A revoked user is not in the book then.
        self.write(server::BOOK, &json)?;
        self.write(server::USERS, config::users(book).as_bytes())
    }

    /// Replaces a file, readable for its owner only.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), CliError> {
        let (path, new) = (self.file(name), self.file(&format!("{name}.new")));
        let written = safe_file::write(&new, safe_file::PRIVATE, bytes);
        let placed = written.and_then(|()| std::fs::rename(&new, &path));
        placed.map_err(|e| self.cannot("write", &path, &e))
    }

    /// Returns the join line of a user, with its secret.
    pub fn line(&self, book: &Book, user: &User) -> Result<String, CliError> {
        let path = self.file(server::CA_DER);
        let ca = read(&path).map_err(|e| self.cannot("read", &path, &e))?;
        Ok(book.line(user, ca).to_string())
    }

    /// Reads a file as text.
    pub fn text(&self, name: &str) -> Result<String, CliError> {
        let path = self.file(name);
        let text = read(&path).map_err(|e| self.cannot("read", &path, &e))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn cannot(&self, what: &str, path: &Path, error: &io::Error) -> CliError {
        CliError::usage(format!("cannot {what} {}: {error}", path.display()))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    safe_file::read(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns a new random secret.
pub fn secret() -> Result<String, CliError> {
    let mut bytes = [0; SECRET];
    getrandom::fill(&mut bytes).map_err(|e| CliError::internal(format!("cannot get random bytes: {e}")))?;
    Ok(encode(&bytes))
}
