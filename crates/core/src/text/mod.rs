//! Makes text from outside safe to show. Everything that an agent prints passes through this module before it reaches a
//! terminal, a page or the record. Only the raw files keep every byte.

pub mod address;
pub mod check_output;
pub mod figures;
pub mod fingerprint;
pub mod redact;
pub mod shell;
use std::borrow::Cow;

/// Returns the longest prefix of at most `max` bytes that ends at a character boundary.
pub fn clip(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Returns the first nonblank line, without control characters, escape sequences or direction overrides, clipped to
/// `max` bytes.
pub fn one_line(text: &str, max: usize) -> String {
    let first = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("");
    let clean = printable(first);
    let clipped = clip(&clean, max);
    if clipped.len() < clean.len() { format!("{clipped}…") } else { clipped.to_owned() }
}

/// Removes escape sequences and replaces other control characters with `�`. Newlines and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unfit) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_csi(&mut chars),
            '\r' => {}
            c if is_unfit(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Does the same as `printable` for arbitrary bytes.
pub fn printable_bytes(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes)).into_owned()
}

/// Returns whether a character is a control, or an invisible character that reorders or hides its neighbors.
fn is_unfit(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes the characters of a JSON text that `printable` would remove. The text stays valid JSON with the same
/// meaning, because such characters occur only inside strings, and is safe to print.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(|c| is_unfit(c) && !c.is_ascii()) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 32);
    for c in json.chars() {
        if is_unfit(c) && !c.is_ascii() {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        // OSC, DCS, SOS, PM, APC: a string that ends with BEL or ST. An unterminated one ends with the line.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(c) = chars.peek().copied() {
                if c == '\n' {
                    return;
                }
                chars.next();
                if c == '\u{7}' || c == '\u{9c}' {
                    return;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    return;
                }
            }
        }
        // Two-character sequences, with or without intermediates.
        _ => {
            while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
            chars.next_if(|c| ('0'..='~').contains(c));
        }
    }
}

fn skip_csi(chars: &mut Chars<'_>) {
    while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
    chars.next_if(|c| ('@'..='~').contains(c));
}

/// Writes errors of the operating system as the rest of a message: `permission denied` for `Permission denied (os error
/// 13)`. Their numbers mean nothing to a user.
pub fn without_error_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => {
                let reason = out.rfind(": ").map_or(0, |colon| colon + ": ".len());
                if let Some(first) = out.get_mut(reason..=reason) {
                    first.make_ascii_lowercase();
                }
                out.push_str(rest);
            }
            Some(_) | None => {
                out.push_str(" (os error ");
                out.push_str(piece);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_removed_from_text_and_escaped_in_json() {
        for bad in ['\u{61c}', '\u{202e}', '\u{2066}', '\u{85}', '\u{9b}', '\u{e0041}', '\u{fffa}'] {
            assert!(!printable(&format!("a{bad}b")).contains(bad), "{bad:?}");
            let json = format!("{{\"x\":\"a{bad}b\"}}");
            let escaped = escape_json(&json);
            assert!(!escaped.contains(bad), "{escaped}");
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
            assert_eq!(read(&escaped), read(&json));
        }
        assert!(matches!(escape_json("{\"x\":\"äöü — 日本\"}"), Cow::Borrowed(_)));
    }

    // promise: 8
    #[test]
    fn escape_sequences_are_removed_and_the_text_is_kept() {
        for (raw, shown) in [
            ("plain text, ünïcode", "plain text, ünïcode"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;evil title\u{7}ok", "ok"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}Pq#0\u{1b}\\sixel", "sixel"),
            ("a\u{1b}(Bb", "ab"),
            ("a\u{9b}2Jb", "ab"),
            ("bell\u{7}nul\0", "bell\u{fffd}nul\u{fffd}"),
            ("ab\r\ncd", "ab\ncd"),
            ("\u{202e}txt.exe", "\u{fffd}txt.exe"),
            ("\u{1b}]unended\nnext", "\nnext"),
            ("\u{1b}", ""),
        ] {
            assert_eq!(printable(raw), shown, "{raw:?}");
        }
    }

    // promise: 8
    #[test]
    fn no_control_character_is_left_for_any_input() {
        // Try every triple of the characters that matter, around an escape.
        let parts =
            ["\u{1b}", "[", "]", "P", "\\", "\u{7}", "m", "3", ";", "\u{9b}", "\n", "\u{202e}", "x", "\r"];
        for a in parts {
            for b in parts {
                for c in parts {
                    let raw = format!("{a}{b}{c}\u{1b}{a}{c}");
                    assert!(!printable(&raw).chars().any(is_unfit), "{raw:?}");
                }
            }
        }
    }

    #[test]
    fn a_line_is_clipped_between_characters() {
        assert_eq!(one_line("\n  éé  \nmore", 3), "é…");
        assert_eq!(one_line("short\nmore", 80), "short");
        assert_eq!(one_line("", 80), "");
        assert_eq!(clip("éé", 4), "éé");
    }

    #[test]
    fn errors_of_the_system_are_shown_without_their_numbers() {
        for (from, to) in [
            ("Permission denied (os error 13)".to_owned(), "permission denied"),
            (
                "error: cannot read a: No such file or directory (os error 2); and more".to_owned(),
                "error: cannot read a: no such file or directory; and more",
            ),
            ("b: C (os error 1) d: É (os error 2)".to_owned(), "b: c d: É"),
            ("(os error) x (os error y) (os error 3".to_owned(), "(os error) x (os error y) (os error 3"),
        ] {
            assert_eq!(without_error_numbers(&from), to);
        }
    }
}
