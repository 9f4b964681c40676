//! Notifications by a command and by a local webhook. Unsafe addresses are refused.

use crate::kit::{GRACES, Project, TIMEOUT, all, kinds, names, one};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

/// A request that the webhook received.
#[derive(Debug)]
struct Posted {
    line: String,
    headers: Vec<String>,
    body: String,
}

impl Posted {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a notification is JSON")
    }
}

/// A local server that answers every request with this status.
struct Hook {
    address: SocketAddr,
    posted: Receiver<Posted>,
}

impl Hook {
    fn answering(answer: &'static str) -> Hook {
        Hook::answering_with(answer, "")
    }

    fn answering_with(answer: &'static str, body: &'static str) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (sender, posted) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(one) = read(&stream) {
                    let _ = sender.send(one);
                }
                let head = format!("HTTP/1.1 {answer}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = (&stream).write_all(head.as_bytes());
            }
        });
        Hook { address, posted }
    }

    fn url(&self) -> String {
        format!("http://{}/hook/secret", self.address)
    }

    fn next(&self) -> Posted {
        self.posted.recv_timeout(TIMEOUT).expect("a request arrives")
    }
}

/// Returns `None` if the bytes are not an HTTP request, such as a TLS handshake.
fn read(stream: &TcpStream) -> Option<Posted> {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a bound");
    let mut from = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|n| *n > 0)?;
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_ascii_lowercase()),
        }
    }
    let length = lines.iter().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok())?;
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    let line = lines.remove(0);
    Some(Posted { line, headers: lines, body: String::from_utf8(body).ok()? })
}

fn notified(events: &[Value]) -> Vec<(&str, &str, bool)> {
    let sent = all(events, "notified").into_iter();
    sent.map(|e| {
        let text = |name: &str| e[name].as_str().expect("a text");
        (text("key"), text("how"), e["ok"].as_bool().expect("a flag"))
    })
    .collect()
}

#[test]
fn a_command_gets_each_notification_on_stdin_once_and_the_end_last() {
    let front = "notify: {command: cat >> ../news}\nwatchdog: {session: 300ms, grace: 200ms}";
    let project = Project::acting_with(front, "counter ../count\non 1 { hang } else { say done }");
    let done = project.run(&["-n", "2"]);
    done.assert_code(0);
    let events = done.events();
    assert_eq!(notified(&events), [("hard_stop:loop:1", "command", true), ("ended:1", "command", true)]);
    assert_eq!(names(&events).last(), Some(&"run_ended"));
    let text = std::fs::read_to_string(project.outside("news")).expect("the command wrote it");
    let news: Vec<Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("one document a line")).collect();
    assert_eq!(news.len(), 2, "{text}");
    assert_eq!(news[0]["news"], "hard_stop");
    assert_eq!(news[0]["hard_stop"]["reason"], "SESSION_CEILING_EXCEEDED");
    assert_eq!(news[0]["hard_stop"]["evidence_summary"].as_array().map(Vec::len), Some(4));
    assert_eq!(news[1]["ended"]["outcome"], "clean");
    assert_eq!(news[1]["run"], one(&events, "run_started")["run"]);
}

#[test]
fn a_command_that_fails_is_trouble_and_nothing_else_changes() {
    let front = format!("notify: {{on: ended, command: exit 7}}\n{GRACES}");
    let project = Project::acting_with(&front, "say done");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    let events = done.events();
    assert_eq!(notified(&events), [("ended:1", "command", false)]);
    assert_eq!(one(&events, "notified")["detail"], "exit code 7");
    assert_eq!(kinds(&events, "notify").len(), 1);
}

#[test]
fn leftover_processes_of_a_notify_command_are_killed() {
    let front = format!("notify: {{command: (setsid sleep 1000 &) ; true}}\n{GRACES}");
    let project = Project::acting_with(&front, "say done");
    // `run` asserts that no process is left.
    assert_eq!(notified(&project.run(&["-n", "1"]).events()), [("ended:1", "command", true)]);
}

