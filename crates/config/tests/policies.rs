//! Tests the keys of policies: idle waits (row 66 of the loop-file requirements), limits, budgets, notifications, checks and
//! recovery.
use crate::common;

use common::{Case, error, lines, settings, with};
use dogwatch_core::settings::{
    AfterStop, AgentPlan, AttemptPolicy, CheckPolicy, IdlePolicy, MergePolicy, ReaderName, RecoveryPolicy,
    StopAfter, Strategy, Tampered,
};
use dogwatch_core::time::dur::{Dur, Limit};

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

#[test]
fn loop_66_idle_waits_never_shrink() {
    for (yaml, message) in [
        ("idle: {backoff: 0.5}", "3:17: `idle.backoff` must be a number of at least 1"),
        ("idle: {backoff: .nan}", "3:17: `idle.backoff` must be a number of at least 1"),
        ("idle: {backoff: fast}", "3:17: `idle.backoff` must be a number of at least 1"),
        ("idle: {max_delay: 29s}", "3:19: `idle.max_delay` (29s) is less than `idle.delay` (30s)"),
        ("idle: {delay: 10m}", "3:15: `idle.max_delay` (5m) is less than `idle.delay` (10m)"),
        ("idle: {delay: 2m, max_delay: 1m}", "3:30: `idle.max_delay` (1m) is less than `idle.delay` (2m)"),
    ] {
        assert_eq!(error(yaml), message, "{yaml}");
    }
    // An invalid value is reported once: rules that depend on it are not checked.
    assert_eq!(error("idle: {delay: x, max_delay: 1s}"), "3:15: `idle.delay` must be a duration");
    assert_eq!(settings("idle: {backoff: 1, max_delay: 30s}").idle.unwrap().backoff, 1.0);
}

#[test]
fn a_learning_loop_waits_longer_and_does_not_stop_by_itself() {
    let idle = |yaml: &str| settings(yaml).idle.unwrap();
    let learned = idle("idle: {strategy: learned}");
    assert_eq!((learned.strategy, &learned.stop_after), (Strategy::Learned, &StopAfter::Never));
    assert_eq!((learned.look, learned.longest), (None, secs(3600)));
    assert_eq!((learned.look_cost(false), learned.look_cost(true)), (secs(20), secs(5)));
    let set = idle("idle: {strategy: learned, look: 1m, stop_after: 3}");
    assert_eq!((set.look_cost(true), set.stop_after), (secs(60), StopAfter::Count(3)));
    // `max_delay` is the longest wait of every strategy.
    assert_eq!(idle("idle: {strategy: learned, max_delay: 10m}").longest, secs(600));
    assert_eq!(idle("idle: {strategy: learned, max_delay: 10m, longest: 2h}").longest, secs(7200));
    assert_eq!(
        error("idle: {delay: 1m, longest: 30s}"),
        "3:28: `idle.longest` (30s) is less than `idle.delay` (1m)"
    );
}

#[test]
fn an_idle_block_is_completed_with_defaults() {
    assert_eq!(settings("").idle, None);
    for yaml in ["idle: {}", "idle:", "idle: true", "idle: {delay: 30s}", "work_when: test -s todo"] {
        assert_eq!(settings(yaml).idle, Some(IdlePolicy::default()), "{yaml}");
    }
    for yaml in ["idle: off", "idle: false"] {
        assert_eq!(settings(yaml).idle, None, "{yaml}");
    }
    let idle = settings(
        "idle: {delay: 1s, backoff: 3, max_delay: 1m, max: 6h, strategy: fibonacci, skip_unchanged: true, instruct: false}",
    )
    .idle
    .unwrap();
    assert_eq!(
        idle,
        IdlePolicy {
            delay: secs(1),
            backoff: 3.0,
            max_delay: secs(60),
            max: Some(secs(6 * 3600)),
            stop_after: StopAfter::Never,
            strategy: Strategy::Fibonacci,
            look: None,
            longest: secs(60),
            skip_unchanged: true,
            instruct: false,
            after_stop: AfterStop::Exit,
        }
    );
    assert_eq!(
        error("idle: off\nwork_when: x"),
        "3:7: `work_when` needs an `idle` policy, but `idle` is off"
    );
}

