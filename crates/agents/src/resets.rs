//! Finds the time at which a limit resets in the message of a service.
//!
//! `…reached|1762952400`, `resets 3pm`, `resets 12:50am (America/Los_Angeles)`, `resets in 2h 5m`, `try again
//! in 3 days 2 hours`, `try again at May 11th, 2026 1:36 PM`, `retry after 5s`, `"retryDelay":"34s"`.

use crate::reader::MAX_NAME;
use dogwatch_core::text::clip;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::sign::{Clock, ResetsAt};

/// The words that precede a time. Every occurrence is tried, in the order of the text.
const BEFORE: [&str; 8] =
    ["retry-after", "retry_after", "retrydelay", "retry after", "retry in", "try again", "resets", "reset"];

/// Returns the reset time mentioned in `text`, if any.
pub fn find(text: &str) -> Option<ResetsAt> {
    let lower = text.to_ascii_lowercase();
    if let Some(epoch) = lower.rsplit_once('|').and_then(|(_, behind)| epoch(behind)) {
        return Some(epoch);
    }
    let mut places: Vec<usize> =
        BEFORE.iter().flat_map(|b| lower.match_indices(b).map(|(at, b)| at + b.len())).collect();
    places.sort_unstable();
    // Only ASCII letters are lowercased, so offsets are the same in both texts.
    places.into_iter().find_map(|at| time(&lower[at..], &text[at..]))
}

/// Parses the time at the beginning of a text, which is passed in lower case and as written.
fn time(lower: &str, written: &str) -> Option<ResetsAt> {
    let mut rest = lower;
    loop {
        rest = rest.trim_start_matches([' ', '"', '\'', ':', '=', ',', '∙', '·', '\\']);
        let after =
            ["in ", "at ", "on ", "after ", "your ", "limit "].iter().find_map(|w| rest.strip_prefix(w));
        let Some(after) = after else { break };
        rest = after;
    }
    let written = &written[written.len() - rest.len()..];
    let word = written.split([' ', '"', ',', ')', '\\']).next().unwrap_or_default();
    ResetsAt::from_rfc3339(word)
        .or_else(|| epoch(rest))
        .or_else(|| duration(rest).map(ResetsAt::In))
        .or_else(|| clock(rest, written).map(ResetsAt::Clock))
}

/// Parses seconds or milliseconds since 1970: a number too large to be anything else.
fn epoch(text: &str) -> Option<ResetsAt> {
    let digits = digits(text);
    let (10 | 13) = digits.len() else { return None };
    digits.parse().ok().and_then(ResetsAt::from_epoch)
}

fn digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

/// Parses `5 days 22 hours 11 minutes`, `2h 5m` or `34.07s`; a bare number is seconds.
fn duration(text: &str) -> Option<Dur> {
    let mut rest = text;
    let mut total = None;
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
        let number = &rest[..rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len())];
        let Ok(count) = number.trim_end_matches('.').parse::<f64>() else { return total };
        let behind = rest[number.len()..].trim_start();
        let unit = &behind[..behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len())];
        let Some(seconds) = seconds_of(unit, behind, total.is_none()) else { return total };
        let more = Dur::from_secs_f64(count * seconds).ok()?;
        total = Some(Dur::saturating_add(total.unwrap_or(Dur::ZERO), more));
        rest = &behind[unit.len()..];
    }
}

fn seconds_of(unit: &str, behind: &str, first: bool) -> Option<f64> {
    Some(match unit {
        "ms" | "millisecond" | "milliseconds" => 0.001,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0,
        "d" | "day" | "days" => 86_400.0,
        "w" | "week" | "weeks" => 604_800.0,
        // A bare number that is not the first half of a clock time.
        "" if first && !behind.starts_with(':') => 1.0,
        _ => return None,
    })
}

/// Parses `3pm`, `1:30 am (asia/dhaka)`, `15:04`, `oct 9 at 5pm` or `may 11th, 2026 1:36 pm`.
fn clock(lower: &str, written: &str) -> Option<Clock> {
    let (date, rest) = date(lower);
    let rest = rest.trim_start_matches([' ', ',']);
    let rest = rest.strip_prefix("at ").unwrap_or(rest).trim_start();
    let hour = digits(rest);
    let mut behind = &rest[hour.len()..];
    let hour: u8 = hour.parse().ok()?;
    let mut minute = None;
    if let Some(after) = behind.strip_prefix(':') {
        let written = digits(after);
        minute = Some(written.parse().ok().filter(|m| *m < 60)?);
        behind = &after[written.len()..];
    }
    let half = behind.trim_start();
    let (hour, behind) = match half.get(..2) {
        Some("am") if (1..=12).contains(&hour) => (hour % 12, &half[2..]),
        Some("pm") if (1..=12).contains(&hour) => (hour % 12 + 12, &half[2..]),
        _ if minute.is_some() && hour < 24 => (hour, behind),
        _ => return None,
    };
    let written = &written[written.len() - behind.len()..];
    let (date, year) = date.map_or((None, None), |(month, day, year)| (Some((month, day)), year));
    Some(Clock { date, year, hour, minute: minute.unwrap_or(0), zone: zone(written) })
}

