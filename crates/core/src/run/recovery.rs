//! Recovery after a bad ending: the classes of failures and the table of actions.
//!
//! | class | cause | action | limit |
//! |---|---|---|---|
//! | `stuck` | the watchdog stopped a session that was silent or lasted too long | next iteration with the recovery prompt | `recovery.budget`; two identical stops without progress end the node |
//! | `error_loop` | the watchdog stopped a session that repeated itself | as `stuck`, but never in the agent's old session | as `stuck` |
//! | `crash` | the agent failed | wait 1 s, 2 s, 4 s … 60 s, then retry | `errors`, then the next agent; for nodes with checks `max_iterations` |
//! | `rate_limit` | the service refused and gave a reset time | next agent, or wait until the reset | `limits.max_wait` |
//! | `overload` | the service refused without a reset time, or the agent waited for it in silence until the watchdog stopped it | wait with growing delays | `limits.overload_retries`, then the next agent |
//! | `authentication` | the service rejected the credentials | next agent, or stop at once | the chain |
//! | `missing_program` | the agent's program does not exist | next agent, or as `crash` | the chain, then `errors` |
//! | `check_failure` | the agent finished but the checks fail | wait 2 s, 4 s, 8 s … 60 s, then retry with the failed checks in the prompt | `max_iterations` |
//! | `configuration` | a limit set by the user was reached permanently | stop | no retry |

use crate::record::event::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// The class of a failure.
    Class {
        Stuck = "stuck", ErrorLoop = "error_loop", Crash = "crash", RateLimit = "rate_limit", Overload = "overload",
        Authentication = "authentication", MissingProgram = "missing_program", CheckFailure = "check_failure",
        Configuration = "configuration",
    }
}

words! {
    /// The action that recovery takes.
    Action { Retry = "retry", Wait = "wait", NextAgent = "next_agent", Stop = "stop" }
}
