//! Formats a proposal as text.

use super::{Tuned, Tuning};
use crate::screen::words;
use dogwatch_core::text::printable;
use dogwatch_core::watch::limits::Estimate;
use dogwatch_host::store::sessions::Imported;
use std::fmt::Write as _;

/// Formats the proposal.
pub fn text(tuned: &Tuned) -> String {
    let mut text = String::new();
    for notice in &tuned.notices {
        let _ = writeln!(text, "note: {notice}");
    }
    if let Some(imported) = &tuned.imported {
        let _ = writeln!(text, "{}", import_line(imported));
    }
    let left_out = match tuned.runs_left_out {
        0 => String::new(),
        n => format!(" ({n} skipped)"),
    };
    let wrong = match tuned.wrong {
        0 => String::new(),
        n => format!(", {n} stopped wrongly"),
    };
    let _ = writeln!(
        text,
        "Replayed {}{left_out}: {}, {} stopped by the watchdog{wrong}, {} unclear",
        words::count(tuned.runs as u64, "run"),
        words::count(tuned.good as u64, "good session"),
        tuned.stuck,
        tuned.unclear
    );
    for tuning in &tuned.agents {
        agent(&mut text, tuning);
    }
    if tuned.agents.is_empty() {
        text.push_str("\nNo good session of this project is recorded yet.\n");
    }
    let changed = |tuning: &&Tuning| tuning.limits.iter().any(|estimate| estimate.limit_s.is_some());
    let proposals: Vec<&Tuning> = tuned.agents.iter().filter(changed).collect();
    if proposals.is_empty() {
        text.push_str("\nNothing to change.\n");
    }
    for tuning in proposals {
        snippet(&mut text, tuning);
    }
    printable(&text).into_owned()
}

fn import_line(imported: &Imported) -> String {
    let Imported { dirs, files, read, unreadable, left, turns, good } = imported;
    if dirs.is_empty() {
        return "No transcripts of Claude Code or Codex on this machine".to_owned();
    }
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let mut line = format!(
        "Imported {read} new of {} in {}: {}, {good} of them good",
        words::count(*files, "transcript"),
        dirs.join(" and "),
        words::count(*turns, "turn"),
    );
    if *unreadable > 0 {
        let _ = write!(line, "; {} not read", words::count(*unreadable, "other file"));
    }
    if *left > 0 {
        let _ = write!(line, "; {left} left for the next import");
    }
    line
}

/// Appends what is known about one agent.
fn agent(text: &mut String, tuning: &Tuning) {
    let Tuning { agent, good, here, limits, trial, confidence } = tuning;
    let sessions = words::count(*good as u64, "good session");
    let _ = writeln!(text, "\n{agent}: {sessions} on this machine, {here} in this project");
    let is_tool = |estimate: &&Estimate| estimate.key.starts_with("watchdog.tools.");
    let kept = limits.iter().filter(is_tool).filter(|estimate| estimate.limit_s.is_none()).count();
    let shown = |estimate: &&Estimate| !is_tool(estimate) || estimate.limit_s.is_some();
    for estimate in limits.iter().filter(shown) {
        let _ = writeln!(text, "  {}", limit_line(estimate));
    }
    if kept > 0 {
        let _ = writeln!(text, "  {} with enough calls: keep", words::count(kept as u64, "other tool"));
    }
    if limits.iter().all(|estimate| estimate.limit_s.is_none()) {
        return;
    }
    let _ = writeln!(text, "  under the proposed limits: {confidence}");
    if trial.stuck > 0 {
        let saved = words::length(trial.saved_s);
        let _ =
            writeln!(text, "  stops {} of {} stuck ones sooner, saves {saved}", trial.sooner, trial.stuck);
    }
    if trial.wrong > 0 {
        let _ = writeln!(text, "  spares {} of {} stopped wrongly", trial.wrong_spared, trial.wrong);
    }
}

fn limit_line(estimate: &Estimate) -> String {
    let now = estimate.now_s.map_or_else(|| "off".to_owned(), |now| now.to_string());
    match estimate.limit_s {
        Some(limit) => format!("{}  {now}, proposed {limit}: {}", estimate.key, estimate.why),
        None => format!("{}  {now}, keep: {}", estimate.key, estimate.why),
    }
}

