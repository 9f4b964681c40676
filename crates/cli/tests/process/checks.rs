//! Checks decide whether the work is done, and hostile checks are contained.

use crate::kit::{GRACES, Project, all, kinds, one};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Creates a loop with these checks after the given frontmatter.
fn checked(front: &str, checks: &[&str], script: &str) -> Project {
    Project::acting_with(&front_with(front, checks), script)
}

fn front_with(front: &str, checks: &[&str]) -> String {
    format!("{GRACES}\n{front}\ndone_when: {}", json!(checks))
}

/// Returns the only result of the only attempt.
fn result(events: &[Value]) -> Value {
    let attempt = one(events, "node_attempt");
    match attempt["results"].as_array().expect("a list").as_slice() {
        [one] => one.clone(),
        other => panic!("{other:?}"),
    }
}

// promise: 18
#[test]
fn a_run_whose_checks_pass_is_clean_and_verified() {
    let project = checked("", &["test -f done", "true"], "say working; write done x; exit 7");
    let done = project.run(&[]);
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["verified"]), (&json!("clean"), &json!(true)));
    let attempt = one(&done.events(), "node_attempt").clone();
    assert_eq!((&attempt["converged"], attempt["results"].as_array().map(Vec::len)), (&json!(true), Some(2)));
    let log = std::fs::read_to_string(project.run_dir().join("loop.log")).expect("a log");
    for part in ["exit code 7", "converged: 2 checks passed", "test -f done", "\nstdout (8 bytes)\nworking\n"]
    {
        assert!(log.contains(part), "{part} in\n{log}");
    }
}

// promise: 18
#[test]
fn a_claim_ends_nothing_unless_the_checks_agree() {
    let project = checked("max_iterations: 1", &["false"], "say all done; marker done; exit 0");
    let done = project.run(&[]);
    let end = done.assert_code(1).end();
    assert_eq!((&end["verified"], &end["completed"]), (&json!(false), &json!(1)));
    assert_eq!(one(&done.events(), "marker_seen")["state"], "done");
}

/// A loop whose agent adds a line to `fixed` each time; the check wants `wanted` of them.
fn fixes_one_thing(settings: &str, wanted: u32) -> Project {
    let check = format!("n=$(grep -c . fixed); echo $(({wanted} - n)) failed in $$ms; test $n = {wanted}");
    checked(settings, &[&check], "append fixed x")
}

#[test]
fn a_loop_that_fixes_one_thing_per_iteration_is_done_after_eight_without_a_wait() {
    for git in [false, true] {
        let project = fixes_one_thing("", 8);
        if git {
            let init =
                std::process::Command::new("git").args(["init", "-q"]).current_dir(project.path("")).status();
            assert!(init.is_ok_and(|status| status.success()), "git is there");
        }
        let done = project.run(&[]);
        let end = done.assert_code(0).end();
        assert_eq!((&end["outcome"], &end["iterations"]), (&json!("clean"), &json!(8)), "git: {git}");
        assert_eq!(end["reason"], "checks pass after 8 iterations");
        assert!(all(&done.events(), "wait_started").is_empty(), "git: {git}");
        assert_eq!(all(&done.events(), "node_attempt")[6]["progress"], json!(true));
    }
}

#[test]
fn the_seed_policy_charges_progress_too() {
    let done = fixes_one_thing("attempts: seed\nmax_iterations: 2", 8).run(&[]);
    let end = done.assert_code(1).end();
    assert_eq!((&end["outcome"], &end["iterations"]), (&json!("catastrophic"), &json!(2)));
    assert_eq!(all(&done.events(), "wait_started")[0]["why"], "backoff");
}

#[test]
fn failed_checks_are_in_the_next_prompt() {
    let check = "test -f done || { echo MISSING >&2; echo out; exit 3; }";
    let project = checked("", &[check], "counter ../count; on 2 { write done x }");
    let done = project.run(&[]);
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["flake_retries"]), (&json!("clean"), &json!(0)));
    let first = all(&done.events(), "node_attempt")[0].clone();
    assert_eq!(
        (&first["results"][0]["rc"], &first["results"][0]["tail"]),
        (&json!(3), &json!("MISSING\nout\n"))
    );
    assert_eq!(project.prompt(1), "Go on.");
    let second = project.prompt(2);
    assert!(
        second.starts_with("Go on.\n\nThe work is done when all checks pass. This is attempt 2."),
        "{second}"
    );
    assert!(second.ends_with("(exit code 3); its output:\n\n    MISSING\n    out"), "{second}");
}

// promise: 1
#[test]
fn a_check_that_hangs_is_ended_with_all_it_started() {
    let project = Project::new();
    let hold = project.fifo("hold");
    project.file("check", "hold hold; say halfway; orphan { ignore TERM; hang }; ignore TERM; hang");
    let front = front_with("max_iterations: 1\nchecks: {timeout: 1s}", &[&project.actor("check")]);
    project.act(&front, "say hello");
    let done = project.run(&[]);
    hold.assert_released();
    assert_eq!(done.assert_code(1).end()["verified"], false);
    let result = result(&done.events());
    assert_eq!((&result["rc"], &result["timed_out"]), (&json!(124), &json!(true)));
    assert_eq!(result["tail"], "halfway\n");
}

