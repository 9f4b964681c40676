//! The usage windows of a subscription: what an agent's service reports about them, and the shares that
//! `budget.window` allows.

use crate::record::event::words;
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most accounts whose windows are kept. Reports about further ones are ignored.
pub const MAX_ACCOUNTS: usize = 64;
/// A report with the same whole percentages is recorded again after this time, so that its age is meaningful.
const REPEAT_AFTER: Dur = Dur::from_mins(10);
/// Reset times that differ by less are the same: some agents report the time that is left.
const SAME_RESET: Dur = Dur::from_mins(1);

words! {
    /// A window of a subscription.
    WindowName {
        /// The window of five hours.
        FiveHour = "five_hour",
        /// The window of seven days.
        SevenDay = "seven_day",
    }
}

impl WindowName {
    /// Returns the window of about this length. Some services report a minute less.
    pub fn of_length(length: Dur) -> Option<WindowName> {
        let is_near = |name: &WindowName| {
            let exact = name.length().as_millis();
            exact.abs_diff(length.as_millis()) <= exact / 20
        };
        WindowName::ALL.iter().copied().find(is_near)
    }

    /// Returns how long the window is.
    pub fn length(self) -> Dur {
        match self {
            WindowName::FiveHour => Dur::from_hours(5),
            WindowName::SevenDay => Dur::from_hours(7 * 24),
        }
    }
}

/// A percentage with two decimals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "f64", try_from = "f64")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "f64"))]
pub struct Percent(u32);

/// The error for a number that is not a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PercentError;

impl fmt::Display for PercentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a percentage")
    }
}

impl Percent {
    /// The largest percentage. Services that sell overage report more than 100 %.
    pub const MAX: f64 = 1_000.0;

    /// Returns the percentage, or `None` if it is negative, too large or not a number.
    pub fn new(percent: f64) -> Option<Percent> {
        (0.0..=Percent::MAX).contains(&percent).then(|| Percent((percent * 100.0).round() as u32))
    }

    /// Returns the percentage of a fraction: 24 % of 0.24.
    pub fn of_fraction(fraction: f64) -> Option<Percent> {
        Percent::new(fraction * 100.0)
    }

    /// Returns the percentage as a number.
    pub fn value(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    fn whole(self) -> u32 {
        self.0 / 100
    }
}

impl From<Percent> for f64 {
    fn from(percent: Percent) -> f64 {
        percent.value()
    }
}

impl TryFrom<f64> for Percent {
    type Error = PercentError;

    fn try_from(percent: f64) -> Result<Percent, PercentError> {
        Percent::new(percent).ok_or(PercentError)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.value())
    }
}

/// What a service reports about one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The window.
    pub window: WindowName,
    /// How much of it is used, in percent.
    pub used_percent: Percent,
    /// When it resets. Null if the service does not say.
    pub resets_at: Option<Wall>,
}

/// The fields of `windows_used`: how much of an account's windows is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowsUsed {
    /// The account: the agent's name, with its program or configuration directory if they are not the usual ones.
    pub account: String,
    /// When the service reported it.
    pub seen_at: Wall,
    /// The windows that the report mentions.
    pub windows: Vec<Window>,
}

/// The latest reports of the windows of one account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountWindows([Option<(Window, Wall)>; WindowName::ALL.len()]);

impl AccountWindows {
    /// Takes a report. Windows that it does not mention stay as they are, and so do those with a later report.
    pub fn take(&mut self, used: &WindowsUsed) {
        for window in &used.windows {
            let known = &mut self.0[window.window as usize];
            if known.is_none_or(|(_, at)| at <= used.seen_at) {
                *known = Some((*window, used.seen_at));
            }
        }
    }

    /// Returns whether the report says something new: another whole percentage, another reset, a window that was not
    /// known, or the same a good while later.
    pub fn is_new(&self, used: &WindowsUsed) -> bool {
        used.windows.iter().any(|window| match self.get(window.window) {
            None => true,
            Some((_, at)) if at > used.seen_at => false,
            Some((known, at)) => {
                let reset = match (known.resets_at, window.resets_at) {
                    (Some(a), Some(b)) => a.0.abs_diff(b.0) >= SAME_RESET.as_millis(),
                    (a, b) => a != b,
                };
                let late = used.seen_at.0.abs_diff(at.0) >= REPEAT_AFTER.as_millis();
                reset || late || known.used_percent.whole() != window.used_percent.whole()
            }
        })
    }

    /// Returns the last report about a window and when it was made.
    pub fn get(&self, name: WindowName) -> Option<(Window, Wall)> {
        self.0[name as usize]
    }
}

/// The share of each window that may be used before an agent is no longer called. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowBudget {
    /// The share of the window of five hours.
    pub five_hour: Option<Percent>,
    /// The share of the window of seven days.
    pub seven_day: Option<Percent>,
}

impl WindowBudget {
    /// Returns the limit of a window.
    pub fn of(&self, name: WindowName) -> Option<Percent> {
        match name {
            WindowName::FiveHour => self.five_hour,
            WindowName::SevenDay => self.seven_day,
        }
    }

