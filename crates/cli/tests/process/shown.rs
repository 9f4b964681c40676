//! What users see: the output of the main commands and errors, compared with `shown.txt`. `docs/reference/cli.md`, which
//! another test generates, holds the help of every command.

use crate::kit::{GRACES, Project};
use std::fmt::Write as _;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/shown.txt");

/// Runs commands and collects what they print, without run ids, times, durations and paths.
struct Session {
    project: Project,
    text: String,
}

impl Session {
    fn show(&mut self, args: &[&str]) {
        self.show_part(args, |_| true);
    }

    /// Shows only the lines that the filter selects.
    fn show_part(&mut self, args: &[&str], mut wanted: impl FnMut(&str) -> bool) {
        let done = self.project.call(args);
        let shown: Vec<String> = args.iter().map(|arg| self.masked(arg)).collect();
        let _ = writeln!(self.text, "$ dogwatch {}", shown.join(" "));
        for line in done.text().lines().chain(done.stderr.lines()).filter(|line| wanted(line)) {
            // This notice may come before or after the first iteration.
            if line.contains("no snapshots will be taken") {
                continue;
            }
            // The columns of a table depend on the length of the paths in it.
            let words: Vec<&str> = line.split("  ").filter(|part| !part.is_empty()).map(str::trim).collect();
            let line = if line.contains(env!("CARGO_BIN_EXE_dogwatch")) || wide(line) {
                words.join("  ")
            } else {
                line.to_owned()
            };
            self.text.push_str(&format!("{}\n", self.masked(&line).trim_end()));
        }
        let code = done.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        let _ = writeln!(self.text, "[exit code {code}]\n");
    }

    /// Replaces what differs from run to run.
    fn masked(&self, line: &str) -> String {
        let line = line
            .rsplit_once(", head ")
            .map_or_else(|| line.to_owned(), |(rest, _)| rest.to_owned() + ", head HASH");
        let mut line = line.replace(env!("CARGO_BIN_EXE_dogwatch"), "BIN");
        line = line.replace(&self.project.path("").display().to_string(), "DIR/");
        line = line.replace(self.project.path("").display().to_string().trim_end_matches('/'), "DIR");
        let runs = std::fs::read_dir(self.project.path(".dogwatch/runs")).into_iter().flatten().flatten();
        for id in runs.map(|run| run.file_name().to_string_lossy().into_owned()) {
            let tail = id.rsplit('-').next().unwrap_or(&id);
            line = line.replace(&id, "RUN").replace(tail, "k3f9");
        }
        figures(&line)
    }
}

/// Returns whether a line has a gap that only a long path in another line explains.
fn wide(line: &str) -> bool {
    line.contains(&" ".repeat(20))
}

/// Replaces times of day, dates and durations by fixed ones.
fn figures(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:-T".contains(c))).unwrap_or(rest.len());
        let (token, after) = rest.split_at(end);
        let is_time = matches!(token.len(), 5 | 8) && token.split(':').all(|part| part.len() == 2);
        let is_date = token.matches('-').count() == 2 && token.len() == 10;
        match token {
            _ if token.contains('.') && after.starts_with('s') => out.push_str("0.0"),
            _ if is_date => out.push_str("2026-11-15"),
            _ if is_time => out.push_str(&"20:15:33"[..token.len().min(8)]),
            _ if token.len() == 5 && token.matches('-').count() == 1 => out.push_str("11-15"),
            token => out.push_str(token),
        }
        rest = after;
    }
    out + rest
}

