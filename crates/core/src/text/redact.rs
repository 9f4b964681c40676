//! Removes secrets from command lines, texts and URLs.

/// The placeholder for a secret.
pub const HIDDEN: &str = "***";
/// Parts of names whose values are secrets.
const SECRET_NAMES: [&str; 8] =
    ["api-key", "api_key", "apikey", "token", "secret", "password", "passwd", "passphrase"];
/// The prefixes of well-known API keys.
const SECRET_STARTS: [&str; 8] = ["sk-", "sk_", "ghp_", "gho_", "github_pat_", "xox", "AIza", "AKIA"];
/// The length, in bytes, from which a word with such a prefix counts as a key.
const MIN_KEY: usize = 16;

/// Parts of the names of variables and headers that hold secrets.
const PARTS: [&str; 9] = [
    "API_KEY",
    "APIKEY",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "PRIVATE_KEY",
    "ACCESS_KEY",
];
/// Ends of the names of variables and headers that hold secrets. A number may follow.
const ENDS: [&str; 6] = ["TOKEN", "_KEY", "_PAT", "PASS", "_PWD", "_AUTH"];
/// Ends of names that hold no secret: most only name a file with one.
const HARMLESS_ENDS: [&str; 7] = ["_FILE", "_PATH", "_DIR", "_SOCK", "_URL", "ASKPASS", "BYPASS"];

/// Returns whether a variable or a header of this name holds a secret. `-` counts as `_`, and case does not matter.
pub fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    // The names of several keys of a kind are numbered: `DEPLOY_KEY_2`.
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    let looks = stem == "KEY"
        || name.split('_').any(|word| word == "TOKEN")
        || PARTS.iter().any(|part| name.contains(part))
        || ENDS.iter().any(|end| stem.ends_with(end));
    looks && !HARMLESS_ENDS.iter().any(|end| name.ends_with(end))
}

/// Returns the words of a command line with secrets hidden.
pub fn argv<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    let mut hide_next = false;
    words
        .iter()
        .map(|word| {
            let word = word.as_ref();
            let shown =
                if hide_next && !word.starts_with("--") { HIDDEN.to_owned() } else { redact_word(word) };
            hide_next = is_secret_name(word) && word.starts_with('-') && !word.contains('=');
            shown
        })
        .collect()
}

/// Returns a text with secrets hidden: each word is treated like a word of a command line. Blanks stay.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hide_next = false;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        let shown = if hide_next && !word.is_empty() { HIDDEN.to_owned() } else { redact_word(word) };
        hide_next = if word.is_empty() { hide_next } else { announces(word) };
        out.push_str(&shown);
        out.push_str(&piece[word.len()..]);
    }
    out
}

/// Returns whether the next word is a secret: after `--token`, `Authorization:` or `Bearer`.
fn announces(word: &str) -> bool {
    let name = word.trim_end_matches(':');
    let flag = word.starts_with('-') && !word.contains('=');
    let header = word.ends_with(':') && !name.is_empty();
    (is_secret_name(name) && (flag || header)) || name.eq_ignore_ascii_case("bearer")
}

/// Returns a URL with its user, password and query hidden.
pub fn url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return HIDDEN.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let at = if host.len() == authority.len() { "" } else { "***@" };
    let path = match path.split_once(['?', '#']) {
        Some((path, _)) => format!("{path}?{HIDDEN}"),
        None => path.to_owned(),
    };
    format!("{scheme}://{at}{host}{path}")
}

fn redact_word(word: &str) -> String {
    match word.split_once('=') {
        Some((name, _)) if is_secret_name(name) => format!("{name}={HIDDEN}"),
        Some((name, value)) if is_key(value) => format!("{name}={HIDDEN}"),
        Some(_) | None if is_key(word) => HIDDEN.to_owned(),
        Some(_) | None => word.to_owned(),
    }
}

