//! `serve --fleet`: the runs of workers, read from the server. The worker is played by this test, with the journal of a real run.

use crate::kit::{Project, Running, TIMEOUT};
use crate::server::Fleet;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::moment::Wall;
use dogwatch_fleet::client::Client;
use dogwatch_fleet::names::{self, JobId};
use dogwatch_fleet::operator::Operator;
use dogwatch_fleet::record::{Control, JobRecord, JobState, Presence};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::sync::mpsc::channel;
use std::time::Instant;

fn until(socket: &std::path::Path, path: &str, what: &str, right: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let answer = dogwatch_server::Client::connect(socket).and_then(|mut client| client.get(path));
        let answer: Value = answer.expect("answers").json().expect("is JSON");
        if right(&answer) {
            return answer;
        }
        assert!(began.elapsed() < TIMEOUT, "{what}: {answer:#}");
        std::thread::yield_now();
    }
}

fn journal_of_a_run() -> (RunId, Vec<u8>) {
    let project = Project::acting_with("delay: 1h", "say hi");
    let mut run = project.start_run(&[]);
    let id = run.wait_for("run_started")["run"].as_str().expect("an id").parse().expect("an id");
    run.wait_for("wait_started");
    let journal = std::fs::read(project.run_dir().join("events.jsonl")).expect("reads");
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
    (id, journal)
}

fn send(worker: &Operator, subject: &str, headers: &[(&str, &str)], payload: Vec<u8>) {
    let sent = worker.run(async |client: &Client| client.publish(subject, headers, payload, None).await);
    sent.unwrap_or_else(|error| panic!("{subject}: {error}"));
}

#[test]
fn the_run_of_a_worker_has_a_page_and_can_be_steered() {
    let (run, journal) = journal_of_a_run();
    let fleet = Fleet::init();
    let up = fleet.up();
    let worker = Operator::connect(&fleet.join("anna", "acme")).expect("connects");
    let job = JobId { account: "acme".parse().expect("a name"), job: "j1".parse().expect("a name") };
    let presence = Presence {
        worker: "anna".parse().expect("a name"),
        host: "box1".into(),
        version: "0.1.0".into(),
        accounts: vec![job.account.clone()],
        graphs: Vec::new(),
        slots: 4,
        jobs: vec![job.to_string()],
        labels: vec!["gpu".into()],
        draining: false,
        refuses: Vec::new(),
        trouble: None,
        load: 125,
        since: Wall(1_794_773_733_000),
    };
    let here = names::key_subject(names::KV_HERE, "anna");
    send(&worker, &here, &[], serde_json::to_vec(&presence).expect("JSON"));
    let record: JobRecord = serde_json::from_value(json!({
        "state": "running", "owner": "anna", "nonce": "n", "epoch": 1, "sequence": 1, "run": run, "title": "loop",
        "graph": "nightly",
    }))
    .expect("a record");
    assert_eq!(record.state, JobState::Running);
    let key = names::key_subject(names::KV_JOBS, &job.to_string());
    send(&worker, &key, &[], serde_json::to_vec(&record).expect("JSON"));
    // Two pieces that split a line.
    let (first, second) = journal.split_at(journal.len() / 2);
    send(&worker, &job.events_subject(), &[(names::H_OFFSET, "0")], first.to_vec());
    let mut serve = fleet.project.start(&["serve", "--socket", "all", "--fleet"]);
    serve.wait_for_line("unix:all");
    let socket = fleet.project.path("all");
    let listed = until(&socket, "/v1/runs", "the run", |all| all["runs"][0]["host"] == "anna");
    assert_eq!(listed["runs"][0]["run"], json!(run));
    assert_eq!(listed["runs"][0]["graph"], "nightly");
    assert_eq!(listed["runs"][0]["alive"], true);
    assert_eq!(listed["runs"][0]["job"], "acme.j1");
    let offset = first.len().to_string();
    send(&worker, &job.events_subject(), &[(names::H_OFFSET, &offset)], second.to_vec());
    let page = format!("/v1/runs/{run}");
    until(&socket, &page, "the wait", |status| status["state"] == "waiting");
    let lines = dogwatch_server::Client::connect(&socket)
        .and_then(|mut client| client.get(&format!("{page}/events?observed=true")))
        .expect("answers");
    assert_eq!(lines.body, journal, "every line once and in order");
    let machines = until(&socket, "/v1/machines", "anna", |all| all["machines"][1]["name"] == "anna");
    assert_eq!(machines["machines"][0]["state"], "up", "{machines}");
    let server = machines["machines"][0]["detail"].as_str().unwrap_or_default();
    assert!(server.starts_with("nats-server 2."), "{machines}");
    assert_eq!(machines["machines"][1]["detail"], "1/4 jobs, load 1.25, accounts acme, labels gpu");
    assert_eq!(machines["summary"], "queue: acme 0 waiting, 0 of 64 running");
    steer(&socket, &page, &worker, &job);
    // The end: the last lines come before the record says so.
    let ended = JobRecord { state: JobState::Done, ..record };
    send(&worker, &key, &[], serde_json::to_vec(&ended).expect("JSON"));
    until(&socket, "/v1/runs", "the end", |all| all["runs"][0]["alive"] == false);
    stop(serve);
    drop(worker);
    stop(up);
    fleet.project.assert_no_process_left();
}

