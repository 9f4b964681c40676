//! The readers for real agents must understand the actor's output.

use crate::common;

use common::play;
use dogwatch_agents::{Marker, Reader, last_marker};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::sign::{Sign, Totals};

fn signs(name: ReaderName, steps: &str) -> Vec<Sign> {
    let mut reader = Reader::for_name(name);
    let mut signs = Vec::new();
    for line in play(steps).stdout().lines() {
        reader.read(line.as_bytes(), &mut signs);
    }
    reader.finish(&mut signs);
    signs
}

fn totals(signs: Vec<Sign>) -> Totals {
    let mut totals = Totals::default();
    signs.iter().for_each(|sign| totals.add(sign));
    totals
}

fn idle_marker(totals: &Totals, structured: bool) -> Option<Marker> {
    last_marker(&totals.result.as_ref().expect("a result").text, structured, "")
}

#[test]
fn the_claude_reader_understands_a_played_session() {
    let signs = signs(
        ReaderName::Claude,
        r#"claude init; claude text hi; claude tool Bash ok make fine; claude tool Bash fail; claude tool-start Bash
           claude heartbeat; claude tool-end; claude retry
           claude result "bye\n<!-- ralph:state idle reason=no_pending_tasks -->""#,
    );
    let ends = |wanted: bool| {
        signs.iter().filter(|s| matches!(s, Sign::ToolEnded { ok, .. } if *ok == wanted)).count()
    };
    assert_eq!((ends(true), ends(false)), (2, 1));
    let totals = totals(signs);
    assert_eq!((totals.tools, totals.unknown), (3, 0));
    assert!(totals.messages >= 1 && totals.tokens.is_some() && totals.cost_usd.is_some(), "{totals:?}");
    assert!(totals.result.as_ref().is_some_and(|r| !r.is_error));
    assert!(idle_marker(&totals, true).is_some());
}

#[test]
fn the_claude_reader_recognizes_failures() {
    for (steps, status) in [
        ("claude is_error 529 overloaded", Some(529)),
        ("claude error broken", None),
        ("claude is_error refused", None),
    ] {
        let result = totals(signs(ReaderName::Claude, steps)).result.expect("a result");
        assert_eq!((result.is_error, result.api_status), (true, status), "{steps}");
    }
}

#[test]
fn the_claude_reader_knows_every_line_of_a_json_flood() {
    let totals = totals(signs(ReaderName::Claude, "flood-json 1M"));
    assert!(totals.unknown == 0 && totals.messages > 100 && totals.tools > 100, "{totals:?}");
}

#[test]
fn a_subagent_line_is_subagent_progress() {
    let signs = signs(ReaderName::Claude, "claude tool-start Task look; claude subagent seen");
    assert!(signs.iter().any(|s| matches!(s, Sign::SubagentProgress { .. })), "{signs:?}");
}

#[test]
fn the_plain_reader_finds_the_idle_marker() {
    let totals = totals(signs(ReaderName::Plain, "say nothing to do; marker idle no_pending_tasks"));
    assert!(idle_marker(&totals, false).is_some(), "{totals:?}");
}