fn is_secret_name(word: &str) -> bool {
    // A prompt is also a word of a command line, so only short words without blanks can be names.
    word.len() <= 64 && !word.contains(' ') && {
        let lower = word.to_ascii_lowercase();
        SECRET_NAMES.iter().any(|s| lower.contains(s)) && !lower.contains("tokens")
    }
}

fn is_key(word: &str) -> bool {
    word.len() >= MIN_KEY && !word.contains(' ') && SECRET_STARTS.iter().any(|s| word.starts_with(s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_keys_and_passwords_are_told_from_ordinary_names() {
        for secret in [
            "GH_TOKEN",
            "GH_TOKEN_PROD",
            "API_TOKEN_2",
            "MYTOKEN",
            "GPG_PASSPHRASE",
            "SSHPASS",
            "DB_PASS",
            "KEY",
            "DEPLOY_KEY",
            "DEPLOY_KEY_2",
            "MYSQL_PWD",
            "GITHUB_PAT",
            "AWS_SECRET_ACCESS_KEY",
            "X-Api-Key",
            "x-auth-token",
            "X-Auth",
        ] {
            assert!(names_secret(secret), "{secret}");
        }
        for ordinary in [
            "MAX_TOKENS",
            "TOKENIZERS_PARALLELISM",
            "TOKEN_FILE",
            "KEYBOARD",
            "XKB_KEYMAP",
            "MONKEY",
            "SSH_AUTH_SOCK",
            "PATH",
            "PWD",
            "OLDPWD",
            "PASSENGER_APP_ENV",
            "SSH_ASKPASS",
            "PROXY_BYPASS",
            "XAUTHORITY",
            "",
        ] {
            assert!(!names_secret(ordinary), "{ordinary}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (given, shown) in [
            ("http://127.0.0.1:80/mcp", "http://127.0.0.1:80/mcp"),
            ("https://me:pass@host/x", "https://***@host/x"),
            ("https://host/x?key=1", "https://host/x?***"),
            ("nothing", "***"),
        ] {
            assert_eq!(url(given), shown);
        }
    }

    #[test]
    fn secrets_in_a_sentence_are_hidden_and_the_rest_stays() {
        for (given, shown) in [
            ("exit 1:  no such file\n", "exit 1:  no such file\n"),
            ("used 500 tokens of the budget", "used 500 tokens of the budget"),
            ("curl -H Authorization: Bearer abc123 failed", "curl -H Authorization: Bearer *** failed"),
            ("x --api-key  abc rest", "x --api-key  *** rest"),
            ("API_KEY=abc sk-0123456789abcdef", "API_KEY=*** ***"),
            ("password: hunter2", "password: ***"),
            ("", ""),
        ] {
            assert_eq!(text(given), shown);
        }
    }

    #[test]
    fn secrets_in_a_command_line_are_hidden_and_the_rest_stays() {
        for (given, shown) in [
            (vec!["claude", "-p", "--model", "opus"], vec!["claude", "-p", "--model", "opus"]),
            (vec!["x", "--api-key", "abc", "-v"], vec!["x", "--api-key", "***", "-v"]),
            (vec!["x", "--api-key=abc"], vec!["x", "--api-key=***"]),
            (vec!["env", "ANTHROPIC_API_KEY=abc", "claude"], vec!["env", "ANTHROPIC_API_KEY=***", "claude"]),
            (vec!["x", "sk-0123456789abcdef"], vec!["x", "***"]),
            (vec!["x", "--key=ghp_0123456789abcdef"], vec!["x", "--key=***"]),
            (vec!["x", "--max-tokens", "500"], vec!["x", "--max-tokens", "500"]),
            (vec!["x", "write about the secret of tokens"], vec!["x", "write about the secret of tokens"]),
            (vec!["x", "--token", "--verbose"], vec!["x", "--token", "--verbose"]),
        ] {
            assert_eq!(argv(&given), shown);
        }
    }
}
