//! What a scripted process does.

use dogwatch_core::record::event::EndStep;
use dogwatch_core::run::job::{Exit, JobReport, Marker, Tail};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::sign::{AgentResult, Limit, LimitKind};

/// What a keeper does with its orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    Reports,
    /// It runs and never reports.
    Silent,
    /// Another process stops it again and again.
    Stopped,
}

/// One process tree's part: how long it lasts, how it ends, what it makes of being told to.
#[derive(Clone, Debug)]
pub struct Act {
    /// `None`: it cannot be started, for this reason.
    pub refused: Option<String>,
    /// A resource is missing to start it, for now.
    pub unstarted: Option<String>,
    /// Its keeper reports nothing after the start; and whether it is stopped at every look.
    pub keeper: Keeper,
    /// `None`: it never ends by itself.
    pub lasts: Option<Dur>,
    pub exit: Exit,
    /// The steps of being ended that it does not obey.
    pub ignores: Vec<EndStep>,
    /// How long somebody holds the pipes after the exit; `None` is for ever.
    pub holds_pipes: Option<Dur>,
    /// How long the sweep takes.
    pub sweep: Dur,
    pub report: JobReport,
    /// It changes a file that the loop is woken by, halfway.
    pub touches: bool,
    /// Whom it has started uses a processor all the time.
    pub is_busy: bool,
}

impl Act {
    /// Exits with this code after so long.
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
        }
    }

    pub fn works(after: Dur) -> Act {
        Act::exits(0, after)
    }

    pub fn fails() -> Act {
        Act::exits(1, Dur::from_millis(100)).saying("it broke")
    }

    pub fn hangs() -> Act {
        Act { lasts: None, ..Act::works(Dur::ZERO) }
    }

    pub fn absent() -> Act {
        Act { refused: Some("no such program".to_owned()), ..Act::hangs() }
    }

    /// There is no room for another process just now.
    pub fn short_of_processes() -> Act {
        Act { unstarted: Some("cannot fork".to_owned()), ..Act::hangs() }
    }

    pub fn under(mut self, keeper: Keeper) -> Act {
        self.keeper = keeper;
        self
    }

    /// Says that there is nothing to do.
    pub fn idles(reason: &str) -> Act {
        let marker =
            Marker { state: "idle".to_owned(), attrs: vec![("reason".to_owned(), reason.to_owned())] };
        let mut act = Act::works(Dur::from_secs(12));
        act.report.marker = Some(marker);
        act
    }

    /// Obeys nothing but KILL.
    pub fn stubborn(mut self) -> Act {
        self.ignores = vec![EndStep::Interrupt, EndStep::Terminate];
        self
    }

    pub fn touching(mut self) -> Act {
        self.touches = true;
        self
    }

    pub fn saying(mut self, last_line: &str) -> Act {
        self.report.last_line = last_line.to_owned();
        self
    }

    /// The service refuses; if it says so, until this moment.
    pub fn limited(resets_at: Option<Wall>) -> Act {
        let mut act = Act::exits(1, Dur::from_secs(1));
        let kind = if resets_at.is_some() { LimitKind::RateLimit } else { LimitKind::Overload };
        act.report.tally.limit = Some(Limit { kind, resets_at: None, text: String::new() });
        act.report.resets_at = resets_at;
        act
    }

    /// The service does not know who asks.
    pub fn unknown_to_the_service() -> Act {
        let mut act = Act::exits(1, Dur::from_secs(1));
        act.report.tally.auth_failed = Some("invalid key".to_owned());
        act
    }

    /// A check that fails and says this.
    pub fn check_fails(code: i32, says: &str) -> Act {
        let mut act = Act::exits(code, Dur::from_secs(1));
        act.report.tail = Tail { text: says.to_owned(), truncated: false };
        act
    }

    /// The agent's own session has this name.
    pub fn named(mut self, session: &str) -> Act {
        self.report.tally.session_id = Some(session.to_owned());
        self
    }

    pub fn answering(mut self, result: AgentResult) -> Act {
        self.report.tally.result = Some(result);
        self
    }

    pub fn holding_pipes(mut self, how_long: Option<Dur>) -> Act {
        self.holds_pipes = how_long;
        self
    }
}
