//! The dashboard in a real browser: what users see, click and type. Everything that an agent prints must be shown as
//! plain text. Needs Debian's `chromium`; `scripts/test` installs it.

#[path = "../kit/mod.rs"]
mod kit;

mod browser;
mod listening;
mod night;
mod reports;
mod seeing;
mod showing;
mod steering;
mod volume;

use browser::Page;
use kit::{Project, Running};

/// `dogwatch serve` in the environment of a project, and the address that it printed.
pub struct Serve {
    /// The run behind the page.
    pub running: Running,
    /// The address of the page, with its token.
    pub url: String,
}

impl Serve {
    /// Starts a server on a free port.
    pub fn start(project: &Project) -> Serve {
        Serve::at(project, "127.0.0.1:0")
    }

    /// Starts a server at this address.
    pub fn at(project: &Project, listen: &str) -> Serve {
        let mut running = project.start(&["serve", "--listen", listen]);
        let url = running.wait_for_line("#token=").trim().to_owned();
        Serve { running, url }
    }

    /// Returns the host and port, such as `127.0.0.1:4711`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().expect("an address")
    }

    /// Opens the page that lists all runs.
    pub fn open(&self, project: &Project) -> Page {
        let mut page = Page::open(project);
        page.go(&self.url);
        page.wait("document.querySelector('.runs')", "the overview");
        page
    }

    /// Opens the page of a run and waits until its record is read.
    pub fn open_run(&self, project: &Project, run: &str) -> Page {
        let mut page = self.open(project);
        page.eval(&format!("location.hash = '#/run/{run}'; true"));
        page.wait("document.querySelector('.run-page[data-ready]')", "the page of the run");
        page
    }
}

/// Returns the id of the latest run of a project.
pub fn run_id(project: &Project) -> String {
    project.run_dir().file_name().and_then(|name| name.to_str()).expect("a name").to_owned()
}
