//! Processes that an actor starts and leaves behind, and the handshakes that make them testable.

use crate::common;

use common::{Exit, Setup, group, parent, play, session};
use rustix::process::Signal;

#[test]
fn ready_writes_the_pid_to_a_fifo_or_a_file() {
    let setup = Setup::new();
    let fifo = setup.fifo("fifo");
    let mut harness = setup.play("ready fifo; ready file");
    assert_eq!(fifo.pid(), harness.pid);
    assert_eq!(harness.exit(), Exit::Code(0));
    let file = std::fs::read_to_string(harness.setup.path("file")).expect("written");
    assert_eq!(file, format!("{}\n", harness.pid));
}

#[test]
fn await_waits_until_the_last_writer_has_gone() {
    let setup = Setup::new();
    let (ready, after, gate) = (setup.fifo("ready"), setup.fifo("after"), setup.gate("go"));
    let mut harness = setup.play("ready ready; await go; ready after");
    let pid = ready.pid();
    harness.wait_for_state(pid, "S");
    assert!(!after.is_readable(), "it waits");
    gate.open();
    assert_eq!(after.pid(), pid);
    assert_eq!(harness.exit(), Exit::Code(0));
}

#[test]
fn hold_keeps_the_fifo_open_until_the_last_holder_exits() {
    let setup = Setup::new();
    let (held, ready) = (setup.fifo("held"), setup.fifo("ready"));
    let mut harness = setup.play("hold held; orphan { ready ready; hang }; bare { hang }; child { hang }");
    let orphan = ready.pid();
    assert_eq!(harness.exit(), Exit::Code(0));
    assert!(!held.is_readable(), "three still hold it");
    harness.kill(orphan, Signal::KILL);
    assert!(!held.is_readable(), "two still hold it");
    harness.end();
    assert_eq!(held.read_to_end(), "");
}

#[test]
fn a_child_is_in_the_same_group_and_is_not_waited_for() {
    let setup = Setup::new();
    let (ready, gate) = (setup.fifo("ready"), setup.gate("go"));
    let mut harness = setup.play("child { ready ready; hang }; say $child; await go");
    let child = ready.pid();
    assert_eq!(
        (parent(child), group(child), session(child)),
        (harness.pid, group(harness.pid), session(harness.pid))
    );
    gate.open();
    assert_eq!(harness.exit(), Exit::Code(0));
    assert_eq!(harness.end(), 1, "the child was still there");
    assert_eq!(harness.stdout(), format!("{child}\n"));
}

#[test]
fn wait_waits_for_all_children() {
    assert_eq!(play("child { print a }; wait; child { print b }; wait; print c").stdout(), "abc");
    let mut harness = play("repeat 5 { child { append log x } }; wait; exit 6");
    assert_eq!(harness.exit(), Exit::Code(6));
    let log = std::fs::read_to_string(harness.setup.path("log")).expect("written");
    assert_eq!(log, "x\n".repeat(5));
}

#[test]
fn an_orphan_starts_in_its_own_session_with_another_parent() {
    let setup = Setup::new();
    let (ready, gate) = (setup.fifo("ready"), setup.gate("go"));
    let mut harness = setup.play("orphan { ready ready; hang }; await go");
    let orphan = ready.pid();
    let harness_pid = parent(harness.pid);
    assert_eq!(parent(orphan), harness_pid, "reparented to the subreaper");
    assert_ne!(session(orphan), session(harness.pid));
    assert_ne!(group(orphan), group(harness.pid));
    gate.open();
    assert_eq!(harness.exit(), Exit::Code(0));
    assert_eq!(harness.end(), 1);
}

#[test]
fn a_bare_orphan_has_an_empty_environment() {
    let environment = |pid: i32| std::fs::read(format!("/proc/{pid}/environ")).expect("alive");
    let setup = Setup::new().env("ACTOR_NONCE", "n0nce");
    let (bare, orphan) = (setup.fifo("bare"), setup.fifo("orphan"));
    let mut harness = setup.play("bare { ready bare; hang }; orphan { ready orphan; hang }");
    let (bare, orphan) = (bare.pid(), orphan.pid());
    assert_eq!(environment(bare), b"");
    assert!(String::from_utf8_lossy(&environment(orphan)).contains("ACTOR_NONCE=n0nce"));
    assert_ne!(session(bare), session(orphan));
    assert_eq!(harness.exit(), Exit::Code(0));
    assert_eq!(harness.end(), 2);
}

#[test]
fn blocks_inherit_counter_arguments_and_prompt() {
    for step in ["child", "orphan", "bare"] {
        let setup = Setup::new().prompt("the prompt").arg("first");
        let done = setup.fifo("done");
        let steps = format!(
            "counter n; read-prompt; {step} {{ on 1 {{ write out $n $arg:1 $prompt }}; ready done }}"
        );
        let harness = setup.play(&steps);
        assert_ne!(done.pid(), harness.pid);
        let out = std::fs::read_to_string(harness.setup.path("out")).expect("written");
        assert_eq!(out, "1 first the prompt\n", "{step}");
    }
}

#[test]
fn blocks_can_start_blocks() {
    let setup = Setup::new();
    let deep = setup.fifo("deep");
    let mut harness =
        setup.play("child { child { orphan { ready deep }; append log b }; wait; append log c }; wait");
    assert_ne!(deep.pid(), harness.pid);
    assert_eq!(harness.exit(), Exit::Code(0));
    let log = std::fs::read_to_string(harness.setup.path("log")).expect("written");
    assert_eq!(log, "b\nc\n");
}

#[test]
fn a_rabbit_keeps_forking_until_its_limit() {
    let setup = Setup::new();
    let (held, ready) = (setup.fifo("held"), setup.fifo("ready"));
    let mut harness = setup.play("hold held; rabbit 100ms; ready ready; hang");
    assert_eq!(harness.exit(), Exit::Code(0), "the first parent has exited");
    let last = ready.pid();
    assert_ne!(last, harness.pid);
    assert_eq!(session(last), last, "it leads a session");
    assert!(!held.is_readable(), "the FIFO stayed open all the time");
    assert!(harness.end() >= 1, "its latest parents may still be exiting");
    assert_eq!(held.read_to_end(), "");
}

#[test]
fn blocks_are_started_with_the_same_command_line_prefix() {
    let setup = Setup::new();
    let done = setup.fifo("done");
    let harness = setup.call(&["actor", "-e", "orphan { child { ready done; hang }; hang }"]);
    let command_line = std::fs::read_to_string(format!("/proc/{}/cmdline", done.pid())).expect("alive");
    let words: Vec<&str> = command_line.split('\0').collect();
    assert_eq!(words[1..4], ["actor", "-e", " ready done; hang "]);
    drop(harness);
}
