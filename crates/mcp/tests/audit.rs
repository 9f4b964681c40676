//! The audit: no wait in this crate is unbounded. It scans the sources for every `.await` that is not on one of the
//! functions of `bound.rs`, every macro that awaits, and every call that may block. A wait that is unbounded by
//! design has a comment that begins with `unbounded:` right above it, and an entry in the list below.
use std::path::{Path, PathBuf};

/// Every unbounded wait: its file and the reason.
const BYPASSES: [(&str, &str); 42] = [
    ("artifact.rs", "on a separate thread, which is waited for within a limit"),
    ("bound.rs", "each caller has its own reason"),
    ("bound.rs", "the first branch has a timeout"),
    ("child.rs", "ends with the process and its descendants, which are killed"),
    ("child.rs", "runs in its own thread; the kill below ends it"),
    ("child.rs", "the process was killed; a detached thread reaps it"),
    ("http/listener.rs", "`handle` has its own limits"),
    ("http/listener.rs", "a tenth of a second"),
    ("http/listener.rs", "clients connect at any time until the session ends"),
    (
        "http/listener.rs",
        "heads, bodies and writes have limits; an event stream stays open until the session ends",
    ),
    ("http/listener.rs", "the socket is non-blocking"),
    ("http/mod.rs", "see above"),
    ("http/mod.rs", "serves until the session ends"),
    ("http/mod.rs", "until the session ends"),
    ("http/mod.rs", "until the session ends; the shutdown has a limit"),
    ("http/service.rs", "the handler has its own limits"),
    ("http/service.rs", "the handler has its own limits"),
    ("http/session_end.rs", "see above"),
    ("http/session_end.rs", "see above"),
    ("http/session_end.rs", "until the agent exits"),
    ("http/session_end.rs", "until the session ends"),
    ("lib.rs", "see above"),
    ("lib.rs", "serves until the agent disconnects; the session's process tree contains it"),
    ("lib.rs", "the agent decides when to send a request"),
    ("operator.rs", "serves until the client disconnects"),
    ("operator.rs", "the client decides when to send a request"),
    ("proxy/mod.rs", "each start has its own limit"),
    ("proxy/mod.rs", "each start has its own limit"),
    ("proxy/remote/connect.rs", "ends with its last response, and every response has a limit"),
    ("proxy/remote/events.rs", "the whole stream has a limit, see `new`"),
    ("rpc/client.rs", "each caller has a limit"),
    ("rpc/client.rs", "it has its own limits"),
    ("rpc/client.rs", "the server decides when to send a message; every request has its own limit"),
    ("rpc/server.rs", "the handler has its own limits"),
    ("rpc/server.rs", "the handler has its own limits"),
    ("rpc/stdio.rs", "the client decides when to send a request"),
    ("rpc/stdio.rs", "the handler has its own limits"),
    ("run_client.rs", "until the agent disconnects"),
    ("run_client.rs", "waits for the next note"),
    ("wire.rs", "sleeps for at most one second"),
    ("wire.rs", "the peer decides when to send a message; every request has its own limit"),
    ("wire.rs", "waits for the next message"),
];

/// The only functions whose result may be awaited. `bound.rs` itself may await tokio's `timeout`.
const BOUNDED: [&str; 2] = ["within", "within_unless"];
const BOUNDED_THERE: &str = "timeout";
/// Calls that may block, and macros that wait for their arguments. An entry that ends with an open parenthesis does
/// not count if the call creates a future that is passed to one of the functions above. It does not count either if
/// it is awaited, because the `.await` is found anyway.
const BLOCKING: [&str; 50] = [
    // Processes and threads.
    ".wait()",
    ".wait_with_output(",
    ".output()",
    ".status()",
    "waitpid(",
    ".join()",
    "thread::sleep(",
    "thread::park",
    "thread::scope(",
    // Channels and locks that block a thread. `std::sync::Mutex` is allowed: clippy ensures that no guard is held
    // across an await.
    "std::sync::mpsc",
    "sync_channel(",
    "Condvar",
    "Barrier",
    ".recv()",
    ".blocking_recv(",
    ".blocking_send(",
    ".blocking_lock(",
    ".blocking_read(",
    ".blocking_write(",
    // Waiting for futures without `.await`.
    "block_on(",
    "block_in_place(",
    "select!",
    "select_biased!",
    "join!",
    "try_join!",
    "pending()",
    "future::pending",
    "for_each(",
    // Files, pipes and terminals.
    "read_to_end(",
    "read_to_string(",
    "read_line(",
    "read_until(",
    "read_exact(",
    ".read(",
    ".write(&",
    "write_all(",
    ".flush(",
    "io::stdin()",
    "io::copy(",
    "fs::read(",
    "fs::write(",
    "File::open(",
    ".open(",
    "println!",
    "eprintln!",
    // The network.
    "TcpStream::connect(",
    "UnixStream::connect(",
    "to_socket_addrs(",
    ".accept(",
    // A limit that does not limit.
    "Duration::MAX",
];
/// How many lines above a wait its reason may be.
const NEAR: usize = 2;

