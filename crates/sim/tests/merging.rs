//! Nodes with worktrees in virtual time: the effect of a conflict, a failing setup and a commit on the graph.

use dogwatch_core::record::event::{Event, NodeState, Outcome};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::run::job::{Arranged, Conflict, Job, JobKind, Worktree};
use dogwatch_core::settings::{MergePolicy, Plan};
use dogwatch_core::time::dur::Dur;
use dogwatch_sim::plan::{graph, plan};
use dogwatch_sim::{Act, World};

const MINUTE: Dur = Dur::from_mins(1);

/// Scripts sessions of a minute; everything else succeeds after a second.
fn works(job: Job) -> Act {
    if job.kind == JobKind::Session { Act::works(MINUTE) } else { Act::works(Dur::from_secs(1)) }
}

/// Scripts work like `works`, but the dependencies of node `c` conflict.
fn conflicts_in_c(job: Job) -> Act {
    let mut act = works(job);
    if job.kind == JobKind::Worktree && job.node.0 == 2 {
        let conflict =
            Conflict { from: NodeName::new("b"), files: vec!["x".to_owned()], detail: "CONFLICT".to_owned() };
        let (path, branch) = ("/trees/c".to_owned(), "dogwatch/r/c".to_owned());
        let arranged = Arranged { path, branch, conflicts: vec![conflict], ..Arranged::default() };
        act.report.worktree = Some(Worktree::Ready(arranged));
    }
    act
}

/// Returns the graph a, b → c → d, with a worktree for each node.
fn diamond(change: impl Fn(&mut dogwatch_core::settings::Settings)) -> Plan {
    let mut plan = graph(4, &[("a", &[]), ("b", &[]), ("c", &["a", "b"]), ("d", &["c"])]);
    for node in &mut plan.nodes {
        node.settings.worktree = true;
        change(&mut node.settings);
    }
    plan
}

fn reason(world: &World, node: usize) -> (NodeState, String) {
    let node = &world.run().view().nodes[node];
    (node.state, node.reason.clone().unwrap_or_default())
}

#[test]
fn a_dependent_is_merged_from_its_dependencies_and_starts_after_their_commits() {
    let mut world = World::new(diamond(|_| ()), works);
    assert_eq!(world.end().outcome, Outcome::Clean);
    let merged: Vec<(String, String)> = world
        .events
        .iter()
        .filter_map(|r| match &r.event {
            Event::WorktreeReady { node, merged, .. } => {
                let merged: Vec<&str> = merged.iter().map(NodeName::as_str).collect();
                Some((node.to_string(), merged.join(" ")))
            }
            _ => None,
        })
        .collect();
    let expected =
        [("a", ""), ("b", ""), ("c", "a b"), ("d", "c")].map(|(n, m)| (n.to_owned(), m.to_owned()));
    assert_eq!(merged, expected);
    let story = world.story();
    let at = |word: &str| story.iter().position(|w| w == word).unwrap_or_else(|| panic!("{word}: {story:?}"));
    assert!(
        at("work_committed dogwatch/0").max(at("work_committed dogwatch/1"))
            < at("worktree_ready dogwatch/2")
    );
}

#[test]
fn with_merge_fail_a_conflict_fails_the_node_and_blocks_what_depends_on_it() {
    let mut world = World::new(diamond(|s| s.merge = MergePolicy::Fail), conflicts_in_c);
    assert_eq!(world.end().outcome, Outcome::Stuck);
    assert_eq!(reason(&world, 2), (NodeState::Failed, "merge_conflict".to_owned()));
    assert_eq!(reason(&world, 3), (NodeState::Blocked, "ancestor_failed:c".to_owned()));
    assert!(world.story().contains(&"merge_conflicted b x".to_owned()));
    assert_eq!(world.sessions.len(), 2, "only a and b");
}

#[test]
fn with_merge_agent_the_node_is_done_only_without_conflict_markers() {
    // The node has no checks.
    let plan = diamond(|s| s.checks.commands.clear());
    let mut tries = 0;
    let script = move |job: Job| match job.kind {
        // The first session of c leaves a marker.
        JobKind::Check(0) if job.node.0 == 2 => {
            tries += 1;
            if tries == 1 { Act::check_fails(1, "x:1:<<<<<<< dogwatch/r/c") } else { works(job) }
        }
        _ => conflicts_in_c(job),
    };
    let mut world = World::new(plan, script);
    let end = world.end();
    assert_eq!((end.outcome, end.nodes.done), (Outcome::CleanWithFlake, 4));
    assert_eq!(world.sessions.len(), 5, "c needs two");
    let checks: Vec<String> = world
        .events
        .iter()
        .filter_map(|r| match &r.event {
            Event::NodeAttempt(a) => Some(format!("{} {}", a.node, a.results[0].cmd)),
            _ => None,
        })
        .collect();
    let check = "c git grep -nE '^(<<<<<<<|>>>>>>>) dogwatch/r/' -- :/; test $? -eq 1";
    assert_eq!(checks, [check, check]);
}

