//! Plans of random runs.

use crate::dice::Dice;
use crate::plan;
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::notification::{NotificationKind, NotifyPolicy};
use dogwatch_core::settings::{
    AfterStop, AgentPlan, AttemptPolicy, GraphPlan, IdlePolicy, NodePlan, Plan, Profile, ReaderName,
    Settings, StopAfter, Strategy, Tampered, Ttl, WakePolicy, WatchPolicy,
};
use dogwatch_core::time::dur::{Dur, Limit};

/// Draws a plan: a loop or a graph.
pub(super) fn draw(dice: &mut Dice) -> Plan {
    let mut plan = some_loop(dice);
    if dice.one_in(2) {
        return plan;
    }
    let template = plan.nodes[0].clone();
    let nodes = 2 + dice.below(4);
    plan.graph = Some(GraphPlan {
        max_parallel: small(dice, 1, 3),
        budget: std::mem::take(&mut plan.nodes[0].settings.budget),
    });
    plan.nodes = (0..nodes).map(|n| some_node(dice, &template, n)).collect();
    plan
}

fn small(dice: &mut Dice, least: u32, most: u32) -> u32 {
    least + u32::try_from(dice.below(u64::from(most - least) + 1)).expect("small")
}

/// Draws a node of a graph, which may depend on any node before it.
fn some_node(dice: &mut Dice, template: &NodePlan, n: u64) -> NodePlan {
    let mut node = template.clone();
    node.name = NodeName::new(&format!("n{n}"));
    node.depends_on = (0..n).filter(|_| dice.one_in(3)).map(|p| NodeName::new(&format!("n{p}"))).collect();
    node.touches = (0..dice.below(3)).map(|_| format!("src/{}/**", dice.below(4))).collect();
    node.parallel_safe = !dice.one_in(5);
    node.settings.worktree = dice.one_in(4);
    node.settings.budget.time = dice.one_in(6).then(|| Dur::from_secs(60 + dice.below(20_000)));
    // A graph whose nodes never end tests only one of them.
    node.settings.max_iterations = node.settings.max_iterations.or(Some(2 + dice.below(8)));
    node
}

fn some_loop(dice: &mut Dice) -> Plan {
    let reader = *dice.of(ReaderName::ALL);
    let mut plan = plan::plan(|s| *s = some_settings(dice, reader));
    plan.stop_on_error = dice.one_in(10);
    plan.snapshots = dice.one_in(2);
    plan
}

fn some_settings(dice: &mut Dice, reader: ReaderName) -> Settings {
    let mut s = Settings::of(vec!["agent".to_owned()], reader);
    s.max_iterations = dice.one_in(3).then(|| 1 + dice.below(30));
    // A loop without an end and without pauses fills a day with the same.
    let least = if s.max_iterations.is_none() { 300 } else { 0 };
    s.delay = Dur::from_secs(least + dice.below(900));
    s.watchdog = some_watchdog(dice, reader);
    s.budget.time = dice.one_in(5).then(|| Dur::from_secs(600 + dice.below(60_000)));
    s.budget.iterations = dice.one_in(6).then(|| 1 + dice.below(20));
    s.budget.tokens = dice.one_in(8).then(|| 1_000 + dice.below(20_000));
    s.errors.max = small(dice, 2, 8);
    s.limits.overload_retries = small(dice, 1, 4);
    s.commands = (0..dice.below(3)).map(|n| plan::command(&format!("c{n}"), Dur::from_secs(10))).collect();
    s.work_when = dice.one_in(4).then(|| "gate".to_owned());
    s.idle = dice.one_in(2).then(|| some_idle(dice));
    let probe = dice.one_in(3).then(|| "probe".to_owned());
    s.wake_on = WakePolicy { paths: Vec::new(), probe, every: Dur::from_secs(300) };
    s.checks.commands = (0..dice.below(3)).map(|n| format!("check {n}")).collect();
    s.checks.timeout = Dur::from_secs(15);
    s.checks.recheck = u32::from(dice.one_in(4));
    s.checks.pin = (0..dice.below(2)).map(|_| "tests/**".to_owned()).collect();
    s.checks.tampered = *dice.of(&[Tampered::Fail, Tampered::Warn]);
    if dice.one_in(2) {
        s.checks.attempts = AttemptPolicy::Progress;
        s.checks.max_stalled = dice.one_in(2).then(|| 1 + dice.below(6));
    }
    s.recovery.budget = small(dice, 0, 3);
    s.recovery.resume = dice.one_in(2);
    s.recovery.agents = (0..dice.below(3))
        .map(|n| AgentPlan {
            agent: vec![format!("other {n}")],
            reader: *dice.of(&[reader, ReaderName::Plain]),
        })
        .collect();
    if dice.one_in(3) {
        let (on, command) = (NotificationKind::ALL.to_vec(), Some("notify".to_owned()));
        s.notify = NotifyPolicy { on, command, ..NotifyPolicy::default() };
    }
    s
}

