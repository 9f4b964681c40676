//! Which agents of a chain may be called now. An agent is closed while it rests after a failure or a refusal, while a
//! window of its account is used up to `budget.window`, and while the operator's limit lasts.

use super::Run;
use super::cx::Cx;
use crate::record::event::{Cause, Event, WaitEndedBy, WaitWhy};
use crate::record::ids::NodeIx;
use crate::record::view::Doing;
use crate::record::windows::{Window, WindowBudget, WindowsUsed};
use crate::run::job::Job;
use crate::settings::ReaderName;
use crate::text::clip;
use crate::time::dur::Dur;
use crate::time::moment::Wall;

/// The extra wait after a reset time, because clocks differ.
pub(super) const AFTER_RESET: Dur = Dur::from_secs(15);
/// How far ahead the operator's limit may be.
pub const MAX_LIMIT: Dur = Dur::from_hours(31 * 24);
/// The longest name of an account, in bytes.
pub const MAX_ACCOUNT: usize = 200;

/// Why an agent may not be called.
pub(super) struct Closed {
    /// Until when. `None` means for the rest of the run.
    pub until: Option<Wall>,
    /// The reason for people, if it is more specific than that the agent is not called.
    pub why: Option<String>,
}

/// Returns the account of an agent: its name, and what distinguishes its login from the usual one. Agents that differ
/// only in their flags share an account.
pub fn account(agent: &[String], reader: ReaderName) -> String {
    const HOMES: [&str; 3] = ["CLAUDE_CONFIG_DIR=", "CODEX_HOME=", "GEMINI_CLI_HOME="];
    let home = agent.iter().find_map(|word| HOMES.iter().find_map(|home| word.strip_prefix(home)));
    let program = agent.first().map_or("", String::as_str);
    let file = program.rsplit('/').next().unwrap_or(program);
    let name = match home {
        Some(home) => format!("{reader} {home}"),
        None if file == reader.as_str() || file == "env" => reader.to_string(),
        None => format!("{reader} {program}"),
    };
    clip(&name, MAX_ACCOUNT).to_owned()
}

/// Describes a window that is used up to its limit.
pub fn window_reached(account: &str, window: &Window, limit: impl std::fmt::Display) -> String {
    let Window { window: name, used_percent, resets_at } = window;
    let reset = match resets_at {
        Some(at) => format!("resets at {at}"),
        None => "reset time unknown".to_owned(),
    };
    format!(
        "{used_percent} of the {name} window of {account} is used (budget.window.{name}: {limit}); {reset}"
    )
}

impl Cx {
    /// Returns the account of an agent in the node's chain.
    pub fn account(&self, ix: NodeIx, n: u32) -> String {
        let (agent, reader) = self.agent(ix, n);
        account(agent, reader)
    }

    /// Returns the share of the windows that the node's agents may use: the lower of the node's and the graph's.
    pub fn window_budget(&self, ix: NodeIx) -> WindowBudget {
        let own = self.settings(ix).budget.window;
        self.plan.graph.as_ref().map_or(own, |graph| own.and(&graph.budget.window))
    }

    /// Returns the indices of the node's chain of agents.
    fn chain(&self, ix: NodeIx) -> impl Iterator<Item = u32> + use<> {
        (0..=self.settings(ix).recovery.agents.len()).filter_map(|n| u32::try_from(n).ok())
    }

    /// Returns why an agent may not be called now. Of several reasons the one that lasts longest counts.
    fn closed(&self, ix: NodeIx, n: u32) -> Option<Closed> {
        let now = self.now.wall;
        let rest = self.view.rests(&self.agent_label(ix, n), now).map(|until| Closed { until, why: None });
        if rest.as_ref().is_some_and(|rest| rest.until.is_none()) {
            return rest;
        }
        let account = self.account(ix, n);
        let limit = self.view.limit.max(self.view.account_limits.get(&account).copied());
        let limit = limit
            .filter(|until| *until > now)
            .map(|until| Closed { until: Some(until), why: Some(format!("a limit is set until {until}")) });
        let known = self.view.windows.get(&account);
        let full = known.and_then(|known| self.window_budget(ix).reached(known, now));
        let full = full.map(|(window, limit, reset)| Closed {
            until: Some(reset.plus(AFTER_RESET)),
            why: Some(window_reached(&account, &window, limit)),
        });
        rest.into_iter().chain(limit).chain(full).max_by_key(|closed| closed.until)
    }

