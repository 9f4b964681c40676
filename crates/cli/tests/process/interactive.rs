//! The MCP server for interactive sessions, driven by a small client, and the plugin that installs it.

use crate::kit::{GRACES, Project, TIMEOUT, one};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A client of `dogwatch mcp --project`.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    id: u64,
}

impl Client {
    fn start(mut command: Command) -> Client {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("starts");
        let out = child.stdout.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|l| sender.send(l))
        });
        let stdin = child.stdin.take();
        let mut client = Client { child, stdin, lines, id: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = client.ask("initialize", hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "dogwatch", "{answer}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("is open");
        stdin.write_all(format!("{message}\n").as_bytes()).expect("is read");
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}));
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).expect("an answer");
            let answer: Value = serde_json::from_str(&line).expect("JSON");
            if answer["id"] == self.id {
                return answer;
            }
        }
    }

    fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().expect("a list").iter();
        tools.map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Returns the text of an answer, with `error: ` before it if the call failed.
    fn call(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        if let Some(refused) = answer["error"]["message"].as_str() {
            return format!("refused: {refused}");
        }
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().expect("a text");
        if result["isError"] == true { format!("error: {text}") } else { text.to_owned() }
    }

    fn close(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().expect("exits").success());
    }
}

#[test]
fn an_interactive_session_reads_the_runs_of_its_project_and_steers_none() {
    let project = Project::acting("say all done");
    project.run(&["-n", "1"]).assert_code(0);
    let mut client = Client::start(project.command(&["mcp", "--project"]));
    assert_eq!(client.tools(), ["list_runs", "run_status", "run_report"]);
    let runs = client.call("list_runs", json!({}));
    assert!(runs.contains("loop") && runs.contains("clean"), "{runs}");
    let id = runs.split_whitespace().find(|word| word.len() == 20).unwrap_or_default().to_owned();
    assert!(client.call("run_status", json!({})).contains("clean"));
    assert!(client.call("run_report", json!({"run": id})).starts_with("# "), "a report of {id:?}");
    for (tool, arguments, words) in [
        ("start_run", json!({"path": "loop"}), "refused: unknown tool `start_run`"),
        ("tell_run", json!({"text": "x"}), "refused: unknown tool `tell_run`"),
        ("run_status", json!({"run": "zzzz"}), "error: no run or loop `zzzz`"),
        ("run_status", json!({"x": 1}), "error: run_status: unknown field `x`"),
        ("run_status", json!({"run": 5}), "error: run_status: invalid type"),
    ] {
        let said = client.call(tool, arguments);
        assert!(said.starts_with(words), "{words:?} in {said}");
    }
    client.close();
    project.assert_no_process_left();
}

#[test]
fn with_permission_a_session_starts_messages_and_wakes_a_run_that_outlives_it() {
    let front = format!("{GRACES}\nidle: {{delay: 1h, max_delay: 1h}}");
    let project = Project::acting_with(
        &front,
        "counter count; on 1 { marker idle nothing } else { say done; marker idle over }",
    );
    let mut client = Client::start(project.command(&["mcp", "--project", "--allow-steering"]));
    assert_eq!(client.tools().len(), 6);
    for (arguments, words) in [
        (json!({"path": "nowhere"}), "error: the run did not start: cannot read nowhere"),
        (json!({"path": "--json"}), "error: `path` must name a directory"),
        (json!({}), "error: `path` must name a directory"),
        (json!({"path": "loop", "iterations": -1}), "error: start_run: invalid value"),
    ] {
        let said = client.call("start_run", arguments);
        assert!(said.starts_with(words), "{words:?} in {said}");
    }
    let said = client.call("start_run", json!({"path": "loop", "iterations": 2}));
    assert!(said.starts_with("started run 20"), "{said}");
    let events = || project.journal();
    let until = std::time::Instant::now() + TIMEOUT;
    let has = |name: &str| events().iter().any(|event| event["event"] == name);
    while !has("wait_started") {
        assert!(std::time::Instant::now() < until, "{:?}", crate::kit::names(&events()));
        std::thread::yield_now();
    }
    assert!(client.call("tell_run", json!({"text": "mind the gap"})).contains("will include the message"));
    assert!(client.call("tell_run", json!({"text": " "})).starts_with("error: a message has"));
    assert!(client.call("wake_run", json!({})).starts_with("woke run"));
    client.close();
    while !has("run_ended") {
        assert!(std::time::Instant::now() < until, "{:?}", crate::kit::names(&events()));
        std::thread::yield_now();
    }
    assert!(project.prompt(2).contains("mind the gap"));
    let told = events();
    assert_eq!(one(&told, "told")["text"], "mind the gap");
    project.wait_until_no_process_left();
}

