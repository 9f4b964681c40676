//! The commands that use snapshots: `diff`, `undo` and `gc`.

use crate::kit::{Fifo, GRACES, Project, names, one};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Creates a loop in a git repository. Every iteration appends a line to `count` and creates a file `made-N`.
fn repository() -> Project {
    let project = Project::acting("counter count; on 1 { write made-1 a }; on 2 { write made-2 b }; say hi");
    git(&project, &["init", "-q", "-b", "main"]);
    git(&project, &["add", "-A"]);
    git(&project, &["commit", "-q", "-m", "first"]);
    project
}

#[track_caller]
fn git(project: &Project, args: &[&str]) -> String {
    let mut git = Command::new("git");
    project.set_environment(&mut git);
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.as_encoded_bytes().starts_with(b"GIT_")) {
        git.env_remove(name);
    }
    git.args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args);
    let out = git.output().expect("git is installed");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("plain output").trim_end().to_owned()
}

/// Runs two iterations and returns the run id.
fn two_iterations(project: &Project) -> String {
    let done = project.run(&["-n", "2"]);
    done.assert_code(0);
    one(&done.events(), "run_started")["run"].as_str().expect("an id").to_owned()
}

#[test]
fn diff_shows_the_changes_of_an_iteration_as_a_git_patch() {
    let project = repository();
    let run = two_iterations(&project);
    let last = project.call(&["diff", "-i", "2"]);
    last.assert_code(0);
    assert!(last.text().contains("+++ b/made-2") && !last.text().contains("made-1"), "{}", last.text());
    for whole in [&["diff"][..], &["diff", &run], &["diff", &run, "1..2"]] {
        let whole = project.call(whole);
        whole.assert_code(0);
        assert!(whole.text().contains("made-1") && whole.text().contains("made-2"), "{}", whole.text());
    }
    assert!(
        project
            .call(&["diff", &run, "2..1"])
            .assert_code(2)
            .stderr
            .contains("the order is reversed; use 1..2")
    );
    let first = project.call(&["diff", &run, "1", "--stat"]);
    assert!(first.text().contains("made-1") && !first.text().contains("@@"), "{}", first.text());
    let one_file = project.call(&["diff", &run, "2", "--", "count"]);
    assert!(one_file.text().contains("count") && !one_file.text().contains("made-2"), "{}", one_file.text());
    std::fs::write(project.outside("patch"), &last.stdout).expect("writes");
    git(&project, &["apply", "--check", "-R", project.outside("patch").to_str().expect("plain")]);
}

/// Sets up an agent that writes a file in its first session and hangs, and deletes the file in its second.
fn with_precious_file(project: &Project, front: &str) -> Fifo {
    let there = project.fifo("there");
    let at = project.path("").display().to_string();
    let agent = format!(
        "if [ -e made ]; then rm made; else echo precious > made; echo $$ > {at}/there; sleep 1000; fi"
    );
    project.ralph(&format!("agent: {}\n{GRACES}\n{front}", Value::from(format!("sh -c '{agent}'"))), "Go.");
    git(project, &["init", "-q"]);
    git(project, &["add", "loop"]);
    git(project, &["commit", "-q", "-m", "first"]);
    there
}

/// Returns the content of a file in the snapshot of an iteration.
fn in_snapshot(project: &Project, iteration: u64, file: &str) -> String {
    let run = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    git(project, &["show", &format!("refs/dogwatch/{run}/loop/{iteration}:{file}")])
}

// promise: 15
#[test]
fn after_kill_9_the_work_of_the_session_is_in_a_snapshot_before_the_next_one_deletes_it() {
    for front in ["", "worktree: true"] {
        let project = Project::new();
        let there = with_precious_file(&project, front);
        let run = project.start_run(&["-n", "1"]);
        there.pid();
        assert_eq!(run.kill().signal, Some(9));
        project.wait_until_no_process_left();
        let done = project.start(&["resume", "--json"]).finish();
        done.assert_code(0);
        assert_eq!(in_snapshot(&project, 1, "made"), "precious", "{front}");
        let events = done.events();
        let is_step = |n: &&str| n.starts_with("snapshot") || n.starts_with("iteration");
        let order: Vec<&str> = names(&events).into_iter().filter(is_step).collect();
        assert_eq!(order[..3], ["snapshot_taken", "iteration_interrupted", "iteration_started"]);
    }
}

