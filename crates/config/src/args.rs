//! Loop arguments after `--` on the command line: `--name value`, `--name=value`, and positional arguments.

use crate::commands::is_valid_name;
use crate::diagnostic::{Diagnostics, Source};
use crate::document::Span;
use crate::flags::COMMAND_LINE;
use crate::keys;
use crate::nearest::nearest;
use crate::parsed::listed;
use dogwatch_core::text::shell::quote;

/// The arguments that a loop file accepts.
pub struct Known<'a> {
    /// The names under `args:`. Positional arguments are assigned to these in order.
    pub declared: &'a [String],
    /// The names used in placeholders. They can be passed by name without being declared.
    pub referenced: &'a [String],
}

/// Returns a value for every accepted argument; it is empty if the argument was not passed.
pub fn assign(given: &[String], known: &Known<'_>, diagnostics: &mut Diagnostics) -> Vec<(String, String)> {
    let line = JoinedArgs::of(given);
    let mut values: Vec<(String, Option<String>)> =
        known.declared.iter().map(|name| (name.clone(), None)).collect();
    for name in known.referenced.iter().filter(|name| !known.declared.contains(name)) {
        if !values.iter().any(|(earlier, _)| earlier == name) {
            values.push((name.clone(), None));
        }
    }
    let mut options_ended = false;
    let mut at = 0;
    while let Some(token) = given.get(at) {
        let span = line.spans[at].clone();
        at += 1;
        if !options_ended && token == "--" {
            options_ended = true;
        } else if let Some(option) = token.strip_prefix("--").filter(|_| !options_ended) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => {
                    at += 1;
                    (option, given.get(at - 1).map(String::as_str))
                }
            };
            named(name, value, &mut values, &line, span, diagnostics);
        } else {
            positional(token, known, &mut values, &line, span, diagnostics);
        }
    }
    values.into_iter().map(|(name, value)| (name, value.unwrap_or_default())).collect()
}

fn named(
    name: &str,
    value: Option<&str>,
    values: &mut [(String, Option<String>)],
    line: &JoinedArgs,
    span: Span,
    diagnostics: &mut Diagnostics,
) {
    if let Some(slot) = values.iter_mut().find(|(known, _)| known == name) {
        match value {
            Some(value) => slot.1 = Some(value.to_owned()),
            None => {
                diagnostics.error(line.source(), span, format!("`--{name}` needs a value"));
            }
        }
        return;
    }
    let key = setting_of(name);
    let near = nearest(name, values.iter().map(|(known, _)| known.as_str())).map(str::to_owned);
    let diagnostic = diagnostics.error(line.source(), span, format!("the loop has no argument `{name}`"));
    match (near, key) {
        (_, Some(key)) => diagnostic.help(setting_help(key, value)),
        (Some(near), None) => diagnostic.help(format!("did you mean `--{near}`?")),
        (None, None) if is_valid_name(name) => {
            diagnostic.help(format!("declare it in the loop file: `args: [{name}]`"))
        }
        (None, None) => diagnostic,
    };
}

/// Returns the setting that an unknown option names, as in `--max-iterations`.
fn setting_of(option: &str) -> Option<&'static str> {
    keys::find(&option.replace('-', "_")).map(|key| key.path)
}

fn setting_help(key: &str, value: Option<&str>) -> String {
    let value = value.filter(|value| !value.trim().is_empty());
    let set = format!("--set {}", quote(&format!("{key}={}", value.unwrap_or("VALUE"))));
    match key {
        "max_iterations" => format!("use `-n {}` or `{set}`", quote(value.unwrap_or("N"))),
        _ => format!("use `{set}`"),
    }
}

fn positional(
    token: &str,
    known: &Known<'_>,
    values: &mut [(String, Option<String>)],
    line: &JoinedArgs,
    span: Span,
    diagnostics: &mut Diagnostics,
) {
    let declared = values.iter_mut().take(known.declared.len());
    if let Some(slot) = { declared }.find(|(_, value)| value.is_none()) {
        slot.1 = Some(token.to_owned());
        return;
    }
    let names: Vec<&str> = known.declared.iter().map(String::as_str).collect();
    if names.is_empty() {
        diagnostics
            .error(line.source(), span, format!("the loop declares no arguments, but got `{token}`"))
            .help("declare them in the loop file: `args: [name]`, or pass `--name value`");
    } else {
        diagnostics
            .error(line.source(), span, "too many arguments")
            .help(format!("the loop takes {}", listed(&names).replace(" or ", " and ")));
    }
}

