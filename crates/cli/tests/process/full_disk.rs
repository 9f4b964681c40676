//! A full disk: running sessions stay supervised, nothing new starts, and the run continues when there is space again.
//! The disk is a small tmpfs, so these tests need the right to mount one.

use crate::kit::skip::skip;
use crate::kit::{GRACES, Project, Running, TIMEOUT, all, journal, kinds, names, one};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A small disk, unmounted when the test ends.
struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Mounts the disk. Reports a skip and returns `None` if mounting is not allowed.
    fn mount(at: &Path) -> Option<SmallDisk> {
        std::fs::create_dir_all(at).expect("a directory");
        match mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(c"size=256k,mode=700")) {
            Ok(()) => Some(SmallDisk { at: at.to_owned() }),
            Err(error) => {
                skip(&format!("cannot mount a tmpfs here: {error}"));
                None
            }
        }
    }

    /// Fills the disk completely.
    fn fill(&self) {
        let mut filler = std::fs::File::create(self.at.join("filler")).expect("an empty file can be created");
        for size in [4096, 1] {
            while filler.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.at.join("filler")).expect("it existed");
    }

    fn run_dir(&self) -> PathBuf {
        let mut runs = std::fs::read_dir(self.at.join("state/runs")).expect("a run was recorded").flatten();
        runs.next().expect("one run").path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

// promise: 10
#[test]
fn a_full_disk_holds_new_starts_back_until_there_is_room_and_the_journal_has_no_gap() {
    let front = format!("{GRACES}\ncommands: [{{name: c, run: echo c}}]");
    let project =
        Project::acting_with(&front, "append starts $pid; flood 20kB; ready there; await gate; flood 50kB");
    let Some(disk) = SmallDisk::mount(&project.path("small")) else { return };
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start(&["run", "loop", "-n", "3", "--state-dir", "small/state"]);
    there.pid();
    disk.fill();
    gate.open();
    run.wait_for_line("nothing new is started until it can be written");
    assert_eq!(project.lines("starts").len(), 1, "the disk is full");
    disk.make_room();
    run.wait_for_line("the record can be written again");
    there.pid();
    // The disk is full again during a session: the session stays supervised and can be stopped.
    disk.fill();
    run.signal(Signal::INT);
    run.wait_for_line("stopping after this iteration");
    disk.make_room();
    gate.open();
    let done = run.finish();
    done.assert_code(0);
    project.assert_no_process_left();
    assert_eq!(project.lines("starts").len(), 2);
    let events = journal(&disk.run_dir());
    assert_eq!(all(&events, "iteration_completed").len(), 2, "{:?}", names(&events));
    assert_eq!(one(&events, "run_ended")["outcome"], "stopped");
    assert_eq!(
        all(&events, "iteration_failed").len(),
        0,
        "a full disk does not count as a failure of the agent"
    );
    // There are two if the second session's first output was still buffered when the disk was full again.
    assert!(!kinds(&events, "raw_output_lost").is_empty(), "lost output is reported");
    let ended = all(&events, "session_ended")[0];
    let kept = std::fs::metadata(disk.run_dir().join("loop/000001/stdout")).expect("it exists").len();
    assert_eq!(ended["cut_bytes"].as_u64().expect("some bytes are cut") + kept, 70_000);
}

// promise: 10
#[test]
fn a_run_that_waits_for_room_can_be_stopped() {
    // Without the agent channel no file is removed with the session, which would free space for one more event.
    let front = format!("{GRACES}\nmcp: false");
    let project = Project::acting_with(&front, "append starts $pid; ready there; await gate");
    let Some(disk) = SmallDisk::mount(&project.path("small")) else { return };
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start(&["run", "loop", "--state-dir", "small/state"]);
    there.pid();
    disk.fill();
    gate.open();
    run.wait_for_line("nothing new is started until it can be written");
    let began = Instant::now();
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
    assert!(began.elapsed() < TIMEOUT / 3, "{:?}", began.elapsed());
    assert_eq!(project.lines("starts").len(), 1);
    project.assert_no_process_left();
}

/// Starts a run of one iteration on this disk and waits until its agent is at the gate. The journal's last page is
/// full, so the end of the run needs more space.
fn up_to_the_last_page(project: &Project, disk: &SmallDisk) -> Running {
    let there = project.fifo("there");
    let run = project.start(&["run", "loop", "-n", "1", "--state-dir", "small/state"]);
    there.pid();
    let until = Instant::now() + TIMEOUT;
    let left =
        || 4096 - std::fs::metadata(disk.run_dir().join("events.jsonl")).expect("it exists").len() % 4096;
    while left() > 700 {
        assert!(Instant::now() < until, "{} bytes are left", left());
        let before = left();
        let words = "x".repeat(usize::try_from(before - 500).expect("small"));
        let id = disk.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
        project.call(&["tell", &id, &words, "--state-dir", "small/state"]).assert_code(0);
        while left() == before {
            assert!(Instant::now() < until, "nothing was written");
            std::thread::yield_now();
        }
    }
    disk.fill();
    run
}

// promise: 10, 13
#[test]
fn the_end_of_a_run_waits_for_room_and_is_not_forgotten() {
    let project = Project::acting_with(&format!("{GRACES}\nmcp: false"), "ready there; await gate");
    let Some(disk) = SmallDisk::mount(&project.path("small")) else { return };
    let gate = project.gate("gate");
    let mut run = up_to_the_last_page(&project, &disk);
    gate.open();
    run.wait_for_error("waiting up to 30 s for room");
    disk.make_room();
    let done = run.finish();
    done.assert_code(0);
    assert_eq!(one(&journal(&disk.run_dir()), "run_ended")["outcome"], "clean");
}

// promise: 10, 13
#[test]
fn a_run_whose_end_finds_no_room_does_not_exit_with_0() {
    let project = Project::acting_with(&format!("{GRACES}\nmcp: false"), "ready there; await gate");
    let Some(disk) = SmallDisk::mount(&project.path("small")) else { return };
    let gate = project.gate("gate");
    let mut run = up_to_the_last_page(&project, &disk);
    gate.open();
    run.wait_for_error("waiting up to 30 s for room");
    // The operator does not wait for free space.
    run.signal(Signal::TERM);
    let done = run.finish();
    done.assert_code(5);
    assert!(done.stderr.contains("cannot write the end of the run to"), "{}", done.stderr);
    assert!(all(&journal(&disk.run_dir()), "run_ended").is_empty());
    project.assert_no_process_left();
}
