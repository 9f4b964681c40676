//! The readers of real agents must understand the actor, or it drives nothing.

mod common;

use common::play;
use dogwatch_agents::{Marker, Reader, last_marker};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::sign::{Sign, Tally};

fn signs(name: ReaderName, steps: &str) -> Vec<Sign> {
    let mut reader = Reader::for_name(name);
    let mut signs = Vec::new();
    for line in play(steps).stdout().lines() {
        reader.read(line.as_bytes(), &mut signs);
    }
    reader.finish(&mut signs);
    signs
}

fn tally(signs: Vec<Sign>) -> Tally {
    let mut tally = Tally::default();
    signs.iter().for_each(|sign| tally.add(sign));
    tally
}

fn idle_marker(tally: &Tally, structured: bool) -> Option<Marker> {
    last_marker(&tally.result.as_ref().expect("a result").text, structured, "")
}

#[test]
fn a_claude_session_is_read_as_what_it_plays() {
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
    let tally = tally(signs);
    assert_eq!((tally.tools, tally.unknown), (3, 0));
    assert!(tally.messages >= 1 && tally.tokens.is_some() && tally.cost_usd.is_some(), "{tally:?}");
    assert!(tally.result.as_ref().is_some_and(|r| !r.is_error));
    assert!(idle_marker(&tally, true).is_some());
}

#[test]
fn the_failures_of_claude_are_read_as_failures() {
    for (steps, status) in [
        ("claude is_error 529 overloaded", Some(529)),
        ("claude error broken", None),
        ("claude is_error refused", None),
    ] {
        let result = tally(signs(ReaderName::Claude, steps)).result.expect("a result");
        assert_eq!((result.is_error, result.api_status), (true, status), "{steps}");
    }
}

#[test]
fn a_json_flood_is_read_without_a_line_that_nobody_knows() {
    let tally = tally(signs(ReaderName::Claude, "flood-json 1M"));
    assert!(tally.unknown == 0 && tally.messages > 100 && tally.tools > 100, "{tally:?}");
}

#[test]
fn a_subagent_is_no_message_of_the_agent() {
    let signs = signs(ReaderName::Claude, "claude tool-start Task look; claude subagent seen");
    assert!(signs.iter().any(|s| matches!(s, Sign::SubagentProgress { .. })), "{signs:?}");
}

#[test]
fn a_plain_actor_goes_idle_by_its_marker() {
    let tally = tally(signs(ReaderName::Plain, "say nothing to do; marker idle no_pending_tasks"));
    assert!(idle_marker(&tally, false).is_some(), "{tally:?}");
}