#[test]
fn the_built_in_idle_stop_applies_only_if_no_other_is_set() {
    let stop_after = |yaml: &str| settings(yaml).idle.unwrap().stop_after;
    let per_reason = |pairs: &[(&str, u32)]| {
        StopAfter::PerReason(pairs.iter().map(|(reason, n)| (reason.to_string(), *n)).collect())
    };
    for (yaml, expected) in [
        ("idle: {}", per_reason(&[("no_pending_tasks", 8)])),
        ("idle: {max: 6h}", StopAfter::Never),
        ("idle: {max: off}", StopAfter::Never),
        ("idle: {stop_after: off}", StopAfter::Never),
        ("idle: {stop_after: {}}", StopAfter::Never),
        ("idle: {stop_after: 3}", StopAfter::Count(3)),
        ("idle: {max: 6h, stop_after: 3}", StopAfter::Count(3)),
        ("idle: {stop_after: {a: 1, b: 2}}", per_reason(&[("a", 1), ("b", 2)])),
    ] {
        assert_eq!(stop_after(yaml), expected, "{yaml}");
    }
    for value in ["0", "-1", "{a: 0}", "{a: x}", "4294967296"] {
        assert!(
            error(&format!("idle: {{stop_after: {value}}}"))
                .ends_with("must be a whole number from 1 to 4294967295")
        );
    }
    assert!(error("idle: {stop_after: soon}").contains("must be a number, a mapping"));
}

#[test]
fn limits_may_be_off_and_counts_start_at_one() {
    let all = settings(
        "max_iterations: off\nwatchdog: {session: off, grace: 0}\nbudget: {iterations: off, time: off}",
    );
    assert_eq!((all.max_iterations, all.budget.iterations, all.budget.time), (None, None, None));
    assert_eq!((all.watchdog.session, all.watchdog.grace), (Limit::Off, Dur::ZERO));
    let tools = settings("watchdog: {tools: {Bash: 5m, Read: off}}").watchdog.tools;
    assert_eq!(tools.into_values().collect::<Vec<_>>(), [Limit::At(secs(300)), Limit::Off]);
    assert_eq!(settings("max_ralph_iters: 6").max_iterations, Some(6));
    assert_eq!(settings("idle.max: 1h").idle.unwrap().max, Some(secs(3600)));
    for (yaml, message) in [
        ("max_iterations: 0", "3:17: `max_iterations` must be a whole number from 1 to 4294967295"),
        ("max_iterations: 2.5", "3:17: `max_iterations` must be a whole number from 1 to 4294967295"),
        ("watchdog: {session: 0}", "3:21: `watchdog.session` must be more than zero"),
        ("errors: {window: off}", "3:18: `errors.window` must be a duration"),
        ("profile: slow", "3:10: `profile` must be one of `quick`, `standard`, `deep` or `learned`"),
        ("watchdog: {tools: 5m}", "3:19: `watchdog.tools` must be a mapping from tools to limits"),
        (
            "idle: {strategy: guessed}",
            "3:18: `idle.strategy` must be one of `exponential`, `fixed`, `fibonacci`, `decorrelated` or `learned`",
        ),
        ("max_iterations: 1\nmax_ralph_iters: 2", "4:1: `max_iterations` is set twice"),
        ("wake_on: {paths: 5}", "3:18: `wake_on.paths` must be a list of texts"),
        ("work_when: [a]", "3:12: `work_when` must be text"),
    ] {
        assert_eq!(error(yaml), message, "{yaml}");
    }
}

#[test]
fn a_day_has_its_own_budget() {
    let day = settings("budget: {tokens: 9, day: {tokens: 5, cost_usd: 2.5}}").budget.day;
    assert_eq!((day.tokens, day.cost_usd), (Some(5), Some(2.5)));
    assert!(!settings("budget: {tokens: 9, day: {tokens: off}}").budget.day.is_set());
}

#[test]
fn windows_take_percentages() {
    let of = |yaml: &str| {
        let window = settings(yaml).budget.window;
        (window.five_hour.map(f64::from), window.seven_day.map(f64::from))
    };
    assert_eq!(of("budget: {window: {five_hour: 80%, seven_day: 92.5 %}}"), (Some(80.0), Some(92.5)));
    assert_eq!(of("budget: {window: {five_hour: 80}}"), (Some(80.0), None));
    assert_eq!(of("budget: {window: {five_hour: off}}"), (None, None));
    for bad in ["0.8", "0%", "101%", "x%", "true", "-5"] {
        let message = "`budget.window.five_hour` must be a percentage of more than 0 and at most 100";
        let found = error(&format!("budget: {{window: {{five_hour: {bad}}}}}"));
        assert!(found.ends_with(message), "{bad}: {found}");
    }
}