// promise: 4
#[test]
fn a_check_that_floods_costs_no_more_than_its_tail() {
    let project = Project::new();
    project.file("check", "flood 60M stdout; flood 60M stderr; say the end; exit 1");
    project.act(&front_with("max_iterations: 1", &[&project.actor("check")]), "say hello");
    let done = project.run(&[]);
    let result = result(&done.assert_code(1).events());
    let tail = result["tail"].as_str().expect("a tail");
    assert!(tail.len() <= 4096 && tail.len() > 4000 && tail.ends_with("the end\n"), "{} bytes", tail.len());
    assert_eq!(result["truncated"], true);
}

// promise: 1
#[test]
fn the_daemon_of_a_check_is_ended() {
    let project = Project::new();
    let hold = project.fifo("hold");
    project.file("check", "hold hold; orphan { ignore TERM HUP; hang }; bare { ignore TERM; hang }; exit 0");
    project.act(&front_with("", &[&project.actor("check")]), "say hello");
    project.run(&[]).assert_code(0);
    hold.assert_released();
}

#[test]
fn a_check_that_deletes_the_work_tree_does_not_end_the_run() {
    let project = checked("max_iterations: 2", &["rm -rf ./* && echo gone && false"], "say hello");
    let done = project.run(&[]);
    done.assert_code(1);
    let events = done.events();
    assert_eq!(all(&events, "node_attempt").len(), 2, "the record continues");
    assert_eq!(kinds(&events, "loop_file").len(), 1, "the last good prompt is used");
    assert!(project.prompt(2).contains("gone"));
}

// promise: 18
#[test]
fn a_check_that_deletes_the_record_leaves_no_process_and_no_success() {
    let project = checked("max_iterations: 2", &["rm -rf ./* ./.dogwatch; true", "false"], "say hello");
    let done = project.start_run(&[]).finish();
    project.assert_no_process_left();
    assert!(matches!(done.code, Some(1 | 5)), "{:?} {}", done.code, done.stderr);
}

