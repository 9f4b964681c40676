//! `dogwatch top` in a terminal of 80×24, driven by keys.

#[path = "../kit/mod.rs"]
mod kit;
mod pane;

use dogwatch_core::time::dur::Dur;
use kit::{GRACES, Project, Running};
use pane::Pane;
use rustix::process::Signal;

/// Starts an idle run that waits for an hour.
fn idling() -> (Project, Running) {
    let front = format!("idle: {{delay: 1h, max_delay: 1h}}\n{GRACES}");
    let project = Project::acting_with(&front, "say nothing; marker idle no_pending_tasks");
    let mut running = project.start_run(&[]);
    running.wait_for("wait_started");
    (project, running)
}

#[test]
fn a_run_is_listed_woken_opened_paused_and_stopped_by_keys() {
    let (project, mut running) = idling();
    let pane = Pane::open(&project, &[]);
    let screen = pane.until_shown("s left, idle");
    let line = screen.lines().find(|l| l.contains("left, idle")).expect("its line").to_owned();
    assert!(line.contains("loop") && line.contains("waiting") && line.contains("stdout"), "{line}");
    pane.keys(&["w"]);
    assert_eq!(running.wait_for("wait_ended")["by"], "api");
    running.wait_for("wait_started");
    pane.until_shown("was woken");
    pane.keys(&["Enter"]);
    let screen = pane.until("the second iteration's end", |s| s.contains("2nd in a row"));
    for lane in ["session", "wait", "stdout", "mcp_tool", "subagent", "workspace", "checks", "verdicts"] {
        assert!(screen.lines().any(|l| l.trim_start().starts_with(lane)), "{lane} in\n{screen}");
    }
    pane.keys(&["p"]);
    running.wait_for("paused");
    pane.until("the pause", |s| s.lines().next().is_some_and(|head| head.contains("paused")));
    pane.keys(&["s"]);
    pane.until_shown("y/n");
    pane.keys(&["y"]);
    let done = running.finish();
    assert_eq!(done.assert_code(0).end()["outcome"], "stopped");
    pane.until("its end", |s| s.lines().next().is_some_and(|head| head.contains("stopped")));
    pane.keys(&["q"]);
    pane.until_shown("1 run, 0 live");
    pane.keys(&["q"]);
    pane.assert_restored(0);
}

#[test]
fn the_runs_of_another_host_are_shown_and_steered_next_to_a_host_that_is_down() {
    let (there, mut running) = idling();
    let here = Project::new();
    let dogwatch = std::path::Path::new(env!("CARGO_BIN_EXE_dogwatch")).parent().expect("a directory");
    std::fs::create_dir(here.outside("bin")).expect("a directory");
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\n\
         [ $2 = gone ] && {{ echo 'no route to gone' >&2; exit 255; }}\n\
         export HOME='{}' XDG_STATE_HOME='{}' PATH='{}':\"$PATH\"\nexec sh -c \"$3\"\n",
        there.outside("home").display(),
        there.outside("state").display(),
        dogwatch.display()
    );
    std::fs::write(here.outside("bin/ssh"), script).expect("writes");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(here.outside("bin/ssh"), mode).expect("sets");
    let path = format!("{}:{}", here.outside("bin").display(), std::env::var("PATH").expect("is set"));
    let pane = Pane::open(&here, &[("PATH", &path), ("TOP_ARGS", "--host box --host gone")]);
    let screen = pane.until("both hosts", |s| s.contains("box up for") && s.contains("gone down for"));
    assert!(screen.contains("no route to gone"), "{screen}");
    let screen = pane.until_shown("s left, idle");
    assert!(screen.lines().any(|line| line.contains("loop @box") && line.contains("waiting")), "{screen}");
    pane.keys(&["w"]);
    assert_eq!(running.wait_for("wait_ended")["by"], "api");
    running.wait_for("wait_started");
    pane.until_shown("was woken");
    pane.keys(&["Enter"]);
    pane.until("the second iteration's end", |s| s.contains("2nd in a row") && s.contains("loop @box"));
    running.signal(Signal::TERM);
    running.finish().assert_code(143);
    pane.until("its end", |s| s.lines().next().is_some_and(|head| head.contains("interrupted")));
    pane.keys(&["C-c"]);
    pane.assert_restored(0);
}

#[test]
fn the_terminal_is_restored_after_every_signal() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let project = Project::new();
        let pane = Pane::open(&project, &[]);
        pane.until_shown("no runs on this machine");
        pane.signal(signal);
        pane.assert_restored(code);
    }
}

#[test]
fn a_run_that_begins_and_a_dogwatch_that_is_killed_are_seen_without_a_key() {
    let project = Project::acting_with(GRACES, "say here; hang");
    let pane = Pane::open(&project, &[]);
    pane.until_shown("no runs on this machine");
    let mut running = project.start_run(&[]);
    running.wait_for("session_started");
    pane.until_shown("working");
    running.kill();
    pane.until_shown("lost");
    pane.keys(&["w"]);
    pane.until_shown("continue it with `dogwatch resume`");
    pane.keys(&["C-c"]);
    pane.assert_restored(0);
}

#[test]
fn a_lost_run_shows_its_open_iteration_the_time_until_its_loss_and_unknown_cost() {
    let project = Project::with_lost_run(Dur::from_millis(65_300));
    let pane = Pane::open(&project, &[]);
    let screen = pane.until_shown("1 iteration: 0 completed, 1 unfinished; 1m 05s");
    assert!(screen.contains("tokens unknown, cost unknown"), "{screen}");
    pane.keys(&["C-c"]);
    pane.assert_restored(0);
}

#[test]
fn every_terminal_size_works_and_a_small_one_gets_a_note() {
    let (project, running) = idling();
    let pane = Pane::open(&project, &[]);
    pane.until_shown("left, idle");
    pane.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    pane.until_shown("40×10 is too small");
    pane.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    let screen = pane.until_shown("left, idle");
    assert!(screen.lines().all(|line| line.chars().count() <= 120));
    pane.keys(&["Escape", "?"]);
    pane.until_shown("dogwatch top: keys");
    running.signal(Signal::TERM);
    running.finish().assert_code(143);
}

// promise: 8
#[test]
fn agent_text_reaches_the_terminal_only_sanitized() {
    let hostile = r#"printf "\033]0;evil\007\033[31mred\033[2J words"; exit 1"#;
    let project = Project::new();
    project.ralph(
        &format!("agent: {}\nerrors: {{max: 1}}", serde_json::Value::from(format!("sh -c '{hostile}'"))),
        "Go.",
    );
    project.call(&["run", "loop"]).assert_code(1);
    let pane = Pane::open(&project, &[("NO_COLOR", "1")]);
    pane.until_shown("error limit");
    pane.keys(&["Enter"]);
    let screen = pane.until_shown("■");
    assert!(screen.contains("red words"), "{screen}");
    let title = pane.tmux(&["display-message", "-p", "#{pane_title}"]);
    assert!(!title.contains("evil"), "{title}");
    let styled = pane.tmux(&["capture-pane", "-p", "-e"]);
    let colors = ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m", "\x1b[35m", "\x1b[36m"];
    assert!(colors.iter().all(|color| !styled.contains(color)), "NO_COLOR is respected: {styled:?}");
}

#[test]
fn without_a_terminal_the_error_names_an_alternative() {
    let project = Project::new();
    let done = project.call(&["top"]);
    done.assert_code(2);
    assert!(
        done.stderr.contains("needs a terminal") && done.stderr.contains("dogwatch ps"),
        "{}",
        done.stderr
    );
}
