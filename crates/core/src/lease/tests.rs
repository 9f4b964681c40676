use super::*;
use crate::time::moment::Boot;

const T: Times = Times::STANDARD;

fn lease() -> Lease {
    Lease::new(T, "anna", "n1", 7, "loop")
}

fn at(s: u64) -> Boot {
    Boot(1_000_000 + s * 1_000)
}

fn running(revision: u64) -> Seen {
    let record = JobRecord {
        state: JobState::Running,
        owner: "otto".into(),
        nonce: "n0".into(),
        epoch: 1,
        sequence: 7,
        ..JobRecord::default()
    };
    Seen { revision, record }
}

fn written(out: &[Decision]) -> (u64, JobRecord) {
    let write = out.iter().find_map(|decision| match decision {
        Decision::Write { expected, record } => Some((*expected, (**record).clone())),
        Decision::Read
        | Decision::KeepDelivery
        | Decision::Start { .. }
        | Decision::Extend(_)
        | Decision::End
        | Decision::Ack
        | Decision::Term(_)
        | Decision::GiveBack
        | Decision::ReportPoison(_)
        | Decision::StepBack => None,
    });
    write.expect("a write")
}

fn owner() -> Lease {
    let mut lease = lease();
    assert_eq!(lease.step(at(0), Input::Delivered), [Decision::Read]);
    let queued = Seen { revision: 3, record: JobRecord::default() };
    let (expected, record) = written(&lease.step(at(0), Input::Found(Some(queued))));
    assert_eq!((expected, record.epoch, record.sequence, record.state), (3, 1, 7, JobState::Running));
    let started = lease.step(at(1), Input::Written(4));
    assert_eq!(started, [Decision::Start { epoch: 1, run: None, until: at(45) }]);
    lease
}

#[test]
fn a_claim_counts_from_the_moment_it_was_sent() {
    assert_eq!(owner().deadline(), Some(at(45)));
}

#[test]
fn a_confirmed_renewal_moves_the_deadline_to_its_send_time_plus_the_hold() {
    let mut lease = owner();
    assert_eq!(lease.next_wakeup(), Some(at(10)));
    let out = lease.step(at(10), Input::Woke);
    assert_eq!(written(&out).0, 4);
    assert!(lease.step(at(12), Input::Written(5)).contains(&Decision::Extend(at(55))));
}

#[test]
fn an_unanswered_renewal_moves_nothing_and_the_run_ends_at_the_deadline() {
    let mut lease = owner();
    lease.step(at(10), Input::Woke);
    lease.step(at(13), Input::Unanswered);
    let out = lease.step(at(45), Input::Woke);
    assert!(out.contains(&Decision::End), "{out:?}");
}

#[test]
fn a_refused_renewal_with_the_own_nonce_was_only_an_answer_that_was_lost() {
    let mut lease = owner();
    let (_, record) = written(&lease.step(at(10), Input::Woke));
    lease.step(at(13), Input::Unanswered);
    lease.step(at(14), Input::Woke);
    assert_eq!(lease.step(at(14), Input::Refused), [Decision::Read]);
    let out = lease.step(at(14), Input::Found(Some(Seen { revision: 5, record })));
    assert_eq!(out, [Decision::Extend(at(55))]);
}

#[test]
fn a_renewal_refused_for_another_owner_ends_the_run_and_writes_nothing_more() {
    let mut lease = owner();
    lease.step(at(10), Input::Woke);
    lease.step(at(10), Input::Refused);
    assert_eq!(lease.step(at(11), Input::Found(Some(running(9)))), [Decision::End]);
    assert!(lease.is_lost());
    assert_eq!(lease.step(at(12), Input::Stopped), []);
    assert!(lease.is_over());
}

#[test]
fn an_old_copy_of_the_record_decides_nothing() {
    let mut lease = owner();
    lease.step(at(10), Input::Woke);
    lease.step(at(10), Input::Refused);
    assert_eq!(lease.step(at(11), Input::Found(Some(running(2)))), []);
    assert!(!lease.is_lost());
}

#[test]
fn a_running_job_is_observed_for_a_whole_lease_before_it_is_taken() {
    let mut lease = lease();
    lease.step(at(0), Input::Delivered);
    assert_eq!(lease.step(at(0), Input::Found(Some(running(3)))), []);
    for s in (10..60).step_by(10) {
        let out = lease.step(at(s), Input::Woke);
        assert!(out.contains(&Decision::Read), "{s}: {out:?}");
        assert_eq!(lease.step(at(s), Input::Found(Some(running(3)))), []);
    }
    let (expected, record) = written(&lease.step(at(60), Input::Woke));
    assert_eq!((expected, record.epoch, record.crashes), (3, 2, 1));
}

#[test]
fn a_record_that_changes_makes_the_observer_step_back_without_an_answer() {
    let mut lease = lease();
    lease.step(at(0), Input::Delivered);
    lease.step(at(0), Input::Found(Some(running(3))));
    lease.step(at(10), Input::Woke);
    assert_eq!(lease.step(at(10), Input::Found(Some(running(4)))), [Decision::StepBack]);
}