/// An unbounded wait.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    line: usize,
    what: String,
    /// The reason from its comment.
    reason: Option<String>,
}

/// Removes comments and string contents from a source and keeps its line numbers. Also returns the reasons that the
/// comments give.
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
            '/' if rest(1) == '*' => {
                while at < bytes.len() && !(bytes[at] == '*' && bytes.get(at + 1) == Some(&'/')) {
                    line += usize::from(bytes[at] == '\n');
                    code.extend((bytes[at] == '\n').then_some('\n'));
                    at += 1;
                }
                at += 2;
            }
            'r' if raw_hashes(&bytes[at..]).is_some() && !is_word(code.chars().next_back()) => {
                let hashes = raw_hashes(&bytes[at..]).unwrap();
                let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                code.push_str("\"\"");
                at += hashes + 2;
                while at < bytes.len() && !bytes[at..].starts_with(&end) {
                    line += usize::from(bytes[at] == '\n');
                    code.extend((bytes[at] == '\n').then_some('\n'));
                    at += 1;
                }
                at += end.len();
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

/// Returns the number of `#` if a raw string begins here.
fn raw_hashes(source: &[char]) -> Option<usize> {
    let hashes = source[1..].iter().take_while(|c| **c == '#').count();
    (source.get(hashes + 1) == Some(&'"')).then_some(hashes)
}

fn is_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn audit(source: &str) -> Vec<Found> {
    audit_of("", source)
}

/// Returns the argument ranges of all calls that are awaited, and of all calls of a bounded function.
fn argument_ranges(code: &str) -> Vec<std::ops::Range<usize>> {
    let awaited = code.match_indices('(').filter_map(|(open, _)| {
        let end = closing(code, open)?;
        code[end + 1..].trim_start().starts_with(".await").then_some(open..end)
    });
    let calls = BOUNDED.iter().flat_map(|name| code.match_indices(name).map(move |(at, _)| (at, name.len())));
    let calls = calls.filter(|(at, _)| !is_word(code[..*at].chars().next_back()));
    calls.filter_map(|(at, len)| closing(code, at + len).map(|end| at..end)).chain(awaited).collect()
}

/// Returns the position of the closing parenthesis.
fn closing(code: &str, open: usize) -> Option<usize> {
    if !code[open..].starts_with('(') {
        return None;
    }
    let mut depth = 0;
    for (at, c) in code[open..].char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Some(open + at);
        }
    }
    None
}

