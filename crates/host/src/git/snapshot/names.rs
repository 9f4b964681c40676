//! The names of snapshots, `refs/dogwatch/<run>/<node>/<iteration>`, valid for git whatever a node is called.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use sha2::{Digest, Sha256};

/// The common prefix of all snapshots.
pub const REFS: &str = "refs/dogwatch/";

/// File names on Linux have at most 255 bytes, and git adds `.lock`.
const MAX_PART: usize = 200;

/// Returns the ref of the snapshot after an iteration. Number 0 is the one before the first iteration.
pub fn ref_name(run: &RunId, node: &NodeName, iteration: Iteration) -> String {
    format!("{}{iteration}", node_refs(run, node))
}

/// Returns the prefix of a run's refs.
pub fn run_refs(run: &RunId) -> String {
    format!("{REFS}{run}/")
}

/// Returns the prefix of a node's refs.
pub fn node_refs(run: &RunId, node: &NodeName) -> String {
    format!("{}{}/", run_refs(run), part(node.as_str()))
}

/// Returns the ref that keeps the state of the work tree before an undo.
pub fn undo_name(run: &RunId, node: &NodeName, at: dogwatch_core::time::moment::Wall) -> String {
    let at: String = at.to_string().chars().filter(|c| c.is_ascii_digit()).collect();
    let (day, time) = at.split_at(at.len().min(8));
    format!("{}{UNDO}{day}-{time}", node_refs(run, node))
}

/// The prefix of the last component of such a ref.
pub const UNDO: &str = "undo-";

/// Encodes a text as one component of a ref. Different texts give different components, because a snapshot must
/// never replace another.
pub(crate) fn part(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        // Git rejects a component with a dot at either end, two dots in a row, or the suffix `.lock`; `@` alone
        // means HEAD.
        let edge = at == 0 || bytes.get(at + 1).is_none_or(|next| *next == b'.');
        let bad_dot = *byte == b'.' && (edge || &bytes[at..] == b".lock");
        match byte {
            b' ' | b'~' | b'^' | b':' | b'?' | b'*' | b'[' | b'\\' | b'@' | b'%' | b'/' => {
                push_hex(&mut out, *byte)
            }
            b'-' if at == 0 => push_hex(&mut out, *byte),
            byte if byte.is_ascii_control() || bad_dot => push_hex(&mut out, *byte),
            byte => out.push(*byte),
        }
    }
    let whole = String::from_utf8(out).expect("only ASCII replaces ASCII");
    if whole.len() <= MAX_PART {
        return whole;
    }
    let hash = crate::store::journal::hex(&Sha256::digest(text));
    format!("{}%{}", dogwatch_core::text::clip(&whole, MAX_PART - 33), &hash[..32])
}

fn push_hex(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(format!("%{byte:02X}").as_bytes());
}

/// Encodes bytes as text that is valid in any argument list.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    for byte in bytes {
        match byte {
            b'%' => push_hex(&mut out, *byte),
            byte if byte.is_ascii_graphic() => out.push(*byte),
            byte => push_hex(&mut out, *byte),
        }
    }
    String::from_utf8(out).expect("all of it is ASCII")
}

pub(crate) fn unescape_path(text: &str) -> Option<PathBuf> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    Some(PathBuf::from(OsString::from_vec(out)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn every_node_has_a_ref_that_git_accepts() {
        let run: RunId = "20261115-201533-k3f9".parse().expect("a run id");
        let names = [
            "loop",
            "a b",
            "-n",
            "@",
            "v1.2",
            ".hidden",
            "a..b",
            "end.",
            "x.lock",
            "x.lock.",
            "100%",
            "a~b^c:d?e*f[g",
            "schöne Grüße",
            "@{1}",
            "%",
            "..x",
        ];
        let mut seen = std::collections::BTreeSet::new();
        for name in names.map(str::to_owned).into_iter().chain([":".repeat(100), ":".repeat(99)]) {
            let name = ref_name(&run, &NodeName::new(&name), Iteration(3));
            let checked =
                Command::new("git").args(["check-ref-format", &name]).status().expect("git is there");
            assert!(checked.success(), "{name}");
            assert!(name.split('/').all(|part| part.len() <= MAX_PART), "{name}");
            assert!(seen.insert(name.clone()), "{name} twice");
        }
        assert!(seen.contains("refs/dogwatch/20261115-201533-k3f9/v1.2/3"), "{seen:?}");
    }
}
