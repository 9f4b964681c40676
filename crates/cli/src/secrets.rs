//! Keeps the unredacted plan of a run. The record holds the plan without secrets; the full plan is stored in a
//! file that only this user can read, so that the run can be resumed.

use dogwatch_core::settings::Plan;
use dogwatch_host::store::journal::hex;
use dogwatch_host::store::safe_file;
use dogwatch_host::store::secrets::{Secrets, install};
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::path::Path;

const FILE: &str = "plan.json";
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Returns the secrets of the environment, including the variables that the nodes of a plan name.
pub fn of(plan: &Plan) -> &'static Secrets {
    let named: Vec<String> = plan.nodes.iter().flat_map(|node| node.settings.redact.clone()).collect();
    install(&named)
}

/// Stores the plan if redaction removes something from it. Returns the hash of the file.
pub fn keep(run_dir: &Path, plan: &Plan) -> io::Result<Option<String>> {
    let text = serde_json::to_vec(plan)?;
    if plan.redacted() == *plan && of(plan).hide_in_json(&text).is_none() {
        return Ok(None);
    }
    let mut file = safe_file::create_new(&run_dir.join(FILE), safe_file::PRIVATE)?;
    file.write_all(&text)?;
    file.sync_all()?;
    Ok(Some(hash(&text)))
}

/// Returns the stored plan and the hash of its file, if there is one.
pub fn kept(run_dir: &Path) -> Option<(Plan, String)> {
    let text = safe_file::read_up_to(&run_dir.join(FILE), MAX_BYTES).ok()?;
    Some((serde_json::from_slice(&text).ok()?, hash(&text)))
}

fn hash(text: &[u8]) -> String {
    hex(&Sha256::digest(text))
}
