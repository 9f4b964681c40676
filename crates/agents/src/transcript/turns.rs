//! Replays the user turns of a transcript, each alone.

use super::{About, Format, Record, Transcript};
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::time::moment::{Awake, Wall};
use dogwatch_core::watch::Session;
use dogwatch_core::watch::feed::Stream;
use dogwatch_core::watch::replay::{Finish, Looks, Player, Replayed, SessionName};
use dogwatch_core::watch::sign::Sign;
use std::collections::BTreeMap;

/// The most unknown types of records that are counted by name.
const MAX_KINDS: usize = 100;

/// A replay of a transcript, record by record.
pub struct Turns {
    format: Format,
    policy: WatchPolicy,
    measure: bool,
    transcript: Transcript,
    done: Vec<Replayed>,
    open: Option<Turn>,
    signs: Vec<Sign>,
    unknown: BTreeMap<String, u64>,
}

/// The replayed turns, and what was read.
pub struct Transcribed {
    /// The turns in order.
    pub turns: Vec<Replayed>,
    /// The session, as the records describe it.
    pub about: About,
    /// The skipped records of unknown types, with their number.
    pub unknown: BTreeMap<String, u64>,
}

/// A user turn during its replay.
struct Turn {
    player: Player,
    started: Option<Wall>,
    last: Awake,
}

impl Turn {
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

impl Turns {
    /// Creates a replay of a transcript with this policy. `measure` also measures how much of each limit the turns use.
    pub fn new(format: Format, policy: WatchPolicy, measure: bool) -> Turns {
        Turns {
            format,
            policy,
            measure,
            transcript: Transcript::new(format),
            done: Vec::new(),
            open: None,
            signs: Vec::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// Takes the next record.
    pub fn take(&mut self, line: &[u8]) {
        // Reading a prompt resets the state of the previous turn.
        let before = self.transcript.outcome(true);
        let (at, record) = self.transcript.read(line, &mut self.signs);
        match record {
            Record::Prompt => {
                self.done.extend(self.open.take().map(|turn| turn.finish(before)));
                self.open = Some(self.begin(at));
            }
            Record::Withdrawn => self.open = None,
            Record::Agent => {
                if let Some(turn) = &mut self.open {
                    turn.take(at, &mut self.signs);
                }
            }
            Record::Nothing => {}
            Record::Unknown(kind) if self.unknown.len() < MAX_KINDS || self.unknown.contains_key(&kind) => {
                *self.unknown.entry(kind).or_default() += 1;
            }
            Record::Unknown(_) => *self.unknown.entry("other types".to_owned()).or_default() += 1,
        }
        self.signs.clear();
    }

    fn begin(&self, started: Option<Wall>) -> Turn {
        let session = Session::new(Awake(0), self.format.agent().is_structured());
        let name = SessionName::Turn { turn: self.done.len() as u64 + 1 };
        let player = Player::new(self.policy.clone(), session, Some(name), Looks::EveryDue);
        let mut turn = Turn { player: player.measuring(self.measure), started, last: Awake(0) };
        // A live CLI prints a line as soon as it has the prompt. A transcript does not record that line.
        turn.take(None, &mut vec![Sign::Keepalive]);
        turn
    }

    /// Ends the replay.
    pub fn finish(mut self) -> Transcribed {
        let outcome = self.transcript.outcome(false);
        self.done.extend(self.open.take().map(|turn| turn.finish(outcome)));
        Transcribed { turns: self.done, about: self.transcript.about().clone(), unknown: self.unknown }
    }
}
