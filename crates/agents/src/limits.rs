//! Finds out why a service refused a request from the status codes, messages and exit codes of a failing CLI.
//!
//! Only failures are examined, never the output of an agent or a tool, which may mention rate limits for any reason.

use crate::reader::MAX_ERROR;
use crate::resets;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::text::clip;
use dogwatch_core::watch::sign::{Limit, LimitKind, ResetsAt, Sign, Totals};

/// Returns the sign of a refusal if one caused the failure.
pub(crate) fn refusal(status: Option<u16>, text: &str, known: Option<ResetsAt>) -> Option<Sign> {
    let text = clip(text, MAX_ERROR);
    let lower = text.to_ascii_lowercase();
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
    let resets_at = || known.clone().or_else(|| resets::find(text));
    let limit = |kind, resets_at| Some(Sign::Limit(Limit { kind, resets_at, text: text.to_owned() }));
    if is_used_up(&lower) {
        return limit(LimitKind::RateLimit, resets_at());
    }
    match status {
        Some(401 | 403) => return Some(Sign::AuthFailed { text: text.to_owned() }),
        Some(429) => {}
        Some(500..) => return limit(LimitKind::Overload, resets_at()),
        Some(_) => return None,
        None if has(LOGIN) || is_missing_key(&lower) => {
            return Some(Sign::AuthFailed { text: text.to_owned() });
        }
        None if has(OVERLOAD) => return limit(LimitKind::Overload, resets_at()),
        None if has(TOO_MANY) => {}
        None => return None,
    }
    // Too many requests: a limit if a reset time is known, an overload otherwise.
    match resets_at() {
        Some(at) => limit(LimitKind::RateLimit, Some(at)),
        None => limit(LimitKind::Overload, None),
    }
}

/// Returns whether the allowance of a plan is used up. Such a limit resets, even if the message gives no time.
fn is_used_up(lower: &str) -> bool {
    let phrases =
        ["usage limit", "session limit", "weekly limit", "5-hour limit", "hourly limit", "opus limit"];
    phrases.iter().any(|phrase| lower.contains(phrase))
        || (lower.contains("hit your") && lower.contains("limit"))
        || (lower.contains("limit reached") && !lower.contains("context") && !lower.contains("token"))
}

const LOGIN: &[&str] = &[
    "not logged in",
    "please run /login",
    "invalid api key",
    "invalid_api_key",
    "incorrect api key",
    "api key not valid",
    "authentication_error",
    "authentication failed",
    "unauthenticated",
    "401 unauthorized",
    "oauth token has expired",
    "must specify the gemini_api_key",
    "invalid auth method",
];

const OVERLOAD: &[&str] = &["overloaded", "service unavailable", "bad gateway", "internal server error"];

const TOO_MANY: &[&str] = &[
    "too many requests",
    "rate limit",
    "rate_limit",
    "ratelimit",
    "resource_exhausted",
    "exceeded your current quota",
];

/// Infers the HTTP status of a refusal from its message.
pub(crate) fn status_by_words(text: &str) -> Option<u16> {
    let lower = text.to_ascii_lowercase();
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
    match () {
        () if is_used_up(&lower) || has(TOO_MANY) => Some(429),
        () if has(OVERLOAD) => Some(503),
        () => None,
    }
}

/// Matches ``Missing environment variable: `OPENAI_API_KEY`.``
fn is_missing_key(lower: &str) -> bool {
    lower.contains("missing environment variable") && (lower.contains("key") || lower.contains("token"))
}

/// Returns the refusal implied by an exit code. Gemini exits with the HTTP status modulo 256, or with a
/// special code. Refusals already read from the output take precedence, because an exit code has no reset time.
pub fn from_exit(reader: ReaderName, code: i32, said: &Totals) -> Option<Sign> {
    if reader != ReaderName::Gemini || said.limit.is_some() || said.auth_failed.is_some() {
        return None;
    }
    const GEMINI_AUTH: i32 = 41;
    if code == GEMINI_AUTH {
        return Some(Sign::AuthFailed { text: format!("exit code {code}") });
    }
    let statuses = [401, 403, 429, 500, 502, 503, 504, 529];
    let status = statuses.into_iter().find(|status| i32::from(*status % 256) == code)?;
    refusal(Some(status), &format!("exit code {code} (HTTP {status})"), None)
}

/// Returns whether a line of stderr reports a missing login. Other lines there may be about anything.
pub(crate) fn is_login(line: &[u8]) -> bool {
    const LINES: &[&str] = &[
        "When using Gemini API, you must specify the GEMINI_API_KEY",
        "Invalid auth method selected",
        "Please set an Auth method",
        "Invalid API key",
        "Not logged in",
    ];
    LINES.iter().any(|start| line.starts_with(start.as_bytes()))
}

pub(crate) fn login(line: &[u8]) -> Sign {
    let text = String::from_utf8_lossy(line);
    let text = match hint(&text) {
        // The line names the settings file of the session's own home, which is removed with the session.
        Some(hint) if text.starts_with(GEMINI_LOGIN) => format!("{GEMINI_LOGIN}: {hint}"),
        Some(_) | None => clip(&text, MAX_ERROR).to_owned(),
    };
    Sign::AuthFailed { text }
}

/// The start of Gemini's answer without a login.
const GEMINI_LOGIN: &str = "Please set an Auth method";

/// Returns what the user can do about an error that an agent's CLI prints, if the CLI does not say it itself.
pub fn hint(error: &str) -> Option<&'static str> {
    if error.starts_with(GEMINI_LOGIN) {
        return Some("run `gemini` once and log in, or set GEMINI_API_KEY");
    }
    error
        .contains("cannot be used with root/sudo privileges")
        .then_some("set IS_SANDBOX=1 if this is a container, or run dogwatch as another user")
}

