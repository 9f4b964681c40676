//! Proofs of the page's requests, so that the token never travels.
//!
//! A page asks for a challenge. The answer carries the server's proof that it knows the token, so the page signs no
//! challenge of another process. The page then signs each request: HMAC-SHA-256 under the token over the method, the
//! path, the challenge, a number and the hash of the body. A challenge expires, and each of its numbers is accepted
//! once. A recorded request is therefore worthless, for this server and for every later one.

use axum::http::Method;
use dogwatch_host::store::token::{Token, digest, random_digits};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The scheme of the Authorization header that carries a proof.
const SCHEME: &str = "Dogwatch-Proof ";
/// The length of a page's nonce. A short one could be asked for in advance.
const MIN_NONCE: usize = 32;
const MAX_NONCE: usize = 128;
/// How long a challenge is good for requests that only read.
const READ_WINDOW: Duration = Duration::from_secs(60);
/// How long a challenge is good for requests that change something. The page asks for a new one each time.
const STEER_WINDOW: Duration = Duration::from_secs(10);
/// The most requests under one challenge.
const MAX_SIGNED: usize = 1024;
/// The most challenges whose numbers are remembered. Older ones are refused.
const MAX_CHALLENGES: usize = 256;

/// Why a proof is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofError {
    /// The signature is missing or wrong.
    Forged,
    /// The signature is right, but the proof was used before, has expired, or belongs to another server.
    Stale,
}

/// The proof in the Authorization header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof<'a> {
    challenge: &'a str,
    number: usize,
    /// The hash of the body, which has not been read yet.
    pub body: &'a str,
    mac: &'a str,
}

impl<'a> Proof<'a> {
    /// Parses the value of an Authorization header. Returns `None` if it carries no proof.
    pub fn parse(header: &'a [u8]) -> Option<Proof<'a>> {
        let text = std::str::from_utf8(header).ok()?;
        let (scheme, rest) = text.split_at_checked(SCHEME.len())?;
        let mut parts = rest.split('.');
        let proof = Proof {
            challenge: parts.next()?,
            number: parts.next()?.parse().ok()?,
            body: parts.next()?,
            mac: parts.next()?,
        };
        (scheme.eq_ignore_ascii_case(SCHEME) && parts.next().is_none()).then_some(proof)
    }

    /// Returns whether `body` is the body that was signed.
    pub fn covers(self, body: &[u8]) -> bool {
        self.body == digest(body)
    }

    fn message(self, method: &Method, target: &str) -> String {
        let Proof { challenge, number, body, mac: _ } = self;
        format!("dogwatch request\n{method}\n{target}\n{challenge}\n{number}\n{body}")
    }
}

/// The challenges of one server, and what was signed with them.
#[derive(Debug)]
pub(crate) struct Challenges {
    /// Tells this server apart from an earlier one.
    instance: String,
    start: Instant,
    state: Mutex<Issued>,
}

/// The issued challenges. Strangers can ask for challenges, so only those that signed a request take memory.
#[derive(Debug, Default)]
struct Issued {
    last: u64,
    /// The challenges up to this one are no longer accepted.
    forgotten: u64,
    used: BTreeMap<u64, [bool; MAX_SIGNED]>,
}

impl Challenges {
    /// Creates the challenges of a new server.
    pub fn new() -> io::Result<Challenges> {
        Ok(Challenges { instance: random_digits::<32>()?, start: Instant::now(), state: Mutex::default() })
    }

    /// Answers a page: the proof that this server knows the token, and a challenge that the proof covers. Returns `None`
    /// if the nonce is too short or too long.
    pub fn answer(&self, token: &Token, nonce: &str) -> Option<String> {
        if !(MIN_NONCE..=MAX_NONCE).contains(&nonce.len()) {
            return None;
        }
        let challenge = self.issue(self.start.elapsed());
        let mac = token.mac(format!("dogwatch server\n{nonce}\n{challenge}").as_bytes());
        Some(format!("{mac} {challenge}"))
    }

    fn issue(&self, now: Duration) -> String {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last += 1;
        format!("{}-{}-{}", self.instance, state.last, now.as_millis())
    }

    /// Accepts a proof, once. The body is checked later, with [`Proof::covers`].
    pub fn accept(
        &self,
        token: &Token,
        method: &Method,
        target: &str,
        proof: Proof<'_>,
    ) -> Result<(), ProofError> {
        self.accept_at(self.start.elapsed(), token, method, target, proof)
    }

