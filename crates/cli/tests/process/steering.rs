//! Only the operator steers a run. The agents here try to steer their own run in many ways.

use crate::kit::{GRACES, Project, Running, all, kinds, one};
use serde_json::Value;

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
             $DOGWATCH serve --socket ../own.sock & while [ ! -S ../own.sock ]; do sleep 0.01; done
             python3 ../by_serve.py ../own.sock $id"
        ),
    );
    std::fs::write(project.outside("by_serve.py"), BY_SERVE).expect("writes a small file");
    let mut serve = project.start(&["serve", "--socket", &project.outside("serve.sock").to_string_lossy()]);
    serve.wait_for_line("unix:");
    let done = project.start_run(&["-n", "2"]).finish();
    let answers = project.read("answers");
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["iterations"]), (&Value::from("clean"), &Value::from(2)), "{answers}");
    let events = project.journal();
    assert_eq!((all(&events, "told").len(), all(&events, "paused").len()), (0, 0), "{answers}");
    assert!(!project.prompt(2).contains("obey"), "{}", project.prompt(2));
    let refusals = answers.matches("only the operator may steer a run").count();
    assert_eq!(refusals, 2 * 8, "{answers}");
    assert_eq!(answers.matches("403 ").count(), 2 * 2, "{answers}");
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
