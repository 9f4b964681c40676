//! The audit: no wait without a bound in this crate. Its sources are read, and every `.await` that is not on one
//! of the functions of `bound.rs`, every macro that awaits, and every call that may block is found. What is without
//! a bound by design says why in a comment that begins with `unbounded:`, right above it, and stands in the list
//! below; a new one must be put there by hand.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

/// Every wait without a bound, where it stands and why.
const BYPASSES: [(&str, &str); 19] = [
    ("child.rs", "in a thread of its own, and ended by the signals below"),
    ("child.rs", "ends when the process and its kin do, and these are ended"),
    ("home.rs", "waits for the next note, of which there may be none"),
    ("http/door.rs", "a tenth of a second"),
    ("http/door.rs", "callers come when they like, until the session is over"),
    ("http/door.rs", "has its bounds within"),
    (
        "http/door.rs",
        "heads, bodies and writes have their own; a stream stays open as long as the session does",
    ),
    ("http/mod.rs", "as above"),
    ("http/mod.rs", "ends when the session does, and then in time"),
    ("http/mod.rs", "serves as long as the session lasts"),
    ("http/mod.rs", "the session lasts as long as it lasts"),
    ("http/over.rs", "the session lasts as long as it lasts"),
    ("lib.rs", "serves as long as the agent speaks to it, and lives in the session's tree"),
    ("lib.rs", "as above"),
    ("lib.rs", "the agent speaks when it has something to say"),
    ("proxy/mod.rs", "every one of them ends in time"),
    ("proxy/mod.rs", "every one of them ends in time"),
    ("proxy/remote/connect.rs", "ends with the last answer that it carries, and every answer has its bound"),
    ("wire.rs", "sleeps for what is left of a second"),
];
const READING: (&str, &str) =
    ("wire.rs", "the other end speaks when it has something to say; every question has its own bound");

/// The only functions whose result may be awaited.
const BOUNDED: [&str; 2] = ["within", "within_unless"];
/// Calls that may block, and macros that wait for what stands in them.
const BLOCKING: [&str; 18] = [
    ".wait()",
    ".wait_with_output(",
    ".output()",
    ".status()",
    ".recv()",
    ".blocking_recv(",
    ".blocking_lock(",
    ".join()",
    ".block_on(",
    "thread::sleep(",
    "read_to_end(",
    "read_to_string(",
    "TcpStream::connect(",
    "UnixStream::connect(",
    "select!",
    "join!",
    "pending()",
    "for_each(",
];
/// How far above a wait its reason may stand, in lines.
const NEAR: usize = 2;

/// A wait that has no bound.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    line: usize,
    what: String,
    /// Why that is right, if it says so.
    reason: Option<String>,
}

/// Source without its comments and texts, the lines as they were; and the reasons that comments give.
fn strip(source: &str) -> (String, Vec<(usize, String)>) {
    let (mut code, mut reasons) = (String::new(), Vec::new());
    let bytes: Vec<char> = source.chars().collect();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let rest = |n: usize| bytes.get(at + n).copied().unwrap_or('\0');
        match bytes[at] {
            '/' if rest(1) == '/' => {
                let end = bytes[at..].iter().position(|c| *c == '\n').map_or(bytes.len(), |n| at + n);
                let text: String = bytes[at..end].iter().collect();
                if let Some(why) = text.trim_start_matches('/').trim().strip_prefix("unbounded:") {
                    reasons.push((line, why.trim().to_owned()));
                }
                at = end;
            }
            '"' => {
                code.push_str("\"\"");
                at += 1;
                while at < bytes.len() && bytes[at] != '"' {
                    if bytes[at] == '\n' {
                        code.push('\n');
                        line += 1;
                    }
                    at += if bytes[at] == '\\' && bytes.get(at + 1) != Some(&'\n') { 2 } else { 1 };
                }
                at += 1;
            }
            '\'' if rest(2) == '\'' => at += 3,
            '\'' if rest(1) == '\\' && rest(3) == '\'' => at += 4,
            c => {
                line += usize::from(c == '\n');
                code.push(c);
                at += 1;
            }
        }
    }
    (code, reasons)
}

fn audit(source: &str) -> Vec<Found> {
    // What stands in the tests of a file is no wait of ours.
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let (code, mut reasons) = strip(source);
    let line_of = |at: usize| 1 + code[..at].matches('\n').count();
    let mut found: Vec<(usize, String)> = Vec::new();
    for (at, _) in code.match_indices(".await") {
        if !is_bounded(code[..at].trim_end()) {
            found.push((line_of(at), ".await".to_owned()));
        }
    }
    for word in BLOCKING {
        for (at, _) in code.match_indices(word) {
            // `.recv().await` and the like were found above.
            let awaited = code[at + word.len()..].trim_start().starts_with(".await");
            let longer = word.starts_with(|c: char| c.is_alphabetic())
                && code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if !awaited && !longer && !is_argument(&code[..at]) {
                found.push((line_of(at), word.to_owned()));
            }
        }
    }
    found.sort();
    let excused = |line: usize, reasons: &mut Vec<(usize, String)>| {
        let near = reasons.iter().position(|(at, _)| *at < line && line - at <= NEAR)?;
        Some(reasons.remove(near).1)
    };
    found.into_iter().map(|(line, what)| Found { line, what, reason: excused(line, &mut reasons) }).collect()
}

