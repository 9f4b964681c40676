//! The screen: plain lines in a pipe, a live line on a terminal, and a terminal that is restored at the end.

use crate::kit::{GRACES, Project, TIMEOUT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::Instant;

#[test]
fn without_a_terminal_there_is_a_block_per_iteration_and_a_summary_without_control_characters() {
    let front = format!("{GRACES}\ncommands: [{{name: tests, run: 'false'}}]");
    let project =
        Project::acting_with(&front, "counter count; say part $n done; on 2 { err no luck; exit 4 }");
    let done = project.call(&["run", "loop", "-n", "2"]);
    done.assert_code(0);
    let text = done.text();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    for wanted in [
        "\niteration 1  ",
        "tests exit 1",
        "\"part 1 done\"",
        "completed in ",
        "\niteration 2  ",
        "failed after ",
        "(exit code 4: no luck); ",
        "clean: ",
        "1 completed, 1 failed",
        "exit code 0",
        "record: .dogwatch/runs/",
    ] {
        assert!(text.contains(wanted), "{wanted:?} in\n{text}");
    }
}

#[test]
fn waits_and_limits_are_shown_in_plain_text() {
    let front = format!("{GRACES}\nbudget: {{iterations: 2}}");
    let project = Project::acting_with(&front, "counter count; on 1 { hang }");
    let done = project.call(&["run", "loop", "--timeout", "300ms"]);
    done.assert_code(3);
    let text = done.text();
    for wanted in [
        "Total timeout: exceeded 0.3s limit",
        "timed out after ",
        " (watchdog)",
        "waiting 2s before recovery",
        "budget.iterations",
    ] {
        assert!(text.contains(wanted), "{wanted:?} in\n{text}");
    }
}

#[test]
fn a_pipe_gets_colors_only_with_color_always() {
    let project = Project::acting("say hi");
    for (color, colored) in [("auto", false), ("never", false), ("always", true)] {
        let done = project.call(&["run", "loop", "-n", "1", "--color", color]);
        let text = done.assert_code(0).text();
        assert_eq!(text.contains("\u{1b}[1miteration 1  "), colored, "{color}: {text:?}");
        assert_eq!(text.contains('\u{1b}'), colored, "{color}: {text:?}");
    }
}

/// A terminal with a dogwatch on it.
struct Tty {
    master: OwnedFd,
    /// Kept open, so that the terminal's state can still be read at the end.
    slave: OwnedFd,
    before: Termios,
    child: Child,
    seen: Vec<u8>,
}

impl Tty {
    fn start(project: &Project, args: &[&str]) -> Tty {
        Tty::sized(100, project, args)
    }

    /// Starts dogwatch with this terminal as its controlling one (`setsid --ctty`), so that Ctrl-C sends a signal.
    fn sized(columns: u16, project: &Project, args: &[&str]) -> Tty {
        Tty::of(columns, project, env!("CARGO_BIN_EXE_dogwatch"), args)
    }

    fn of(columns: u16, project: &Project, program: &str, args: &[&str]) -> Tty {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("we own the terminal");
        unlockpt(&master).expect("we own the terminal");
        let name = ptsname(&master, Vec::new()).expect("has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).expect("opens");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).expect("a terminal has a size");
        let before = tcgetattr(&slave).expect("a terminal has a state");
        let mut command = Command::new("setsid");
        project.set_environment(&mut command);
        command.args(["--ctty", "--wait", program]).args(args).env("TERM", "xterm");
        let copy = || slave.try_clone().expect("copies");
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("starts");
        drop(command);
        Tty { master, slave, before, child, seen: Vec::new() }
    }

    fn press_ctrl_c(&self) {
        rustix::io::write(&self.master, b"\x03").expect("a terminal takes a key");
    }

    /// Reads the screen until it shows the text.
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + TIMEOUT;
        while !self.screen().contains(text) {
            let bound = Timespec::try_from(until.saturating_duration_since(Instant::now())).expect("seconds");
            let ready = poll(&mut [PollFd::new(&self.master, PollFlags::IN)], Some(&bound)).expect("polls");
            assert!(ready > 0, "no {text:?} on the screen:\n{}", self.screen());
            self.read();
        }
    }

    fn read(&mut self) {
        let mut chunk = [0; 4096];
        let n = rustix::io::read(&self.master, &mut chunk).expect("reading works while the slave is open");
        self.seen.extend(&chunk[..n]);
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Waits for the exit and returns the exit code and the whole screen.
    fn finish(mut self) -> (Option<i32>, String) {
        self.wait_for("record: ");
        self.rest()
    }

    fn rest(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("the child can be reaped").code();
        while poll(&mut [PollFd::new(&self.master, PollFlags::IN)], Some(&Timespec::default()))
            .expect("polls")
            > 0
        {
            self.read();
        }
        let after = tcgetattr(&self.slave).expect("still a terminal");
        assert_eq!(format!("{:?}", self.before), format!("{after:?}"), "the terminal is as it was");
        (code, self.screen())
    }
}

#[test]
fn on_a_terminal_a_live_line_shows_the_session_and_is_cleared_after_it() {
    let project = Project::acting("say thinking; ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut tty = Tty::start(&project, &["run", "loop", "-n", "1"]);
    there.pid();
    tty.wait_for("working for ");
    gate.open();
    let (code, screen) = tty.finish();
    assert_eq!(code, Some(0));
    let live = screen.rfind("working ").expect("it existed");
    assert!(screen[live..].contains("\r\x1b[2K"), "the live line is cleared: {screen:?}");
    for left_changed in ["\x1b[?25l", "\x1b[?1049h", "\x1b[?1000h"] {
        assert!(!screen.contains(left_changed), "{left_changed:?}");
    }
    assert!(screen.ends_with('\n') || screen.ends_with("\x1b[0m\r\n"), "{screen:?}");
    project.assert_no_process_left();
}

#[test]
fn a_run_in_the_background_draws_no_live_line() {
    // Two live lines would be drawn while the agent works. The shell keeps the terminal.
    let project = Project::acting("sleep 2s");
    let script = format!("set -m; {} run loop -n 1 & wait", env!("CARGO_BIN_EXE_dogwatch"));
    let (code, screen) = Tty::of(100, &project, "sh", &["-c", &script]).finish();
    assert!(code == Some(0) && screen.contains("completed in "), "{screen:?}");
    assert!(!screen.contains("working for"), "{screen:?}");
}

#[test]
fn on_a_terminal_a_live_line_shows_that_commands_are_running() {
    let project = Project::acting_with("commands: [{name: slow, run: cat gate}]\n", "say hi");
    let gate = project.gate("gate");
    let mut tty = Tty::start(&project, &["run", "loop", "-n", "1"]);
    tty.wait_for("running commands for ");
    gate.open();
    assert_eq!(tty.finish().0, Some(0));
    project.assert_no_process_left();
}

#[test]
fn on_a_terminal_the_first_line_is_cut_to_its_width_and_keeps_the_run_and_the_time() {
    let project = Project::acting(&format!("say {}", "long ".repeat(30)));
    let (code, screen) = Tty::start(&project, &["run", "loop", "-n", "1", "--utc"]).finish();
    assert_eq!(code, Some(0), "{screen}");
    let head = screen.split("\r\n").next().expect("a first line");
    let head = head.trim_start_matches("\x1b[1m").trim_end_matches("\x1b[0m");
    assert_eq!(head.chars().count(), 100, "{head:?}");
    assert!(head.contains("…)  run ") && head.ends_with(" UTC"), "{head:?}");
    let piped = project.call(&["run", "loop", "-n", "1", "--utc"]).text();
    let head = piped.lines().next().expect("a first line");
    assert!(head.chars().count() > 100, "a pipe gets the whole line: {head:?}");
}

/// Returns the rows of a screen without those that a long word, like a path, makes wider than the terminal.
fn rows_of_words(screen: &str) -> Vec<&str> {
    let rows = screen.split("\r\n").map(|row| row.rsplit("\x1b[2K").next().unwrap_or(row));
    rows.filter(|row| row.split(' ').all(|word| word.len() < 20)).collect()
}

#[test]
fn on_a_narrow_terminal_lines_are_wrapped_at_blanks_and_hints_are_shortened() {
    let project = Project::acting(&format!("say {}", "many words ".repeat(10)));
    let mut tty = Tty::sized(60, &project, &["run", "loop", "-n", "2", "--delay", "1h", "--color", "never"]);
    tty.wait_for("): Ctrl-C skips it");
    tty.press_ctrl_c();
    let (code, screen) = tty.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("words\r\n    many words"), "{screen}");
    let head = screen.split("\r\n").next().expect("a first line");
    // The line is too short for the time, which the headings of the iterations show.
    let (start, run) = head.rsplit_once("…)  run ").expect("the agent is cut");
    assert!(start.starts_with("dogwatch  loop  (") && run.len() == "20261118-160519-rfh4".len(), "{head:?}");
    assert_eq!(head.chars().count(), 60, "{head:?}");
    for command in [&["status"][..], &["ps", "--all"], &["check", "loop", "--explain"]] {
        let piped = project.call(command).text();
        let (code, screen) = Tty::sized(60, &project, command).rest();
        assert_eq!(code, Some(0), "{screen}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&screen), words(&piped), "{command:?}: words stay whole");
        let rows = rows_of_words(&screen);
        assert!(rows.len() > 1 && rows.iter().all(|row| row.chars().count() <= 60), "{screen}");
        assert!(screen.lines().count() > piped.lines().count(), "{command:?}: {screen}");
    }
    let (code, screen) = Tty::sized(60, &project, &["history", "--color", "never"]).rest();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.split_whitespace().collect::<Vec<_>>().ends_with(&["cost", "unknown"]), "{screen}");
    assert!(rows_of_words(&screen).iter().all(|row| row.chars().count() <= 60), "{screen}");
}

#[test]
fn the_live_line_names_the_tool_call_and_verbose_streams_the_readable_log() {
    let front = "reader: claude";
    let call = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"make test --token s3cret"}}]}}"#;
    let said = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"on it"}]}}"#;
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"done now"}"#;
    let script = format!("say '{said}'; say '{call}'; ready there; await gate; say '{result}'");
    for verbose in [false, true] {
        let project = Project::acting_with(front, &script);
        let (there, gate) = (project.fifo("there"), project.gate("gate"));
        let flags = ["run", "loop", "-n", "1", "-v"];
        let mut tty = Tty::start(&project, &flags[..if verbose { 5 } else { 4 }]);
        there.pid();
        tty.wait_for(", 1 message → Bash: make test --token ***, 1s");
        gate.open();
        let (code, screen) = tty.finish();
        assert_eq!(code, Some(0), "{screen}");
        for line in ["    on it\r\n", "    → Bash: make test --token ***\r\n", "    done now\r\n"] {
            assert_eq!(screen.contains(line), verbose, "{line:?} in {screen:?}");
        }
        assert!(!screen.contains("s3cret"), "{screen:?}");
    }
}

