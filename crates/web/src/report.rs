//! The report of a run: the dashboard's page of one run with its record, in one self-contained HTML file.

use crate::bundle;
use crate::thin::{self, Thinned};
use dogwatch_core::record::event::Recorded;
use dogwatch_core::record::status::Status;
use dogwatch_core::text::figures::count;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The maximum size of a report in bytes, so that it can be sent by email.
pub const MAX_REPORT: usize = 2_000_000;
/// Space reserved for the markup around script, style and record, in bytes.
const MARGIN: usize = 4 * 1024;
/// The most bytes of diffs in a report.
pub const MAX_DIFFS: usize = 500_000;
/// Space reserved for the notes about omitted records, in bytes.
const NOTES: usize = 1024;

/// The run that a report shows.
pub struct Subject<'a> {
    /// The project directory, as shown to the user.
    pub project: &'a str,
    /// The status of the run.
    pub status: &'a Status,
    /// The summary at the top: titles and texts.
    pub summary: &'a [(&'a str, String)],
    /// The events of the run.
    pub events: &'a [Recorded],
    /// What the iterations changed, by `node/iteration`, the newest last.
    pub diffs: &'a [(String, String)],
}

/// The record as `report.js` reads it.
#[derive(Serialize)]
struct Record<'a> {
    run: Run<'a>,
    summary: &'a [(&'a str, String)],
    notes: Vec<String>,
    diffs: BTreeMap<&'a str, &'a str>,
    events: &'a [Box<RawValue>],
}

/// A run in the format of the API's list of runs.
#[derive(Serialize)]
struct Run<'a> {
    run: String,
    project: &'a str,
    path: Option<&'a str>,
    alive: bool,
    state: &'a str,
    status: &'a Status,
}

/// Returns the report as one HTML file. Its content security policy allows only its own script and style, and no
/// requests.
pub fn report(subject: &Subject<'_>) -> String {
    let (script, style) = (bundle::script(), bundle::style());
    let record = record(subject, MAX_REPORT.saturating_sub(script.len() + style.len() + MARGIN));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        fingerprint(&script),
        fingerprint(style),
    );
    let title = escaped(&name(subject.status));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} - dogwatch</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <noscript>This report needs JavaScript. `dogwatch report` without `--html` shows the same as plain text.</noscript>\n\
         <script type=\"application/json\" id=\"record\">{record}</script>\n\
         <script type=\"module\">{script}</script>\n</body>\n</html>\n"
    )
}

/// Returns the record as JSON of at most `room` bytes. It contains no `<`, so it cannot end its script element.
fn record(subject: &Subject<'_>, room: usize) -> String {
    let (diffs, left_out) = fitting(subject.diffs);
    let around = json(subject, &diffs, Thinned::default()).len();
    let mut thinned = thin::thin(subject.events, room.saturating_sub(around + NOTES));
    if left_out > 0 {
        let many = count(left_out as u64, "iteration");
        thinned.notes.push(format!("Left out the changes of {many}; use `dogwatch diff` to see them."));
    }
    json(subject, &diffs, thinned)
}

/// Returns the newest diffs that fit, and how many do not.
fn fitting(diffs: &[(String, String)]) -> (BTreeMap<&str, &str>, usize) {
    let mut room = MAX_DIFFS;
    let fits = |(_, text): &&(String, String)| {
        let bytes = in_script(&serde_json::to_string(text).unwrap_or_default()).len();
        room = room.saturating_sub(bytes);
        room > 0
    };
    let kept: BTreeMap<_, _> =
        diffs.iter().rev().take_while(fits).map(|(key, text)| (key.as_str(), text.as_str())).collect();
    let left_out = diffs.len() - kept.len();
    (kept, left_out)
}

fn json(subject: &Subject<'_>, diffs: &BTreeMap<&str, &str>, thinned: Thinned) -> String {
    let notes = all_notes(subject.status, thinned.notes);
    let record = Record {
        run: Run::of(subject),
        summary: subject.summary,
        notes,
        diffs: diffs.clone(),
        events: &thinned.lines,
    };
    // Serialization cannot fail: the events were read from JSON.
    in_script(&serde_json::to_string(&record).unwrap_or_default())
}

impl<'a> Run<'a> {
    fn of(subject: &'a Subject<'_>) -> Run<'a> {
        let status = subject.status;
        Run {
            run: name(status),
            project: subject.project,
            path: status.path.as_deref(),
            alive: false,
            state: status.state.as_str(),
            status,
        }
    }
}

fn name(status: &Status) -> String {
    status.run.as_ref().map_or_else(String::new, ToString::to_string)
}

fn all_notes(status: &Status, mut notes: Vec<String>) -> Vec<String> {
    if status.live {
        let at = status.last_event.map_or_else(String::new, |last| format!(", after {}", last.at));
        notes.insert(0, format!("The run was still in progress when this report was written{at}."));
    }
    notes.push("Agent output is not in this file; use `dogwatch logs` to see it.".to_owned());
    notes
}

/// Escapes JSON for a script element.
fn in_script(json: &str) -> String {
    json.replace('<', thin::ESCAPED)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the SHA-256 hash in base64, as a content security policy uses it.
fn fingerprint(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(44);
    for chunk in Sha256::digest(text.as_bytes()).chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let six = (bits >> (18 - 6 * place)) as usize & 63;
            out.push(if place <= chunk.len() { char::from(ALPHABET[six]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_match_the_csp_specification() {
        // The example from the specification, and the output of `openssl dgst -sha256 -binary | base64`.
        assert_eq!(fingerprint("alert('Hello, world.');"), "qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
        assert_eq!(fingerprint(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
