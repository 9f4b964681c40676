//! The workers of a fleet.

use super::{Growing, Harbor, TIMEOUT, Working, id};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};

impl Harbor {
    /// Returns a fleet whose worker anna runs job `one`, which waits for an hour before its second and last iteration.
    pub fn with_waiting_run() -> Harbor {
        let mut harbor = Harbor::with(1, 60, 8);
        harbor.add_script("waits", "delay: 1h", "exit 0\n");
        harbor.start_worker("anna");
        let mut job = harbor.job("waits");
        job.iterations = Some(2);
        harbor.submit_job(&id("one"), &job);
        harbor.until_journal("one", "a wait", |text| text.contains("\"event\":\"wait_started\""));
        harbor
    }

    /// Starts a worker. It connects to this port.
    pub fn start_worker_at(&mut self, worker: &str, port: u16, flags: &[&str]) {
        let line = self.line(worker, port).to_string();
        self.start_worker_by(worker, &line, flags, &mut Command::new(env!("CARGO_BIN_EXE_dogwatch")));
    }

    /// Starts a worker with this join line. The command runs dogwatch, perhaps in another environment. The worker allows every
    /// repository unless the flags say otherwise.
    pub fn start_worker_by(&mut self, worker: &str, line: &str, flags: &[&str], command: &mut Command) {
        let home = self.dir.path().join(worker);
        std::fs::create_dir_all(&home).expect("a home");
        let log = Growing::at(&self.dir.path().join(format!("{worker}.log")));
        command.args(["work", line, "--lease"]).arg(format!("{}s", self.lease));
        if !flags.contains(&"--allow-repo") {
            command.args(["--allow-repo", "*"]);
        }
        let child = self
            .at_home(worker, command)
            .args(flags)
            .env(crate::kit::MARK, self.dir.path())
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
}
