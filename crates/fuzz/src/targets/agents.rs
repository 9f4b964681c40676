//! The output of agents: all readers, and the JSON scanner compared with serde_json.

use dogwatch_agents::json::{Json, Raw};
use dogwatch_agents::{Format, Reader, Splitter, Transcript};
use dogwatch_core::settings::ReaderName;
use serde_json::Value;

/// Every line that serde_json accepts as an object is accepted, with the same fields.
pub fn json(input: &[u8]) {
    for line in input.split(|b| *b == b'\n') {
        let mut fields = Vec::new();
        let accepted = Json::object(line, |key, value| fields.push((Raw(key).decode(), value.span())));
        let Ok(Value::Object(expected)) = serde_json::from_slice(line) else { continue };
        assert!(accepted, "{}", String::from_utf8_lossy(line));
        // serde_json keeps the last of two equal keys.
        if expected.len() != fields.len() {
            continue;
        }
        for ((key, span), (wanted, value)) in fields.iter().zip(&expected) {
            assert_eq!(key, wanted);
            same(span, value);
        }
    }
}

fn same(span: &[u8], value: &Value) {
    match value {
        Value::String(text) => {
            assert_eq!(Json::value(span).text().map(|raw| raw.decode()).as_deref(), Some(text.as_str()));
        }
        Value::Bool(yes) => assert_eq!(Json::value(span).is_true(), *yes),
        Value::Null => assert!(Json::value(span).is_null()),
        Value::Number(number) => {
            if let Some(whole) = number.as_u64() {
                assert_eq!(Json::value(span).whole(), Some(whole));
            }
        }
        Value::Array(items) => {
            let mut spans = Vec::new();
            Json::value(span).items(|item| spans.push(item.span()));
            assert_eq!(spans.len(), items.len());
            spans.iter().zip(items).for_each(|(span, item)| same(span, item));
        }
        Value::Object(_) => {}
    }
}

/// No reader fails, and the size of the chunks does not matter.
pub fn readers(input: &[u8]) {
    for name in ReaderName::ALL.iter().copied() {
        let read = |size: usize| {
            let (mut reader, mut splitter, mut signs) = (Reader::for_name(name), Splitter::new(), Vec::new());
            for chunk in input.chunks(size) {
                splitter.feed(chunk, |line| reader.read_line(line, &mut signs));
            }
            splitter.finish(|line| reader.read_line(line, &mut signs));
            reader.finish(&mut signs);
            signs
        };
        let whole = format!("{:?}", read(usize::MAX));
        assert_eq!(whole, format!("{:?}", read(7)), "{name:?}");
        let (mut reader, mut signs) = (Reader::for_name(name), Vec::new());
        input.split(|b| *b == b'\n').for_each(|line| reader.read_stderr(line, &mut signs));
    }
    let lines = input.split(|b| *b == b'\n');
    if let Some(format) = lines.clone().find_map(Format::of) {
        let (mut transcript, mut signs) = (Transcript::new(format), Vec::new());
        for line in lines {
            transcript.read(line, &mut signs);
        }
    }
}
