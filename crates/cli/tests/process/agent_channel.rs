//! The agent channel with real processes: an agent starts `dogwatch mcp` and calls its run through it.

use crate::kit::{GRACES, Project, Running, all, one};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An agent in Python that prints nothing. It starts its server, initializes it, and repeats the given calls with a
/// pause after each.
const AGENT: &str = r#"
import json, os, subprocess, sys, time
sys.stdin.read()
times, pause = int(sys.argv[1]), float(sys.argv[2])
calls = [json.loads(call) for call in sys.argv[3:]]
server = subprocess.Popen([os.environ["BIN"], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
answers = open(os.environ["ANSWERS"], "a")
number = 0
def ask(method, params):
    global number
    number += 1
    server.stdin.write((json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n").encode())
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    assert answer["id"] == number, answer
    answers.write(json.dumps(answer) + "\n")
ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
server.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
for n in range(times):
    for tool, arguments in calls:
        ask("tools/call", {"name": tool, "arguments": json.loads(json.dumps(arguments).replace("N", str(n)))})
    time.sleep(pause)
answers.close()
server.stdin.close()
assert server.wait() == 0
"#;

fn agent(front: &str, times: u32, pause: &str, calls: &[Value]) -> Project {
    let project = Project::new();
    let answers = project.outside("answers");
    answering(project, &answers, front, times, pause, calls)
}

/// Writes a loop whose agent writes the answers to this file.
fn answering(
    project: Project,
    answers: &Path,
    front: &str,
    times: u32,
    pause: &str,
    calls: &[Value],
) -> Project {
    project.file("agent.py", AGENT);
    let calls: Vec<String> = calls.iter().map(|call| format!("'{call}'")).collect();
    let bin = env!("CARGO_BIN_EXE_dogwatch");
    let line = format!(
        "env BIN={bin} ANSWERS={} python3 agent.py {times} {pause} {}",
        answers.display(),
        calls.join(" ")
    );
    project.ralph(&format!("agent: {}\n{front}", json!(line)), "go");
    project
}

fn answers(project: &Project) -> Vec<Value> {
    let text = std::fs::read_to_string(project.outside("answers")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn origin_1_an_agent_that_prints_nothing_and_makes_calls_is_not_ended() {
    let front = "watchdog: {idle: 6s, grace: 200ms, leak: 300ms}";
    let call = json!(["report_progress", {"message": "file N is ported"}]);
    let project = agent(front, 18, "0.5", &[call]);
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    let events = done.events();
    assert_eq!(all(&events, "hard_stop").len(), 0);
    assert!(!all(&events, "agent_reported").is_empty());
    project.assert_no_process_left();
}

#[test]
fn origin_1_an_agent_that_only_sends_heartbeats_is_ended() {
    let project =
        agent("watchdog: {idle: 6s, grace: 200ms, leak: 300ms}", 1000, "0.5", &[json!(["heartbeat", {}])]);
    let done = project.run(&["-n", "1"]);
    let events = done.events();
    assert_eq!(one(&events, "hard_stop")["reason"], "NO_OUTPUT_DEADLINE");
    project.assert_no_process_left();
}

#[test]
fn a_reported_state_counts_like_a_marker() {
    let calls = [
        json!(["report_state", {"state": "idle", "reason": "no_pending_tasks"}]),
        json!(["save_artifact", {"name": "plan.md", "content": "# the plan"}]),
        json!(["what_failed", {}]),
        json!(["check_done", {}]),
    ];
    let project = agent("idle: {delay: 10ms, stop_after: 1}", 1, "0", &calls);
    let done = project.run(&[]);
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["idle"]), (&json!("idle"), &json!(1)));
    let events = done.events();
    assert_eq!(one(&events, "iteration_idle")["reason"], "no_pending_tasks");
    assert_eq!(one(&events, "marker_seen")["state"], "idle");
    let kept = project.run_dir().join("loop/agent/artifacts/000001/plan.md");
    assert_eq!(std::fs::read_to_string(kept).expect("it is saved"), "# the plan");
    let answers = answers(&project);
    let text = |n: usize| answers[n]["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text(3).starts_with("Nothing has failed"), "{}", text(3));
    assert!(text(4).starts_with("This loop has no checks"), "{}", text(4));
    assert!(!project.run_dir().join("loop/mcp.json").exists(), "the key goes with its run");
}

#[test]
fn the_agent_channel_works_in_the_sandbox() {
    if !crate::sandbox::is_supported() {
        return;
    }
    let calls = [
        json!(["report_progress", {"message": "half of it"}]),
        json!(["save_artifact", {"name": "plan.md", "content": "# the plan"}]),
        json!(["check_done", {}]),
        json!(["report_state", {"state": "idle", "reason": "no_pending_tasks"}]),
    ];
    for mode in ["worktree", "strict"] {
        let front = format!(
            "sandbox: {{mode: {mode}, required: true}}\ndone_when: [test -e plan]\nmax_iterations: 1\n{GRACES}"
        );
        let project = Project::new();
        let answers = project.path("answers");
        let project = answering(project, &answers, &front, 1, "0", &calls);
        let done = project.run(&["-n", "1"]);
        let said = project.lines("answers");
        assert_eq!(said.len(), 5, "{mode}: {said:?} {}", done.stderr);
        assert!(said.iter().all(|answer| answer.contains("\"result\"")), "{mode}: {said:?}");
        assert!(said[3].contains("test -e plan"), "{mode}: {}", said[3]);
        let events = done.events();
        assert_eq!(one(&events, "marker_seen")["state"], "idle", "{mode}");
        assert_eq!(all(&events, "agent_reported").len(), 4, "{mode}");
        let kept = project.run_dir().join("loop/agent/artifacts/000001/plan.md");
        assert_eq!(std::fs::read_to_string(kept).expect("it is saved"), "# the plan");
    }
}

#[test]
fn origin_1_a_saved_artifact_is_named_after_the_node_failed() {
    let front =
        "watchdog: {session: 4s, grace: 100ms, leak: 300ms}\nrecovery: {budget: 1}\ndone_when: ['false']";
    let save = json!(["save_artifact", {"name": "plan.md", "content": "# the plan"}]);
    let project = agent(front, 1, "60", &[save]);
    let done = project.run(&[]);
    assert_ne!(done.code, Some(0), "{}", done.text());
    let file =
        |n: u32| project.run_dir().join(format!("loop/agent/artifacts/{n:06}/plan.md")).display().to_string();
    let prompt = project.prompt(2);
    assert!(prompt.contains(&format!("- {} (10 bytes, iteration 1)", file(1))), "{prompt}");
    let partial = std::fs::read_to_string(project.run_dir().join("loop.partial.md")).expect("it exists");
    assert!(partial.contains(&format!("- `{}` (10 bytes, iteration 2)", file(2))), "{partial}");
    let report = project.call(&["report"]);
    let row = format!("| `plan.md` | iteration 2 | 10 B | `{}` |", file(2));
    assert!(report.text().contains(&row), "{row} in\n{}", report.text());
    project.call(&["report", "--html", "page.html"]).assert_code(0);
    let page = project.read("page.html");
    assert!(page.contains("\"kind\":\"artifact\",\"text\":\"plan.md\""), "the page has its report");
    assert!(page.contains("artifact saved"), "and its label");
}

#[test]
fn an_agent_can_run_the_checks_of_its_loop() {
    let front = "done_when: [test -e done]\nmax_iterations: 1";
    let project = agent(front, 1, "0", &[json!(["check_done", {}])]);
    project.run(&[]);
    let text = answers(&project)[1]["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text.starts_with("1 of 1 checks fail."), "{text}");
}

#[test]
fn a_check_that_the_agent_rewrote_does_not_pass() {
    let front = "done_when: [./check]\nmax_iterations: 1";
    let project = agent(front, 1, "0", &[json!(["check_done", {}])]);
    project.file("check", "#!/bin/sh\nexit 1\n");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path("check"), all).expect("set");
    let script = AGENT.replace("sys.stdin.read()", "sys.stdin.read(); open('check', 'w').write('#!/bin/sh')");
    project.file("agent.py", &script);
    let events = project.run(&[]).events();
    let text = answers(&project)[1]["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text.starts_with("The checks FAIL and were not run"), "{text}");
    let text = &one(&events, "agent_reported")["text"];
    assert_eq!(text, "1 of 1 check failed (run by the agent); pinned files changed: check");
    assert_eq!(
        one(&events, "check_tampered")["files"],
        json!(["check"]),
        "dogwatch's own check run reports the same"
    );
}

/// Used as the status if the run closed the connection without an answer.
const CUT_OFF: u16 = 0;

/// Posts to the agent channel of a run and returns the HTTP status.
fn post(socket: &str, key: &str, body: &str) -> u16 {
    let mut stream = UnixStream::connect(socket).expect("the run listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let head = format!(
        "POST /v1/mcp HTTP/1.1\r\nhost: run\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // The run refuses an oversized body before it has read all of it, so this write may fail.
    let _ = stream.write_all((head + body).as_bytes());
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    match (answer.get(9..12).and_then(|code| code.parse().ok()), end) {
        (Some(status), _) => status,
        (None, Err(error)) if error.kind() == ErrorKind::ConnectionReset => CUT_OFF,
        (None, end) => panic!("no status in {answer:?} ({end:?})"),
    }
}

#[test]
fn a_session_is_identified_only_by_its_key_which_is_in_no_command_line() {
    let project = Project::new();
    let (env, there, gate) = (project.outside("env"), project.fifo("there"), project.gate("gate"));
    let line = format!(
        "sh -c 'echo \"$DOGWATCH_SOCKET $DOGWATCH_TOKEN\" > {}; echo $$ > {}; read x < {}; true'",
        env.display(),
        project.path("there").display(),
        project.path("gate").display()
    );
    project.ralph(&format!("agent: {}\n{GRACES}", json!(line)), "go");
    let mut run = project.start_run(&["-n", "1"]);
    run.wait_for("session_started");
    there.pid();
    let text = std::fs::read_to_string(&env).expect("written");
    let (socket, key) = text.trim().split_once(' ').expect("two words");
    let letter = |node: &str, iteration: u64| {
        json!({"node": node, "iteration": iteration, "say": "heartbeat"}).to_string()
    };
    assert_eq!(post(socket, key, &letter("loop", 1)), 200);
    assert_eq!(post(socket, "wrong", &letter("loop", 1)), 401);
    assert_eq!(post(socket, "", &letter("loop", 1)), 401);
    assert_eq!(post(socket, key, &letter("loop", 2)), 409);
    assert_eq!(post(socket, key, &letter("other", 1)), 409);
    assert_eq!(post(socket, key, "{\"node\":"), 400);
    assert_eq!(
        post(socket, key, &json!({"node": "loop", "iteration": 1, "say": "nonsense"}).to_string()),
        400
    );
    let huge =
        json!({"node": "loop", "iteration": 1, "say": "error", "text": "x".repeat(100_000)}).to_string();
    assert!(matches!(post(socket, key, &huge), 413 | CUT_OFF));
    assert_eq!(post(socket, key, &format!("{}{}", "[".repeat(200), "]".repeat(200))), 400);
    let key = key.to_owned();
    gate.open();
    let done = run.finish();
    done.assert_code(0);
    let journal = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("the record");
    assert!(!journal.contains(&key), "the record holds the key of a session");
}

/// An agent that takes a URL: it starts the server, reads its address, and leaves it running when it exits.
const URL_AGENT: &str = r#"
import json, os, subprocess, sys, urllib.error, urllib.request
sys.stdin.read()
if "DOGWATCH_MCP_URL" in os.environ:
    url, argv = os.environ["DOGWATCH_MCP_URL"], ""
else:
    server = subprocess.Popen([os.environ["BIN"], "mcp", "--http"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    url, argv = server.stdout.readline().decode().strip(), open("/proc/%d/cmdline" % server.pid).read()
assert url.startswith("http://127.0.0.1:") and url.endswith("/mcp"), url
assert os.environ["DOGWATCH_TOKEN"] not in argv
session = None
def post(message, key=os.environ["DOGWATCH_TOKEN"]):
    global session
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json",
               "Accept": "application/json, text/event-stream"}
    if session:
        headers["Mcp-Session-Id"] = session
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        session = answer.headers.get("Mcp-Session-Id", session)
        lines = answer.read().decode().splitlines()
        return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]
post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
post({"jsonrpc": "2.0", "method": "notifications/initialized"})
call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "report_progress", "arguments": {"message": "over HTTP"}}}
open(os.environ["ANSWERS"], "w").write(json.dumps(post(call)[0]))
try:
    post(call, "0" * 32)
    raise SystemExit("a wrong key was taken")
except urllib.error.HTTPError as refused:
    assert refused.code == 401, refused.code
"#;

#[test]
fn an_agent_calls_its_run_over_http_and_the_server_ends_with_the_session() {
    let (bin, python) = (env!("CARGO_BIN_EXE_dogwatch"), "python3 agent.py");
    for line in [python.to_owned(), format!("{bin} mcp --http -- {python}")] {
        let project = Project::new();
        project.file("agent.py", URL_AGENT);
        let answers = project.outside("answers");
        let line = format!("env BIN={bin} ANSWERS={} {line}", answers.display());
        project.ralph(&format!("agent: {}\n{GRACES}", json!(line)), "go");
        let done = project.run(&["-n", "1"]);
        done.assert_code(0);
        let events = done.events();
        assert_eq!(one(&events, "agent_reported")["text"], "over HTTP");
        let answer = std::fs::read_to_string(answers).expect("the answers are saved");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["result"]["content"][0]["text"], "Noted.");
        project.assert_no_process_left();
    }
}

#[test]
fn the_agent_channel_can_be_disabled() {
    let project = Project::new();
    let env = project.outside("env");
    let line = format!("sh -c 'env > {}'", env.display());
    project.ralph(&format!("agent: {}\nmcp: false\n{GRACES}", json!(line)), "go");
    project.run(&["-n", "1"]).assert_code(0);
    let text = std::fs::read_to_string(env).expect("written");
    assert!(text.contains("DOGWATCH_NODE=") && !text.contains("DOGWATCH_TOKEN"), "{text}");
}

#[test]
fn gemini_gets_another_home_where_it_would_ignore_our_settings() {
    let project = Project::new();
    let (home, seen) = (project.outside("home"), project.outside("seen"));
    std::fs::create_dir_all(home.join(".gemini")).expect("made");
    let settings = r#"{"mcpServers":{"mine":{"command":"true"}}}"#;
    std::fs::write(home.join(".gemini/settings.json"), settings).expect("written");
    std::fs::write(home.join(".gemini/oauth_creds.json"), "who\n").expect("written");
    // Other users may write to a parent directory. Gemini CLI refuses settings there for every user.
    let open = project.outside("open");
    std::fs::create_dir(&open).expect("made");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).expect("set");
    let line = format!(
        "sh -c 'cd $GEMINI_CLI_HOME/.gemini && cat oauth_creds.json settings.json > {}; echo said > tmp/chat'",
        seen.display()
    );
    project.ralph(&format!("agent: {}\nreader: gemini\n{GRACES}", json!(line)), "go");
    let mut command = project.command(&["run", "loop", "-n", "1"]);
    command.env("HOME", &home).env("XDG_STATE_HOME", open.join("state")).env_remove("GEMINI_CLI_HOME");
    Running::start(command).finish();
    let text = std::fs::read_to_string(&seen).expect("its home is there");
    let (who, given) = text.split_once('\n').expect("two files");
    let given: Value = serde_json::from_str(given).expect("settings");
    assert_eq!((who, &given["mcpServers"]["mine"]["command"]), ("who", &json!("true")));
    assert_eq!(given["mcpServers"]["dogwatch"]["args"][0], "mcp");
    let left = std::fs::read_dir(open.join("state/dogwatch/mcp")).expect("it exists").count();
    assert_eq!(left, 0, "the home goes with the session");
    let own = std::fs::read_to_string(home.join(".gemini/settings.json")).expect("it exists");
    let chat = std::fs::read_to_string(home.join(".gemini/tmp/chat")).expect("it is saved");
    assert_eq!((own.as_str(), chat.as_str()), (settings, "said\n"));
    assert!(all(&project.journal(), "trouble").is_empty());
}
