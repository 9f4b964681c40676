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

#[test]
fn a_job_with_a_secret_is_refused_by_submit_and_the_secret_is_not_shown() {
    let fleet = Fleet::init();
    let repo = cloned(&fleet);
    let submit = |args: &[&str]| {
        let args = [&["submit", "work", "--account", "acme"], args].concat();
        let mut command = fleet.project.command(&args);
        command.env("DEPLOY_API_KEY", "k3y-of-deploy").env("DEPLOY_CODE", "c0de-of-deploy");
        let done = command.current_dir(&repo).output().expect("dogwatch starts");
        (done.status.code(), String::from_utf8([done.stdout, done.stderr].concat()).expect("text"))
    };
    let refused = |args: &[&str], what: &str| {
        let (code, text) = submit(args);
        let why = format!("error: {what} contains a secret, and the server would store it with the job");
        assert!(
            code == Some(2) && text.contains(&why) && text.contains("\nhelp: leave it out"),
            "{args:?} {text}"
        );
        for secret in ["k3y-of-deploy", "c0de-of-deploy", "t0ken-"] {
            assert!(!text.contains(secret), "{text}");
        }
    };
    // No server is running, so a job that passes the checks cannot be queued.
    let passes = |args: &[&str]| {
        let (_, text) = submit(args);
        assert!(text.contains("error: cannot connect to "), "{args:?} {text}");
    };
    let url = repo.to_str().expect("a path of text");
    for other in [&[][..], &["--repo", url]] {
        let with = |args: &[&'static str]| [args, other].concat();
        refused(&with(&["--set", "agent=sh -c 'deploy k3y-of-deploy'"]), "--set agent");
        refused(
            &with(&["--set", "notify.telegram={token: '1:t0ken-abcdefghijklmnopqrstuvwxyz', chat: 42}"]),
            "--set notify.telegram",
        );
        refused(&with(&["--set", "redact=[DEPLOY_CODE]", "--set", "agent=sh c0de-of-deploy"]), "--set agent");
        passes(&with(&["--set", "agent=sh c0de-of-deploy"]));
        passes(&with(&["--set", "budget.tokens=500"]));
    }
    refused(&["--repo", url, "--", "k3y-of-deploy"], "an argument of the loop");
    std::fs::write(repo.join("work/RALPH.md"), LOOP.replacen("---\n", "---\nredact: [DEPLOY_CODE]\n", 1))
        .expect("writes");
    git(&repo, &["commit", "--quiet", "-am", "a loop that names a secret"]);
    git(&repo, &["push", "--quiet", "origin", "main"]);
    refused(&["--set", "agent=sh c0de-of-deploy"], "--set agent");
}
