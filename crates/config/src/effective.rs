//! Computes the effective settings: fills in defaults and checks the rules between settings.

use crate::diagnostic::Diagnostics;
use crate::keys;
use crate::layers::{Idle, Layers, Origin};
use crate::machine::Machine;
use crate::parsed::Parsed;
use dogwatch_core::record::notification::{NotificationKind, NotifyPolicy, Telegram, Webhook};
use dogwatch_core::record::windows::{Percent, WindowBudget};
use dogwatch_core::settings::{
    AfterStop, AgentPlan, AttemptPolicy, Budget, CheckPolicy, CommandPlan, DayBudget, ErrorPolicy, GraphPlan,
    IdlePolicy, LimitPolicy, McpPolicy, MergePolicy, Profile, ReaderName, RecoveryPolicy, SandboxMode,
    SandboxPolicy, Settings, StopAfter, Strategy, Tampered, WakePolicy, WatchPolicy,
};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::watch::limits::{Estimate, Key};
use std::collections::BTreeMap;

/// Returns the value of a key, if it is set. The kind of a key determines the type of its value, so no file can cause a
/// mismatch.
macro_rules! get {
    ($layers:expr, $path:expr, $kind:ident) => {
        match $layers.get($path).map(|assigned| &assigned.value) {
            Some(Parsed::$kind(value)) => Some(value.clone()),
            _ => None,
        }
    };
}

/// Typed accessors.
impl Layers<'_> {
    /// Returns the words of a command line.
    pub fn words(&self, path: &str) -> Option<Vec<String>> {
        get!(self, path, Words)
    }

    /// Returns the value of `commands`.
    pub fn commands(&self) -> Vec<CommandPlan> {
        get!(self, "commands", Commands).unwrap_or_default()
    }

    /// Returns a list; it is empty if the key is not set.
    pub fn texts(&self, path: &str) -> Vec<String> {
        get!(self, path, Texts).unwrap_or_default()
    }

    /// Returns the choice of a key with a fixed set of words.
    pub fn choice<T>(&self, path: &str, named: fn(&str) -> Option<T>) -> Option<T> {
        self.text(path).and_then(|word| named(&word))
    }

    /// Returns the value of `profile`, or the standard profile.
    pub fn profile(&self) -> Profile {
        self.choice("profile", Profile::named).unwrap_or(Profile::Standard)
    }

    /// Returns a text value.
    pub fn text(&self, path: &str) -> Option<String> {
        get!(self, path, Text)
    }

    /// Returns a flag, or `default` if the key is not set.
    pub fn flag(&self, path: &str, default: bool) -> bool {
        get!(self, path, Flag).unwrap_or(default)
    }

    /// Returns a duration, or `default` if the key is not set.
    pub fn dur(&self, path: &str, default: Dur) -> Dur {
        get!(self, path, Dur).unwrap_or(default)
    }

    fn limit(&self, path: &str, default: Limit) -> Limit {
        get!(self, path, Limit).unwrap_or(default)
    }

    /// Returns a count, where none means no limit.
    fn count_limit(&self, path: &str, default: Option<u32>) -> Option<u32> {
        let count = get!(self, path, Count);
        count.map_or(default, |count| count.map(|n| u32::try_from(n).unwrap_or(u32::MAX)))
    }

    fn number(&self, path: &str) -> Option<f64> {
        get!(self, path, Number)
    }

    /// Returns a count of a key that cannot be `off`.
    fn count_u32(&self, path: &str, default: u32) -> u32 {
        self.count(path).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
    }

    /// Returns a count; none if the key is `off` or not set.
    pub fn count(&self, path: &str) -> Option<u64> {
        get!(self, path, Count).flatten()
    }
}

/// Returns the watchdog limits; the profile and the agent's reader supply the defaults.
pub fn watchdog(layers: &Layers<'_>, reader: ReaderName) -> WatchPolicy {
    let built_in = WatchPolicy::for_reader(layers.profile(), reader);
    WatchPolicy {
        session: layers.limit("watchdog.session", built_in.session),
        children: layers.limit("watchdog.children", built_in.children),
        node: layers.limit("watchdog.node", built_in.node),
        run: layers.limit("watchdog.run", built_in.run),
        errors: layers.count_limit("watchdog.errors", built_in.errors),
        cycles: layers.count_limit("watchdog.cycles", built_in.cycles),
        poll: layers.limit("watchdog.poll", built_in.poll),
        tool: layers.limit("watchdog.tool", built_in.tool),
        tools: get!(layers, "watchdog.tools", ToolLimits).unwrap_or(built_in.tools),
        start: layers.limit("watchdog.start", built_in.start),
        idle: layers.limit("watchdog.idle", built_in.idle),
        evidence_ttl: get!(layers, "watchdog.evidence_ttl", Ttl).unwrap_or(built_in.evidence_ttl),
        human: layers.limit("watchdog.human", built_in.human),
        grace: layers.dur("watchdog.grace", built_in.grace),
        leak: layers.dur("watchdog.leak", built_in.leak),
        result_grace: layers.dur("watchdog.result_grace", built_in.result_grace),
    }
}

