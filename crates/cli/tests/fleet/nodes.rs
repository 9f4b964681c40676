//! Graphs whose nodes are jobs of their own, on several workers.

use crate::harbor::{ACCOUNT, Harbor, git, id, name};
use crate::steering::journal;
use dogwatch_core::lease::{JobRecord, JobState};
use dogwatch_fleet::names::JobId;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A mark of an agent: what it did, for which node, on which worker.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    what: String,
    node: String,
    worker: String,
}

/// An agent that marks its start and its end with its node and the home of its worker. It works for as many steps as its
/// prompt says, and runs `$2` at the end.
fn agent(harbor: &Harbor) -> String {
    format!(
        "node=$1\nsteps=$(sed -n 's/^steps //p')\n\
         mark() {{ echo \"$1 $node $(basename \"$HOME\")\" >>'{}'; }}\n\
         mark start\ni=0\n\
         while [ $i -lt $steps ]; do mark tick; sleep 0.1; i=$((i+1)); done\n\
         eval \"$2\"\nmark end\n",
        harbor.marks_file().display()
    )
}

/// Adds a graph to the repository. Each node has an id, its dependencies, its steps and what its agent does at the end.
fn add_graph(harbor: &Harbor, top: &str, nodes: &[(&str, &str, u32, &str)]) {
    let dir = harbor.dir.path().join("tree/graph");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("agent.sh"), agent(harbor)).expect("written");
    let mut text = format!("worktree: true\n{top}nodes:\n");
    for (node, after, steps, end) in nodes {
        text.push_str(&format!(
            "  - id: {node}\n    depends_on: [{after}]\n    agent: sh graph/agent.sh {node} '{end}'\n    prompt: \"steps {steps}\"\n"
        ));
        if !top.contains("done_when") {
            text.push_str(&format!("    done_when: test -s {node}.txt\n"));
        }
    }
    std::fs::write(dir.join("graph.yaml"), text).expect("written");
    harbor.push_loops();
}

fn diamond(harbor: &Harbor, steps: u32) {
    add_graph(
        harbor,
        "",
        &[
            ("a", "", 1, "echo a >a.txt"),
            ("b", "a", steps, "cat a.txt >b.txt"),
            (
                "c",
                "a",
                steps,
                "cat a.txt >c.txt; git add c.txt; git -c user.name=c -c user.email=c commit -qm c",
            ),
            ("d", "b, c", 1, "cat b.txt c.txt >d.txt"),
        ],
    );
}

fn marks(harbor: &Harbor) -> Vec<Mark> {
    let text = std::fs::read_to_string(harbor.marks_file()).unwrap_or_default();
    let mark = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let [what, node, worker] = <[String; 3]>::try_from(words).expect("three words");
        Mark { what, node, worker }
    };
    text.lines().map(mark).collect()
}

/// Asserts that the agent of each node worked once, from its start to its end, and returns the workers by node.
#[track_caller]
fn assert_each_once(harbor: &Harbor, nodes: &[&str]) -> BTreeMap<String, String> {
    let marks = marks(harbor);
    let mut workers = BTreeMap::new();
    for node in nodes {
        for what in ["start", "end"] {
            let found: Vec<&Mark> = marks.iter().filter(|m| m.node == *node && m.what == what).collect();
            assert_eq!(found.len(), 1, "{what} of {node}: {marks:?}\n{}", harbor.logs());
            workers.insert((*node).to_owned(), found[0].worker.clone());
        }
    }
    workers
}

/// Returns whether the agents of two nodes worked at the same time.
fn overlap(harbor: &Harbor, one: &str, other: &str) -> bool {
    let marks = marks(harbor);
    let at = |what: &str, node: &str| marks.iter().position(|m| m.what == what && m.node == node);
    at("start", one) < at("end", other) && at("start", other) < at("end", one)
}

fn spread(harbor: &Harbor) {
    let mut job = harbor.job("graph");
    (job.spread, job.iterations) = (true, None);
    harbor.submit_job(&id("one"), &job);
}

/// Returns the jobs of the nodes.
fn children(all: &BTreeMap<JobId, JobRecord>) -> Vec<(JobId, JobRecord)> {
    let own = all.iter().filter(|(_, record)| record.title.starts_with("node "));
    own.map(|(id, record)| (id.clone(), record.clone())).collect()
}

/// Returns the job of a node, once it is as wanted.
#[track_caller]
fn until_child(
    harbor: &Harbor,
    node: &str,
    what: &str,
    right: impl Fn(&JobRecord) -> bool,
) -> (JobId, JobRecord) {
    harbor.until_jobs(&format!("the job of node {node} {what}"), |all| {
        let title = format!("node {node} of one");
        children(all).into_iter().find(|(_, record)| record.title == title && right(record))
    })
}

