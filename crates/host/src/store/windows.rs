//! The latest windows of each account that the runs of this user reported, so that a new run does not have to call an
//! agent to find out that its window is used up. Each account has one small file, which is replaced atomically.

use crate::store::home;
use crate::store::safe_file;
use dogwatch_core::record::hash;
use dogwatch_core::record::windows::WindowsUsed;
use dogwatch_core::run::gate::account;
use dogwatch_core::settings::Plan;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// The most bytes read from a file.
const MAX_BYTES: u64 = 16 * 1024;

/// The directory of the files.
pub struct WindowStore {
    dir: PathBuf,
}

impl WindowStore {
    /// Returns the store of this user.
    pub fn of_user() -> WindowStore {
        WindowStore::at(home::user_state_dir().join("windows"))
    }

    /// Returns the store in this directory.
    pub fn at(dir: PathBuf) -> WindowStore {
        WindowStore { dir }
    }

    /// Keeps a report, unless there is a later one.
    pub fn keep(&self, used: &WindowsUsed) -> io::Result<()> {
        if self.read(&used.account).is_some_and(|known| known.seen_at > used.seen_at) {
            return Ok(());
        }
        home::make_private(&self.dir)?;
        safe_file::replace(&self.file(&used.account), safe_file::PRIVATE, &serde_json::to_vec(used)?)
    }

    /// Returns the known windows of the accounts of a plan whose agents have a limit. Unreadable files are skipped.
    pub fn of_plan(&self, plan: &Plan) -> Vec<WindowsUsed> {
        let whole = plan.graph.as_ref().is_some_and(|graph| !graph.budget.window.is_none());
        let limited = plan.nodes.iter().filter(|node| whole || !node.settings.budget.window.is_none());
        let agents = limited.flat_map(|node| node.settings.agents());
        let accounts: BTreeSet<String> = agents.map(|(agent, reader)| account(agent, reader)).collect();
        accounts.iter().filter_map(|account| self.read(account)).collect()
    }

    fn read(&self, account: &str) -> Option<WindowsUsed> {
        let used = safe_file::read_json::<WindowsUsed>(&self.file(account), MAX_BYTES).ok();
        used.filter(|used| used.account == account)
    }

    fn file(&self, account: &str) -> PathBuf {
        self.dir.join(format!("{:016x}.json", hash::bytes(account.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::windows::{Percent, Window, WindowBudget, WindowName};
    use dogwatch_core::settings::{NodePlan, ReaderName, Settings};
    use dogwatch_core::time::moment::Wall;

    fn used(percent: f64, seen_at: i64) -> WindowsUsed {
        let used_percent = Percent::new(percent).expect("a percentage");
        let windows = vec![Window { window: WindowName::FiveHour, used_percent, resets_at: None }];
        WindowsUsed { account: "claude".into(), seen_at: Wall(seen_at), windows }
    }

    #[test]
    fn the_latest_report_of_an_account_is_kept_for_plans_that_limit_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = WindowStore::at(dir.path().join("windows"));
        let mut settings = Settings::of(vec!["claude".into()], ReaderName::Claude);
        let plan = |settings: &Settings| Plan {
            nodes: vec![NodePlan::alone(dogwatch_core::record::ids::NodeName::new("n"), settings.clone())],
            stop_on_error: false,
            snapshots: false,
            graph: None,
        };
        store.keep(&used(50.0, 2_000)).expect("keeps");
        store.keep(&used(20.0, 1_000)).expect("ignores");
        assert_eq!(store.of_plan(&plan(&settings)), [], "without a limit nothing is read");
        settings.budget.window = WindowBudget { five_hour: Percent::new(80.0), seven_day: None };
        assert_eq!(store.of_plan(&plan(&settings)), [used(50.0, 2_000)]);
        std::fs::write(store.file("claude"), "broken").expect("writes");
        assert_eq!(store.of_plan(&plan(&settings)), []);
    }
}