fn audit_of(file: &str, source: &str) -> Vec<Found> {
    // Ignore the unit tests of the file.
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let (code, mut reasons) = strip(source);
    let line_of = |at: usize| 1 + code[..at].matches('\n').count();
    let mut found: Vec<(usize, String)> = Vec::new();
    for (at, _) in code.match_indices(".await") {
        if !is_bounded(file, code[..at].trim_end()) {
            found.push((line_of(at), ".await".to_owned()));
        }
    }
    // Find imports of `mpsc` in any form.
    for (at, _) in code.match_indices("use std::sync::") {
        let imported = code[at..].split(';').next().unwrap();
        if imported.contains("mpsc") && !imported.contains("std::sync::mpsc") {
            found.push((line_of(at), "std::sync::mpsc".to_owned()));
        }
    }
    for (at, _) in code.match_indices("fn within") {
        if file != "bound.rs" {
            found.push((line_of(at), "another `within`".to_owned()));
        }
    }
    let argument_ranges = argument_ranges(&code);
    // A call inside a block is executed there; it is not an argument of the bounded function.
    let holds = |range: &std::ops::Range<usize>, at: usize| {
        let braces = |c: char| code[range.start..at.max(range.start)].matches(c).count();
        range.contains(&at) && braces('{') == braces('}')
    };
    for word in BLOCKING {
        for (at, _) in code.match_indices(word) {
            let end = at + word.len();
            let end = if word.ends_with('(') { closing(&code, end - 1).map_or(end, |e| e + 1) } else { end };
            // `.recv().await` and similar calls were found above.
            let awaited = code[end..].trim_start().starts_with(".await");
            let longer = word.starts_with(char::is_alphabetic) && is_word(code[..at].chars().next_back());
            let future = (word.starts_with("io::") && code[..at].ends_with("tokio::"))
                || (word.ends_with('(') && argument_ranges.iter().any(|range| holds(range, at)));
            if !awaited && !longer && !future {
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

/// Returns whether the awaited expression is a call of one of the bounded functions.
fn is_bounded(file: &str, before: &str) -> bool {
    let Some(inner) = before.strip_suffix(')') else { return false };
    let mut depth = 1;
    for (at, c) in inner.char_indices().rev() {
        depth += match c {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        if depth == 0 {
            let name = inner[..at].rsplit(|c: char| !is_word(Some(c))).next().unwrap_or("");
            // A method of that name belongs to another type.
            let is_method = inner[..at - name.len()].ends_with('.');
            return !is_method && (BOUNDED.contains(&name) || (file == "bound.rs" && name == BOUNDED_THERE));
        }
    }
    false
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
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
        for found in audit_of(&name, &std::fs::read_to_string(&file).unwrap()) {
            match found.reason {
                Some(why) => excused.push((name.clone(), why)),
                None => unbounded.push(format!("{name}:{}: unbounded {}", found.line, found.what)),
            }
        }
    }
    assert!(unbounded.is_empty(), "wrap these in `within`, see bound.rs:\n{}", unbounded.join("\n"));
    excused.sort();
    let mut listed: Vec<(String, String)> =
        BYPASSES.iter().map(|(file, why)| ((*file).to_owned(), (*why).to_owned())).collect();
    listed.sort();
    assert_eq!(excused, listed, "update the list of unbounded waits in tests/audit.rs");
}

#[test]
fn finds_unbounded_waits() {
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
        ("fn a() { io::stdin().lock(); }", "io::stdin()"),
        ("fn a() { reader.read_line(&mut text); }", "read_line("),
        ("fn a() { within(LIMIT, x); reader.read_line(&mut text); }", "read_line("),
        ("fn a() { pipe.read(&mut chunk); }", ".read("),
        ("fn a() { BufRead::read_line(&mut pipe, &mut text); }", "read_line("),
        ("fn a() { pipe.write_all(b\"x\"); }", "write_all("),
        ("fn a() { thread.join(); }", ".join()"),
        ("fn a() { std::thread::scope(|s| s.spawn(b)); }", "thread::scope("),
        ("fn a() { child.wait_with_output(); }", ".wait_with_output("),
        ("fn a() { Command::new(\"x\").status(); }", ".status()"),
        ("fn a() { let (tx, rx) = std::sync::mpsc::channel(); }", "std::sync::mpsc"),
        ("use std::sync::{Arc, mpsc};", "std::sync::mpsc"),
        ("use std::sync::{Arc, Condvar};", "Condvar"),
        ("fn a() { tx.blocking_send(x); }", ".blocking_send("),
        ("fn a() { futures::executor::block_on(x) }", "block_on("),
        ("fn a() { handle.block_on(x) }", "block_on("),
        ("async fn a() { let (x, y) = tokio::try_join!(b(), c()); }", "try_join!"),
        ("async fn a() { tokio::join!(b(), c()); }", "join!"),
        ("async fn a() { futures::select_biased! { x = y => {} } }", "select_biased!"),
        ("async fn a() { within(Duration::MAX, x).await; }", "Duration::MAX"),
        ("async fn a() { peer.within(LIMIT, x).await; }", ".await"),
        ("async fn a() { tokio::time::timeout(LIMIT, x).await; }", ".await"),
        ("async fn within(x: X) { }", "another `within`"),
        ("fn a() { listener.accept(); }", ".accept("),
        ("fn a() { std::net::TcpStream::connect(addr); }", "TcpStream::connect("),
        ("fn a() { std::fs::read(path); }", "fs::read("),
        ("fn a() { File::open(fifo); }", "File::open("),
        ("fn a() { let s = r#\"a \" b\"#; rx.recv() }", ".recv()"),
        ("fn a() { /* it's \" */ rx.recv() }", ".recv()"),
        ("async fn a() { within(LIMIT, async { y.await }).await; }", ".await"),
    ] {
        let found = audit(source);
        assert_eq!(found.len(), 1, "{source}: {found:?}");
        assert_eq!((found[0].what.as_str(), &found[0].reason), (what, &None), "{source}");
    }
}

#[test]
fn ignores_bounded_quoted_and_explained_waits() {
    for source in [
        "async fn a() { within(LIMIT, peer.list_tools(f(1, (2, 3)))).await?; }",
        "async fn a() { bound::within_unless(\n    LIMIT,\n    ct,\n    x,\n)\n.await }",
        "async fn a() { within(LIMIT, TcpStream::connect(x)).await; }",
        "// y.await\nfn a() { let s = \"x.await .recv()\"; }",
        "fn a() { let s = r#\"say \"x.await\" .recv()\"#; }",
        "async fn a() { within(LIMIT, out.write_all(&line)).await??; }",
        "fn a() { path.join(name); list.join(\", \"); }",
    ] {
        assert_eq!(audit(source), [], "{source}");
    }
    let explained = audit("async fn a() {\n    // unbounded: it is so\n    y.await\n}");
    assert_eq!(explained[0].reason.as_deref(), Some("it is so"));
    let distant = audit("// unbounded: it is so\n\n\n\nasync fn a() { y.await }");
    assert_eq!(distant[0].reason, None, "a reason further away does not count");
    let once = audit("// unbounded: it is so\nasync fn a() { y.await; z.await }");
    assert_eq!(once.iter().filter(|f| f.reason.is_some()).count(), 1, "a reason excuses one wait");
}
