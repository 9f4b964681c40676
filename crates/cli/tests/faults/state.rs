//! The state directory is a link, or cannot be written.

use crate::kit::Project;
use crate::kit::skip::skip;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

#[test]
fn a_state_directory_behind_a_link_works_and_resumes() {
    let project = Project::acting("counter ../count; on 1 { ready there; hang }");
    let there = project.fifo("there");
    std::fs::create_dir(project.outside("elsewhere")).expect("a directory");
    std::os::unix::fs::symlink(project.outside("elsewhere"), project.path(".dogwatch")).expect("a link");
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    run.kill();
    let done = project.call(&["resume", "--json"]);
    assert_eq!(done.assert_code(0).end()["completed"], 1);
    assert!(project.outside("elsewhere/runs").is_dir());
    project.assert_no_process_left();
}

#[test]
fn a_read_only_state_directory_starts_nothing_and_is_named() {
    let project = Project::acting("append starts $pid");
    let disk = project.path("disk");
    std::fs::create_dir(&disk).expect("a directory");
    if let Err(error) = mount("tmpfs", &disk, "tmpfs", MountFlags::RDONLY, None) {
        return skip(&format!("cannot mount a tmpfs here: {error}"));
    }
    let done = project.call(&["run", "loop", "-n", "1", "--state-dir", "disk/state"]);
    let unmounted = unmount(&disk, UnmountFlags::DETACH);
    done.assert_code(2);
    assert!(done.stderr.contains("disk/state") && done.stderr.contains("help:"), "{}", done.stderr);
    assert!(!project.path("starts").exists());
    unmounted.expect("it was mounted");
}
