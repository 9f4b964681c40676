//! File operations, control flow and script errors of an actor.

use crate::common;

use common::{Exit, Setup, play};
use std::fs;

#[test]
fn files_are_written_appended_touched_and_removed() {
    let mut harness = play(
        "mkdir a/b; write a/b/x one; write a/b/x two $pid; append a/b/x three; touch a/t; touch gone; remove gone; remove never; mkdir e; remove e",
    );
    assert_eq!(harness.exit(), Exit::Code(0));
    let text = fs::read_to_string(harness.setup.path("a/b/x")).expect("written");
    assert_eq!(text, format!("two {}\nthree\n", harness.pid));
    assert_eq!(fs::read(harness.setup.path("a/t")).expect("touched"), b"");
    assert!(!harness.setup.path("gone").exists() && !harness.setup.path("e").exists());
}

#[test]
fn touch_renews_the_time_and_keeps_the_content() {
    let setup = Setup::new();
    let file = fs::File::create(setup.path("old")).expect("creates");
    file.set_modified(std::time::UNIX_EPOCH).expect("sets");
    let mut harness = setup.play("append old x; touch old");
    assert_eq!(harness.exit(), Exit::Code(0));
    let meta = fs::metadata(harness.setup.path("old")).expect("there");
    assert!(
        meta.modified().expect("known")
            > std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)
    );
    assert_eq!(meta.len(), 2);
}

#[test]
fn a_failing_step_reports_its_position_and_exits_70() {
    let mut harness = play("say a\n  write no/such/dir x\nsay b");
    assert_eq!((harness.stdout().as_str(), harness.exit()), ("a\n", Exit::Code(70)));
    let error = harness.stderr();
    assert!(error.starts_with("error: -e:2:3: No such file"), "{error}");
    let mut harness = play("repeat 2 { say $n }");
    assert_eq!(harness.exit(), Exit::Code(70));
    assert!(harness.stderr().contains("-e:1:12: `$n` has no value yet"));
}

#[test]
fn once_runs_its_block_once_and_then_the_else_block() {
    assert_eq!(
        play("repeat 3 { once mark { say first } else { say again } }; once mark { say never }").stdout(),
        "first\nagain\nagain\n"
    );
}

#[test]
fn a_counter_persists_across_processes_and_on_selects_by_it() {
    let setup = Setup::new();
    let script = "counter n; on 1 { print one }; on 2..3 { print some }; on 4.. { print many } else { print -few }; say ' ' $n";
    let mut out = Vec::new();
    let dir = setup.dir.path().to_owned();
    let full = script.replace("counter n", &format!("counter {}", dir.join("n").display()));
    for _ in 0..5 {
        out.push(play(&full).stdout());
    }
    assert_eq!(out, ["one-few  1\n", "some-few  2\n", "some-few  3\n", "many  4\n", "many  5\n"]);
}

#[test]
fn a_counter_file_without_a_number_is_a_failure() {
    let mut harness = play("write n many; counter n");
    assert_eq!(harness.exit(), Exit::Code(70));
    assert!(harness.stderr().contains("does not contain a number"));
}

#[test]
fn if_prompt_looks_for_the_text_in_the_prompt() {
    let steps = "if-prompt fix the bug { say fixing } else { say what }";
    assert_eq!(Setup::new().prompt("please fix the bug now").play(steps).stdout(), "fixing\n");
    assert_eq!(Setup::new().prompt("please fix").play(steps).stdout(), "what\n");
    assert_eq!(play(steps).stdout(), "what\n");
}

#[test]
fn repeat_runs_n_times_and_forever_runs_until_exit() {
    assert_eq!(play("repeat 3 { print a }; repeat 0 { print b }").stdout(), "aaa");
    let mut harness = play("forever { counter n; on 1..4 { print $n } else { exit 9 } }");
    assert_eq!((harness.stdout().as_str(), harness.exit()), ("1234", Exit::Code(9)));
}

#[test]
fn a_script_file_is_played_with_its_arguments() {
    let setup = Setup::new();
    let path = setup.file("x.actor", "# a script\nsay $arg:1\n\nrepeat 2 {\n  say in\n}\n");
    let mut harness = setup.arg("hello").call(&[path.to_str().expect("text")]);
    assert_eq!((harness.stdout().as_str(), harness.exit()), ("hello\nin\nin\n", Exit::Code(0)));
}

#[test]
fn an_invalid_script_plays_nothing_and_reports_the_position() {
    let setup = Setup::new();
    let path = setup.file("x.actor", "say hello\nrepeat 2 {\n\tsya in\n}\n");
    let mut harness = setup.call(&[path.to_str().expect("text")]);
    assert_eq!((harness.stdout().as_str(), harness.exit()), ("", Exit::Code(2)));
    let shown = format!(
        "error: {}:3:2: unknown step `sya`\n 3 |  sya in\n   |  ^^^\nhelp: did you mean `say`?\n",
        path.display()
    );
    assert_eq!(harness.stderr(), shown);
}

#[test]
fn invalid_usage_exits_2() {
    for args in [&[][..], &["-"], &["-e"], &["--wat"], &["no/such/file"], &["--check"], &["-e", "sya"]] {
        let mut harness = Setup::new().call(args);
        assert_eq!((harness.exit(), harness.stdout().as_str()), (Exit::Code(2), ""), "{args:?}");
        assert!(harness.stderr().starts_with("error: "), "{args:?}");
    }
}

#[test]
fn help_and_docs_list_every_step() {
    let help = Setup::new().call(&["--help"]).stdout();
    // Bars are escaped in Markdown tables.
    let document = include_str!("../../../docs/internals/actor.md").replace("\\|", "|");
    for (name, syntax, _) in dogwatch_actor::script::STEPS {
        let written = format!("{name} {syntax}");
        assert!(help.contains(written.trim()), "{written}");
        assert!(document.contains(&format!("`{}`", written.trim())), "{written}");
    }
    for (name, syntax, _) in dogwatch_actor::script::CLAUDE {
        let written = format!("claude {name} {syntax}");
        assert!(
            help.contains(written.trim()) && document.contains(&format!("`{}`", written.trim())),
            "{written}"
        );
    }
}

#[test]
fn every_example_script_is_valid() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/actors");
    let mut seen = 0;
    for entry in fs::read_dir(examples).expect("the examples are there") {
        let path = entry.expect("readable").path();
        let mut harness = Setup::new().call(&["--check", path.to_str().expect("text")]);
        assert_eq!(harness.exit(), Exit::Code(0), "{}", harness.stderr());
        seen += 1;
    }
    assert!(seen > 0);
}
