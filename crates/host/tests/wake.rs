//! Wake on paths, on real files and real git repositories.
//!
//! No test sleeps. To show that a change does *not* wake, a test makes that change first and then a second one that
//! wakes, the sentinel. The sentinel's path must be the first to arrive.

use crate::wake_rig;

use dogwatch_host::fs::wake::{Bounds, Coverage, MAX_HELD, PathWaker};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Instant, SystemTime};
use wake_rig::{AMPLE, Rig, next_tick};

#[test]
fn a_written_file_wakes_and_others_do_not() {
    let rig = Rig::new();
    let watching = rig.watch(&["inbox/**/*.md", "TODO.md"]);
    rig.write("inbox/a.txt", "no glob matches it");
    rig.write("other/a.md", "nor this");
    rig.write("inbox/a.md", "work");
    watching.woken_by("inbox/a.md");
    rig.write("TODO.md", "work");
    watching.again_by("TODO.md");
    assert!(matches!(watching.coverage, Coverage::Watched { .. }));
    watching.waker.stop();
}

#[test]
fn a_flush_reports_every_earlier_change() {
    let rig = Rig::new();
    let watching = rig.watch(&["inbox/*"]);
    for round in 0..200 {
        let name = format!("inbox/{round}");
        rig.write(&name, "work");
        assert!(watching.waker.await_flush(watching.waker.ask_flush(), AMPLE));
        let woken = watching.wakes.try_recv();
        assert_eq!(woken.ok().as_deref(), Some(Path::new(&name)), "in round {round}");
        watching.waker.rearm();
    }
    watching.waker.stop();
}