/// Applies the limits that follow from recorded sessions, with `profile: learned`. Limits that a file or a flag sets are
/// kept. Several agents of one node share the loosest limit.
pub fn learn(settings: &mut Settings, layers: &Layers<'_>, machine: &dyn Machine) {
    if settings.profile != Profile::Learned {
        return;
    }
    let is_set = |key: &Key| match key {
        Key::Tool(name) => {
            layers.get("watchdog.tool").is_some() || settings.watchdog.tools.contains_key(name)
        }
        Key::Idle | Key::Start | Key::Children | Key::Session => layers.get(&key.path()).is_some(),
    };
    let others = settings.recovery.agents.iter().map(|other| other.reader);
    let mut readers: Vec<ReaderName> = std::iter::once(settings.reader).chain(others).collect();
    readers.sort_unstable_by_key(|reader| reader.as_str());
    readers.dedup();
    let mut learned: BTreeMap<Key, Estimate> = BTreeMap::new();
    for reader in readers {
        for (key, estimate) in machine.learned(reader, &settings.watchdog) {
            let limit = |estimate: &Estimate| estimate.limit_s.or(estimate.now_s);
            let looser = learned.get(&key).is_none_or(|other| limit(other) < limit(&estimate));
            if looser && !is_set(&key) {
                learned.insert(key, estimate);
            }
        }
    }
    for (key, estimate) in learned {
        if let Some(limit) = estimate.limit_s {
            key.set(&mut settings.watchdog, Limit::At(limit));
            settings.learned.push(estimate);
        }
    }
}

/// Returns the profile of external agents; the default is `quick`.
pub fn external_profile(layers: &Layers<'_>) -> Profile {
    layers.choice("external.profile", Profile::named).unwrap_or(Profile::Quick)
}

/// Returns the limits for external agents that register without limits.
pub fn external(layers: &Layers<'_>) -> WatchPolicy {
    let built_in = WatchPolicy::of(external_profile(layers));
    WatchPolicy {
        session: layers.limit("external.session", built_in.session),
        idle: layers.limit("external.idle", built_in.idle),
        errors: layers.count_limit("external.errors", built_in.errors),
        ..built_in
    }
}

/// Returns the limits for failed sessions.
pub fn errors(layers: &Layers<'_>) -> ErrorPolicy {
    let built_in = ErrorPolicy::default();
    ErrorPolicy {
        max: layers.count_u32("errors.max", built_in.max),
        window: layers.dur("errors.window", built_in.window),
    }
}

/// Returns the checks and their policy. `attempts` is the policy of files of this kind.
pub fn checks(layers: &Layers<'_>, attempts: AttemptPolicy) -> CheckPolicy {
    let built_in = CheckPolicy::default();
    let attempts = layers.choice("attempts", AttemptPolicy::named).unwrap_or(attempts);
    let commands = layers.texts("done_when");
    let limited = !commands.is_empty() && layers.get("max_iterations").is_none();
    CheckPolicy {
        commands,
        timeout: layers.dur("checks.timeout", built_in.timeout),
        tampered: layers.choice("checks.tampered", Tampered::named).unwrap_or_default(),
        recheck: layers.count_u32("recheck", built_in.recheck),
        pin: layers.texts("pin"),
        attempts,
        max_stalled: (limited && attempts == AttemptPolicy::Progress)
            .then_some(CheckPolicy::DEFAULT_ATTEMPTS),
    }
}

/// Returns the iteration limit. Without checks there is none by default. With checks and `attempts: seed` it defaults to a
/// few attempts; with `attempts: progress` only attempts without progress are limited.
pub fn max_iterations(layers: &Layers<'_>, checks: &CheckPolicy) -> Option<u64> {
    let limited = checks.any() && checks.attempts == AttemptPolicy::Seed;
    match layers.get("max_iterations") {
        Some(_) => layers.count("max_iterations"),
        None => limited.then_some(CheckPolicy::DEFAULT_ATTEMPTS),
    }
}

/// Returns the reaction to conflicts between dependencies.
pub fn merge(layers: &Layers<'_>) -> MergePolicy {
    layers.choice("merge", MergePolicy::named).unwrap_or_default()
}

