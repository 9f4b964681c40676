//! Expands `{{ … }}` placeholders in prompts and commands.
//!
//! Expansion takes one pass: inserted text is not scanned again, so neither a command's output nor an argument
//! can inject a placeholder.

use dogwatch_core::text::shell::quote;
use std::ops::Range;

/// The names in `checks.…`.
const OF_CHECKS: &[&str] = &["failed"];
/// The names in `ralph.…` and `dogwatch.…`.
const OF_LOOP: &[&str] = &["name", "iteration", "max_iterations"];

/// The values of a prompt's placeholders in one iteration.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The results of this iteration's commands.
    pub commands: &'a [CommandOutput],
    /// The arguments as pairs of name and value.
    pub args: &'a [(String, String)],
    /// The node's name.
    pub name: &'a str,
    /// The number of the iteration, from 1.
    pub iteration: u64,
    /// The iteration limit, if there is one.
    pub max_iterations: Option<u64>,
    /// The output of the failed checks of the previous attempt; empty if none failed.
    pub failed_checks: &'a str,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// The name of the command.
    pub name: String,
    /// Its output, as it appears in the prompt.
    pub text: String,
    /// None if the command did not exit by itself.
    pub exit_code: Option<i32>,
}

/// Expands the placeholders of a prompt. An unknown name in a known namespace expands to nothing. All other
/// braces stay unchanged.
pub fn expand(body: &str, values: &Values<'_>) -> String {
    replace(body, |name| Some(values.get(name)))
}

/// Expands the `{{ args.… }}` placeholders of a command, each value as one shell word. Other placeholders stay
/// unchanged.
pub fn expand_run(run: &str, args: &[(String, String)]) -> String {
    replace(run, |name| match name {
        Name::Arg(arg) => Some(lookup(args, arg).map(|value| quote(value)).unwrap_or_default()),
        Name::Command(_) | Name::ExitCode(_) | Name::Checks(_) | Name::Loop(_) => None,
    })
}

/// Returns the arguments used in a text. They can be passed by name even if the file does not declare them.
pub fn args_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    replace(text, |name| {
        if let Name::Arg(arg) = name {
            found.push(arg.to_owned());
        }
        None
    });
    found
}

/// Returns the commands whose output or exit code a text uses, each with the place of its placeholder.
pub fn commands_in(text: &str) -> Vec<(&str, Range<usize>)> {
    let command = |(name, at)| match name {
        Name::Command(name) | Name::ExitCode(name) => Some((name, at)),
        Name::Arg(_) | Name::Checks(_) | Name::Loop(_) => None,
    };
    all_in(text).into_iter().filter_map(command).collect()
}

/// Returns the values of checks and of the loop that a text uses although they do not exist, each with the place of its
/// placeholder and the names that exist.
pub fn unknown_in(text: &str) -> Vec<(&str, Range<usize>, &'static [&'static str])> {
    let unknown = |(name, at)| match name {
        Name::Checks(name) if !OF_CHECKS.contains(&name) => Some((name, at, OF_CHECKS)),
        Name::Loop(name) if !OF_LOOP.contains(&name) => Some((name, at, OF_LOOP)),
        Name::Command(_) | Name::ExitCode(_) | Name::Arg(_) | Name::Checks(_) | Name::Loop(_) => None,
    };
    all_in(text).into_iter().filter_map(unknown).collect()
}

/// Returns the placeholders of a text with their places.
fn all_in(text: &str) -> Vec<(Name<'_>, Range<usize>)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("{{").map(|at| from + at) {
        from = at + 1;
        if let Some((name, len)) = placeholder(&text[at..]) {
            found.push((name, at..at + len));
            from = at + len;
        }
    }
    found
}

/// Returns whether a prompt contains the `{{ checks.failed }}` placeholder.
pub fn asks_for_checks(text: &str) -> bool {
    let mut found = false;
    replace(text, |name| {
        found |= matches!(name, Name::Checks("failed"));
        None
    });
    found
}

impl Values<'_> {
    fn get(&self, name: Name<'_>) -> String {
        let output = |wanted| self.commands.iter().find(|c| c.name == wanted);
        match name {
            Name::Command(name) => output(name).map(|c| c.text.clone()).unwrap_or_default(),
            Name::ExitCode(name) => {
                output(name).and_then(|c| c.exit_code).map(|n| n.to_string()).unwrap_or_default()
            }
            Name::Arg(name) => lookup(self.args, name).cloned().unwrap_or_default(),
            Name::Checks("failed") => self.failed_checks.to_owned(),
            Name::Checks(_) => String::new(),
            Name::Loop("name") => self.name.to_owned(),
            Name::Loop("iteration") => self.iteration.to_string(),
            Name::Loop("max_iterations") => self.max_iterations.map(|n| n.to_string()).unwrap_or_default(),
            Name::Loop(_) => String::new(),
        }
    }
}

fn lookup<'a>(args: &'a [(String, String)], name: &str) -> Option<&'a String> {
    args.iter().find(|(arg, _)| arg == name).map(|(_, value)| value)
}

