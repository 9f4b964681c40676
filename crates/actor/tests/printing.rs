//! The output of an actor, byte for byte.

use crate::common;

use common::{Exit, Setup, play};
use serde_json::Value;

fn printed(steps: &str) -> String {
    let mut harness = play(steps);
    let out = harness.stdout();
    assert_eq!(harness.exit(), Exit::Code(0), "{}", harness.stderr());
    out
}

fn json_lines(steps: &str) -> Vec<Value> {
    printed(steps).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn say_prints_a_line_and_print_does_not_end_it() {
    assert_eq!(
        printed("say hello   world; print 'no  newline'; print x; say; say {\"a\":1}"),
        "hello world\nno  newlinex\n{\"a\":1}\n"
    );
}

#[test]
fn err_prints_on_stderr_only() {
    let mut harness = play("err oh no; say fine");
    assert_eq!((harness.stderr(), harness.stdout()), ("oh no\n".into(), "fine\n".into()));
}

#[test]
fn raw_prints_exactly_its_bytes() {
    assert_eq!(play(r#"raw "\x1b[31m\0\xff" red "\e[0m""#).stdout_bytes(), b"\x1b[31m\0\xffred\x1b[0m");
}

#[test]
fn say_prompt_prints_stdin_and_read_prompt_only_reads_it() {
    let prompt = "do this\nand that";
    assert_eq!(
        Setup::new().prompt(prompt).play("say-prompt; say; say-prompt").stdout(),
        "do this\nand that\ndo this\nand that"
    );
    assert_eq!(Setup::new().prompt(prompt).play("read-prompt; say done").stdout(), "done\n");
    assert_eq!(Setup::new().prompt(prompt).play("say got: $prompt").stdout(), "got: do this\nand that\n");
}

#[test]
fn placeholders_are_filled_in() {
    let mut harness = Setup::new()
        .arg("one")
        .arg("--two")
        .env("ACTOR_TEST", "v")
        .play("counter c; say $pid,$n,$env:ACTOR_TEST,$arg:2,$arg:9,$$5");
    let out = harness.stdout();
    assert_eq!(out, format!("{},1,v,--two,,$5\n", harness.pid));
}

#[test]
fn env_cwd_and_argv_print_how_the_actor_was_started() {
    let mut harness = Setup::new()
        .arg("a b")
        .arg("-x")
        .env("ACTOR_TEST", "v")
        .play("env ACTOR_TEST; env ACTOR_NOT_SET; env 'a='; cwd; argv");
    let out = harness.stdout();
    let cwd = harness.setup.dir.path().canonicalize().expect("there");
    assert_eq!(out, format!("v\n(unset)\n(unset)\n{}\na b\n-x\n", cwd.display()));
}

#[test]
fn a_marker_is_printed_on_its_own_line() {
    assert_eq!(
        printed("marker idle no_pending_tasks; marker done"),
        "<!-- ralph:state idle reason=no_pending_tasks -->\n<!-- ralph:state done -->\n"
    );
}

#[test]
fn a_flood_has_the_requested_length_and_stream() {
    let out = printed("flood 3M");
    assert_eq!(out.len(), 3 << 20);
    assert!(out.ends_with('\n') && out.lines().all(|line| line.len() < 200));
    let mut harness = play("flood 100kB stderr; say done");
    assert_eq!((harness.stderr().len(), harness.stdout().as_str()), (100_000, "done\n"));
}

#[test]
fn two_floods_of_one_actor_do_not_repeat_lines() {
    let out = printed("flood 300k; flood 300k");
    let mut lines: Vec<&str> = out.lines().collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    // The two truncated last lines may be equal to a part of another line.
    assert!(lines.len() >= all - 1);
}

#[test]
fn a_json_flood_is_json() {
    let out = printed("flood-json 2M");
    assert_eq!(out.len(), 2 << 20);
    assert!(out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok_and(|v| v["type"].is_string())));
}

#[test]
fn line_prints_no_newline() {
    let out = printed("line 5M; say");
    assert_eq!((out.len(), out.lines().count()), ((5 << 20) + 1, 1));
}

#[test]
fn closing_stdout_gives_the_reader_eof_while_the_actor_runs() {
    let setup = Setup::new();
    let (gate, fifo) = (setup.gate("go"), setup.fifo("ready"));
    let mut harness =
        setup.play("say a; close stdout; close stderr; say lost; err lost; await go; ready ready");
    assert_eq!((harness.stdout().as_str(), harness.stderr().as_str()), ("a\n", ""));
    gate.open();
    assert_eq!(fifo.pid(), harness.pid);
    assert_eq!(harness.exit(), Exit::Code(0));
}

#[test]
fn a_closed_stdin_has_no_prompt() {
    assert_eq!(
        Setup::new().prompt("hello").play("close stdin; say-prompt; say nothing").stdout(),
        "nothing\n"
    );
}

#[test]
fn claude_prints_a_session_in_the_recorded_format() {
    let lines = json_lines(
        "claude init; claude thinking hm; claude text hello; claude tool Bash ok 'make x' all good; claude tool Read fail; claude result 'bye'",
    );
    let types: Vec<&str> = lines.iter().filter_map(|l| l["type"].as_str()).collect();
    assert_eq!(
        types,
        ["system", "assistant", "assistant", "assistant", "user", "assistant", "user", "result"]
    );
    assert_eq!(lines[0]["subtype"], "init");
    assert_eq!(lines[1]["message"]["content"][0]["thinking"], "hm");
    assert_eq!(lines[2]["message"]["content"][0]["text"], "hello");
    let (call, reply) = (&lines[3]["message"]["content"][0], &lines[4]["message"]["content"][0]);
    assert_eq!((&call["name"], &call["input"]["command"]), (&"Bash".into(), &"make x".into()));
    assert_eq!((&reply["tool_use_id"], &reply["content"]), (&call["id"], &"all good".into()));
    assert_eq!(
        (&reply["is_error"], &lines[6]["message"]["content"][0]["is_error"]),
        (&false.into(), &true.into())
    );
    assert_ne!(lines[5]["message"]["content"][0]["id"], call["id"]);
    let result = &lines[7];
    assert_eq!(
        (&result["subtype"], &result["result"], &result["is_error"]),
        (&"success".into(), &"bye".into(), &false.into())
    );
    assert_eq!(result["num_turns"], 3);
    assert!(lines.iter().all(|l| l["session_id"] == lines[0]["session_id"]));
}

#[test]
fn a_claude_tool_can_stay_open_with_heartbeats_and_a_subagent() {
    let lines = json_lines(
        "claude tool-start Task 'look'; claude heartbeat; claude heartbeat; claude subagent seen; claude tool-end ok found",
    );
    let id = &lines[0]["message"]["content"][0]["id"];
    assert_eq!((&lines[1]["type"], &lines[1]["parent_tool_use_id"]), (&"tool_progress".into(), id));
    assert_eq!(
        (&lines[1]["elapsed_time_seconds"], &lines[2]["elapsed_time_seconds"]),
        (&30.into(), &60.into())
    );
    assert_eq!(
        (&lines[3]["parent_tool_use_id"], &lines[3]["message"]["content"][0]["text"]),
        (id, &"seen".into())
    );
    assert_eq!(&lines[4]["message"]["content"][0]["tool_use_id"], id);
}

#[test]
fn claude_prints_all_three_kinds_of_failure() {
    let lines = json_lines(
        "claude retry 401; claude error broken; claude is_error 529 overloaded; claude is_error refused",
    );
    assert_eq!(
        (&lines[0]["subtype"], &lines[0]["error"]),
        (&"api_retry".into(), &"authentication_failed".into())
    );
    assert_eq!(
        (&lines[1]["subtype"], &lines[1]["errors"][0]),
        (&"error_during_execution".into(), &"broken".into())
    );
    assert_eq!(
        (&lines[2]["is_api_error_message"], &lines[2]["api_error_status"]),
        (&true.into(), &529.into())
    );
    assert_eq!(
        (&lines[3]["subtype"], &lines[3]["is_error"], &lines[3]["api_error_type"]),
        (&"success".into(), &true.into(), &"overloaded_error".into())
    );
    assert_eq!((&lines[5]["api_error_status"], &lines[5]["result"]), (&Value::Null, &"refused".into()));
}

#[test]
fn a_closed_pipe_ends_the_actor_unless_it_ignores_sigpipe() {
    for steps in ["say lost", "flood 1G", "flood-json 1G", "line 1G"] {
        let setup = Setup::new();
        let gate = setup.gate("go");
        let mut harness = setup.play(&format!("await go; {steps}"));
        harness.drop_stdout();
        gate.open();
        assert_eq!((harness.exit(), harness.stderr().as_str()), (Exit::Code(141), ""), "{steps}");
    }
    for steps in ["say lost", "flood 1G", "child { say lost; touch child }; wait"] {
        let setup = Setup::new();
        let gate = setup.gate("go");
        let mut harness = setup.play(&format!("ignore PIPE; await go; {steps}; exit 7"));
        harness.drop_stdout();
        gate.open();
        assert_eq!(harness.exit(), Exit::Code(7), "{steps}");
        assert_eq!(harness.setup.path("child").exists(), steps.starts_with("child"));
    }
}
