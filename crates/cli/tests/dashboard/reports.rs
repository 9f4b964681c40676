//! `dogwatch report --html`: one file, opened without a server.

use crate::browser::Page;
use crate::kit::Project;
use crate::night::{Night, Shape};
use crate::seeing::DRAWN;

#[test]
fn a_report_opens_from_a_file_and_makes_no_requests() {
    let project = Project::new();
    let run = Night::new(&project).write("fix-tests", 1, &Shape::loops());
    let file = project.path("night.html");
    let written = project.call(&["report", &run, "--html", "night.html"]);
    written.assert_code(0);
    assert!(written.text().starts_with("night.html ("), "{}", written.text());
    assert!(file.metadata().expect("it was written").len() <= 2_000_000);
    let mut page = Page::open(&project);
    page.size(1280, 1100);
    page.set_color_scheme("light");
    page.go(&format!("file://{}", file.display()));
    page.wait("document.querySelector('.run-page.report[data-ready]')", "the report");
    page.wait(&format!("{DRAWN} > 2000"), "the time axis");
    page.screenshot("report");
    assert_eq!(page.text("document.querySelector('h1').textContent"), "fix-tests");
    assert!(page.text("document.body.innerText").contains("Agent output is not in this file"));
    assert!(page.eval("document.querySelector('.steer').hidden").as_bool().expect("a truth"));
    page.assert_no_errors();
}

#[test]
fn a_report_that_cannot_be_written_fails_and_leaves_no_file() {
    let project = Project::new();
    let run = Night::new(&project).write("fix-tests", 1, &Shape::loops());
    let refused = project.call(&["report", &run, "--html", "no/such/place.html"]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("cannot write the report to no/such/place.html"), "{}", refused.stderr);
    std::fs::create_dir(project.path("taken.html")).expect("a directory");
    project.call(&["report", &run, "--html", "taken.html"]).assert_code(2);
    let names = std::fs::read_dir(project.path("")).expect("the work directory").flatten();
    let left: Vec<_> =
        names.map(|e| e.file_name()).filter(|n| n.to_string_lossy().contains(".new")).collect();
    assert!(left.is_empty(), "{left:?}");
}