type Date = (u8, u8, Option<i16>);

/// Parses a month name, a day and an optional year. Returns the date and the rest, or the whole text if there is none.
fn date(text: &str) -> (Option<Date>, &str) {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let found = (1..).zip(MONTHS).find(|(_, name)| text.starts_with(name));
    let Some((month, _)) = found else { return (None, text) };
    let rest = text.trim_start_matches(|c: char| c.is_ascii_alphabetic()).trim_start_matches(['.', ' ']);
    let day = digits(rest);
    let behind = rest[day.len()..].trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let Ok(day) = day.parse() else { return (None, text) };
    let after = behind.trim_start_matches([',', ' ']);
    match digits(after) {
        year if year.len() == 4 => (Some((month, day, year.parse().ok())), &after[4..]),
        _ => (Some((month, day, None)), behind),
    }
}

/// Parses ` (America/Los_Angeles)`.
fn zone(text: &str) -> Option<String> {
    let (name, _) = text.trim_start().strip_prefix('(')?.split_once(')')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+');
    (!name.is_empty() && name.chars().all(fits)).then(|| clip(name, MAX_NAME).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::time::moment::Wall;

    fn at(hour: u8, minute: u8) -> Option<ResetsAt> {
        Some(ResetsAt::Clock(Clock { hour, minute, ..Clock::default() }))
    }

    fn within(text: &str) -> Option<ResetsAt> {
        Some(ResetsAt::In(text.parse().expect("a duration")))
    }

    #[test]
    fn watchdog_46_reset_times_are_found_in_service_messages() {
        for (text, wanted) in [
            ("Claude AI usage limit reached|1762952400", Some(ResetsAt::At(Wall(1_762_952_400_000)))),
            ("5-hour limit reached ∙ resets 3pm", at(15, 0)),
            ("limit reached ∙ resets 12am", at(0, 0)),
            ("Your limit will reset at 9am.", at(9, 0)),
            ("try again at 3:05 PM.", at(15, 5)),
            ("resets at 15:04", at(15, 4)),
            ("or try again in 5 days 22 hours 11 minutes.", within("5d22h11m")),
            ("Try again in 1 minute", within("1m")),
            ("limit resets in 2h 5m", within("2h5m")),
            ("Please retry in 34.074824224s.", within("34075ms")),
            (r#"{"retryDelay":"34s"}"#, within("34s")),
            (r#"\"retryDelay\": \"34s\""#, within("34s")),
            ("retry-after: 3600", within("1h")),
            ("Suggested retry after 5s.. Retrying after 5886ms...", within("5s")),
            ("resets at 2026-11-15T20:00:00Z", Some(ResetsAt::At(Wall(1_794_772_800_000)))),
            ("resets at 1794772800", Some(ResetsAt::At(Wall(1_794_772_800_000)))),
            ("limits reset every so often, try again in 7s", within("7s")),
            ("try again in a moment", None),
            ("try again later", None),
            ("wait for limits to reset (every 5h and every week.)", None),
            ("resets 25:00", None),
            ("resets 13pm", None),
            ("", None),
        ] {
            assert_eq!(find(text), wanted, "{text}");
        }
    }

    #[test]
    fn time_zone_and_date_are_parsed() {
        let Some(ResetsAt::Clock(clock)) =
            find("hit your session limit · resets 12:50am (America/Los_Angeles)")
        else {
            panic!("a clock time")
        };
        assert_eq!((clock.hour, clock.minute, clock.zone.as_deref()), (0, 50, Some("America/Los_Angeles")));
        for (text, date, year) in [
            ("try again at May 11th, 2026 1:36 PM.", (5, 11), Some(2026)),
            ("resets Oct 9 at 1:36pm", (10, 9), None),
            ("resets Oct 9, 1:36pm (Europe/Rome)", (10, 9), None),
        ] {
            let Some(ResetsAt::Clock(clock)) = find(text) else { panic!("a date: {text}") };
            assert_eq!((clock.date, clock.year), (Some(date), year), "{text}");
            assert_eq!((clock.hour, clock.minute), (13, 36), "{text}");
        }
    }

    #[test]
    fn any_text_is_accepted() {
        let base = "résets ∙ resets 3pm (x) try again in 5 days|12 retry after é 1:2:3 oct 99th, 20266 pm";
        for from in base.char_indices().map(|(at, _)| at) {
            for to in base.char_indices().map(|(at, _)| at).filter(|to| *to >= from) {
                let _ = find(&base[from..to]);
            }
        }
    }
}
