//! The words that events use for causes, states and outcomes.

words! {
    /// Why an iteration started.
    #[derive(Default)]
    Cause {
        /// It is the node's first iteration.
        #[default]
        First = "first",
        /// The iteration before it ended, and any wait after it is over.
        Next = "next",
        /// A wake ended the wait early.
        Wake = "wake",
        /// The checks failed after the last iteration.
        CheckFailed = "check_failed",
        /// The last iteration was stopped or failed, and the recovery plan asks for another attempt.
        Recovery = "recovery",
        /// The run was resumed after its supervisor was lost.
        Resumed = "resumed",
    }
}

words! {
    /// What ended a session.
    EndedBy {
        /// The agent exited by itself.
        Itself = "itself",
        /// The watchdog stopped it.
        Watchdog = "watchdog",
        /// The operator stopped it with Ctrl-C or a stop command.
        Operator = "operator",
        /// dogwatch received TERM or HUP.
        Signal = "signal",
        /// A budget was used up.
        Budget = "budget",
        /// The leash ended (`--leash`).
        Leash = "leash",
        /// The agent gave its result but did not exit within the grace period.
        ResultGrace = "result_grace",
        /// The session could not be started.
        NeverStarted = "never_started",
    }
}

words! {
    /// What ended the wait for a person.
    HumanEndedBy {
        /// The agent made progress again.
        Progress = "progress",
        /// No answer came in time; a `hard_stop` follows.
        Deadline = "deadline",
        /// The session ended first.
        Session = "session",
    }
}

words! {
    /// The steps of ending a process tree, in order.
    EndStep {
        /// SIGINT, which lets the agent finish cleanly.
        Interrupt = "interrupt",
        /// SIGTERM, after the first grace period.
        Terminate = "terminate",
        /// SIGKILL, after the second grace period.
        Kill = "kill",
    }
}

words! {
    /// How an iteration ended. Each kind has its own event: `completed` has `iteration_completed`.
    EndingKind {
        /// The iteration completed.
        Completed = "completed",
        /// There was nothing to do.
        Idle = "idle",
        /// The iteration failed.
        Failed = "failed",
        /// The watchdog stopped it.
        TimedOut = "timed_out",
        /// The service refused for now.
        RateLimited = "rate_limited",
        /// The service rejected the login.
        AuthFailed = "auth_failed",
        /// The iteration was interrupted.
        Interrupted = "interrupted",
    }
}

words! {
    /// Why a node waits, in order of precedence.
    WaitWhy {
        /// The operator paused the run.
        Paused = "paused",
        /// The agent's service refuses for now.
        RateLimit = "rate_limit",
        /// The last iteration was idle.
        Idle = "idle",
        /// The last iteration failed.
        Error = "error",
        /// The recovery plan asks for a wait before the next attempt.
        Recovery = "recovery",
        /// The checks failed, and the next attempt is delayed.
        Backoff = "backoff",
        /// The setting `delay` between two iterations.
        Delay = "delay",
        /// An idle limit stopped the loop; it waits for a wake.
        Asleep = "asleep",
    }
}

words! {
    /// The subject of a report over the agent channel.
    ReportKind {
        /// The agent reported its state.
        State = "state",
        /// The agent reported progress.
        Progress = "progress",
        /// The agent reported an error.
        Error = "error",
        /// The agent saved an artifact.
        Artifact = "artifact",
        /// The agent ran the checks.
        Checks = "checks",
        /// A server behind the MCP proxy misbehaved.
        Server = "server",
    }
}

words! {
    /// What ended a wait.
    WaitEndedBy {
        /// The wait reached its end.
        Timer = "timer",
        /// The operator woke or resumed the run.
        Operator = "operator",
        /// A watched file changed.
        Path = "path",
        /// The probe found work.
        Probe = "probe",
        /// `dogwatch wake` or another client of the HTTP API woke the run.
        Api = "api",
        /// A signal woke the run.
        Signal = "signal",
        /// The node's time budget is used up.
        Budget = "budget",
        /// The node reached `watchdog.node`.
        Ceiling = "ceiling",
    }
}

words! {
    /// The state of a node.
    #[derive(Default)]
    NodeState {
        /// It waits for other nodes or for its start.
        #[default]
        Pending = "pending",
        /// It can start as soon as there is a free slot.
        Ready = "ready",
        /// It runs iterations.
        Running = "running",
        /// It ended successfully.
        Done = "done",
        /// It ended without success.
        Failed = "failed",
        /// It never starts because a node that it depends on failed.
        Blocked = "blocked",
    }
}

words! {
    /// How a run ended.
    Outcome {
        /// The requested iterations ran and at least one completed, or all nodes are done.
        Clean = "clean",
        /// As `clean`, but some checks passed only after a failed attempt.
        CleanWithFlake = "clean_with_flake",
        /// Some nodes are done and some failed; none is blocked.
        Partial = "partial",
        /// A node is blocked by a node that failed.
        Stuck = "stuck",
        /// The requested iterations ran and none completed.
        Catastrophic = "catastrophic",
        /// There was nothing to do, and the loop file allows the run to end.
        Idle = "idle",
        /// The operator stopped the run after the current iteration.
        Stopped = "stopped",
        /// An iteration failed and `--stop-on-error` is set.
        StoppedOnError = "stopped_on_error",
        /// The operator or a signal interrupted the run.
        Interrupted = "interrupted",
        /// Too many errors in a row, or within the error window.
        ErrorLimit = "error_limit",
        /// The agent's service rejected the login.
        AuthFailed = "auth_failed",
        /// A budget of the run is used up.
        BudgetExceeded = "budget_exceeded",
        /// The node or the run reached its time ceiling (`watchdog.node`, `watchdog.run`).
        Ceiling = "ceiling",
        /// The record is gone or was changed, so nothing more was started.
        RecordLost = "record_lost",
    }
}