    fn accept_at(
        &self,
        now: Duration,
        token: &Token,
        method: &Method,
        target: &str,
        proof: Proof<'_>,
    ) -> Result<(), ProofError> {
        if !token.is_mac(proof.message(method, target).as_bytes(), proof.mac) {
            return Err(ProofError::Forged);
        }
        let window = if matches!(*method, Method::GET | Method::HEAD) { READ_WINDOW } else { STEER_WINDOW };
        let (challenge, issued) = self.read(proof.challenge).ok_or(ProofError::Stale)?;
        if now.checked_sub(issued).is_none_or(|age| age > window) {
            return Err(ProofError::Stale);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if challenge <= state.forgotten || challenge > state.last {
            return Err(ProofError::Stale);
        }
        let used = state.used.entry(challenge).or_insert([false; MAX_SIGNED]);
        let number = used.get_mut(proof.number).ok_or(ProofError::Stale)?;
        if std::mem::replace(number, true) {
            return Err(ProofError::Stale);
        }
        if state.used.len() > MAX_CHALLENGES
            && let Some((oldest, _)) = state.used.pop_first()
        {
            state.forgotten = oldest;
        }
        Ok(())
    }

    /// Returns the number of a challenge and the time when it was issued, if it is one of this server.
    fn read(&self, challenge: &str) -> Option<(u64, Duration)> {
        let (number, issued) = challenge.strip_prefix(&self.instance)?.strip_prefix('-')?.split_once('-')?;
        Some((number.parse().ok()?, Duration::from_millis(issued.parse().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Server {
        challenges: Challenges,
        token: Token,
        _dir: tempfile::TempDir,
    }

    fn server() -> Server {
        let dir = tempfile::tempdir().expect("a directory");
        let token = Token::at(&dir.path().join("token")).expect("makes it");
        Server { challenges: Challenges::new().expect("randomness"), token, _dir: dir }
    }

    const STOP: &str = "/v1/runs/20261115-201533-k3f9/stop";

    impl Server {
        /// Signs a request as the page does.
        fn sign(&self, method: &Method, target: &str, challenge: &str, number: usize, body: &[u8]) -> String {
            let body = digest(body);
            let message = format!("dogwatch request\n{method}\n{target}\n{challenge}\n{number}\n{body}");
            let mac = self.token.mac(message.as_bytes());
            format!("Dogwatch-Proof {challenge}.{number}.{body}.{mac}")
        }

        fn take(&self, seconds: u64, method: &Method, target: &str, header: &str) -> Result<(), ProofError> {
            let proof = Proof::parse(header.as_bytes()).expect("a proof");
            self.challenges.accept_at(Duration::from_secs(seconds), &self.token, method, target, proof)
        }
    }

    // promise: 14
    #[test]
    fn a_proof_is_accepted_once_and_each_number_of_a_challenge_stands_for_one_request() {
        let server = server();
        let challenge = server.challenges.issue(Duration::ZERO);
        for number in [0, 7, MAX_SIGNED - 1] {
            let header = server.sign(&Method::POST, STOP, &challenge, number, b"{}");
            assert_eq!(server.take(1, &Method::POST, STOP, &header), Ok(()), "{number}");
            assert_eq!(server.take(1, &Method::POST, STOP, &header), Err(ProofError::Stale), "{number}");
            let other = server.sign(&Method::GET, "/v1/runs", &challenge, number, b"");
            assert_eq!(server.take(1, &Method::GET, "/v1/runs", &other), Err(ProofError::Stale), "{number}");
        }
        let beyond = server.sign(&Method::GET, "/v1/runs", &challenge, MAX_SIGNED, b"");
        assert_eq!(server.take(1, &Method::GET, "/v1/runs", &beyond), Err(ProofError::Stale));
    }

    // promise: 14
    #[test]
    fn a_proof_holds_for_its_method_path_number_and_body_only() {
        let server = server();
        let challenge = server.challenges.issue(Duration::ZERO);
        let other = server.challenges.issue(Duration::ZERO);
        let header = server.sign(&Method::POST, STOP, &challenge, 3, b"{}");
        let refused = |method: &Method, target: &str, header: &str| {
            assert_eq!(server.take(1, method, target, header), Err(ProofError::Forged), "{header}");
        };
        refused(&Method::GET, STOP, &header);
        refused(&Method::POST, "/v1/runs/20261115-201533-k3f9/wake", &header);
        refused(&Method::POST, &format!("{STOP}?x=1"), &header);
        refused(&Method::POST, STOP, &header.replace(".3.", ".4."));
        refused(&Method::POST, STOP, &header.replace(&challenge, &other));
        refused(&Method::POST, STOP, &header.replace(&digest(b"{}"), &digest(b"")));
        let (rest, mac) = header.rsplit_once('.').expect("has a signature");
        refused(&Method::POST, STOP, &format!("{rest}."));
        refused(&Method::POST, STOP, &format!("{rest}.{}", &mac[1..]));
        // The server's own proof covers nothing that a request could carry.
        let nonce = format!("POST\n{STOP}\n{challenge}\n3\n{}", digest(b"{}"));
        let echoed = server.token.mac(format!("dogwatch server\n{nonce}\n{challenge}").as_bytes());
        refused(&Method::POST, STOP, &format!("{rest}.{echoed}"));
        assert_eq!(server.take(1, &Method::POST, STOP, &header), Ok(()));
        let proof = Proof::parse(header.as_bytes()).expect("a proof");
        assert!(proof.covers(b"{}") && !proof.covers(b"") && !proof.covers(b"{ }"));
    }

    // promise: 14
    #[test]
    fn a_challenge_expires_sooner_for_steering_than_for_reading() {
        let server = server();
        let challenge = server.challenges.issue(Duration::from_secs(100));
        let steer = |number, seconds| {
            let header = server.sign(&Method::POST, STOP, &challenge, number, b"");
            server.take(seconds, &Method::POST, STOP, &header)
        };
        let read = |number, seconds| {
            let header = server.sign(&Method::GET, "/v1/runs", &challenge, number, b"");
            server.take(seconds, &Method::GET, "/v1/runs", &header)
        };
        let (reading, steering) = (READ_WINDOW.as_secs(), STEER_WINDOW.as_secs());
        assert_eq!(steer(0, 100 + steering), Ok(()));
        assert_eq!(steer(1, 101 + steering), Err(ProofError::Stale));
        assert_eq!(read(2, 100 + reading), Ok(()));
        assert_eq!(read(3, 101 + reading), Err(ProofError::Stale));
        assert_eq!(read(4, 99), Err(ProofError::Stale), "issued in the future");
    }

    // promise: 14
    #[test]
    fn a_challenge_of_another_server_is_refused_even_with_the_same_token() {
        let (one, mut two) = (server(), server());
        two.token = one.token.clone();
        let challenge = one.challenges.issue(Duration::ZERO);
        two.challenges.issue(Duration::ZERO);
        let header = one.sign(&Method::GET, "/v1/runs", &challenge, 0, b"");
        assert_eq!(two.take(1, &Method::GET, "/v1/runs", &header), Err(ProofError::Stale));
        assert_eq!(one.take(1, &Method::GET, "/v1/runs", &header), Ok(()));
        for made_up in ["", "-", "x-1-0", &format!("{}-9-0", two.challenges.instance), "1-0"] {
            let header = two.sign(&Method::GET, "/v1/runs", made_up, 0, b"");
            assert_eq!(two.take(1, &Method::GET, "/v1/runs", &header), Err(ProofError::Stale), "{made_up}");
        }
    }

    #[test]
    fn remembered_challenges_are_bounded_and_a_forgotten_one_is_refused() {
        let server = server();
        let challenges: Vec<String> =
            (0..=MAX_CHALLENGES).map(|_| server.challenges.issue(Duration::ZERO)).collect();
        for challenge in &challenges {
            let header = server.sign(&Method::GET, "/", challenge, 0, b"");
            assert_eq!(server.take(1, &Method::GET, "/", &header), Ok(()));
        }
        assert_eq!(server.challenges.state.lock().expect("not poisoned").used.len(), MAX_CHALLENGES);
        let again = |challenge: &str, number| {
            server.take(1, &Method::GET, "/", &server.sign(&Method::GET, "/", challenge, number, b""))
        };
        assert_eq!(again(&challenges[0], 0), Err(ProofError::Stale));
        assert_eq!(again(&challenges[0], 1), Err(ProofError::Stale));
        assert_eq!(again(&challenges[1], 1), Ok(()));
        // Asking alone takes no memory.
        (0..1000).for_each(|_| drop(server.challenges.issue(Duration::ZERO)));
        assert_eq!(again(&challenges[1], 2), Ok(()));
    }

    #[test]
    fn only_a_complete_header_is_a_proof() {
        assert!(Proof::parse(b"Dogwatch-Proof a.1.b.c").is_some());
        assert!(Proof::parse(b"dogwatch-proof a.1.b.c").is_some());
        for other in
            ["", "Bearer a.1.b.c", "Dogwatch-Proof", "Dogwatch-Proof a.1.b", "Dogwatch-Proof a.1.b.c.d"]
        {
            assert_eq!(Proof::parse(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Proof::parse(b"Dogwatch-Proof a.-1.b.c"), None);
        assert_eq!(Proof::parse(b"Dogwatch-Proof \xff.1.b.c"), None);
    }
}
