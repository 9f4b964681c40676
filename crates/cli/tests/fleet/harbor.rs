//! A server, a repository with loops, and workers that each have a home of their own.

use crate::events::{Growing, Records};
use crate::kit::nats;
use dogwatch_core::lease::{JobRecord, JobState};
use dogwatch_core::time::moment::Wall;
use dogwatch_fleet::names::{self, JobId};
use dogwatch_fleet::record::{JOB_VERSION, Job, Limit, Presence};
use dogwatch_fleet::setup::{self, Setup};
use dogwatch_fleet::{Client, JoinLine, Name, submit};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A generous limit for every wait, even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(90);
/// The lease of the tests, in seconds.
pub const LEASE: u64 = 4;
/// The account of the tests.
pub const ACCOUNT: &str = "acme";

/// Returns whether slow tests run (`scripts/test --full`).
pub fn full() -> bool {
    std::env::var_os("DOGWATCH_FULL").is_some()
}

/// A fleet of one test.
pub struct Harbor {
    pub dir: TempDir,
    servers: Vec<Server>,
    /// The length of a lease, in seconds.
    lease: u64,
    workers: Vec<Working>,
    runtime: Runtime,
    client: Option<Client>,
    records: Option<Records>,
    marks: Growing,
}

/// A server, and the ports for clients and for other servers.
struct Server {
    port: u16,
    route: u16,
    child: Option<Child>,
    log: Option<Growing>,
}

/// A worker's process.
pub struct Working {
    child: Child,
    name: String,
    log: Growing,
}

