//! The names of snapshots: `refs/dogwatch/<run>/<node>/<iteration>`, fit for git whatever a node is called.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use sha2::{Digest, Sha256};

/// What all snapshots begin with.
pub const REFS: &str = "refs/dogwatch/";

/// A file name takes 255 bytes at most on Linux, and git adds `.lock` to it.
const MAX_PART: usize = 200;

/// The ref of the snapshot after an iteration; 0 is the one before the first.
pub fn ref_name(run: &RunId, node: &NodeName, iteration: Iteration) -> String {
    format!("{}{iteration}", node_refs(run, node))
}

/// What the refs of a run begin with.
pub fn run_refs(run: &RunId) -> String {
    format!("{REFS}{run}/")
}

/// What the refs of a node begin with.
pub fn node_refs(run: &RunId, node: &NodeName) -> String {
    format!("{}{}/", run_refs(run), part(node.as_str()))
}

/// The ref of what stood in the work tree before an undo.
pub fn undo_name(run: &RunId, node: &NodeName, at: dogwatch_core::time::moment::Wall) -> String {
    let at: String = at.to_string().chars().filter(|c| c.is_ascii_digit()).collect();
    let (day, time) = at.split_at(at.len().min(8));
    format!("{}{UNDO}{day}-{time}", node_refs(run, node))
}

/// How the last part of such a ref begins.
pub const UNDO: &str = "undo-";

/// A text as one part of a ref. No two texts become the same part: a snapshot must never take another's place.
pub(crate) fn part(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        // git takes no dot at either end of a part, none before another, and no `.lock`; `@` alone means HEAD.
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
    let whole = String::from_utf8(out).expect("only ASCII was put in place of ASCII");
    if whole.len() <= MAX_PART {
        return whole;
    }
    let hash = crate::store::journal::hex(&Sha256::digest(text));
    format!("{}%{}", dogwatch_core::text::clip(&whole, MAX_PART - 33), &hash[..32])
}

fn push_hex(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(format!("%{byte:02X}").as_bytes());
}

/// Bytes as text that any argument list can carry.
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
    fn every_node_has_a_ref_that_git_takes() {
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
