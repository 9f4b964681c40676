//! Formats durations, sizes, counts and amounts for people.

use crate::record::view::{Counts, Used};
use crate::time::dur::Dur;

/// Formats a duration: `0.3s`, `46.2s`, `2m 05s`, `1h 02m`.
pub fn span(d: Dur) -> String {
    let s = d.as_millis() / 1000;
    match s {
        0..60 => format!("{:.1}s", d.as_secs_f64()),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        _ => format!("{}h {:02}m", s / 3600, s / 60 % 60),
    }
}

/// Formats a duration in whole seconds, for countdowns: `7s`, `2m 05s`.
pub fn clock(d: Dur) -> String {
    let s = d.as_millis() / 1000;
    if s < 60 { format!("{s}s") } else { span(d) }
}

/// Formats a wait in seconds: `120s`, `0.5s`. One unit makes successive waits easy to compare.
pub fn seconds(d: Dur) -> String {
    match d.as_millis() {
        ms if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        0..1_000 => format!("{}s", d.as_secs_f64()),
        // Jitter and resumed waits are uneven; their milliseconds say nothing.
        _ => format!("{}s", format!("{:.1}", d.as_secs_f64()).trim_end_matches(".0")),
    }
}

/// Formats the length of a wait: `30s`, `0.5s`, `59m 59s`.
pub fn length(d: Dur) -> String {
    if d.as_millis() < 60_000 { seconds(d) } else { span(d) }
}

/// Formats a size: `812 B`, `3.2 kB`, `1.4 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Formats a count with a regular plural: `1 tool`, `2 tools`, `3 processes`, `4 directories`.
pub fn count(n: u64, one: &str) -> String {
    match (n, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (n, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{n} {stem}ies"),
        (n, _) if one.ends_with('s') => format!("{n} {one}es"),
        (n, _) => format!("{n} {one}s"),
    }
}

/// Formats the iterations of a run: `12 iterations: 9 completed (3 idle), 1 failed, 2 timed out, 1 interrupted`.
/// Interrupted iterations do not count as iterations, but they happened.
pub fn iterations(counts: &Counts) -> String {
    iterations_with(counts, 0)
}

/// Formats the iterations of a run as [`iterations`] does, with those that a lost supervisor left open:
/// `3 iterations: 2 completed, 1 unfinished`.
pub fn iterations_with(counts: &Counts, unfinished: u64) -> String {
    let Counts { iterations: _, completed, idle, failed, timed_out, interrupted } = counts;
    let idle = if *idle > 0 { format!(" ({idle} idle)") } else { String::new() };
    let mut text =
        format!("{}: {completed} completed{idle}", count(counts.ended() + unfinished, "iteration"));
    let others = [
        (*failed, "failed"),
        (*timed_out, "timed out"),
        (*interrupted, "interrupted"),
        (unfinished, "unfinished"),
    ];
    for (n, how) in others {
        if n > 0 {
            text.push_str(&format!(", {n} {how}"));
        }
    }
    text
}

/// Formats an ordinal: `3rd`.
pub fn nth(n: u64) -> String {
    let end = match (n % 10, n % 100) {
        (1, r) if r != 11 => "st",
        (2, r) if r != 12 => "nd",
        (3, r) if r != 13 => "rd",
        _ => "th",
    };
    format!("{n}{end}")
}

/// Formats used tokens: `12345 tokens`, `12345 tokens (2 sessions unknown)`, `tokens unknown`.
pub fn tokens(used: &Used) -> String {
    match (used.tokens, used.unknown_tokens) {
        (0, 0) => "no tokens".to_owned(),
        (0, _) => "tokens unknown".to_owned(),
        (n, unknown) => format!("{}{}", count(n, "token"), unknown_sessions(unknown)),
    }
}

/// Formats a cost: `$0.42`, `$0.42 (2 sessions unknown)`, `$0.42 ($0.10 computed)`, `cost unknown`.
pub fn cost(used: &Used) -> String {
    let computed = match used.computed_usd {
        none if none <= 0.0 => String::new(),
        all if all >= used.cost_usd => " (computed)".to_owned(),
        part => format!(" (${part:.2} computed)"),
    };
    match (used.cost_usd, used.unknown_cost) {
        (usd, 0) if usd <= 0.0 => "no cost".to_owned(),
        (usd, _) if usd <= 0.0 => "cost unknown".to_owned(),
        (usd, unknown) => format!("${usd:.2}{computed}{}", unknown_sessions(unknown)),
    }
}

fn unknown_sessions(n: u64) -> String {
    if n == 0 { String::new() } else { format!(" ({} unknown)", count(n, "session")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_tokens_and_costs_are_never_shown_as_zero() {
        let used = |tokens, unknown_tokens| Used { tokens, unknown_tokens, ..Used::default() };
        let shown = [used(0, 0), used(0, 2), used(7, 0), used(7, 1)].map(|u| tokens(&u));
        assert_eq!(shown.join(" | "), "no tokens | tokens unknown | 7 tokens | 7 tokens (1 session unknown)");
        let used = |cost_usd, unknown_cost| Used { cost_usd, unknown_cost, ..Used::default() };
        let shown = [used(0.0, 0), used(0.0, 2), used(0.425, 0), used(1.5, 2)].map(|u| cost(&u));
        assert_eq!(shown.join(" | "), "no cost | cost unknown | $0.42 | $1.50 (2 sessions unknown)");
        let used = |computed_usd| Used { cost_usd: 2.0, computed_usd, ..Used::default() };
        assert_eq!([used(0.5), used(2.0)].map(|u| cost(&u)), ["$2.00 ($0.50 computed)", "$2.00 (computed)"]);
    }

    #[test]
    fn the_counts_of_iterations_add_up() {
        let counts = Counts { iterations: 4, completed: 2, idle: 1, failed: 1, timed_out: 1, interrupted: 2 };
        let all = "6 iterations: 2 completed (1 idle), 1 failed, 1 timed out, 2 interrupted";
        assert_eq!(iterations(&counts), all);
        let none = Counts { interrupted: 2, ..Counts::default() };
        assert_eq!(iterations(&none), "2 iterations: 0 completed, 2 interrupted");
        let open = Counts { iterations: 2, completed: 2, ..Counts::default() };
        assert_eq!(iterations_with(&open, 1), "3 iterations: 2 completed, 1 unfinished");
    }

    #[test]
    fn figures_read_well_at_every_size() {
        let spans = [300, 46_200, 59_999, 125_000, 3_725_000].map(|ms| span(Dur::from_millis(ms)));
        assert_eq!(spans, ["0.3s", "46.2s", "60.0s", "2m 05s", "1h 02m"]);
        assert_eq!([812, 3_210, 1_400_000].map(size), ["812 B", "3.2 kB", "1.4 MB"]);
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 13, 21, 112].map(nth).join(" "),
            "1st 2nd 3rd 4th 11th 12th 13th 21st 112th"
        );
        assert_eq!([0, 1, 2].map(|n| count(n, "tool")).join(", "), "0 tools, 1 tool, 2 tools");
        assert_eq!([1, 2].map(|n| count(n, "process")).join(", "), "1 process, 2 processes");
        assert_eq!([count(2, "directory"), count(2, "delay")], ["2 directories", "2 delays"]);
    }
}