pub fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub fn id(job: &str) -> JobId {
    JobId { account: name(ACCOUNT), job: name(job) }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

impl Harbor {
    /// Starts a server and creates streams, buckets and an account with a cap on jobs at once.
    pub fn new(cap: i64) -> Harbor {
        Harbor::with(1, LEASE, cap)
    }

    /// Starts one server or three. The lease is in seconds.
    pub fn with(servers: u32, lease: u64, cap: i64) -> Harbor {
        let dir = TempDir::new().expect("a directory");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let marks = Growing::at(&dir.path().join("marks"));
        let server = |_| Server { port: free_port(), route: free_port(), child: None, log: None };
        let all = (0..servers).map(server).collect();
        let (workers, client, records) = (Vec::new(), None, None);
        let mut harbor = Harbor { dir, servers: all, lease, workers, runtime, client, records, marks };
        harbor.start_server();
        let join = harbor.join("operator");
        let client = harbor.runtime.block_on(Client::connect(&join, false, Arc::new(|_| {})));
        harbor.client = Some(client.expect("a connection"));
        let setup = Setup { replicas: servers, ack_wait: Duration::from_secs(lease / 2) };
        harbor.until_ready("the streams exist", || {
            let made = harbor.block_on(|client| async move {
                setup::create(&client, setup).await?;
                setup::account(&client, &name(ACCOUNT), cap, setup).await
            });
            made.is_ok()
        });
        harbor.records = Some(Records::follow(join));
        harbor.make_repository();
        harbor
    }

    /// Returns the join line of a user, with every server.
    pub fn join(&self, user: &str) -> JoinLine {
        let servers = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port));
        let line = self.line(user, self.port());
        JoinLine { servers: servers.collect(), ..line }
    }

    /// Returns the join line of a user at one port of this machine.
    pub fn line(&self, user: &str, port: u16) -> JoinLine {
        format!("dogwatch+tcp://{user}@127.0.0.1:{port}/{ACCOUNT}").parse().expect("a join line")
    }

    pub fn port(&self) -> u16 {
        self.servers[0].port
    }

    pub fn block_on<T, F: Future<Output = T>>(&self, work: impl FnOnce(Client) -> F) -> T {
        self.runtime.block_on(work(self.client.clone().expect("connected")))
    }

    /// Starts every server that does not run, with what it stored.
    pub fn start_server(&mut self) {
        let store = self.dir.path().join("store");
        self.start_servers_in(&store, "always");
    }

    /// Starts every server that does not run, with its store in this directory.
    pub fn start_servers_in(&mut self, store: &Path, sync: &str) {
        let routes: Vec<String> =
            self.servers.iter().map(|server| format!("\"nats://127.0.0.1:{}\"", server.route)).collect();
        let alone = self.servers.len() == 1;
        for (at, server) in self.servers.iter_mut().enumerate().filter(|(_, server)| server.child.is_none()) {
            let (port, route) = (server.port, server.route);
            let mut text = format!(
                "server_name: n{at}\nlisten: \"127.0.0.1:{port}\"\n\
                 jetstream {{ store_dir: \"{}\", sync_interval: {sync} }}\n",
                store.join(at.to_string()).display()
            );
            if !alone {
                let routes = routes.join(", ");
                text.push_str(&format!(
                    "cluster {{ name: c, listen: \"127.0.0.1:{route}\", routes: [{routes}] }}\n"
                ));
            }
            let config = self.dir.path().join(format!("nats-{at}.conf"));
            std::fs::write(&config, text).expect("written");
            let log = Growing::at(&self.dir.path().join(format!("nats-{at}.out")));
            let mut command = Command::new(nats::program());
            let child = command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(log.appends()).spawn();
            (server.child, server.log) = (Some(child.expect("nats-server")), Some(log));
        }
        for log in self.servers.iter().filter_map(|server| server.log.as_ref()) {
            assert!(log.wait_for(TIMEOUT, "Server is ready"), "a server did not start");
        }
    }

    /// Waits until servers that have just started answer. A cluster elects a leader before it takes requests, which its first
    /// server logs.
    fn until_ready(&self, what: &str, right: impl Fn() -> bool) {
        let log = self.servers[0].log.as_ref().expect("a server");
        let until = Instant::now() + TIMEOUT;
        while !log.wait(Duration::from_secs(1), &right) {
            assert!(Instant::now() < until, "waited in vain until {what}");
        }
    }

    /// Waits until the streams of a server that has just started answer.
    pub fn until_answers(&self) {
        self.until_ready("the streams answer", || {
            let info = self.block_on(|client| async move {
                client.api(&format!("STREAM.INFO.{}", names::JOBS), &serde_json::json!({})).await
            });
            info.is_ok()
        });
    }

    /// Kills the server.
    pub fn kill_server(&mut self) {
        self.kill_server_at(0);
    }

    pub fn kill_server_at(&mut self, at: usize) {
        let mut server = self.servers[at].child.take().expect("a server");
        server.kill().expect("killed");
        server.wait().expect("ended");
    }

    pub fn signal_server_at(&self, at: usize, signal: Signal) {
        let server = self.servers[at].child.as_ref().expect("a server");
        kill_process(Pid::from_child(server), signal).expect("a signal");
    }

    /// Returns the server that leads the bucket of records.
    pub fn leader(&self) -> usize {
        let info = self.block_on(|client| async move {
            let stream = names::bucket_stream(names::KV_JOBS);
            client.api(&format!("STREAM.INFO.{stream}"), &serde_json::json!({})).await
        });
        let info = info.expect("the stream");
        let leader = info["cluster"]["leader"].as_str().expect("a leader");
        leader.trim_start_matches('n').parse().expect("a number")
    }

    pub fn marks_file(&self) -> PathBuf {
        self.dir.path().join("marks")
    }

    pub fn repository(&self) -> PathBuf {
        self.dir.path().join("repo.git")
    }

    /// Makes a bare repository. The argument of its agent is a number of tenths of a second: the agent makes a mark in each of
    /// them.
    fn make_repository(&self) {
        let tree = self.dir.path().join("tree");
        std::fs::create_dir_all(tree.join("work")).expect("a directory");
        let script = format!(
            "job=$(basename \"$(dirname \"$PWD\")\")\n\
             mark() {{ echo \"$1 $job $$\" >>'{}'; }}\n\
             mark start\ni=0\n\
             while [ $i -lt $1 ]; do mark tick; sleep 0.1; i=$((i+1)); done\n\
             echo done >>result.txt\nmark end\n",
            self.marks_file().display()
        );
        std::fs::write(tree.join("work/agent.sh"), script).expect("written");
        for steps in ["5", "60", "200"] {
            self.add_loop(&format!("s{steps}"), &format!("agent: sh work/agent.sh {steps}"));
        }
        git(&tree, &["init", "--quiet", "-b", "main"]);
        git(self.dir.path(), &["init", "--quiet", "--bare", "-b", "main", "repo.git"]);
        self.push_loops();
    }

    /// Adds a loop to the repository, with this frontmatter. Call `push_loops` after it.
    pub fn add_loop(&self, name: &str, front: &str) {
        let dir = self.dir.path().join("tree").join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("RALPH.md"), format!("---\n{front}\n---\nWork.\n")).expect("written");
    }

    /// Adds a loop whose agent is a shell script.
    pub fn add_script(&self, name: &str, front: &str, script: &str) {
        self.add_loop(name, &format!("agent: sh {name}/agent.sh\n{front}"));
        std::fs::write(self.dir.path().join("tree").join(name).join("agent.sh"), script).expect("written");
        self.push_loops();
    }

    /// Commits the loops and pushes them.
    pub fn push_loops(&self) {
        let tree = self.dir.path().join("tree");
        git(&tree, &["add", "."]);
        git(&tree, &["commit", "--quiet", "-m", "loops"]);
        git(&tree, &["push", "--quiet", "../repo.git", "main"]);
    }

    pub fn head(&self) -> String {
        git(&self.repository(), &["rev-parse", "main"]).trim().to_owned()
    }

    pub fn job(&self, path: &str) -> Job {
        Job {
            v: JOB_VERSION,
            repo: self.repository().display().to_string(),
            commit: self.head(),
            path: path.to_owned(),
            args: Vec::new(),
            set: Vec::new(),
            iterations: Some(1),
            account: name(ACCOUNT),
            min_version: None,
            needs: Vec::new(),
            timeout: None,
            scheduled: false,
            spread: false,
            node: None,
        }
    }

    pub fn submit(&self, job: &str, path: &str) {
        self.submit_job(&id(job), &self.job(path));
    }

    pub fn submit_job(&self, id: &JobId, job: &Job) {
        self.block_on(|client| async move {
            submit::job(&client, id, job, Wall(0)).await.expect("queued");
        });
    }

    /// Runs a command of the operator, and returns its exit code and what it printed.
    pub fn call(&self, args: &[&str]) -> (Option<i32>, String) {
        let home = self.dir.path().join("operator");
        let out = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
            .args(args)
            .env("DOGWATCH_FLEET", self.join("operator").to_string())
            .env("HOME", &home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .stdin(Stdio::null())
            .output()
            .expect("dogwatch starts");
        let text = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8(text).expect("text"))
    }

    /// Runs a command of the operator that must succeed, and returns what it printed.
    #[track_caller]
    pub fn succeed(&self, args: &[&str]) -> String {
        let (code, text) = self.call(args);
        assert_eq!(code, Some(0), "{args:?}: {text}\n{}", self.logs());
        text
    }

    /// Starts a worker. It connects to this port.
    pub fn start_worker_at(&mut self, worker: &str, port: u16, flags: &[&str]) {
        let line = self.line(worker, port).to_string();
        self.start_worker_by(worker, &line, flags, &mut Command::new(env!("CARGO_BIN_EXE_dogwatch")));
    }

    /// Starts a worker with this join line. The command runs dogwatch, perhaps in another environment.
    pub fn start_worker_by(&mut self, worker: &str, line: &str, flags: &[&str], command: &mut Command) {
        let home = self.dir.path().join(worker);
        std::fs::create_dir_all(&home).expect("a home");
        let log = Growing::at(&self.dir.path().join(format!("{worker}.log")));
        let child = command
            .args(["work", line, "--allow-repo", "*", "--lease"])
            .arg(format!("{}s", self.lease))
            .args(flags)
            .env("HOME", &home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env(crate::kit::MARK, self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.appends())
            .spawn();
        self.workers.push(Working { child: child.expect("a worker"), name: worker.to_owned(), log });
    }

    pub fn start_worker(&mut self, worker: &str) {
        let line = self.join(worker).to_string();
        self.start_worker_by(worker, &line, &[], &mut Command::new(env!("CARGO_BIN_EXE_dogwatch")));
    }

    pub fn pid(&self, worker: &str) -> Pid {
        let working = self.workers.iter().find(|working| working.name == worker).expect("a worker");
        Pid::from_child(&working.child)
    }

    pub fn signal(&self, worker: &str, signal: Signal) {
        kill_process(self.pid(worker), signal).expect("a signal");
    }

    /// Waits until a worker has printed a text.
    #[track_caller]
    pub fn until_says(&self, worker: &str, text: &str) {
        let working = self.workers.iter().find(|working| working.name == worker).expect("a worker");
        assert!(working.log.wait_for(TIMEOUT, text), "{worker} never said `{text}`\n{}", self.logs());
    }

    /// Drains a worker, which gives every answer to the queue before it ends.
    #[track_caller]
    pub fn drain(&mut self, worker: &str) {
        self.signal(worker, Signal::TERM);
        assert!(self.wait(worker).success(), "{}", self.logs());
    }

    /// Waits for the end of a worker's process.
    pub fn wait(&mut self, worker: &str) -> std::process::ExitStatus {
        let at = self.workers.iter().position(|working| working.name == worker).expect("a worker");
        self.workers.remove(at).child.wait().expect("an end")
    }

    pub fn record(&self, job: &str) -> JobRecord {
        self.record_of(&id(job))
    }

    pub fn record_of(&self, id: &JobId) -> JobRecord {
        self.records().get(id).unwrap_or_default()
    }

    pub fn records(&self) -> &Records {
        self.records.as_ref().expect("the records are followed")
    }

    /// Waits until the record of a job is as wanted, and returns it.
    #[track_caller]
    pub fn until_record(&self, job: &str, what: &str, right: impl Fn(&JobRecord) -> bool) -> JobRecord {
        self.until_record_of(&id(job), what, right)
    }

    #[track_caller]
    pub fn until_record_of(&self, id: &JobId, what: &str, right: impl Fn(&JobRecord) -> bool) -> JobRecord {
        let found = self.records().wait(TIMEOUT, |all| all.get(id).filter(|record| right(record)).cloned());
        found.unwrap_or_else(|| {
            panic!("waited in vain until {id} {what}: {:?}\n{}", self.record_of(id), self.logs())
        })
    }

    #[track_caller]
    pub fn until_state(&self, job: &str, state: JobState) -> JobRecord {
        self.until_record(job, &format!("is {}", state.as_str()), |record| record.state == state)
    }

    /// Waits until this worker owns the job.
    #[track_caller]
    pub fn until_owner(&self, job: &str, owner: &str) -> JobRecord {
        self.until_record(job, &format!("is owned by {owner}"), |record| record.owner == owner)
    }

    /// Waits until the records of all jobs hold something.
    #[track_caller]
    pub fn until_jobs<T>(&self, what: &str, found: impl Fn(&BTreeMap<JobId, JobRecord>) -> Option<T>) -> T {
        let found = self.records().wait(TIMEOUT, found);
        found.unwrap_or_else(|| panic!("waited in vain until {what}\n{}", self.logs()))
    }

    /// Waits until the value of a key is as wanted, and returns it.
    #[track_caller]
    fn until_key<T: DeserializeOwned>(
        &self,
        bucket: &str,
        key: &str,
        what: &str,
        right: impl Fn(&T) -> bool,
    ) -> T {
        let found = self.block_on(|client| async move {
            let mut values = client.watch(bucket, key);
            tokio::time::timeout(TIMEOUT, async {
                loop {
                    let value = serde_json::from_slice(&values.next().await.payload).ok();
                    if let Some(value) = value.filter(&right) {
                        return value;
                    }
                }
            })
            .await
        });
        found.unwrap_or_else(|_| panic!("waited in vain until {what}\n{}", self.logs()))
    }

    #[track_caller]
    pub fn until_limit(&self, what: &str, right: impl Fn(&Limit) -> bool) -> Limit {
        self.until_key(names::KV_LIMITS, ACCOUNT, what, right)
    }

    #[track_caller]
    pub fn until_presence(&self, worker: &str, what: &str, right: impl Fn(&Presence) -> bool) -> Presence {
        self.until_key(names::KV_HERE, worker, what, right)
    }

    /// Waits until the journal of a job on the server is as wanted.
    #[track_caller]
    pub fn until_journal(&self, job: &str, what: &str, right: impl Fn(&str) -> bool) {
        let subject = id(job).events_subject();
        let found = self.block_on(|client| async move {
            // Subscribed first, so that no piece is missed. A message is heard before it is stored, so the text is put
            // together here.
            let mut pieces = client.subscribe(&subject).await.expect("subscribed");
            let stored = client.read(names::EVENTS, &subject, dogwatch_fleet::client::From::First).await;
            let mut text: String = stored
                .expect("the stream")
                .iter()
                .map(|piece| String::from_utf8_lossy(&piece.payload).into_owned())
                .collect();
            let wait = async {
                while !right(&text) {
                    let piece = pieces.next().await.expect("connected");
                    text.push_str(&String::from_utf8_lossy(&piece.payload));
                }
            };
            tokio::time::timeout(TIMEOUT, wait).await
        });
        assert!(found.is_ok(), "waited in vain for {what} in the journal of {job}\n{}", self.logs());
    }

    /// Makes the repository refuse every push, or accept them again.
    pub fn refuse_pushes(&self, refuse: bool) {
        let hook = self.repository().join("hooks/pre-receive");
        std::fs::write(&hook, format!("#!/bin/sh\nexit {}\n", i32::from(refuse))).expect("written");
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("a hook");
    }

    /// Waits until an agent of the job works, and returns the worker that owns it.
    #[track_caller]
    pub fn until_works(&self, job: &str, ticks: usize) -> String {
        self.until_marks(&format!("an agent works on {job}"), || {
            self.ticks(job).values().any(|(count, ..)| *count >= ticks)
        });
        // The journal reaches the server a little later.
        self.until_record(job, "names its run", |record| record.run.is_some()).owner
    }

    /// Waits until the marks of the agents are as wanted.
    #[track_caller]
    pub fn until_marks(&self, what: &str, right: impl Fn() -> bool) {
        assert!(self.marks.wait(TIMEOUT, right), "waited in vain until {what}\n{}", self.logs());
    }

    /// Waits for a span in which no agent makes a mark. Returns whether it came within the limit.
    pub fn until_silence(&self, span: Duration, limit: Duration) -> bool {
        self.marks.wait_for_silence(span, limit)
    }

    /// Returns the agents that worked on a job, by pid: the number of marks, the lines of the first and the last one, and
    /// whether the agent came to its end. The order of the lines is the order in time, whatever clocks say.
    pub fn ticks(&self, job: &str) -> BTreeMap<u32, (usize, usize, usize, bool)> {
        self.ticks_of(&id(job))
    }

    pub fn ticks_of(&self, job: &JobId) -> BTreeMap<u32, (usize, usize, usize, bool)> {
        let text = std::fs::read_to_string(self.marks_file()).unwrap_or_default();
        let mut all = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, name, pid, ..] = words.as_slice() else { continue };
            if *name != job.to_string() {
                continue;
            }
            let pid: u32 = pid.parse().expect("a pid");
            let entry = all.entry(pid).or_insert((0, at, at, false));
            entry.0 += 1;
            entry.2 = at;
            entry.3 |= *what == "end";
        }
        all
    }

    /// Asserts that no two agents worked on the job at once and that one of them came to its end.
    pub fn assert_once(&self, job: &str) {
        let agents = self.ticks(job);
        let mut spans: Vec<(usize, usize)> =
            agents.values().map(|(_, first, last, _)| (*first, *last)).collect();
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{job}: two agents worked at once: {agents:?}\n{}", self.logs());
        }
        let ends = agents.values().filter(|(.., ended)| *ended).count();
        assert_eq!(ends, 1, "{job}: {agents:?}\n{}", self.logs());
    }

    /// Returns the revision of a job's record.
    pub fn revision(&self, job: &str) -> u64 {
        let key = id(job).to_string();
        let stored = self.block_on(|client| async move { client.get(names::KV_JOBS, &key).await });
        stored.expect("the server answers").expect("a record").sequence
    }

    /// Returns the sequence number of the last piece of a job's journal.
    pub fn last_piece(&self, job: &str) -> u64 {
        let subject = id(job).events_subject();
        let stored = self.block_on(|client| async move { client.last(names::EVENTS, &subject).await });
        stored.expect("the server answers").expect("a piece").sequence
    }

    /// Returns how many messages are in the queue.
    pub fn queued(&self) -> u64 {
        let info = self.block_on(|client| async move {
            client.api(&format!("STREAM.INFO.{}", names::JOBS), &serde_json::json!({})).await
        });
        info.expect("the stream")["state"]["messages"].as_u64().expect("a number")
    }

    /// Returns what the workers said, for messages of failed tests.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.dir.path()).expect("the directory").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "log") {
                text.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
        text
    }
}

impl Drop for Harbor {
    fn drop(&mut self) {
        for working in &mut self.workers {
            // A stopped process dies, too.
            let _ = working.child.kill();
            let _ = working.child.wait();
        }
        for mut server in self.servers.iter_mut().filter_map(|server| server.child.take()) {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

pub fn git(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
        .args(args)
        .current_dir(dir)
        .output()
        .expect("git runs");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
