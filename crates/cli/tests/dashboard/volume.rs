//! A hundred thousand events.

use crate::Serve;
use crate::kit::Project;
use crate::night::{Night, Shape};

/// Far more than it takes: the figure is printed, and a machine under load must not fail the test.
const BOUND_MS: f64 = 20_000.0;

#[test]
fn a_hundred_thousand_events_are_there_soon_and_move_smoothly() {
    let project = Project::new();
    let run = Night::new(&project).write("long", 1, &Shape { observed: 100_000, ..Shape::loops() });
    let serve = Serve::start(&project);
    let mut page = serve.open(&project);
    page.eval("document.querySelector('.runs') && true");
    let took = page.eval(&format!(
        "new Promise((done) => {{ const began = performance.now(); location.hash = '#/run/{run}'; \
         const look = () => document.querySelector('.run-page[data-ready]') ? requestAnimationFrame(() => done(performance.now() - began)) : setTimeout(look, 10); look(); }})"
    ));
    let ready = page.eval("Number(document.querySelector('.run-page').dataset.ready)");
    assert!(ready.as_u64().is_some_and(|n| n > 100_000), "{ready}");
    // Twenty steps of zooming and moving, each drawn.
    let frame = page.eval(
        "(async () => { const c = document.querySelector('canvas.lanes'); c.focus(); const began = performance.now(); \
         for (let i = 0; i < 20; i++) { c.dispatchEvent(new KeyboardEvent('keydown', { key: ['+', 'ArrowLeft', '-', 'ArrowRight'][i % 4], bubbles: true })); \
         await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next))); } return (performance.now() - began) / 20; })()",
    );
    let search = page.eval(
        "(() => { const began = performance.now(); const f = document.querySelector('.events input'); f.value = 'hard'; f.dispatchEvent(new Event('input')); return performance.now() - began; })()",
    );
    println!("100,000 events: shown after {took} ms, a step of the axis {frame} ms, a search {search} ms");
    for (what, ms) in [("load", &took), ("step", &frame), ("search", &search)] {
        assert!(ms.as_f64().is_some_and(|ms| ms < BOUND_MS), "{what} took {ms} ms");
    }
    page.screenshot("volume");
    page.assert_no_complaints();
}
