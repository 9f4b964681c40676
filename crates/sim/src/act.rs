//! The behavior of scripted processes.

use dogwatch_core::record::event::EndStep;
use dogwatch_core::run::agent_channel::RequestBody;
use dogwatch_core::run::job::{Exit, JobReport, Marker, OutputTail};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::feed::Stream;
use dogwatch_core::watch::sign::{AgentResult, Limit, LimitKind};
use std::sync::Arc;

/// A step of an agent's script.
#[derive(Clone, Debug)]
pub enum Does {
    /// It prints these bytes.
    Prints(Stream, Arc<[u8]>),
    /// It changes the work tree, which then has this digest if it is known.
    Changes(Option<u64>),
    /// It makes a request over the agent channel, with its own token or another one.
    Asks(RequestBody, Option<String>),
    /// It starts this many processes that outlive it.
    Forks(u64),
}

/// How a keeper responds to orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// It carries out its orders and reports.
    Reports,
    /// It runs and never reports.
    Silent,
    /// Another process stops it repeatedly.
    Stopped,
}

/// The script of one process tree: how long it lasts, how it ends, and how it reacts to signals.
#[derive(Clone, Debug)]
pub struct Act {
    /// The reason why it cannot be started, if it cannot.
    pub refused: Option<String>,
    /// The resource that is temporarily missing to start it, if any.
    pub unstarted: Option<String>,
    /// How its keeper behaves after the start.
    pub keeper: Keeper,
    /// How long it runs; `None` means that it never ends by itself.
    pub lasts: Option<Dur>,
    /// How it exits.
    pub exit: Exit,
    /// The end steps that it ignores.
    pub ignores: Vec<EndStep>,
    /// How long a descendant holds the pipes after the exit; `None` means forever.
    pub holds_pipes: Option<Dur>,
    /// How long the sweep takes.
    pub sweep: Dur,
    /// The report of its job.
    pub report: JobReport,
    /// Whether it changes a file that wakes the loop, halfway through.
    pub touches: bool,
    /// Whether its descendants use a processor all the time.
    pub is_busy: bool,
    /// The actions, with the time since the start. An agent that prints is reported by its output, not by `report`.
    pub script: Vec<(Dur, Does)>,
    /// How many processes it starts at once that outlive it.
    pub forks: u64,
    /// How long its processes survive KILL.
    pub unkillable: Dur,
    /// How long the keeper takes to report the start.
    pub start_report_after: Dur,
    /// Why the keeper cannot start it, and whether it can later.
    pub keeper_refuses: Option<(String, bool)>,
    /// When its keeper dies, since the start.
    pub keeper_dies: Option<Dur>,
    /// How long after the exit its keeper reports it again.
    pub repeats_exit: Option<Dur>,
    /// How long the pump takes to read what the agent printed.
    pub pump_lag: Dur,
    /// Whether everything that it prints is progress.
    pub progress: bool,
}

impl Act {
    /// Creates a process that exits with this code after `after`.
    pub fn exits(code: i32, after: Dur) -> Act {
        Act {
            refused: None,
            unstarted: None,
            keeper: Keeper::Reports,
            lasts: Some(after),
            exit: Exit::Code(code),
            ignores: Vec::new(),
            holds_pipes: Some(Dur::ZERO),
            sweep: Dur::ZERO,
            report: JobReport::default(),
            touches: false,
            is_busy: false,
            script: Vec::new(),
            forks: 0,
            unkillable: Dur::ZERO,
            start_report_after: Dur::ZERO,
            keeper_refuses: None,
            keeper_dies: None,
            repeats_exit: None,
            pump_lag: Dur::ZERO,
            progress: false,
        }
    }

    pub(crate) fn ignores_interrupt(&self) -> bool {
        self.ignores.contains(&EndStep::Interrupt)
    }

    pub(crate) fn ignores_terminate(&self) -> bool {
        self.ignores.contains(&EndStep::Terminate)
    }

    /// Creates a process that succeeds after `after`.
    pub fn works(after: Dur) -> Act {
        Act::exits(0, after)
    }

    /// Creates a process that fails.
    pub fn fails() -> Act {
        Act::exits(1, Dur::from_millis(100)).saying("it broke")
    }

    /// Creates a process that never ends by itself.
    pub fn hangs() -> Act {
        Act { lasts: None, ..Act::works(Dur::ZERO) }
    }

    /// Creates a process whose program does not exist.
    pub fn absent() -> Act {
        Act { refused: Some("no such program".to_owned()), ..Act::hangs() }
    }

    /// Creates a process that cannot be started because the system is out of processes.
    pub fn short_of_processes() -> Act {
        Act { unstarted: Some("cannot fork".to_owned()), ..Act::hangs() }
    }

    /// Sets the behavior of its keeper.
    pub fn under(mut self, keeper: Keeper) -> Act {
        self.keeper = keeper;
        self
    }

    /// Creates an agent that reports that there is nothing to do.
    pub fn idles(reason: &str) -> Act {
        let marker =
            Marker { state: "idle".to_owned(), attrs: vec![("reason".to_owned(), reason.to_owned())] };
        let mut act = Act::works(Dur::from_secs(12));
        act.report.marker = Some(marker);
        act
    }

    /// Ignores every signal except KILL.
    pub fn stubborn(mut self) -> Act {
        self.ignores = vec![EndStep::Interrupt, EndStep::Terminate];
        self
    }

    /// Touches a file that wakes the loop, halfway through.
    pub fn touching(mut self) -> Act {
        self.touches = true;
        self
    }

    /// Sets the last line that it prints.
    pub fn saying(mut self, last_line: &str) -> Act {
        self.report.last_line = last_line.to_owned();
        self
    }

    /// Creates an agent that the service refuses, until this moment if the service reports one.
    pub fn limited(resets_at: Option<Wall>) -> Act {
        let mut act = Act::exits(1, Dur::from_secs(1));
        let kind = if resets_at.is_some() { LimitKind::RateLimit } else { LimitKind::Overload };
        act.report.totals.limit = Some(Limit { kind, resets_at: None, text: String::new() });
        act.report.resets_at = resets_at;
        act
    }

    /// Creates an agent whose login the service does not accept.
    pub fn unknown_to_the_service() -> Act {
        let mut act = Act::exits(1, Dur::from_secs(1));
        act.report.totals.auth_failed = Some("invalid key".to_owned());
        act
    }

    /// Creates a check that fails with this output.
    pub fn check_fails(code: i32, says: &str) -> Act {
        let mut act = Act::exits(code, Dur::from_secs(1));
        act.report.tail = OutputTail { text: says.to_owned(), truncated: false };
        act
    }

    /// Sets the id of the agent's own session.
    pub fn named(mut self, session: &str) -> Act {
        self.report.totals.session_id = Some(session.to_owned());
        self
    }

    /// Sets the agent's result.
    pub fn answering(mut self, result: AgentResult) -> Act {
        self.report.totals.result = Some(result);
        self
    }

    /// Sets how long the pipes are held after the exit.
    pub fn holding_pipes(mut self, how_long: Option<Dur>) -> Act {
        self.holds_pipes = how_long;
        self
    }
}
