//! Tests the precedence of layers and the origins of values.
use crate::common;

use common::{Case, lines, with};
use dogwatch_config::explain::table;
use dogwatch_config::{Flags, Loaded, Style};
use dogwatch_core::settings::{Profile, StopAfter};
use dogwatch_core::time::dur::{Dur, Limit};

fn origin(loaded: &Loaded, key: &str) -> (String, String) {
    let setting = loaded.explain.iter().find(|s| s.key == key).unwrap();
    (setting.value.clone(), setting.origin.clone())
}

#[test]
fn a_later_layer_replaces_single_keys_and_values_keep_their_origin() {
    let file = with("idle:\n  max_delay: 20m");
    let case = Case {
        user: Some("delay = 1\ncredit = true\n[idle]\ndelay = \"1m\"\nmax_delay = \"10m\""),
        project: Some("delay = \"2s\"\n\n[[commands]]\nname = \"log\"\nrun = \"git log\"\n"),
        flags: Flags { delay: Some("3".to_owned()), stop_on_error: true, ..Flags::default() },
        ..Case::file(&file)
    };
    let loaded = case.load().unwrap();
    for (key, value, from) in [
        ("agent", "echo", "RALPH.md:2:8"),
        ("delay", "3s", "flag --delay"),
        ("credit", "true", "~/.config/dogwatch/dogwatch.toml:2:10"),
        ("commands", "log: git log", "dogwatch.toml:3:1"),
        ("idle.delay", "1m", "~/.config/dogwatch/dogwatch.toml:4:9"),
        ("idle.max_delay", "20m", "RALPH.md:4:14"),
        ("idle.backoff", "2", "built-in"),
        ("watchdog.session", "1h", "built-in (profile standard)"),
        ("watchdog.idle", "11m", "built-in (profile standard, plain agent)"),
        ("watchdog.grace", "10s", "built-in"),
        ("reader", "plain", "from `agent`"),
    ] {
        assert_eq!(origin(&loaded, key), (value.to_owned(), from.to_owned()), "{key}");
    }
    assert!(loaded.plan.stop_on_error);
}

#[test]
fn an_explicit_limit_overrides_a_profile_from_any_layer() {
    let file = with("profile: deep");
    let mut case = Case { user: Some("watchdog.session = \"7m\""), ..Case::file(&file) };
    assert_eq!(case.settings().watchdog.session, Limit::At(Dur::from_mins(7)));
    case.flags.profile = Some("quick".to_owned());
    assert_eq!(case.settings().watchdog.session, Limit::At(Dur::from_mins(7)));
    assert_eq!(case.settings().profile, Profile::Quick);
    case.user = None;
    assert_eq!(case.settings().watchdog.session, Limit::At(Dur::from_mins(15)));
    assert_eq!(origin(&case.load().unwrap(), "watchdog.session").1, "built-in (profile quick)");
    case.flags.timeout = Some("90".to_owned());
    assert_eq!(
        origin(&case.load().unwrap(), "watchdog.session"),
        ("1m30s".to_owned(), "flag --timeout".to_owned())
    );
}

#[test]
fn set_flags_are_yaml_scalars() {
    let file = with("");
    let settings = Case::file(&file)
        .set(&[
            "idle.max=6h",
            "credit=true",
            "budget.iterations=3",
            "agent=sh -c 'echo a: b'",
            "wake_on.paths=[src, \"a b\"]",
            "wake_on.probe=test -e x",
            "idle.stop_after={no_pending_tasks: 2}",
        ])
        .settings();
    let idle = settings.idle.unwrap();
    assert_eq!(idle.max, Some(Dur::from_hours(6)));
    assert_eq!(idle.stop_after, StopAfter::PerReason(vec![("no_pending_tasks".to_owned(), 2)]));
    assert!(settings.credit);
    assert_eq!(settings.budget.iterations, Some(3));
    assert_eq!(settings.agent, ["sh", "-c", "echo a: b"]);
    assert_eq!(settings.wake_on.paths, ["src", "a b"]);
    assert_eq!(settings.wake_on.probe.as_deref(), Some("test -e x"));
    // The last `--set` wins, and a named flag overrides both.
    let mut case = Case::file(&file).set(&["delay=1", "delay=2"]);
    assert_eq!(case.settings().delay, Dur::from_secs(2));
    case.flags.delay = Some("3s".to_owned());
    assert_eq!(case.settings().delay, Dur::from_secs(3));
    case.flags.max_iterations = Some("4".to_owned());
    assert_eq!(case.settings().max_iterations, Some(4));
}

