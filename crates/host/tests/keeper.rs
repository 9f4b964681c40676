//! Tests the keeper with real processes: how it starts jobs, what it reports, and what it costs.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dogwatch_host::git::snapshot;
use dogwatch_host::process::keeper::{Exit, Keeper, MAX_FRAME, Order, Report, StartOrder, is_lost};
use dogwatch_host::process::orphans;
use dogwatch_host::process::pump::{ParentEnds, pipes};
use dogwatch_host::sys;
use rustix::io::Errno;
use rustix::process::Signal;

#[path = "keeper_rig.rs"]
mod rig;
use rig::{exited, next, read_to_end, read_until, ready_keeper, start, start_role, started};

fn main() -> ExitCode {
    rig::play_or_test(tests![
        clean_exit_is_reported_as_alone,
        exit_code_and_signal_are_distinguished,
        cpu_time_of_the_job_is_reported,
        a_job_that_cannot_start_is_refused_with_its_errno,
        order_over_the_limit_is_not_sent,
        program_is_searched_on_the_childs_path_from_its_directory,
        script_without_interpreter_line_runs_in_the_shell,
        environment_changes_reach_the_child,
        child_has_only_the_standard_descriptors,
        child_has_no_signal_blocked_or_ignored,
        keeper_inherits_nothing_from_the_supervisor,
        lost_keeper_is_a_clear_error,
        a_snapshot_ends_with_its_keeper_and_its_git_carries_the_nonce,
        a_forked_job_ends_at_its_bound,
        held_descriptor_stays_open_until_the_keeper_ends,
        two_hundred_jobs_leak_no_descriptor,
        keeper_sleeps_while_a_job_runs,
        keeper_is_small,
    ])
}

fn order(argv: &[&[u8]]) -> (StartOrder, ParentEnds) {
    let pipes = pipes().expect("three pipes");
    let argv = argv.iter().map(|argument| argument.to_vec()).collect();
    let order = StartOrder { job: 7, argv, env: Vec::new(), cwd: "/".into(), stdio: pipes.child };
    (order, pipes.parent)
}

fn output(keeper: &mut Keeper, order: StartOrder, ends: &ParentEnds) -> String {
    keeper.send(Order::Start(order)).expect("the keeper reads");
    started(keeper);
    let text = String::from_utf8(read_to_end(&ends.stdout)).expect("plain output");
    assert_eq!(exited(keeper), (Exit::Code(0), true));
    text
}

fn clean_exit_is_reported_as_alone() {
    let mut keeper = ready_keeper();
    let _ends = start(&mut keeper, 9, &["true"]);
    assert!(matches!(next(&mut keeper), Report::Started { job: 9, .. }));
    let exit = next(&mut keeper);
    assert!(matches!(exit, Report::Exited { job: 9, how: Exit::Code(0), alone: true, .. }), "{exit:?}");
    keeper.shut_down().expect("nothing is left");
}

fn exit_code_and_signal_are_distinguished() {
    let mut keeper = ready_keeper();
    let cases = [
        (["exit", "0"], Exit::Code(0)),
        (["exit", "9"], Exit::Code(9)),
        (["exit", "255"], Exit::Code(255)),
        (["die", "9"], Exit::Signal(9)),
        (["die", "15"], Exit::Signal(15)),
    ];
    for (role, how) in cases {
        let _ends = start_role(&mut keeper, 1, &role);
        started(&mut keeper);
        assert_eq!(exited(&mut keeper), (how, true));
    }
}

