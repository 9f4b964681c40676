//! The text of agents is shown as plain text, and the layout fits light and dark, wide and narrow screens.

use crate::browser::Page;
use crate::kit::{GRACES, Project};
use crate::night::{End, Night, Shape};
use crate::{Serve, run_id};

/// Markup, escape sequences, and characters that reverse the text direction.
const HOSTILE: &str = r#"say "<img src=x onerror=window.pwned=1><script>window.pwned=2</script>"
say "\e[31mred\e[0m \e]0;title\u{7} \u{202e}txt.exe \u{200b}zero"
err "</script><svg onload=window.pwned=3>"
say "${alert(1)} javascript:alert(1) &lt;b&gt;"
exit 3"#;

#[test]
fn the_page_and_the_report_show_changes_and_checks_and_color_ticks_by_checks() {
    let front = format!(
        "{GRACES}\nmax_iterations: 2\ndone_when: ['grep -q 2 work.txt || {{ echo missing; exit 1; }}']"
    );
    let project = Project::acting_with(&front, "counter count; write work.txt \"part $n\"");
    project.init_git();
    project.run(&[]).assert_code(0);
    let (serve, run) = (Serve::start(&project), run_id(&project));
    let mut page = serve.open_run(&project, &run);
    let look = |page: &mut Page| {
        page.wait("document.querySelectorAll('.tick').length === 2", "two iterations");
        assert_eq!(
            page.eval("[...document.querySelectorAll('.tick')].map((t) => t.className).join()"),
            "tick bad,tick good"
        );
        page.eval("document.querySelector('.tab[data-tab=changes]').click(); true");
        page.wait(
            "[...document.querySelectorAll('.line.added')].some((line) => line.textContent === '+part 2')",
            "the diff",
        );
        page.eval("document.querySelector('.tick.bad').click(); true");
        page.eval("document.querySelector('.tab[data-tab=checks]').click(); true");
        page.wait(
            "document.querySelector('.line.result')?.textContent === 'missing'",
            "the output of the check",
        );
        page.assert_no_errors();
    };
    look(&mut page);
    project.call(&["report", &run, "--html", "night.html"]).assert_code(0);
    page.go(&format!("file://{}", project.path("night.html").display()));
    page.wait("document.querySelector('.run-page.report[data-ready]')", "the report");
    look(&mut page);
}

// promise: 8
#[test]
fn agent_output_is_shown_as_text() {
    let project = Project::acting_with(&format!("{GRACES}\nerrors: {{max: 1}}"), HOSTILE);
    project.run(&[]).assert_code(1);
    let serve = Serve::start(&project);
    let mut page = serve.open_run(&project, &run_id(&project));
    page.wait("document.querySelector('.output-text').textContent.includes('txt.exe')", "the output");
    let output = page.text("document.querySelector('.output-text').textContent");
    assert!(output.contains("<img src=x onerror=window.pwned=1>"), "{output:?}");
    assert!(output.contains("red") && output.contains("\u{fffd}txt.exe"), "{output:?}");
    page.click(".tab[data-tab=stderr]");
    page.wait("document.querySelector('.output-text').textContent.includes('<svg onload')", "stderr");
    // The whole event contains the agent's text as well.
    page.eval("document.querySelector('.events select').value = 'all'; document.querySelector('.events select').dispatchEvent(new Event('change')); true");
    page.eval("document.querySelector('.scroll').focus(); true");
    for _ in 0..8 {
        page.key("ArrowUp");
    }
    let all = page.text("document.body.textContent");
    let unfit = |c: char| c.is_control() && c != '\n' && c != '\t' || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!all.contains(unfit), "control characters are in the page");
    assert_eq!(
        page.eval("document.querySelectorAll('img, script:not([src]), main svg:not([role])').length"),
        0
    );
    assert!(page.eval("window.pwned ?? null").is_null());
    assert_eq!(page.text("document.title").matches('<').count(), 0);
    page.screenshot("hostile");
    page.assert_no_errors();
}