/// The arguments joined into one line, so that errors can point into it.
struct JoinedArgs {
    text: String,
    spans: Vec<Span>,
}

impl JoinedArgs {
    fn of(given: &[String]) -> JoinedArgs {
        let mut line = JoinedArgs { text: "--".to_owned(), spans: Vec::new() };
        for token in given {
            let start = line.text.len() + 1;
            line.text.push(' ');
            line.text.push_str(&quote(token));
            line.spans.push(start..line.text.len());
        }
        line
    }

    fn source(&self) -> Source<'_> {
        Source { name: COMMAND_LINE, text: &self.text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Style;

    fn given(tokens: &[&str], declared: &[&str]) -> Result<Vec<(String, String)>, Vec<String>> {
        let own = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        let mut diagnostics = Diagnostics::default();
        let (declared, referenced) = (own(declared), own(&["referenced"]));
        let values =
            assign(&own(tokens), &Known { declared: &declared, referenced: &referenced }, &mut diagnostics);
        let found = diagnostics.into_vec();
        if found.is_empty() { Ok(values) } else { Err(found.iter().map(|d| d.to_string()).collect()) }
    }

    fn values(tokens: &[&str]) -> [String; 3] {
        let values = given(tokens, &["a", "b"]).expect("all arguments are accepted");
        assert_eq!(
            values.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["a", "b", "referenced"]
        );
        [0, 1, 2].map(|i: usize| values[i].1.clone())
    }

    #[test]
    fn loop_56_arguments_are_passed_by_name_or_in_order() {
        for (tokens, expected) in [
            (&[][..], ["", "", ""]),
            (&["--a", "1"], ["1", "", ""]),
            (&["--a=1=2"], ["1=2", "", ""]),
            (&["--a="], ["", "", ""]),
            (&["--a", ""], ["", "", ""]),
            (&["1", "2"], ["1", "2", ""]),
            (&["--a", "1", "2"], ["1", "2", ""]),
            (&["2", "--a", "1"], ["1", "", ""]),
            (&["--a", "", "2"], ["", "2", ""]),
            (&["-x", "y"], ["-x", "y", ""]),
            (&["--a", "--b", "2"], ["--b", "2", ""]),
            (&["--referenced", "x"], ["", "", "x"]),
            (&["--a", "1", "--a", "2"], ["2", "", ""]),
        ] {
            assert_eq!(values(tokens), expected, "{tokens:?}");
        }
    }

    #[test]
    fn loop_56_too_many_and_undeclared_arguments_are_errors() {
        for (tokens, message) in [
            (&["1", "2", "3"][..], "command line:1:8: too many arguments"),
            (&["--a", "1", "2", "3"], "command line:1:12: too many arguments"),
            (&["--c", "1"], "command line:1:4: the loop has no argument `c`"),
            (&["--a"], "command line:1:4: `--a` needs a value"),
            (&["--=1"], "command line:1:4: the loop has no argument ``"),
        ] {
            assert_eq!(given(tokens, &["a", "b"]), Err(vec![message.to_owned()]), "{tokens:?}");
        }
        let message = "command line:1:4: the loop declares no arguments, but got `x`";
        assert_eq!(given(&["x"], &[]), Err(vec![message.to_owned()]));
    }

    #[test]
    fn an_unknown_option_that_names_a_setting_gets_the_flag_for_it() {
        for (tokens, help) in [
            (&["--max-iterations", "3"][..], "use `-n 3` or `--set max_iterations=3`"),
            (&["--max_iterations=3"], "use `-n 3` or `--set max_iterations=3`"),
            (&["--max-iterations"], "use `-n N` or `--set max_iterations=VALUE`"),
            (&["--done-when", "make test"], "use `--set 'done_when=make test'`"),
            (&["--watchdog.session", "1h"], "use `--set watchdog.session=1h`"),
            (&["--topic", "x"], "declare it in the loop file: `args: [topic]`"),
        ] {
            let mut diagnostics = Diagnostics::default();
            let own: Vec<String> = tokens.iter().map(|token| token.to_string()).collect();
            assign(&own, &Known { declared: &[], referenced: &[] }, &mut diagnostics);
            let shown = diagnostics.into_vec()[0].render(Style::Plain);
            assert!(shown.contains(help), "{shown}");
        }
    }

    #[test]
    fn loop_57_a_second_double_dash_ends_options() {
        assert_eq!(values(&["--", "--a", "--"]), ["--a", "--", ""]);
        assert_eq!(values(&["--b", "--", "--", "--b"]), ["--b", "--", ""]);
        assert_eq!(values(&["1", "--", "--b"]), ["1", "--b", ""]);
    }
}
