//! The pages: the dashboard's files, embedded, and a run's report as one file.
//!
//! Everything under `assets/` is written by hand and served as it stands: plain ES modules and one style
//! sheet, no build step. The server asks for an [`asset`] by the path of the request; `dogwatch report --html`
//! asks for a [`report`], which is the same page of a run with its record beside it.
//!
//! ```text
//! assets.rs   which files there are     bundle.rs   the modules as one script
//! report.rs   the one file              thin.rs     a record of any length in a bounded number of bytes
//! ```
//!
//! What never happens here: reading a run, listening, deciding. The pages themselves show text as text:
//! nothing in them makes markup of a string (a test holds them to it).

mod assets;
mod bundle;
mod report;
mod thin;

pub use assets::{Asset, MAX_ASSETS, all, asset};
pub use report::{MAX_REPORT, Subject, report};
pub use thin::KEPT_OF_BEGINNING;