#[test]
fn the_layout_fits_light_and_dark_wide_and_narrow() {
    let project = Project::new();
    let mut night = Night::new(&project);
    let run = night.write("fix-tests", 1, &Shape::loops());
    for (name, number, end) in [
        ("port-parser", 6, End::Working),
        ("tidy", 5, End::Idling),
        ("triage", 4, End::Idling),
        ("migrate", 3, End::ErrorLimit),
    ] {
        night.write(name, number, &Shape { hard_stop: false, end, ..Shape::loops() });
    }
    night.write("release", 2, &Shape::graph());
    let serve = Serve::start(&project);
    let mut page = serve.open(&project);
    page.size(1280, 720);
    page.wait("document.querySelectorAll('.run').length === 6", "all rows");
    page.wait_for_text("1 flake");
    page.screenshot("overview-night");
    let dark = page.text("getComputedStyle(document.documentElement).backgroundColor");
    page.set_color_scheme("light");
    page.screenshot("overview-day");
    assert_ne!(page.text("getComputedStyle(document.documentElement).backgroundColor"), dark);
    // The user's choice overrides the color scheme of the system.
    page.key("t");
    page.key("t");
    assert_eq!(page.text("getComputedStyle(document.documentElement).backgroundColor"), dark);
    page.key("t");
    for (name, width) in [("phone", 390), ("tablet", 820)] {
        page.size(width, 844);
        page.wait("true", "a moment");
        page.screenshot(&format!("overview-{name}"));
        assert!(
            page.eval("document.scrollingElement.scrollWidth").as_u64() <= Some(u64::from(width)),
            "{name}"
        );
    }
    page.set_color_scheme("dark");
    page.eval(&format!("location.hash = '#/run/{run}'; true"));
    page.wait("document.querySelector('.run-page[data-ready]')", "the page of the run");
    page.wait("document.querySelectorAll('.tick').length > 5", "its iterations");
    for (name, width, height) in
        [("phone", 390, 1600), ("tablet", 820, 1400), ("wide", 1100, 860), ("desktop", 1280, 960)]
    {
        page.size(width, height);
        page.wait(&format!("document.querySelector('canvas.lanes').clientWidth < {width}"), "another width");
        page.screenshot(&format!("run-{name}"));
        assert!(
            page.eval("document.scrollingElement.scrollWidth").as_u64() <= Some(u64::from(width)),
            "{name}"
        );
    }
    page.assert_no_errors();
}

#[test]
fn a_verdict_shows_its_evidence_and_a_graph_its_nodes() {
    let project = Project::new();
    let mut night = Night::new(&project);
    let run = night.write("release", 1, &Shape::graph());
    let serve = Serve::start(&project);
    let mut page = serve.open_run(&project, &run);
    page.size(1280, 1000);
    page.wait("document.querySelectorAll('.graph .node').length === 6", "six nodes");
    assert_eq!(page.eval("document.querySelectorAll('.graph .edge').length"), 7);
    assert_eq!(page.eval("document.querySelectorAll('.graph .node.flake').length"), 1);
    page.eval("document.querySelector('canvas.lanes').focus(); true");
    let shown = "!document.querySelector('.tip').hidden && document.querySelector('.tip').innerText";
    for _ in 0..12 {
        page.key("ArrowDown");
        if page.text(&format!("{shown} || ''")).contains("Hard stop") {
            break;
        }
    }
    let tip = page.text(shown);
    for part in ["NO_OUTPUT_DEADLINE", "stdout", "mcp_tool", "subagent", "workspace", " ago"] {
        assert!(tip.contains(part), "{part} is missing in {tip:?}");
    }
    page.screenshot("graph");
    // The same with the mouse: a session was active at a third of the width.
    let place = page.eval("(() => { const b = document.querySelector('canvas.lanes').getBoundingClientRect(); return [b.x + b.width / 3, b.y + 48]; })()");
    page.mouse(place[0].as_f64().expect("a place"), place[1].as_f64().expect("a place"), false);
    page.wait(&format!("({shown} || '').includes('iteration 1')"), "what the session was");
    // Show one node only.
    page.click(".graph .node");
    page.wait("document.querySelector('.graph .node.chosen')", "the choice");
    page.assert_no_errors();
}

#[test]
fn a_learning_run_shows_its_week_and_its_planned_looks() {
    let front = "idle: {strategy: learned, delay: 25s, max_delay: 25s, longest: 1m}";
    let project = Project::acting_with(front, "marker idle no_pending_tasks");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let serve = Serve::start(&project);
    let mut page = serve.open_run(&project, &run_id(&project));
    page.size(1280, 1000);
    page.wait(
        "document.querySelectorAll('.heat-map td.heat').length === 168",
        "a cell for each hour of the week",
    );
    let said = page.text("document.querySelector('.forecast').innerText");
    for part in ["next look", "planned looks: "] {
        assert!(said.contains(part), "{part} is missing in {said:?}");
    }
    // The pointer finds a planned look on the time axis, to the right of the present.
    let found = "(() => {
        const canvas = document.querySelector('canvas.lanes'), box = canvas.getBoundingClientRect();
        for (let x = box.width - 2; x > box.width / 4; x -= 4) for (let y = 0; y < box.height; y += 12) {
            canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.x + x, clientY: box.y + y, bubbles: true }));
            const tip = document.querySelector('.tip');
            if (!tip.hidden && tip.textContent.includes('Planned look')) return true;
        }
        return false;
    })()";
    page.wait(found, "a planned look on the time axis");
    page.screenshot("forecast");
    page.assert_no_errors();
}