#[test]
fn errors_in_flags_point_at_the_flag() {
    let file = with("");
    let mut case = Case::file(&file).set(&[
        "idle.max=6x",
        "idel.max=1h",
        "delay",
        "idle.mx=1",
        "done_when=[]",
        "mcp=x",
        "=5",
    ]);
    case.flags.max_iterations = Some("0".to_owned());
    case.flags.timeout = Some("-1".to_owned());
    case.flags.profile = Some(String::new());
    assert_eq!(
        case.errors(),
        [
            "command line:1:16: `idle.max` must be a duration",
            "command line:1:7: unknown key `idel.max`",
            "command line:1:7: `delay` needs a value",
            "command line:1:7: unknown key `idle.mx`",
            "command line:1:17: `done_when` is empty: nothing would be checked",
            "command line:1:11: `mcp` must be true or false",
            "command line:1:7: unknown key ``",
            "command line:1:4: `max_iterations` must be a whole number from 1 to 4294967295",
            "command line:1:11: `watchdog.session` must be a duration",
            "command line:1:1: `profile` needs a value",
        ]
    );
}

#[test]
fn a_stronger_layer_can_turn_idle_waits_off_and_on_again() {
    let file = with("idle: off");
    let mut case = Case { project: Some("[idle]\ndelay = \"1m\"\n"), ..Case::file(&file) };
    assert_eq!(case.settings().idle, None);
    assert_eq!(origin(&case.load().unwrap(), "idle.delay"), ("off".to_owned(), "RALPH.md:3:7".to_owned()));
    case.flags.set = vec!["idle.max=1h".to_owned()];
    let idle = case.settings().idle.unwrap();
    assert_eq!((idle.delay, idle.max), (Dur::from_secs(30), Some(Dur::from_hours(1))));
}

#[test]
fn the_user_and_the_project_can_have_equal_files() {
    let file = with("");
    let case =
        Case { user: Some("\u{feff}delay = 5"), project: Some("\u{feff}delay = 5"), ..Case::file(&file) };
    assert_eq!(origin(&case.load().unwrap(), "delay"), ("5s".to_owned(), "dogwatch.toml:1:9".to_owned()));
}

#[test]
fn the_agent_can_come_from_any_layer() {
    let case = Case { project: Some("agent = 'claude'"), ..Case::file("Just a prompt") };
    assert_eq!(case.settings().agent, ["claude"]);
    assert_eq!(Case::file("Just a prompt").set(&["agent=claude"]).settings().agent, ["claude"]);
}

#[test]
fn loop_26_an_unknown_key_anywhere_in_dogwatch_toml_is_an_error() {
    let file = with("");
    let case =
        Case { project: Some("dealy = 5\n[idle]\nmaximum = 1\n[nonsense]\na = 1\n"), ..Case::file(&file) };
    assert_eq!(
        case.errors(),
        [
            "dogwatch.toml:1:1: unknown key `dealy`",
            "dogwatch.toml:3:1: unknown key `maximum` in `idle`",
            "dogwatch.toml:4:2: unknown key `nonsense`",
        ]
    );
}

