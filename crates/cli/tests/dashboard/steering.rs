//! Wake, pause, stop and message runs from the page, with the mouse and with the keyboard.

use crate::kit::Project;
use crate::{Serve, run_id};

const IDLING: &str = "idle: {delay: 1h, max_delay: 1h, stop_after: 50}";

#[test]
fn a_run_is_woken_messaged_and_stopped_from_its_page() {
    let project = Project::acting_with(IDLING, "read-prompt; say nothing; marker idle no_pending_tasks");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let serve = Serve::start(&project);
    let mut page = serve.open_run(&project, &run_id(&project));
    page.wait(
        "!document.querySelector('.steer').hidden && !document.querySelector('.steer .button').disabled",
        "buttons",
    );
    page.key("m");
    page.type_in("mind the <b>tests</b>");
    page.key("Enter");
    run.wait_for("told");
    page.click(".steer .button");
    assert_eq!(run.wait_for("wait_ended")["by"], "api");
    run.wait_for("wait_started");
    page.wait_for_text("iteration 2 idle (2nd in a row, no_pending_tasks)");
    assert!(project.prompt(2).contains("mind the <b>tests</b>"));
    page.eval("document.activeElement.blur()");
    page.key("p");
    run.wait_for("paused");
    page.wait("document.querySelector('.run-state .state').textContent === 'paused'", "the pause");
    page.key("s");
    page.wait("document.querySelector('dialog[open]')", "the confirmation dialog");
    page.screenshot("stop");
    page.click("dialog .danger");
    run.wait_for("run_ended");
    run.finish().assert_code(0);
    page.wait("document.querySelector('.run-state .state').textContent === 'stopped'", "the end");
    page.wait("document.querySelector('.steer').hidden", "no buttons for a run that ended");
    page.assert_no_errors();
}

#[test]
fn everything_works_with_the_keyboard_alone() {
    let project = Project::acting_with(IDLING, "say nothing; marker idle no_pending_tasks");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let serve = Serve::start(&project);
    let mut page = serve.open(&project);
    page.wait("document.querySelector('.run')", "a row");
    page.key("?");
    page.wait("document.querySelector('dialog.help[open]')", "the keys");
    page.screenshot("help");
    page.key("Escape");
    page.wait("!document.querySelector('dialog')", "the dialog is closed");
    page.key("ArrowDown");
    assert_eq!(page.text("document.activeElement.className"), "run-link");
    page.key("w");
    assert_eq!(run.wait_for("wait_ended")["by"], "api");
    page.key("Enter");
    page.wait("document.querySelector('.run-page[data-ready]')", "the page of the run");
    page.eval("document.querySelector('.scroll').focus(); true");
    page.key("ArrowDown");
    page.wait("!document.querySelector('.detail').hidden", "the event");
    page.eval("document.querySelector('canvas.lanes').focus(); true");
    let before = page.text("document.querySelector('.range').textContent");
    page.key("+");
    page.wait(&format!("document.querySelector('.range').textContent !== '{before}'"), "the range changed");
    page.key("ArrowDown");
    page.wait("!document.querySelector('.tip').hidden", "a verdict or mark is announced");
    page.eval("document.activeElement.blur()");
    page.key("Escape");
    page.wait("document.querySelector('.overview')", "all runs");
    page.assert_no_errors();
}