fn events(harbor: &Harbor, job: &str, kind: &str) -> Vec<Value> {
    let lines = journal(harbor, job);
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events.filter(|event| event["event"] == kind).collect()
}

#[test]
fn the_nodes_of_a_diamond_run_on_several_workers_at_once_and_the_result_is_their_merge() {
    let mut harbor = Harbor::new(8);
    diamond(&harbor, 20);
    for worker in ["anna", "bert", "carl"] {
        harbor.start_worker(worker);
    }
    let tree = harbor.dir.path().join("tree");
    let url = format!("file://{}", harbor.repository().display());
    let queued = harbor.succeed(&[
        "submit",
        "graph",
        "--spread",
        "--name",
        "one",
        "--account",
        ACCOUNT,
        "--repo",
        &url,
    ]);
    assert!(queued.contains("queued acme.one: graph of file://"), "{queued}");
    until_child(&harbor, "b", "runs", |record| record.state == JobState::Running);
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains("coordinates 1 graph"), "{shown}");
    assert!(shown.contains("node b of one"), "{shown}");
    let record = harbor.until_state("one", JobState::Done);
    let result = record.result.expect("a result");
    assert_eq!((result.outcome.as_str(), result.exit_code, result.detail), ("clean", Some(0), None));
    let workers = assert_each_once(&harbor, &["a", "b", "c", "d"]);
    assert!(overlap(&harbor, "b", "c"), "{:?}", marks(&harbor));
    assert_ne!(workers["b"], workers["c"], "{workers:?}");
    assert_eq!(result.branch.as_deref(), Some("refs/heads/dogwatch/one/1"));
    git(&tree, &["fetch", "--quiet", "../repo.git", "dogwatch/one/1"]);
    for (file, text) in [("a", "a\n"), ("b", "a\n"), ("c", "a\n"), ("d", "a\na\n")] {
        assert_eq!(git(&tree, &["show", &format!("FETCH_HEAD:{file}.txt")]), text);
    }
    // The run of the graph shows where its nodes ran, and has checked them itself.
    let attempts = events(&harbor, "one", "node_attempt");
    assert_eq!(attempts.len(), 4, "{attempts:?}");
    assert!(attempts.iter().all(|attempt| attempt["converged"] == true), "{attempts:?}");
    for worker in ["anna", "bert", "carl"] {
        harbor.drain(worker);
    }
    assert_eq!(harbor.queued(), 0);
}

#[test]
fn one_worker_with_one_slot_a_cap_of_one_and_a_budget_for_one_job_finishes_a_spread_graph() {
    let mut harbor = Harbor::new(1);
    diamond(&harbor, 2);
    // The budget has room for one job at a time, too.
    harbor.succeed(&["fleet", "account", ACCOUNT, "--budget-tokens", "1"]);
    harbor.start_worker_at("anna", harbor.port(), &["--slots", "1"]);
    spread(&harbor);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "clean", "{}", harbor.logs());
    assert_each_once(&harbor, &["a", "b", "c", "d"]);
    assert!(!overlap(&harbor, "b", "c"));
}

#[test]
fn a_graph_whose_holder_is_killed_continues_with_the_same_nodes() {
    let mut harbor = Harbor::new(8);
    diamond(&harbor, 60);
    harbor.start_worker("anna");
    spread(&harbor);
    harbor.until_owner("one", "anna");
    // The first node is done before other workers join, so that its branch has to move, too.
    until_child(&harbor, "b", "exists", |_| true);
    harbor.signal("anna", Signal::STOP);
    harbor.start_worker("bert");
    harbor.start_worker("carl");
    harbor.signal("anna", Signal::CONT);
    let holder = harbor.until_record("one", "names its run", |record| record.run.is_some());
    let others =
        |node: &str| until_child(&harbor, node, "runs", |record| record.state == JobState::Running).1.owner;
    let (b, c) = (others("b"), others("c"));
    harbor.until_marks("both agents work", || {
        let at_work: BTreeSet<String> =
            marks(&harbor).into_iter().filter(|m| m.what == "tick").map(|m| m.node).collect();
        at_work.contains("b") && at_work.contains("c")
    });
    harbor.signal("anna", Signal::KILL);
    let record = harbor.until_state("one", JobState::Done);
    assert_eq!((record.epoch, record.run == holder.run), (2, true), "{}", harbor.logs());
    let result = record.result.expect("a result");
    assert_eq!((result.outcome.as_str(), &result.detail), ("clean", &None), "{}", harbor.logs());
    assert_eq!(git(&harbor.repository(), &["show", "dogwatch/one/2:d.txt"]), "a\na\n");
    // The nodes of other workers continue; a node of the killed worker is taken over.
    for (node, owner) in [("b", b), ("c", c)] {
        let starts = marks(&harbor).iter().filter(|m| m.node == node && m.what == "start").count();
        assert_eq!(
            starts,
            if owner == "anna" { 2 } else { 1 },
            "{node}: {:?}\n{}",
            marks(&harbor),
            harbor.logs()
        );
    }
    let all = harbor.until_jobs("all nodes are over", |all| {
        Some(children(all)).filter(|all| all.iter().all(|(_, record)| record.state.is_over()))
    });
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(
        all.iter()
            .all(|(_, record)| record.result.as_ref().is_some_and(|result| result.exit_code == Some(0)))
    );
    let ends = marks(&harbor).iter().filter(|m| m.what == "end").count();
    assert_eq!(ends, 4, "{:?}", marks(&harbor));
}