// promise: 15
#[test]
fn after_a_lost_keeper_the_work_of_the_session_is_in_a_snapshot() {
    let project = Project::new();
    let there = with_precious_file(&project, "");
    let run = project.start_run(&["-n", "2"]);
    there.pid();
    let keeper = rustix::process::Pid::from_raw(project.keeper()).expect("a pid");
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).expect("we own the keeper");
    run.finish().assert_code(0);
    assert_eq!(in_snapshot(&project, 1, "made"), "precious");
}

// promise: 17
#[test]
fn undo_restores_the_earlier_state_and_names_the_way_back() {
    let project = repository();
    let run = two_iterations(&project);
    let head = git(&project, &["rev-parse", "HEAD"]);
    let refused = project.call(&["undo", &run, "2"]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert!(!git(&project, &["for-each-ref"]).contains("undo-"), "without confirmation nothing is saved");
    let done = project.call(&["undo", &run, "2", "--yes"]);
    done.assert_code(0);
    let text = done.text();
    assert!(text.contains("\n  wrote    count\n") && text.contains("\n  removed  made-2\n"), "{text}");
    assert_eq!(project.lines("count"), ["1"]);
    assert!(project.path("made-1").exists() && !project.path("made-2").exists());
    assert!(project.path("loop/RALPH.md").exists() && project.run_dir().join("events.jsonl").exists());
    assert_eq!(git(&project, &["rev-parse", "HEAD"]), head);
    let back = done.text().lines().last().expect("a last line").to_owned();
    let words: Vec<&str> = back.split('`').nth(1).expect("a command").split(' ').collect();
    project.call(&[&words[1..], &["--yes"]].concat()).assert_code(0);
    assert_eq!(project.lines("count"), ["2"]);
    assert!(project.path("made-2").exists());
    project.call(&["undo", &run, "1", "--yes"]).assert_code(0);
    assert!(!project.path("made-1").exists() && !project.path("count").exists());
    let again = project.call(&["undo", &run, "1", "--yes"]);
    again.assert_code(0);
    assert!(again.text().contains("already"), "{}", again.text());
}

#[test]
fn diff_and_undo_name_the_files_that_the_snapshots_leave_out() {
    let project = Project::acting("say hi; write made a");
    git(&project, &["init", "-q", "-b", "main"]);
    project.file("prod.env", "old");
    git(&project, &["add", "-A"]);
    git(&project, &["commit", "-q", "-m", "first"]);
    project.file("prod.env", "TOKEN=canary");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(project.path("prod.env"), private).expect("the file is ours");
    project.run(&["-n", "1"]).assert_code(0);
    let run = project.run_dir().file_name().expect("an id").to_string_lossy().into_owned();
    let refs = git(&project, &["for-each-ref", "--format=%(refname)", "refs/dogwatch"]);
    assert!(refs.lines().count() >= 2, "{refs}");
    for name in refs.lines() {
        assert_eq!(git(&project, &["show", &format!("{name}:prod.env")]), "old");
    }
    for args in [&["diff"][..], &["diff", &run, "1", "--json"], &["undo", &run, "1", "--yes"]] {
        let done = project.call(args);
        done.assert_code(0);
        assert!(done.stderr.starts_with("note: the snapshots leave out") && done.stderr.contains("prod.env"));
    }
    assert_eq!(project.read("prod.env"), "TOKEN=canary");
    assert!(!project.path("made").exists());
}

// promise: 17
#[test]
fn undo_keeps_what_is_not_the_work_of_the_run() {
    let project = repository();
    let run = two_iterations(&project);
    std::fs::create_dir(project.path("other")).expect("a directory");
    project.file("other/RALPH.md", "---\nagent: sh -c 'echo 1 > other-count'\n---\nGo on.\n");
    project.call(&["run", "other", "-n", "1"]).assert_code(0);
    std::fs::write(project.path("mine"), "precious").expect("written");
    std::fs::write(project.path("made-1"), "edited").expect("written");
    let done = project.call(&["undo", &run, "1", "--yes"]);
    done.assert_code(1);
    let read = |name: &str| std::fs::read_to_string(project.path(name)).ok();
    assert_eq!((read("mine").as_deref(), read("made-1").as_deref()), (Some("precious"), Some("edited")));
    assert!(read("other-count").is_some() && read("other/RALPH.md").is_some(), "of another loop");
    assert!(read("count").is_none() && read("made-2").is_none(), "the work of the run is undone");
    let why = "changed after the last snapshot of the run";
    for kept in ["mine", "made-1", "other-count"] {
        assert!(done.text().contains(&format!("\n  {kept}: {why}\n")), "{}", done.text());
    }
    assert!(
        done.text().contains("\n  removed  count\n") && done.text().contains("--force"),
        "{}",
        done.text()
    );
    let again = project.call(&["undo", &run, "1", "--yes"]);
    again.assert_code(1);
    assert!(again.text().starts_with("nothing to undo") && read("mine").is_some(), "{}", again.text());
    project.call(&["undo", &run, "1", "--yes", "--force"]).assert_code(0);
    assert!(read("mine").is_none() && read("made-1").is_none());
}

#[test]
fn a_live_run_and_its_work_tree_are_neither_undone_nor_removed() {
    let project = Project::acting("counter count; on 2 { ready there; await gate }; say hi");
    git(&project, &["init", "-q"]);
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let running = project.start_run(&["-n", "2"]);
    there.pid();
    let run = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    let refused = project.call(&["undo", &run, "1", "--yes"]);
    refused.assert_code(2);
    assert!(
        refused.stderr.contains("is live") && refused.stderr.contains("dogwatch stop"),
        "{}",
        refused.stderr
    );
    let diff = project.call(&["diff", &run, "2"]);
    diff.assert_code(2);
    assert!(diff.stderr.contains("error: iteration 2 of `loop` is still running"), "{}", diff.stderr);
    assert_eq!(project.lines("count"), ["2"]);
    project.call(&["gc", "--keep", "0", "--older-than", "0", "--yes"]).assert_code(0);
    assert!(project.run_dir().join("events.jsonl").exists());
    gate.open();
    running.finish().assert_code(0);
}

#[test]
fn a_failing_diff_or_undo_has_a_message_and_changes_nothing() {
    let project = repository();
    let run = two_iterations(&project);
    for (args, words) in [
        (&["diff", &run, "3"][..], "has no iteration 3; the last is 2"),
        (&["diff", &run, "3"], "help: `dogwatch events"),
        (&["diff", &run, "0"], "has no iteration 0"),
        (&["undo", &run, "9", "--yes"], "has no iteration 9"),
        (&["undo", &run, "0", "--yes"], "from 1 on"),
        (&["undo", &run, "../../heads/main", "--yes"], "from 1 on"),
        (&["undo", &run, "undo-1", "--yes"], "no snapshot refs/"),
        (&["undo", &run, "1", "--yes", "--node", "x"], "no snapshots of a node `x`"),
        (&["undo", "zzzz", "1", "--yes"], "no run or loop `zzzz`"),
    ] {
        let done = project.call(args);
        done.assert_code(2);
        assert!(done.stderr.contains(words), "{args:?}: {}", done.stderr);
    }
    git(&project, &["update-ref", "-d", &format!("refs/dogwatch/{run}/loop/1")]);
    for args in [&["undo", &run, "2", "--yes"][..], &["diff", &run, "2"]] {
        let done = project.call(args);
        done.assert_code(2);
        assert!(done.stderr.contains("/1 is gone"), "{}", done.stderr);
    }
    assert_eq!(project.lines("count"), ["2"]);
    std::fs::rename(project.path(".git"), project.outside("git")).expect("renamed");
    let done = project.call(&["undo", &run, "1", "--yes"]);
    done.assert_code(2);
    assert!(done.stderr.contains("not a git repository"), "{}", done.stderr);
}

#[test]
fn commands_find_the_runs_of_the_project_from_a_subdirectory() {
    let project = repository();
    let run = two_iterations(&project);
    std::fs::create_dir_all(project.path("src/deep")).expect("creates");
    for args in [&["status"][..], &["diff"], &["report"], &["logs"], &["replay", &run]] {
        let mut command = project.command(args);
        let done = command.current_dir(project.path("src/deep")).output().expect("starts");
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{args:?}: {text}");
        assert!(args[0] != "replay" || text.contains("match the record"), "{text}");
    }
}

#[test]
fn diff_fails_without_snapshots_outside_git() {
    let project = Project::acting("say hi");
    project.run(&["-n", "1"]).assert_code(0);
    let done = project.call(&["diff"]);
    done.assert_code(2);
    assert!(done.stderr.contains("has no snapshots"), "{}", done.stderr);
}

#[test]
fn diff_of_a_run_killed_in_its_first_iteration_names_the_command_that_continues_it() {
    let project = Project::new();
    let there = with_precious_file(&project, "");
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    let only_start = "has no snapshot after an iteration of `loop`, only the one from the start";
    let live = project.call(&["diff"]);
    live.assert_code(2);
    assert!(live.stderr.contains(only_start) && !live.stderr.contains("resume"), "{}", live.stderr);
    run.kill();
    project.wait_until_no_process_left();
    let id = project.run_dir().file_name().and_then(|id| id.to_str()).expect("a name").to_owned();
    let tail = id.rsplit('-').next().expect("an end");
    for (args, what) in [(&["diff"][..], only_start), (&["diff", &id, "1"], "no snapshot after iteration 1")]
    {
        let done = project.call(args);
        done.assert_code(2);
        let help = format!("`dogwatch resume {tail}` takes its snapshot and continues the run");
        assert!(done.stderr.contains(what) && done.stderr.contains(&help), "{args:?}: {}", done.stderr);
    }
    project.call(&["resume", tail]).assert_code(0);
    assert!(project.call(&["diff", &id, "1"]).assert_code(0).text().contains("+precious"));
}

#[test]
fn gc_removes_old_runs_only_after_confirmation() {
    let project = repository();
    let first = two_iterations(&project);
    let second = two_iterations(&project);
    let gc = |args: &[&str]| project.call(&[&["gc", "--older-than", "0"], args].concat());
    assert!(project.call(&["gc"]).text().contains("nothing to remove"));
    let listed = gc(&["--keep", "1"]);
    listed.assert_code(0);
    assert!(listed.text().contains(&first) && !listed.text().contains(&second), "{}", listed.text());
    assert!(listed.text().contains("3 snapshots") && listed.text().contains("nothing was removed"));
    let dry = gc(&["--keep", "1", "--dry-run"]);
    let command = "`dogwatch gc --yes --keep 1 --older-than 0s` removes it";
    assert!(dry.assert_code(0).text().contains(command), "{}", dry.text());
    assert!(project.path(".dogwatch/runs").join(&first).exists());
    // Refs of others are not touched, even if they look like those of the run.
    let others =
        [format!("refs/heads/dogwatch/{first}"), format!("refs/other/{first}"), format!("refs/tags/{first}")];
    for name in &others {
        git(&project, &["update-ref", name, "HEAD"]);
    }
    gc(&["--keep", "1", "--yes"]).assert_code(0);
    assert!(!project.path(".dogwatch/runs").join(&first).exists());
    assert!(project.path(".dogwatch/runs").join(&second).exists());
    let refs = git(&project, &["for-each-ref", "--format=%(refname)"]);
    let of_first: Vec<&str> = refs.lines().filter(|name| name.contains(&first)).collect();
    assert_eq!(of_first, others, "{refs}");
    assert!(refs.contains(&second), "{refs}");
    assert!(project.path("made-1").exists());
}

#[test]
fn gc_removes_nothing_behind_a_link() {
    let project = repository();
    let run = two_iterations(&project);
    // The directory of one run is a link, another has a link in it, and a third place looks like a run.
    let precious = project.outside("precious");
    std::fs::create_dir_all(precious.join("deep")).expect("a directory");
    std::fs::write(precious.join("deep/file"), "kept").expect("writes");
    let runs = project.path(".dogwatch/runs");
    let elsewhere = project.outside("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");
    std::fs::copy(runs.join(&run).join("events.jsonl"), elsewhere.join("events.jsonl")).expect("copies");
    std::os::unix::fs::symlink(&elsewhere, runs.join("20160101-000000-k3f9")).expect("a link");
    std::os::unix::fs::symlink(&precious, runs.join(&run).join("link")).expect("a link");
    std::os::unix::fs::symlink(&precious, runs.join(".going-20160101-000000-bbbb")).expect("a link");
    project.call(&["gc", "--older-than", "0", "--keep", "0", "--yes"]).assert_code(0);
    assert!(!runs.join(&run).exists(), "the run itself is gone");
    assert_eq!(std::fs::read_to_string(precious.join("deep/file")).expect("it is there"), "kept");
    assert!(elsewhere.join("events.jsonl").exists());
}

#[test]
fn gc_refuses_a_link_to_the_runs_of_another_project() {
    let (other, project) = (repository(), repository());
    let run = two_iterations(&other);
    let theirs = other.path(".dogwatch/runs").join(&run);
    let gc =
        |args: &[&str]| project.call(&[&["gc", "--older-than", "0", "--keep", "0", "--yes"], args].concat());
    let state = project.path(".dogwatch");
    std::fs::create_dir(&state).expect("a directory");
    std::os::unix::fs::symlink(other.path(".dogwatch/runs"), state.join("runs")).expect("a link");
    for args in [&[][..], &["--state-dir", ".dogwatch"]] {
        let refused = gc(args);
        refused.assert_code(2);
        assert!(refused.stderr.contains("leads outside of"), "{}", refused.stderr);
    }
    std::fs::remove_dir_all(&state).expect("removes");
    std::os::unix::fs::symlink(other.path(".dogwatch"), &state).expect("a link");
    gc(&[]).assert_code(2);
    assert!(theirs.exists());
    // The user may name a directory that is elsewhere.
    let named = other.path(".dogwatch").display().to_string();
    gc(&["--state-dir", &named]).assert_code(0);
    assert!(!theirs.exists());
}

#[test]
fn an_html_report_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let project = repository();
    two_iterations(&project);
    project.call(&["report", "--html", "report.html"]).assert_code(0);
    let mode = std::fs::metadata(project.path("report.html")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Makes a run look years old: changes its id, its record and its snapshot names, but not the snapshot dates.
fn age(project: &Project, run: &str) -> String {
    let (year, rest) = run.split_at(4);
    let old = format!("2016{rest}");
    let dir = project.path(".dogwatch/runs").join(&old);
    std::fs::rename(project.path(".dogwatch/runs").join(run), &dir).expect("renamed");
    let text = std::fs::read_to_string(dir.join("events.jsonl")).expect("reads");
    let text = text.replace(&format!("\"at\":\"{year}-"), "\"at\":\"2016-");
    std::fs::write(dir.join("events.jsonl"), text).expect("writes");
    let refs = git(project, &["for-each-ref", "--format=%(refname)", &format!("refs/dogwatch/{run}/")]);
    for name in refs.lines() {
        git(project, &["update-ref", &name.replace(run, &old), name]);
        git(project, &["update-ref", "-d", name]);
    }
    old
}

// promise: 16
#[test]
fn gc_keeps_recent_undos_of_old_runs() {
    let project = repository();
    let run = two_iterations(&project);
    project.call(&["undo", &run, "2", "--yes"]).assert_code(0);
    let undone = age(&project, &run);
    let other = age(&project, &two_iterations(&project));
    let young = two_iterations(&project);
    let done = project.call(&["gc", "--keep", "0", "--older-than", "1d", "--yes"]);
    done.assert_code(0);
    assert!(done.text().contains(&format!("{undone}  kept: it was undone")), "{}", done.text());
    let is_there = |run: &str| project.path(".dogwatch/runs").join(run).exists();
    assert!(is_there(&undone) && is_there(&young) && !is_there(&other));
    let refs = git(&project, &["for-each-ref", "--format=%(refname)"]);
    assert!(refs.contains("undo-") && refs.contains(&young) && !refs.contains(&other), "{refs}");
}

// promise: 16
#[test]
fn gc_keeps_resumable_and_unreadable_runs() {
    let project = repository();
    let torn = two_iterations(&project);
    let lost = two_iterations(&project);
    let journal = |run: &str| project.path(".dogwatch/runs").join(run).join("events.jsonl");
    std::fs::write(journal(&torn), "nonsense\n").expect("writes");
    let text = std::fs::read_to_string(journal(&lost)).expect("reads");
    let cut: Vec<&str> = text.lines().filter(|line| !line.contains("\"run_ended\"")).collect();
    std::fs::write(journal(&lost), cut.join("\n") + "\n").expect("writes");
    let done = project.call(&["gc", "--keep", "0", "--older-than", "0", "--yes"]);
    assert!(done.text().contains(&format!("{lost}  kept: it did not end")), "{}", done.text());
    assert!(done.text().contains(&format!("{torn}  kept: cannot read its record")), "{}", done.text());
    assert!(journal(&torn).exists() && journal(&lost).exists());
}

#[test]
fn gc_removes_old_snapshots_without_a_record() {
    let project = repository();
    let run = two_iterations(&project);
    std::fs::remove_dir_all(project.run_dir()).expect("the record can be removed");
    assert!(project.call(&["gc", "--older-than", "1d", "--yes"]).text().contains("nothing to remove"));
    let done = project.call(&["gc", "--older-than", "0", "--yes"]);
    assert!(done.text().contains(&format!("{run}  without a record  3 snapshots")), "{}", done.text());
    assert_eq!(git(&project, &["for-each-ref", "refs/dogwatch/"]), "");
}
