//! The record, the lock and the keeper: what happens when one of them disappears.

use crate::kit::{GRACES, Project, all, kinds, names, one};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::os::unix::fs::MetadataExt;

#[test]
fn json_prints_only_the_events_of_the_journal_without_observations() {
    let project = Project::acting("say one; say two; err three");
    let done = project.run(&["-n", "2"]);
    done.assert_code(0);
    assert_eq!(done.stderr, "");
    let printed = done.events();
    let journal = project.journal();
    assert!(!all(&journal, "observed").is_empty());
    let rest: Vec<_> = journal.into_iter().filter(|e| e["event"] != "observed").collect();
    assert_eq!(printed, rest);
}

#[test]
fn equal_prompts_are_one_file_with_a_name_in_each_iteration() {
    let project = Project::new();
    project.file("word", "first");
    let agent = "[ $DOGWATCH_ITERATION = 2 ] && printf second >word; true";
    project.file("agent.sh", agent);
    project.ralph(
        &format!("agent: sh agent.sh\ncommands: [{{name: word, run: cat word}}]\n{GRACES}"),
        "{{ commands.word }}",
    );
    project.run(&["-n", "4"]).assert_code(0);
    assert_eq!([1, 2, 3, 4].map(|n| project.prompt(n)), ["first", "first", "second", "second"]);
    let inode = |iteration: u64| {
        let file = project.run_dir().join(format!("loop/{iteration:06}/prompt.md"));
        std::fs::metadata(file).expect("every iteration has a prompt").ino()
    };
    assert_eq!((inode(1), inode(3)), (inode(2), inode(4)));
    assert_ne!(inode(1), inode(3));
}

#[test]
fn a_prompt_whose_file_is_gone_is_stored_again() {
    let project = Project::new();
    project.file("agent.sh", "[ $DOGWATCH_ITERATION = 2 ] && rm .dogwatch/runs/*/loop/*/prompt.md; true");
    project.ralph(&format!("agent: sh agent.sh\n{GRACES}"), "Go on.");
    project.run(&["-n", "3"]).assert_code(0);
    assert_eq!(project.prompt(3), "Go on.");
}

