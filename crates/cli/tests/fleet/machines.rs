//! Faults of a worker's machine: a wrong wall clock, a disk that is full or becomes full, and a repository that refuses pushes.

use crate::harbor::{Harbor, id};
use crate::kit::skip::skip;
use crate::proxy::Proxy;
use dogwatch_core::lease::JobState;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// A small disk, which is unmounted at the end.
struct Disk(PathBuf);

impl Disk {
    /// Mounts a disk of this size below the directory of a fleet, or says why that is not possible here.
    fn mount(harbor: &Harbor, size: &str) -> Result<Disk, String> {
        let place = harbor.dir.path().join("small");
        std::fs::create_dir(&place).expect("a directory");
        let options = std::ffi::CString::new(format!("size={size},mode=700")).expect("text");
        let mounted = mount("tmpfs", &place, "tmpfs", MountFlags::empty(), Some(options.as_c_str()));
        mounted.map(|()| Disk(place)).map_err(|error| format!("cannot mount a tmpfs here: {error}"))
    }

    fn dir(&self) -> String {
        self.0.join("work").display().to_string()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The worker still uses it.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Returns a command that runs dogwatch with a wall clock that is an hour ahead, if that is possible here.
fn an_hour_ahead() -> Option<Command> {
    // The program `faketime` waits for its child, and killing it would leave dogwatch. Its library does not need it.
    let out = Command::new("faketime").args(["-f", "+1h", "printenv", "LD_PRELOAD"]).output().ok()?;
    let library = String::from_utf8(out.stdout).ok().filter(|_| out.status.success())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    command.env("LD_PRELOAD", library.trim()).env("FAKETIME", "+1h").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Some(command)
}

/// Cuts the owner of a job off while another worker waits. One of them has a clock that is an hour ahead.
fn cut_off(owner_is_ahead: bool) {
    let Some(mut ahead) = an_hour_ahead() else { return skip("faketime is not installed") };
    let mut harbor = Harbor::new(8);
    let proxy = Proxy::before(harbor.port());
    let line = harbor.line("anna", proxy.port).to_string();
    let mut usual = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    let (first, second) = if owner_is_ahead { (&mut ahead, &mut usual) } else { (&mut usual, &mut ahead) };
    harbor.start_worker_by("anna", &line, &[], first);
    harbor.submit("one", "s60");
    assert_eq!(harbor.until_works("one", 3), "anna");
    let line = harbor.join("otto").to_string();
    harbor.start_worker_by("otto", &line, &[], second);
    let name = if owner_is_ahead { "anna" } else { "otto" };
    let since = harbor.until_presence(name, "it is present", |_| true).since;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let ahead = since.0 - i64::try_from(now).expect("a time");
    assert!(ahead > 3_000_000, "the clock of {name} is only {ahead} ms ahead");
    proxy.cut(true);
    harbor.until_owner("one", "otto");
    proxy.cut(false);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.epoch), ("otto", 2), "{}", harbor.logs());
    harbor.assert_once("one");
}

// promise: 20
#[test]
fn an_owner_whose_wall_clock_is_an_hour_ahead_ends_its_agent_before_another_starts() {
    cut_off(true);
}

// promise: 20
#[test]
fn a_worker_whose_wall_clock_is_an_hour_ahead_takes_no_job_too_early() {
    cut_off(false);
}

#[test]
fn a_worker_with_a_full_disk_takes_no_job_and_says_so() {
    let mut harbor = Harbor::new(8);
    let disk = match Disk::mount(&harbor, "1m") {
        Ok(disk) => disk,
        Err(why) => return skip(&why),
    };
    harbor.start_worker_at("anna", harbor.port(), &["--dir", &disk.dir()]);
    let here = harbor.until_presence("anna", "it has trouble", |here| here.trouble.is_some());
    assert!(here.trouble.is_some_and(|why| why.contains("MiB of disk space are free")));
    harbor.submit("one", "s5");
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(
        shown.contains("takes no jobs: only ") && shown.contains("(no worker runs it: anna: only "),
        "{shown}"
    );
    harbor.start_worker("otto");
    assert_eq!(harbor.until_state("one", JobState::Done).owner, "otto");
    harbor.signal("anna", Signal::KILL);
    harbor.wait("anna");
}