    /// Returns the agents that may be called now, with their labels.
    pub fn free_agents(&self, ix: NodeIx) -> impl Iterator<Item = (u32, String)> {
        self.chain(ix)
            .filter(move |n| self.closed(ix, *n).is_none())
            .map(move |n| (n, self.agent_label(ix, n)))
    }

    /// Returns the agent to use next: the first of the chain that may be called.
    pub fn free_agent(&self, ix: NodeIx) -> Option<u32> {
        self.free_agents(ix).next().map(|(n, _)| n)
    }

    /// Returns the agent to use for an operator who does not want to wait: the first that can still be called.
    pub fn any_agent(&self, ix: NodeIx) -> Option<u32> {
        self.chain(ix).find(|n| self.closed(ix, *n).is_none_or(|closed| closed.until.is_some()))
    }

    /// Returns when the first agent of the chain may be called again, and why not before. `None` if one is free, or if
    /// all are out for good.
    pub fn opens(&self, ix: NodeIx) -> Option<(Wall, Option<String>)> {
        let mut first: Option<(Wall, Option<String>)> = None;
        for n in self.chain(ix) {
            let closed = self.closed(ix, n)?;
            if let Some(until) = closed.until
                && first.as_ref().is_none_or(|(known, _)| until < *known)
            {
                first = Some((until, closed.why));
            }
        }
        first
    }
}

impl Run {
    /// Handles a report of a session about the windows of its account.
    pub(super) fn windows_seen(&mut self, job: Job, seen_at: Wall, windows: Vec<Window>) {
        if self.nodes.get(job.node.0).is_some_and(|node| node.has_job(job)) {
            let account = self.cx.account(job.node, self.nodes[job.node.0].agent);
            self.windows_used(WindowsUsed { account, seen_at, windows });
        }
    }

    /// Handles a report about the windows of an account. A session continues even if a limit is reached: the limit
    /// applies to the next session.
    fn windows_used(&mut self, used: WindowsUsed) {
        let known = self.cx.view.windows.get(&used.account);
        if !known.is_none_or(|known| known.is_new(&used)) {
            return;
        }
        let account = used.account.clone();
        let before = self.full_accounts(&account);
        self.cx.record(Event::WindowsUsed(used));
        if let (false, Some(message)) = (before.is_some(), self.full_accounts(&account))
            && self.nodes.iter().any(|node| node.is_working())
        {
            let message = format!("{message}; the current session may finish");
            self.cx.record(Event::Notice { kind: "window_reached".into(), message });
        }
    }

    /// Returns the description of the account's window that is used up to the limit of a node that uses the account.
    fn full_accounts(&self, account: &str) -> Option<String> {
        let known = self.cx.view.windows.get(account)?;
        self.every().find_map(|ix| {
            self.cx.chain(ix).find(|n| self.cx.account(ix, *n) == account)?;
            let (window, limit, _) = self.cx.window_budget(ix).reached(known, self.cx.now.wall)?;
            Some(window_reached(account, &window, limit))
        })
    }

    /// Sets the operator's limit. Waits for an agent start again with the new end.
    pub(super) fn limit_asked(&mut self, until: Wall, account: Option<String>) {
        let until = until.min(self.cx.now.wall.plus(MAX_LIMIT));
        let account = account.map(|account| clip(&account, MAX_ACCOUNT).to_owned());
        let closed: Vec<bool> = self.every().map(|ix| self.cx.opens(ix).is_some()).collect();
        self.cx.record(Event::LimitSet { until, account });
        for (ix, was) in self.every().zip(closed) {
            let Doing::Waiting { why: WaitWhy::RateLimit, until: Some(end), .. } =
                self.cx.view.node(ix).doing
            else {
                continue;
            };
            if was || self.cx.opens(ix).is_some_and(|(opens, _)| opens > end) {
                let turn = self.nodes[ix.0].wake(&mut self.cx, WaitEndedBy::Api, Cause::Next);
                self.turn(ix, turn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_share_an_account_unless_their_login_differs() {
        let of =
            |line: &str, reader| account(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), reader);
        let claude = ReaderName::Claude;
        assert_eq!(of("claude -p --model opus", claude), "claude");
        assert_eq!(of("/usr/bin/claude", claude), "claude");
        assert_eq!(of("env CLAUDE_CONFIG_DIR=/srv/work claude -p", claude), "claude /srv/work");
        assert_eq!(of("./work-claude -p", claude), "claude ./work-claude");
        assert_eq!(of("codex exec", ReaderName::Codex), "codex");
    }
}
