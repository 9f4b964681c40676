//! Tests every limit below, at and above its value, and that no file causes a panic.
use crate::common;

use common::{Case, with};
use dogwatch_config::Style;
use dogwatch_config::limits::*;
use dogwatch_config::placeholders::{Values, expand, expand_run};
use dogwatch_config::{frontmatter, words};
use dogwatch_core::text::clip;

/// Loads a file below, at and above a limit. Only the third one has an error.
fn at_limit(limit: usize, file: impl Fn(usize) -> String) {
    for n in [limit - 1, limit] {
        assert_eq!(Case::file(&file(n)).errors(), Vec::<String>::new(), "{n}");
    }
    assert_eq!(Case::file(&file(limit + 1)).errors().len(), 1);
}

#[test]
fn the_size_of_a_file_is_limited() {
    at_limit(MAX_FILE_BYTES, |n| {
        let head = "---\nagent: a\n---\n";
        format!("{head}{}", "x".repeat(n - head.len()))
    });
}

#[test]
fn the_size_of_the_settings_of_a_loop_file_is_limited() {
    at_limit(MAX_SETTINGS_BYTES, |n| {
        let head = "agent: a\n#";
        format!("---\n{head}{}\n---\nHi", "x".repeat(n - head.len() - 1))
    });
}

#[test]
fn a_very_long_line_is_rendered_in_part() {
    let file = format!("---\nagent: [{}\n---\nHi", "a, ".repeat(MAX_SETTINGS_BYTES / 3 - 10));
    let found = Case::file(&file).load().unwrap_err();
    assert!(found[0].render(Style::Plain).len() < 1_000);
}

#[test]
fn the_size_of_dogwatch_toml_is_limited() {
    let file = with("");
    for (n, errors) in [(MAX_SETTINGS_BYTES, 0), (MAX_SETTINGS_BYTES + 1, 1)] {
        let toml = format!("#{}", "x".repeat(n - 1));
        assert_eq!(Case { user: Some(&toml), ..Case::file(&file) }.errors().len(), errors);
    }
}

#[test]
fn the_number_of_commands_and_arguments_is_limited() {
    at_limit(MAX_COMMANDS, |n| {
        let items: String = (0..n).map(|i| format!("  - {{name: c{i}, run: ls}}\n")).collect();
        with(&format!("commands:\n{items}"))
    });
    at_limit(MAX_ARGS, |n| {
        with(&format!("args: [{}]", (0..n).map(|i| format!("a{i}")).collect::<Vec<_>>().join(", ")))
    });
    at_limit(MAX_NAME_BYTES, |n| with(&format!("args: [{}]", "a".repeat(n))));
}

#[test]
fn the_number_of_items_in_lists_and_maps_is_limited() {
    at_limit(MAX_TEXTS, |n| with(&format!("wake_on: {{paths: [{}]}}", vec!["a"; n].join(", "))));
    at_limit(MAX_STOP_REASONS, |n| {
        let reasons: Vec<String> = (0..n).map(|i| format!("r{i}: 1")).collect();
        with(&format!("idle: {{stop_after: {{{}}}}}", reasons.join(", ")))
    });
}

#[test]
fn the_number_and_length_of_checks_pins_and_agents_are_limited() {
    let listed = |n: usize| vec!["a"; n].join(", ");
    at_limit(MAX_CHECKS, |n| with(&format!("done_when: [{}]", listed(n))));
    at_limit(MAX_CHECK_BYTES, |n| with(&format!("done_when: {}", "a".repeat(n))));
    at_limit(MAX_PINS, |n| with(&format!("pin: [{}]", listed(n))));
    at_limit(MAX_GLOB_BYTES, |n| with(&format!("pin: [{}]", "a".repeat(n))));
    at_limit(MAX_AGENTS, |n| with(&format!("recovery: {{agents: [{}]}}", listed(n))));
    at_limit(MAX_AGENT_BYTES, |n| with(&format!("recovery: {{agents: [{}]}}", "a".repeat(n))));
    at_limit(MAX_AGENT_BYTES, |n| format!("---\nagent: {}\n---\nHi", "a".repeat(n)));
    at_limit(MAX_RECHECKS as usize, |n| with(&format!("recheck: {n}")));
    at_limit(MAX_RECOVERIES as usize, |n| with(&format!("recovery: {{budget: {n}}}")));
}

#[test]
fn the_number_of_set_flags_is_limited() {
    let file = with("");
    for (n, errors) in [(MAX_SET_FLAGS, 0), (MAX_SET_FLAGS + 1, 1)] {
        let set = vec!["delay=1"; n];
        assert_eq!(Case::file(&file).set(&set).errors().len(), errors);
    }
}

