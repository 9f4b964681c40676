//! Reports the local time zone to the core, which has no clock.

use crate::clock;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::Plan;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Boot, Moment};

/// How often the time zone is looked up.
const LOOK: Dur = Dur::from_secs(30);

/// The time zone as last reported.
pub struct Zone {
    /// Whether a node of the run idles. Other runs do not need the time zone.
    wanted: bool,
    looked: Option<Boot>,
    reported: Option<i32>,
}

impl Zone {
    /// Returns the zone for a run with this plan, not reported yet.
    pub fn of(plan: &Plan) -> Zone {
        let wanted = plan.nodes.iter().any(|node| node.settings.idle.is_some());
        Zone { wanted, looked: None, reported: None }
    }

    /// Returns the input to report, if the distance from UTC is new.
    pub fn changed(&mut self, now: Moment) -> Option<Input> {
        if !self.wanted || self.looked.is_some_and(|looked| now.boot.since(looked) < LOOK) {
            return None;
        }
        self.looked = Some(now.boot);
        let utc_offset_s = clock::utc_offset_s(now.wall);
        let is_new = self.reported.replace(utc_offset_s) != Some(utc_offset_s);
        is_new.then_some(Input::ZoneSeen { utc_offset_s })
    }
}