#[test]
fn times_are_local_or_in_utc() {
    let project = Project::acting("say hi");
    for (flag, zone) in [(None, " IST\n"), (Some("--utc"), " UTC\n")] {
        let args: Vec<&str> = ["run", "loop", "-n", "1"].into_iter().chain(flag).collect();
        let mut command = project.command(&args);
        command.env("TZ", "IST-5:30");
        let text = crate::kit::Running::start(command).finish().assert_code(0).text();
        let head = text.lines().next().expect("a first line");
        assert!(format!("{head}\n").ends_with(zone), "{text}");
        let time = |line: &str| line.rsplit("  ").next().expect("a time").to_owned();
        let day = time(head);
        let heading = text.lines().find(|line| line.starts_with("iteration 1  ")).expect("a heading");
        let minutes = |text: &str| {
            let part = |range| text.get::<std::ops::Range<usize>>(range).expect("digits").parse::<i64>();
            part(0..2).expect("an hour") * 60 + part(3..5).expect("a minute")
        };
        let (started, began) = (minutes(&day[11..]), minutes(&time(heading)));
        assert!((began - started).rem_euclid(24 * 60) <= 1, "{text}");
        let local = jiff::Timestamp::now().as_second() / 60 + if flag.is_none() { 330 } else { 0 };
        assert!((local - began).rem_euclid(24 * 60) <= 2, "{text}");
    }
}