fn some_watchdog(dice: &mut Dice, reader: ReaderName) -> WatchPolicy {
    let mut policy = WatchPolicy::for_reader(*dice.of(Profile::ALL), reader);
    let ceiling = |dice: &mut Dice, of: u64, least: u64, most: u64| match dice.one_in(of) {
        true => Limit::At(Dur::from_secs(least + dice.below(most))),
        false => Limit::Off,
    };
    policy.session = Limit::At(Dur::from_secs(60 + dice.below(3_600)));
    policy.node = ceiling(dice, 8, 600, 40_000);
    policy.run = ceiling(dice, 8, 600, 80_000);
    policy.children = Limit::At(Dur::from_secs(60 + dice.below(900)));
    policy.tool = Limit::At(Dur::from_secs(60 + dice.below(900)));
    policy.human = Limit::At(Dur::from_secs(60 + dice.below(300)));
    policy.poll = Limit::At(Dur::from_secs(60 + dice.below(300)));
    policy.evidence_ttl =
        *dice.of(&[Ttl::Auto, Ttl::Auto, Ttl::Fixed(Dur::ZERO), Ttl::Fixed(Dur::from_secs(90))]);
    if dice.one_in(10) {
        policy.idle = Limit::Off;
    }
    policy
}

fn some_idle(dice: &mut Dice) -> IdlePolicy {
    IdlePolicy {
        strategy: *dice.of(Strategy::ALL),
        max: dice.one_in(4).then(|| Dur::from_secs(600 + dice.below(40_000))),
        stop_after: dice
            .of(&[
                StopAfter::Never,
                StopAfter::Count(4),
                StopAfter::PerReason(vec![("no_pending_tasks".to_owned(), 3)]),
            ])
            .clone(),
        skip_unchanged: dice.one_in(2),
        after_stop: *dice.of(&[AfterStop::Exit, AfterStop::Watch]),
        max_delay: Dur::from_hours(1),
        ..IdlePolicy::default()
    }
}

/// Returns the plan without one of its features, for each feature.
pub(super) fn smaller(plan: &Plan) -> Vec<Plan> {
    let changes: [fn(&mut Settings); 10] = [
        |s| s.commands.clear(),
        |s| s.work_when = None,
        |s| s.idle = None,
        |s| s.wake_on.probe = None,
        |s| s.checks.commands.clear(),
        |s| s.recovery.agents.clear(),
        |s| s.notify = NotifyPolicy::default(),
        |s| s.worktree = false,
        |s| s.budget = dogwatch_core::settings::Budget::default(),
        |s| s.checks.recheck = 0,
    ];
    let changed = |change: fn(&mut Settings)| {
        let mut plan = plan.clone();
        plan.nodes.iter_mut().for_each(|node| change(&mut node.settings));
        plan
    };
    let mut all: Vec<Plan> = changes.into_iter().map(changed).collect();
    all.push(Plan { snapshots: false, ..plan.clone() });
    all.push(Plan { stop_on_error: false, ..plan.clone() });
    all.retain(|smaller| smaller != plan);
    all
}
