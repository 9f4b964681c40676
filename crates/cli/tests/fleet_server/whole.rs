//! A fleet as the guide sets it up: every step is a command, over TLS, with the permissions of a worker.

use crate::kit::TIMEOUT;
use crate::server::Fleet;
use dogwatch_fleet::blocking;
use dogwatch_fleet::record::JobState;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;

const LOOP: &str = "---\nagent: sh -c 'cat > /dev/null; echo hello > out'\nmax_iterations: 1\n---\nGo.\n";

fn git(dir: &Path, args: &[&str]) -> String {
    let who = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
    let done = Command::new("git").args(who).args(args).current_dir(dir).output().expect("git starts");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

#[test]
fn a_submitted_loop_runs_on_a_worker_and_its_result_is_a_branch() {
    let fleet = Fleet::init();
    let up = fleet.up();
    let line = fleet.join("anna", "acme").to_string();
    let repo = fleet.project.path("repo");
    std::fs::create_dir_all(repo.join("work")).expect("makes a directory");
    std::fs::write(repo.join("work/RALPH.md"), LOOP).expect("writes");
    git(&repo, &["init", "--quiet", "-b", "main"]);
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "--quiet", "-m", "a loop"]);
    let url = repo.to_str().expect("a path of text");
    let dir = fleet.project.path("worker");
    let dir = dir.to_str().expect("a path of text");
    let work = fleet.project.start(&["work", &line, "--allow-repo", url, "--dir", dir]);
    let submit = |account: &str, name: &str| {
        let args = ["submit", "work", "--account", account, "--repo", url, "--name", name];
        let done = fleet.project.command(&args).current_dir(&repo).output().expect("dogwatch starts");
        (done.status.success(), String::from_utf8(done.stderr).expect("text"))
    };
    assert_eq!(submit("acme", "one"), (true, String::new()));
    let (operator, (send, ended)) = (fleet.operator(), channel());
    // The thread ends with the record that it waits for, or with this process.
    std::thread::spawn(move || {
        blocking::follow(&operator, |_, record| record.state != JobState::Done || send.send(record).is_err())
    });
    let record = ended.recv_timeout(TIMEOUT).expect("the job ends");
    assert_eq!(record.result.and_then(|result| result.branch).as_deref(), Some("refs/heads/dogwatch/one/1"));
    assert_eq!(git(&repo, &["show", "dogwatch/one/1:out"]), "hello\n");
    let (queued, why) = submit("corp", "two");
    assert!(!queued && why.contains("the fleet has no account corp"), "{why}");
    let (queued, why) = submit("acme", "one");
    assert!(!queued && why.contains("job acme.one already exists"), "{why}");
    for ended in [&work, &up] {
        ended.signal(Signal::TERM);
    }
    work.finish();
    up.finish().assert_code(143);
}

/// A repository with a loop, whose `origin` has its commits.
fn cloned(fleet: &Fleet) -> std::path::PathBuf {
    let (origin, repo) = (fleet.project.path("origin.git"), fleet.project.path("repo"));
    std::fs::create_dir_all(repo.join("work")).expect("makes a directory");
    std::fs::write(repo.join("work/RALPH.md"), LOOP).expect("writes");
    git(&repo, &["init", "--quiet", "-b", "main"]);
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "--quiet", "-m", "a loop"]);
    git(&repo, &["clone", "--quiet", "--bare", ".", origin.to_str().expect("text")]);
    git(&repo, &["remote", "add", "origin", origin.to_str().expect("text")]);
    repo
}

#[test]
fn a_job_that_no_worker_could_run_is_refused_by_submit() {
    let fleet = Fleet::init();
    let up = fleet.up();
    fleet.join("anna", "acme");
    let repo = cloned(&fleet);
    let submit = |args: &[&str]| {
        let args = [&["submit", "--account", "acme"], args].concat();
        let done = fleet.project.command(&args).current_dir(&repo).output().expect("dogwatch starts");
        (done.status.code(), String::from_utf8(done.stderr).expect("text"))
    };
    let refused = |args: &[&str], why: &str| {
        let (code, text) = submit(args);
        assert!(code == Some(2) && text.contains(why) && text.contains("help: "), "{args:?} {code:?} {text}");
    };
    assert_eq!(submit(&["work", "--name", "good"]), (Some(0), String::new()));
    refused(&["nowhere"], "nowhere does not exist in this repository");
    refused(&["work", "--spread"], "a loop has no nodes to spread over workers");
    std::fs::create_dir_all(repo.join("new")).expect("makes a directory");
    std::fs::write(repo.join("new/RALPH.md"), LOOP).expect("writes");
    refused(&["new"], "new is not in commit ");
    std::fs::write(repo.join("new/RALPH.md"), "---\nagnet: x\n---\nGo.\n").expect("writes");
    std::fs::create_dir_all(repo.join("empty")).expect("makes a directory");
    std::fs::write(repo.join("empty/notes"), "none").expect("writes");
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "--quiet", "-m", "a broken loop"]);
    let origin = fleet.project.path("origin.git");
    refused(&["work"], &format!("{} does not have commit ", origin.display()));
    git(&repo, &["push", "--quiet", "origin", "main"]);
    refused(&["empty"], "empty has neither RALPH.md nor a graph file in commit ");
    refused(&["new"], "agnet");
    std::fs::write(repo.join("empty/notes"), "some").expect("writes");
    let (code, text) = submit(&["work", "--name", "dirty"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("warning: this work tree differs from commit "), "{text}");
    up.signal(Signal::TERM);
    up.finish().assert_code(143);
}
