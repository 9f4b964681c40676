//! The dashboard shows the actual state of the runs.

use crate::kit::Project;
use crate::night::{End, Night, Shape};
use crate::{Serve, run_id};
use dogwatch_core::time::dur::Dur;

const IDLING: &str = "idle: {delay: 1h, max_delay: 1h, stop_after: 50}";

#[test]
fn the_overview_has_a_row_for_each_run_and_removes_the_token_from_the_address() {
    let project = Project::acting_with(IDLING, "say nothing left; marker idle no_pending_tasks");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let serve = Serve::start(&project);
    let mut page = serve.open(&project);
    page.wait("document.querySelector('.run .state')?.textContent === 'waiting'", "a run that waits");
    page.wait_for_text("wakes in 59:");
    let row = page.text("document.querySelector('.run').innerText");
    for part in ["loop", "idle, 1st in a row (no_pending_tasks)", "1 iteration", "stdout, "] {
        assert!(row.contains(part), "{part:?} is missing in {row:?}");
    }
    // The countdown runs in the page, without requests.
    let before = page.text("document.querySelector('.next').textContent");
    page.wait(&format!("document.querySelector('.next').textContent !== '{before}'"), "the next second");
    let token = serve.url.split("token=").nth(1).expect("the address holds it");
    assert!(!page.text("location.href").contains(token));
    assert_eq!(page.text("sessionStorage.getItem('dogwatch.token')"), token);
    let paint = page.eval("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1");
    println!("first paint after {paint} ms");
    assert!(paint.as_f64().is_some_and(|ms| (0.0..5000.0).contains(&ms)), "{paint}");
    page.assert_no_errors();
}

#[test]
fn a_lost_run_shows_its_open_iteration_the_time_until_its_loss_and_unknown_cost() {
    let project = Project::with_lost_run(Dur::from_millis(65_300));
    let serve = Serve::start(&project);
    let mut page = serve.open(&project);
    page.wait("document.querySelector('.run .state')?.textContent === 'lost'", "the lost run");
    let row = page.text("document.querySelector('.run').innerText");
    for part in ["1 unfinished", "1 iteration", "cost unknown"] {
        assert!(row.contains(part), "{part:?} is missing in {row:?}");
    }
    let run = run_id(&project);
    page.eval(&format!("location.hash = '#/run/{run}'; true"));
    page.wait("document.querySelector('.run-page[data-ready]')", "the page of the run");
    let facts = "[...document.querySelectorAll('.facts > div')].map((fact) => fact.textContent).join('; ')";
    let same = ["Elapsed1 m 05 s", "Iterations1 1 unfinished", "Costunknown"];
    let shown = page.text(facts);
    same.iter().for_each(|fact| assert!(shown.contains(fact), "{fact:?} is missing in {shown:?}"));
    project.call(&["report", &run, "--html", "night.html"]).assert_code(0);
    page.go(&format!("file://{}", project.path("night.html").display()));
    page.wait("document.querySelector('.run-page.report[data-ready]')", "the report");
    let shown = page.text(facts);
    same.iter().for_each(|fact| assert!(shown.contains(fact), "{fact:?} is missing in {shown:?}"));
    page.assert_no_errors();
}

#[test]
fn a_resumed_run_counts_what_its_interrupted_session_used() {
    let project = Project::new();
    let shape = Shape { hard_stop: false, end: End::Resumed, ..Shape::loops() };
    let mut night = Night::new(&project);
    let run = night.write("fix-tests", 1, &shape);
    let serve = Serve::start(&project);
    let mut page = serve.open_run(&project, &run);
    // 201000 tokens of four sessions that ended, and 70000 each of the interrupted and the open one.
    page.wait_for_text("$1.44 and more, 341k tokens");
    page.assert_no_errors();
}

#[test]
fn events_are_shown_as_they_happen() {
    let project = Project::acting_with("delay: 1h", "say begun; await go; say done");
    let gate = project.gate("go");
    let mut run = project.start_run(&[]);
    run.wait_for("session_started");
    let serve = Serve::start(&project);
    let mut page = serve.open_run(&project, &run_id(&project));
    page.wait("document.querySelector('.run-state .state').textContent === 'working'", "a run that works");
    page.wait("document.querySelector('.output-text').textContent.includes('begun')", "its output");
    gate.open();
    page.wait_for_text("iteration 1 completed in ");
    page.wait("document.querySelector('.run-state .state').textContent === 'waiting'", "the wait");
    page.wait("document.querySelectorAll('.tick.good').length === 1", "a tick for the iteration");
    page.wait(
        "document.querySelector('.output-text').textContent.includes('done')",
        "the rest of the output",
    );
    assert!(page.eval(DRAWN).as_u64().is_some_and(|n| n > 500), "the time axis is empty");
    page.assert_no_errors();
}

/// A script that counts the drawn pixels of the time axis.
pub const DRAWN: &str = "(() => { const c = document.querySelector('canvas.lanes'); \
    const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
    let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i] > 0) n += 1; return n; })()";

#[test]
fn a_page_shows_a_lost_connection_and_reconnects() {
    let project = Project::acting_with("delay: 1h", "say hello");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let serve = Serve::start(&project);
    let address = serve.address().to_owned();
    let mut page = serve.open_run(&project, &run_id(&project));
    page.wait("document.querySelector('.link-state.live')", "the connection");
    serve.running.kill();
    page.wait_for_text("disconnected for");
    // The page must show this event after it reconnects.
    project.call(&["tell", "mind the gap"]).assert_code(0);
    let serve = Serve::at(&project, &address);
    // The new server has a new token. The page must not use the old one there.
    page.wait_for_text("the server does not know this token");
    let (_, token) = serve.url.split_once("#token=").expect("the address holds it");
    page.type_in(token);
    page.key("Enter");
    page.wait("document.querySelector('.link-state.live')", "the connection");
    page.wait_for_text("operator message: mind the gap");
}

#[test]
fn a_page_without_a_token_asks_for_it() {
    let project = Project::acting_with("delay: 1h", "say hello");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let serve = Serve::start(&project);
    let (plain, token) = serve.url.split_once("#token=").expect("the address holds it");
    let mut page = crate::browser::Page::open(&project);
    page.go(plain);
    page.wait_for_text("Token required");
    page.type_in(token);
    page.key("Enter");
    page.wait("document.querySelector('.run .state')?.textContent === 'waiting'", "the overview");
}