/// Runs one attempt of an agent that rewrites a file its check depends on.
fn tampering(front: &str, check: &str) -> (i32, Vec<Value>) {
    let project = Project::new();
    std::fs::create_dir(project.path("tests")).expect("a directory");
    project.file("tests/verify.sh", "#!/bin/sh\nexit 1\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(project.path("tests/verify.sh"), mode).expect("we own the file");
    let front = front_with(&format!("max_iterations: 1\n{front}"), &[check]);
    project.act(&front, "write tests/verify.sh '#!/bin/sh'");
    let done = project.run(&[]);
    (done.code.expect("a code"), done.events())
}

// promise: 18
#[test]
fn a_check_that_its_agent_rewrote_proves_nothing() {
    for (front, check) in [
        ("pin: ['tests/**']", "sh tests/verify.sh"),
        ("", "tests/verify.sh"),
        ("", "X=1 ./tests/verify.sh --all"),
        ("", "sh tests/verify.sh"),
        ("", "cd tests && ./verify.sh"),
        ("", "env X=1 ./tests/verify.sh"),
        ("", "timeout 5 ./tests/verify.sh"),
        ("", "$PWD/tests/verify.sh"),
        ("", "(./tests/verify.sh)"),
        ("", "cat tests/* | sh"),
        ("", "cat te*/verify.sh | sh"),
    ] {
        let (code, events) = tampering(front, check);
        assert_eq!(code, 1, "{check}");
        assert_eq!(one(&events, "check_tampered")["files"], json!(["tests/verify.sh"]), "{check}");
        assert_eq!(one(&events, "checks_pinned")["files"].as_array().map(Vec::len), Some(1));
        assert_eq!(one(&events, "node_attempt")["converged"], false);
    }
    // The agent may change files that are not pinned. With `warn` a change is reported but not blocked.
    assert_eq!(tampering("", "find . -name 'verify.*' -exec cat {} + | sh").0, 0);
    let (code, events) = tampering("pin: [tests]\nchecks: {tampered: warn}", "sh tests/verify.sh");
    assert_eq!((code, &one(&events, "check_tampered")["policy"]), (0, &json!("warn")));
}

// promise: 18
#[test]
fn a_check_that_an_earlier_check_rewrote_proves_nothing() {
    let run = |front: &str, spoil: &str| {
        let project = Project::new();
        project.file("verify.sh", "exit 0");
        std::fs::create_dir(project.path("tests")).expect("a directory");
        project.file("tests/a", "");
        // The first check runs what the agent wrote.
        let front = front_with(&format!("max_iterations: 1\n{front}"), &["eval $(cat unit)", "sh verify.sh"]);
        project.act(&front, &format!("write unit '{spoil}'"));
        let done = project.run(&[]);
        (done.code.expect("a code"), done.events())
    };
    let (code, events) = run("", "echo exit 0 >verify.sh");
    assert_eq!((code, &one(&events, "check_tampered")["files"]), (1, &json!(["verify.sh"])));
    let result = result(&events);
    assert!(
        result["tail"].as_str().is_some_and(|tail| tail.contains("changed while the checks ran: verify.sh"))
    );
    let (code, events) = run("checks: {tampered: warn}", "rm verify.sh; echo >verify.sh");
    assert_eq!((code, &one(&events, "check_tampered")["policy"]), (0, &json!("warn")));
    // Checks leave caches and reports behind.
    let (code, events) = run("pin: [tests]", "echo >tests/cache");
    assert_eq!((code, all(&events, "check_tampered").len()), (0, 0));
}

#[test]
fn a_pin_that_matches_nothing_is_refused_and_a_check_without_pins_is_warned_about() {
    let project = Project::new();
    std::fs::create_dir(project.path("tests")).expect("a directory");
    project.file("tests/a", "");
    project.file("Makefile", "test:\n\tfalse\n");
    project.act(&front_with("pin: [test/**]", &["make test"]), "append ../starts $pid");
    for command in ["run", "check"] {
        let done = project.call(&[command, "loop"]);
        done.assert_code(2);
        assert!(done.stderr.contains("pin `test/**` matches no file"), "{}", done.stderr);
    }
    assert!(!project.outside("starts").exists());
    project.act(&front_with("max_iterations: 1", &["make test", "sh -c false"]), "say hi");
    for (command, code) in [("check", 0), ("run", 1)] {
        let done = project.call(&[command, "loop"]);
        done.assert_code(code);
        assert!(done.stderr.contains("help: add `pin: [Makefile, tests/**]`"), "{}", done.stderr);
        let unknown = "check `sh -c false` depends on no pinned file; the agent can change what it runs\n\
                       help: list the files that it depends on in `pin`";
        assert!(done.stderr.contains(unknown), "{}", done.stderr);
    }
}

#[test]
fn a_check_that_reads_a_file_of_the_agent_is_warned_about_and_its_failure_names_the_way_out() {
    let todo = "! grep -q open TODO.md";
    let run = |front: &str| {
        let project = Project::new();
        project.file("TODO.md", "open\n");
        project.act(&front_with(front, &[todo]), "write TODO.md done");
        let warning = project.call(&["check", "loop"]).stderr;
        (warning, project.call(&["run", "loop", "-n", "1"]))
    };
    let (warning, done) = run("");
    let reads = "pins what it reads, and fails if the agent changes that: TODO.md\n\
                 help: if the agent has to change it, set `checks: {tampered: warn}`";
    assert!(warning.contains(reads), "{warning}");
    done.assert_code(1);
    assert!(
        done.text().contains("if the agent has to change them, set `checks.tampered: warn`"),
        "{}",
        done.text()
    );
    let (warning, done) = run("checks: {tampered: warn}");
    assert!(!warning.contains("TODO.md"), "{warning}");
    done.assert_code(0);
}

#[test]
fn an_agent_may_create_a_check_that_did_not_exist() {
    let project = checked("", &["./verify.sh"], "write verify.sh 'exit 0'");
    let mode = "sh -c 'printf \"exit 0\\n\" >verify.sh; chmod +x verify.sh'";
    project.ralph(&format!("agent: {}\n{}", json!(mode), front_with("", &["./verify.sh"])), "Write it.");
    let done = project.run(&[]);
    assert_eq!(done.assert_code(0).end()["outcome"], "clean");
}

#[test]
fn a_failed_check_is_retried_if_configured() {
    let project = checked("recheck: 1", &["test -f ../again || { touch ../again; exit 1; }"], "say hello");
    let done = project.run(&[]);
    assert_eq!(done.assert_code(0).end()["outcome"], "clean_with_flake");
    let result = result(&done.events());
    assert_eq!((&result["flaky"], &result["first_rc"]), (&json!(true), &json!(1)));
}

// promise: 1
#[test]
fn killed_in_a_check_no_process_is_left_and_the_run_continues() {
    let project = Project::new();
    let (hold, there) = (project.fifo("hold"), project.fifo("there"));
    project.file("check", "hold hold; once ../checked { orphan { ignore TERM; hang }; ready there; hang }");
    project.act(&front_with("", &[&project.actor("check")]), "append ../starts $pid");
    let run = project.start_run(&[]);
    there.pid();
    run.kill();
    project.wait_until_no_process_left();
    hold.assert_released();
    let run = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    let done = project.call(&["resume", &run, "--json"]);
    project.assert_no_process_left();
    assert_eq!(done.assert_code(0).end()["verified"], true);
    let events = project.journal();
    assert_eq!(one(&events, "iteration_interrupted")["by"], "supervisor_lost");
    assert_eq!(all(&events, "node_attempt").len(), 1);
}

#[test]
fn a_stop_during_a_check_ends_it() {
    let project = Project::new();
    let (hold, there) = (project.fifo("hold"), project.fifo("there"));
    project.file("check", "hold hold; ready there; hang");
    project.act(&front_with("", &[&project.actor("check")]), "say hello");
    let run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
    project.assert_no_process_left();
    hold.assert_released();
}