#[test]
fn notifications_need_a_command_or_a_safe_address() {
    use dogwatch_core::record::notification::NotificationKind;
    let policy = settings("notify: {command: notify-send}").notify;
    assert_eq!(
        (policy.on, policy.command),
        (NotificationKind::SELECTABLE.to_vec(), Some("notify-send".into()))
    );
    let policy = settings("notify: {on: [ended, ended, hard_stop], webhook: 'https://h.example/x'}").notify;
    assert_eq!(policy.on, [NotificationKind::Ended, NotificationKind::HardStop]);
    assert_eq!(policy.webhook.unwrap().as_str(), "https://h.example/x");
    assert_eq!(settings("notify: {on: ended, command: x}").notify.on, [NotificationKind::Ended]);
    assert_eq!(settings("delay: 0").notify, dogwatch_core::record::notification::NotifyPolicy::default());
    for (yaml, message) in [
        ("notify: {webhook: 'http://example.com/x'}", "3:19: `notify.webhook` is not a valid address"),
        ("notify:\n  webhook: ftp://localhost/", "4:12: `notify.webhook` is not a valid address"),
        ("notify: {on: [ended]}", "3:14: `notify` needs a target"),
        (
            "notify: {on: [stuck], command: x}",
            "3:15: `notify.on` must be one of `ended`, `hard_stop`, `needs_human` or `rate_limited`",
        ),
        ("notify: {command: [a]}", "3:19: `notify.command` must be text"),
        ("notify: [a]", "3:9: `notify` must be a mapping"),
    ] {
        assert_eq!(error(yaml), message, "{yaml}");
    }
    let label = common::rendered(&with("notify: {webhook: 'http://example.com/x'}"));
    assert!(label.contains("http is allowed only to this machine"), "{label}");
}

#[test]
fn every_limit_of_the_watchdog_has_a_key() {
    let yaml = "watchdog: {children: 5m, node: off, run: 1h, errors: 5, cycles: off, poll: 1m, tool: 1m, start: 1m, idle: off, evidence_ttl: auto}";
    let loaded = Case::file(&with(yaml)).load().unwrap();
    assert_eq!(lines(&loaded.warnings), [""; 0]);
    let policy = &loaded.plan.nodes[0].settings.watchdog;
    assert_eq!((policy.errors, policy.cycles), (Some(5), None));
    assert_eq!((policy.idle.to_string(), policy.run.to_string()), ("off".into(), "1h".into()));
    assert_eq!(error("watchdog: {idle: soon}"), "3:18: `watchdog.idle` must be a duration");
    assert_eq!(
        error("watchdog: {cycles: 0}"),
        "3:20: `watchdog.cycles` must be a whole number from 1 to 4294967295"
    );
    let loaded = Case::file(&with("agent_idle_activity_evidence_ttl_seconds: 0")).load().unwrap();
    let ttl = loaded.plan.nodes[0].settings.watchdog.evidence_ttl;
    assert_eq!(ttl, dogwatch_core::settings::Ttl::Fixed(dogwatch_core::time::dur::Dur::ZERO));
}

#[test]
fn checks_are_a_list_or_a_single_command_and_never_empty() {
    for (yaml, commands) in [
        ("", &[][..]),
        ("done_when:", &[]),
        ("done_when: off", &[]),
        ("done_when: make test", &["make test"]),
        ("done_when: [make test, 'test -s a | grep b']", &["make test", "test -s a | grep b"]),
    ] {
        assert_eq!(settings(yaml).checks.commands, commands, "{yaml}");
    }
    for (yaml, message) in [
        ("done_when: []", "3:12: `done_when` is empty: nothing would be checked"),
        ("done_when: ''", "3:12: `done_when` is empty"),
        ("done_when: [a, ' ']", "3:16: `done_when` is empty"),
        ("done_when: [a, 5]", "3:16: `done_when` must be text"),
        ("done_when: 5", "3:12: `done_when` must be a list of shell commands"),
        ("done_when: {cmd: a}", "3:12: `done_when` must be text"),
    ] {
        assert_eq!(error(yaml), message, "{yaml}");
    }
}

#[test]
fn a_loop_with_checks_has_six_attempts_without_progress_by_default() {
    for (yaml, expected) in [
        ("", (None, None)),
        ("done_when: a", (None, Some(6))),
        ("done_when: a\nattempts: seed", (Some(6), None)),
        ("done_when: a\nattempts: progress", (None, Some(6))),
        ("done_when: off", (None, None)),
        ("done_when: a\nmax_iterations: 3", (Some(3), None)),
        ("done_when: a\nmax_ralph_iters: 4", (Some(4), None)),
        ("done_when: a\nmax_iterations: off", (None, None)),
    ] {
        let settings = settings(yaml);
        assert_eq!((settings.max_iterations, settings.checks.max_stalled), expected, "{yaml}");
    }
    assert_eq!(error("attempts: all"), "3:11: `attempts` must be one of `seed` or `progress`");
}

