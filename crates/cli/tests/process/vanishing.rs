//! Clients of the agent channel that disappear during a request or use a wrong key. Their pending work is stopped, and
//! the run continues.

use crate::kit::{GRACES, Project, all, one};
use serde_json::{Value, json};

/// An agent in Python that starts its server, sends a request, and then disappears in the given way.
const AGENT: &str = r#"
import json, os, subprocess, sys
sys.stdin.read()
what, how = sys.argv[1:]
if os.path.exists("second"):
    sys.exit(0)
open("second", "w").close()

def start(*session):
    server = subprocess.Popen([os.environ["BIN"], "mcp", *session], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    put(server, {"id": 1, "method": "initialize", "params": hello})
    server.stdout.readline()
    put(server, {"method": "notifications/initialized"})
    return server

def put(server, message):
    server.stdin.write((json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())
    server.stdin.flush()

def call(server, number, tool, arguments):
    put(server, {"id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})

def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

busy = []
server = start()
if what == "check":
    os.mkfifo("started")
    open("asked", "w").close()
    call(server, 2, "check_done", {})
    with open("started") as started:
        busy.append(int(started.readline()))
    os.remove("asked")
elif what == "call":
    os.mkfifo("log")
    put(server, {"id": 2, "method": "tools/list"})
    with open("log") as log:
        busy.append(int(log.readline().split()[1]))
        server.stdout.readline()
        call(server, 3, "hang", {})
        while '"hang"' not in log.readline():
            pass
elif what == "half":
    server.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"report_er')
    server.stdin.flush()
elif what == "letters":
    answers = []
    for key, value in (("token", "0" * 32), ("iteration", 7), ("node", "other"), ("token", "")):
        with open(os.environ["DOGWATCH_MCP"]) as file:
            session = {**json.load(file), key: value}
        with open("session", "w") as file:
            json.dump(session, file)
        other = start("--session", "session")
        for number, (tool, arguments) in enumerate((("report_progress", {"message": "I am another"}),
                ("check_done", {}), ("save_artifact", {"name": "a", "content": "b"})), 2):
            call(other, number, tool, arguments)
            answers.append(json.loads(other.stdout.readline())["result"])
        other.stdin.close()
        other.wait()
    with open("answers", "w") as file:
        json.dump(answers, file)

assert not any(map(is_gone, busy)), "the request is pending"
if how == "dies":
    os.kill(os.getpid(), 9)
if how == "kills":
    server.kill()
server.stdin.close()
server.stdout.close()
code = server.wait(60)
if how == "leaves":
    assert code == 0, code
    # A killed process may take a moment to disappear.
    for pid in busy:
        while not is_gone(pid):
            os.sched_yield()
"#;

fn vanishing(what: &str, how: &str, front: &str) -> Project {
    let project = Project::new();
    project.file("agent.py", AGENT);
    project.file("server.py", include_str!("../../../mcp/tests/support/server.py"));
    let line = format!("env BIN={} python3 agent.py {what} {how}", env!("CARGO_BIN_EXE_dogwatch"));
    project.ralph(&format!("agent: {}\n{GRACES}\n{front}", json!(line)), "go");
    project
}

const CHECK: &str = "done_when: ['if [ -e asked ]; then echo $$ > started; exec sleep 1000; fi']";
const SERVER: &str = "mcp: {servers: {files: {command: [python3, server.py, good, log], timeout: 10m}}}";

/// Runs the loop to its end and returns the events and the exit code of the first session. `Project::run` asserts that
/// no process is left.
fn first(project: &Project, args: &[&str]) -> (Vec<Value>, Value) {
    let done = project.run(args);
    done.assert_code(0);
    let events = done.events();
    let ended = all(&events, "session_ended")[0]["exit_code"].clone();
    (events, ended)
}

#[test]
fn a_client_that_leaves_during_check_done_ends_the_check() {
    let project = vanishing("check", "leaves", CHECK);
    let (events, ended) = first(&project, &[]);
    assert_eq!(ended, 0, "{}", String::from_utf8_lossy(&project.raw(1, "stderr")));
    assert_eq!(one(&events, "run_ended")["outcome"], "clean");
}

#[test]
fn a_client_that_leaves_during_a_call_ends_its_server() {
    let project = vanishing("call", "leaves", SERVER);
    let (events, ended) = first(&project, &["-n", "2"]);
    assert_eq!(ended, 0, "{}", String::from_utf8_lossy(&project.raw(1, "stderr")));
    assert_eq!(one(&events, "run_ended")["completed"], 2);
}

#[test]
fn an_agent_that_dies_during_a_request_leaves_no_process() {
    for (what, front, args) in [("check", CHECK, &[][..]), ("call", SERVER, &["-n", "2"])] {
        let (events, ended) = first(&vanishing(what, "dies", front), args);
        assert_eq!(ended, Value::Null, "{what}");
        assert_eq!(all(&events, "session_ended")[0]["signal"], 9, "{what}");
    }
}

#[test]
fn a_bridge_killed_during_a_request_leaves_no_process() {
    for (what, front, args) in [("check", CHECK, &[][..]), ("call", SERVER, &["-n", "2"])] {
        let (_, ended) = first(&vanishing(what, "kills", front), args);
        assert_eq!(ended, 0, "{what}");
    }
}

#[test]
fn an_incomplete_message_of_a_client_is_ignored() {
    let (events, ended) = first(&vanishing("half", "leaves", ""), &["-n", "1"]);
    assert_eq!(ended, 0);
    assert_eq!(all(&events, "agent_reported").len(), 0);
}

#[test]
fn every_tool_refuses_a_wrong_key_or_session() {
    let project = vanishing("letters", "leaves", CHECK);
    let (events, ended) = first(&project, &[]);
    assert_eq!(ended, 0, "{}", String::from_utf8_lossy(&project.raw(1, "stderr")));
    let answers: Vec<Value> = serde_json::from_str(&project.read("answers")).expect("JSON");
    assert_eq!(answers.len(), 12);
    for answer in answers {
        let text = answer["content"][0]["text"].as_str().unwrap_or_default();
        assert!(answer["isError"] == true && text.starts_with("dogwatch refuses: "), "{answer}");
    }
    assert_eq!(all(&events, "agent_reported").len(), 0, "the record holds none of it");
    assert!(!project.run_dir().join("loop/agent").exists());
}
