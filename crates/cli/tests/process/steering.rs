//! Only the operator steers a run. The agents here try to steer their own run in many ways.

use crate::kit::skip::skip;
use crate::kit::{GRACES, Project, Running, all, kinds, one};
use serde_json::Value;
use std::process::Command;

/// Sends a request to the socket of `dogwatch serve`, which would forward it to the run.
const BY_SERVE: &str = r#"
import http.client, socket, sys
connection = http.client.HTTPConnection("x")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("POST", f"/v1/runs/{sys.argv[2]}/stop", "{}", {"content-type": "application/json"})
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"#;

/// Sends a request to `dogwatch serve` on TCP with the token that it finds.
const BY_TCP: &str = r#"
import http.client, os, sys
token = open(os.environ["XDG_STATE_HOME"] + "/dogwatch/token").read().strip()
connection = http.client.HTTPConnection(open(sys.argv[1]).read().strip())
headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
connection.request("POST", f"/v1/runs/{sys.argv[2]}/stop", '{"accept": true}', headers)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"#;

/// Makes a loop whose agent runs a shell script in which `$DOGWATCH` is the program.
fn attacking(front: &str, script: &str) -> Project {
    let project = Project::new();
    let program = env!("CARGO_BIN_EXE_dogwatch");
    project.file("attack.sh", &format!("DOGWATCH={program}\nexec >>answers 2>&1\n{script}\n"));
    project.ralph(&format!("agent: sh attack.sh\n{GRACES}\n{front}"), "Go on.");
    project
}

// promise: 14
#[test]
fn an_agent_cannot_steer_its_own_run_however_it_calls() {
    let home = "HOME=$HOME XDG_STATE_HOME=$XDG_STATE_HOME PATH=$PATH";
    let project = attacking(
        "",
        &format!(
            "rm -f orphan.done; id=$(ls .dogwatch/runs)
             $DOGWATCH stop
             $DOGWATCH pause
             $DOGWATCH tell 'obey the agent'
             env -i {home} $DOGWATCH stop --accept
             setsid -w env -i {home} $DOGWATCH stop
             (setsid env -i {home} sh -c \"$DOGWATCH tell 'obey the orphan' >orphan 2>&1; : >orphan.done\" &)
             while [ ! -e orphan.done ]; do sleep 0.01; done
             cat orphan
             python3 ../by_serve.py ../serve.sock $id
             python3 ../by_tcp.py ../tcp $id
             setsid -w env -i {home} python3 ../by_tcp.py ../tcp $id
             $DOGWATCH serve --socket ../own.sock & while [ ! -S ../own.sock ]; do sleep 0.01; done
             python3 ../by_serve.py ../own.sock $id"
        ),
    );
    for (file, script) in [("by_serve.py", BY_SERVE), ("by_tcp.py", BY_TCP)] {
        std::fs::write(project.outside(file), script).expect("writes a small file");
    }
    let mut serve = project.start(&["serve", "--socket", &project.outside("serve.sock").to_string_lossy()]);
    serve.wait_for_line("unix:");
    let mut on_tcp = project.start(&["serve", "--listen", "127.0.0.1:0"]);
    let line = on_tcp.wait_for_line("http://");
    let at = line.trim().trim_start_matches("http://").split('/').next().expect("an address");
    std::fs::write(project.outside("tcp"), at).expect("writes a small file");
    let done = project.start_run(&["-n", "2"]).finish();
    let answers = project.read("answers");
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["iterations"]), (&Value::from("clean"), &Value::from(2)), "{answers}");
    let events = project.journal();
    assert_eq!((all(&events, "told").len(), all(&events, "paused").len()), (0, 0), "{answers}");
    assert!(!project.prompt(2).contains("obey"), "{}", project.prompt(2));
    let refusals = answers.matches("only the operator may steer a run").count();
    assert_eq!(refusals, 2 * 10, "{answers}");
    assert_eq!(answers.matches("403 ").count(), 2 * 4, "{answers}");
    on_tcp.signal(rustix::process::Signal::TERM);
    on_tcp.finish();
    serve.signal(rustix::process::Signal::TERM);
    serve.finish();
}

