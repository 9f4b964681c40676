//! Texts: lines, control characters, secrets, markers, fingerprints.

use dogwatch_agents::{Splitter, last_marker};
use dogwatch_core::text::fingerprint::{digest, fingerprint_ends};
use dogwatch_core::text::{printable, printable_bytes, redact};

/// The lines do not depend on the chunks. The first byte selects the maximum line length, the second the chunk size.
pub fn splitter(input: &[u8]) {
    let [max, size, stream @ ..] = input else { return };
    let (max, size) = (usize::from(*max) + 1, usize::from(*size) + 1);
    let split = |chunks: &mut dyn Iterator<Item = &[u8]>| {
        let mut splitter = Splitter::with_max(max);
        let mut lines = Vec::new();
        chunks.for_each(|chunk| splitter.feed(chunk, |line| lines.push((line.bytes.to_vec(), line.cut))));
        splitter.finish(|line| lines.push((line.bytes.to_vec(), line.cut)));
        lines
    };
    let at_once = split(&mut std::iter::once(stream));
    assert_eq!(at_once, split(&mut stream.chunks(size)), "the chunks do not matter");
    let whole: Vec<&[u8]> = stream.split_inclusive(|b| *b == b'\n').collect();
    assert_eq!(at_once.len(), whole.len());
    for ((line, cut), raw) in at_once.iter().zip(whole) {
        let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        assert_eq!((line.as_slice(), *cut), (&raw[..raw.len().min(max)], raw.len() > max));
    }
}

/// Sanitized text is safe for a terminal, and sanitizing it again changes nothing.
pub fn sanitizer(input: &[u8]) {
    let clean = printable_bytes(input);
    for c in clean.chars() {
        assert!(c == '\n' || c == '\t' || !c.is_control(), "{c:?} in {clean:?}");
        let hides = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}');
        assert!(!hides && c != '\u{feff}', "{c:?} in {clean:?}");
    }
    assert_eq!(printable(&clean), clean);
}

/// No word that looks like a key is left, and redacting the text again changes nothing.
pub fn redactor(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let hidden = redact::text(&text);
    for word in hidden.split_whitespace() {
        let is_key = ["sk-", "ghp_", "github_pat_", "AKIA"].iter().any(|start| word.starts_with(start));
        assert!(!is_key || word.len() < 16, "{word:?}");
    }
    assert_eq!(redact::text(&hidden), hidden);
    let words: Vec<&str> = text.split('\n').collect();
    assert_eq!(redact::argv(&words).len(), words.len());
    redact::url(&text);
}

/// A marker is one line of printable text, and an echo of the whole prompt is not a marker.
pub fn marker(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for structured in [false, true] {
        if let Some(marker) = last_marker(&text, structured, "") {
            let shown = format!("{marker:?}");
            assert!(!shown.contains("\\n") && !shown.contains("\\u{1b}"), "{shown}");
        }
        // An echo is recognized by its neighboring lines, which a prompt of one line does not have.
        if printable(&text).lines().filter(|line| !line.trim().is_empty()).count() > 1 {
            assert_eq!(last_marker(&text, structured, &text), None, "an echo in {text:?}");
        }
    }
}

/// A fingerprint is bounded.
pub fn fingerprint(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    assert!(dogwatch_core::text::fingerprint::fingerprint(&text).len() <= 400);
    assert!(fingerprint_ends(&text).len() <= 400);
    digest(input);
}