/// Whether what is awaited is a call of one of the bounded functions.
fn is_bounded(before: &str) -> bool {
    let Some(inner) = before.strip_suffix(')') else { return false };
    let mut depth = 1;
    for (at, c) in inner.char_indices().rev() {
        depth += match c {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        if depth == 0 {
            let name = inner[..at].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            return BOUNDED.contains(&name);
        }
    }
    false
}

/// Whether what follows is called right as the argument of one of the bounded functions. These take nothing but what
/// can be awaited, so a call that blocks does not compile there.
fn is_argument(before: &str) -> bool {
    let path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let Some(inner) = before.trim_end_matches(path).trim_end().strip_suffix(',') else { return false };
    is_bounded(&format!("{inner})"))
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") && path.file_name().unwrap() != "bound.rs" {
            into.push(path);
        }
    }
}

#[test]
fn every_wait_in_this_crate_has_a_bound_or_a_listed_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() >= 12, "only {} files were found", files.len());
    let (mut unbounded, mut excused) = (Vec::new(), Vec::new());
    for file in files {
        let name = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        for found in audit(&std::fs::read_to_string(&file).unwrap()) {
            match found.reason {
                Some(why) => excused.push((name.clone(), why)),
                None => unbounded.push(format!("{name}:{}: {} without a bound", found.line, found.what)),
            }
        }
    }
    assert!(unbounded.is_empty(), "put these into `within`, see bound.rs:\n{}", unbounded.join("\n"));
    excused.sort();
    let mut listed: Vec<(String, String)> = BYPASSES
        .iter()
        .chain([&READING])
        .map(|(file, why)| ((*file).to_owned(), (*why).to_owned()))
        .collect();
    listed.sort();
    assert_eq!(excused, listed, "the list of waits without a bound, in tests/audit.rs");
}

#[test]
fn a_wait_that_is_added_without_a_bound_is_found() {
    for (source, what) in [
        ("async fn a() { peer.list_tools(None).await; }", ".await"),
        ("async fn a() { let x = rx\n    .recv()\n    .await; }", ".await"),
        ("async fn a() { within(LIMIT, x).await; y.await }", ".await"),
        ("async fn a() { not_within(LIMIT, x).await; }", ".await"),
        ("async fn a() { tokio::select! { x = y => {} } }", "select!"),
        ("async fn a() { until(end, x).await; }", ".await"),
        ("fn a() { child.wait().ok(); }", ".wait()"),
        ("fn a() { std::thread::sleep(d); }", "thread::sleep("),
        ("fn a() { Command::new(\"x\").output(); }", ".output()"),
        ("fn a() { rx.recv() }", ".recv()"),
        ("fn a() { TcpStream::connect(x); }", "TcpStream::connect("),
        ("async fn a() { within(LIMIT, async { TcpStream::connect(x); }).await }", "TcpStream::connect("),
        ("async fn a() { other(LIMIT, TcpStream::connect(x)); }", "TcpStream::connect("),
        ("fn a() { file.read_to_end(&mut all) }", "read_to_end("),
    ] {
        let found = audit(source);
        assert_eq!(found.len(), 1, "{source}: {found:?}");
        assert_eq!((found[0].what.as_str(), &found[0].reason), (what, &None), "{source}");
    }
}

#[test]
fn what_is_bounded_quoted_or_explained_is_not_found() {
    for source in [
        "async fn a() { within(LIMIT, peer.list_tools(f(1, (2, 3)))).await?; }",
        "async fn a() { bound::within_unless(\n    LIMIT,\n    ct,\n    x,\n)\n.await }",
        "async fn a() { within(LIMIT, TcpStream::connect(x)).await; }",
        "// y.await\nfn a() { let s = \"x.await .recv()\"; }",
    ] {
        assert_eq!(audit(source), [], "{source}");
    }
    let explained = audit("async fn a() {\n    // unbounded: it is so\n    y.await\n}");
    assert_eq!(explained[0].reason.as_deref(), Some("it is so"));
    let far = audit("// unbounded: it is so\n\n\n\nasync fn a() { y.await }");
    assert_eq!(far[0].reason, None, "a reason that stands elsewhere excuses nothing");
    let once = audit("// unbounded: it is so\nasync fn a() { y.await; z.await }");
    assert_eq!(once.iter().filter(|f| f.reason.is_some()).count(), 1, "a reason excuses one wait");
}