/// The name between the braces.
#[derive(Clone, Copy)]
enum Name<'a> {
    Command(&'a str),
    ExitCode(&'a str),
    Arg(&'a str),
    Checks(&'a str),
    /// A name in `ralph.…` or `dogwatch.…`.
    Loop(&'a str),
}

/// Copies `text` and replaces every placeholder for which `value` returns a text.
fn replace<'a>(text: &'a str, mut value: impl FnMut(Name<'a>) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match placeholder(rest).and_then(|(name, len)| Some((value(name)?, len))) {
            Some((inserted, len)) => {
                out.push_str(&inserted);
                rest = &rest[len..];
            }
            None => {
                // Skip one brace only: in `{{{ args.x }}}` the placeholder starts at the second.
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Parses a placeholder at the start of `text`. Returns its name and its length in bytes.
fn placeholder(text: &str) -> Option<(Name<'_>, usize)> {
    let inner = text.strip_prefix("{{")?.trim_start();
    let (space, inner) = ["commands", "args", "checks", "ralph", "dogwatch"]
        .iter()
        .find_map(|space| Some((*space, inner.strip_prefix(space)?.strip_prefix('.')?)))?;
    let (name, after) = name(inner)?;
    let (name, after) = match space {
        "commands" => match after.strip_prefix(".exit_code") {
            Some(after) => (Name::ExitCode(name), after),
            None => (Name::Command(name), after),
        },
        "args" => (Name::Arg(name), after),
        "checks" => (Name::Checks(name), after),
        _ => (Name::Loop(name), after),
    };
    let after = after.trim_start().strip_prefix("}}")?;
    Some((name, text.len() - after.len()))
}

fn name(text: &str) -> Option<(&str, &str)> {
    let len = text.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')).count();
    (len > 0).then(|| text.split_at(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Vec<(String, String)> {
        [("dir", "src"), ("empty", ""), ("odd", "it's {{ args.dir }}")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    fn filled(body: &str) -> String {
        let output = |name: &str, text: &str, exit_code| CommandOutput {
            name: name.into(),
            text: text.into(),
            exit_code,
        };
        let commands = [
            output("tests", "3 failed", Some(1)),
            output("log", "{{ args.dir }} {{ commands.tests }}", None),
        ];
        let args = args();
        expand(
            body,
            &Values {
                commands: &commands,
                args: &args,
                name: "fix",
                iteration: 2,
                max_iterations: None,
                failed_checks: "`make test` exited with 2 {{ args.dir }}",
            },
        )
    }

    #[test]
    fn loop_27_placeholders_are_expanded_and_other_braces_are_unchanged() {
        for (body, expected) in [
            ("{{ commands.tests }}", "3 failed"),
            ("{{ args.dir }}/{{ args.empty }}.", "src/."),
            ("{{ ralph.name }} {{ ralph.iteration }}/{{ ralph.max_iterations }}", "fix 2/"),
            ("{{ dogwatch.name }} {{ dogwatch.iteration }}", "fix 2"),
            ("[{{ commands.none }}{{ args.none }}{{ ralph.none }}]", "[]"),
            ("{{ other.x }} {{ x }} { args.dir } {{}} {{", "{{ other.x }} {{ x }} { args.dir } {{}} {{"),
            ("{{ args.a b }} {{ args. }} {{ args.dir }", "{{ args.a b }} {{ args. }} {{ args.dir }"),
            ("{{{ args.dir }}}", "{src}"),
            ("{{{{ args.dir }}", "{{src"),
            ("{{ args.dir }} é {{ args.dir }}", "src é src"),
        ] {
            assert_eq!(filled(body), expected, "{body:?}");
        }
        let values = Values {
            commands: &[],
            args: &[],
            name: "n",
            iteration: 1,
            max_iterations: Some(5),
            failed_checks: "",
        };
        assert_eq!(expand("{{ ralph.max_iterations }}", &values), "5");
    }

    #[test]
    fn loop_28_whitespace_inside_the_braces_is_ignored() {
        for body in ["{{args.dir}}", "{{   args.dir\t}}", "{{\nargs.dir\n}}"] {
            assert_eq!(filled(body), "src", "{body:?}");
        }
    }

    #[test]
    fn loop_29_inserted_text_is_never_scanned_again() {
        assert_eq!(filled("{{ commands.log }}"), "{{ args.dir }} {{ commands.tests }}");
        assert_eq!(filled("{{ args.odd }}"), "it's {{ args.dir }}");
    }

    #[test]
    fn loop_30_commands_expand_only_arguments_each_as_one_word() {
        for (run, expected) in [
            ("ls {{ args.dir }}", "ls src"),
            ("ls {{ args.empty }}", "ls ''"),
            ("echo {{ args.odd }}", r"echo 'it'\''s {{ args.dir }}'"),
            ("echo {{ args.none }}.", "echo ."),
            ("{{ commands.tests }} {{ ralph.name }}", "{{ commands.tests }} {{ ralph.name }}"),
        ] {
            assert_eq!(expand_run(run, &args()), expected, "{run:?}");
        }
    }

    #[test]
    fn loop_35_the_exit_code_of_a_command_is_available() {
        assert_eq!(filled("{{ commands.tests.exit_code }}"), "1");
        assert_eq!(filled("[{{ commands.log.exit_code }}]"), "[]");
        assert_eq!(filled("{{ commands.tests.other }}"), "{{ commands.tests.other }}");
    }

    #[test]
    fn failed_checks_are_inserted_at_their_placeholder() {
        assert_eq!(filled("<{{checks.failed}}>"), "<`make test` exited with 2 {{ args.dir }}>");
        assert_eq!(filled("[{{ checks.passed }}]"), "[]");
        assert!(asks_for_checks("see {{ checks.failed }}"));
        assert!(!asks_for_checks("see {{ checks.passed }} {{ args.failed }} checks.failed"));
        assert_eq!(expand_run("x {{ checks.failed }}", &[]), "x {{ checks.failed }}");
    }

    #[test]
    fn the_arguments_used_in_a_text_are_found() {
        assert_eq!(args_in("{{ args.a }} {{ commands.b }} {{args.c}}"), ["a", "c"]);
    }
}