/// Appends the proposed limits as TOML.
fn snippet(text: &mut String, tuning: &Tuning) {
    let changed = || tuning.limits.iter().filter_map(|estimate| Some((&estimate.key, estimate.limit_s?)));
    let _ = writeln!(text, "\nIn dogwatch.toml, for loops with {}:", tuning.agent);
    let (mut whole, mut tools) = (String::new(), String::new());
    for (key, limit) in changed() {
        match key.strip_prefix("watchdog.tools.") {
            Some(tool) => {
                let _ = writeln!(tools, "  {} = \"{limit}\"", toml_key(tool));
            }
            None => {
                let _ = writeln!(whole, "  {} = \"{limit}\"", key.trim_start_matches("watchdog."));
            }
        }
    }
    if !whole.is_empty() {
        let _ = write!(text, "  [watchdog]\n{whole}");
    }
    if !tools.is_empty() {
        let _ = write!(text, "  [watchdog.tools]\n{tools}");
    }
    text.push_str(
        "or `profile = \"learned\"`, which sets the silence limit and those of tools at every start.\n",
    );
}

/// Returns a key of a TOML table, in quotes if it needs them.
fn toml_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if key.chars().all(is_bare) { key.to_owned() } else { format!("{key:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::settings::ReaderName;
    use dogwatch_core::time::dur::Dur;
    use dogwatch_core::watch::limits::Trial;

    fn estimate(key: &str, now: u64, limit: Option<u64>, why: &str) -> Estimate {
        Estimate {
            key: key.to_owned(),
            now_s: Some(Dur::from_secs(now)),
            limit_s: limit.map(Dur::from_secs),
            longest_s: Dur::from_secs(60),
            sessions: 300,
            agent_sessions: 300,
            why: why.to_owned(),
        }
    }

    #[test]
    fn a_proposal_shows_its_reasons_its_effect_and_the_settings() {
        let tuning = Tuning {
            agent: ReaderName::Claude,
            good: 412,
            here: 300,
            limits: vec![
                estimate("watchdog.idle", 480, Some(320), "good sessions needed at most 4m24s"),
                estimate(
                    "watchdog.session",
                    3_600,
                    None,
                    "good sessions needed up to 50m; no tighter limit is safe",
                ),
                estimate("watchdog.tools.Bash", 900, Some(420), "good sessions needed at most 2m19s"),
                estimate("watchdog.tools.mcp.x", 900, Some(300), "good sessions needed at most 1s"),
                estimate("watchdog.tools.Read", 900, None, "…"),
            ],
            trial: Trial {
                good: 300,
                stuck: 3,
                sooner: 2,
                saved_s: Dur::from_mins(23),
                wrong: 1,
                wrong_spared: 1,
                ..Trial::default()
            },
            confidence: "so sure".to_owned(),
        };
        let tuned = Tuned {
            runs: 2,
            runs_left_out: 1,
            imported: Some(Imported {
                dirs: vec!["/t".into()],
                files: 4,
                read: 3,
                unreadable: 1,
                turns: 9,
                good: 8,
                left: 2,
            }),
            notices: vec!["so it is".to_owned()],
            good: 300,
            stuck: 3,
            wrong: 1,
            unclear: 4,
            agents: vec![tuning],
        };
        assert_eq!(
            text(&tuned),
            "note: so it is\n\
             Imported 3 new of 4 transcripts in /t: 9 turns, 8 of them good; 1 other file not read; 2 left for the next import\n\
             Replayed 2 runs (1 skipped): 300 good sessions, 3 stopped by the watchdog, 1 stopped wrongly, 4 unclear\n\
             \n\
             claude: 412 good sessions on this machine, 300 in this project\n  \
             watchdog.idle  8m, proposed 5m20s: good sessions needed at most 4m24s\n  \
             watchdog.session  1h, keep: good sessions needed up to 50m; no tighter limit is safe\n  \
             watchdog.tools.Bash  15m, proposed 7m: good sessions needed at most 2m19s\n  \
             watchdog.tools.mcp.x  15m, proposed 5m: good sessions needed at most 1s\n  \
             1 other tool with enough calls: keep\n  \
             under the proposed limits: so sure\n  \
             stops 2 of 3 stuck ones sooner, saves 23m 00s\n  \
             spares 1 of 1 stopped wrongly\n\
             \n\
             In dogwatch.toml, for loops with claude:\n  \
             [watchdog]\n  \
             idle = \"5m20s\"\n  \
             [watchdog.tools]\n  \
             Bash = \"7m\"\n  \
             \"mcp.x\" = \"5m\"\n\
             or `profile = \"learned\"`, which sets the silence limit and those of tools at every start.\n"
        );
    }
}