#[test]
fn the_main_commands_and_errors_print_what_the_file_holds() {
    let front = format!("{GRACES}\ncommands: [{{name: tests, run: 'true'}}]\ndone_when: ['test -f done']");
    let project = Project::acting_with(&front, "say all green; write done 'yes'");
    project.file("typo.md", "---\nagent: sh\nmax_iteratoins: 3\nidle: {delay: soon}\n---\nGo.\n");
    let mut session = Session { project, text: String::new() };
    session.show(&[]);
    session.show(&["status"]);
    session.show(&["check", "loop"]);
    session.show_part(&["check", "loop", "--explain"], |line| !line.contains("built-in"));
    session.show(&["check", "typo.md"]);
    session.show(&["run", "nowhere"]);
    session.show(&["run", "loop", "--colour"]);
    // One run per project: the order of runs that start in the same second is not defined.
    session.show(&["run", "loop"]);
    session.show(&[]);
    session.show(&["status"]);
    session.show(&["history"]);
    let mut head = true;
    session.show_part(&["report"], |line| {
        head &= !line.starts_with("## Run");
        head
    });
    session.show(&["gc"]);
    session.show(&["logs", "zzzz"]);
    session.show(&["stop"]);
    for flags in [&["run", "loop", "-n", "2"][..], &["run", "loop", "-n", "2", "-q"]] {
        session.project = Project::acting("counter count; say part $n done; on 2 { err no luck; exit 4 }");
        session.show(flags);
    }
    if std::env::var_os("DOGWATCH_BLESS").is_some() {
        std::fs::write(FILE, &session.text).expect("the file can be written");
    }
    let held = std::fs::read_to_string(FILE).unwrap_or_default();
    let differing = session.text.lines().zip(held.lines()).find(|(now, before)| now != before);
    assert!(
        held == session.text,
        "the output differs from {FILE}, first in {differing:?}; if that is right, write the file again with \
         DOGWATCH_BLESS=1\n{}",
        session.text
    );
}

#[test]
fn json_has_what_the_text_has() {
    let project = Project::acting("say hi");
    let json = |args: &[&str], code: i32| -> serde_json::Value {
        let done = project.call(args);
        serde_json::from_str(&done.assert_code(code).text()).expect("one JSON document")
    };
    let checked = json(&["check", "loop", "--json"], 0);
    assert_eq!((&checked["ok"], &checked["nodes"][0]), (&true.into(), &"loop".into()));
    assert!(checked["settings"].as_array().is_some_and(|all| all.iter().any(|s| s["key"] == "agent")));
    project.file("typo.md", "---\nidle: {delay: soon}\n---\nGo.\n");
    let checked = json(&["check", "typo.md", "--json"], 2);
    assert_eq!((&checked["ok"], &checked["diagnostics"][0]["severity"]), (&false.into(), &"error".into()));
    project.run(&["-n", "1"]).assert_code(0);
    let report = json(&["report", "--json"], 0);
    assert_eq!(report["status"]["state"], "ended");
    let last = report["timeline"].as_array().and_then(|all| all.last()).expect("a timeline");
    assert!(last["text"].as_str().is_some_and(|text| text.starts_with("run ended: clean")), "{last}");
    let listed = project.call(&["gc", "--dry-run", "--keep", "0", "--older-than", "0"]).text();
    assert!(listed.contains("  clean, unverified  "), "{listed}");
    let cleanup = json(&["gc", "--json", "--keep", "0", "--older-than", "0"], 0);
    assert_eq!(cleanup["runs"][0]["outcome"], "clean", "programs read the outcome alone");
    assert_eq!(
        (cleanup["runs"].as_array().map(Vec::len), &cleanup["done"]),
        (Some(1), &serde_json::Value::Null)
    );
    assert!(project.run_dir().exists(), "nothing is removed without --yes");
    let cleanup = json(&["gc", "--json", "--yes", "--keep", "0", "--older-than", "0"], 0);
    assert_eq!(cleanup["done"]["runs"], 1);
}

#[test]
fn a_quiet_run_prints_outcomes_and_a_verbose_one_details() {
    let project = Project::acting("say hi");
    let quiet = project.call(&["run", "loop", "-n", "1", "--quiet"]).assert_code(0).text();
    assert!(quiet.contains("iteration 1 completed in ") && !quiet.contains("\niteration 1  "), "{quiet}");
    assert!(!quiet.contains("\"hi\"") && quiet.contains("clean: "), "{quiet}");
    let verbose = project.call(&["run", "loop", "-n", "1", "-v"]).assert_code(0).text();
    assert!(
        verbose.contains("\niteration 1  ")
            && verbose.contains("\n    hi\n")
            && verbose.contains("  session started (pid "),
        "{verbose}"
    );
    let both = project.call(&["run", "loop", "-q", "-v"]);
    both.assert_code(2);
}