fn cpu_time_of_the_job_is_reported() {
    let mut keeper = ready_keeper();
    let _ends = start(&mut keeper, 1, &["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]);
    started(&mut keeper);
    match next(&mut keeper) {
        Report::Exited { cpu, .. } => assert!(cpu > Duration::from_millis(5), "{cpu:?}"),
        other => panic!("{other:?}"),
    }
}

fn a_job_that_cannot_start_is_refused_with_its_errno() {
    let mut keeper = ready_keeper();
    let long = vec![b'x'; 200 * 1024];
    let cases: [(&[&[u8]], &str, Errno, &str); 7] = [
        (&[b"no-such-program"], "/", Errno::NOENT, "no-such-program"),
        (&[b"/no/such/program"], "/", Errno::NOENT, "/no/such/program"),
        (&[b"/etc/passwd"], "/", Errno::ACCESS, "/etc/passwd"),
        (&[b"true"], "/no/such/directory", Errno::NOENT, "working directory /no/such/directory"),
        (&[b"true"], "/etc/passwd", Errno::NOTDIR, "working directory /etc/passwd"),
        (&[b"true", &long], "/", Errno::TOOBIG, "true"),
        (&[], "/", Errno::NOENT, "no program"),
    ];
    for (argv, cwd, errno, about) in cases {
        let (mut order, _ends) = order(argv);
        order.cwd = cwd.into();
        // A PATH that every user may search: an unreadable directory on it would cause EACCES.
        order.env = vec![(b"PATH".to_vec(), Some(b"/usr/bin:/bin".to_vec()))];
        keeper.send(Order::Start(order)).expect("the keeper reads");
        match next(&mut keeper) {
            Report::Refused { job: 7, errno: got, message } => {
                assert_eq!(got, errno.raw_os_error(), "{message}");
                assert!(message.starts_with(about), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn order_over_the_limit_is_not_sent() {
    let mut keeper = ready_keeper();
    // An order with one argument has a few bytes more than the argument.
    for (length, fits) in [(MAX_FRAME - 64, true), (MAX_FRAME, false)] {
        let (order, _ends) = order(&[&vec![b'/'; length]]);
        assert_eq!(keeper.send(Order::Start(order)).is_ok(), fits);
        if fits {
            assert!(matches!(next(&mut keeper), Report::Refused { .. }));
        }
    }
    let _ends = start(&mut keeper, 1, &["true"]);
    started(&mut keeper);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), true));
}

fn program_is_searched_on_the_childs_path_from_its_directory() {
    let mut keeper = ready_keeper();
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("bin")).expect("a directory");
    std::os::unix::fs::symlink("/bin/pwd", directory.path().join("bin/where-am-i")).expect("a link");
    let real = directory.path().canonicalize().expect("it is there");
    for (program, path) in [("where-am-i", "/nowhere:bin"), ("bin/where-am-i", "/nowhere")] {
        let (mut order, ends) = order(&[program.as_bytes()]);
        order.env = vec![(b"PATH".to_vec(), Some(path.into()))];
        order.cwd = real.clone();
        assert_eq!(output(&mut keeper, order, &ends).trim(), real.to_str().expect("a plain path"));
    }
}

fn script_without_interpreter_line_runs_in_the_shell() {
    use std::os::unix::fs::PermissionsExt;
    let mut keeper = ready_keeper();
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("script");
    std::fs::write(&script, "echo \"$1\"\n").expect("a script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let (order, ends) = order(&[script.to_str().expect("a plain path").as_bytes(), b"hello"]);
    assert_eq!(output(&mut keeper, order, &ends), "hello\n");
}

fn environment_changes_reach_the_child() {
    let mut keeper = ready_keeper();
    let (mut order, ends) = order(&[b"/usr/bin/env"]);
    order.env = std::env::vars_os().map(|(name, _)| (name.into_encoded_bytes(), None)).collect();
    order.env.push((b"ONE".to_vec(), Some(b"first".to_vec())));
    order.env.push((b"ONE".to_vec(), Some(b"1 = one".to_vec())));
    assert_eq!(output(&mut keeper, order, &ends), "ONE=1 = one\n");
}

fn child_has_only_the_standard_descriptors() {
    let mut keeper = ready_keeper();
    // Test each number: a shell that lists the directory opens one more descriptor.
    let script = b"for fd in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$fd ] && echo $fd; done; true";
    let (order, ends) = order(&[b"sh", b"-c", script]);
    assert_eq!(output(&mut keeper, order, &ends), "0\n1\n2\n");
}

fn child_has_no_signal_blocked_or_ignored() {
    let mut keeper = ready_keeper();
    let (order, ends) = order(&[b"grep", b"-E", b"^Sig(Blk|Ign)", b"/proc/self/status"]);
    let none = "0000000000000000";
    assert_eq!(output(&mut keeper, order, &ends), format!("SigBlk:\t{none}\nSigIgn:\t{none}\n"));
}

/// It inherits neither an open file nor an ignored SIGCHLD, which would hide the exit of its children.
fn keeper_inherits_nothing_from_the_supervisor() {
    let (witness, inheritable) = rustix::pipe::pipe().expect("a pipe");
    sys::ignore(Signal::CHILD).expect("it can be ignored");
    let started_keeper = Keeper::start(None);
    sys::default_action(Signal::CHILD).expect("it can be reset");
    let mut keeper = started_keeper.expect("the keeper starts");
    assert!(matches!(next(&mut keeper), Report::Ready { .. }));
    drop(inheritable);
    assert_eq!(read_to_end(&witness), b"");
    let (order, ends) = order(&[b"true"]);
    output(&mut keeper, order, &ends);
    let link = |name: &str| {
        std::fs::read_link(format!("/proc/{}/{name}", keeper.pid())).expect("the process is alive")
    };
    for name in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(link(name), std::path::Path::new("/dev/null"));
    }
    assert_eq!(link("cwd"), std::path::Path::new("/"));
}

fn lost_keeper_is_a_clear_error() {
    let mut keeper = ready_keeper();
    rig::signal_keeper(&keeper, Signal::KILL);
    rig::wait_readable(keeper.as_fd());
    let error = keeper.receive().expect_err("it is dead");
    assert!(is_lost(&error), "{error}");
    let error = keeper.send(Order::Interrupt).expect_err("it is dead");
    assert!(is_lost(&error), "{error}");
}

// promise: 1
fn a_snapshot_ends_with_its_keeper_and_its_git_carries_the_nonce() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("bin")).expect("a directory");
    // A git that reports its pid and then takes longer than the test.
    std::fs::write(at("bin/git"), format!("#!/bin/sh\necho $$ >{}\nexec sleep 20\n", at("pid").display()))
        .expect("writes");
    std::fs::set_permissions(at("bin/git"), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    rustix::fs::mknodat(rustix::fs::CWD, at("pid"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("a FIFO");
    let request = snapshot::Request {
        work_dir: dir.path().to_owned(),
        ref_name: "refs/dogwatch/test".to_owned(),
        scratch: at("scratch"),
        state_dirs: Vec::new(),
        limits: snapshot::Limits::default(),
        keep: None,
        pristine: None,
    };
    let mut keeper = ready_keeper();
    let command: Vec<Vec<u8>> = request.command().into_iter().map(String::into_bytes).collect();
    let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
    let (mut order, _ends) = order(&words);
    let path = format!("{}:/usr/bin:/bin", at("bin").display());
    order.env = vec![
        (b"PATH".to_vec(), Some(path.into_bytes())),
        (orphans::NONCE_VAR.into(), Some(b"0123456789abcdef".to_vec())),
    ];
    keeper.send(Order::Start(order)).expect("the keeper reads");
    let forked = i32::try_from(started(&mut keeper)).expect("a pid");
    let mut pid = String::new();
    let mut pids = BufReader::new(File::open(at("pid")).expect("a FIFO"));
    pids.read_line(&mut pid).expect("git starts");
    let git: i32 = pid.trim().parse().expect("a pid");
    assert!(
        !orphans::has_nonce(forked, "0123456789abcdef"),
        "the environment of a fork is that of its keeper"
    );
    rig::signal_keeper(&keeper, Signal::KILL);
    // This process adopts what the keeper leaves behind.
    let deadline = Instant::now() + rig::PATIENCE;
    let how = loop {
        assert!(Instant::now() < deadline, "the snapshot outlives its keeper");
        match sys::wait_any().expect("wait4 does not fail otherwise") {
            sys::Waited::Reaped(child) if child.pid == forked => break child.how,
            _ => {}
        }
    };
    assert_eq!(how, Exit::Signal(Signal::KILL.as_raw()));
    assert!(orphans::has_nonce(git, "0123456789abcdef"), "nothing leads to git");
    let (ended, none_left) = orphans::end_all("0123456789abcdef", 0);
    assert!(ended >= 1 && none_left, "{ended} ended");
    while sys::wait_any().expect("wait4 does not fail otherwise") != sys::Waited::NoChild {}
    std::mem::forget(keeper);
}

// promise: 1
fn a_forked_job_ends_at_its_bound() {
    let (order, _ends) = order(&[b"unused"]);
    let [stdin, stdout, stderr] = &order.stdio;
    let surroundings = sys::Surroundings {
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        cwd: "/".as_ref(),
        env: &[],
        keep: None,
        bound: Some(Duration::from_secs(1)),
    };
    let pid = sys::fork_job(&surroundings, || {
        std::thread::park_timeout(rig::PATIENCE);
        0
    });
    let pid = pid.expect("forks");
    let how = loop {
        match sys::wait_any().expect("wait4 does not fail otherwise") {
            sys::Waited::Reaped(child) => break (child.pid, child.how),
            sys::Waited::NotYet => {}
            sys::Waited::NoChild => panic!("the job is gone"),
        }
    };
    assert_eq!(how, (pid, Exit::Signal(Signal::ALARM.as_raw())));
}

// promise: 2
fn held_descriptor_stays_open_until_the_keeper_ends() {
    let (witness, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let mut keeper = Keeper::start(Some(held.as_fd())).expect("the keeper starts");
    drop(held);
    assert!(matches!(next(&mut keeper), Report::Ready { .. }));
    let (order, ends) = order(&[b"true"]);
    output(&mut keeper, order, &ends);
    rustix::io::ioctl_fionbio(&witness, true).expect("a pipe can be non-blocking");
    assert_eq!(rustix::io::read(&witness, &mut [0_u8]), Err(Errno::AGAIN), "the keeper still holds it");
    keeper.shut_down().expect("nothing is left");
    assert_eq!(rustix::io::read(&witness, &mut [0_u8]), Ok(0), "no process holds it");
}

fn descriptors_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is alive").count()
}

fn two_hundred_jobs_leak_no_descriptor() {
    let mut keeper = ready_keeper();
    let run_one = |keeper: &mut Keeper, job| {
        let program = if job % 10 == 0 { "no-such-program" } else { "true" };
        let _ends = start(keeper, job, &[program]);
        while !matches!(next(keeper), Report::Exited { .. } | Report::Refused { .. }) {}
    };
    run_one(&mut keeper, 1);
    let (theirs, ours) = (descriptors_of(keeper.pid()), descriptors_of(std::process::id()));
    (0..200).for_each(|job| run_one(&mut keeper, job));
    assert_eq!(descriptors_of(keeper.pid()), theirs);
    assert_eq!(descriptors_of(std::process::id()), ours);
}

/// Returns how often a process has gone to sleep.
fn sleep_count_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is alive");
    status.lines().find(|line| line.starts_with("voluntary_ctxt")).expect("Linux counts them").to_owned()
}

fn is_asleep(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is alive");
    status.lines().any(|line| line.starts_with("State:\tS"))
}

/// Measures over the time that another keeper takes to run fifty jobs.
fn keeper_sleeps_while_a_job_runs() {
    let (mut idle, mut busy) = (ready_keeper(), ready_keeper());
    let ends = start_role(&mut idle, 1, &["stay"]);
    started(&mut idle);
    read_until(&ends.stdout, b"ready");
    let run_one = |keeper: &mut Keeper, job| {
        let _ends = start(keeper, job, &["true"]);
        started(keeper);
        exited(keeper);
    };
    // The keeper may not sleep yet when it reports the job. It only has to reach the poll.
    let deadline = Instant::now() + rig::PATIENCE;
    while !is_asleep(idle.pid()) && Instant::now() < deadline {
        run_one(&mut busy, 0);
    }
    let before = sleep_count_of(idle.pid());
    (0..50).for_each(|job| run_one(&mut busy, job));
    assert_eq!(sleep_count_of(idle.pid()), before);
}

fn keeper_is_small() {
    let mut keeper = ready_keeper();
    (0..3).for_each(|_| {
        let (order, ends) = order(&[b"true"]);
        output(&mut keeper, order, &ends);
    });
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", keeper.pid())).expect("the process is alive");
    let size = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).expect("Linux reports it");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("kB")
    };
    let private = size("RssAnon");
    assert!(private <= 1024, "{private} kB of private memory");
}