#[test]
fn all_errors_of_all_sources_are_reported_at_once_before_the_warnings() {
    let file = "---\nfoo: 1\nagent: ''\ndelay: x\ncommands:\n  - {name: 'a b', timeout: 0}\n---\nHi";
    let case = Case { user: Some("delay = true"), project: Some("[idle]\nbackoff = 0"), ..Case::file(file) };
    let found = case.set(&["credit=5"]).load().unwrap_err();
    assert_eq!(
        lines(&found),
        [
            "~/.config/dogwatch/dogwatch.toml:1:9: `delay` must be a duration",
            "dogwatch.toml:2:11: `idle.backoff` must be a number of at least 1",
            "RALPH.md:3:8: `agent` is empty",
            "RALPH.md:4:8: `delay` must be a duration",
            "RALPH.md:6:5: this command has no `run`",
            "RALPH.md:6:28: `timeout` must be more than zero",
            "RALPH.md:6:12: `a b` is not a valid name",
            "command line:1:14: `credit` must be true or false",
            "RALPH.md:2:1: unknown key `foo`",
        ]
    );
}

#[test]
fn a_file_with_syntax_errors_does_not_prevent_checks_of_the_others() {
    let case =
        Case { user: Some("delay = \n"), project: Some("delay = true"), ..Case::file("---\na: [\n---\nHi") };
    let positions: Vec<String> = case.load().unwrap_err().iter().map(|d| d.position()).collect();
    assert_eq!(positions, ["~/.config/dogwatch/dogwatch.toml:1:9", "dogwatch.toml:1:9", "RALPH.md:2:4"]);
}

#[test]
fn the_explanation_lists_every_key() {
    let mut case = Case::file("---\nagent: claude -p\nidle:\n  max: 6h\n---\nHi");
    case.flags.max_iterations = Some("3".to_owned());
    assert_eq!(
        table(&case.load().unwrap().explain),
        "\
agent                    claude -p    RALPH.md:2:8
reader                   claude       from `agent`
commands                 none         built-in
args                     none         built-in
credit                   false        built-in
delay                    0s           built-in
profile                  standard     built-in
attempts                 progress     built-in (of loop files)
max_iterations           3            flag -n
work_when                none         built-in
mcp                      on           built-in
recheck                  0            built-in
pin                      none         built-in
redact                   none         built-in
sandbox                  off          built-in
sandbox.write            none         built-in
sandbox.read             none         built-in
sandbox.ports            none         built-in
sandbox.required         false        built-in
worktree                 false        built-in
setup                    none         built-in
merge                    agent        built-in
done_when                none         built-in
idle.delay               30s          built-in
idle.backoff             2            built-in
idle.max_delay           5m           built-in
idle.max                 6h           RALPH.md:4:8
idle.stop_after          off          built-in (`idle.max` is set)
idle.strategy            exponential  built-in
idle.look                20s          built-in (5s if the agent is not called)
idle.longest             1h           built-in
idle.skip_unchanged      false        built-in
idle.instruct            true         built-in
idle.after_stop          exit         built-in
wake_on.paths            none         built-in
wake_on.probe            none         built-in
wake_on.every            1m           built-in
watchdog.session         1h           built-in (profile standard)
watchdog.grace           10s          built-in
watchdog.leak            2s           built-in
watchdog.result_grace    10s          built-in
watchdog.children        30m          built-in (profile standard)
watchdog.node            off          built-in
watchdog.run             off          built-in
watchdog.errors          5            built-in
watchdog.cycles          5            built-in
watchdog.poll            10m          built-in
watchdog.tool            15m          built-in (profile standard)
watchdog.tools           none         built-in
watchdog.start           6m           built-in (profile standard)
watchdog.idle            8m           built-in (profile standard, structured agent)
watchdog.evidence_ttl    auto         built-in
watchdog.human           10m          built-in
errors.max               5            built-in
errors.window            5m           built-in
budget.iterations        off          built-in
budget.time              off          built-in
budget.tokens            off          built-in
budget.cost_usd          off          built-in
budget.day.tokens        off          built-in
budget.day.cost_usd      off          built-in
budget.window.five_hour  off          built-in
budget.window.seven_day  off          built-in
limits.max_wait          6h           built-in
limits.overload_retries  10           built-in
checks.timeout           10m          built-in
checks.tampered          fail         built-in
recovery.budget          3            built-in
recovery.template        built in     built-in
recovery.resume          false        built-in
recovery.agents          none         built-in
notify.on                all          built-in
notify.command           none         built-in
notify.webhook           none         built-in
notify.ntfy              none         built-in
notify.slack             none         built-in
notify.discord           none         built-in
notify.telegram.token    none         built-in
notify.telegram.chat     none         built-in
notify.telegram.api      none         built-in
notify.desktop           false        built-in
external.profile         quick        built-in
external.session         15m          built-in (profile quick)
external.idle            5m           built-in (profile quick)
external.errors          5            built-in
"
    );
}

