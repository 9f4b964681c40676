//! The servers of a fleet: start, stop, wait.

use super::{Growing, Harbor, TIMEOUT};
use crate::kit::nats;
use dogwatch_fleet::names;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

impl Harbor {
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
    pub(super) fn until_ready(&self, what: &str, right: impl Fn() -> bool) {
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
}
