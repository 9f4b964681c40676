//! What a user sees, in full.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Case, rendered};
use dogwatch_config::Style;

#[test]
fn loop_11_broken_yaml_shows_file_line_column_and_the_line_itself() {
    assert_eq!(
        rendered("---\nagent: claude\ncommands: [a\n---\nHi"),
        "\
error: the frontmatter is not YAML: unclosed bracket '['
 --> RALPH.md:3:11
  |
3 | commands: [a
  |           ^"
    );
    assert_eq!(
        rendered("\u{feff}---\r\nagent: echo a: b\r\n---\r\nHi"),
        "\
error: the frontmatter is not YAML: mapping values are not allowed in this context
 --> RALPH.md:2:14
  |
2 | agent: echo a: b
  |              ^
  |
  = help: a text with `: ` in it needs quotes; keys of one block are indented alike"
    );
}

#[test]
fn a_wrong_value_is_underlined_with_what_would_be_right() {
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
fn loop_26_an_unknown_key_shows_the_nearest_known_one() {
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

warning: unknown key `comands`
 --> RALPH.md:5:1
  |
5 | comands: []
  | ^^^^^^^ ignored
  |
  = help: did you mean `commands`?"
    );
}

#[test]
fn a_missing_agent_shows_where_it_belongs() {
    assert_eq!(
        rendered("---\nagent: claude\n\nDo the work."),
        "\
error: `agent` is missing
 --> RALPH.md:1:1
  |
1 | ---
  | ^^^
  |
  = help: the frontmatter is never closed; end it with a line of `---`"
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
fn a_file_that_is_too_long_has_no_line_to_show() {
    let long = "x".repeat(dogwatch_config::limits::MAX_FILE_BYTES + 1);
    assert_eq!(
        rendered(&long),
        "\
error: 1048577 bytes are too many for the file
--> RALPH.md
 = help: at most 1048576 are read"
    );
}

#[test]
fn colours_are_only_in_the_styled_form() {
    let found = Case::file("---\nagent: 5\n---\n").load().unwrap_err();
    assert!(found[0].render(Style::Styled).contains("\u{1b}["));
    assert!(!found[0].render(Style::Plain).contains('\u{1b}'));
}

#[test]
fn nothing_a_terminal_would_obey_gets_through() {
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
fn columns_count_characters_also_behind_wide_and_odd_ones() {
    let file = "---\nagent: a\nargs: [日本, é, \t'x y']\n---\n";
    let found = Case::file(file).load().unwrap_err();
    let positions: Vec<String> = found.iter().map(|d| d.position()).collect();
    assert_eq!(positions, ["RALPH.md:3:8", "RALPH.md:3:12", "RALPH.md:3:16"]);
}

#[test]
fn loop_17_a_missing_program_can_be_shown_where_it_is_named() {
    let faults = Case::file("---\nagent: cloude -p\n---\nHi").faults();
    assert_eq!(faults.len(), 1);
    assert_eq!(
        faults[0].render(Style::Plain),
        "\
error: the agent's program `cloude` was not found on PATH
 --> RALPH.md:2:8
  |
2 | agent: cloude -p
  |        ^^^^^^^^^"
    );
}

#[test]
fn what_the_machine_lacks_is_shown_where_it_is_asked_for() {
    let file = "---\nagent: sh\nwake_on: {paths: ['a[']}\nrecovery:\n  template: gone.md\n  agents: [./x, sh, y]\n---\nHi";
    let faults = Case::file(file).faults();
    let shown: Vec<(String, Option<&str>)> =
        faults.iter().map(|fault| (fault.to_string(), fault.label.as_deref())).collect();
    assert_eq!(
        shown,
        [
            ("RALPH.md:6:11: the program `./x` is not an executable file".to_owned(), None),
            ("RALPH.md:6:11: the program `y` was not found on PATH".to_owned(), None),
            ("RALPH.md:3:18: a wake path is no glob".to_owned(), Some("`a[`: unclosed")),
            ("RALPH.md:5:13: the template `gone.md` cannot be read".to_owned(), Some("no such file")),
        ]
    );
    let file = "---\nagent: sh\nrecovery: {template: there.md, agents: [sh]}\n---\nHi";
    assert_eq!(Case::file(file).faults(), []);
}

#[test]
fn broken_toml_shows_every_place() {
    let case = Case { project: Some("delay = 5s\n[idle\nmax = 1\n"), ..Case::file("---\nagent: a\n---\n") };
    let found = case.load().unwrap_err();
    let shown: Vec<String> = found.iter().map(|d| d.render(Style::Plain)).collect();
    assert_eq!(
        shown.join("\n\n"),
        "\
error: this is not TOML: string values must be quoted, expected literal string
 --> dogwatch.toml:1:9
  |
1 | delay = 5s
  |         ^^

error: this is not TOML: unclosed table, expected `]`
 --> dogwatch.toml:2:6
  |
2 | [idle
  |      ^"
    );
}
