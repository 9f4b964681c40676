//! Tests single keys: rows 10–26, 52, 56 and 58 of the loop-file requirements.
use crate::common;

use common::{Case, error, lines, settings, with};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::dur::Dur;

fn secs(s: u64) -> Dur {
    Dur::from_secs(s)
}

#[test]
fn loop_1_to_9_a_file_consists_of_settings_and_a_prompt() {
    let loaded =
        Case::file("\u{feff}---\r\nagent: claude\r\n---\r\n\r\nHello <!-- note -->\r\n").load().unwrap();
    assert_eq!(loaded.body, "Hello");
    assert_eq!(loaded.plan.nodes[0].settings.agent, ["claude"]);
    assert_eq!(loaded.plan.nodes[0].name.as_str(), "fix");
    assert!(loaded.warnings.is_empty());
}

#[test]
fn loop_10_settings_must_be_a_mapping() {
    for yaml in ["- a\n- b", "just words", "5"] {
        let file = format!("---\n{yaml}\n---\nHello");
        let errors = Case::file(&file).errors();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].ends_with("the settings must be a mapping"), "{errors:?}");
    }
}

#[test]
fn loop_15_an_agent_is_required() {
    for (file, error) in [
        ("---\ndelay: 1\n---\nHi", "RALPH.md:1:1: `agent` is missing"),
        ("---\nagent:\n---\nHi", "RALPH.md:1:1: `agent` is missing"),
        ("Hi", "RALPH.md:1:1: `agent` is missing"),
        ("---\nagent: ''\n---\nHi", "RALPH.md:2:8: `agent` is empty"),
        ("---\nagent: '  '\n---\nHi", "RALPH.md:2:8: `agent` is empty"),
        ("---\nagent: 5\n---\nHi", "RALPH.md:2:8: `agent` must be text"),
        ("---\nagent: [claude, -p]\n---\nHi", "RALPH.md:2:8: `agent` must be text"),
        ("---\nagent: true\n---\nHi", "RALPH.md:2:8: `agent` must be text"),
    ] {
        assert_eq!(Case::file(file).errors(), [error], "{file:?}");
    }
    let empty = ["RALPH.md:1:1: the prompt is empty", "RALPH.md:1:1: `agent` is missing"];
    assert_eq!(Case::file("").errors(), empty);
}

#[test]
fn loop_16_an_agent_with_bad_quotes_is_malformed() {
    let file = "---\nagent: claude 'x\n---\nHi";
    assert_eq!(Case::file(file).errors(), ["RALPH.md:2:8: `agent` is malformed: unclosed quote '"]);
    let file = "---\nagent: claude -p 'two words'\n---\nHi";
    assert_eq!(Case::file(file).settings().agent, ["claude", "-p", "two words"]);
}

#[test]
fn loop_18_to_19_commands_are_a_list_or_nothing() {
    for yaml in ["commands:", "commands: null", "commands: []", "delay: 0"] {
        assert!(settings(yaml).commands.is_empty(), "{yaml}");
    }
    for yaml in ["commands: 0", "commands: false", "commands: ls", "commands: {name: a, run: b}"] {
        let message = "3:11: `commands` must be a list of commands, each with `name` and `run`";
        assert_eq!(error(yaml), message, "{yaml}");
    }
}

#[test]
fn loop_20_every_command_needs_a_name_and_a_run() {
    for (item, message) in [
        ("ls", "4:5: each command must be a mapping with `name` and `run`"),
        ("{run: ls}", "4:5: this command has no `name`"),
        ("{name: a}", "4:5: this command has no `run`"),
        ("{name: '', run: ls}", "4:12: `name` is empty"),
        ("{name: a, run: ' '}", "4:20: `run` is empty"),
        ("{name: 5, run: ls}", "4:12: `name` must be text"),
        ("{name: a, run: [ls]}", "4:20: `run` must be text"),
        ("{name: a, run: }", "4:18: `run` must be text"),
    ] {
        assert_eq!(error(&format!("commands:\n  - {item}")), message, "{item}");
    }
}

