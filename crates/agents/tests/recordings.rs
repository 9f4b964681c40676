//! Compares every recording of a real CLI with a table of its content.
//!
//! `expected.tsv` does not come from the readers: it was counted from the recordings independently.
use dogwatch_agents::{Reader, Splitter};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::sign::{Sign, Totals};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn reader_name(agent: &str) -> ReaderName {
    ReaderName::named(agent).expect("the table names known agents")
}

/// Returns the lines that the CLI printed, unchanged.
fn stdout_of(agent: &str, capture: &str) -> Vec<String> {
    let path = fixtures().join(agent).join(format!("{capture}.jsonl"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let line = |record: &str| {
        let record: serde_json::Value = serde_json::from_str(record).expect("recordings are JSON lines");
        record["line"].as_str().expect("every record holds a line").to_owned()
    };
    text.lines().map(line).collect()
}

fn stderr_of(agent: &str, capture: &str) -> String {
    fs::read_to_string(fixtures().join(agent).join(format!("{capture}.stderr"))).unwrap_or_default()
}

/// Reads a whole session in chunks that cut lines anywhere.
fn signs_of(agent: &str, capture: &str, chunk: usize) -> Vec<Sign> {
    let mut reader = Reader::for_name(reader_name(agent));
    let (mut splitter, mut signs) = (Splitter::new(), Vec::new());
    let stdout = stdout_of(agent, capture).join("\n");
    for piece in stdout.as_bytes().chunks(chunk) {
        splitter.feed(piece, |line| reader.read_line(line, &mut signs));
    }
    splitter.finish(|line| reader.read_line(line, &mut signs));
    stderr_of(agent, capture).lines().for_each(|line| reader.read_stderr(line.as_bytes(), &mut signs));
    reader.finish(&mut signs);
    signs
}

fn row_of(agent: &str, capture: &str) -> String {
    let signs = signs_of(agent, capture, 1000);
    let of = |wanted: fn(&Sign) -> bool| signs.iter().filter(|sign| wanted(sign)).count().to_string();
    let failed_tools = of(|sign| matches!(sign, Sign::ToolEnded { ok: false, .. }));
    let results = of(|sign| matches!(sign, Sign::Result(_)));
    let drift = of(|sign| *sign == Sign::Drift);
    let mut totals = Totals::default();
    signs.iter().for_each(|sign| totals.add(sign));
    let or_dash = |value: Option<String>| value.unwrap_or("-".to_owned());
    let result = totals.result.as_ref();
    [
        agent.to_owned(),
        capture.to_owned(),
        totals.messages.to_string(),
        totals.tools.to_string(),
        totals.errors.to_string(),
        if result.is_some() { "yes".to_owned() } else { "no".to_owned() },
        or_dash(result.map(|r| r.is_error.to_string())),
        or_dash(result.and_then(|r| r.api_status).map(|s| s.to_string())),
        or_dash(totals.tokens.map(|n| n.to_string())),
        or_dash(totals.cost_usd.map(|c| format!("{c:.6}"))),
        totals.subagents.to_string(),
        failed_tools,
        results,
        or_dash(totals.limit.map(|limit| limit.kind.to_string())),
        if totals.auth_failed.is_some() { "yes".to_owned() } else { "no".to_owned() },
        drift,
    ]
    .join("\t")
}

fn table() -> Vec<(String, String, String)> {
    let rows = include_str!("expected.tsv").lines().skip(1);
    let key = |row: &str| {
        let mut cells = row.split('\t').map(str::to_owned);
        (cells.next().unwrap_or_default(), cells.next().unwrap_or_default(), row.to_owned())
    };
    rows.map(key).collect()
}

#[test]
fn every_recording_matches_the_table() {
    let wrong: Vec<String> = table()
        .into_iter()
        .map(|(agent, capture, row)| (row_of(&agent, &capture), row))
        .filter(|(read, wanted)| read != wanted)
        .map(|(read, wanted)| format!("wanted {wanted}\n  read {read}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_recording_is_in_the_table() {
    let listed: BTreeSet<(String, String)> =
        table().into_iter().map(|(agent, capture, _)| (agent, capture)).collect();
    for agent in ["claude", "codex", "opencode", "gemini"] {
        let files = fs::read_dir(fixtures().join(agent)).expect("the fixtures are part of the repository");
        let paths = files.map(|file| file.expect("a directory can be listed").path());
        for path in paths.filter(|path| path.extension().is_some_and(|ext| ext == "jsonl")) {
            let capture = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            assert!(listed.contains(&(agent.to_owned(), capture.clone())), "{agent}/{capture}");
        }
    }
}

#[test]
fn no_line_of_a_recording_is_unknown() {
    for (agent, capture, _) in table() {
        let unknown =
            signs_of(&agent, &capture, 4096).into_iter().filter(|sign| *sign == Sign::Unknown).count();
        assert_eq!(unknown, 0, "{agent}/{capture}");
    }
}

#[test]
fn recordings_contain_no_paths_of_the_recording_machine() {
    for (agent, capture, _) in table() {
        let text = stdout_of(&agent, &capture).join("\n") + &stderr_of(&agent, &capture);
        for place in ["/work/", "/root/", "/farm/"] {
            assert!(!text.contains(place), "{agent}/{capture} names {place}");
        }
    }
}

#[test]
fn no_truncated_or_corrupted_line_makes_a_reader_panic() {
    for (agent, capture, _) in table() {
        let mut reader = Reader::for_name(reader_name(&agent));
        let mut signs = Vec::new();
        for (n, line) in stdout_of(&agent, &capture).iter().take(8).enumerate() {
            mutants(line.as_bytes(), n).for_each(|mutant| {
                reader.read(&mutant, &mut signs);
                reader.read_line(dogwatch_agents::Line { bytes: &mutant, cut: true }, &mut signs);
                signs.clear();
            });
        }
        reader.finish(&mut signs);
    }
}

/// Returns variants of the line at positions spread over it: the part before, the part after, and the line with one
/// byte changed: a flipped bit, a quote, a bracket or a NUL.
fn mutants(line: &[u8], seed: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
    let step = (line.len() / 12).max(1);
    (seed % step..line.len()).step_by(step).flat_map(move |at| {
        let with = |byte: u8| {
            let mut mutant = line.to_vec();
            mutant[at] = byte;
            mutant
        };
        let torn = line[..at].to_vec();
        let headless = line[at..].to_vec();
        [torn, headless, with(line[at] ^ 0x80), with(b'"'), with(b'\\'), with(b'{'), with(b']'), with(0)]
    })
}

#[test]
fn lines_that_serde_accepts_are_read_and_truncated_ones_are_not() {
    let mut signs = Vec::new();
    for (agent, capture, _) in table() {
        for line in stdout_of(&agent, &capture).iter().take(6) {
            let mut reader = Reader::for_name(reader_name(&agent));
            reader.read(line.as_bytes(), &mut signs);
            assert!(!signs.is_empty(), "{agent}/{capture}: {line}");
            signs.clear();
            for end in [1, line.len() / 3, line.len() / 2, line.len() - 1] {
                reader.read(&line.as_bytes()[..end], &mut signs);
                assert_eq!(signs, [], "{agent}/{capture}: {end} bytes of {line}");
            }
        }
    }
}