#[test]
fn a_released_job_is_taken_at_once_and_its_run_is_continued() {
    let mut lease = lease();
    lease.step(at(0), Input::Delivered);
    let mut seen = running(3);
    seen.record.state = JobState::Released;
    seen.record.run = "20261115-201533-k3f9".parse().ok();
    let run = seen.record.run.clone();
    let (_, record) = written(&lease.step(at(0), Input::Found(Some(seen))));
    assert_eq!((record.epoch, record.crashes), (2, 0));
    assert_eq!(lease.step(at(0), Input::Written(4)), [Decision::Start { epoch: 2, run, until: at(45) }]);
}

#[test]
fn another_message_of_the_same_job_is_removed() {
    let mut lease = Lease::new(T, "anna", "n1", 8, "loop");
    lease.step(at(0), Input::Delivered);
    let out = lease.step(at(0), Input::Found(Some(running(3))));
    assert!(matches!(out.as_slice(), [Decision::Term(_)]), "{out:?}");
}

#[test]
fn the_third_unclean_end_without_a_finished_iteration_poisons_the_job() {
    let mut lease = lease();
    lease.step(at(0), Input::Delivered);
    let mut seen = running(3);
    seen.record.crashes = MAX_CRASHES - 1;
    lease.step(at(0), Input::Found(Some(seen.clone())));
    lease.step(at(59), Input::Woke);
    lease.step(at(59), Input::Found(Some(seen)));
    let (_, record) = written(&lease.step(at(60), Input::Woke));
    assert_eq!(record.state, JobState::Poisoned);
    let out = lease.step(at(60), Input::Written(4));
    assert!(matches!(out.as_slice(), [Decision::ReportPoison(_), Decision::Term(_)]), "{out:?}");
}

#[test]
fn a_finished_iteration_clears_the_crashes() {
    let mut lease = owner();
    lease.step(at(2), Input::Moved);
    let (_, record) = written(&lease.step(at(3), Input::Woke));
    assert_eq!((record.crashes, record.moved), (0, true));
}

#[test]
fn a_drained_job_is_released_only_after_its_end_is_proven() {
    let mut lease = owner();
    assert_eq!(lease.step(at(2), Input::Drained), [Decision::End]);
    let (_, record) = written(&lease.step(at(3), Input::Stopped));
    assert_eq!(record.state, JobState::Released);
    assert_eq!(lease.step(at(3), Input::Written(6)), [Decision::GiveBack]);
}

#[test]
fn a_job_that_is_delivered_to_a_drained_worker_is_given_back_unless_another_holds_it() {
    let queued = Seen { revision: 3, record: JobRecord::default() };
    for (found, last) in [
        (Input::Found(None), Decision::GiveBack),
        (Input::Found(Some(queued)), Decision::GiveBack),
        (Input::Found(Some(running(3))), Decision::StepBack),
        (Input::ReadFailed, Decision::StepBack),
    ] {
        let mut lease = lease();
        assert_eq!(lease.step(at(0), Input::Delivered), [Decision::Read]);
        assert_eq!(lease.step(at(0), Input::Drained), []);
        assert_eq!(lease.step(at(0), found), [last]);
        assert!(lease.is_over());
    }
    let mut lease = lease();
    lease.step(at(0), Input::Delivered);
    lease.step(at(0), Input::Found(Some(running(3))));
    assert_eq!(lease.step(at(1), Input::Drained), [Decision::StepBack]);
}

#[test]
fn a_finished_job_is_acked_after_it_is_recorded() {
    let mut lease = owner();
    let (expected, record) = written(&lease.step(at(2), Input::Finished(JobResult::default())));
    assert_eq!((expected, record.state), (4, JobState::Done));
    assert_eq!(lease.step(at(3), Input::Written(5)), [Decision::Ack]);
}

#[test]
fn a_claim_confirmed_after_its_deadline_starts_nothing() {
    let mut lease = lease();
    lease.step(at(0), Input::Delivered);
    lease.step(at(0), Input::Found(None));
    let (_, record) = written(&lease.step(at(50), Input::Written(1)));
    assert_eq!(record.state, JobState::Released);
}

#[test]
fn times_keep_their_proportion() {
    let short = Times::with_lease(Dur::from_secs(6));
    assert_eq!((short.renew, short.stop), (Dur::from_secs(1), Dur::from_millis(1_500)));
    assert_eq!(Times::with_lease(T.lease), T);
}

#[test]
fn a_second_report_of_the_end_changes_nothing() {
    let mut lease = owner();
    lease.step(at(2), Input::Finished(JobResult::default()));
    assert_eq!(lease.step(at(2), Input::Stopped), []);
    assert_eq!(lease.step(at(3), Input::Written(5)), [Decision::Ack]);
}

#[test]
fn a_job_given_up_after_an_unclean_end_says_why_until_it_is_claimed_again() {
    let mut lease = owner();
    let (_, record) = written(&lease.step(at(2), Input::Crashed("the disk is full".into())));
    assert_eq!((record.state, record.why.as_deref()), (JobState::Released, Some("the disk is full")));
    let mut next = self::lease();
    next.step(at(3), Input::Delivered);
    let (_, record) = written(&next.step(at(3), Input::Found(Some(Seen { revision: 6, record }))));
    assert_eq!((record.state, record.why), (JobState::Running, None));
}