#[test]
fn the_number_of_errors_and_of_warnings_is_limited() {
    let keys = |n: usize| (0..n).map(|i| format!("unknown{i}: 1\n")).collect::<String>();
    let loaded = Case::file(&with(&keys(MAX_DIAGNOSTICS + 1))).load().unwrap();
    assert_eq!(loaded.warnings.len(), MAX_DIAGNOSTICS + 1);
    assert_eq!(loaded.warnings[MAX_DIAGNOSTICS].to_string(), "RALPH.md: 1 more diagnostic not shown");
    let toml = keys(MAX_DIAGNOSTICS + 1).replace(':', " =");
    let file = with(&format!("{}credit: 5", keys(MAX_DIAGNOSTICS + 1)));
    let found = Case { project: Some(&toml), ..Case::file(&file) }.load().unwrap_err();
    assert_eq!(found.len(), 2 * MAX_DIAGNOSTICS + 1);
    let found = Case { project: Some(&toml), ..Case::file(&file) }.load_on(Some(&common::Bare)).unwrap_err();
    assert_eq!(found.len(), 2 * MAX_DIAGNOSTICS + 1);
    let last = &found[2 * MAX_DIAGNOSTICS].message;
    assert_eq!(last, "4 more diagnostics not shown", "one of them is the missing agent");
}

const SEED: &str = "\u{feff}---\r\nagent: 'claude -p' # é\nreader: claude\ncommands:\n  - name: tests\n    run: ./t {{ args.dir }}\n    timeout: 2m\n  - {name: b, run: \"x\\ty\", shell: true}\nargs: [dir, &a focus]\nidle: &i\n  delay: 30s\n  stop_after: {no_pending_tasks: 8}\nwatchdog: {session: off, idle: 5m}\nx: *a\nlit: |\n  a\n  b\n---\n<!-- c -->\n```\n<!-- k -->\n```\n{{ commands.tests }} {{args.dir}} <!-- ralph:state idle -->\n";
const TOML_SEED: &str = "delay = 1.5 # é\nargs = ['a', \"b\\n\"]\n[idle]\nmax = \"6h\"\n[[commands]]\nname = '''x'''\nrun = \"y\"\n[watchdog]\nsession = 1979-05-27\n";
const INSERTS: [&str; 22] = [
    "---\n",
    "\0",
    "\u{1b}[2J",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "&a ",
    "*a",
    "!!int ",
    "\"",
    "'",
    "{{ args.x }}",
    "<!--",
    "-->",
    "```",
    "\r",
    "日",
    "? ",
];

/// Calls every function that takes the text of a file.
fn exercise(text: &str, toml: &str) {
    let case = Case { user: Some(toml), args: &["--dir", "x", "y"], ..Case::file(text) };
    let found = match case.load() {
        Ok(loaded) => loaded.warnings,
        Err(found) => found,
    };
    for diagnostic in &found {
        let shown = diagnostic.render(Style::Plain);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        diagnostic.render(Style::Styled);
    }
    let body = frontmatter::body(text);
    let _ = frontmatter::settings(text);
    let args = [("dir".to_owned(), text.to_owned())];
    let values = Values {
        commands: &[],
        args: &args,
        name: "n",
        iteration: 1,
        max_iterations: None,
        failed_checks: text,
    };
    expand(&body, &values);
    let _ = words::words(&expand_run(text, &args));
    let mut set = Case::file("---\nagent: a\n---\n");
    set.flags.set = vec![text.to_owned(), format!("delay={text}"), format!("idle={text}")];
    let _ = set.load();
}

#[test]
fn a_truncated_file_never_causes_a_panic() {
    for at in (0..SEED.len()).filter(|at| SEED.is_char_boundary(*at)) {
        exercise(&SEED[..at], TOML_SEED.get(..at).unwrap_or(TOML_SEED));
        // Close the frontmatter, so that the truncated part is parsed.
        exercise(&format!("{}\n---\nx", &SEED[..at]), "");
    }
}

#[test]
fn a_randomly_modified_file_never_causes_a_panic() {
    // A fixed seed: every run of the test uses the same files.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for _ in 0..1_500 {
        let (mut text, mut toml) = (SEED.to_owned(), TOML_SEED.to_owned());
        for _ in 0..=next(4) {
            for target in [&mut text, &mut toml] {
                let at = clip(target, next(target.len())).len();
                match next(3) {
                    0 => drop(target.remove(at)),
                    _ => target.insert_str(at, INSERTS[next(INSERTS.len())]),
                }
            }
        }
        exercise(&text, &toml);
    }
}
