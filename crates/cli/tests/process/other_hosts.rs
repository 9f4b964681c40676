//! `--host`: the runs of other machines over SSH. A program named `ssh` replaces it and runs the command on this machine, in
//! the home and state directory of another project.

use crate::kit::{GRACES, Project, Running, TIMEOUT};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

/// Two machines: the operator's, and one with runs.
struct Machines {
    here: Project,
    there: Project,
}

impl Machines {
    fn new(there: Project) -> Machines {
        let here = Project::new();
        std::fs::create_dir(here.outside("bin")).expect("a directory");
        let machines = Machines { here, there };
        machines.ssh("exec sh -c \"$command\"");
        machines
    }

    /// Writes the `ssh` that the operator's dogwatch finds. `there` is a script for the host `box`, with `$command` to run.
    fn ssh(&self, there: &str) {
        let dogwatch = Path::new(env!("CARGO_BIN_EXE_dogwatch"));
        let bin = dogwatch.parent().expect("a directory").display();
        let (home, state) = (self.there.outside("home"), self.there.outside("state"));
        let script = format!(
            "#!/bin/sh\n\
             echo \"$@\" >> '{args}'\n\
             while [ \"$1\" != -- ]; do shift; done\n\
             host=$2 command=$3\n\
             case $host in gone) echo 'ssh: connect to host gone port 22: Connection refused' >&2; exit 255;; esac\n\
             export HOME='{home}' XDG_STATE_HOME='{state}' PATH='{bin}':\"$PATH\"\n\
             {there}\n",
            args = self.here.outside("ssh-args").display(),
            home = home.display(),
            state = state.display(),
        );
        let path = self.here.outside("bin/ssh");
        std::fs::write(self.here.outside("bin/new"), script).expect("writes");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.here.outside("bin/new"), mode).expect("sets");
        std::fs::rename(self.here.outside("bin/new"), path).expect("renames");
    }

    fn serve(&self, hosts: &[&str]) -> Server {
        let mut args = vec!["serve", "--socket", "all"];
        hosts.iter().for_each(|host| args.extend(["--host", *host]));
        let mut command = self.here.command(&args);
        let path = std::env::var("PATH").expect("is set");
        command.env("PATH", format!("{}:{path}", self.here.outside("bin").display()));
        let mut process = Running::start(command);
        process.wait_for_line("unix:all");
        Server { process, socket: self.here.path("all") }
    }
}

struct Server {
    process: Running,
    socket: std::path::PathBuf,
}

impl Server {
    fn get(&self, path: &str) -> Value {
        let answer = dogwatch_server::Client::connect(&self.socket).and_then(|mut client| client.get(path));
        answer.expect("answers").json().expect("is JSON")
    }

    fn post(&self, path: &str) -> (u16, Value) {
        let mut client = dogwatch_server::Client::connect(&self.socket).expect("connects");
        let answer = client.post(path, &serde_json::json!({})).expect("answers");
        (answer.status, answer.json().expect("is JSON"))
    }

    /// Asks until the answer is right.
    fn until(&self, path: &str, what: &str, right: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let answer = self.get(path);
            if right(&answer) {
                return answer;
            }
            assert!(began.elapsed() < TIMEOUT, "{what}: {answer:#}");
            std::thread::yield_now();
        }
    }

    fn stop(self) {
        self.process.signal(Signal::TERM);
        self.process.finish().assert_code(143);
    }
}

fn waiting() -> (Machines, Running, String) {
    let there = Project::acting_with(&format!("{GRACES}\ndelay: 1h"), "say hi");
    let machines = Machines::new(there);
    let mut run = machines.there.start_run(&[]);
    let id = run.wait_for("run_started")["run"].as_str().expect("an id").to_owned();
    run.wait_for("wait_started");
    (machines, run, id)
}

fn machine<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let all = answer["machines"].as_array().expect("a list");
    all.iter().find(|machine| machine["name"] == name).expect("is listed")
}

#[test]
fn the_runs_of_another_host_are_listed_followed_and_steered() {
    let (machines, mut run, id) = waiting();
    let server = machines.serve(&["me@box"]);
    let listed = server.until("/v1/runs", "the run", |all| all["runs"][0]["state"] == "waiting");
    let entry = &listed["runs"][0];
    assert_eq!((&entry["run"], &entry["host"]), (&Value::from(id.as_str()), &Value::from("me@box")));
    assert_eq!((&entry["alive"], &entry["pid"]), (&Value::from(true), &Value::Null));
    let up = server.until("/v1/machines", "is up", |all| machine(all, "me@box")["runs"] == 1);
    assert_eq!(machine(&up, "me@box")["state"], "up");
    // Its page: the status, and every event once and in order.
    let status = server.get(&format!("/v1/runs/{id}"));
    assert_eq!(status["live"], true);
    let journal = machines.there.journal();
    let mut client = dogwatch_server::Client::connect(&server.socket).expect("connects");
    let lines = client.get(&format!("/v1/runs/{id}/events?observed=true")).expect("answers").body;
    let lines = String::from_utf8(lines).expect("is text");
    let events: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).expect("is JSON")).collect();
    assert_eq!(events, journal);
    // A request reaches the run, and its effect comes back.
    assert_eq!(server.post(&format!("/v1/runs/{id}/wake")).0, 202);
    assert_eq!(run.wait_for("wait_ended")["by"], "api");
    run.wait_for("wait_started");
    server.until(&format!("/v1/runs/{id}"), "iteration 2", |s| s["nodes"][0]["iteration"] == 2);
    run.kill();
    server.until(&format!("/v1/runs/{id}"), "is lost", |status| status["state"] == "lost");
    let (status, body) = server.post(&format!("/v1/runs/{id}/pause"));
    assert_eq!(status, 409);
    assert!(body["error"]["message"].as_str().is_some_and(|m| m.contains("is not running")), "{body}");
    server.stop();
    machines.there.wait_until_no_process_left();
    let mirrors = machines.here.outside("state/dogwatch/mirrors");
    assert_eq!(std::fs::read_dir(mirrors).expect("lists").count(), 0, "the copies are removed");
    let args = std::fs::read_to_string(machines.here.outside("ssh-args")).expect("reads");
    assert!(args.contains("-o BatchMode=yes -o ConnectTimeout=10"), "{args}");
}

