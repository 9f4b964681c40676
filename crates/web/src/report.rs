//! A run's report: the dashboard's page of one run, with its record, in one file that needs nothing else.

use crate::bundle;
use crate::thin::{self, Thinned};
use dogwatch_core::event::Recorded;
use dogwatch_core::status::Status;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// A report is at most this long, so that it can be sent to somebody.
pub const MAX_REPORT: usize = 2_000_000;
/// What is kept free for the few lines around script, style and record.
const MARGIN: usize = 4 * 1024;
/// And for what is said about what was left out.
const NOTES: usize = 1024;

/// What a report tells of.
pub struct Subject<'a> {
    /// The directory that the run's record lies in, as people know it.
    pub project: &'a str,
    pub status: &'a Status,
    pub events: &'a [Recorded],
}

/// The record, as `report.js` reads it.
#[derive(Serialize)]
struct Record<'a> {
    run: Run<'a>,
    notes: Vec<String>,
    events: &'a [Box<RawValue>],
}

/// As in the list of runs, but for one that nobody can ask any more.
#[derive(Serialize)]
struct Run<'a> {
    run: String,
    project: &'a str,
    path: Option<&'a str>,
    alive: bool,
    state: &'a str,
    status: &'a Status,
}

/// One self-contained HTML file. It runs its own script and no other, asks nobody, and loads nothing.
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
         <noscript>This report needs JavaScript. `dogwatch report` without `--html` tells the same in plain text.</noscript>\n\
         <script type=\"application/json\" id=\"record\">{record}</script>\n\
         <script type=\"module\">{script}</script>\n</body>\n</html>\n"
    )
}

/// The JSON of the record, of at most `room` bytes. It holds no `<`, so nothing in it can end its element.
fn record(subject: &Subject<'_>, room: usize) -> String {
    let around = json(subject, Thinned::default()).len();
    json(subject, thin::thin(subject.events, room.saturating_sub(around + NOTES)))
}

fn json(subject: &Subject<'_>, thinned: Thinned) -> String {
    let notes = all_notes(subject.status, thinned.notes);
    let record = Record { run: Run::of(subject), notes, events: &thinned.lines };
    // What was read from JSON can be written as JSON.
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
        notes.insert(0, format!("The run was still going on when this was written{at}."));
    }
    notes.push("What agents printed is not in this file: `dogwatch logs` shows it.".to_owned());
    notes
}

/// JSON that can stand in a script element.
fn in_script(json: &str) -> String {
    json.replace('<', thin::ESCAPED)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// SHA-256 in base 64, as a policy names what it lets run.
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
        // The example of the specification, and what `openssl dgst -sha256 -binary | base64` says.
        assert_eq!(fingerprint("alert('Hello, world.');"), "qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
        assert_eq!(fingerprint(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
