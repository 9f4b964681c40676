//! The permissions of files in a snapshot. Git stores only whether a file is executable; unusual permissions are listed
//! in the message of the commit, so that a restore sets them exactly.

use super::names::{escape, unescape_path};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

/// The most files that are listed.
pub const MAX_MODES: usize = 10_000;

const LINE: &str = "mode: ";
/// The umask if it cannot be read.
const USUAL_UMASK: u32 = 0o022;

/// The permission bits of files, by their paths below the top of the work tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Modes(BTreeMap<Vec<u8>, u32>);

impl Modes {
    /// Notes the permissions of a file unless they are what a new file has.
    pub(super) fn note(&mut self, path: &[u8], mode: u32, executable: bool, umask: u32) {
        let usual = if executable { 0o777 } else { 0o666 } & !umask;
        let mode = mode & 0o7777;
        if mode != usual && self.0.len() < MAX_MODES {
            self.0.insert(path.to_vec(), mode);
        }
    }

    /// Returns the lines of the message. `is_first` if no other lines follow its title.
    pub(super) fn to_words(&self, is_first: bool) -> String {
        let mut words = String::new();
        if is_first && !self.0.is_empty() {
            words.push('\n');
        }
        for (path, mode) in &self.0 {
            words.push_str(&format!("\n{LINE}{mode:o} {}", escape(path)));
        }
        words
    }

    /// Parses a raw commit object.
    pub(super) fn read(commit: &[u8]) -> Modes {
        let text = String::from_utf8_lossy(commit);
        let one = |line: &str| {
            let (mode, path) = line.strip_prefix(LINE)?.split_once(' ')?;
            let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777)?;
            Some((unescape_path(path)?.as_os_str().as_bytes().to_vec(), mode))
        };
        Modes(text.lines().filter_map(one).collect())
    }

    /// Returns the permissions of a file if they are listed.
    pub(super) fn get(&self, path: &[u8]) -> Option<u32> {
        self.0.get(path).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.0.iter().map(|(path, mode)| (path.as_slice(), *mode))
    }
}

/// Returns the umask of this process, without changing it.
pub(super) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(USUAL_UMASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_modes_are_read_as_they_were_written() {
        let mut modes = Modes::default();
        for (path, mode, executable) in [
            (&b"usual"[..], 0o100644, false),
            (b"tool", 0o100755, true),
            (b"odd\n name", 0o100640, false),
            (b"x", 0o104750, true),
        ] {
            modes.note(path, mode, executable, 0o022);
        }
        let words = modes.to_words(true);
        assert_eq!(words.lines().filter(|line| line.starts_with(LINE)).count(), 2, "{words}");
        assert_eq!(Modes::read(format!("tree 1\n\ntitle{words}").as_bytes()), modes);
        assert_eq!(
            (modes.get(b"odd\n name"), modes.get(b"x"), modes.get(b"usual")),
            (Some(0o640), Some(0o4750), None)
        );
        assert_eq!(Modes::default().to_words(true), "");
        assert_eq!(Modes::read(b"mode: 99 x\nmode: 17777 x\nmode: 644"), Modes::default());
    }

    // promise: 4
    #[test]
    fn the_list_is_bounded() {
        let mut modes = Modes::default();
        for n in 0..=MAX_MODES {
            modes.note(n.to_string().as_bytes(), 0o640, false, 0o022);
        }
        assert_eq!(modes.iter().count(), MAX_MODES);
    }
}
