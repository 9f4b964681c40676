//! Runs with a hundred thousand events.

use crate::Serve;
use crate::browser::Page;
use crate::kit::Project;
use crate::night::{Night, Shape};

/// A generous limit of processor time, which a loaded machine does not change. The test prints the real figures.
const BOUND_MS: f64 = 20_000.0;

#[test]
fn a_hundred_thousand_events_load_quickly_and_scroll_smoothly() {
    let project = Project::new();
    let run = Night::new(&project).write("long", 1, &Shape { observed: 100_000, ..Shape::loops() });
    let serve = Serve::start(&project);
    let mut page = serve.open(&project);
    page.eval("document.querySelector('.runs') && true");
    let mut used = page.cpu_ms();
    let mut more = |page: &mut Page| {
        let now = page.cpu_ms();
        now - std::mem::replace(&mut used, now)
    };
    let shown = page.eval(&format!(
        "new Promise((done) => {{ const began = performance.now(); location.hash = '#/run/{run}'; \
         const look = () => document.querySelector('.run-page[data-ready]') ? requestAnimationFrame(() => done(performance.now() - began)) : setTimeout(look, 10); look(); }})"
    ));
    let load = more(&mut page);
    let ready = page.eval("Number(document.querySelector('.run-page').dataset.ready)");
    assert!(ready.as_u64().is_some_and(|n| n > 100_000), "{ready}");
    // Zooms and moves in twenty steps and draws each of them.
    page.eval(
        "(async () => { const c = document.querySelector('canvas.lanes'); c.focus(); \
         for (let i = 0; i < 20; i++) { c.dispatchEvent(new KeyboardEvent('keydown', { key: ['+', 'ArrowLeft', '-', 'ArrowRight'][i % 4], bubbles: true })); \
         await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next))); } })()",
    );
    let step = more(&mut page) / 20.0;
    page.eval("(() => { const f = document.querySelector('.events input'); f.value = 'hard'; f.dispatchEvent(new Event('input')); })()");
    let search = more(&mut page);
    println!(
        "100,000 events: shown after {shown} ms, {load} ms of CPU; a step of the axis {step} ms, a search {search} ms"
    );
    for (what, ms) in [("load", load), ("step", step), ("search", search)] {
        assert!(ms > 0.0 && ms < BOUND_MS, "{what} took {ms} ms");
    }
    page.screenshot("volume");
    page.assert_no_errors();
}

/// The memory of a page is bounded: the list drops plain progress, and the lanes merge neighbors.
#[test]
fn a_page_open_for_weeks_has_bounded_memory() {
    let project = Project::new();
    let serve = Serve::start(&project);
    let mut page = serve.open(&project);
    let seen = page.eval(
        "(async () => { const { Lane, Model, MAX_RECORDS, MAX_EVENTS } = await import('/app/model.js'); const lane = new Lane(); \
         for (let i = 0; i < MAX_RECORDS + 10; i++) lane.add(i, i, 1, 0); \
         let sum = 0; for (let i = 0; i < lane.count.length; i++) sum += lane.count.all[i]; \
         const model = new Model(); const at = '2026-11-15T20:00:00.000Z'; const event = (seq, event) => ({ seq, at, event, node: 'a', iteration: 1 }); \
         model.take(Array.from({ length: MAX_EVENTS }, (_, i) => event(i + 1, i % 10 ? 'used' : 'iteration_started'))); const full = model.events.length; \
         model.take([event(MAX_EVENTS + 1, 'used')]); const kept = model.events.length; \
         model.take(Array.from({ length: MAX_EVENTS }, (_, i) => event(MAX_EVENTS + 2 + i, 'notice'))); \
         return { records: lane.end.length, sum: sum - MAX_RECORDS, full: full - MAX_EVENTS, kept: kept - MAX_EVENTS / 10, last: model.events.length - MAX_EVENTS / 2, first: model.events[0].seq, seq: model.seq - 2 * MAX_EVENTS }; })()",
    );
    let expected = serde_json::json!({"records": 500_010, "sum": 10, "full": 0, "kept": 0, "last": 0, "first": 1, "seq": 1});
    assert_eq!(seen, expected);
}
