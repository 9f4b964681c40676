//! Wake on paths beyond its limits: lost events, too few watches, more files than can be remembered.

use crate::wake_rig;

use dogwatch_host::fs::wake::{Bounds, Coverage, Shortage};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};
use wake_rig::{AMPLE, Rig};

#[test]
fn a_new_file_left_open_wakes_after_a_while_or_at_once_beyond_the_limit() {
    let mut rig = Rig::new();
    rig.bounds.closed_within = Duration::from_millis(1);
    let watching = rig.watch(&["inbox/*"]);
    let _open = fs::File::create(rig.path("inbox/open")).expect("made");
    watching.woken_by("inbox/open");
    rig.bounds = Bounds { closed_within: AMPLE, unfinished: 1, ..rig.bounds };
    let watching = rig.watch(&["inbox/*"]);
    let _one = fs::File::create(rig.path("inbox/one")).expect("made");
    let _two = fs::File::create(rig.path("inbox/two")).expect("made");
    watching.woken_by("inbox/two");
}

/// Returns a wake callback that blocks the waker's thread after the first wake until `go` is dropped.
fn held() -> (Receiver<PathBuf>, Sender<()>, impl Fn(PathBuf) + Send + 'static) {
    let (sender, wakes) = channel();
    let (go, wait) = channel::<()>();
    let on_wake = move |path| {
        sender.send(path).unwrap_or(());
        wait.recv().unwrap_or(());
    };
    (wakes, go, on_wake)
}

/// Creates more events than the system queues for a blocked reader.
fn overflow(rig: &Rig) {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
    let limit: usize = limit.trim().parse().expect("a number");
    for _ in 0..limit / 3 + 1 {
        fs::write(rig.path("inbox/noise.txt"), "").expect("written");
        fs::remove_file(rig.path("inbox/noise.txt")).expect("removed");
    }
}

#[test]
fn a_change_lost_in_an_overflow_is_found_and_wakes() {
    let rig = Rig::new();
    rig.write("inbox/gone.md", "x");
    rig.write("inbox/changed.md", "x");
    for lose in [
        |rig: &Rig| rig.write("inbox/deep/new.md", "x"),
        |rig: &Rig| rig.write("inbox/changed.md", "y"),
        |rig: &Rig| fs::remove_file(rig.path("inbox/gone.md")).expect("removed"),
    ] {
        let (wakes, go, on_wake) = held();
        let watching = rig.watch_with(&["inbox/**/*.md", "start"], wakes, on_wake);
        rig.write("start", &format!("{:?}", SystemTime::now()));
        watching.woken_by("start");
        overflow(&rig);
        lose(&rig);
        drop(go);
        watching.waker.rearm();
        let found = watching.wakes.recv_timeout(AMPLE).expect("a wake");
        assert!(found.starts_with("inbox"), "{}", found.display());
    }
}

#[test]
fn an_overflow_without_a_lost_change_does_not_wake() {
    let rig = Rig::new();
    rig.write("inbox/a.md", "x");
    let (wakes, go, on_wake) = held();
    let watching = rig.watch_with(&["inbox/**/*.md", "start"], wakes, on_wake);
    rig.write("start", "x");
    watching.woken_by("start");
    overflow(&rig);
    drop(go);
    watching.waker.rearm();
    // A directory created during the overflow is watched afterwards.
    rig.write("inbox/later/sentinel.md", "x");
    watching.woken_by("inbox/later/sentinel.md");
}

#[test]
fn beyond_the_watch_limit_it_scans_and_reports_that() {
    let mut rig = Rig::new();
    rig.bounds = Bounds { watches: 3, scan_every: Duration::from_millis(20), ..rig.bounds };
    rig.write("inbox/a/1.md", "x");
    let watching = rig.watch(&["inbox/**/*.md"]);
    assert_eq!(watching.coverage, Coverage::Watched { dirs: 3 }, "as many as the limit");
    rig.write("inbox/b/c/2.md", "x");
    watching.woken_by("inbox/b/c/2.md");
    watching.waker.rearm();
    rig.write("inbox/b/c/2.md", "y");
    watching.woken_by("inbox/b/c/2.md");
    watching.waker.rearm();
    fs::remove_file(rig.path("inbox/b/c/2.md")).expect("removed");
    watching.woken_by("inbox/b/c/2.md");
    let coverage = watching.waker.coverage().expect("coverage is set");
    assert!(matches!(coverage, Coverage::Scanned { dirs: 3, why: Shortage::WatchLimit, .. }), "{coverage}");
    assert!(coverage.to_string().contains("max_user_watches"), "{coverage}");
}

#[test]
fn a_survey_ends_at_its_limit_and_reports_that() {
    let mut rig = Rig::new();
    for at in 0..10 {
        rig.write(&format!("inbox/{at}"), "x");
    }
    // One of the entries is `inbox` itself.
    rig.bounds.surveyed = 11;
    assert!(matches!(rig.watch(&["inbox/*"]).coverage, Coverage::Watched { .. }));
    rig.bounds.surveyed = 10;
    assert_eq!(rig.watch(&["inbox/*"]).coverage, Coverage::Partly { entries: 10 });
}

#[test]
fn every_write_counts_for_files_beyond_the_memory_limit() {
    let touched = |bounds: Bounds| {
        let mut rig = Rig::new();
        rig.write("inbox/a", "1234");
        rig.bounds = bounds;
        let watching = rig.watch(&["inbox/*"]);
        assert!(
            Command::new("touch").arg(rig.path("inbox/a")).status().expect("touch is installed").success()
        );
        rig.write("inbox/sentinel", "");
        watching.wakes.recv_timeout(AMPLE).expect("a wake") == Path::new("inbox/a")
    };
    let bounds = Bounds { closed_within: AMPLE, ..Bounds::default() };
    assert!(!touched(bounds));
    assert!(touched(Bounds { known_files: 0, ..bounds }) && !touched(Bounds { known_files: 1, ..bounds }));
    assert!(touched(Bounds { known_bytes: 3, ..bounds }) && !touched(Bounds { known_bytes: 4, ..bounds }));
    assert!(touched(Bounds { first_bytes: 3, ..bounds }) && !touched(Bounds { first_bytes: 4, ..bounds }));
}