#[test]
fn the_default_iteration_limit_explains_its_origin() {
    let file = with("done_when: [make test, make lint]");
    let loaded = Case::file(&file).load().unwrap();
    assert_eq!(
        origin(&loaded, "max_iterations"),
        ("6 without progress".to_owned(), "built-in (`attempts: progress`)".to_owned())
    );
    assert_eq!(origin(&loaded, "done_when"), ("make test; make lint".to_owned(), "RALPH.md:3:12".to_owned()));
    let loaded =
        Case::file(&file).set(&["done_when=[test -s out]", "recovery.agents=[claude]"]).load().unwrap();
    assert_eq!(origin(&loaded, "done_when"), ("test -s out".to_owned(), "flag --set".to_owned()));
    assert_eq!(origin(&loaded, "recovery.agents"), ("claude".to_owned(), "flag --set".to_owned()));
}

#[test]
fn the_idle_limit_of_standard_depends_on_the_agent() {
    let idle = |settings: &str| {
        let file = with(settings);
        origin(&Case::file(&file).load().unwrap(), "watchdog.idle")
    };
    let built_in = |value: &str, why: &str| (value.to_owned(), format!("built-in (profile {why})"));
    assert_eq!(idle("reader: codex"), built_in("8m", "standard, structured agent"));
    assert_eq!(idle("reader: plain"), built_in("11m", "standard, plain agent"));
    assert_eq!(idle("reader: codex\nprofile: deep"), built_in("15m", "deep"));
    assert_eq!(idle("profile: quick"), built_in("5m", "quick"));
    assert_eq!(idle("watchdog: {idle: 10m}").0, "10m");
}

#[test]
fn the_evidence_ttl_may_be_set_in_a_general_table() {
    let file = with("");
    let key = "agent_idle_activity_evidence_ttl_seconds";
    let text = format!("[general]\n{key} = 45.0\n");
    let case = Case { project: Some(&text), ..Case::file(&file) };
    let loaded = case.load().unwrap();
    assert_eq!(origin(&loaded, "watchdog.evidence_ttl"), ("45s".to_owned(), "dogwatch.toml:2:44".to_owned()));
    // Both names in one file are an error. Between files, the stronger layer wins.
    let both = format!("[general]\n{key} = 0.0\n[watchdog]\nevidence_ttl = \"1m\"\n");
    let case = Case { project: Some(&both), ..Case::file(&file) };
    assert_eq!(case.errors(), ["dogwatch.toml:4:1: `watchdog.evidence_ttl` is set twice"]);
    let case = Case { user: Some("watchdog.evidence_ttl = 9"), project: Some(&text), ..Case::file(&file) };
    assert_eq!(origin(&case.load().unwrap(), "watchdog.evidence_ttl").0, "45s");
    // Other tools may use `general` in a loop file. Only dogwatch reads dogwatch.toml.
    let foreign = with("general: {theme: dark}");
    assert_eq!(
        lines(&Case::file(&foreign).load().unwrap().warnings),
        ["RALPH.md:3:11: unknown key `theme` in `general`"]
    );
    let case = Case { project: Some("[general]\nagent_idle_ttl = 1\n"), ..Case::file(&file) };
    assert_eq!(case.errors(), ["dogwatch.toml:2:1: unknown key `agent_idle_ttl` in `general`"]);
}

