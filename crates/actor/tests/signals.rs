//! Exit codes and signals of an actor.

use crate::common;

use common::{Exit, Setup, play};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[test]
fn a_script_exits_with_0_or_the_given_code() {
    assert_eq!(play("say x").exit(), Exit::Code(0));
    assert_eq!(play("exit 3; say never").exit(), Exit::Code(3));
    assert_eq!(play("repeat 9 { exit 255 }").exit(), Exit::Code(255));
}

#[test]
fn crash_dies_by_the_signal_even_if_ignored() {
    for (name, signal) in [
        ("TERM", Signal::TERM),
        ("SEGV", Signal::SEGV),
        ("BUS", Signal::BUS),
        ("ABRT", Signal::ABORT),
        ("KILL", Signal::KILL),
        ("PIPE", Signal::PIPE),
        ("HUP", Signal::HUP),
    ] {
        assert_eq!(play(&format!("crash {name}")).exit(), Exit::Signal(signal.as_raw()), "{name}");
    }
    let mut harness = play("ignore TERM; crash TERM");
    assert_eq!(harness.exit(), Exit::Signal(Signal::TERM.as_raw()));
}

#[test]
fn ignored_signals_do_not_kill_the_actor() {
    let setup = Setup::new();
    let (ready, gate) = (setup.fifo("ready"), setup.gate("go"));
    let mut harness = setup.play("ignore TERM int HUP; ready ready; await go; exit 4");
    let pid = ready.pid();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        harness.kill(pid, signal);
    }
    gate.open();
    assert_eq!(harness.exit(), Exit::Code(4));

    let setup = Setup::new();
    let ready = setup.fifo("ready");
    let mut harness = setup.play("ready ready; hang");
    harness.kill(ready.pid(), Signal::TERM);
    assert_eq!(harness.exit(), Exit::Signal(Signal::TERM.as_raw()));
}

#[test]
fn a_child_inherits_ignored_signals() {
    let setup = Setup::new();
    let (ready, gate) = (setup.fifo("ready"), setup.gate("go"));
    let mut harness = setup.play("ignore TERM; child { ready ready; await go; say lived }; wait");
    harness.kill(ready.pid(), Signal::TERM);
    gate.open();
    assert_eq!((harness.stdout().as_str(), harness.exit()), ("lived\n", Exit::Code(0)));
}

#[test]
fn hang_sleeps_without_cpu_until_it_is_killed() {
    let setup = Setup::new();
    let ready = setup.fifo("ready");
    let mut harness = setup.play("ready ready; hang; say never");
    let pid = ready.pid();
    harness.wait_for_state(pid, "S");
    harness.kill(pid, Signal::KILL);
    let (how, cpu) = harness.ended();
    assert_eq!((how, harness.stdout().as_str()), (Exit::Signal(Signal::KILL.as_raw()), ""));
    assert!(cpu < Duration::from_millis(200), "{cpu:?}");
}

#[test]
fn stop_suspends_the_actor_until_sigcont() {
    let mut harness = play("stop; say on");
    harness.wait_for_state(harness.pid, "T");
    harness.kill(harness.pid, Signal::CONT);
    assert_eq!((harness.stdout().as_str(), harness.exit()), ("on\n", Exit::Code(0)));
}

#[test]
fn burn_uses_cpu_and_sleep_does_not() {
    let (how, cpu) = play("burn 80ms").ended();
    assert_eq!(how, Exit::Code(0));
    assert!(cpu >= Duration::from_millis(70), "{cpu:?}");
    let before = Instant::now();
    let (how, cpu) = play("sleep 80ms").ended();
    assert_eq!(how, Exit::Code(0));
    assert!(before.elapsed() >= Duration::from_millis(80) && cpu < Duration::from_millis(80), "{cpu:?}");
}
