//! Many starts of one loop at the same moment: one wins, the others exit with 4 and name it.

use crate::full;
use crate::kit::{Project, all};

// promise: 2
#[test]
fn of_many_simultaneous_starts_exactly_one_runs() {
    let (count, at_once) = if full() { (1_000, 100) } else { (16, 16) };
    let project = Project::acting("append starts $pid; ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let first: Vec<_> = (0..at_once).map(|_| project.start_run(&["-n", "1"])).collect();
    there.pid();
    let mut left = count - at_once;
    let mut winners = Vec::new();
    let mut waiting = first;
    while !waiting.is_empty() {
        let mut ended = 0;
        for run in std::mem::take(&mut waiting) {
            if run.has_exited() {
                let done = run.finish();
                done.assert_code(4);
                assert!(done.stderr.contains("dogwatch"), "{}", done.stderr);
                ended += 1;
            } else {
                waiting.push(run);
            }
        }
        let more = left.min(ended);
        left -= more;
        waiting.extend((0..more).map(|_| project.start_run(&["-n", "1"])));
        if waiting.len() == 1 && left == 0 {
            winners = std::mem::take(&mut waiting);
        }
        std::thread::yield_now();
    }
    gate.open();
    let done = winners.pop().expect("one run won").finish();
    assert_eq!(all(&done.assert_code(0).events(), "session_started").len(), 1);
    assert_eq!(project.lines("starts").len(), 1, "one session");
    project.assert_no_process_left();
}