#[test]
fn a_webhook_gets_notifications_as_json_and_its_address_is_not_recorded() {
    let hook = Hook::answering("204 No Content");
    let front = format!("notify: {{on: [ended], webhook: \"{}\"}}\n{GRACES}", hook.url());
    let project = Project::acting_with(&front, "say done");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert_eq!(notified(&done.events()), [("ended:1", "webhook", true)]);
    let posted = hook.next();
    assert_eq!(posted.line, "post /hook/secret http/1.1");
    assert!(posted.headers.contains(&"content-type: application/json".to_owned()), "{:?}", posted.headers);
    let news = posted.json();
    assert_eq!((&news["key"], &news["news"]), (&Value::from("ended:1"), &Value::from("ended")));
    assert!(news["text"].as_str().is_some_and(|t| t.starts_with("the run ended: clean")), "{news}");
    let record = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("the record");
    assert!(record.contains("/***") && !record.contains("hook/secret"), "the path of an address is a secret");
}

#[test]
fn a_redirect_is_not_followed() {
    let hook = Hook::answering("302 Found\r\nlocation: http://127.0.0.1:1/elsewhere");
    let front = format!("notify: {{webhook: \"{}\"}}\n{GRACES}", hook.url());
    let project = Project::acting_with(&front, "say done");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    let events = done.events();
    assert_eq!(one(&events, "notified")["detail"], "answered with a redirect (302), which is not followed");
    hook.next();
    assert!(hook.posted.try_recv().is_err(), "asked once");
}

#[test]
fn an_unavailable_webhook_is_tried_twice_and_then_is_trouble() {
    let hook = Hook::answering("503 Busy");
    let front = format!("notify: {{webhook: \"{}\"}}\n{GRACES}", hook.url());
    let project = Project::acting_with(&front, "say done");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert_eq!(one(&done.events(), "notified")["detail"], "answered with status 503 (2 tries)");
    assert_eq!(hook.posted.try_iter().count(), 2);
}

#[test]
fn an_https_webhook_gets_no_plain_text() {
    let hook = Hook::answering("200 OK");
    let url = hook.url().replace("http://", "https://");
    let front = format!("notify: {{webhook: \"{url}\"}}\n{GRACES}");
    let project = Project::acting_with(&front, "say done");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    let events = done.events();
    assert_eq!(notified(&events), [("ended:1", "webhook", false)]);
    assert!(hook.posted.try_recv().is_err(), "nothing was sent in the clear");
    assert!(!one(&events, "notified")["detail"].as_str().expect("why").contains("secret"));
}

#[test]
fn http_to_another_machine_is_refused_before_anything_starts() {
    let project = Project::acting_with("notify: {webhook: 'http://example.com/x'}", "say done");
    let done = project.call(&["run", "loop", "-n", "1"]);
    done.assert_code(2);
    assert!(done.stderr.contains("loop/RALPH.md:3:19"), "{}", done.stderr);
    assert!(done.stderr.contains("http is allowed only to this machine"), "{}", done.stderr);
    assert!(!project.path(".dogwatch").exists());
}

#[test]
fn a_hanging_notification_delays_no_iteration_and_a_second_signal_ends_the_wait() {
    let front = "notify: {command: sleep 1000}\nwatchdog: {session: 200ms, grace: 100ms}";
    let project = Project::acting_with(front, "counter ../count\non 1 { hang } else { say done }");
    let mut running = project.start_run(&["-n", "2"]);
    running.wait_for("hard_stop");
    running.wait_until("the second session", |e| e["event"] == "session_started" && e["iteration"] == 2);
    running.wait_for("iteration_completed");
    running.wait_until("the last transition", |e| e["event"] == "node_transition" && e["to"] == "done");
    running.signal(rustix::process::Signal::TERM);
    let done = running.finish();
    done.assert_code(0);
    let events = done.events();
    assert!(notified(&events).iter().all(|(_, _, ok)| !ok), "{:?}", notified(&events));
    assert_eq!(names(&events).last(), Some(&"run_ended"));
    project.wait_until_no_process_left();
}

#[test]
fn a_resumed_run_sends_the_notifications_that_were_not_sent() {
    let hook = Hook::answering("200 OK");
    let front = format!("notify: {{on: [ended], webhook: \"{}\"}}\n{GRACES}", hook.url());
    let project =
        Project::acting_with(&front, "counter ../count\non 1 { ready there; hang } else { say done }");
    let there = project.fifo("there");
    let mut running = project.start_run(&["-n", "1"]);
    running.wait_for("session_started");
    // The agent has incremented its counter by now.
    there.pid();
    running.kill();
    project.wait_until_no_process_left();
    let done = project.call(&["resume", "--json"]);
    done.assert_code(0);
    assert_eq!(notified(&done.events()), [("ended:1", "webhook", true)]);
    assert_eq!(hook.next().line, "post /hook/secret http/1.1");
    assert!(hook.posted.try_recv().is_err(), "notified once");
}

