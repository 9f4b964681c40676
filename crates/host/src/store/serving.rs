//! Where `dogwatch serve` listens, so that notifications can link to the page of a run.

use crate::process::orphans;
use crate::store::home;
use crate::store::safe_file;
use dogwatch_core::record::ids::RunId;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file in the user's state directory.
const FILE: &str = "serving.json";
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 4_096;

/// A server of this user. The token is not part of it: a notification leaves this machine.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Server {
    url: String,
    pid: u32,
    start_time: u64,
}

/// An announced server. Dropping it withdraws the announcement.
#[derive(Debug)]
pub struct Announced {
    path: PathBuf,
}

/// Announces that this process serves the dashboard at this URL. The latest server replaces an earlier one.
pub fn announce(url: &str) -> io::Result<Announced> {
    announce_at(&home::user_state_dir().join(FILE), url)
}

fn announce_at(path: &Path, url: &str) -> io::Result<Announced> {
    let pid = std::process::id();
    let start_time = orphans::start_time(pid).unwrap_or(0);
    let server = Server { url: url.to_owned(), pid, start_time };
    if let Some(dir) = path.parent() {
        home::make_private(dir)?;
    }
    safe_file::write(path, safe_file::PRIVATE, &serde_json::to_vec(&server)?)?;
    Ok(Announced { path: path.to_owned() })
}

impl Drop for Announced {
    fn drop(&mut self) {
        if read(&self.path).is_some_and(|server| server.pid == std::process::id()) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the page of a run, if a server is running.
pub fn link(run: &RunId) -> Option<String> {
    link_at(&home::user_state_dir().join(FILE), run)
}

fn link_at(path: &Path, run: &RunId) -> Option<String> {
    let server = read(path)?;
    // A server that was killed leaves its file behind.
    let alive = orphans::start_time(server.pid) == Some(server.start_time);
    alive.then(|| format!("{}/#/run/{run}", server.url.trim_end_matches('/')))
}

fn read(path: &Path) -> Option<Server> {
    safe_file::read_json(path, MAX_BYTES).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_link_only_while_a_server_lives() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state/serving.json");
        let run: RunId = "20261115-201533-k3f9".parse().expect("an id");
        assert_eq!(link_at(&path, &run), None);
        let announced = announce_at(&path, "http://127.0.0.1:3649/").expect("is written");
        let link = "http://127.0.0.1:3649/#/run/20261115-201533-k3f9";
        assert_eq!(link_at(&path, &run).as_deref(), Some(link));
        drop(announced);
        assert_eq!(link_at(&path, &run), None);
        let gone = Server { url: "http://x".to_owned(), pid: 1, start_time: u64::MAX };
        std::fs::write(&path, serde_json::to_vec(&gone).expect("JSON")).expect("writes");
        assert_eq!(link_at(&path, &run), None, "the server was killed");
    }
}