// promise: 2
#[test]
fn a_second_run_of_a_loop_exits_with_4_and_names_the_first() {
    let project = Project::acting("ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut first = project.start_run(&["-n", "1"]);
    let started = first.wait_for("run_started");
    there.pid();
    let elsewhere = project.outside("elsewhere");
    let other_place = ["run", "loop/RALPH.md", "--state-dir", elsewhere.to_str().expect("text")];
    for args in [&["run", "loop"][..], &other_place] {
        let second = project.call(args);
        second.assert_code(4);
        let since = started["at"].as_str().expect("a time").split('T').next().expect("a day");
        for wanted in
            [format!("pid {}", first.pid()), format!("run {}", started["run"].as_str().expect("a run"))]
        {
            assert!(second.stderr.contains(&wanted), "{wanted} in {}", second.stderr);
        }
        assert!(second.stderr.contains(&format!("since {since}")), "{}", second.stderr);
        assert!(
            second.stderr.contains("help: ") && second.stderr.contains("dogwatch stop"),
            "{}",
            second.stderr
        );
        assert!(second.stdout.is_empty());
    }
    gate.open();
    first.finish().assert_code(0);
    assert_eq!(std::fs::read_dir(project.path(".dogwatch/runs")).expect("it exists").count(), 1);
}

#[test]
fn two_loops_of_one_work_tree_run_side_by_side() {
    let project = Project::acting("ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let first = project.start_run(&["-n", "1"]);
    there.pid();
    std::fs::create_dir(project.path("other")).expect("a directory");
    project.file("other/RALPH.md", "---\nagent: 'true'\n---\nGo.\n");
    project.call(&["run", "other", "-n", "1"]).assert_code(0);
    gate.open();
    first.finish().assert_code(0);
}

// promise: 2
#[test]
fn after_kill_9_the_next_run_waits_for_the_keeper_and_then_runs() {
    let project = Project::acting(
        "counter count; on 1 { hold hold; orphan { ignore TERM; ready kid; hang }; ignore TERM; hang }",
    );
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let first = project.start_run(&[]);
    kid.pid();
    // Do not wait for it yet: the next dogwatch must see the killed one as a zombie.
    first.signal(Signal::KILL);
    let second = project.start_run(&["-n", "1"]);
    let done = second.finish();
    hold.assert_released();
    done.assert_code(0);
    assert_eq!(first.finish().signal, Some(9));
    project.assert_no_process_left();
    assert_eq!(project.lines("count"), ["2"]);
}

// promise: 1
#[test]
fn orphans_of_a_killed_dogwatch_and_keeper_are_ended_before_the_next_run_starts() {
    let project = Project::acting("counter count; on 1 { hold hold; orphan { ready kid; hang }; hang }");
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let first = project.start_run(&[]);
    kid.pid();
    let keeper = Pid::from_raw(project.keeper()).expect("a pid");
    first.signal(Signal::STOP);
    kill_process(keeper, Signal::KILL).expect("we own the keeper");
    first.kill();
    let done = project.run(&["-n", "1"]);
    hold.assert_released();
    done.assert_code(0);
    let events = done.events();
    let notice = kinds(&events, "orphans_ended");
    assert_eq!(notice.len(), 1, "{:?}", names(&events));
    assert!(
        notice[0]["message"].as_str().is_some_and(|m| m.starts_with("killed 2 leftover processes")),
        "{notice:?}"
    );
}

// promise: 1
#[test]
fn a_killed_keeper_is_trouble_its_orphans_are_ended_and_the_run_continues() {
    let project = Project::acting(
        "counter count; on 1 { hold hold; orphan { ignore TERM; ready kid; hang }; ignore TERM; hang }",
    );
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let mut run = project.start_run(&["-n", "2"]);
    kid.pid();
    let keeper = Pid::from_raw(project.keeper()).expect("a pid");
    kill_process(keeper, Signal::KILL).expect("we own the keeper");
    let trouble = run.wait_for_kind("keeper_lost");
    assert_eq!(trouble["event"], "trouble");
    let done = run.finish();
    hold.assert_released();
    project.assert_no_process_left();
    let end = done.assert_code(0).end();
    assert_eq!((&end["completed"], &end["failed"]), (&json!(1), &json!(1)));
    assert_eq!(project.lines("count"), ["2"]);
}

#[test]
fn a_keeper_killed_between_iterations_is_replaced() {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&["-n", "2", "--delay", "1h"]);
    run.wait_for("wait_started");
    kill_process(Pid::from_raw(project.keeper()).expect("a pid"), Signal::KILL).expect("we own the keeper");
    run.wait_for_kind("keeper_lost");
    run.signal(Signal::USR1);
    assert_eq!(run.finish().assert_code(0).end()["completed"], 2);
}

// promise: 10
#[test]
fn a_state_directory_that_vanishes_is_trouble_and_nothing_new_starts() {
    let project = Project::acting("append starts $pid; ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start_run(&[]);
    there.pid();
    std::fs::remove_dir_all(project.path(".dogwatch")).expect("removes");
    gate.open();
    let done = run.finish();
    done.assert_code(5);
    assert_eq!(project.lines("starts").len(), 1);
    let events = done.events();
    assert!(!kinds(&events, "record_lost").is_empty());
    assert_eq!(one(&events, "run_ended")["outcome"], "record_lost");
    assert!(!project.path(".dogwatch").exists(), "and the directory is not created again");
    project.assert_no_process_left();
}

#[test]
fn an_unusable_state_directory_is_exit_code_2_with_a_help_line() {
    let project = Project::acting("append starts $pid");
    project.file("plain", "a file");
    for place in ["plain/state", "/proc/state"] {
        let done = project.call(&["run", "loop", "-n", "1", "--state-dir", place]);
        done.assert_code(2);
        assert!(done.stderr.contains("cannot write the record to"), "{}", done.stderr);
        assert!(done.stderr.contains("help: choose another directory with --state-dir"), "{}", done.stderr);
    }
    assert!(!project.path("starts").exists(), "nothing was started");
    project.run(&["-n", "1"]).assert_code(0);
}

#[test]
fn an_unusable_lock_directory_is_exit_code_2_with_a_help_line() {
    let project = Project::acting("say hi");
    project.file("plain", "a file");
    let mut command = project.command(&["run", "loop", "-n", "1"]);
    command.env("XDG_STATE_HOME", project.path("plain/state"));
    let done = crate::kit::Running::start(command).finish();
    done.assert_code(2);
    assert!(done.stderr.contains("XDG_STATE_HOME"), "{}", done.stderr);
    assert!(!project.path(".dogwatch").exists());
}

#[test]
fn the_state_directory_is_ignored_by_git_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let project = Project::acting("say hi");
    project.run(&["-n", "1"]).assert_code(0);
    assert_eq!(project.read(".dogwatch/.gitignore"), "*\n");
    let mode = project.run_dir().metadata().expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_secret_on_the_agents_command_line_is_in_no_event_but_the_settings() {
    let project = Project::new();
    project.ralph(&format!("agent: sh -c 'true' --api-key=sk-ant-verysecret123\n{GRACES}"), "Go.");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert!(one(&done.events(), "session_started")["argv"].is_array());
    let journal = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("text");
    let leaks: Vec<&str> = journal.lines().filter(|l| l.contains("verysecret")).collect();
    assert!(leaks.iter().all(|l| l.contains("\"event\":\"run_started\"")), "{leaks:?}");
}
