//! The process that posts one notification: reads it from stdin, posts it, and prints one line if that fails.

use super::{MAX_DOCUMENT, PostRequest};
use dogwatch_core::record::notification::{MAX_URL, Webhook};
use dogwatch_core::text::one_line;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Duration;
use ureq::Agent;

/// How long one attempt may take: connecting, sending, and the head of the response.
const POST_BOUND: Duration = Duration::from_secs(3);
/// How many times to try a server that does not respond or is temporarily unavailable.
const TRIES: u32 = 2;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest answer of a server that is read for a reason.
const MAX_REASON: u64 = 4_096;
/// The shortest part of a URL that is taken for a secret.
const MIN_SECRET: usize = 6;
/// The longest error message.
const MAX_SHOWN: usize = 300;
/// The longest input: the document as a JSON string may double in length, plus the URL.
const MAX_INPUT: u64 = (2 * MAX_DOCUMENT + MAX_URL + 100) as u64;

/// The entry point of the posting role.
pub fn main() -> ExitCode {
    match read(io::stdin().lock()).and_then(|(url, body)| post(&url, &body)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stdout(), "{}", one_line(&why, MAX_SHOWN));
            ExitCode::FAILURE
        }
    }
}

fn read(from: impl Read) -> Result<(Webhook, String), String> {
    let mut text = String::new();
    from.take(MAX_INPUT).read_to_string(&mut text).map_err(|e| e.to_string())?;
    let request: PostRequest = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let url = Webhook::parse(&request.url).map_err(|bad| bad.to_string())?;
    Ok((url, request.body))
}

/// The result of one attempt.
enum Tried {
    Done,
    /// A retry may succeed.
    Again(String),
    Failed(String),
}

fn post(url: &Webhook, body: &str) -> Result<(), String> {
    // This fails only if a provider is already installed, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let agent = agent(url);
    let mut said = String::new();
    for number in 0..TRIES {
        if number > 0 {
            std::thread::sleep(PAUSE);
        }
        match try_once(&agent, url, body) {
            Tried::Done => return Ok(()),
            Tried::Again(why) => said = why,
            Tried::Failed(why) => return Err(why),
        }
    }
    Err(format!("{said} ({TRIES} tries)"))
}

fn agent(url: &Webhook) -> Agent {
    let tls = ureq::tls::TlsConfig::builder().root_certs(ureq::tls::RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .https_only(url.is_https())
        // A redirect would send the notification to a server that the user did not name.
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(POST_BOUND))
        .user_agent(concat!("dogwatch/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls);
    // Plain HTTP is used only on this machine, so bypass any proxy.
    let config = if url.is_https() { config } else { config.proxy(None) };
    config.build().into()
}

fn try_once(agent: &Agent, url: &Webhook, body: &str) -> Tried {
    let answer = agent.post(url.as_str()).content_type("application/json").send(body);
    let mut answer = match answer {
        Ok(answer) => answer,
        // The error may contain the URL, which is secret.
        Err(error) => return Tried::Again(error.to_string().replace(url.as_str(), url.redacted().as_str())),
    };
    let status = answer.status().as_u16();
    match status {
        200..300 => Tried::Done,
        300..400 => Tried::Failed(format!("answered with a redirect ({status}), which is not followed")),
        429 | 500..600 => Tried::Again(format!("answered with status {status}{}", reason(&mut answer, url))),
        _ => Tried::Failed(format!("answered with status {status}{}", reason(&mut answer, url))),
    }
}

/// Returns what the server says about a refusal: the text of a short answer, or the description in a JSON document.
fn reason(answer: &mut ureq::http::Response<ureq::Body>, url: &Webhook) -> String {
    let Ok(text) = answer.body_mut().with_config().limit(MAX_REASON).read_to_string() else {
        return String::new();
    };
    let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let named = ["description", "message", "error"].iter().find_map(|name| json[*name].as_str());
    let said = one_line(named.unwrap_or(&text), MAX_SHOWN / 2);
    let secrets = url.as_str().split(['/', '?', '=', '&']).filter(|part| part.len() >= MIN_SECRET);
    let safe = secrets.fold(said, |said, secret| said.replace(secret, "***"));
    if safe.is_empty() { safe } else { format!(": {safe}") }
}
