//! Loop arguments without `--`: `dogwatch run loop --focus api -n 3` means `dogwatch run loop -n 3 -- --focus api`.
//!
//! An option that the command does not have is an argument of the loop, with the next word as its value. A name that
//! looks like a misspelled option stays where it is, so that the command line parser reports it.

use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

/// The commands that pass arguments to a loop.
const COMMANDS: [&str; 2] = ["run", "check"];

/// Returns the words with the loop's arguments after `--`. Words that need no change are returned as they are.
pub fn regroup(words: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let Some(at) = words.iter().skip(1).position(|word| COMMANDS.iter().any(|name| word == name)) else {
        return words;
    };
    // Only a global option may come before the command.
    let (before, after) = words.split_at(at + 2);
    let command = before.last().and_then(|name| program.find_subcommand(name));
    let Some(command) = command.filter(|_| before.len() == 2 || is_global(before)) else { return words };
    let own: Vec<&Arg> = command.get_arguments().chain(program.get_arguments()).collect();
    let mut sorted = Sorted::default();
    let mut rest = after.iter();
    while let Some(word) = rest.next() {
        let text = word.to_str().unwrap_or_default();
        if word == "--" {
            sorted.loop_args.extend(rest.by_ref().cloned());
        } else if let Some(long) = text.strip_prefix("--") {
            sorted.long(long, word, &own, &mut rest);
        } else if let Some(short) = text.strip_prefix('-').filter(|short| !short.is_empty()) {
            sorted.kept.push(word.clone());
            if short_takes_next(short, &own) {
                sorted.kept.extend(rest.next().cloned());
            }
        } else if sorted.has_path {
            sorted.loop_args.push(word.clone());
        } else {
            sorted.has_path = true;
            sorted.kept.push(word.clone());
        }
    }
    if sorted.typo {
        return words;
    }
    let dash = (!sorted.loop_args.is_empty()).then(|| OsString::from("--"));
    before.iter().cloned().chain(sorted.kept).chain(dash).chain(sorted.loop_args).collect()
}

/// Returns whether the words before the command are only `--color WHEN`.
fn is_global(before: &[OsString]) -> bool {
    before[1..before.len() - 1].iter().enumerate().all(|(i, word)| {
        word.to_str().is_some_and(|text| text.starts_with("--color")) || (i > 0 && before[i] == "--color")
    })
}

#[derive(Default)]
struct Sorted {
    kept: Vec<OsString>,
    loop_args: Vec<OsString>,
    has_path: bool,
    /// Whether an unknown option looks like a misspelled one.
    typo: bool,
}

impl Sorted {
    fn long<'w>(
        &mut self,
        long: &str,
        word: &OsString,
        own: &[&Arg],
        rest: &mut impl Iterator<Item = &'w OsString>,
    ) {
        let (name, has_value) = match long.split_once('=') {
            Some((name, _)) => (name, true),
            None => (long, false),
        };
        let known = || own.iter().filter_map(|arg| arg.get_long()).chain(["help", "version"]);
        if known().any(|known| known == name) {
            self.kept.push(word.clone());
            let takes = own.iter().any(|arg| arg.get_long() == Some(name) && takes_value(arg));
            if takes && !has_value {
                self.kept.extend(rest.next().cloned());
            }
            return;
        }
        self.typo |= dogwatch_config::typo_of(name, known()).is_some();
        self.loop_args.push(word.clone());
        if !has_value {
            self.loop_args.extend(rest.next().cloned());
        }
    }
}

/// Returns whether the next word is the value of the last option in a group such as `-sn`.
fn short_takes_next(group: &str, own: &[&Arg]) -> bool {
    let mut letters = group.chars();
    while let Some(letter) = letters.next() {
        if own.iter().any(|arg| arg.get_short() == Some(letter) && takes_value(arg)) {
            return letters.as_str().is_empty();
        }
    }
    false
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = regroup(words, &crate::command_line());
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn arguments_of_the_loop_move_behind_two_dashes() {
        for (given, expected) in [
            ("d run loop --focus api -n 3", "d run loop -n 3 -- --focus api"),
            ("d run loop --focus=api --json", "d run loop --json -- --focus=api"),
            ("d run loop api web -s", "d run loop -s -- api web"),
            ("d run -sn 3 loop x", "d run -sn 3 loop -- x"),
            ("d run -n3 loop --a --b", "d run -n3 loop -- --a --b"),
            ("d run -d 5 -t 60 -s -l logs loop", "d run -d 5 -t 60 -s -l logs loop"),
            ("d run loop --set a=b --x y", "d run loop --set a=b -- --x y"),
            ("d run loop -- --json x", "d run loop -- --json x"),
            ("d run loop x -- --json", "d run loop -- x --json"),
            ("d --color never run loop --x y", "d --color never run loop -- --x y"),
            ("d check loop --x y --explain", "d check loop --explain -- --x y"),
            ("d run loop --dealy 5", "d run loop --dealy 5"),
            ("d run --help", "d run --help"),
            ("d run loop -x", "d run loop -x"),
            ("d exec -- run a --b", "d exec -- run a --b"),
            ("d tell run --x", "d tell run --x"),
            ("d", "d"),
        ] {
            assert_eq!(sorted(given), expected, "{given}");
        }
    }
}
