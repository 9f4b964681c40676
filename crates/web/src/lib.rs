//! The pages: the dashboard's files, embedded.
//!
//! Everything under `assets/` is written by hand and served as it stands: plain ES modules and one style
//! sheet, no build step. The server asks for an [`asset`] by the path of the request.
//!
//! What never happens here: reading a run, listening, deciding. The pages themselves show text as text:
//! nothing in them makes markup of a string (a test holds them to it).

mod assets;

pub use assets::{Asset, MAX_ASSETS, all, asset};

/// The policy the pages are served under. Nothing from elsewhere, nothing inline.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