#[test]
fn loop_21_names_are_plain_and_unique() {
    for name in ["a b", "a.b", "é", "a/b", "{{x}}"] {
        assert_eq!(error(&format!("args: ['{name}']")), format!("3:8: `{name}` is not a valid name"));
        let yaml = format!("commands:\n  - {{name: '{name}', run: ls}}");
        assert_eq!(error(&yaml), format!("4:12: `{name}` is not a valid name"));
    }
    assert_eq!(error("args: [a, b, a]"), "3:14: the name `a` is used twice");
    let yaml = "commands:\n  - {name: a, run: ls}\n  - {name: a, run: pwd}";
    assert_eq!(error(yaml), "5:12: the name `a` is used twice");
    // Commands and arguments have separate namespaces.
    settings("args: [a-B_9]\ncommands:\n  - {name: a-B_9, run: ls}");
}

#[test]
fn loop_22_a_command_timeout_defaults_to_one_minute() {
    let timeout = |value: &str| {
        let yaml = format!("commands:\n  - name: a\n    run: ls\n    {value}");
        settings(&yaml).commands[0].timeout
    };
    for (value, expected) in [
        ("", secs(60)),
        ("timeout:", secs(60)),
        ("timeout: null", secs(60)),
        ("timeout: 5", secs(5)),
        ("timeout: 0.5", Dur::from_millis(500)),
        ("timeout: 2m", secs(120)),
        ("timeout: '5'", secs(5)),
    ] {
        assert_eq!(timeout(value), expected, "{value}");
    }
}

#[test]
fn loop_23_an_invalid_timeout_is_an_error() {
    for (value, message) in [
        ("fast", "6:14: `timeout` must be a duration"),
        ("-10", "6:14: `timeout` must be a duration"),
        ("0", "6:14: `timeout` must be more than zero"),
        ("true", "6:14: `timeout` must be a duration"),
        (".nan", "6:14: `timeout` must be a duration"),
        (".inf", "6:14: `timeout` must be a duration"),
        ("[5]", "6:14: `timeout` must be a duration"),
    ] {
        let yaml = format!("commands:\n  - name: a\n    run: ls\n    timeout: {value}");
        assert_eq!(error(&yaml), message, "{value}");
    }
}

#[test]
fn loop_24_args_are_a_list_of_texts() {
    assert_eq!(error("args: dir"), "3:7: `args` must be a list of texts");
    assert_eq!(error("args: [dir, 5]"), "3:13: `args` must be text");
    assert!(settings("args:").args.is_empty());
}

#[test]
fn loop_25_credit_is_off_by_default() {
    for (yaml, expected) in [
        ("", false),
        ("credit:", false),
        ("credit: true", true),
        ("credit: false", false),
        ("credit: yes", true),
        ("credit: no", false),
    ] {
        assert_eq!(settings(yaml).credit, expected, "{yaml}");
    }
    for value in ["maybe", "1", "[]", "''"] {
        assert_eq!(error(&format!("credit: {value}")), "3:9: `credit` must be true or false");
    }
}