/// Wakes the run, and answers as its worker does.
fn steer(socket: &std::path::Path, page: &str, worker: &Operator, job: &JobId) {
    let (asked, heard) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = dogwatch_server::Client::connect(socket).expect("connects");
            // The worker may not have subscribed yet: "no worker runs this job now" comes back at once then.
            let began = Instant::now();
            let answer = loop {
                let answer = client.post(&format!("{page}/wake"), &json!({})).expect("answers");
                if answer.is_ok() || began.elapsed() > TIMEOUT {
                    break answer;
                }
            };
            asked.send(answer.status).expect("is read");
        });
        let control = worker.run(async |client: &Client| {
            let mut requests = client.subscribe(&job.control_subject()).await.expect("subscribes");
            let request = requests.next().await.expect("a request");
            let reply = request.reply.clone().expect("wants an answer");
            client.send(&reply, br#"{"ok":true}"#.to_vec()).await.expect("answers");
            client.flush().await;
            serde_json::from_slice::<Control>(&request.payload).expect("a request")
        });
        assert_eq!(control, Control::Wake);
        assert_eq!(heard.recv_timeout(TIMEOUT), Ok(202));
    });
    // Nobody listens any more: a stop is stored for the next worker.
    worker.run(async |client: &Client| client.flush().await);
    let mut client = dogwatch_server::Client::connect(socket).expect("connects");
    let stopped = client.post(&format!("{page}/stop"), &json!({})).expect("answers");
    assert_eq!(stopped.status, 202, "{}", stopped.message());
    let want = worker.run(async |client: &Client| client.get(names::KV_WANT, &job.to_string()).await);
    let want = want.expect("answers").expect("is stored");
    assert_eq!(&want.payload[..], br#""stop""#);
}

#[test]
fn a_fleet_whose_server_is_away_is_shown_as_down() {
    let fleet = Fleet::init();
    let mut serve = fleet.project.start(&["serve", "--socket", "all", "--fleet"]);
    serve.wait_for_line("unix:all");
    let socket = fleet.project.path("all");
    let down = until(&socket, "/v1/machines", "is down", |all| all["machines"][0]["state"] == "down");
    let why = down["machines"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("cannot connect to 127.0.0.1"), "{why}");
    // It is used as soon as it is there.
    let up = fleet.up();
    until(&socket, "/v1/machines", "is up", |all| all["machines"][0]["state"] == "up");
    stop(serve);
    stop(up);
}

fn stop(process: Running) {
    process.signal(Signal::TERM);
    process.finish().assert_code(143);
}