#[test]
fn a_host_that_is_down_is_shown_with_the_reason_and_does_not_hide_the_others() {
    let (machines, run, id) = waiting();
    let server = machines.serve(&["gone", "box"]);
    let listed = server.until("/v1/runs", "the run", |all| all["runs"][0]["state"] == "waiting");
    assert_eq!(listed["runs"][0]["run"], Value::from(id.as_str()));
    let down = server.until("/v1/machines", "is down", |all| machine(all, "gone")["state"] == "down");
    assert_eq!(machine(&down, "gone")["why"], "ssh: connect to host gone port 22: Connection refused");
    assert!(machine(&down, "gone")["since"].is_string());
    assert_eq!(machine(&down, "box")["state"], "up");
    server.stop();
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
}

#[test]
fn a_connection_that_breaks_leaves_the_last_state_and_is_made_again() {
    let (machines, mut run, id) = waiting();
    machines.ssh("echo $$ > \"$HOME/feed\"; exec sh -c \"$command\"");
    let server = machines.serve(&["box"]);
    server.until("/v1/runs", "the run", |all| all["runs"][0]["state"] == "waiting");
    machines.ssh("echo 'Permission denied (publickey).' >&2; exit 255");
    let pid = std::fs::read_to_string(machines.there.outside("home/feed")).expect("reads");
    let pid: i32 = pid.trim().parse().expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    let denied = "Permission denied (publickey).";
    server.until("/v1/machines", "is down", |all| machine(all, "box")["why"] == denied);
    let entry = server.get("/v1/runs")["runs"][0].clone();
    assert_eq!((&entry["run"], &entry["state"]), (&Value::from(id.as_str()), &Value::from("waiting")));
    let (status, body) = server.post(&format!("/v1/runs/{id}/wake"));
    assert_eq!((status, &body["error"]["message"]), (409, &Value::from("box: box is not connected")));
    machines.ssh("exec sh -c \"$command\"");
    server.until("/v1/machines", "is up again", |all| machine(all, "box")["state"] == "up");
    // A host that is up may not have listed its runs yet.
    let began = Instant::now();
    let mut status = 404;
    while status == 404 && began.elapsed() < TIMEOUT {
        status = server.post(&format!("/v1/runs/{id}/wake")).0;
    }
    assert_eq!(status, 202);
    run.wait_for("wait_ended");
    run.wait_for("wait_started");
    server.until(&format!("/v1/runs/{id}"), "iteration 2", |s| s["nodes"][0]["iteration"] == 2);
    server.stop();
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
}

#[test]
fn a_missing_or_old_dogwatch_on_the_host_is_named() {
    let machines = Machines::new(Project::new());
    machines.ssh(
        "case $host in none) echo 'sh: 1: exec: dogwatch: not found' >&2; exit 127;; esac\n\
         echo \"error: unrecognized subcommand 'feed'\" >&2; exit 2",
    );
    let server = machines.serve(&["none", "old"]);
    let why = |all: &Value, name: &str| machine(all, name)["why"].as_str().unwrap_or_default().to_owned();
    let all = server.until("/v1/machines", "both are down", |all| {
        ["none", "old"].iter().all(|name| machine(all, name)["state"] == "down")
    });
    assert_eq!(why(&all, "none"), "dogwatch is not installed there, or not in the PATH of `sh`");
    assert_eq!(why(&all, "old"), "the dogwatch there is too old for --host; install the same version");
    server.stop();
}

#[test]
fn text_that_a_login_prints_does_not_disturb_the_feed() {
    let (machines, run, _) = waiting();
    machines.ssh("echo 'Welcome to box!'; echo; exec sh -c \"$command\"");
    let server = machines.serve(&["box"]);
    server.until("/v1/runs", "the run", |all| all["runs"][0]["state"] == "waiting");
    server.stop();
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
}

#[test]
fn a_host_that_looks_like_an_option_is_refused() {
    let project = Project::new();
    for command in ["serve", "top"] {
        let refused = project.call(&[command, "--host=-oProxyCommand=touch evil"]);
        assert!(refused.assert_code(2).stderr.contains("expected a host"), "{}", refused.stderr);
    }
    assert!(!project.path("evil").exists());
}
