//! The usage of all runs of the project on one day, as the files of the host show it.

use super::Machine;
use dogwatch_core::record::day::DayUse;
use dogwatch_core::record::sessions::Sessions;
use dogwatch_core::record::view::Used;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::{DayBudget, Plan};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;

const DAY_MS: i64 = Dur::from_hours(24).as_millis().cast_signed();
/// One in this many attempts to read the usage fails.
const UNREADABLE: u64 = 7;

/// The usage of the day, as the machine knows it.
#[derive(Debug, Default)]
pub(crate) struct Day {
    /// The token limits of the plan.
    limits: Vec<u64>,
    /// How many tokens the other runs of the project use in an hour. Without it, no usage is read.
    pub others: Option<u64>,
    reads: u64,
    /// The usage that dogwatch read last.
    last: Option<DayUse>,
}

impl Day {
    pub fn of(plan: &Plan) -> Day {
        let limits = plan.days().filter(|day| DayBudget::is_set(day)).filter_map(|day| day.tokens).collect();
        Day { limits, ..Day::default() }
    }

    pub fn has_limit(&self) -> bool {
        self.others.is_some() && !self.limits.is_empty()
    }

    fn is_used_up(&self, now: Wall) -> bool {
        let today = self.last.filter(|day| day.since <= now && now < day.until);
        today.is_some_and(|day| self.limits.iter().any(|limit| day.tokens >= *limit))
    }
}

impl Machine {
    /// Reads the usage of the day: that of other runs, and that of this run from its journal.
    pub(super) fn day_input(&mut self) -> Input {
        self.day.reads += 1;
        if self.day.reads.is_multiple_of(UNREADABLE) {
            let detail = "cannot read today's usage of the project: permission denied".to_owned();
            return Input::TroubleMet { kind: "day_budget", detail };
        }
        let now = self.clocks.now().wall;
        let since = Wall(now.0 - now.0.rem_euclid(DAY_MS));
        let hours = (now.0 - since.0).unsigned_abs() / Dur::from_hours(1).as_millis();
        let until = Wall(since.0 + DAY_MS);
        let others = Used { tokens: hours * self.day.others.unwrap_or(0), ..Used::default() };
        let mut sessions = Sessions::default();
        let over = self.events.iter().flat_map(|recorded| sessions.apply(recorded));
        let today = over.filter(|session| since <= session.at && session.at < until);
        let used = today.map(|session| Used::of(&session.usage)).fold(others, Used::plus);
        let day = DayUse::new((since, until), &used);
        self.day.last = Some(day);
        Input::DayUsed(day)
    }

    /// Asserts that no agent is called once the budget of the day is used up.
    pub(super) fn assert_day(&self) {
        let used_up = self.day.is_used_up(self.clocks.now().wall);
        assert!(!used_up, "an agent was called after the budget of the day was used up: {:?}", self.day);
    }
}
