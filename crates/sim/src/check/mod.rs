//! The invariants of every run. Each checker has its own file.
//!
//! Most checkers read the record of a run. `intent`, `tree` and `truth` are called by the simulated machine, at the
//! moment of an effect.

mod budgets;
mod ceilings;
mod evidence;
pub(crate) mod intent;
mod iterations;
pub(crate) mod leash;
mod limits;
mod queues;
mod replays;
mod sequence;
mod sessions;
mod story;
mod truth;
mod views;
mod waits;
mod work;

pub(crate) use queues::hold as queues;
pub use story::word;
pub use truth::Truth;

use dogwatch_core::record::event::Recorded;
use dogwatch_core::record::view::View;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;

/// Asserts what must hold right after a resume.
pub fn resumed(events: &[Recorded], live: &View) {
    sequence::has_no_gaps(events);
    views::are_the_same_again(events, live);
}

/// Asserts all invariants of a record and its live view.
pub fn all(events: &[Recorded], live: &View, truth: &Truth) {
    sequence::has_no_gaps(events);
    sequence::only_a_resume_follows_an_end(events);
    views::are_the_same_again(events, live);
    sessions::are_one_at_a_time(events);
    iterations::end_once(events, live);
    iterations::have_unique_numbers(events);
    waits::last_as_long_as_they_say(events, truth.punctual && !probes(live));
    budgets::only_grow(events);
    ceilings::hold(events, live);
    replays::come_to_the_same_verdicts(events);
    evidence::is_there(events);
    if let Some(started) = &live.started {
        limits::hold(events, &started.settings, truth);
    }
    work::all(events, live);
}

/// Returns whether the end of a wait may have to wait for a probe.
fn probes(live: &View) -> bool {
    let plan = live.started.as_ref().map(|started| &started.settings);
    plan.is_some_and(|plan| plan.nodes.iter().any(|node| node.settings.wake_on.probe.is_some()))
}

/// Returns the job of an input that a session causes.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few inputs come from sessions")]
pub(crate) fn job_of(input: &Input) -> Option<Job> {
    match input {
        Input::Job(job, _) | Input::WindowsSeen { job, .. } => Some(*job),
        _ => None,
    }
}
