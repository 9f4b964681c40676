//! Keeps the unredacted plan of a run. The record holds the plan without secrets; the full plan is stored in a
//! file that only this user can read, so that the run can be resumed.

use dogwatch_core::settings::Plan;
use dogwatch_host::store::safe_file;
use std::io::{self, Read, Write};
use std::path::Path;

const FILE: &str = "plan.json";
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Stores the plan if redaction removes something from it.
pub fn keep(run_dir: &Path, plan: &Plan) -> io::Result<()> {
    if plan.redacted() == *plan {
        return Ok(());
    }
    let mut file = safe_file::create_new(&run_dir.join(FILE), safe_file::PRIVATE)?;
    file.write_all(&serde_json::to_vec(plan)?)?;
    file.sync_all()
}

/// Returns the stored plan, if there is one.
pub fn kept(run_dir: &Path) -> Option<Plan> {
    let mut text = Vec::new();
    safe_file::read(&run_dir.join(FILE)).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