#[test]
fn the_ctrl_c_key_goes_to_dogwatch_alone_and_once_lets_the_agent_finish() {
    let project = Project::acting("ready there; await gate; say finished");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut tty = Tty::start(&project, &["run", "loop"]);
    there.pid();
    tty.press_ctrl_c();
    tty.wait_for("stopping after this iteration");
    gate.open();
    let (code, screen) = tty.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("\"finished\"") && screen.contains("stopped: "), "{screen}");
}

#[test]
fn the_ctrl_c_key_twice_interrupts_and_three_times_kills() {
    for (script, presses) in [("ready there; hang", 2), ("ignore INT TERM; ready there; hang", 3)] {
        let project = Project::acting_with("watchdog: {grace: 10m}", script);
        let there = project.fifo("there");
        let mut tty = Tty::start(&project, &["run", "loop"]);
        there.pid();
        tty.press_ctrl_c();
        tty.wait_for("stopping after this iteration");
        tty.press_ctrl_c();
        if presses == 3 {
            tty.wait_for("Ctrl-C again kills it");
            tty.press_ctrl_c();
        }
        let (code, screen) = tty.finish();
        assert_eq!(code, Some(130), "{screen}");
        project.assert_no_process_left();
    }
}

#[test]
fn in_a_wait_there_is_a_countdown_and_the_ctrl_c_key_ends_it() {
    let project = Project::acting("say hi");
    let mut tty = Tty::start(&project, &["run", "loop", "-n", "2", "--delay", "1h"]);
    tty.wait_for("Ctrl-C skips the wait");
    tty.press_ctrl_c();
    let (code, screen) = tty.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("iteration 2"), "{screen}");
}