// --- presets ----------------------------------------------------------------------------------------------

/// A program in front of PATH that records its arguments, one per line.
fn fake_notify_send(project: &Project) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let bin = project.outside("bin");
    std::fs::create_dir_all(&bin).expect("a directory");
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >> {}\n", project.outside("shown").display());
    std::fs::write(bin.join("notify-send"), script).expect("writes");
    std::fs::set_permissions(bin.join("notify-send"), PermissionsExt::from_mode(0o755)).expect("may run");
    bin
}

const TOKEN: &str = "1234567:abcdefghijklmnopqrstuvwxyz_secret";

fn all_presets(hook: &Hook) -> String {
    let at = hook.address;
    format!(
        "notify:\n  on: [ended]\n  ntfy: http://{at}/my-secret-topic\n  slack: http://{at}/services/T/B/slack-secret\n  \
         discord: http://{at}/api/webhooks/1/discord-secret\n  telegram: {{token: \"{TOKEN}\", chat: -1001, api: \"http://{at}\"}}\n  \
         desktop: true\n{GRACES}"
    )
}

fn with_path(mut command: std::process::Command, bin: &std::path::Path) -> std::process::Command {
    let path = std::env::var("PATH").expect("a PATH");
    command.env("PATH", format!("{}:{path}", bin.display()));
    command
}

#[test]
fn every_preset_posts_what_its_service_expects_once_and_no_secret_is_recorded() {
    let hook = Hook::answering("200 OK");
    let project = Project::acting_with(&all_presets(&hook), "say done");
    let bin = fake_notify_send(&project);
    let command = with_path(project.command(&["run", "loop", "-n", "1", "--json"]), &bin);
    let done = crate::kit::Running::start(command).finish();
    done.assert_code(0);
    let events = done.events();
    let hows: Vec<&str> =
        notified(&events).iter().map(|(_, how, ok)| if *ok { *how } else { "failed" }).collect();
    assert_eq!(hows, ["ntfy", "slack", "discord", "telegram", "desktop"]);

    let ntfy = hook.next();
    assert_eq!(ntfy.line, "post / http/1.1");
    assert!(ntfy.headers.contains(&"content-type: application/json".to_owned()), "{:?}", ntfy.headers);
    let json = ntfy.json();
    assert_eq!(
        (&json["topic"], &json["title"]),
        (&Value::from("my-secret-topic"), &Value::from("loop: run ended, clean"))
    );
    assert!(json["message"].as_str().is_some_and(|m| m.starts_with("the run ended: clean")), "{json}");
    assert_eq!((&json["priority"], &json["tags"][0]), (&Value::from(3), &Value::from("white_check_mark")));

    let slack = hook.next();
    assert_eq!(slack.line, "post /services/t/b/slack-secret http/1.1");
    let json = slack.json();
    assert!(
        json["text"].as_str().is_some_and(|t| t.starts_with("loop: run ended, clean\nthe run ended")),
        "{json}"
    );

    let discord = hook.next();
    assert_eq!(discord.line, "post /api/webhooks/1/discord-secret http/1.1");
    let json = discord.json();
    assert_eq!(json["allowed_mentions"], serde_json::json!({"parse": []}));
    assert!(json["content"].as_str().is_some_and(|t| t.contains("run ended, clean")), "{json}");

    let telegram = hook.next();
    assert_eq!(telegram.line, format!("post /bot{}/sendmessage http/1.1", TOKEN.to_ascii_lowercase()));
    let json = telegram.json();
    assert_eq!(json["chat_id"], "-1001");
    assert!(json.get("parse_mode").is_none(), "{json}");

    let shown = std::fs::read_to_string(project.outside("shown")).expect("notify-send ran");
    assert!(
        shown.starts_with("--app-name=dogwatch\n--urgency=normal\n--\nloop: run ended, clean\n"),
        "{shown}"
    );
    assert!(hook.posted.try_recv().is_err(), "each is sent once");

    let record = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("the record");
    let explained = project.call(&["check", "loop", "--explain"]).text();
    for secret in ["my-secret-topic", "slack-secret", "discord-secret", "abcdefghijklmnopqrstuvwxyz"] {
        assert!(!record.contains(secret) && !explained.contains(secret), "{secret}");
    }
}

