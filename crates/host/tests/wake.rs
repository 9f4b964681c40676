//! Wake on paths, on real files and real git repositories.
//!
//! Nothing sleeps here. That something does *not* wake is shown by a sentinel: the silent change first, then one
//! that wakes, and the sentinel's path is the first to arrive.

use dogwatch_host::wake::{Bounds, Coverage, PathWaker, Shortage};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

/// More than any test needs.
const AMPLE: Duration = Duration::from_secs(60);

struct Rig {
    dir: tempfile::TempDir,
    state: PathBuf,
    bounds: Bounds,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("w/.dogwatch");
        fs::create_dir_all(dir.path().join("w/inbox")).expect("made");
        // A new file counts when it is closed, in these tests at the earliest then.
        let bounds = Bounds { closed_within: AMPLE, ..Bounds::default() };
        Rig { dir, state, bounds }
    }

    fn git() -> Rig {
        let rig = Rig::new();
        rig.run_git(&["init", "-q"]);
        rig.write(".gitignore", "build/\n*.log\n");
        rig.commit();
        rig
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("w")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("written");
    }

    fn run_git(&self, args: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let done = Command::new("git").args(who).args(args).current_dir(self.root()).status();
        assert!(done.expect("git is there").success());
    }

    fn commit(&self) {
        self.run_git(&["add", "-A"]);
        self.run_git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    }

    fn watch(&self, globs: &[&str]) -> Watching {
        let (told, wakes) = channel();
        self.watch_with(globs, wakes, move |path| told.send(path).unwrap_or(()))
    }

    fn watch_with(
        &self,
        globs: &[&str],
        wakes: Receiver<PathBuf>,
        on_wake: impl Fn(PathBuf) + Send + 'static,
    ) -> Watching {
        next_tick();
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let state = [self.state.clone()];
        let waker =
            PathWaker::start_within(self.bounds, &self.root(), &globs, &state, on_wake).expect("started");
        let coverage = waker.ready(AMPLE).expect("ready");
        Watching { waker, wakes, coverage }
    }
}

/// What was written so far must be older than the watch, on the clock that stamps files: it goes in steps.
fn next_tick() {
    let now = clock_gettime(ClockId::Realtime);
    while clock_gettime(ClockId::RealtimeCoarse) <= now {
        std::hint::spin_loop();
    }
}

struct Watching {
    waker: PathWaker,
    wakes: Receiver<PathBuf>,
    coverage: Coverage,
}

impl Watching {
    #[track_caller]
    fn woken_by(&self, path: &str) {
        assert_eq!(self.wakes.recv_timeout(AMPLE).expect("a wake"), Path::new(path));
    }

    /// The next change wakes again.
    #[track_caller]
    fn again_by(&self, path: &str) {
        self.waker.rearm();
        self.woken_by(path);
    }
}

#[test]
fn a_written_file_wakes_and_others_do_not() {
    let rig = Rig::new();
    let watching = rig.watch(&["inbox/**/*.md", "TODO.md"]);
    rig.write("inbox/a.txt", "no glob names it");
    rig.write("other/a.md", "nor this");
    rig.write("inbox/a.md", "work");
    watching.woken_by("inbox/a.md");
    rig.write("TODO.md", "work");
    watching.again_by("TODO.md");
    assert!(matches!(watching.coverage, Coverage::Watched { .. }));
    watching.waker.stop();
}

#[test]
fn files_in_directories_made_later_wake_however_fast_they_come() {
    let rig = Rig::new();
    let watching = rig.watch(&["inbox/**/*.md"]);
    for at in 0..100 {
        let name = format!("inbox/{at}/b/c/task.md");
        rig.write(&name, "work");
        watching.woken_by(&name);
        watching.waker.rearm();
    }
}

#[test]
fn a_file_renamed_into_place_wakes() {
    let rig = Rig::new();
    rig.write("TODO.md", "old");
    let watching = rig.watch(&["TODO.md"]);
    rig.write(".TODO.md.swp", "new");
    fs::rename(rig.path(".TODO.md.swp"), rig.path("TODO.md")).expect("renamed");
    watching.woken_by("TODO.md");
}

#[test]
fn a_directory_moved_in_wakes_by_what_it_holds_and_one_moved_away_too() {
    let rig = Rig::new();
    rig.write("draft/deep/task.md", "work");
    let watching = rig.watch(&["inbox/**/*.md"]);
    fs::rename(rig.path("draft"), rig.path("inbox/ready")).expect("renamed");
    watching.woken_by("inbox/ready/deep/task.md");
    watching.waker.rearm();
    fs::rename(rig.path("inbox/ready"), rig.path("done")).expect("renamed");
    watching.woken_by("inbox/ready/deep/task.md");
    watching.waker.rearm();
    // It is watched no longer where it went, and again where it came.
    rig.write("done/deep/task.md", "more");
    rig.write("inbox/ready/deep/task.md", "again");
    watching.woken_by("inbox/ready/deep/task.md");
}

