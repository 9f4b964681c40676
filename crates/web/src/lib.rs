//! The web pages: the embedded files of the dashboard, and the report of a run as one HTML file.
//!
//! Everything under `assets/` is written by hand and served unchanged: plain ES modules and one style sheet, without a
//! build step. The server looks up an [`asset`] by request path. `dogwatch report --html` writes a [`report`], which is
//! the page of one run with its record embedded.
//!
//! ```text
//! assets.rs   the list of files         bundle.rs   the modules as one script
//! report.rs   the HTML report           thin.rs     reduces a record to a size limit
//! ```
//!
//! This crate does not read runs, listen on sockets or make decisions. The pages show strings only as text, never as
//! markup, which a test enforces.

mod assets;
mod bundle;
mod report;
mod thin;

pub use assets::{Asset, MAX_ASSETS, all, asset};
pub use report::{MAX_REPORT, Subject, report};
pub use thin::KEPT_OF_BEGINNING;
