//! From what was said to what holds: every setting filled in, and the rules between settings checked.

use crate::diagnostic::Diagnostics;
use crate::layers::{Idle, Layers, Origin};
use crate::parsed::Parsed;
use dogwatch_core::dur::{Dur, Limit};
use dogwatch_core::news::{NewsKind, NotifyPolicy};
use dogwatch_core::settings::{
    AgentPlan, Budget, CheckPolicy, CommandPlan, DayBudget, ErrorPolicy, GraphPlan, IdlePolicy, LimitPolicy,
    McpPolicy, Profile, ReaderName, RecoveryPolicy, StopAfter, Strategy, Tampered, Ttl, WakePolicy,
    WatchPolicy,
};

/// Typed looks into the layers. A key's kind decides its type, so a mismatch cannot come from a file.
impl Layers<'_> {
    fn value(&self, path: &str) -> Option<&Parsed> {
        self.get(path).map(|assigned| &assigned.value)
    }

    pub fn words(&self, path: &str) -> Option<Vec<String>> {
        match self.value(path)? {
            Parsed::Words(words) => Some(words.clone()),
            _ => None,
        }
    }

    pub fn commands(&self) -> Vec<CommandPlan> {
        match self.value("commands") {
            Some(Parsed::Commands(commands)) => commands.clone(),
            _ => Vec::new(),
        }
    }

    pub fn texts(&self, path: &str) -> Vec<String> {
        match self.value(path) {
            Some(Parsed::Texts(texts)) => texts.clone(),
            _ => Vec::new(),
        }
    }

    pub fn reader(&self) -> Option<ReaderName> {
        match self.value("reader")? {
            Parsed::Reader(reader) => Some(*reader),
            _ => None,
        }
    }

    pub fn profile(&self) -> Profile {
        match self.value("profile") {
            Some(Parsed::Profile(profile)) => *profile,
            _ => Profile::Standard,
        }
    }

    pub fn text(&self, path: &str) -> Option<String> {
        match self.value(path)? {
            Parsed::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub fn flag(&self, path: &str, default: bool) -> bool {
        match self.value(path) {
            Some(Parsed::Flag(flag)) => *flag,
            _ => default,
        }
    }

    pub fn dur(&self, path: &str, default: Dur) -> Dur {
        match self.value(path) {
            Some(Parsed::Dur(dur)) => *dur,
            _ => default,
        }
    }

    fn limit(&self, path: &str, default: Limit) -> Limit {
        match self.value(path) {
            Some(Parsed::Limit(limit)) => *limit,
            _ => default,
        }
    }

    fn ttl(&self, path: &str, default: Ttl) -> Ttl {
        match self.value(path) {
            Some(Parsed::Ttl(ttl)) => *ttl,
            _ => default,
        }
    }

    /// How often something may happen; `off` is no limit.
    fn count_limit(&self, path: &str, default: Option<u32>) -> Option<u32> {
        match self.value(path) {
            Some(Parsed::Count(count)) => count.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            _ => default,
        }
    }

    fn number(&self, path: &str) -> Option<f64> {
        match self.value(path)? {
            Parsed::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// A whole number of a key that has no `off`.
    fn count_u32(&self, path: &str, default: u32) -> u32 {
        self.count(path).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
    }

    pub fn count(&self, path: &str) -> Option<u64> {
        match self.value(path)? {
            Parsed::Count(count) => *count,
            _ => None,
        }
    }
}

pub fn watchdog(layers: &Layers<'_>) -> WatchPolicy {
    let built_in = WatchPolicy::of(layers.profile());
    WatchPolicy {
        session: layers.limit("watchdog.session", built_in.session),
        children: layers.limit("watchdog.children", built_in.children),
        node: layers.limit("watchdog.node", built_in.node),
        run: layers.limit("watchdog.run", built_in.run),
        errors: layers.count_limit("watchdog.errors", built_in.errors),
        cycles: layers.count_limit("watchdog.cycles", built_in.cycles),
        poll: layers.limit("watchdog.poll", built_in.poll),
        tool: layers.limit("watchdog.tool", built_in.tool),
        start: layers.limit("watchdog.start", built_in.start),
        idle: layers.limit("watchdog.idle", built_in.idle),
        evidence_ttl: layers.ttl("watchdog.evidence_ttl", built_in.evidence_ttl),
        human: layers.limit("watchdog.human", built_in.human),
        grace: layers.dur("watchdog.grace", built_in.grace),
        leak: layers.dur("watchdog.leak", built_in.leak),
        result_grace: layers.dur("watchdog.result_grace", built_in.result_grace),
    }
}

pub fn errors(layers: &Layers<'_>) -> ErrorPolicy {
    let built_in = ErrorPolicy::default();
    ErrorPolicy {
        max: layers.count_u32("errors.max", built_in.max),
        window: layers.dur("errors.window", built_in.window),
    }
}

pub fn checks(layers: &Layers<'_>) -> CheckPolicy {
    let built_in = CheckPolicy::default();
    CheckPolicy {
        commands: layers.texts("done_when"),
        timeout: layers.dur("checks.timeout", built_in.timeout),
        tampered: match layers.text("checks.tampered").as_deref() {
            Some("warn") => Tampered::Warn,
            Some(_) | None => Tampered::Fail,
        },
        recheck: layers.count_u32("recheck", built_in.recheck),
        pin: layers.texts("pin"),
    }
}

/// Who has checks and says nothing else tries a few times; who has none goes on for ever.
pub fn max_iterations(layers: &Layers<'_>, checks: &CheckPolicy) -> Option<u64> {
    match layers.get("max_iterations") {
        Some(_) => layers.count("max_iterations"),
        None => checks.any().then_some(CheckPolicy::DEFAULT_ATTEMPTS),
    }
}

pub fn recovery(layers: &Layers<'_>, detect: &dyn Fn(&[String]) -> ReaderName) -> RecoveryPolicy {
    let built_in = RecoveryPolicy::default();
    RecoveryPolicy {
        budget: layers.count_u32("recovery.budget", built_in.budget),
        template: layers.text("recovery.template"),
        resume: layers.flag("recovery.resume", built_in.resume),
        agents: match layers.value("recovery.agents") {
            Some(Parsed::Agents(agents)) => agents
                .iter()
                .map(|(agent, reader)| AgentPlan {
                    agent: agent.clone(),
                    reader: reader.unwrap_or_else(|| detect(agent)),
                })
                .collect(),
            _ => built_in.agents,
        },
    }
}

pub fn max_parallel(layers: &Layers<'_>) -> u32 {
    layers.count_u32("max_parallel", GraphPlan::DEFAULT_PARALLEL)
}

pub fn budget(layers: &Layers<'_>) -> Budget {
    Budget {
        iterations: layers.count("budget.iterations"),
        time: layers.limit("budget.time", Limit::Off).duration(),
        tokens: layers.count("budget.tokens"),
        cost_usd: layers.number("budget.cost_usd"),
        day: DayBudget {
            tokens: layers.count("budget.day.tokens"),
            cost_usd: layers.number("budget.day.cost_usd"),
        },
    }
}

pub fn limits(layers: &Layers<'_>) -> LimitPolicy {
    let built_in = LimitPolicy::default();
    LimitPolicy {
        max_wait: layers.dur("limits.max_wait", built_in.max_wait),
        overload_retries: layers.count_u32("limits.overload_retries", built_in.overload_retries),
    }
}

pub fn mcp(layers: &Layers<'_>) -> McpPolicy {
    match layers.value("mcp") {
        Some(Parsed::Mcp(policy)) => policy.clone(),
        _ => McpPolicy::default(),
    }
}

pub fn wake_on(layers: &Layers<'_>) -> WakePolicy {
    WakePolicy {
        paths: layers.texts("wake_on.paths"),
        probe: layers.text("wake_on.probe"),
        every: layers.dur("wake_on.every", WakePolicy::DEFAULT_EVERY),
    }
}

/// Who is told, and of what. What is asked for with nobody to tell is an error.
pub fn notify(layers: &Layers<'_>, diagnostics: &mut Diagnostics) -> NotifyPolicy {
    let webhook = match layers.value("notify.webhook") {
        Some(Parsed::Webhook(webhook)) => Some(webhook.clone()),
        _ => None,
    };
    let command = layers.text("notify.command");
    let said = layers.get("notify.on");
    let wrong = layers.is_invalid("notify.command") || layers.is_invalid("notify.webhook");
    let nobody = command.is_none() && webhook.is_none();
    let on = match said.map(|assigned| &assigned.value) {
        Some(Parsed::NotifyOn(on)) => on.clone(),
        _ if nobody => Vec::new(),
        _ => NewsKind::ALL.to_vec(),
    };
    if let (Some(said), true, false) = (said, nobody, wrong) {
        let Origin { source, span, .. } = &said.origin;
        diagnostics
            .error(*source, span.clone(), "`notify` names nobody who is to be told")
            .help("set `notify.command` or `notify.webhook` too");
    }
    NotifyPolicy { on, command, webhook }
}

/// The idle policy, if there is any: from an `idle` block or because `work_when` needs one.
pub fn idle(layers: &Layers<'_>, diagnostics: &mut Diagnostics) -> Option<IdlePolicy> {
    let gate = layers.get("work_when").map(|gate| &gate.origin);
    match (&layers.idle, gate) {
        (Some(Idle::On(_)), _) | (None, Some(_)) => {}
        (None | Some(Idle::Off(_)), None) => return None,
        (Some(Idle::Off(off)), Some(_)) => {
            diagnostics
                .error(off.source, off.span.clone(), "`work_when` needs idling, but `idle` is off")
                .help("remove one of the two");
            return None;
        }
    }
    let built_in = IdlePolicy::default();
    let policy = IdlePolicy {
        delay: layers.dur("idle.delay", built_in.delay),
        backoff: match layers.value("idle.backoff") {
            Some(Parsed::Number(backoff)) => *backoff,
            _ => built_in.backoff,
        },
        max_delay: layers.dur("idle.max_delay", built_in.max_delay),
        max: layers.limit("idle.max", Limit::Off).duration(),
        stop_after: stop_after(layers, built_in.stop_after),
        strategy: match layers.value("idle.strategy") {
            Some(Parsed::Strategy(strategy)) => *strategy,
            _ => Strategy::Exponential,
        },
        skip_unchanged: layers.flag("idle.skip_unchanged", built_in.skip_unchanged),
        instruct: layers.flag("idle.instruct", built_in.instruct),
    };
    check_delays(layers, &policy, diagnostics);
    Some(policy)
}

/// The built-in stop is for those who set no limit of their own, neither by time nor by count.
fn stop_after(layers: &Layers<'_>, built_in: StopAfter) -> StopAfter {
    match layers.value("idle.stop_after") {
        Some(Parsed::StopAfter(stop_after)) => stop_after.clone(),
        _ if layers.get("idle.max").is_some() => StopAfter::Never,
        _ => built_in,
    }
}

fn check_delays(layers: &Layers<'_>, policy: &IdlePolicy, diagnostics: &mut Diagnostics) {
    let wrong = layers.is_invalid("idle.delay") || layers.is_invalid("idle.max_delay");
    if wrong || policy.max_delay >= policy.delay {
        return;
    }
    let said = |path: &str| layers.get(path).map(|assigned| &assigned.origin);
    let Some(Origin { source, span, .. }) = said("idle.max_delay").or(said("idle.delay")) else { return };
    let message =
        format!("`idle.max_delay` ({}) is less than `idle.delay` ({})", policy.max_delay, policy.delay);
    let diagnostic = diagnostics.error(*source, span.clone(), message);
    if said("idle.max_delay").is_none() {
        diagnostic.help(format!("`idle.max_delay` is {} unless set; set it too", policy.max_delay));
    }
}