#[test]
fn a_conflict_between_nodes_of_different_workers_is_an_event_with_its_files() {
    let mut harbor = Harbor::new(8);
    add_graph(
        &harbor,
        "merge: fail\ndone_when: test -s same.txt\n",
        &[("b", "", 20, "echo b >same.txt"), ("c", "", 20, "echo c >same.txt"), ("d", "b, c", 1, "true")],
    );
    harbor.start_worker("anna");
    harbor.start_worker("bert");
    spread(&harbor);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "partial", "{}", harbor.logs());
    let workers = assert_each_once(&harbor, &["b", "c"]);
    assert_ne!(workers["b"], workers["c"]);
    let conflicts = events(&harbor, "one", "merge_conflicted");
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!((&conflicts[0]["node"], &conflicts[0]["from"]), (&"d".into(), &"c".into()));
    assert_eq!(conflicts[0]["files"], serde_json::json!(["same.txt"]));
    let detail = result.detail.expect("a reason");
    assert!(detail.contains("could not be merged") && detail.contains("same.txt"), "{detail}");
    // Both branches are in the repository all the same.
    for (node, text) in [("b", "b\n"), ("c", "c\n")] {
        let file = format!("refs/dogwatch/one/1/nodes/{node}:same.txt");
        assert_eq!(git(&harbor.repository(), &["show", &file]), text);
    }
}

#[test]
fn a_stop_of_a_spread_graph_ends_its_queued_nodes_and_lets_running_ones_finish() {
    let mut harbor = Harbor::new(8);
    add_graph(&harbor, "", &[("b", "", 40, "echo b >b.txt"), ("c", "", 40, "echo c >c.txt")]);
    harbor.start_worker("anna");
    spread(&harbor);
    until_child(&harbor, "b", "exists", |_| true);
    until_child(&harbor, "c", "exists", |_| true);
    harbor.until_marks("an agent works", || marks(&harbor).iter().any(|m| m.what == "tick"));
    harbor.succeed(&["fleet", "stop", "acme.one"]);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_ne!(result.exit_code, Some(0), "{result:?}");
    let first = marks(&harbor)[0].node.clone();
    assert!(marks(&harbor).iter().all(|m| m.node == first), "{:?}", marks(&harbor));
    assert_each_once(&harbor, &[&first]);
    let over = harbor.until_jobs("both nodes are over", |all| {
        let all = children(all);
        (all.len() == 2 && all.iter().all(|(_, record)| record.state == JobState::Done)).then_some(all)
    });
    let outcomes: BTreeSet<String> =
        over.into_iter().map(|(_, record)| record.result.expect("a result").outcome).collect();
    assert_eq!(outcomes, BTreeSet::from(["clean".to_owned(), "stopped".to_owned()]));
    harbor.drain("anna");
    assert_eq!(harbor.queued(), 0);
}

