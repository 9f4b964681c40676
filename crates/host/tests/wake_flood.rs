//! A hundred thousand files at once, in a separate process because memory is measured.

use dogwatch_host::fs::wake::PathWaker;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// More time than this test needs.
const AMPLE: Duration = Duration::from_secs(120);
/// Room for [`dogwatch_host::fs::wake::MAX_KNOWN_FILES`] files with their names, pending events, and some margin.
const MAX_GROWTH_KIB: u64 = 12 * 1024;

#[test]
fn a_hundred_thousand_files_at_once_are_one_wake_in_bounded_memory() {
    // Use memory if possible, because a busy disk takes a minute for this.
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let (sender, wakes) = channel();
    let on_wake = move |path| sender.send(path).unwrap_or(());
    let waker = PathWaker::start(root.path(), &["inbox/**".to_owned()], &[], on_wake).expect("started");
    waker.ready(AMPLE).expect("ready");
    let before = resident_kib();
    let began = Instant::now();
    flood(root.path());
    println!("created in {:?}", began.elapsed());
    wakes.recv_timeout(AMPLE).expect("a wake");
    assert!(wakes.try_recv().is_err(), "one wake");
    // After rearming, all remaining changes cause one more wake.
    waker.rearm();
    wakes.recv_timeout(AMPLE).expect("a wake");
    waker.stop();
    let grown = resident_kib().saturating_sub(before);
    println!("grew by {grown} KiB in {:?}", began.elapsed());
    assert!(grown < MAX_GROWTH_KIB, "memory grew by {grown} KiB");
    each_is_a_wake(root.path());
}

fn flood(root: &Path) {
    for dir in 0..100 {
        let dir = root.join(format!("inbox/{dir}"));
        fs::create_dir_all(&dir).expect("made");
        for at in 0..1_000 {
            fs::File::create(dir.join(at.to_string())).expect("made");
        }
    }
}

/// Each file that is closed is a wake. The benchmark measures how long that takes.
fn each_is_a_wake(root: &Path) {
    fs::create_dir(root.join("few")).expect("made");
    let (ours, theirs) = UnixDatagram::pair().expect("a pair");
    let on_wake = move |_| drop(theirs.send(b"!"));
    let waker = PathWaker::start(root, &["few/*.md".to_owned()], &[], on_wake).expect("started");
    waker.ready(AMPLE).expect("ready");
    ours.set_read_timeout(Some(AMPLE)).expect("set");
    for at in 0..200 {
        fs::write(root.join(format!("few/{at}.md")), "work").expect("written");
        ours.recv(&mut [0; 1]).expect("a wake");
        waker.rearm();
    }
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}
