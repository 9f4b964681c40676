//! Reads the sessions of a run and their usage from the lines of its journal.

use dogwatch_core::record::sessions::{Session, Sessions};

/// The events that start a session, report its usage or end it, as the journal writes them.
const EVENTS: [&[u8]; 4] = [
    br#""event":"session_started""#,
    br#""event":"used""#,
    br#""event":"session_ended""#,
    br#""event":"run_resumed""#,
];

/// The sessions in the lines that were read so far.
#[derive(Clone, Debug, Default)]
pub struct SessionLines {
    sessions: Sessions,
}

impl SessionLines {
    /// Reads the sessions of a journal to which more lines will be appended.
    pub fn of(journal: &[u8]) -> SessionLines {
        let mut sessions = SessionLines::default();
        for line in journal.split(|byte| *byte == b'\n') {
            sessions.take(line);
        }
        sessions
    }

    /// Takes the next line and returns the sessions that are over with it. Lines that are not events are skipped.
    pub fn take(&mut self, line: &[u8]) -> Vec<Session> {
        // Most lines say nothing about sessions. Searching them is much faster than parsing them.
        if !EVENTS.iter().any(|event| memchr::memmem::find(line, event).is_some()) {
            return Vec::new();
        }
        dogwatch_codec::read(line).map_or_else(|_| Vec::new(), |recorded| self.sessions.apply(&recorded))
    }

    /// Returns the sessions that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Session> {
        self.sessions.open()
    }
}

#[cfg(test)]
pub(in crate::store) mod tests {
    use super::*;
    use dogwatch_core::record::event::Usage;
    use dogwatch_core::time::moment::Wall;

    /// Returns the line of a session's start, report or end.
    pub(in crate::store) fn of_session(event: &str, at: Wall, iteration: u64, usage: &str) -> String {
        format!(
            "{{\"v\":1,\"seq\":1,\"at\":\"{at}\",\"awake_ms\":0,\"boot_ms\":0,\"event\":\"{event}\",\"node\":\"n\",\
             \"iteration\":{iteration},\"pid\":7,\"argv\":[],\"exit_code\":0,\"signal\":null,\"ended_by\":\"itself\",\
             \"duration_s\":1.0,\"messages\":0,\"tools\":0,\"stdout_bytes\":0,\"stderr_bytes\":0{usage}}}\n"
        )
    }

    /// Returns the line of a resume after the supervisor was lost.
    pub(in crate::store) fn resumed(at: Wall) -> String {
        format!(
            "{{\"v\":1,\"seq\":1,\"at\":\"{at}\",\"awake_ms\":0,\"boot_ms\":0,\"event\":\"run_resumed\",\
             \"run\":\"20261115-201533-k3f9\",\"boot_id\":\"b\",\"pid\":7,\"dogwatch\":\"1\"}}\n"
        )
    }

    #[test]
    fn a_resume_ends_the_session_that_the_first_part_of_the_journal_left_open() {
        let at = Wall(0);
        let before = [
            of_session("session_started", at, 1, ""),
            of_session("session_ended", at, 1, ",\"tokens\":1"),
            of_session("session_started", at, 2, ""),
            of_session("used", at, 2, ",\"tokens\":2"),
            of_session("used", at, 2, ",\"tokens\":3"),
        ];
        let mut sessions = SessionLines::of(before.concat().as_bytes());
        let tokens = |of: Vec<Session>| of.iter().map(|session| session.usage.tokens).collect::<Vec<_>>();
        assert_eq!(tokens(sessions.open().cloned().collect()), [Some(3)]);
        assert_eq!(tokens(sessions.take(resumed(at).as_bytes())), [Some(3)]);
        assert!(tokens(sessions.take(resumed(at).as_bytes())).is_empty(), "it is over");
        sessions.take(of_session("session_started", at, 3, "").as_bytes());
        let ended = sessions.take(of_session("session_ended", at, 3, ",\"cost_usd\":0.5").as_bytes());
        assert_eq!(
            ended.iter().map(|session| session.usage).collect::<Vec<_>>(),
            [Usage { cost_usd: Some(0.5), ..Usage::default() }]
        );
        for other in ["", "{", "\"event\":\"used\""] {
            assert!(sessions.take(other.as_bytes()).is_empty(), "{other}");
        }
    }
}
