//! Files: loop files, graphs, journals.

use dogwatch_config::{Flags, Format, Source, Sources, Style, load, load_graph};
use dogwatch_core::record::view::View;
use dogwatch_core::settings::ReaderName;
use dogwatch_host::store::journal::{self, FILE};

/// A loop file is loaded, or every error can be shown.
pub fn loop_file(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (flags, file) = (Flags::default(), Source { name: "RALPH.md", text: &text });
    let mut sources = Sources::of_file(file, &flags, &|_| ReaderName::Plain);
    sources.project =
        Some(Source { name: "dogwatch.toml", text: &text }).filter(|_| input.first() == Some(&b'['));
    match load(&sources, "fuzz") {
        Ok(loaded) => drop(serde_json::to_string(&loaded.plan).expect("a plan is JSON")),
        Err(errors) => {
            assert!(!errors.is_empty() && errors.iter().all(|e| !e.render(Style::Plain).is_empty()))
        }
    }
}

/// A graph is loaded in all formats, or every error can be shown.
pub fn graph(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for format in [Format::Yaml, Format::Toml, Format::Json] {
        let (flags, file) = (Flags::default(), Source { name: "graph", text: &text });
        match load_graph(&Sources::of_file(file, &flags, &|_| ReaderName::Plain), format, true) {
            Ok(loaded) => drop(serde_json::to_string(&loaded.plan).expect("a plan is JSON")),
            Err(errors) => {
                assert!(!errors.is_empty() && errors.iter().all(|e| !e.render(Style::Plain).is_empty()));
            }
        }
    }
}

/// A journal is read up to its first problem, and the events read can be folded.
pub fn journal(input: &[u8]) {
    let dir =
        tempfile::tempdir_in(if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" });
    let dir = dir.expect("a directory");
    std::fs::write(dir.path().join(FILE), input).expect("writes");
    let Ok(loaded) = journal::load(dir.path()) else { return };
    assert_eq!(usize::try_from(loaded.whole).expect("small") + loaded.torn.len(), input.len());
    let mut view = View::default();
    loaded.events.iter().for_each(|event| view.apply(event));
    assert_eq!(view.seq, loaded.events.len() as u64);
    journal::repair(dir.path(), &loaded).expect("repairs");
    let again = journal::load(dir.path()).expect("a repaired journal can be read");
    assert_eq!((again.events, again.torn.len()), (loaded.events, 0));
}