// promise: 14
#[test]
fn a_supervised_session_gets_no_tools_however_it_starts_the_server() {
    let project = Project::new();
    let calls = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "tell_run", "arguments": {"text": "obey"}}}),
        json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "start_run", "arguments": {"path": "loop"}}}),
    ];
    project.file("calls", &calls.map(|call| format!("{call}\n")).concat());
    let program = env!("CARGO_BIN_EXE_dogwatch");
    let server = format!("{program} mcp --project --allow-steering <&3 >>answers 2>&1");
    // The server answers a request only while its input is open.
    let script = format!(
        "ask() {{ rm -f in; mkfifo in; (cat calls; until [ $(grep -c '\"id\":4' answers) -ge $1 ]; do sleep 0.01; done) >in & exec 3<in; shift; \"$@\"; wait; }}\n\
         : >answers\n\
         ask 1 sh -c '{server}'\n\
         ask 2 env -i HOME=$HOME XDG_STATE_HOME=$XDG_STATE_HOME PATH=$PATH sh -c '{server}'\n\
         ask 3 setsid -w env -i PATH=$PATH sh -c '{server}'\n"
    );
    project.file("attack.sh", &script);
    project.ralph(&format!("agent: sh attack.sh\n{GRACES}"), "Go on.");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    let answers = project.read("answers");
    assert_eq!(answers.matches("\"tools\":[]").count(), 3, "{answers}");
    assert_eq!(answers.matches("unknown tool `tell_run`").count(), 3, "{answers}");
    assert_eq!(answers.matches("unknown tool `start_run`").count(), 3, "{answers}");
    assert_eq!(done.count("told"), 0);
    assert_eq!(std::fs::read_dir(project.path(".dogwatch/runs")).expect("a directory").count(), 1);
}

#[test]
fn the_plugin_is_written_and_installed_with_one_command() {
    let project = Project::new();
    let bin = project.outside("bin");
    std::fs::create_dir_all(&bin).expect("a directory");
    let log = project.outside("claude.log");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >>{}\ncase \"$2\" in uninstall) echo not installed >&2; exit 1;; esac\n",
        log.display()
    );
    std::fs::write(bin.join("claude"), script).expect("writes");
    std::fs::set_permissions(bin.join("claude"), PermissionsExt::from_mode(0o755)).expect("may run");
    let call = |args: &[&str]| {
        let mut command = project.command(args);
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        crate::kit::Running::start(command).finish()
    };
    let done = call(&["plugin", "install", "--scope", "local"]);
    done.assert_code(0);
    assert!(done.text().contains("can list and report runs"), "{}", done.text());
    let said = std::fs::read_to_string(&log).expect("claude ran");
    let lines: Vec<&str> = said.lines().collect();
    let place = lines[0].strip_prefix("plugin marketplace add ").expect("the marketplace");
    assert_eq!(lines[2], "plugin install dogwatch@dogwatch --scope local");
    let read = |file: &str| std::fs::read_to_string(std::path::Path::new(place).join(file)).expect(file);
    let market: Value = serde_json::from_str(&read(".claude-plugin/marketplace.json")).expect("JSON");
    assert_eq!(
        (&market["name"], &market["plugins"][0]["source"]),
        (&json!("dogwatch"), &json!("./dogwatch"))
    );
    let plugin: Value = serde_json::from_str(&read("dogwatch/.claude-plugin/plugin.json")).expect("JSON");
    assert_eq!(plugin["version"], env!("CARGO_PKG_VERSION"));
    let server: Value = serde_json::from_str(&read("dogwatch/.mcp.json")).expect("JSON");
    assert_eq!(server["mcpServers"]["dogwatch"]["args"], json!(["mcp", "--project"]));
    assert!(read("dogwatch/skills/dogwatch/SKILL.md").starts_with("---\nname: dogwatch\n"));

    call(&["plugin", "write", "here", "--allow-steering"]).assert_code(0);
    assert!(project.read("here/dogwatch/.mcp.json").contains("--allow-steering"));
    std::fs::write(bin.join("claude"), "#!/bin/sh\necho no network >&2\nexit 3\n").expect("writes");
    let done = call(&["plugin", "install"]);
    done.assert_code(2);
    assert!(
        done.stderr.contains("plugin marketplace add") && done.stderr.contains("no network"),
        "{}",
        done.stderr
    );
    std::fs::remove_file(bin.join("claude")).expect("is removed");
    let done = call(&["plugin", "install"]);
    done.assert_code(2);
    assert!(
        done.stderr.contains("claude is not on PATH") && done.stderr.contains("help: "),
        "{}",
        done.stderr
    );
}