// promise: 20
#[test]
fn a_worker_whose_disk_becomes_full_gives_its_job_up_and_takes_jobs_again_when_there_is_space() {
    let mut harbor = Harbor::new(8);
    let disk = match Disk::mount(&harbor, "300m") {
        Ok(disk) => disk,
        Err(why) => return skip(&why),
    };
    let hog = disk.0.join("hog");
    // The first agent fills the disk and works on; the next one finishes.
    let script = format!(
        "cat >/dev/null\njob=$(basename \"$(dirname \"$PWD\")\")\nmark() {{ echo \"$1 $job $$\" >>'{0}'; }}\nmark start\n\
         if mkdir '{1}' 2>/dev/null; then\n  head -c 400M /dev/zero >'{2}' 2>/dev/null\n  \
         while :; do mark tick; sleep 0.1; done\nfi\necho done >>result.txt\nmark end\n",
        harbor.marks_file().display(),
        harbor.dir.path().join("filled").display(),
        hog.display()
    );
    harbor.add_script("fills", "", &script);
    harbor.start_worker_at("anna", harbor.port(), &["--dir", &disk.dir()]);
    harbor.submit("one", "fills");
    let record = harbor.until_record("one", "was given up", |record| record.crashes == 1);
    assert_eq!((record.state, record.owner.as_str()), (JobState::Released, "anna"), "{}", harbor.logs());
    let here = harbor.until_presence("anna", "it has trouble", |here| here.trouble.is_some());
    assert_eq!(here.trouble.as_deref(), Some("only 0 MiB of disk space are free"), "{}", harbor.logs());
    assert!(harbor.logs().contains("the disk of the worker is full"), "{}", harbor.logs());
    harbor.start_worker("otto");
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.owner.as_str(), record.epoch, record.crashes), ("otto", 2, 0), "{}", harbor.logs());
    assert_eq!(record.result.expect("a result").branch.as_deref(), Some("refs/heads/dogwatch/one/2"));
    harbor.assert_once("one");
    // With space again, the first worker runs jobs again.
    harbor.signal("otto", Signal::TERM);
    harbor.wait("otto");
    std::fs::remove_file(&hog).expect("removed");
    harbor.submit("two", "s5");
    assert_eq!(harbor.until_state("two", JobState::Done).owner, "anna", "{}", harbor.logs());
    harbor.assert_once("two");
    harbor.signal("anna", Signal::KILL);
    harbor.wait("anna");
}

// promise: 20
#[test]
fn a_job_whose_pushes_are_refused_in_the_middle_moves_on_with_the_last_pushed_tree() {
    let mut harbor = Harbor::new(8);
    // Each iteration adds a line; the second one waits until it is ended or let go.
    let go = harbor.dir.path().join("go");
    let script = format!(
        "cat >/dev/null\njob=$(basename \"$(dirname \"$PWD\")\")\nmark() {{ echo \"$1 $job $$\" >>'{}'; }}\n\
         echo line >>result.txt\n[ $(wc -l <result.txt) -lt 2 ] && exit 0\nmark start\n\
         while [ ! -e '{}' ]; do mark tick; sleep 0.1; done\nmark end\n",
        harbor.marks_file().display(),
        go.display()
    );
    harbor.add_script("lines", "", &script);
    harbor.start_worker("anna");
    let mut job = harbor.job("lines");
    job.iterations = Some(2);
    harbor.submit_job(&id("one"), &job);
    harbor.until_works("one", 2);
    harbor.until_journal("one", "the first tree", |text| text.contains("\"event\":\"iteration_completed\""));
    harbor.refuse_pushes(true);
    harbor.start_worker("otto");
    harbor.signal("anna", Signal::TERM);
    assert!(harbor.wait("anna").success(), "{}", harbor.logs());
    assert!(harbor.logs().contains("cannot push the work tree"), "{}", harbor.logs());
    harbor.until_owner("one", "otto");
    harbor.refuse_pushes(false);
    std::fs::write(&go, "").expect("written");
    let record = harbor.until_state("one", JobState::Done);
    let result = record.result.expect("a result");
    assert_eq!((result.outcome.as_str(), record.epoch), ("clean", 2), "{}", harbor.logs());
    // The tree of the first iteration was pushed; the second one was repeated.
    let text = crate::harbor::git(&harbor.repository(), &["show", "dogwatch/one/2:result.txt"]);
    assert_eq!(text, "line\nline\n");
    harbor.assert_once("one");
}
