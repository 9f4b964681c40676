//! Every target holds on its corpus, on the findings that were kept, and on some mutated inputs.

use dogwatch_fuzz::mutate::mutated;
use dogwatch_fuzz::{TARGETS, corpus};
use dogwatch_host::store::journal::{self, FILE};
use dogwatch_sim::dice::Dice;

/// Mutated inputs of each target in the quick suite.
const QUICK: u64 = 300;
const FULL: u64 = 20_000;

fn full() -> bool {
    std::env::var_os("DOGWATCH_FULL").is_some()
}

fn holds(name: &str) {
    let (_, run) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    corpus::kept(name).iter().for_each(|input| run(input));
    let seeds = corpus::seeds(name);
    let mut dice = Dice::new(7);
    for _ in 0..if full() { FULL } else { QUICK } {
        run(&mutated(&seeds, &mut dice));
    }
}

macro_rules! hold {
    ($($test:ident: $target:literal,)*) => {
        $(#[test] fn $test() { holds($target); })*
        #[test]
        fn every_target_has_a_test() {
            assert_eq!([$($target),*], TARGETS.map(|(name, _)| name));
        }
    };
}

hold! {
    lines_do_not_depend_on_chunks: "splitter",
    sanitized_text_is_fit_for_a_terminal: "sanitizer",
    redacted_text_has_no_keys: "redactor",
    a_marker_is_one_line_and_an_echo_is_not_a_marker: "marker",
    fingerprints_are_bounded_for_any_text: "fingerprint",
    the_json_scanner_agrees_with_serde_json: "json",
    readers_accept_any_bytes_in_any_chunks: "readers",
    loop_files_load_or_report_errors: "loop_file",
    graphs_load_or_report_errors: "graph",
    journals_are_read_up_to_their_first_problem: "journal",
    keeper_frames_are_rejected_or_survive_a_round_trip: "keeper_wire",
    requests_of_agents_are_read_or_refused: "channel",
}

/// Returns whether a reader of the journal notices that it was changed.
fn is_detected(journal: &[u8]) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join(FILE), journal).expect("writes");
    match journal::load(dir.path()) {
        Ok(loaded) => loaded.chain.broken().is_some() || !loaded.torn.is_empty(),
        Err(_) => true,
    }
}

// promise: 5
#[test]
fn every_changed_byte_of_a_journal_is_detected() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/tests/golden/v1/events.jsonl");
    let golden = std::fs::read(path).expect("the golden journal");
    assert!(!is_detected(&golden), "the journal itself is good");
    // No later line contains the hash of the last one.
    let last = golden[..golden.len() - 1].iter().rposition(|b| *b == b'\n').expect("many lines");
    let step = if full() { 1 } else { 509 };
    for at in (0..=last).step_by(step) {
        for change in [1, 0x20, 0xff] {
            let mut changed = golden.clone();
            changed[at] ^= change;
            assert!(is_detected(&changed), "byte {at} with {change:#x}");
        }
    }
}
