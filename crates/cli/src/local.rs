//! Times of day for people: in the local time zone (`TZ`, otherwise the system's), or in UTC with `--utc`. The record and
//! all JSON output stay in UTC.

use dogwatch_core::record::event::Event;
use dogwatch_core::record::words::{self, Sentence, Style};
use dogwatch_core::time::moment::Wall;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::sync::OnceLock;

/// A time as the record writes it in its texts.
const RECORDED: &str = "2026-11-15T20:15:33.000Z";

/// The time zone of this process, set once before any command runs.
static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Applies the `--utc` flag to this process.
pub fn choose(utc: bool) {
    if utc {
        // Only `main` calls this, so the cell is empty.
        let _ = ZONE.set(TimeZone::UTC);
    }
}

fn format(at: Wall, format: &str) -> String {
    // Unit tests must not depend on the machine.
    let own = || if cfg!(test) { TimeZone::UTC } else { dogwatch_host::clock::zone() };
    formatted(at, ZONE.get_or_init(own), format)
}

fn formatted(at: Wall, zone: &TimeZone, format: &str) -> String {
    let at = Timestamp::from_millisecond(at.0).unwrap_or_default();
    at.to_zoned(zone.clone()).strftime(format).to_string()
}

/// Formats a time of day: `20:15:33`.
pub fn clock(at: Wall) -> String {
    format(at, "%H:%M:%S")
}

/// Formats a day and a time: `11-15 20:15`.
pub fn short(at: Wall) -> String {
    format(at, "%m-%d %H:%M")
}

/// Formats a date: `2026-11-15`.
pub fn date(at: Wall) -> String {
    format(at, "%Y-%m-%d")
}

/// Formats a date, a time and the time zone: `2026-11-15 20:15:33 CET`.
pub fn full(at: Wall) -> String {
    format(at, "%Y-%m-%d %H:%M:%S %Z")
}

/// Returns the sentence for an event, with local times.
pub fn sentence(event: &Event, style: Style) -> Sentence {
    let sentence = words::sentence(event, style);
    Sentence { text: times(&sentence.text), ..sentence }
}

/// Replaces the times in a text of the record (`resets at 2026-11-15T20:15:33.000Z`) by [`full`] times.
pub fn times(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(z) = rest.find('Z') {
        let (head, tail) = rest.split_at(z + 1);
        let recorded = head.len().checked_sub(RECORDED.len()).and_then(|from| head.split_at_checked(from));
        match recorded.and_then(|(before, at)| Some((before, Wall::from_rfc3339(at)?))) {
            Some((before, at)) => out.extend([before, &full(at)]),
            None => out.push_str(head),
        }
        rest = tail;
    }
    out + rest
}

/// Returns the name of the time zone at a moment: `UTC`, `CET`.
pub fn zone(at: Wall) -> String {
    format(at, "%Z")
}

/// Formats the label of a time axis: `11-15`, `20:15` or `20:15:33`, depending on the distance between labels in
/// milliseconds.
pub fn label(at: Wall, step: i64) -> String {
    let shape = match step {
        86_400_000.. => "%m-%d",
        60_000.. => "%H:%M",
        _ => "%H:%M:%S",
    };
    format(at, shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_the_zone_with_its_name() {
        // 2026-11-15T20:15:33Z, and half a year earlier.
        let (winter, summer) = (Wall(1_794_773_733_000), Wall(1_779_048_933_000));
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
        let shape = "%Y-%m-%d %H:%M:%S %Z";
        assert_eq!(formatted(winter, &berlin, shape), "2026-11-15 21:15:33 CET");
        assert_eq!(formatted(summer, &berlin, shape), "2026-05-17 22:15:33 CEST");
        assert_eq!(formatted(winter, &TimeZone::UTC, shape), "2026-11-15 20:15:33 UTC");
        assert_eq!(formatted(Wall(i64::MAX), &TimeZone::UTC, "%H:%M"), "00:00");
        assert_eq!([clock(winter), short(winter), zone(winter)], ["20:15:33", "11-15 20:15", "UTC"]);
        assert_eq!(
            [86_400_000, 60_000, 1_000].map(|step| label(winter, step)),
            ["11-15", "20:15", "20:15:33"]
        );
    }
    #[test]
    fn a_recorded_time_in_a_text_is_replaced_and_other_text_stays() {
        let text = "Zürich: resets at 2026-11-15T20:15:33.000Z; until 2026-11-16T00:00:00.120Z (Z)";
        let shown = "Zürich: resets at 2026-11-15 20:15:33 UTC; until 2026-11-16 00:00:00 UTC (Z)";
        assert_eq!(times(text), shown);
        for text in
            ["", "Z", "äöü 2026-11-15T20:15:33ZZ", "2026-13-45T20:15:33.000Z", "ä026-11-15T20:15:33.00Z"]
        {
            assert_eq!(times(text), text);
        }
    }
}
