//! Graphs whose nodes have worktrees, with real git: results flow to dependents, conflicts are resolved or fail, and
//! `dogwatch merge` brings the work into a branch or changes nothing.

use crate::kit::{Done, Fifo, Gate, Project, Running, all, one};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(dir).args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"]).args(args);
    let out = git.output().expect("git");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

/// A repository with a graph. Each node is a name, more YAML, and a shell script for its agent.
fn repository(top: &str, nodes: &[(&str, &str, &str)]) -> Project {
    let project = Project::new();
    let work = project.path("");
    git(&work, &["init", "-q", "-b", "main"]);
    project.file("base.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    git(&work, &["add", "base.txt"]);
    git(&work, &["commit", "-qm", "base"]);
    let mut text = format!("watchdog: {{grace: 200ms, leak: 300ms}}\nworktree: true\n{top}\nnodes:\n");
    for (name, more, script) in nodes {
        let agent = Value::from(format!("sh {}", project.outside(&format!("{name}.sh")).display()));
        std::fs::write(project.outside(&format!("{name}.sh")), script).expect("writes a script");
        text +=
            &format!("  - {{id: {name}, prompt: \"do {name}\", agent: {agent}, max_iterations: 2{more}}}\n");
    }
    std::fs::write(project.outside("graph.yaml"), text).expect("writes the graph");
    project
}

/// Runs the graph. It is outside the repository, so that the work tree stays clean.
fn run(project: &Project) -> Done {
    let graph = project.outside("graph.yaml");
    let done = project.call(&["run", graph.to_str().expect("a plain path"), "--json"]);
    project.assert_no_process_left();
    done
}

/// What belongs to the user: the branches, the index, the files, and the worktrees.
fn everything(project: &Project) -> (String, String, String, String) {
    let work = project.path("");
    (
        git(&work, &["for-each-ref", "refs/heads/main", "refs/heads/other"]),
        git(&work, &["ls-files", "-s"]),
        git(&work, &["status", "--porcelain", "--ignored=no"]),
        git(&work, &["worktree", "list", "--porcelain"]),
    )
}

fn tree_of(events: &[Value], node: &str) -> PathBuf {
    let ready = all(events, "worktree_ready").into_iter().find(|e| e["node"] == node).expect("a worktree");
    PathBuf::from(ready["path"].as_str().expect("a path"))
}

const SED: &str = "sed -i";

#[test]
fn results_flow_through_a_diamond_and_merge_brings_them_into_the_branch() {
    let project = repository(
        "",
        &[
            ("a", ", done_when: ['test -f a']", "echo a > a"),
            (
                "b",
                ", depends_on: a, done_when: ['grep -q b b*.txt']",
                "test -f a && sed -i s/^1$/b/ base.txt",
            ),
            (
                "c",
                ", depends_on: a, done_when: ['grep -q c b*.txt']",
                "test -f a && sed -i s/^9$/c/ base.txt; git -c user.name=c -c user.email=c@c commit -qam c",
            ),
            ("d", ", depends_on: [b, c], done_when: ['grep -q b b*.txt', 'grep -q c b*.txt']", "echo d > d"),
        ],
    );
    let work = project.path("");
    let done = run(&project);
    let events = done.assert_code(0).events();
    let merged: Vec<&Value> = all(&events, "worktree_ready").iter().map(|e| &e["merged"]).collect();
    assert_eq!(merged, [&Value::Null, &json!(["a"]), &json!(["a"]), &json!(["b", "c"])]);
    assert_eq!(git(&work, &["status", "--porcelain"]), "", "the user's work tree is untouched");
    let before = git(&work, &["rev-parse", "main"]);
    let merge = project.call(&["merge"]);
    assert!(merge.assert_code(0).text().contains("d: 2 checks passed"), "{}", merge.text());
    assert_eq!(git(&work, &["status", "--porcelain"]), "");
    assert_eq!(project.read("base.txt"), "b\n2\n3\n4\n5\n6\n7\n8\nc\n");
    assert!(project.path("a").exists() && project.path("d").exists());
    let merges = git(&work, &["log", "--first-parent", "--format=%s", &format!("{before}..main")]);
    let titles: Vec<&str> = merges.lines().map(|line| line.split(" of ").next().unwrap_or(line)).collect();
    assert_eq!(titles, ["Merge node d", "Merge node c", "Merge node b", "Merge node a"]);
    assert_eq!(git(&work, &["rev-parse", "main@{1}"]), before, "the reflog leads back");
    let again = project.call(&["merge"]);
    assert!(again.assert_code(0).text().contains("nothing to merge"), "{}", again.text());
    // A new branch is made although there is nothing to merge.
    let other = project.call(&["merge", "--into", "review"]);
    assert!(other.assert_code(0).text().contains("review is now at "), "{}", other.text());
    assert_eq!(git(&work, &["rev-parse", "review"]), git(&work, &["rev-parse", "main"]));
    let again: Value = serde_json::from_str(&project.call(&["merge", "--json"]).text()).expect("JSON");
    assert_eq!((&again["old"], &again["failed"]), (&again["new"], &Value::Null));
    assert_eq!(again["nodes"][3], json!({"node": "d", "what": "already_merged", "checks": 0}));
    project.assert_no_process_left();
}

/// Two nodes change the same line, and `join` depends on both.
fn conflicting(top: &str, join: &str) -> Project {
    repository(
        top,
        &[
            ("x", "", &format!("{SED} s/^5$/x/ base.txt")),
            ("y", "", &format!("{SED} s/^5$/y/ base.txt")),
            ("join", ", depends_on: [x, y]", join),
        ],
    )
}

#[test]
fn an_agent_that_leaves_conflict_markers_is_asked_again_until_they_are_gone() {
    // The first session resolves nothing.
    let resolve = "cat > ../prompt.$DOGWATCH_ITERATION; test $DOGWATCH_ITERATION = 1 || \
                   sed -i -e '/^[<=>]\\{7\\}/d' base.txt";
    let project = conflicting("", resolve);
    let done = run(&project);
    let events = done.assert_code(0).events();
    let conflict = one(&events, "merge_conflicted");
    assert_eq!((&conflict["node"], &conflict["from"]), (&json!("join"), &json!("y")));
    assert_eq!((&conflict["files"], &conflict["policy"]), (&json!(["base.txt"]), &json!("agent")));
    let tree = tree_of(&events, "join");
    assert_eq!(
        std::fs::read_to_string(tree.join("base.txt")).expect("there"),
        "1\n2\n3\n4\nx\ny\n6\n7\n8\n9\n"
    );
    let prompt = |n: u32| std::fs::read_to_string(tree.join(format!("../prompt.{n}"))).expect("a prompt");
    assert!(prompt(1).contains("- from `y`: `base.txt`\n    CONFLICT (content)"), "{}", prompt(1));
    assert!(prompt(2).contains("base.txt:5:<<<<<<< dogwatch/"), "{}", prompt(2));
    let attempts = all(&events, "node_attempt");
    let converged: Vec<&Value> =
        attempts.iter().filter(|e| e["node"] == "join").map(|e| &e["converged"]).collect();
    assert_eq!(converged, [&json!(false), &json!(true)]);
    project.call(&["merge"]).assert_code(0);
    assert_eq!(project.read("base.txt"), "1\n2\n3\n4\nx\ny\n6\n7\n8\n9\n");
}

#[test]
fn with_merge_fail_a_conflict_fails_the_node() {
    let project = conflicting("merge: fail", "touch never");
    let done = run(&project);
    let events = done.assert_code(1).events();
    let failed = all(&events, "node_transition").into_iter().find(|e| e["to"] == "failed").expect("failed");
    assert_eq!((&failed["node"], &failed["reason"]), (&json!("join"), &json!("merge_conflict")));
    assert!(!all(&events, "session_started").iter().any(|e| e["node"] == "join"));
}

// promise: 19
#[test]
fn a_merge_that_conflicts_or_fails_a_check_changes_nothing() {
    // Each node alone is fine; x and y conflict with each other.
    let project = repository(
        "",
        &[
            ("x", ", done_when: ['grep -q x b*.txt']", &format!("{SED} s/^5$/x/ base.txt")),
            ("y", ", done_when: ['grep -q y b*.txt']", &format!("{SED} s/^5$/y/ base.txt")),
        ],
    );
    run(&project).assert_code(0);
    let before = everything(&project);
    let merge = project.call(&["merge"]);
    merge.assert_code(1);
    assert!(merge.stderr.contains("y conflicts in base.txt"), "{}", merge.stderr);
    assert!(merge.stderr.contains("main was not changed"), "{}", merge.stderr);
    assert_eq!(everything(&project), before);
    let merge: Value =
        serde_json::from_str(&project.call(&["merge", "--json"]).assert_code(1).text()).expect("JSON");
    assert_eq!(merge["nodes"], json!([{"node": "x", "what": "merged", "files": 1, "checks": 1}]));
    assert!(
        merge["failed"]["what"].as_str().is_some_and(|what| what == "y conflicts in base.txt"),
        "{merge}"
    );
    assert_eq!(everything(&project), before);
    // A check that fails only after the merge: the user's branch has moved on.
    let work = project.path("");
    project.file("base.txt", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    git(&work, &["commit", "-qam", "meanwhile"]);
    project.call(&["merge", "--node", "x"]).assert_code(0);
    assert_eq!(project.read("base.txt"), "1\n2\n3\n4\nx\n6\n7\n8\nnine\n");
    project.assert_no_process_left();
}

// promise: 19
#[test]
fn a_failing_check_after_the_merge_is_shown_and_undone() {
    let project = repository(
        "",
        &[("x", ", done_when: ['test ! -f theirs || { echo broken; exit 3; }']", "echo x > x")],
    );
    run(&project).assert_code(0);
    let work = project.path("");
    project.file("theirs", "");
    git(&work, &["add", "theirs"]);
    git(&work, &["commit", "-qm", "theirs"]);
    let before = everything(&project);
    let merge = project.call(&["merge"]);
    merge.assert_code(1);
    assert!(merge.stderr.contains("a check of x fails after the merge"), "{}", merge.stderr);
    assert!(merge.stderr.contains("(exit code 3)\n    broken\n"), "{}", merge.stderr);
    assert_eq!(everything(&project), before);
    assert!(!project.path("x").exists());
}

// promise: 19
#[test]
fn a_dirty_work_tree_is_refused_and_another_branch_needs_no_clean_one() {
    let project = repository("", &[("x", "", "echo x > x")]);
    run(&project).assert_code(0);
    project.file("base.txt", "mine\n");
    let before = everything(&project);
    let refused = project.call(&["merge"]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("uncommitted changes in 1 file"), "{}", refused.stderr);
    assert_eq!(everything(&project), before);
    let other = project.call(&["merge", "--into", "other"]);
    assert!(other.assert_code(0).text().contains("(back with `git branch -D other`)"), "{}", other.text());
    let work = project.path("");
    assert_eq!(git(&work, &["show", "other:x"]), "x");
    assert_eq!((project.read("base.txt").as_str(), project.path("x").exists()), ("mine\n", false));
    let untracked = project.call(&["merge", "--into", "bad..name"]);
    assert!(untracked.assert_code(2).stderr.contains("not a valid branch name"), "{}", untracked.stderr);
}

/// Returns a dogwatch whose nodes report to the FIFO `ready` and wait for the gate `gate`.
fn gated(project: &Project, args: &[&str]) -> Running {
    let mut command = project.command(args);
    command.env("READY", project.outside("ready")).env("GATE", project.outside("gate"));
    Running::start(command)
}

// promise: 19
#[test]
fn a_merge_killed_during_a_check_leaves_everything_alone_and_the_next_one_cleans_up() {
    let check = r#", done_when: ['test -z "$READY" || { echo $$ > "$READY"; cat "$GATE"; }']"#;
    let project = repository("", &[("x", check, "echo x > x")]);
    run(&project).assert_code(0);
    let (ready, _gate) = (Fifo::new(&project.outside("ready")), Gate::new(&project.outside("gate")));
    let before = everything(&project);
    let merge = gated(&project, &["merge"]);
    ready.pid();
    let busy = project.call(&["merge"]);
    assert!(
        busy.assert_code(2).stderr.contains("another `dogwatch merge` is in progress"),
        "{}",
        busy.stderr
    );
    merge.kill();
    project.wait_until_no_process_left();
    let after = everything(&project);
    assert_eq!((&after.0, &after.1, &after.2), (&before.0, &before.1, &before.2));
    project.call(&["merge"]).assert_code(0);
    let staged = project.path(".dogwatch/merges");
    assert_eq!(std::fs::read_dir(&staged).expect("there").count(), 0);
    assert_eq!(
        everything(&project).3.replace(&git(&project.path(""), &["rev-parse", "main"]), ""),
        before.3.replace(&git(&project.path(""), &["rev-parse", "main@{1}"]), "")
    );
    assert!(project.path("x").exists());
}

#[test]
fn setup_runs_in_the_new_worktree_before_the_agent_and_its_failure_fails_the_node() {
    let project = repository(
        "",
        &[
            (
                "good",
                ", setup: ['echo one > deps', 'echo two >> deps'], done_when: ['test $(cat deps | wc -l) = 2']",
                "test -f deps",
            ),
            ("bad", ", setup: ['echo no network >&2; exit 7']", "touch never"),
        ],
    );
    let done = run(&project);
    let events = done.assert_code(1).events();
    let of = |node: &str| -> Vec<&Value> {
        all(&events, "setup_finished").into_iter().filter(|e| e["node"] == node).map(|e| &e["rc"]).collect()
    };
    assert_eq!((of("good"), of("bad")), (vec![&json!(0), &json!(0)], vec![&json!(7)]));
    let failed = all(&events, "node_transition").into_iter().find(|e| e["to"] == "failed").expect("failed");
    assert_eq!((&failed["node"], &failed["reason"]), (&json!("bad"), &json!("setup_failed")));
    assert!(done.text().contains("no network"), "{}", done.text());
}

#[test]
fn after_kill_9_a_removed_worktree_is_created_and_set_up_again_with_the_merged_work() {
    let project = repository(
        "",
        &[
            ("a", "", "echo a > a"),
            (
                "b",
                ", depends_on: a, setup: ['echo set >> ../setups']",
                "echo $$ > \"$READY\"; cat \"$GATE\"; echo b > b",
            ),
        ],
    );
    let (ready, gate) = (Fifo::new(&project.outside("ready")), Gate::new(&project.outside("gate")));
    let graph = project.outside("graph.yaml");
    let running = gated(&project, &["run", graph.to_str().expect("plain"), "--json"]);
    ready.pid();
    let killed = running.kill();
    project.wait_until_no_process_left();
    let tree = tree_of(&killed.events(), "b");
    assert!(tree.join("a").exists());
    std::fs::remove_dir_all(&tree).expect("removed");
    let resumed = gated(&project, &["resume", "--json"]);
    ready.pid();
    gate.open();
    let done = resumed.finish();
    done.assert_code(0);
    assert!(tree.join("a").exists() && tree.join("b").exists());
    let setups = std::fs::read_to_string(tree.join("../setups")).expect("written");
    assert_eq!(setups.lines().count(), 2, "once for each new worktree");
    project.call(&["merge"]).assert_code(0);
    assert!(project.path("a").exists() && project.path("b").exists());
}

#[test]
fn the_end_of_a_run_with_branches_prints_the_command_that_merges_them() {
    let project = repository("", &[("x", "", "echo x > x"), ("y", "", "exit 1")]);
    let graph = project.outside("graph.yaml");
    let done = project.call(&["run", graph.to_str().expect("plain"), "--set", "errors.max=1"]);
    let id = project.run_dir().file_name().and_then(|n| n.to_str()).expect("an id").to_owned();
    let tail = id.rsplit('-').next().expect("a tail");
    assert!(done.text().contains(&format!("  merge the work: dogwatch merge {tail}\n")), "{}", done.text());
    // Only what is done is merged.
    let merge = project.call(&["merge", tail]);
    assert!(
        merge.assert_code(0).text().starts_with("x: merged (1 file)\nmain is now at "),
        "{}",
        merge.text()
    );
    let refused = project.call(&["merge", tail, "--node", "y"]);
    assert!(refused.assert_code(2).stderr.contains("node `y` of run"), "{}", refused.stderr);
}

/// In a hook, git names the user's repository and index in variables that lead every git command there.
#[test]
fn started_from_a_git_hook_nodes_and_checks_work_in_their_own_trees() {
    let project = repository(
        "",
        &[(
            "a",
            ", done_when: ['test -z \"$GIT_DIR$GIT_INDEX_FILE\" && git cat-file -e HEAD:a']",
            "echo a > a; git add a && git -c user.name=a -c user.email=a@a commit -qm own",
        )],
    );
    let work = project.path("");
    let before = everything(&project);
    let in_hook = |args: &[&str]| {
        let mut command = project.command(args);
        command.env("GIT_DIR", work.join(".git")).env("GIT_INDEX_FILE", work.join(".git/index"));
        Running::start(command).finish()
    };
    let graph = project.outside("graph.yaml");
    let done = in_hook(&["run", graph.to_str().expect("a plain path"), "--json"]);
    done.assert_code(0);
    let after = everything(&project);
    assert_eq!((&before.1, &before.2), (&after.1, &after.2), "the index and the files of the user");
    assert_eq!(git(&work, &["log", "--format=%s", "main"]), "base");
    let merge = in_hook(&["merge"]);
    assert!(merge.assert_code(0).text().contains("a: 1 check passed"), "{}", merge.text());
    assert_eq!(git(&work, &["status", "--porcelain"]), "");
    assert_eq!(project.read("a"), "a\n");
    project.assert_no_process_left();
}