#[test]
fn files_in_directories_created_later_wake_however_fast() {
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
fn moving_a_directory_in_or_away_wakes_by_its_files() {
    let rig = Rig::new();
    rig.write("draft/deep/task.md", "work");
    let watching = rig.watch(&["inbox/**/*.md"]);
    fs::rename(rig.path("draft"), rig.path("inbox/ready")).expect("renamed");
    watching.woken_by("inbox/ready/deep/task.md");
    watching.waker.rearm();
    fs::rename(rig.path("inbox/ready"), rig.path("done")).expect("renamed");
    watching.woken_by("inbox/ready/deep/task.md");
    watching.waker.rearm();
    // The directory is no longer watched at its old path, and is watched again at its new one.
    rig.write("done/deep/task.md", "more");
    rig.write("inbox/ready/deep/task.md", "again");
    watching.woken_by("inbox/ready/deep/task.md");
}

#[test]
fn a_deleted_file_wakes_but_a_short_lived_one_does_not() {
    let rig = Rig::new();
    rig.write("inbox/a.md", "work");
    let watching = rig.watch(&["inbox/*.md"]);
    // These files appear and disappear atomically: they are never closed after a write under this name.
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
    // Each change has its own sentinel. Otherwise the watcher might read the file during the next change.
    let silent = |at: u32, what: &dyn Fn()| {
        what();
        rig.write("inbox/sentinel.md", &at.to_string());
        watching.woken_by("inbox/sentinel.md");
        watching.waker.rearm();
    };
    silent(1, &|| drop(fs::read(&path)));
    silent(2, &|| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod"));
    silent(3, &|| assert!(Command::new("touch").arg(&path).status().expect("touch is installed").success()));
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
    // The file is no longer ignored, so it counts as new.
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
fn an_absolute_wake_path_is_reported_relative_to_the_work_tree() {
    let rig = Rig::new();
    let link = rig.dir.path().join("link");
    symlink(rig.root(), &link).expect("linked");
    let watching = rig.watch(&[&format!("{}/inbox/*.md", rig.root().display())]);
    rig.write("inbox/a.md", "x");
    watching.woken_by("inbox/a.md");
    // The same through a link to the directory.
    next_tick();
    let (sender, wakes) = channel();
    let glob = format!("{}/inbox/", link.display());
    let on_wake = move |path| sender.send(path).unwrap_or(());
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
    // A link created later is followed too.
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
        let (sender, wakes) = channel();
        let on_wake = move |path| sender.send(path).unwrap_or(());
        let waker = PathWaker::start(&rig.root(), &["inbox/**".to_owned()], &[], on_wake).expect("started");
        rig.write("inbox/a/b.md", "x");
        assert_eq!(wakes.recv_timeout(AMPLE).expect("a wake"), Path::new("inbox/a/b.md"));
        waker.stop();
        fs::remove_dir_all(rig.path("inbox/a")).expect("removed");
    }
}

fn held(root: &Path, on_wake: impl Fn(PathBuf) + Send + 'static) -> PathWaker {
    let (bounds, globs) = (Bounds::default(), ["inbox/**".to_owned()]);
    PathWaker::start_within(bounds, root, &globs, &[], true, move |path, _| on_wake(path)).expect("started")
}

#[test]
fn a_held_watch_begins_when_released_and_misses_nothing() {
    let rig = Rig::new();
    next_tick();
    let (sender, wakes) = channel();
    let on_wake = move |path| sender.send(path).unwrap_or(());
    let waker = held(&rig.root(), on_wake);
    rig.write("inbox/a.md", "x");
    assert_eq!(waker.coverage(), None);
    waker.let_go();
    assert_eq!(wakes.recv_timeout(AMPLE).expect("a wake"), Path::new("inbox/a.md"));
    waker.let_go();
    rig.write("inbox/b.md", "x");
    waker.rearm();
    assert_eq!(wakes.recv_timeout(AMPLE).expect("a wake"), Path::new("inbox/b.md"));
}

#[test]
fn a_held_watch_begins_by_itself_after_a_while() {
    let rig = Rig::new();
    let begun = Instant::now();
    let waker = held(&rig.root(), |_| ());
    assert!(waker.ready(AMPLE).is_some());
    assert!(begun.elapsed() >= MAX_HELD);
}

#[test]
fn after_a_wake_it_is_quiet_until_rearmed_and_misses_nothing() {
    let rig = Rig::new();
    let watching = rig.watch(&["inbox/*"]);
    rig.write("inbox/1", "x");
    watching.woken_by("inbox/1");
    rig.write("inbox/2", "x");
    rig.write("inbox/3", "x");
    // Both changes cause one wake, and only after rearming.
    watching.again_by("inbox/2");
    rig.write("inbox/4", "x");
    watching.again_by("inbox/4");
    assert!(watching.wakes.try_recv().is_err());
}

#[test]
fn a_new_file_wakes_when_it_is_closed_and_complete() {
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
    // The whole directory is moved away, which only an event on the root itself reveals.
    fs::rename(rig.root(), rig.dir.path().join("away")).expect("renamed");
    watching.woken_by("inbox/b.md");
    rig.write("inbox/c.md", "x");
    watching.again_by("inbox/c.md");
}

#[test]
fn a_bad_glob_is_refused_with_its_text() {
    let rig = Rig::new();
    let error = PathWaker::start(&rig.root(), &["in[box".to_owned()], &[], |_| ()).expect_err("bad");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().starts_with("wake path `in[box`: "), "{error}");
}

#[test]
fn a_fifo_in_the_way_is_not_opened() {
    let rig = Rig::new();
    let fifo = |name: &str| {
        assert!(Command::new("mkfifo").arg(rig.path(name)).status().expect("mkfifo is installed").success());
    };
    fifo("inbox/old");
    let watching = rig.watch(&["inbox/**"]);
    fifo("inbox/.gitignore");
    watching.woken_by("inbox/.gitignore");
    rig.write("inbox/a", "x");
    watching.again_by("inbox/a");
}

#[test]
fn a_dropped_waker_ends_its_thread() {
    let rig = Rig::new();
    let (sender, wakes) = channel();
    let waker = PathWaker::start(&rig.root(), &["**".to_owned()], &[], move |path| {
        sender.send(path).unwrap_or(());
    });
    drop(waker.expect("started"));
    // The other end was owned by the thread.
    assert!(
        wakes
            .recv_timeout(AMPLE)
            .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Disconnected)
    );
}
