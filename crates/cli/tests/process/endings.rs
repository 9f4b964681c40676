//! No process is left, however a run ends and whatever processes its agent started.

use crate::kit::{Fifo, Gate, Project, Running, one};
use rustix::process::Signal;

/// Processes that an agent leaves behind. Each reports through `kid` when it is ready.
const SETSID: &str =
    "orphan { ignore TERM INT HUP; close stdin; close stdout; close stderr; ready kid; hang }";
const BARE: &str = "bare { ignore TERM INT HUP; close stdin; close stdout; close stderr; ready kid; hang }";
const RABBIT: &str = "orphan { ignore TERM INT HUP; ready kid; rabbit 60s }";
const STOPPED: &str = "child { ignore TERM INT HUP; ready kid; stop; hang }";
const HOLDING: &str = "child { ignore TERM INT HUP; ready kid; hang }";

/// A run whose agent has started its leftover process and waits at a gate.
struct Scene {
    project: Project,
    hold: Fifo,
    gate: Gate,
    run: Running,
}

impl Scene {
    fn set(mischief: &str, args: &[&str]) -> Scene {
        let project = Project::acting(&format!("hold hold\n{mischief}\nawait gate\n"));
        let (hold, kid, gate) = (project.fifo("hold"), project.fifo("kid"), project.gate("gate"));
        let mut run = project.start_run(args);
        run.wait_for("session_started");
        kid.pid();
        Scene { project, hold, gate, run }
    }

    /// Waits for the exit of the run and asserts that no process is left at that moment.
    fn ends(self, code: i32) {
        let done = self.run.finish();
        self.hold.assert_ended();
        self.project.assert_nobody_is_left();
        done.assert_code(code);
        assert_eq!(one(&self.project.journal(), "run_ended")["exit_code"], code);
        assert!(std::fs::read_dir(self.project.outside("state/dogwatch/locks")).is_ok());
    }
}

fn clean_exit(mischief: &str) {
    let scene = Scene::set(mischief, &["-n", "1"]);
    scene.gate.open();
    scene.ends(0);
}

fn timeout(mischief: &str) {
    Scene::set(mischief, &["-n", "1", "--timeout", "2s"]).ends(1);
}

fn ctrl_c_twice(mischief: &str) {
    let mut scene = Scene::set(mischief, &[]);
    scene.run.signal(Signal::INT);
    scene.run.wait_for_kind("stopping");
    scene.run.signal(Signal::INT);
    scene.ends(130);
}

fn term(mischief: &str) {
    let scene = Scene::set(mischief, &[]);
    scene.run.signal(Signal::TERM);
    scene.ends(143);
}

fn hup(mischief: &str) {
    let scene = Scene::set(mischief, &[]);
    scene.run.signal(Signal::HUP);
    scene.ends(129);
}

fn kill_9(mischief: &str) {
    let scene = Scene::set(mischief, &[]);
    let done = scene.run.kill();
    assert_eq!(done.signal, Some(9));
    scene.hold.wait_for_the_end();
    scene.project.wait_till_nobody_is_left();
}

/// dogwatch survives: it adopts the processes of the lost keeper and kills them.
fn keeper_killed(mischief: &str) {
    let scene = Scene::set(mischief, &["-n", "1"]);
    scene.project.signal_keeper(Signal::KILL);
    scene.ends(1);
}

fn keeper_stopped(mischief: &str) {
    let scene = Scene::set(mischief, &[]);
    scene.project.signal_keeper(Signal::STOP);
    scene.run.signal(Signal::TERM);
    scene.ends(143);
}

macro_rules! endings {
    ($($ending:ident),+) => {$(
        mod $ending {
            // promise: 1
            #[test]
            fn leaves_no_setsid_child_that_ignores_term() {
                super::$ending(super::SETSID);
            }

            // promise: 1
            #[test]
            fn leaves_no_setsid_child_with_a_cleared_environment() {
                super::$ending(super::BARE);
            }

            // promise: 1
            #[test]
            fn leaves_no_rabbit_that_keeps_forking() {
                super::$ending(super::RABBIT);
            }

            // promise: 1
            #[test]
            fn leaves_no_stopped_child() {
                super::$ending(super::STOPPED);
            }

            // promise: 1
            #[test]
            fn leaves_no_child_that_holds_stdout() {
                super::$ending(super::HOLDING);
            }
        }
    )+};
}

endings!(clean_exit, timeout, ctrl_c_twice, term, hup, kill_9, keeper_killed, keeper_stopped);