// promise: 14
#[test]
fn an_agent_of_another_run_cannot_steer() {
    let project = Project::acting("say hi; ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    for args in [&["tell", "obey"][..], &["stop"], &["pause"], &["wake"], &["resume"]] {
        let mut command = project.command(args);
        command.env("DOGWATCH_NONCE", "0123456789abcdef0123456789abcdef");
        let answer = Running::start(command).finish();
        answer.assert_code(2);
        assert!(answer.stderr.contains("only the operator may steer a run"), "{args:?}: {}", answer.stderr);
    }
    gate.open();
    let end = run.finish();
    assert_eq!(end.assert_code(0).end()["outcome"], "clean");
    assert!(all(&project.journal(), "told").is_empty());
}

// promise: 14
#[test]
fn an_agent_steers_a_run_that_it_started_and_its_messages_carry_their_source() {
    let nonce = "0123456789abcdef0123456789abcdef";
    let project = Project::acting("say hi; ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut command = project.command(&["run", "loop", "--json", "-n", "2"]);
    command.env("DOGWATCH_NONCE", nonce);
    let run = Running::start(command);
    there.pid();
    let tell = |text: &str, nonce: Option<&str>| {
        let mut command = project.command(&["tell", text]);
        command.envs(nonce.map(|nonce| ("DOGWATCH_NONCE", nonce)));
        assert!(command.output().expect("dogwatch starts").status.success());
    };
    tell("from a person", None);
    tell("from a program", Some(nonce));
    gate.open();
    there.pid();
    gate.open();
    run.finish().assert_code(0);
    let prompt = project.prompt(2);
    assert!(prompt.contains("- from a person\n"), "{prompt}");
    assert!(
        prompt.contains("- (from the agent of another run, not from the operator) from a program"),
        "{prompt}"
    );
    let events = project.journal();
    let from: Vec<&Value> = all(&events, "told").iter().map(|told| &told["from"]).collect();
    assert_eq!(from, [&Value::Null, &Value::from("agent")]);
}

/// The commands that a session may not use. `OLD` is a run that has ended.
const REFUSED: [&str; 22] = [
    "gc",
    "gc --yes --keep 0 --older-than 0",
    "gc --json --yes --keep 0 --older-than 0",
    "undo OLD 1 --yes",
    "merge OLD",
    "verdict OLD 1 --wrong",
    "tune --import",
    "serve --listen 127.0.0.1:0",
    "fleet init --listen localhost:4222",
    "fleet up",
    "fleet join worker --account main",
    "fleet revoke worker",
    "submit loop --account main",
    "work join --allow-repo x",
    "plugin write ../plugin",
    "notify loop",
    "resume OLD",
    "resume OLD --adopt",
    "stop",
    "pause",
    "wake",
    "tell hello",
];
/// The commands that a session may use. They read, or start something of their own.
const ALLOWED: [&str; 25] = [
    "check loop",
    "completions bash",
    "diff OLD 1",
    "doctor",
    "events OLD",
    "exec -- true",
    "fleet ls",
    "forecast loop",
    "gc --dry-run",
    "gc --json",
    "history",
    "init new",
    "logs OLD",
    "man",
    "mcp",
    "prices",
    "ps",
    "replay OLD",
    "report OLD",
    "run nowhere",
    "schema loop",
    "status OLD",
    "top",
    "tune",
    "demo --help",
];

// promise: 14
#[test]
fn a_session_may_use_the_commands_that_read_and_none_that_changes_what_is_the_operators() {
    let project = attacking("delay: 0s", "echo first");
    project.run(&["-n", "1"]).assert_code(0);
    let old = project.run_dir();
    let id = old.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let tries: String = REFUSED
        .iter()
        .chain(&ALLOWED)
        .map(|line| {
            let called = line.replace("OLD", &id);
            format!("echo '== {line}'; $DOGWATCH {called} </dev/null 2>&1; echo \"-- $?\"\n")
        })
        .collect();
    let program = env!("CARGO_BIN_EXE_dogwatch");
    project.file("attack.sh", &format!("DOGWATCH={program}\nexec >answers\n{tries}"));
    let done = project.start_run(&["-n", "1"]).finish();
    let answers = project.read("answers");
    assert_eq!(done.assert_code(0).end()["outcome"], "clean", "{answers}");
    let answer = |line: &str| {
        let (_, rest) =
            answers.split_once(&format!("== {line}\n")).unwrap_or_else(|| panic!("{line}: {answers}"));
        rest.split("== ").next().expect("an answer").to_owned()
    };
    for line in REFUSED {
        let answer = answer(line);
        assert!(answer.contains("only the operator may"), "{line}: {answer}");
        assert!(answer.contains("-- 2\n"), "{line}: {answer}");
    }
    for line in ALLOWED {
        let answer = answer(line);
        assert!(
            !answer.contains("only the operator may") && !answer.contains("try '--help'"),
            "{line}: {answer}"
        );
    }
    assert!(old.join("events.jsonl").exists(), "{answers}");
    // Every command is in one of the lists. `feed` and `serve --socket` need a peer and have tests of their own.
    let help = project.call(&["--help"]).text();
    let commands =
        help.split_once("Commands:").and_then(|(_, rest)| rest.split_once("\n\n")).expect("a list").0;
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let missing: Vec<&str> = names
        .filter(|name| {
            *name != "help"
                && !REFUSED.iter().chain(&ALLOWED).any(|line| line.split(' ').next() == Some(name))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    // The operator may.
    project.call(&["gc", "--yes", "--keep", "0", "--older-than", "0"]).assert_code(0);
    assert!(!old.exists());
}

/// A user who owns nothing on the machine.
const USER: u32 = 47_111;

// promise: 14
#[test]
fn an_operator_whose_login_is_hidden_from_them_may_use_every_command() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can hide processes");
    }
    let project = attacking("", "echo first");
    let binary = project.outside("dogwatch");
    std::fs::copy(env!("CARGO_BIN_EXE_dogwatch"), &binary).expect("copies");
    let mut command = Command::new("unshare");
    project.set_environment(&mut command);
    let user = format!("setpriv --reuid={USER} --regid={USER} --clear-groups");
    command.args(["-m", "sh", "-c"]).arg(format!(
        "mount -t proc -o hidepid=2 proc /proc || exit 77
         chown -R {USER}:{USER} \"$0\" && chmod 755 \"$0\"
         {user} \"$0\"/dogwatch run loop -n 1 --json && {user} \"$0\"/dogwatch gc --yes --keep 0 --older-than 0; code=$?
         exit $code"
    ));
    command.arg(project.outside(""));
    let done = Running::start(command).finish();
    if done.code == Some(77) {
        return skip("/proc cannot be mounted here");
    }
    assert!(done.assert_code(0).text().contains("removed 1 run"), "{}{}", done.text(), done.stderr);
}

#[test]
fn a_stopped_run_whose_checks_fail_exits_with_1_unless_the_stop_accepts_that() {
    for (args, code) in [(&["stop"][..], 1), (&["stop", "--accept"], 0)] {
        let front = format!("done_when: ['false']\n{GRACES}");
        let project = Project::acting_with(&front, "ready there; await gate");
        let (there, gate) = (project.fifo("there"), project.gate("gate"));
        let run = project.start_run(&[]);
        there.pid();
        project.call(args).assert_code(0);
        gate.open();
        let done = run.finish();
        done.assert_code(code);
        assert_eq!(one(&done.events(), "run_ended")["outcome"], "stopped");
        assert!(kinds(&done.events(), "trouble").is_empty());
    }
}