#[test]
fn a_deleted_file_wakes_but_not_one_that_came_and_went() {
    let rig = Rig::new();
    rig.write("inbox/a.md", "work");
    let watching = rig.watch(&["inbox/*.md"]);
    // Whole at once, gone at once: never closed after a write under this name.
    let draft = rig.path("draft");
    fs::File::create(rig.path("inbox/passing.md")).map(drop).expect("made");
    watching.woken_by("inbox/passing.md");
    fs::remove_file(rig.path("inbox/passing.md")).expect("removed");
    watching.again_by("inbox/passing.md");
    watching.waker.rearm();
    let open = fs::File::create(rig.path("inbox/held.md")).expect("made");
    fs::rename(rig.path("inbox/held.md"), &draft).expect("renamed");
    drop(open);
    fs::remove_file(rig.path("inbox/a.md")).expect("removed");
    watching.woken_by("inbox/a.md");
}

#[test]
fn reads_touches_modes_and_rewrites_of_the_same_do_not_wake() {
    let rig = Rig::new();
    rig.write("inbox/a.md", "work");
    let watching = rig.watch(&["inbox/*.md"]);
    let path = rig.path("inbox/a.md");
    // Each with a sentinel of its own: a look at the file in the middle of the next would see that one.
    let silent = |at: u32, what: &dyn Fn()| {
        what();
        rig.write("inbox/sentinel.md", &at.to_string());
        watching.woken_by("inbox/sentinel.md");
        watching.waker.rearm();
    };
    silent(1, &|| drop(fs::read(&path)));
    silent(2, &|| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod"));
    silent(3, &|| assert!(Command::new("touch").arg(&path).status().expect("touch is there").success()));
    silent(4, &|| {
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("touched");
    });
    silent(5, &|| rig.write("inbox/a.md", "work"));
    silent(6, &|| {
        rig.write("same", "work");
        fs::rename(rig.path("same"), &path).expect("renamed");
    });
}

#[test]
fn git_ignored_files_and_our_own_state_do_not_wake() {
    let rig = Rig::git();
    let watching = rig.watch(&["**"]);
    fs::create_dir_all(&rig.state).expect("made");
    rig.write(".dogwatch/runs/1/events.jsonl", "{}");
    rig.write("build/out.txt", "x");
    rig.write("inbox/noise.log", "x");
    rig.commit();
    rig.run_git(&["gc", "-q"]);
    rig.write("sentinel", "x");
    watching.woken_by("sentinel");
}

#[test]
fn an_ignored_file_wakes_if_a_wake_path_names_it() {
    let rig = Rig::git();
    let watching = rig.watch(&["inbox/run.log", "build/report/*.txt", "**/*.log", "**/*.txt"]);
    rig.write("inbox/other.log", "x");
    rig.write("build/x.txt", "x");
    rig.write("build/deep/x.log", "x");
    rig.write("inbox/run.log", "x");
    watching.woken_by("inbox/run.log");
    rig.write("build/report/a.txt", "x");
    watching.again_by("build/report/a.txt");
}

#[test]
fn our_own_state_never_wakes_even_if_named() {
    let rig = Rig::new();
    let watching = rig.watch(&[".dogwatch/", "sentinel"]);
    rig.write(".dogwatch/file", "x");
    rig.write("sentinel", "x");
    watching.woken_by("sentinel");
}

#[test]
fn changed_ignore_rules_are_followed() {
    let rig = Rig::git();
    rig.write("build/old.md", "x");
    let watching = rig.watch(&["**/*.md"]);
    rig.write(".gitignore", "inbox/\n");
    // Nobody ignores it any more: it came.
    watching.woken_by("build/old.md");
    watching.waker.rearm();
    rig.write("inbox/a.md", "x");
    rig.write("build/new.md", "x");
    watching.woken_by("build/new.md");
}

#[test]
fn a_path_that_does_not_exist_yet_is_waited_for() {
    let rig = Rig::new();
    let outside = rig.dir.path().join("out/side");
    let glob = format!("{}/*.md", outside.display());
    let watching = rig.watch(&["not/yet/there.md", &glob]);
    rig.write("not/here.md", "x");
    rig.write("not/yet/there.md", "x");
    watching.woken_by("not/yet/there.md");
    watching.waker.rearm();
    fs::create_dir_all(&outside).expect("made");
    fs::write(outside.join("a.md"), "x").expect("written");
    watching.woken_by(outside.join("a.md").to_str().expect("UTF-8"));
}

#[test]
fn a_directory_named_by_a_wake_path_means_all_below_it() {
    let rig = Rig::new();
    let watching = rig.watch(&["specs"]);
    rig.write("specs/a/b.txt", "x");
    watching.woken_by("specs/a/b.txt");
}

#[test]
fn an_absolute_wake_path_into_the_work_tree_is_told_from_there() {
    let rig = Rig::new();
    let link = rig.dir.path().join("link");
    symlink(rig.root(), &link).expect("linked");
    let watching = rig.watch(&[&format!("{}/inbox/*.md", rig.root().display())]);
    rig.write("inbox/a.md", "x");
    watching.woken_by("inbox/a.md");
    // And by the name of a link to it.
    next_tick();
    let (told, wakes) = channel();
    let glob = format!("{}/inbox/", link.display());
    let on_wake = move |path| told.send(path).unwrap_or(());
    let waker = PathWaker::start(&link, &[glob], &[], on_wake).expect("started");
    waker.ready(AMPLE).expect("ready");
    rig.write("inbox/b.md", "x");
    assert_eq!(wakes.recv_timeout(AMPLE).expect("a wake"), Path::new("inbox/b.md"));
}

#[test]
fn links_are_followed_only_where_a_wake_path_names_them() {
    let rig = Rig::new();
    let other = rig.dir.path().join("other");
    fs::create_dir(&other).expect("made");
    symlink(&other, rig.path("inbox/unnamed")).expect("linked");
    symlink("..", rig.path("inbox/up")).expect("linked");
    let watching = rig.watch(&["inbox/**/*.md", "named/*.md"]);
    fs::write(other.join("a.md"), "x").expect("written");
    // One that comes later is followed as well.
    symlink(&other, rig.path("named")).expect("linked");
    watching.woken_by("named/a.md");
    fs::write(other.join("b.md"), "x").expect("written");
    watching.again_by("named/b.md");
}

#[test]
fn a_change_while_the_watch_is_being_set_is_not_lost() {
    let rig = Rig::new();
    for _ in 0..50 {
        next_tick();
        let (told, wakes) = channel();
        let on_wake = move |path| told.send(path).unwrap_or(());
        let waker = PathWaker::start(&rig.root(), &["inbox/**".to_owned()], &[], on_wake).expect("started");
        rig.write("inbox/a/b.md", "x");
        assert_eq!(wakes.recv_timeout(AMPLE).expect("a wake"), Path::new("inbox/a/b.md"));
        waker.stop();
        fs::remove_dir_all(rig.path("inbox/a")).expect("removed");
    }
}

#[test]
fn after_a_wake_it_is_quiet_until_armed_again_and_forgets_nothing() {
    let rig = Rig::new();
    let watching = rig.watch(&["inbox/*"]);
    rig.write("inbox/1", "x");
    watching.woken_by("inbox/1");
    rig.write("inbox/2", "x");
    rig.write("inbox/3", "x");
    // One wake for both, and only when asked for.
    watching.again_by("inbox/2");
    rig.write("inbox/4", "x");
    watching.again_by("inbox/4");
    assert!(watching.wakes.try_recv().is_err());
}

#[test]
fn a_new_file_wakes_when_it_is_closed_and_so_is_seen_whole() {
    use std::io::Write;
    let rig = Rig::new();
    let watching = rig.watch(&["inbox/*"]);
    let mut slow = fs::File::create(rig.path("inbox/slow")).expect("made");
    slow.write_all(b"half").expect("written");
    rig.write("inbox/sentinel", "x");
    watching.woken_by("inbox/sentinel");
    slow.write_all(b"whole").expect("written");
    drop(slow);
    watching.again_by("inbox/slow");
}

#[test]
fn a_new_file_that_nobody_closes_wakes_after_a_while_and_one_too_many_at_once() {
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

#[test]
fn links_and_hard_links_wake_at_once() {
    let rig = Rig::new();
    rig.write("draft", "x");
    let watching = rig.watch(&["inbox/*"]);
    fs::hard_link(rig.path("draft"), rig.path("inbox/hard")).expect("linked");
    watching.woken_by("inbox/hard");
    symlink("nowhere", rig.path("inbox/soft")).expect("linked");
    watching.again_by("inbox/soft");
}

#[test]
fn a_deleted_root_wakes_and_is_watched_again_when_it_is_back() {
    let rig = Rig::new();
    rig.write("inbox/a.md", "x");
    let watching = rig.watch(&["inbox/*.md"]);
    fs::remove_dir_all(rig.root()).expect("removed");
    watching.woken_by("inbox/a.md");
    rig.write("inbox/b.md", "x");
    watching.again_by("inbox/b.md");
    watching.waker.rearm();
    // Moved away as a whole, which only the root itself tells.
    fs::rename(rig.root(), rig.dir.path().join("away")).expect("renamed");
    watching.woken_by("inbox/b.md");
    rig.write("inbox/c.md", "x");
    watching.again_by("inbox/c.md");
}

/// Wakes, and holds the waker's thread after the first until `go` is dropped.
fn held() -> (Receiver<PathBuf>, Sender<()>, impl Fn(PathBuf) + Send + 'static) {
    let (told, wakes) = channel();
    let (go, wait) = channel::<()>();
    let on_wake = move |path| {
        told.send(path).unwrap_or(());
        wait.recv().unwrap_or(());
    };
    (wakes, go, on_wake)
}

/// More events than the system keeps for a reader that does not read.
fn overflow(rig: &Rig) {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
    let limit: usize = limit.trim().parse().expect("a number");
    for _ in 0..limit / 3 + 1 {
        fs::write(rig.path("inbox/noise.txt"), "").expect("written");
        fs::remove_file(rig.path("inbox/noise.txt")).expect("removed");
    }
}

#[test]
fn what_an_overflow_swallowed_is_found_and_wakes() {
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
fn an_overflow_that_swallowed_nothing_does_not_wake() {
    let rig = Rig::new();
    rig.write("inbox/a.md", "x");
    let (wakes, go, on_wake) = held();
    let watching = rig.watch_with(&["inbox/**/*.md", "start"], wakes, on_wake);
    rig.write("start", "x");
    watching.woken_by("start");
    overflow(&rig);
    drop(go);
    watching.waker.rearm();
    // A directory that came during the overflow is watched after it.
    rig.write("inbox/later/sentinel.md", "x");
    watching.woken_by("inbox/later/sentinel.md");
}

#[test]
fn beyond_the_watch_limit_it_scans_and_says_so() {
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
    let coverage = watching.waker.coverage().expect("it is set");
    assert!(matches!(coverage, Coverage::Scanned { dirs: 3, why: Shortage::WatchLimit, .. }), "{coverage}");
    assert!(coverage.to_string().contains("max_user_watches"), "{coverage}");
}

#[test]
fn a_survey_ends_at_its_limit_and_says_so() {
    let mut rig = Rig::new();
    for at in 0..10 {
        rig.write(&format!("inbox/{at}"), "x");
    }
    // One entry is `inbox` itself.
    rig.bounds.surveyed = 11;
    assert!(matches!(rig.watch(&["inbox/*"]).coverage, Coverage::Watched { .. }));
    rig.bounds.surveyed = 10;
    assert_eq!(rig.watch(&["inbox/*"]).coverage, Coverage::Partly { entries: 10 });
}

#[test]
fn of_files_beyond_what_is_remembered_every_write_counts() {
    let touched = |bounds: Bounds| {
        let mut rig = Rig::new();
        rig.write("inbox/a", "1234");
        rig.bounds = bounds;
        let watching = rig.watch(&["inbox/*"]);
        assert!(Command::new("touch").arg(rig.path("inbox/a")).status().expect("touch is there").success());
        rig.write("inbox/sentinel", "");
        watching.wakes.recv_timeout(AMPLE).expect("a wake") == Path::new("inbox/a")
    };
    let bounds = Bounds { closed_within: AMPLE, ..Bounds::default() };
    assert!(!touched(bounds));
    assert!(touched(Bounds { known_files: 0, ..bounds }) && !touched(Bounds { known_files: 1, ..bounds }));
    assert!(touched(Bounds { known_bytes: 3, ..bounds }) && !touched(Bounds { known_bytes: 4, ..bounds }));
    assert!(touched(Bounds { first_bytes: 3, ..bounds }) && !touched(Bounds { first_bytes: 4, ..bounds }));
}

#[test]
fn a_bad_glob_is_refused_by_its_name() {
    let rig = Rig::new();
    let error = PathWaker::start(&rig.root(), &["in[box".to_owned()], &[], |_| ()).expect_err("bad");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().starts_with("wake path `in[box`: "), "{error}");
}

#[test]
fn a_fifo_in_the_way_is_not_opened() {
    let rig = Rig::new();
    let fifo = |name: &str| {
        assert!(Command::new("mkfifo").arg(rig.path(name)).status().expect("mkfifo is there").success());
    };
    fifo("inbox/old");
    let watching = rig.watch(&["inbox/**"]);
    fifo("inbox/.gitignore");
    watching.woken_by("inbox/.gitignore");
    rig.write("inbox/a", "x");
    watching.again_by("inbox/a");
}

#[test]
fn dropped_it_ends_by_itself() {
    let rig = Rig::new();
    let (told, wakes) = channel();
    let waker = PathWaker::start(&rig.root(), &["**".to_owned()], &[], move |path| {
        told.send(path).unwrap_or(());
    });
    drop(waker.expect("started"));
    // The thread owned the other end.
    assert!(
        wakes
            .recv_timeout(AMPLE)
            .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Disconnected)
    );
}
