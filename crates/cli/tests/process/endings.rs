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
    fn set(leftover: &str, args: &[&str]) -> Scene {
        let project = Project::acting(&format!("hold hold\n{leftover}\nawait gate\n"));
        let (hold, kid, gate) = (project.fifo("hold"), project.fifo("kid"), project.gate("gate"));
        let mut run = project.start_run(args);
        run.wait_for("session_started");
        kid.pid();
        Scene { project, hold, gate, run }
    }

    /// Waits for the exit of the run and asserts that no process is left at that moment.
    fn ends(self, code: i32) {
        let done = self.run.finish();
        self.hold.assert_released();
        self.project.assert_no_process_left();
        done.assert_code(code);
        assert_eq!(one(&self.project.journal(), "run_ended")["exit_code"], code);
        assert!(std::fs::read_dir(self.project.outside("state/dogwatch/locks")).is_ok());
    }
}

fn clean_exit(leftover: &str) {
    let scene = Scene::set(leftover, &["-n", "1"]);
    scene.gate.open();
    scene.ends(0);
}

fn timeout(leftover: &str) {
    Scene::set(leftover, &["-n", "1", "--timeout", "2s"]).ends(1);
}

fn ctrl_c_twice(leftover: &str) {
    let mut scene = Scene::set(leftover, &[]);
    scene.run.signal(Signal::INT);
    scene.run.wait_for_kind("stopping");
    scene.run.signal(Signal::INT);
    scene.ends(130);
}

fn term(leftover: &str) {
    let scene = Scene::set(leftover, &[]);
    scene.run.signal(Signal::TERM);
    scene.ends(143);
}

fn hup(leftover: &str) {
    let scene = Scene::set(leftover, &[]);
    scene.run.signal(Signal::HUP);
    scene.ends(129);
}

fn kill_9(leftover: &str) {
    let scene = Scene::set(leftover, &[]);
    let done = scene.run.kill();
    assert_eq!(done.signal, Some(9));
    scene.hold.wait_until_released();
    scene.project.wait_until_no_process_left();
}

/// dogwatch survives: it adopts the processes of the lost keeper and kills them.
fn keeper_killed(leftover: &str) {
    let scene = Scene::set(leftover, &["-n", "1"]);
    scene.project.signal_keeper(Signal::KILL);
    scene.ends(1);
}

fn keeper_stopped(leftover: &str) {
    let scene = Scene::set(leftover, &[]);
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