#[test]
fn limits_for_external_agents_come_from_dogwatch_toml() {
    use dogwatch_config::{Source, load_external};
    let read = |user: Option<&str>, project: Option<&str>| {
        let user = user.map(|text| Source { name: "~/.config/dogwatch/dogwatch.toml", text });
        let project = project.map(|text| Source { name: "dogwatch.toml", text });
        load_external(user, project)
    };
    let built_in = read(None, None).unwrap();
    assert_eq!((built_in.idle, built_in.errors), (Limit::At(Dur::from_mins(5)), Some(5)));
    let user = "[external]\nidle_timeout_seconds = 600\ntotal_timeout_seconds = 1800\nmax_errors = 10\n";
    let policy = read(Some(user), Some("external.errors = \"off\"\nexternal.profile = \"deep\"")).unwrap();
    assert_eq!(policy.idle, Limit::At(Dur::from_mins(10)));
    assert_eq!(policy.session, Limit::At(Dur::from_mins(30)));
    assert_eq!((policy.errors, policy.tool), (None, Limit::At(Dur::from_hours(1))));
    let bad = read(None, Some("[external]\nidle = 0\n")).unwrap_err();
    assert_eq!(lines(&bad), ["dogwatch.toml:2:8: `external.idle` must be more than zero"]);
    // A run has no external agents, so the key is a warning in a loop file.
    let file = with("external: {idle: 1m}");
    let loaded = Case::file(&file).load().unwrap();
    assert_eq!(
        lines(&loaded.warnings),
        ["RALPH.md:3:18: `external.idle` has no effect here: a run has no external agents"]
    );
    assert_eq!(
        origin(&loaded, "external.session"),
        ("15m".to_owned(), "built-in (profile quick)".to_owned())
    );
}

#[test]
fn a_flag_for_a_text_key_takes_its_value_as_text() {
    for word in ["true", "false", "5", "1.5", "0x10", "1e3", "null", "~", "2026-10-08", ".inf"] {
        let mut case = Case::file("Hi\n");
        case.flags.agent = Some(word.to_owned());
        assert_eq!(case.settings().agent, [word]);
        let set =
            |key: &str| Case::file("---\nagent: echo\n---\nHi\n").set(&[&format!("{key}={word}")]).settings();
        assert_eq!(set("agent").agent, [word]);
        assert_eq!(set("work_when").work_when.as_deref(), Some(word));
        assert_eq!(set("done_when").checks.commands, [word]);
        assert_eq!(set("redact").redact, [word]);
        assert_eq!(set("recovery.agents").recovery.agents[0].agent, [word]);
    }
    // The structure of a value and the other kinds stay.
    let file = with("");
    let case = Case::file(&file).set(&["done_when=[make test, 'true']", "credit=true", "max_iterations=3"]);
    assert_eq!(case.settings().checks.commands, ["make test", "true"]);
    assert!(case.settings().credit);
    assert_eq!(Case::file(&file).set(&["done_when=off"]).settings().checks.commands, [""; 0]);
    assert_eq!(
        Case::file(&file).set(&["done_when=[true]"]).errors(),
        ["command line:1:18: `done_when` must be text"]
    );
}

#[test]
fn a_file_that_gives_another_type_for_texts_is_told_to_quote_it() {
    for line in ["agent: true", "done_when: true", "done_when: [true]", "pin: 5", "setup: true"] {
        let file = format!("---\nagent: echo\n{line}\n---\nHi\n");
        let file = if line.starts_with("agent") { file.replace("agent: echo\n", "") } else { file };
        let found = Case::file(&file).load().unwrap_err();
        assert!(found[0].render(Style::Plain).contains("help: put it in quotes"), "{line}");
    }
}
