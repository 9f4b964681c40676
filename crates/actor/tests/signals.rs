//! How an actor ends, and how it refuses to.

mod common;

use common::{How, Props, play};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[test]
fn a_script_ends_with_0_or_with_the_code_it_says() {
    assert_eq!(play("say x").how(), How::Code(0));
    assert_eq!(play("exit 3; say never").how(), How::Code(3));
    assert_eq!(play("repeat 9 { exit 255 }").how(), How::Code(255));
}

#[test]
fn crash_dies_by_the_signal_even_if_it_was_ignored() {
    for (name, signal) in [
        ("TERM", Signal::TERM),
        ("SEGV", Signal::SEGV),
        ("BUS", Signal::BUS),
        ("ABRT", Signal::ABORT),
        ("KILL", Signal::KILL),
        ("PIPE", Signal::PIPE),
        ("HUP", Signal::HUP),
    ] {
        assert_eq!(play(&format!("crash {name}")).how(), How::Signal(signal.as_raw()), "{name}");
    }
    let mut stage = play("ignore TERM; crash TERM");
    assert_eq!(stage.how(), How::Signal(Signal::TERM.as_raw()));
}

#[test]
fn an_actor_that_ignores_a_signal_lives_and_one_that_does_not_dies_of_it() {
    let props = Props::new();
    let (ready, gate) = (props.fifo("ready"), props.gate("go"));
    let mut stage = props.play("ignore TERM int HUP; ready ready; await go; exit 4");
    let pid = ready.pid();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        stage.kill(pid, signal);
    }
    gate.open();
    assert_eq!(stage.how(), How::Code(4));

    let props = Props::new();
    let ready = props.fifo("ready");
    let mut stage = props.play("ready ready; hang");
    stage.kill(ready.pid(), Signal::TERM);
    assert_eq!(stage.how(), How::Signal(Signal::TERM.as_raw()));
}

#[test]
fn a_child_ignores_what_its_parent_ignored() {
    let props = Props::new();
    let (ready, gate) = (props.fifo("ready"), props.gate("go"));
    let mut stage = props.play("ignore TERM; child { ready ready; await go; say lived }; wait");
    stage.kill(ready.pid(), Signal::TERM);
    gate.open();
    assert_eq!((stage.stdout().as_str(), stage.how()), ("lived\n", How::Code(0)));
}

#[test]
fn hang_sleeps_without_cpu_until_it_is_killed() {
    let props = Props::new();
    let ready = props.fifo("ready");
    let mut stage = props.play("ready ready; hang; say never");
    let pid = ready.pid();
    stage.wait_for_state(pid, "S");
    stage.kill(pid, Signal::KILL);
    let (how, cpu) = stage.ended();
    assert_eq!((how, stage.stdout().as_str()), (How::Signal(Signal::KILL.as_raw()), ""));
    assert!(cpu < Duration::from_millis(200), "{cpu:?}");
}

#[test]
fn stop_stops_until_somebody_says_go_on() {
    let mut stage = play("stop; say on");
    stage.wait_for_state(stage.pid, "T");
    stage.kill(stage.pid, Signal::CONT);
    assert_eq!((stage.stdout().as_str(), stage.how()), ("on\n", How::Code(0)));
}

#[test]
fn burn_uses_cpu_and_sleep_uses_time() {
    let (how, cpu) = play("burn 80ms").ended();
    assert_eq!(how, How::Code(0));
    assert!(cpu >= Duration::from_millis(70), "{cpu:?}");
    let before = Instant::now();
    let (how, cpu) = play("sleep 80ms").ended();
    assert_eq!(how, How::Code(0));
    assert!(before.elapsed() >= Duration::from_millis(80) && cpu < Duration::from_millis(80), "{cpu:?}");
}