/// Finds the status in `unexpected status 529 <unknown status code>: Overloaded` or `last status: 429 …`.
pub(crate) fn status_in(text: &str) -> Option<u16> {
    ["status ", "status: "].iter().filter_map(|before| text.split_once(before)).find_map(|(_, behind)| {
        let digits = behind.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|status| (100..600).contains(status))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::time::dur::Dur;

    fn kind(status: Option<u16>, text: &str) -> &'static str {
        match refusal(status, text, None) {
            None => "none",
            Some(Sign::AuthFailed { .. }) => "auth",
            Some(Sign::Limit(Limit { kind: LimitKind::Overload, .. })) => "overload",
            Some(Sign::Limit(Limit { resets_at: Some(_), .. })) => "limit until",
            Some(Sign::Limit(_)) => "limit",
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_that_the_user_can_fix_come_with_a_hint() {
        let line = "Please set an Auth method in your /run/x/.gemini/settings.json or specify one of: GEMINI_API_KEY";
        let Sign::AuthFailed { text } = login(line.as_bytes()) else { panic!("a login problem") };
        assert_eq!(text, "Please set an Auth method: run `gemini` once and log in, or set GEMINI_API_KEY");
        let Sign::AuthFailed { text } = login(b"Not logged in") else { panic!("a login problem") };
        assert_eq!(text, "Not logged in");
        let root = include_str!("../../../fixtures/claude/root_refused.stderr");
        assert!(hint(root).is_some_and(|hint| hint.contains("IS_SANDBOX=1")));
        assert_eq!(hint("exit 1"), None);
    }

    #[test]
    fn refusals_are_classified() {
        for (status, text, wanted) in [
            (Some(401), "invalid api key", "auth"),
            (Some(403), "forbidden", "auth"),
            (None, "Not logged in · Please run /login", "auth"),
            (None, "Missing environment variable: `FAKE_API_KEY`.", "auth"),
            (None, "Missing environment variable: `EDITOR`.", "none"),
            (Some(429), "This request would exceed your rate limit.", "overload"),
            (Some(429), "Too Many Requests, please try again in 5 minutes", "limit until"),
            (Some(500), "oops", "overload"),
            (Some(502), "", "overload"),
            (Some(503), "", "overload"),
            (Some(529), "Overloaded", "overload"),
            (None, "Overloaded", "overload"),
            (Some(400), "prompt is too long: 210000 tokens > 200000 maximum", "none"),
            (Some(400), "rate limit of the universe", "none"),
            (None, "Prompt is too long · the request is ~210000 tokens (limit 200000)", "none"),
            (None, "Context limit reached", "none"),
            (None, "Reached maximum number of turns (2)", "none"),
            (None, "Claude AI usage limit reached|1762952400", "limit until"),
            (None, "5-hour limit reached ∙ resets 2am", "limit until"),
            (
                Some(429),
                "You've hit your session limit · resets 12:50am (America/Los_Angeles)",
                "limit until",
            ),
            (
                None,
                "You've hit your usage limit. Upgrade to Pro or try again in 3 hours 2 minutes.",
                "limit until",
            ),
            (None, "You've hit your usage limit. Upgrade, or wait for limits to reset (every 5h).", "limit"),
            (None, "fetch failed sending request", "none"),
        ] {
            assert_eq!(kind(status, text), wanted, "{status:?} {text}");
        }
    }

    #[test]
    fn a_header_takes_precedence_over_the_text() {
        let known = Some(ResetsAt::In(Dur::from_secs(9)));
        let Some(Sign::Limit(limit)) = refusal(Some(429), "try again in 5 minutes", known.clone()) else {
            panic!("a limit");
        };
        assert_eq!((limit.kind, limit.resets_at), (LimitKind::RateLimit, known));
    }

    #[test]
    fn only_exit_codes_of_gemini_map_to_http_statuses() {
        let of = |code| match from_exit(ReaderName::Gemini, code, &Totals::default()) {
            Some(Sign::AuthFailed { .. }) => "auth",
            Some(Sign::Limit(Limit { kind: LimitKind::Overload, resets_at: None, .. })) => "overload",
            None => "none",
            Some(other) => panic!("{other:?}"),
        };
        for (code, wanted) in [
            (0, "none"),
            (1, "none"),
            (41, "auth"),
            (42, "none"),
            (53, "none"),
            (144, "none"),
            (145, "auth"),
            (147, "auth"),
            (173, "overload"),
            (244, "overload"),
            (246, "overload"),
            (247, "overload"),
            (17, "overload"),
            (-1, "none"),
        ] {
            assert_eq!(of(code), wanted, "{code}");
        }
        for reader in [ReaderName::Plain, ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode] {
            assert_eq!(from_exit(reader, 41, &Totals::default()), None, "{reader}");
        }
    }

    #[test]
    fn an_exit_code_does_not_override_a_reported_refusal() {
        let mut said = Totals::default();
        said.add(&refusal(Some(429), "usage limit; try again in 1 hour", None).expect("a limit"));
        assert_eq!(from_exit(ReaderName::Gemini, 173, &said), None);
        let mut refused = Totals::default();
        refused.add(&Sign::AuthFailed { text: "no".into() });
        assert_eq!(from_exit(ReaderName::Gemini, 173, &refused), None);
    }

    #[test]
    fn a_status_is_found_in_a_text() {
        assert_eq!(status_in("unexpected status 529 <unknown status code>: Overloaded"), Some(529));
        assert_eq!(status_in("exceeded retry limit, last status: 429 Too Many Requests"), Some(429));
        assert_eq!(status_in("status quo"), None);
    }
}
