//! What the core wants done: imperative, in order. The shell makes all records that stand before an
//! effect durable before it carries the effect out.

use crate::dur::Dur;
use crate::event::Recorded;
use crate::ids::{Iteration, NodeIx};
use crate::job::Job;

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Record(Box<Recorded>),
    /// Start a command or a session under the node's keeper.
    Start(Job),
    /// Read the loop file's body, fill it in, keep it for the session.
    AssemblePrompt {
        node: NodeIx,
        iteration: Iteration,
    },
    /// INT to the session's group.
    Interrupt(Job),
    /// TERM, then CONT, to the session's group.
    Terminate(Job),
    /// Kill until nothing is left of the tree.
    Kill(Job),
    /// The main process is gone: end what is left of the tree, within the grace, then by force.
    Sweep {
        job: Job,
        grace: Dur,
    },
    /// Try again to write what the record still misses.
    RetryRecord,
    /// The run is over; exit with this code.
    Finish {
        exit_code: u8,
    },
}
