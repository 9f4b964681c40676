//! The dashboard in a real browser: what people see, click and type, and that nothing an agent prints is more
//! than text. Needs Debian's `chromium`; `scripts/test` installs it.

#[path = "../kit/mod.rs"]
mod kit;

mod browser;
mod night;
mod reports;
mod seeing;
mod showing;
mod steering;
mod volume;

use browser::Page;
use kit::{Project, Running};

/// `dogwatch serve` in a project's world, and the address that it printed.
pub struct Serve {
    pub running: Running,
    pub url: String,
}

impl Serve {
    pub fn start(project: &Project) -> Serve {
        Serve::at(project, "127.0.0.1:0")
    }

    pub fn at(project: &Project, listen: &str) -> Serve {
        let mut running = project.start(&["serve", "--listen", listen]);
        let url = running.wait_for_line("#token=").trim().to_owned();
        Serve { running, url }
    }

    /// `127.0.0.1:4711`
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().expect("an address")
    }

    /// A page that shows all runs.
    pub fn open(&self, project: &Project) -> Page {
        let mut page = Page::open(project);
        page.go(&self.url);
        page.wait("document.querySelector('.runs')", "the overview");
        page
    }

    /// A page that shows this run, once its record is read.
    pub fn open_run(&self, project: &Project, run: &str) -> Page {
        let mut page = self.open(project);
        page.eval(&format!("location.hash = '#/run/{run}'; true"));
        page.wait("document.querySelector('.run-page[data-ready]')", "the page of the run");
        page
    }
}

/// The id of the latest run of a project.
pub fn run_id(project: &Project) -> String {
    project.run_dir().file_name().and_then(|name| name.to_str()).expect("a name").to_owned()
}