/// Returns the recovery policy; `detect` chooses the reader of agents that do not name one.
pub fn recovery(layers: &Layers<'_>, detect: &dyn Fn(&[String]) -> ReaderName) -> RecoveryPolicy {
    let built_in = RecoveryPolicy::default();
    RecoveryPolicy {
        budget: layers.count_u32("recovery.budget", built_in.budget),
        template: layers.text("recovery.template"),
        resume: layers.flag("recovery.resume", built_in.resume),
        agents: get!(layers, "recovery.agents", Agents).map_or(built_in.agents, |agents| {
            let plan = |(agent, reader): (Vec<String>, Option<ReaderName>)| AgentPlan {
                reader: reader.unwrap_or_else(|| detect(&agent)),
                agent,
            };
            agents.into_iter().map(plan).collect()
        }),
    }
}

/// Returns the number of graph nodes that may run at once.
pub fn max_parallel(layers: &Layers<'_>) -> u32 {
    layers.count_u32("max_parallel", GraphPlan::DEFAULT_PARALLEL)
}

/// Returns the budget of the run or node.
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
        window: WindowBudget {
            five_hour: layers.number("budget.window.five_hour").and_then(Percent::new),
            seven_day: layers.number("budget.window.seven_day").and_then(Percent::new),
        },
    }
}

/// Returns the limits for rate limits and overload.
pub fn limits(layers: &Layers<'_>) -> LimitPolicy {
    let built_in = LimitPolicy::default();
    LimitPolicy {
        max_wait: layers.dur("limits.max_wait", built_in.max_wait),
        overload_retries: layers.count_u32("limits.overload_retries", built_in.overload_retries),
    }
}

/// Returns the MCP policy.
pub fn mcp(layers: &Layers<'_>) -> McpPolicy {
    get!(layers, "mcp", Mcp).unwrap_or_default()
}

/// Returns the sandbox of sessions. A `sandbox` block without a mode turns it on.
pub fn sandbox(layers: &Layers<'_>) -> SandboxPolicy {
    let mode = layers.choice("sandbox", SandboxMode::named);
    let has_keys = ["sandbox.write", "sandbox.read", "sandbox.ports", "sandbox.required"]
        .iter()
        .any(|key| layers.get(key).is_some());
    let ports = layers.texts("sandbox.ports").iter().filter_map(|port| port.parse().ok()).collect();
    SandboxPolicy {
        mode: mode.unwrap_or(if has_keys { SandboxMode::Worktree } else { SandboxMode::Off }),
        write: layers.texts("sandbox.write"),
        read: layers.texts("sandbox.read"),
        ports,
        required: layers.flag("sandbox.required", false),
    }
}

/// Returns the conditions that end an idle wait.
pub fn wake_on(layers: &Layers<'_>) -> WakePolicy {
    WakePolicy {
        paths: layers.texts("wake_on.paths"),
        probe: layers.text("wake_on.probe"),
        every: layers.dur("wake_on.every", WakePolicy::DEFAULT_EVERY),
    }
}

/// Returns the notification policy. `notify.on` without a target is an error.
pub fn notify(layers: &Layers<'_>, diagnostics: &mut Diagnostics) -> NotifyPolicy {
    let webhook = |key: &str| get!(layers, key, Webhook);
    let mut policy = NotifyPolicy {
        on: Vec::new(),
        command: layers.text("notify.command"),
        webhook: webhook("notify.webhook"),
        ntfy: get!(layers, "notify.ntfy", Topic),
        slack: webhook("notify.slack"),
        discord: webhook("notify.discord"),
        telegram: telegram(layers, webhook("notify.telegram.api"), diagnostics),
        desktop: layers.flag("notify.desktop", false),
    };
    let assigned = layers.get("notify.on");
    let no_target = policy.targets().is_empty();
    policy.on = match get!(layers, "notify.on", NotifyOn) {
        Some(on) => on,
        None if no_target => Vec::new(),
        None => NotificationKind::SELECTABLE.to_vec(),
    };
    let invalid = keys::keys_in("notify").any(|key| layers.is_invalid(key.path));
    if let (Some(assigned), true, false) = (assigned, no_target, invalid) {
        let Origin { source, span, .. } = &assigned.origin;
        diagnostics.error(*source, span.clone(), "`notify` needs a target").help(
            "set `command`, `webhook`, `ntfy`, `slack`, `discord`, `telegram` or `desktop` of `notify`",
        );
    }
    policy
}

