//! A FIFO or a device in place of a file of dogwatch is an error, in every command, and never a hang.

use crate::kit::{GRACES, Project, Running, one};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The files of dogwatch, with `RUN` for the id of a run. Some exist only in some runs.
const FILES: [&str; 20] = [
    "work/.dogwatch/.gitignore",
    "work/.dogwatch/decisions.jsonl",
    "work/.dogwatch/runs",
    "work/.dogwatch/locks",
    "work/.dogwatch/runs/RUN/alive",
    "work/.dogwatch/runs/RUN/detached.err",
    "work/.dogwatch/runs/RUN/events.jsonl",
    "work/.dogwatch/runs/RUN/loop/000001/prompt.md",
    "work/.dogwatch/runs/RUN/loop/000001/stdout",
    "work/.dogwatch/runs/RUN/plan.json",
    "work/.dogwatch/runs/RUN/socket",
    "work/dogwatch.toml",
    "work/loop/RALPH.md",
    "home/.config/dogwatch/dogwatch.toml",
    "home/.config/dogwatch/prices.toml",
    "state/dogwatch/heads/RUN",
    "state/dogwatch/locks",
    "state/dogwatch/runs/RUN.json",
    "state/dogwatch/runs",
    "state/dogwatch/token",
];

/// The commands that read or write files of dogwatch.
const COMMANDS: [&[&str]; 24] = [
    &[],
    &["status"],
    &["events"],
    &["logs"],
    &["history"],
    &["report"],
    &["report", "--html", "page.html"],
    &["diff"],
    &["ps", "--all"],
    &["tell", "hello"],
    &["stop"],
    &["pause"],
    &["wake"],
    &["wake", "--detach"],
    &["tune"],
    &["check", "loop"],
    &["doctor"],
    &["prices"],
    &["replay", "RUN"],
    &["replay", ".dogwatch/runs/RUN/events.jsonl"],
    &["gc", "--dry-run"],
    &["undo", "RUN", "1", "--yes"],
    &["resume"],
    &["run", "loop", "-n", "1"],
];

/// What `dogwatch serve` is asked.
const ROUTES: [&str; 6] = [
    "/v1/runs",
    "/v1/runs/RUN",
    "/v1/runs/RUN/events",
    "/v1/runs/RUN/output/loop/1",
    "/v1/runs/RUN/output/loop/1/stdout",
    "/metrics",
];

/// How long a command may take on a busy machine. A hang takes forever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A project with a run that ended asleep, so that `wake` has something to continue.
fn with_a_run() -> (Project, String) {
    let project = Project::acting_with(
        &format!("idle: {{delay: 10ms, stop_after: 1}}\n{GRACES}"),
        "marker idle no_pending_tasks",
    );
    std::fs::create_dir_all(project.outside("home/.config/dogwatch")).expect("a directory");
    let events = project.run(&[]).events();
    let id = one(&events, "run_started")["run"].as_str().expect("an id").to_owned();
    (project, id)
}

/// Replaces a file or directory.
fn plant(project: &Project, file: &str, device: bool) {
    let path: PathBuf = project.outside(file);
    let _ = std::fs::remove_dir_all(&path);
    let _ = std::fs::remove_file(&path);
    if device {
        symlink("/dev/zero", &path).expect("a link");
    } else {
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo is there").success());
    }
}

/// Runs a command and returns its exit code. Fails the test if it hangs.
fn bounded(project: &Project, args: &[&str], file: &str) -> Option<i32> {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", &PATIENCE.as_secs().to_string(), env!("CARGO_BIN_EXE_dogwatch")]).args(args);
    project.set_environment(&mut command);
    let done = Running::start(command).finish();
    assert!(done.signal.is_none() && done.code != Some(137), "{args:?} hangs with {file}");
    assert!(!done.stderr.contains("panicked"), "{args:?} with {file}: {}", done.stderr);
    done.code
}

fn ask(project: &Project, route: &str, file: &str) {
    let mut stream = UnixStream::connect(project.outside("serve.sock")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("sets");
    let head = format!("GET {route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("writes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap_or_else(|e| panic!("{route} hangs with {file}: {e}"));
    assert!(answer.starts_with(b"HTTP/1.1 "), "{route} with {file}");
}

fn attempt(file: &str, device: bool) {
    let (project, id) = with_a_run();
    plant(&project, &file.replace("RUN", &id), device);
    for args in COMMANDS {
        let args: Vec<String> = args.iter().map(|arg| arg.replace("RUN", &id)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let code = bounded(&project, &args, file);
        // A missing terminal, run or file is an error; a hang, a panic or a signal is a fault.
        assert!(matches!(code, Some(0..=5)), "{args:?} with {file}: {code:?}");
    }
    serve(&project, &id, file);
    // The token is only used on TCP.
    let listen = bounded(&project, &["serve", "--listen", "192.0.2.1:1"], file);
    assert_ne!(listen, Some(0), "an address of another machine");
}

/// Asks a server everything. A server that cannot start must exit with an error.
fn serve(project: &Project, id: &str, file: &str) {
    let socket = project.outside("serve.sock");
    let mut command = project.command(&["serve", "--socket", &socket.to_string_lossy()]);
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("dogwatch starts");
    let until = Instant::now() + PATIENCE;
    while !socket.exists() {
        if let Some(status) = server.try_wait().expect("our child") {
            return assert_eq!(status.code(), Some(2), "serve with {file}");
        }
        assert!(Instant::now() < until, "serve hangs with {file}");
        std::thread::yield_now();
    }
    for route in ROUTES {
        ask(project, &route.replace("RUN", id), file);
    }
    kill_process(Pid::from_child(&server), Signal::TERM).expect("our child");
    server.wait().expect("our child");
}

// promise: 14
#[test]
fn a_fifo_or_a_device_in_place_of_a_file_of_dogwatch_never_hangs_a_command() {
    let kinds = if std::env::var_os("DOGWATCH_FULL").is_some() { &[false, true][..] } else { &[false] };
    let cases: Vec<(&str, bool)> = kinds.iter().flat_map(|kind| FILES.map(|file| (file, *kind))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((file, device)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    attempt(file, *device);
                }
            });
        }
    });
}