#[test]
fn a_node_whose_session_is_killed_ends_on_its_worker_before_the_next_attempt_starts() {
    let mut harbor = Harbor::new(8);
    add_graph(&harbor, "", &[("b", "", 30, "echo b >b.txt")]);
    harbor.start_worker("anna");
    harbor.start_worker("bert");
    spread(&harbor);
    harbor.until_marks("the agent works", || marks(&harbor).iter().any(|m| m.what == "tick"));
    harbor.until_journal("one", "the session", |text| text.contains("\"event\":\"session_started\""));
    let session = &events(&harbor, "one", "session_started")[0];
    let pid = session["pid"].as_i64().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    kill_process(pid.expect("a pid"), Signal::KILL).expect("killed");
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "clean_with_flake", "{}", harbor.logs());
    let lines = marks(&harbor);
    let starts: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].what == "start").collect();
    assert_eq!((starts.len(), lines.iter().filter(|m| m.what == "end").count()), (2, 1), "{lines:?}");
    // No mark of the first agent comes after the start of the second: 30 ticks and the end are left.
    assert_eq!(lines.len() - starts[1], 32, "{lines:?}\n{}", harbor.logs());
    let (_, first) = until_child(&harbor, "b", "was stopped", |record| {
        record.result.as_ref().is_some_and(|result| result.outcome == "stopped")
    });
    assert_eq!(first.state, JobState::Done);
    // Nothing is left in the repository but the result and the branches of the graph.
    let refs = git(&harbor.repository(), &["for-each-ref", "--format=%(refname)"]);
    let expected = ["refs/dogwatch/one/1/nodes/b", "refs/heads/dogwatch/one/1", "refs/heads/main"];
    assert_eq!(refs.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_node_ends_when_its_graph_does() {
    let mut harbor = Harbor::new(8);
    add_graph(&harbor, "budget: {time: 3s}\n", &[("b", "", 600, "echo b >b.txt")]);
    harbor.start_worker("anna");
    spread(&harbor);
    harbor.until_marks("the agent works", || marks(&harbor).iter().any(|m| m.what == "tick"));
    harbor.until_state("one", JobState::Done);
    let (_, record) = until_child(&harbor, "b", "is over", |record| record.state == JobState::Done);
    assert_eq!(record.result.expect("a result").outcome, "stopped", "{}", harbor.logs());
    assert!(marks(&harbor).iter().all(|m| m.what != "end"));
}

#[test]
fn a_prompt_reaches_the_agent_as_it_is_but_without_the_secrets_of_the_holder() {
    let mut harbor = Harbor::new(8);
    let prompt = harbor.dir.path().join("prompt");
    let dir = harbor.dir.path().join("tree/graph");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("agent.sh"), format!("cat >'{}'\necho x >x.txt\n", prompt.display()))
        .expect("written");
    // The output of a command is in the prompt: a secret, another one that the graph names, and a placeholder.
    let text = "worktree: true\nagent: sh graph/agent.sh\nredact: [HARBOR_PLACE]\n\
                commands: [{name: env, shell: true, run: 'echo $MY_API_KEY $HARBOR_PLACE; echo \"{{\" args.prompt }}'}]\n\
                nodes: [{id: x, prompt: 'Use {{ commands.env }}.', done_when: test -s x.txt}]\n";
    std::fs::write(dir.join("graph.yaml"), text).expect("written");
    harbor.push_loops();
    let line = harbor.join("anna").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    command.env("MY_API_KEY", "k3y-of-the-holder").env("HARBOR_PLACE", "quay-seventeen");
    harbor.start_worker_by("anna", &line, &[], &mut command);
    spread(&harbor);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "clean", "{}", harbor.logs());
    let seen = std::fs::read_to_string(&prompt).expect("a prompt");
    assert!(seen.starts_with("Use ") && seen.contains("{{ args.prompt }}"), "{seen}");
    assert!(!seen.contains("k3y-of-the-holder") && !seen.contains("quay-seventeen"), "{seen}");
}

#[test]
fn a_graph_with_a_node_that_has_no_worktree_is_refused() {
    let mut harbor = Harbor::new(8);
    let dir = harbor.dir.path().join("tree/graph");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("graph.yaml"), "agent: sh\nnodes: [{id: x, prompt: Work.}]\n").expect("written");
    harbor.push_loops();
    harbor.start_worker("anna");
    spread(&harbor);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "refused");
    let detail = result.detail.expect("a reason");
    assert!(detail.contains("node `x` cannot run on another worker"), "{detail}");
}

#[test]
fn a_node_whose_graph_is_over_is_never_started() {
    let mut harbor = Harbor::new(8);
    diamond(&harbor, 1);
    // A worker may queue a node of a graph that the operator never queued, or that is over. No worker runs it.
    let child = JobId { account: name(ACCOUNT), job: name("one-a-1-0") };
    let commit = harbor.head();
    let node =
        serde_json::json!({"v": 1, "graph": "one", "node": "a", "commit": commit, "prompt": "steps 1"});
    harbor.block_on(|client| async move {
        let body = serde_json::to_vec(&node).expect("JSON");
        client.publish(&child.node_subject(), &[], body, None).await.expect("queued");
    });
    harbor.start_worker("anna");
    harbor.until_says("anna", "acme.one-a-1-0: removed from the queue: its graph is over");
    harbor.drain("anna");
    assert_eq!(harbor.queued(), 0);
    assert_eq!(marks(&harbor), []);
}
