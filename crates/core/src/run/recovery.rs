//! What follows from an end that was no good one: classes, and one table of what is done about each.
//!
//! | class | what happened | what is done | what bounds it |
//! |---|---|---|---|
//! | `stuck` | the watchdog ended a session that was silent or too long | the next iteration, with the recovery prompt | `recovery.budget`; the same twice without progress ends it |
//! | `error_loop` | the watchdog ended a session that went in circles | as `stuck`, never in the agent's old session | as `stuck` |
//! | `crash` | the agent failed | wait 1 s, 2 s, 4 s … 60 s, then again | `errors`, then the next agent; for nodes with checks `max_iterations` |
//! | `rate_limit` | the service refused until a time | the next agent, or wait until then | `limits.max_wait` |
//! | `overload` | the service refused without a time, or the agent waited for it in silence until the watchdog ended it | wait ever longer | `limits.overload_retries`, then the next agent |
//! | `authentication` | the service does not know us | the next agent, or stop at once | the chain |
//! | `missing_program` | the agent's program is not there | the next agent, or as `crash` | the chain, then `errors` |
//! | `check_failure` | the agent is through, the checks are not | wait 2 s, 4 s, 8 s … 60 s, then again with what failed | `max_iterations` |
//! | `configuration` | a limit of the user's own was reached for good | stop | nothing is tried |

use crate::record::event::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// What kind of trouble it was.
    Class {
        Stuck = "stuck", ErrorLoop = "error_loop", Crash = "crash", RateLimit = "rate_limit", Overload = "overload",
        Authentication = "authentication", MissingProgram = "missing_program", CheckFailure = "check_failure",
        Configuration = "configuration",
    }
}

words! {
    /// What is done about it.
    Action { Retry = "retry", Wait = "wait", NextAgent = "next_agent", Stop = "stop" }
}
