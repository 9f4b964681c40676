//! Tests the full text of rendered diagnostics.
use crate::common;

use common::{Bare, Case, lines, rendered};
use dogwatch_config::Style;

#[test]
fn loop_11_a_yaml_error_shows_its_file_line_and_column() {
    assert_eq!(
        rendered("---\nagent: claude\ncommands: [a\n---\nHi"),
        "\
error: invalid YAML in the frontmatter: unclosed bracket '['
 --> RALPH.md:3:11
  |
3 | commands: [a
  |           ^"
    );
    assert_eq!(
        rendered("\u{feff}---\r\nagent: echo a: b\r\n---\r\nHi"),
        "\
error: invalid YAML in the frontmatter: mapping values are not allowed in this context
 --> RALPH.md:2:14
  |
2 | agent: echo a: b
  |              ^
  |
  = help: quote a value that contains `: `; indent all keys of a block equally"
    );
}

#[test]
fn an_invalid_value_is_underlined_and_has_help() {
    assert_eq!(
        rendered("---\nagent: claude\nidle:\n  delay: 6 hourz # soon\n---\nHi"),
        "\
error: `idle.delay` must be a duration
 --> RALPH.md:4:10
  |
4 |   delay: 6 hourz # soon
  |          ^^^^^^^ not a duration
  |
  = help: a number of seconds, or e.g. `200ms`, `30s`, `5m`, `6h`, `1d`, `1.5h`, `1h30m`"
    );
}

#[test]
fn loop_26_an_unknown_key_suggests_a_similar_one() {
    assert_eq!(
        rendered("---\nagent: claude\nwatchdog:\n  sesion: 5m\ncomands: []\n---\nHi"),
        "\
error: unknown key `sesion` in `watchdog`
 --> RALPH.md:4:3
  |
4 |   sesion: 5m
  |   ^^^^^^
  |
  = help: did you mean `session`?

error: unknown key `comands`
 --> RALPH.md:5:1
  |
5 | comands: []
  | ^^^^^^^
  |
  = help: did you mean `commands`?"
    );
}

#[test]
fn a_missing_agent_has_help_for_the_shape_of_the_file() {
    assert_eq!(
        rendered("---\nagent: claude\n\nDo the work."),
        "\
error: `agent` is missing
 --> RALPH.md:1:1
  |
1 | ---
  | ^^^
  |
  = help: the frontmatter is not closed; end it with a `---` line"
    );
    assert_eq!(
        rendered("Do the work."),
        "\
error: `agent` is missing
 --> RALPH.md:1:1
  |
1 | Do the work.
  | ^^^^^^^^^^^^
  |
  = help: start the file with the lines `---`, `agent: claude`, `---`, or pass `--agent claude`"
    );
}

#[test]
fn an_error_in_a_flag_shows_the_flag() {
    let found = Case::file("---\nagent: a\n---\n").set(&["idle.max=6x"]).load().unwrap_err();
    assert_eq!(
        found[0].render(Style::Plain),
        "\
error: `idle.max` must be a duration
 --> command line:1:16
  |
1 | --set idle.max=6x
  |                ^^ not a duration
  |
  = help: a number of seconds, or e.g. `200ms`, `30s`, `5m`, `6h`, `1d`, `1.5h`, `1h30m`"
    );
}

#[test]
fn an_error_about_a_whole_file_shows_no_line() {
    let long = "x".repeat(dogwatch_config::limits::MAX_FILE_BYTES + 1);
    assert_eq!(
        rendered(&long),
        "\
error: the file is too large: 1048577 bytes
--> RALPH.md
 = help: at most 1048576 bytes are allowed"
    );
}

#[test]
fn only_the_styled_form_has_colors() {
    let found = Case::file("---\nagent: 5\n---\n").load().unwrap_err();
    assert!(found[0].render(Style::Styled).contains("\u{1b}["));
    assert!(!found[0].render(Style::Plain).contains('\u{1b}'));
}

#[test]
fn control_characters_are_not_rendered() {
    let nasty = "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\u{8}\r\0\u{200b}\u{7f}";
    for file in [
        format!("---\nagent: [\"{nasty}\"]\n---\n"),
        format!("---\nagent: a\nidle:\n  {nasty}x: 5\n---\n"),
        format!("---\nagent: a\n{nasty}: 5\n---\n"),
        "---\nagent: a\nargs: [\"\\e[2J\\a\\r\\u202e\"]\n---\n".to_owned(),
        "---\nagent: a\nreader: \"\\e[2J\\a\"\n---\n".to_owned(),
        format!("---\n{nasty}---\n"),
    ] {
        let text = rendered(&file);
        let control = |c: &char| (c.is_control() && *c != '\n') || matches!(c, '\u{202e}' | '\u{200b}');
        assert_eq!(text.chars().find(control), None, "{text:?}");
    }
    let found = Case::file("---\nagent: a\n---\n").set(&[&format!("{nasty}=1")]).load().unwrap_err();
    assert!(!found[0].render(Style::Plain).contains('\u{1b}'));
}

#[test]
fn columns_count_characters_even_after_wide_ones() {
    let file = "---\nagent: a\nargs: [日本, é, \t'x y']\n---\nHi";
    let found = Case::file(file).load().unwrap_err();
    let positions: Vec<String> = found.iter().map(|d| d.position()).collect();
    assert_eq!(positions, ["RALPH.md:3:8", "RALPH.md:3:12", "RALPH.md:3:16"]);
}

#[test]
fn loop_17_a_missing_program_is_reported_with_its_place() {
    let faults = Case::file("---\nagent: cloude -p\n---\nHi").faults();
    assert_eq!(faults.len(), 1);
    assert_eq!(
        faults[0].render(Style::Plain),
        "\
error: the agent's program `cloude` was not found on PATH
 --> RALPH.md:2:8
  |
2 | agent: cloude -p
  |        ^^^^^^^^^
  |
  = help: did you mean `claude`?"
    );
}

#[test]
fn missing_programs_and_files_are_reported_with_their_place() {
    let file = "---\nagent: sh\nwake_on: {paths: ['a[']}\nrecovery:\n  template: gone.md\n  agents: [./x, sh, y]\n---\nHi";
    let faults = Case::file(file).faults();
    let shown: Vec<(String, Option<&str>)> =
        faults.iter().map(|fault| (fault.to_string(), fault.label.as_deref())).collect();
    assert_eq!(
        shown,
        [
            ("RALPH.md:6:11: the program `./x` is not an executable file".to_owned(), None),
            ("RALPH.md:6:11: the program `y` was not found on PATH".to_owned(), None),
            ("RALPH.md:3:18: `wake_on.paths` contains an invalid glob".to_owned(), Some("`a[`: unclosed")),
            ("RALPH.md:5:13: cannot read the template `gone.md`".to_owned(), Some("no such file")),
        ]
    );
    let file = "---\nagent: sh\nrecovery: {template: there.md, agents: [sh]}\n---\nHi";
    assert_eq!(Case::file(file).faults(), []);
}

#[test]
fn a_missing_program_is_reported_together_with_all_other_errors() {
    let file = "---\nagent: gone\ndelay: soon\nrecovery: {agents: [y]}\n---\n";
    let found = Case::file(file).load_on(Some(&Bare)).unwrap_err();
    assert_eq!(
        lines(&found),
        [
            "RALPH.md:3:8: `delay` must be a duration",
            "RALPH.md:5:4: the prompt is empty",
            "RALPH.md:2:8: the agent's program `gone` was not found on PATH",
            "RALPH.md:4:20: the program `y` was not found on PATH",
        ]
    );
}

#[test]
fn every_toml_error_is_reported_with_its_place() {
    let case = Case { project: Some("delay = 5s\n[idle\nmax = 1\n"), ..Case::file("---\nagent: a\n---\n") };
    let found = case.load().unwrap_err();
    let shown: Vec<String> = found.iter().map(|d| d.render(Style::Plain)).collect();
    assert_eq!(
        shown.join("\n\n"),
        "\
error: invalid TOML: string values must be quoted, expected literal string
 --> dogwatch.toml:1:9
  |
1 | delay = 5s
  |         ^^

error: invalid TOML: unclosed table, expected `]`
 --> dogwatch.toml:2:6
  |
2 | [idle
  |      ^"
    );
}