#[test]
fn loop_26_unknown_keys_are_warnings_at_the_top_level_and_errors_in_blocks() {
    let loaded = Case::file(&with("title: x\ntags: [a]\ndescription: y\nsession: 5m")).load().unwrap();
    assert_eq!(
        lines(&loaded.warnings),
        [
            "RALPH.md:3:1: unknown key `title`",
            "RALPH.md:4:1: unknown key `tags`",
            "RALPH.md:5:1: unknown key `description`",
            "RALPH.md:6:1: unknown key `session`"
        ]
    );
    let help: Vec<Option<&str>> = loaded.warnings.iter().map(|d| d.help.as_deref()).collect();
    assert_eq!(help, [None, None, None, Some("did you mean `watchdog.session`?")]);
    for (yaml, message) in [
        ("agnet: x", "3:1: unknown key `agnet`"),
        ("bugdet: {cost_usd: 5}", "3:1: unknown key `bugdet`"),
        ("done_wen: make test", "3:1: unknown key `done_wen`"),
        ("max-iteration: 3", "3:1: unknown key `max-iteration`"),
        ("idle.dealy: 5s", "3:1: unknown key `idle.dealy`"),
        ("idle:\n  dealy: 5s", "4:3: unknown key `dealy` in `idle`"),
        ("watchdog: {sesion: 5m}", "3:12: unknown key `sesion` in `watchdog`"),
        ("budget:\n  agent: x", "4:3: unknown key `agent` in `budget`"),
        ("watchdog: 5m", "3:11: `watchdog` must be a mapping"),
        ("errors: [1]", "3:9: `errors` must be a mapping"),
    ] {
        assert_eq!(error(yaml), message, "{yaml}");
    }
}

#[test]
fn loop_27_a_placeholder_of_an_undeclared_command_is_an_error() {
    let prompt = |body: &str| {
        let text = format!("---\nagent: sh\ncommands: [{{name: tests, run: make}}]\n---\n{body}\n");
        Case::file(&text).load()
    };
    assert!(prompt("{{ commands.tests }} {{ commands.tests.exit_code }} {{ args.nope }}").is_ok());
    assert!(prompt("<!-- {{ commands.nope }} --> Hi").is_ok());
    for (body, at, help) in [
        ("Hi\n{{ commands.test }}", "6:1", "did you mean `tests`?"),
        (
            "{{ commands.tests }} {{commands.nope.exit_code}}",
            "5:22",
            "add it to `commands`: `- {name: nope, run: …}`",
        ),
    ] {
        let errors = prompt(body).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let line = &lines(&errors)[0];
        assert!(line.starts_with(&format!("RALPH.md:{at}: the prompt uses the command `")), "{line}");
        assert_eq!(errors[0].help.as_deref(), Some(help));
    }
}

#[test]
fn a_placeholder_that_does_not_exist_is_a_warning_with_its_place() {
    let body = "{{ checks.faild }} {{ checks.faild }}\n{{ dogwatch.nam }} {{ ralph.owner }} {{ checks.failed }} {{ args.any }}";
    let loaded = Case::file(&format!("---\nagent: sh\n---\n{body}\n")).load().unwrap();
    let uses =
        |name: &str| format!("the prompt uses `{name}`, which does not exist; the placeholder stays empty");
    assert_eq!(
        lines(&loaded.warnings),
        [
            format!("RALPH.md:4:20: {}", uses("faild")),
            format!("RALPH.md:5:1: {}", uses("nam")),
            format!("RALPH.md:5:20: {}", uses("owner")),
        ]
    );
    let help: Vec<_> = loaded.warnings.iter().filter_map(|warning| warning.help.as_deref()).collect();
    let known = "there is `name`, `iteration`, `max_iterations`";
    assert_eq!(help, ["did you mean `failed`?", "did you mean `name`?", known]);
}

#[test]
fn an_empty_prompt_is_an_error() {
    for body in ["", "\n\n", "<!-- later -->\n"] {
        let errors = Case::file(&format!("---\nagent: sh\n---\n{body}")).load().unwrap_err();
        assert!(lines(&errors)[0].ends_with("the prompt is empty"), "{errors:?}");
    }
    for file in ["", " \n"] {
        let errors = Case::file(file).set(&["agent=sh"]).load().unwrap_err();
        assert!(lines(&errors)[0].ends_with("the prompt is empty"), "{errors:?}");
    }
}

