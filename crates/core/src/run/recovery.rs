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

words! {
    /// The class of a failure.
    Class {
        /// The watchdog stopped a session that was silent or lasted too long.
        Stuck = "stuck",
        /// The watchdog stopped a session that repeated itself.
        ErrorLoop = "error_loop",
        /// The agent failed.
        Crash = "crash",
        /// The service refused and gave a reset time.
        RateLimit = "rate_limit",
        /// The service refused without a reset time.
        Overload = "overload",
        /// The service rejected the credentials.
        Authentication = "authentication",
        /// The agent's program does not exist.
        MissingProgram = "missing_program",
        /// The agent finished but the checks fail.
        CheckFailure = "check_failure",
        /// A limit set by the user was reached permanently.
        Configuration = "configuration",
    }
}

words! {
    /// The action that recovery takes.
    Action {
        /// Start the next iteration at once.
        Retry = "retry",
        /// Wait before the next iteration.
        Wait = "wait",
        /// Continue with the next agent of the chain.
        NextAgent = "next_agent",
        /// Give up the node.
        Stop = "stop",
    }
}
