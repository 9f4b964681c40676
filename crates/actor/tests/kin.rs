//! Processes that an actor leaves behind, and the handshakes that make them testable.

mod common;

use common::{How, Props, group, parent, play, session};
use rustix::process::Signal;

#[test]
fn ready_writes_the_pid_to_a_fifo_or_a_file() {
    let props = Props::new();
    let fifo = props.fifo("fifo");
    let mut stage = props.play("ready fifo; ready file");
    assert_eq!(fifo.pid(), stage.pid);
    assert_eq!(stage.how(), How::Code(0));
    let file = std::fs::read_to_string(stage.props.path("file")).expect("written");
    assert_eq!(file, format!("{}\n", stage.pid));
}

#[test]
fn await_waits_until_the_last_writer_has_gone() {
    let props = Props::new();
    let (ready, after, gate) = (props.fifo("ready"), props.fifo("after"), props.gate("go"));
    let mut stage = props.play("ready ready; await go; ready after");
    let pid = ready.pid();
    stage.wait_for_state(pid, "S");
    assert!(!after.stirs(), "it waits");
    gate.open();
    assert_eq!(after.pid(), pid);
    assert_eq!(stage.how(), How::Code(0));
}

#[test]
fn hold_ends_when_the_last_holder_is_gone_and_not_before() {
    let props = Props::new();
    let (held, ready) = (props.fifo("held"), props.fifo("ready"));
    let mut stage = props.play("hold held; orphan { ready ready; hang }; bare { hang }; child { hang }");
    let orphan = ready.pid();
    assert_eq!(stage.how(), How::Code(0));
    assert!(!held.stirs(), "three still hold it");
    stage.kill(orphan, Signal::KILL);
    assert!(!held.stirs(), "two still hold it");
    stage.end();
    assert_eq!(held.read_to_end(), "");
}

#[test]
fn a_child_is_in_the_same_group_and_is_not_waited_for() {
    let props = Props::new();
    let (ready, gate) = (props.fifo("ready"), props.gate("go"));
    let mut stage = props.play("child { ready ready; hang }; say $child; await go");
    let child = ready.pid();
    assert_eq!(
        (parent(child), group(child), session(child)),
        (stage.pid, group(stage.pid), session(stage.pid))
    );
    gate.open();
    assert_eq!(stage.how(), How::Code(0));
    assert_eq!(stage.end(), 1, "the child was still there");
    assert_eq!(stage.stdout(), format!("{child}\n"));
}

#[test]
fn wait_waits_for_all_children() {
    assert_eq!(play("child { print a }; wait; child { print b }; wait; print c").stdout(), "abc");
    let mut stage = play("repeat 5 { child { append log x } }; wait; exit 6");
    assert_eq!(stage.how(), How::Code(6));
    let log = std::fs::read_to_string(stage.props.path("log")).expect("written");
    assert_eq!(log, "x\n".repeat(5));
}

#[test]
fn an_orphan_has_a_session_of_its_own_and_another_parent_at_once() {
    let props = Props::new();
    let (ready, gate) = (props.fifo("ready"), props.gate("go"));
    let mut stage = props.play("orphan { ready ready; hang }; await go");
    let orphan = ready.pid();
    let stage_pid = parent(stage.pid);
    assert_eq!(parent(orphan), stage_pid, "reparented to the subreaper");
    assert_ne!(session(orphan), session(stage.pid));
    assert_ne!(group(orphan), group(stage.pid));
    gate.open();
    assert_eq!(stage.how(), How::Code(0));
    assert_eq!(stage.end(), 1);
}

#[test]
fn a_bare_orphan_has_nothing_in_its_environment_and_others_have_it_all() {
    let environment = |pid: i32| std::fs::read(format!("/proc/{pid}/environ")).expect("alive");
    let props = Props::new().env("ACTOR_NONCE", "n0nce");
    let (bare, orphan) = (props.fifo("bare"), props.fifo("orphan"));
    let mut stage = props.play("bare { ready bare; hang }; orphan { ready orphan; hang }");
    let (bare, orphan) = (bare.pid(), orphan.pid());
    assert_eq!(environment(bare), b"");
    assert!(String::from_utf8_lossy(&environment(orphan)).contains("ACTOR_NONCE=n0nce"));
    assert_ne!(session(bare), session(orphan));
    assert_eq!(stage.end(), 2);
}

#[test]
fn whatever_a_block_needs_goes_along_with_it() {
    for kin in ["child", "orphan", "bare"] {
        let props = Props::new().prompt("the prompt").arg("first");
        let done = props.fifo("done");
        let steps =
            format!("counter n; read-prompt; {kin} {{ on 1 {{ write out $n $arg:1 $prompt }}; ready done }}");
        let stage = props.play(&steps);
        assert_ne!(done.pid(), stage.pid);
        let out = std::fs::read_to_string(stage.props.path("out")).expect("written");
        assert_eq!(out, "1 first the prompt\n", "{kin}");
    }
}

#[test]
fn blocks_may_start_blocks() {
    let props = Props::new();
    let deep = props.fifo("deep");
    let mut stage =
        props.play("child { child { orphan { ready deep }; append log b }; wait; append log c }; wait");
    assert_ne!(deep.pid(), stage.pid);
    assert_eq!(stage.how(), How::Code(0));
    let log = std::fs::read_to_string(stage.props.path("log")).expect("written");
    assert_eq!(log, "b\nc\n");
}

#[test]
fn a_rabbit_runs_from_process_to_process_and_stops_at_its_limit() {
    let props = Props::new();
    let (held, ready) = (props.fifo("held"), props.fifo("ready"));
    let mut stage = props.play("hold held; rabbit 100ms; ready ready; hang");
    assert_eq!(stage.how(), How::Code(0), "the first parent has exited");
    let last = ready.pid();
    assert_ne!(last, stage.pid);
    assert_eq!(session(last), last, "its own session");
    assert!(!held.stirs(), "it never let go on the way");
    assert!(stage.end() >= 1, "its latest parents may still be on their way out");
    assert_eq!(held.read_to_end(), "");
}

#[test]
fn whoever_is_called_with_words_before_calls_its_blocks_with_them_too() {
    let props = Props::new();
    let done = props.fifo("done");
    let stage = props.call(&["actor", "-e", "orphan { child { ready done; hang }; hang }"]);
    let command_line = std::fs::read_to_string(format!("/proc/{}/cmdline", done.pid())).expect("alive");
    let words: Vec<&str> = command_line.split('\0').collect();
    assert_eq!(words[1..4], ["actor", "-e", " ready done; hang "]);
    drop(stage);
}