#[test]
fn loop_26_unknown_fields_of_a_command_are_warnings() {
    let loaded = Case::file(&with("commands:\n  - {name: a, run: ls, tiemout: 5}")).load().unwrap();
    assert_eq!(
        lines(&loaded.warnings),
        ["RALPH.md:4:24: unknown field `tiemout` in a command; it is ignored"]
    );
    assert_eq!(loaded.warnings[0].help.as_deref(), Some("did you mean `timeout`?"));
}

#[test]
fn loop_32_a_command_can_use_a_shell() {
    let commands =
        settings("commands:\n  - {name: a, run: 'ls | wc', shell: true}\n  - {name: b, run: ls}").commands;
    assert_eq!((commands[0].shell, commands[1].shell), (true, false));
    assert_eq!(error("commands:\n  - {name: a, run: ls, shell: sh}"), "4:31: `shell` must be true or false");
}

#[test]
fn loop_37_bad_quotes_in_a_command_are_not_an_error_at_load_time() {
    assert_eq!(settings("commands:\n  - {name: a, run: \"ls 'x\"}").commands[0].run, "ls 'x");
}

#[test]
fn loop_52_the_reader_comes_from_its_key_or_from_the_agent() {
    assert_eq!(Case::file("---\nagent: claude\n---\nHi").settings().reader, ReaderName::Claude);
    assert_eq!(settings("reader: claude").reader, ReaderName::Claude);
    assert_eq!(settings("").reader, ReaderName::Plain);
    assert_eq!(
        error("reader: cloude"),
        "3:9: `reader` must be one of `plain`, `claude`, `codex`, `opencode` or `gemini`"
    );
}

#[test]
fn loop_56_arguments_reach_the_settings() {
    let file = with("args: [dir, focus]\ncommands:\n  - {name: a, run: 'ls {{ args.extra }}'}");
    let mut case = Case::file(&file);
    case.args = &["--focus=x y", "src", "--extra", ""];
    let pairs: Vec<(String, String)> =
        [("dir", "src"), ("focus", "x y"), ("extra", "")].map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
    assert_eq!(case.settings().args, pairs);
    case.args = &["--nonsense", "1"];
    assert_eq!(case.errors(), ["command line:1:4: the loop has no argument `nonsense`"]);
}

#[test]
fn loop_58_durations_are_accepted_in_every_form() {
    for (value, ms) in [
        ("5", 5_000),
        ("0.25", 250),
        ("200ms", 200),
        ("30s", 30_000),
        ("5m", 300_000),
        ("6h", 21_600_000),
        ("1d", 86_400_000),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("0", 0),
    ] {
        assert_eq!(settings(&format!("delay: {value}")).delay, Dur::from_millis(ms), "{value}");
    }
    for value in ["''", "abc", "30x", "-5s", "-5", ".nan", "true", "[5]", "{a: 5}", "4000d"] {
        assert_eq!(error(&format!("delay: {value}")), "3:8: `delay` must be a duration", "{value}");
    }
    for key in ["delay", "max_delay", "max"] {
        let message = format!("3:{}: `idle.{key}` must be more than zero", key.len() + 11);
        assert_eq!(error(&format!("idle: {{ {key}: 0s }}")), message);
    }
}

#[test]
fn max_parallel_in_a_loop_is_a_warning() {
    let file = with("max_parallel: 4");
    let loaded = Case::file(&file).load().unwrap();
    assert_eq!(
        lines(&loaded.warnings),
        ["RALPH.md:3:15: `max_parallel` has no effect in a loop: a loop has one node"]
    );
    assert!(loaded.explain.iter().all(|setting| setting.key != "max_parallel"));
    let file = with("");
    // `dogwatch.toml` also applies to graphs.
    let loaded = Case { project: Some("max_parallel = 4"), ..Case::file(&file) }.load().unwrap();
    assert_eq!(lines(&loaded.warnings), [""; 0]);
    assert!(error("max_parallel: 0").ends_with("must be a whole number from 1 to 4294967295"));
}
