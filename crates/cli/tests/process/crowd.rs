//! Many clients call the agent channel at once, as fast as they can. The verdict of the watchdog is still on time.

use crate::kit::{GRACES, Project, one};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CLIENTS: usize = 20;
const IDLE_MS: u64 = 3_000;

/// Sends heartbeats over one connection until the run closes it.
fn send_heartbeats(socket: &str, key: &str, made: &AtomicU64) -> std::io::Result<()> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let body = json!({"node": "loop", "iteration": 1, "say": "heartbeat"}).to_string();
    let question = format!(
        "POST /v1/mcp HTTP/1.1\r\nhost: run\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = BufReader::new(stream);
    loop {
        stream.get_mut().write_all(question.as_bytes())?;
        let (mut status, mut length) = (String::new(), 0);
        stream.read_line(&mut status)?;
        if !status.starts_with("HTTP/1.1 200") {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().unwrap_or(0);
                }
                Some(_) => {}
                None => break,
            }
        }
        stream.read_exact(&mut vec![0; length])?;
        made.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn many_clients_of_the_agent_channel_delay_no_verdict() {
    let project = Project::new();
    let (env, there) = (project.outside("env"), project.fifo("there"));
    let line = format!(
        "sh -c 'echo \"$DOGWATCH_SOCKET $DOGWATCH_TOKEN\" > {}; echo $$ > {}; exec sleep 1000'",
        env.display(),
        project.path("there").display()
    );
    let front = GRACES.replace('{', "{idle: 3s, ");
    project.ralph(&format!("agent: {}\n{front}", json!(line)), "go");
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    let text = std::fs::read_to_string(&env).expect("written");
    let (socket, key) = text.trim().split_once(' ').expect("two words");
    let made = AtomicU64::new(0);
    let done = std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            // After the session the run refuses calls or closes the connection.
            scope.spawn(|| drop(send_heartbeats(socket, key, &made)));
        }
        run.finish()
    });
    let events = done.events();
    let stop = one(&events, "hard_stop");
    assert_eq!(stop["reason"], "NO_OUTPUT_DEADLINE");
    let at = |event: &serde_json::Value| event["awake_ms"].as_u64().expect("a moment");
    // The benchmark measures how late the verdict is. Here, no heartbeat moves the deadline.
    assert!(at(stop) >= at(one(&events, "session_started")) + IDLE_MS, "{stop}");
    assert_eq!(
        stop["evidence_summary"][1],
        json!({"channel": "mcp_tool", "last_at": null, "age_seconds": null, "counter": 0})
    );
    assert!(made.load(Ordering::Relaxed) > 100, "the clients were served meanwhile");
    project.assert_no_process_left();
}