/// Returns the bot of Telegram. A token without a chat, or a chat without a token, is an error.
fn telegram(layers: &Layers<'_>, api: Option<Webhook>, diagnostics: &mut Diagnostics) -> Option<Telegram> {
    let keys = ["notify.telegram.token", "notify.telegram.chat"];
    let (token, chat) = (layers.text(keys[0]), layers.text(keys[1]));
    let half = match (&token, &chat) {
        (Some(_), None) if !layers.is_invalid(keys[1]) => Some((keys[0], "chat")),
        (None, Some(_)) if !layers.is_invalid(keys[0]) => Some((keys[1], "token")),
        (Some(_) | None, Some(_) | None) => None,
    };
    if let Some((given, missing)) = half
        && let Some(assigned) = layers.get(given)
    {
        let Origin { source, span, .. } = &assigned.origin;
        diagnostics
            .error(*source, span.clone(), format!("`notify.telegram` needs a `{missing}`, too"))
            .help("set `token` and `chat` of `notify.telegram`");
    }
    Some(Telegram { token: token?, chat: chat?, api })
}

/// Returns the idle policy. An `idle` block or `work_when` enables it.
pub fn idle(layers: &Layers<'_>, diagnostics: &mut Diagnostics) -> Option<IdlePolicy> {
    let gate = layers.get("work_when").map(|gate| &gate.origin);
    match (&layers.idle, gate) {
        (Some(Idle::On(_)), _) | (None, Some(_)) => {}
        (None | Some(Idle::Off(_)), None) => return None,
        (Some(Idle::Off(off)), Some(_)) => {
            diagnostics
                .error(off.source, off.span.clone(), "`work_when` needs an `idle` policy, but `idle` is off")
                .help("remove one of the two");
            return None;
        }
    }
    let built_in = IdlePolicy::default();
    let strategy = layers.choice("idle.strategy", Strategy::named).unwrap_or(Strategy::Exponential);
    let max_delay = layers.dur("idle.max_delay", built_in.max_delay);
    // `max_delay` is the longest wait of every strategy.
    let longest = if layers.get("idle.max_delay").is_some() { max_delay } else { built_in.longest };
    let policy = IdlePolicy {
        delay: layers.dur("idle.delay", built_in.delay),
        backoff: layers.number("idle.backoff").unwrap_or(built_in.backoff),
        max_delay,
        max: layers.limit("idle.max", Limit::Off).duration(),
        stop_after: stop_after(layers, strategy, built_in.stop_after),
        strategy,
        look: layers.get("idle.look").map(|_| layers.dur("idle.look", IdlePolicy::LOOK)),
        longest: layers.dur("idle.longest", longest),
        skip_unchanged: layers.flag("idle.skip_unchanged", built_in.skip_unchanged),
        instruct: layers.flag("idle.instruct", built_in.instruct),
        after_stop: layers.choice("idle.after_stop", AfterStop::named).unwrap_or_default(),
    };
    check_delays(layers, &policy, diagnostics);
    check_longest(layers, &policy, diagnostics);
    Some(policy)
}

/// Returns the idle stop. The built-in stop applies only if neither `idle.stop_after` nor `idle.max` is set and the loop
/// does not learn when its work arrives.
fn stop_after(layers: &Layers<'_>, strategy: Strategy, built_in: StopAfter) -> StopAfter {
    match get!(layers, "idle.stop_after", StopAfter) {
        Some(stop_after) => stop_after,
        None if layers.get("idle.max").is_some() || strategy == Strategy::Learned => StopAfter::Never,
        None => built_in,
    }
}

fn check_delays(layers: &Layers<'_>, policy: &IdlePolicy, diagnostics: &mut Diagnostics) {
    let invalid = layers.is_invalid("idle.delay") || layers.is_invalid("idle.max_delay");
    if invalid || policy.max_delay >= policy.delay {
        return;
    }
    let origin = |path: &str| layers.get(path).map(|assigned| &assigned.origin);
    let Some(Origin { source, span, .. }) = origin("idle.max_delay").or(origin("idle.delay")) else { return };
    let message =
        format!("`idle.max_delay` ({}) is less than `idle.delay` ({})", policy.max_delay, policy.delay);
    let diagnostic = diagnostics.error(*source, span.clone(), message);
    if origin("idle.max_delay").is_none() {
        diagnostic.help(format!("`idle.max_delay` defaults to {}; set it too", policy.max_delay));
    }
}

/// Reports an `idle.longest` that is less than the first wait.
fn check_longest(layers: &Layers<'_>, policy: &IdlePolicy, diagnostics: &mut Diagnostics) {
    let Some(longest) = layers.get("idle.longest") else { return };
    if policy.longest < policy.delay && !layers.is_invalid("idle.delay") {
        let message =
            format!("`idle.longest` ({}) is less than `idle.delay` ({})", policy.longest, policy.delay);
        diagnostics.error(longest.origin.source, longest.origin.span.clone(), message);
    }
}