#[test]
fn a_refusal_names_the_reason_of_the_service_without_the_secret() {
    let hook = Hook::answering_with(
        "403 Forbidden",
        "{\"ok\":false,\"description\":\"Forbidden for bot1234567:abcdefghijklmnopqrstuvwxyz_secret\"}",
    );
    let front = format!(
        "notify: {{telegram: {{token: \"{TOKEN}\", chat: 1, api: \"http://{}\"}}}}\n{GRACES}",
        hook.address
    );
    let project = Project::acting_with(&front, "say done");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert_eq!(one(&done.events(), "notified")["detail"], "answered with status 403: Forbidden for ***");
}

#[test]
fn a_test_notification_reaches_every_target_and_records_nothing() {
    let hook = Hook::answering("200 OK");
    let project = Project::acting_with(&all_presets(&hook), "say done");
    let bin = fake_notify_send(&project);
    let done = crate::kit::Running::start(with_path(project.command(&["notify", "loop"]), &bin)).finish();
    done.assert_code(0);
    assert_eq!(done.text(), "ntfy: sent\nslack: sent\ndiscord: sent\ntelegram: sent\ndesktop: sent\n");
    assert_eq!(hook.next().json()["title"], "loop: test notification");
    assert!(!project.path(".dogwatch").exists());
    project.assert_no_process_left();

    let busy = Hook::answering_with("500 Oops", "no room");
    let front = format!("notify: {{slack: \"http://{}/x\", command: exit 3}}", busy.address);
    let project = Project::acting_with(&front, "say done");
    let done = project.call(&["notify", "loop"]);
    done.assert_code(1);
    assert_eq!(
        done.text(),
        "command: not sent: exit code 3\nslack: not sent: answered with status 500: no room (2 tries)\n"
    );
    let project = Project::acting("say done");
    let done = project.call(&["notify", "loop"]);
    done.assert_code(2);
    assert!(done.stderr.contains("has no target") && done.stderr.contains("help: "), "{}", done.stderr);
}

#[test]
fn while_serve_runs_a_notification_links_to_the_run() {
    let hook = Hook::answering("200 OK");
    let front = format!("notify: {{on: [ended], webhook: \"{}\"}}\n{GRACES}", hook.url());
    let project = Project::acting_with(&front, "say done");
    let mut serve = crate::kit::Running::start(project.command(&["serve", "--listen", "127.0.0.1:0"]));
    let url = serve.wait_for_line("http://");
    let (page, token) = url.trim().split_once("#token=").expect("a token");
    let done = project.call(&["run", "loop", "-n", "1", "--json"]);
    done.assert_code(0);
    let run = one(&done.events(), "run_started")["run"].as_str().expect("an id").to_owned();
    let news = hook.next();
    assert_eq!(news.json()["link"], format!("{page}#/run/{run}"));
    assert!(!news.body.contains(token), "the token stays here");
    serve.signal(rustix::process::Signal::TERM);
    serve.finish();
    project.run(&["-n", "1"]).assert_code(0);
    assert!(hook.next().json().get("link").is_none(), "no server, no link");
}

#[test]
fn invalid_targets_are_refused_with_their_place() {
    for (value, words) in [
        ("{ntfy: \"https://ntfy.sh\"}", "name a topic"),
        ("{slack: \"http://hooks.slack.com/x\"}", "http is allowed only to this machine"),
        ("{telegram: {token: \"abc\", chat: 1}}", "NUMBER:LETTERS"),
        ("{telegram: {token: \"1234567:abcdefghijklmnopqrstuvwxyz\"}}", "needs a `chat`"),
        ("{telegram: {chat: 5}}", "needs a `token`"),
        ("{telegram: {token: \"1234567:abcdefghijklmnopqrstuvwxyz\", chat: me}}", "a chat is a number"),
        ("{on: [ended]}", "`notify` needs a target"),
        ("{on: [test], command: x}", "must be one of"),
        ("{desktop: maybe}", "must be true or false"),
    ] {
        let project = Project::acting_with(&format!("notify: {value}"), "say done");
        let done = project.call(&["check", "loop"]);
        done.assert_code(2);
        assert!(
            done.stderr.contains("loop/RALPH.md:3:") && done.stderr.contains(words),
            "{value}: {}",
            done.stderr
        );
    }
}