    /// Returns whether no window has a limit.
    pub fn is_none(&self) -> bool {
        *self == WindowBudget::default()
    }

    /// Returns the lower limit of both budgets for each window.
    #[must_use]
    pub fn and(&self, other: &WindowBudget) -> WindowBudget {
        let lower = |a: Option<Percent>, b: Option<Percent>| a.into_iter().chain(b).min();
        WindowBudget {
            five_hour: lower(self.five_hour, other.five_hour),
            seven_day: lower(self.seven_day, other.seven_day),
        }
    }

    /// Returns the window that is used up to its limit now, with the latest reset, and when it resets. A window whose
    /// reset time has passed is unknown, not full. A window without a reset time resets after its length at the latest.
    pub fn reached(&self, known: &AccountWindows, now: Wall) -> Option<(Window, Percent, Wall)> {
        let full = WindowName::ALL.iter().filter_map(|name| {
            let (limit, (window, seen_at)) = (self.of(*name)?, known.get(*name)?);
            let reset = window.resets_at.unwrap_or_else(|| seen_at.plus(name.length()));
            (window.used_percent >= limit && reset > now).then_some((window, limit, reset))
        });
        full.max_by_key(|(_, _, reset)| *reset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Wall = Wall(1_794_773_733_000);

    fn used(window: WindowName, percent: f64, resets_in_s: i64, seen_s: i64) -> WindowsUsed {
        let used_percent = Percent::new(percent).expect("a percentage");
        let resets_at = Some(Wall(NOW.0 + resets_in_s * 1_000));
        let windows = vec![Window { window, used_percent, resets_at }];
        WindowsUsed { account: "claude".into(), seen_at: Wall(NOW.0 + seen_s * 1_000), windows }
    }

    #[test]
    fn percentages_keep_two_decimals_and_reject_other_values() {
        assert_eq!(Percent::of_fraction(0.24).map(|p| p.to_string()).as_deref(), Some("24%"));
        assert_eq!(Percent::new(47.5).map(|p| p.to_string()).as_deref(), Some("47.5%"));
        for bad in [-0.1, f64::NAN, f64::INFINITY, Percent::MAX + 0.1] {
            assert_eq!(Percent::new(bad), None, "{bad}");
        }
        let text = serde_json::to_string(&Percent::new(80.0)).expect("a number");
        assert_eq!(serde_json::from_str::<Option<Percent>>(&text).expect("a percentage"), Percent::new(80.0));
    }

    #[test]
    fn a_report_is_news_if_a_whole_percentage_a_reset_or_the_time_changed() {
        use WindowName::{FiveHour, SevenDay};
        let mut known = AccountWindows::default();
        let first = used(FiveHour, 24.0, 3_600, 0);
        assert!(known.is_new(&first));
        known.take(&first);
        for (report, expected) in [
            (used(FiveHour, 24.9, 3_600, 1), false),
            (used(FiveHour, 24.0, 3_659, 1), false),
            (used(FiveHour, 25.0, 3_600, 1), true),
            (used(FiveHour, 24.0, 3_660, 1), true),
            (used(FiveHour, 24.0, 3_600, 599), false),
            (used(FiveHour, 24.0, 3_600, 600), true),
            (used(FiveHour, 99.0, 3_600, -1), false),
            (used(SevenDay, 24.0, 3_600, 1), true),
        ] {
            assert_eq!(known.is_new(&report), expected, "{report:?}");
        }
    }

    #[test]
    fn the_limit_is_reached_at_the_share_until_the_reset() {
        let budget = WindowBudget { five_hour: Percent::new(80.0), seven_day: Percent::new(90.0) };
        let reached = |reports: &[WindowsUsed], now: Wall| {
            let mut known = AccountWindows::default();
            reports.iter().for_each(|report| known.take(report));
            budget.reached(&known, now).map(|(window, _, reset)| (window.window, reset.0 - NOW.0))
        };
        let five = |percent, resets| used(WindowName::FiveHour, percent, resets, 0);
        let seven = |percent, resets| used(WindowName::SevenDay, percent, resets, 0);
        assert_eq!(reached(&[], NOW), None, "unknown is not full");
        assert_eq!(reached(&[five(79.99, 60)], NOW), None);
        assert_eq!(reached(&[five(80.0, 60)], NOW), Some((WindowName::FiveHour, 60_000)));
        assert_eq!(reached(&[five(80.0, 60)], Wall(NOW.0 + 60_000)), None, "it has reset");
        assert_eq!(reached(&[five(99.0, 60), seven(91.0, 600)], NOW), Some((WindowName::SevenDay, 600_000)));
        let mut unknown_reset = five(85.0, 0);
        unknown_reset.windows[0].resets_at = None;
        assert_eq!(reached(&[unknown_reset], NOW), Some((WindowName::FiveHour, 5 * 3_600_000)));
        let stricter = WindowBudget { five_hour: Percent::new(50.0), seven_day: None };
        assert_eq!(budget.and(&stricter).five_hour, Percent::new(50.0));
        assert_eq!(budget.and(&stricter).seven_day, Percent::new(90.0));
    }
}