#[test]
fn the_check_policy_is_configurable() {
    let no_checks = CheckPolicy { attempts: AttemptPolicy::Progress, ..CheckPolicy::default() };
    assert_eq!(settings("").checks, no_checks);
    let checks = settings(
        "done_when: a\nrecheck: 2\npin: [tests/**, 'x[ab]']\nchecks: {timeout: 90s, tampered: warn}\nworktree: true",
    )
    .checks;
    let expected = CheckPolicy {
        commands: vec!["a".to_owned()],
        timeout: secs(90),
        tampered: Tampered::Warn,
        recheck: 2,
        pin: vec!["tests/**".to_owned(), "x[ab]".to_owned()],
        attempts: AttemptPolicy::Progress,
        max_stalled: Some(CheckPolicy::DEFAULT_ATTEMPTS),
    };
    assert_eq!(checks, expected);
    assert!(settings("worktree: true").worktree);
    let own = settings("worktree: true\nsetup: [npm ci, make deps]\nmerge: fail");
    assert_eq!((own.setup.join("; ").as_str(), own.merge), ("npm ci; make deps", MergePolicy::Fail));
    assert_eq!(settings("setup: make deps").setup, ["make deps"]);
    assert_eq!(settings("pin: tests").checks.pin, ["tests"]);
    for (yaml, message) in [
        ("recheck: 11", "3:10: `recheck` must be a whole number from 0 to 10"),
        ("recheck: -1", "3:10: `recheck` must be a whole number from 0 to 10"),
        ("recheck: off", "3:10: `recheck` must be a whole number from 0 to 10"),
        ("pin: 5", "3:6: `pin` must be a list of globs"),
        ("pin: [a, 'b[']", "3:10: `b[` is not a valid glob: unclosed `[`"),
        ("checks: {timeout: 0}", "3:19: `checks.timeout` must be more than zero"),
        ("checks: {timeout: off}", "3:19: `checks.timeout` must be a duration"),
        ("checks: {tampered: ignore}", "3:20: `checks.tampered` must be one of `fail` or `warn`"),
        ("checks: {tamper: fail}", "3:10: unknown key `tamper` in `checks`"),
        ("worktree: maybe", "3:11: `worktree` must be true or false"),
        ("merge: never", "3:8: `merge` must be one of `agent` or `fail`"),
        ("setup: 5", "3:8: `setup` must be a list of texts"),
    ] {
        assert_eq!(error(yaml), message, "{yaml}");
    }
}

#[test]
fn recovery_has_a_budget_a_template_and_fallback_agents() {
    assert_eq!(settings("").recovery, RecoveryPolicy::default());
    let recovery = settings(
        "recovery:\n  budget: 0\n  template: again.md\n  resume: true\n  agents: [claude -p, {agent: mine 'x y', reader: codex}]",
    )
    .recovery;
    let agent =
        |words: &[&str], reader| AgentPlan { agent: words.iter().map(|w| w.to_string()).collect(), reader };
    let expected = RecoveryPolicy {
        budget: 0,
        template: Some("again.md".to_owned()),
        resume: true,
        agents: vec![
            agent(&["claude", "-p"], ReaderName::Claude),
            agent(&["mine", "x y"], ReaderName::Codex),
        ],
    };
    assert_eq!(recovery, expected);
    assert_eq!(settings("recovery: {agents: claude}").recovery.agents.len(), 1);
    for (yaml, message) in [
        ("recovery: {budget: 1001}", "3:20: `recovery.budget` must be a whole number from 0 to 1000"),
        ("recovery: {template: ''}", "3:22: `recovery.template` is empty"),
        ("recovery: {resume: 1}", "3:20: `recovery.resume` must be true or false"),
        ("recovery: {agents: 5}", "3:20: `recovery.agents` must be a list of command lines"),
        ("recovery: {agents: [\"a 'b\"]}", "3:21: `recovery.agents` is malformed: unclosed quote '"),
        ("recovery: {agents: [{agent: a, raeder: codex}]}", "3:32: unknown field `raeder` in an agent"),
        ("recovery: {agents: [{reader: codex}]}", "3:21: this entry has no `agent`"),
        (
            "recovery: {agents: [{agent: a, reader: x}]}",
            "3:40: `reader` must be one of `plain`, `claude`, `codex`, `opencode` or `gemini`",
        ),
    ] {
        assert_eq!(error(yaml), message, "{yaml}");
    }
}
