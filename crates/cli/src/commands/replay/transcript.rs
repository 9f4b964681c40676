//! Replays a transcript of an agent's CLI, each user turn alone.

use super::read::Lines;
use crate::error::CliError;
use crate::screen::words;
use dogwatch_agents::{Format, Record, Transcript};
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::time::moment::{Awake, Wall};
use dogwatch_core::watch::Session;
use dogwatch_core::watch::feed::Stream;
use dogwatch_core::watch::replay::{Finish, Looks, Player, Replayed, SessionName};
use dogwatch_core::watch::sign::Sign;
use std::collections::BTreeMap;

/// The most unknown types of records that are counted by name.
const MAX_KINDS: usize = 100;
/// The most unknown types of records that are printed.
const MAX_NAMED: usize = 8;

/// A user turn during its replay.
struct Turn {
    player: Player,
    started: Option<Wall>,
    last: Awake,
}

impl Turn {
    fn begin(turn: u64, started: Option<Wall>, format: Format, policy: &WatchPolicy) -> Turn {
        let session = Session::new(Awake(0), format.agent().is_structured());
        let name = SessionName::Turn { turn };
        let player = Player::new(policy.clone(), session, Some(name), Looks::EveryDue);
        let mut turn = Turn { player, started, last: Awake(0) };
        // A live CLI prints a line as soon as it has the prompt. A transcript does not record that line.
        turn.take(None, &mut vec![Sign::Keepalive]);
        turn
    }

    fn take(&mut self, at: Option<Wall>, signs: &mut Vec<Sign>) {
        if let (Some(at), Some(started)) = (at, self.started) {
            let since = u64::try_from(at.0.saturating_sub(started.0)).unwrap_or(0);
            // Results of parallel calls may be written out of order.
            self.last = self.last.max(Awake(since));
        }
        self.player.take(self.last, |feed| feed.line(self.last, Stream::Stdout, signs));
    }

    fn finish(self, outcome: Option<&'static str>) -> Replayed {
        self.player.finish(self.last, &outcome.map_or(Finish::Looked, Finish::Known))
    }
}

/// Replays all turns of a transcript. Notes skipped records on stderr.
pub fn replay(mut lines: Lines, format: Format, policy: &WatchPolicy) -> Result<Vec<Replayed>, CliError> {
    let mut transcript = Transcript::new(format);
    let (mut done, mut open) = (Vec::new(), None::<Turn>);
    let (mut signs, mut unknown) = (Vec::new(), BTreeMap::<String, u64>::new());
    while let Some(line) = lines.next()? {
        // Reading a prompt resets the state of the previous turn.
        let before = transcript.outcome(true);
        let (at, record) = transcript.read(line, &mut signs);
        match record {
            Record::Prompt => {
                done.extend(open.take().map(|turn| turn.finish(before)));
                open = Some(Turn::begin(done.len() as u64 + 1, at, format, policy));
            }
            Record::Withdrawn => open = None,
            Record::Agent => {
                if let Some(turn) = &mut open {
                    turn.take(at, &mut signs);
                }
            }
            Record::Nothing => {}
            Record::Unknown(kind) if unknown.len() < MAX_KINDS || unknown.contains_key(&kind) => {
                *unknown.entry(kind).or_default() += 1;
            }
            Record::Unknown(_) => *unknown.entry("other types".to_owned()).or_default() += 1,
        }
        signs.clear();
    }
    done.extend(open.take().map(|turn| turn.finish(transcript.outcome(false))));
    if done.is_empty() {
        crate::runs::note("the transcript has no user turn");
    }
    if !unknown.is_empty() {
        crate::runs::note(&skipped(&unknown));
    }
    Ok(done)
}

/// Returns a note about the skipped records.
fn skipped(unknown: &BTreeMap<String, u64>) -> String {
    let count: u64 = unknown.values().sum();
    let named: Vec<String> =
        unknown.iter().take(MAX_NAMED).map(|(kind, n)| format!("{kind} ({n})")).collect();
    let more = if unknown.len() > MAX_NAMED { ", ..." } else { "" };
    let records = words::count(count, "record");
    format!("skipped {records} of unknown types: {}{more}", named.join(", "))
}