#[test]
fn an_unresolved_conflict_ends_the_node_after_the_usual_attempts() {
    let plan = diamond(|s| {
        s.checks.commands.clear();
        s.max_iterations = None;
    });
    let script = |job: Job| match job.kind {
        JobKind::Check(0) if job.node.0 == 2 => Act::check_fails(1, "x:1:<<<<<<< dogwatch/r/c"),
        _ => conflicts_in_c(job),
    };
    let mut world = World::new(plan, script);
    assert_eq!(world.end().outcome, Outcome::Stuck);
    assert_eq!(reason(&world, 2), (NodeState::Failed, "max_iterations_reached".to_owned()));
    assert_eq!(world.sessions.len(), 2 + 6);
}

#[test]
fn setup_runs_once_in_a_new_worktree_and_again_in_one_that_was_created_again() {
    let plan = plan(|s| {
        s.worktree = true;
        s.setup = vec!["one".to_owned(), "two".to_owned()];
        s.max_iterations = Some(2);
    });
    for (reused, expected) in [(true, 2), (false, 4)] {
        let mut trees = 0;
        let script = move |job: Job| {
            let mut act = works(job);
            if job.kind == JobKind::Worktree {
                trees += 1;
                let (path, branch) = ("/trees/loop".to_owned(), "dogwatch/r/loop".to_owned());
                let arranged = Arranged { path, branch, reused: reused && trees > 1, ..Arranged::default() };
                act.report.worktree = Some(Worktree::Ready(arranged));
            }
            act
        };
        let mut world =
            World::new(plan.clone(), script).at(Dur::from_secs(30), Input::EndAsked(EndSignal::Terminate));
        assert_eq!(world.end().outcome, Outcome::Interrupted);
        assert_eq!(world.crash(0, MINUTE, false), Ok(true));
        assert_eq!(world.end().outcome, Outcome::Clean);
        let setups = world.story().iter().filter(|word| word.starts_with("setup_finished")).count();
        assert_eq!(setups, expected, "reused: {reused}");
    }
}

#[test]
fn a_failing_setup_fails_the_node_before_any_session() {
    let plan = plan(|s| {
        s.worktree = true;
        s.setup = vec!["good".to_owned(), "bad".to_owned(), "never".to_owned()];
    });
    let script = |job: Job| match job.kind {
        JobKind::Setup(1) => Act::check_fails(7, "no network"),
        _ => works(job),
    };
    let mut world = World::new(plan, script);
    let end = world.end();
    assert_eq!((end.outcome, end.exit_code), (Outcome::Catastrophic, 1));
    assert_eq!(end.reason, "setup failed: `bad` (exit code 7): no network");
    assert_eq!(reason(&world, 0), (NodeState::Failed, "setup_failed".to_owned()));
    assert_eq!(world.sessions.len(), 0);
    assert!(!world.story().iter().any(|word| word.contains("never")));
}

#[test]
fn a_setup_that_hangs_is_stopped_at_its_limit() {
    let plan = plan(|s| {
        s.worktree = true;
        s.setup = vec!["hangs".to_owned()];
    });
    let script = |job: Job| if matches!(job.kind, JobKind::Setup(_)) { Act::hangs() } else { works(job) };
    let mut world = World::new(plan, script);
    assert_eq!(world.end().reason, "setup failed: `hangs` (timed out)");
    assert_eq!(world.elapsed() / 60_000, 30);
}

#[test]
fn work_that_cannot_be_committed_fails_the_node() {
    let script = |job: Job| match job.kind {
        JobKind::Commit if job.node.0 == 0 => Act::exits(1, Dur::ZERO),
        _ => works(job),
    };
    let mut world = World::new(diamond(|_| ()), script);
    assert_eq!(world.end().outcome, Outcome::Stuck);
    assert_eq!(reason(&world, 0), (NodeState::Failed, "commit_failed".to_owned()));
    assert_eq!(reason(&world, 2), (NodeState::Blocked, "ancestor_failed:a".to_owned()));
}

#[test]
fn a_run_killed_during_the_commit_commits_again_after_a_resume() {
    let script = |job: Job| match job.kind {
        JobKind::Commit => Act::works(MINUTE),
        _ => works(job),
    };
    let plan = plan(|s| {
        s.worktree = true;
        s.checks.commands = vec!["check".to_owned()];
        s.max_iterations = Some(3);
    });
    let mut world = World::new(plan, script)
        .at(Dur::from_secs(70), Input::EndAsked(EndSignal::Terminate))
        .at(Dur::from_secs(71), Input::EndAsked(EndSignal::Terminate));
    assert_eq!(world.end().outcome, Outcome::Interrupted);
    assert!(!world.story().iter().any(|word| word.starts_with("work_committed")));
    assert_eq!(world.crash(0, MINUTE, false), Ok(true));
    assert_eq!(world.end().outcome, Outcome::Clean);
    assert_eq!(world.story().iter().filter(|word| word.starts_with("work_committed")).count(), 1);
    assert_eq!(world.sessions.len(), 1, "the agent does not work again");
}
