//! Copies the journal of a run while it grows, and reads its events.

use super::Worker;
use super::account::{AFTER_RESET, tomorrow};
use super::branches::Branches;
use super::command::Cancel;
use super::git::Checkout;
use super::growing::Change;
use super::journal::{self, Copier, Fenced, Line};
use super::reserving::NO_SHARE;
use super::running::Order;
use crate::names::{self, JobId};
use crate::record::Parked;
use dogwatch_core::lease::Input;
use dogwatch_core::lease::reserve::Amount;
use dogwatch_core::record::event::Usage;
use dogwatch_core::record::ids::RunId;
use dogwatch_host::store::home::{STATE_DIR, StateDir};
use dogwatch_host::store::journal::{FILE, SessionLines, head};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long lines gather after the first one, so that one piece holds them all. A run writes many when it starts.
const GATHER: Duration = Duration::from_millis(100);

/// Copies one journal.
pub(super) struct Copying {
    pub worker: Arc<Worker>,
    pub id: JobId,
    pub epoch: u64,
    pub checkout: Checkout,
    pub copier: Copier,
    /// The run, if it is known.
    pub run: Option<RunId>,
    pub inputs: mpsc::Sender<Input>,
    /// The branches of nodes with worktrees of their own.
    pub branches: Branches,
    /// Whether the sessions of this run are jobs of their own, which count their usage themselves.
    pub spread: bool,
    /// The sessions of the run, also those of earlier claims.
    pub sessions: SessionLines,
    /// Names the run as soon as it is known.
    pub named: watch::Sender<Option<PathBuf>>,
    /// How the run ended, once its journal has the event.
    pub ended: Option<(String, i32)>,
    /// Whether another worker writes the journal now.
    pub fenced: bool,
    /// Set while the run waits for a share of the budget.
    pub waits: Option<watch::Receiver<()>>,
}

impl Copying {
    /// Copies until the process has ended, and then the rest. Returns itself with the results.
    pub async fn run(mut self, mut over: watch::Receiver<bool>) -> Copying {
        while !self.fenced {
            let watched = self.nearest();
            // A change from here on ends the wait below, so none is missed.
            let change = Change::of(&watched);
            let pause = if self.copy_one().await {
                names::PIECE_EVERY
            } else if self.nearest() == watched {
                tokio::select! {
                    () = ended(&mut over) => break,
                    () = change.comes() => {}
                    () = share_freed(&self.worker, &self.id, &mut self.waits) => self.reserve_again().await,
                }
                GATHER
            } else {
                continue;
            };
            if tokio::time::timeout(pause, ended(&mut over)).await.is_ok() {
                break;
            }
        }
        while !self.fenced && self.copy_one().await {}
        self
    }

    /// Copies one piece, and returns whether there was one.
    async fn copy_one(&mut self) -> bool {
        let Some(path) = self.find() else { return false };
        let piece = match journal::next_piece(&path, self.copier.offset) {
            Ok(piece) => piece,
            Err(error) => {
                self.worker.say(&format!("{}: cannot read the journal: {error}", self.id));
                return false;
            }
        };
        if piece.is_empty() {
            return false;
        }
        let (mut saved, mut started) = (None, None);
        for line in piece.split(|byte| *byte == b'\n') {
            match journal::read_line(line) {
                Line::Started(run) => {
                    self.run = Some(run.clone());
                    started = Some(run);
                }
                Line::Saved { node, name } if self.branches.has(&node) => {
                    self.push_branch(&node, &name).await;
                }
                Line::Saved { name, .. } => saved = Some(name),
                Line::Worktree { node, branch } => self.branches.add(&node, &branch),
                Line::Committed { node, commit } => self.push_branch(&node, &commit).await,
                Line::Moved => drop(self.inputs.send(Input::Moved).await),
                Line::Limited(until) => {
                    let until = until.plus(AFTER_RESET);
                    self.worker.raise_limit(&self.id.account, until, Parked::RateLimit).await;
                }
                Line::Ended { outcome, exit_code } => self.ended = Some((outcome, exit_code)),
                Line::Other => {}
            }
            self.charge_sessions(line).await;
        }
        // The tree is pushed before the line that names it is copied.
        if let Some(name) = saved {
            self.push_tree(&name).await;
        }
        self.fenced = self.copier.copy(&piece).await == Err(Fenced);
        // The record names a run only when its journal is on the server, so that the next owner can continue it.
        if let Some(run) = started.filter(|_| !self.fenced) {
            let _ = self.inputs.send(Input::Named(run)).await;
        }
        true
    }

    /// Charges the account for the sessions that are over with a line of the journal. The resume of a run ends those that an
    /// earlier claim left open.
    async fn charge_sessions(&mut self, line: &[u8]) {
        if self.spread {
            return;
        }
        let over = self.sessions.take(line);
        let Some(seq) = over.first().and_then(|_| head(line)).map(|head| head.seq) else { return };
        let run = self.run.as_ref().map_or("", RunId::as_str).to_owned();
        for (nth, session) in over.iter().enumerate() {
            let used = amount(&session.usage);
            if used != Amount::default() {
                let id = format!("{run}/{seq}/{nth}");
                self.worker.charge(&self.id.account, &id, used.micro_usd, used.tokens).await;
                self.settle(used).await;
            }
        }
    }

    /// Settles the usage of a session. Without another share the run waits before its next session.
    async fn settle(&mut self, used: Amount) {
        let changes = self.worker.shares.subscribe();
        if self.worker.settle(&self.id, self.epoch, used).await || self.waits.is_some() {
            return;
        }
        self.worker.say(&format!("{}: waits: {NO_SHARE}", self.id));
        self.worker.order_job(&self.id, || Order::Limit(tomorrow()));
        self.waits = Some(changes);
    }

    /// Lets a run that waits for a share continue when it has one.
    async fn reserve_again(&mut self) {
        if self.worker.reserve(&self.id, self.epoch).await {
            self.waits = None;
            self.worker.order_job(&self.id, || Order::Unpark);
        }
    }

    /// Pushes a commit that holds the work tree, and names it in the next piece.
    pub async fn push_tree(&mut self, what: &str) {
        let cancel = Cancel::never();
        let pushed = async {
            let commit = self.checkout.commit_of(what, &cancel).await?;
            self.checkout.push(&commit, &self.id.tree_ref(self.epoch), &cancel).await?;
            Ok::<_, super::command::CommandError>(commit)
        };
        match pushed.await {
            Ok(commit) => self.copier.name_tree(commit),
            Err(error) => {
                self.worker.say(&format!("{}: cannot push the work tree: {error}", self.id));
            }
        }
    }

    /// Pushes a commit with the work of a node that has a worktree of its own.
    async fn push_branch(&mut self, node: &str, what: &str) {
        let pushed = self.branches.push(&self.checkout, (&self.id, self.epoch), node, what).await;
        if let Err(error) = pushed {
            self.worker.say(&format!("{}: cannot push the work of node {node}: {error}", self.id));
        }
    }

    /// Returns the directory of the runs. It appears when the run starts.
    fn runs(&self) -> PathBuf {
        StateDir::at(self.checkout.tree.join(STATE_DIR)).runs()
    }

    /// Returns the directory of the run, if it exists. A checkout has one run.
    fn run_dir(&self) -> Option<PathBuf> {
        let named = self.named.borrow().clone();
        named.or_else(|| Some(std::fs::read_dir(self.runs()).ok()?.flatten().next()?.path()))
    }

    /// Returns the journal, if it exists.
    fn find(&self) -> Option<PathBuf> {
        let dir = self.run_dir()?;
        let path = dir.join(FILE);
        if !path.exists() {
            return None;
        }
        self.named.send_if_modified(|named| named.replace(dir.clone()).as_ref() != Some(&dir));
        Some(path)
    }

    /// Returns the journal, or the directory in which the next part of its path appears.
    fn nearest(&self) -> PathBuf {
        let path = self.run_dir().map_or_else(|| self.runs(), |dir| dir.join(FILE));
        path.ancestors().find(|path| path.exists()).unwrap_or(&self.checkout.tree).to_owned()
    }
}

/// Returns what a session used, as far as it is known.
fn amount(usage: &Usage) -> Amount {
    let usd = usage.cost_usd.unwrap_or(0.0).max(0.0);
    Amount { micro_usd: (usd * 1e6).round() as u64, tokens: usage.tokens.unwrap_or(0) }
}

/// Waits for the end of the process. A dropped sender also means that it has ended.
async fn ended(over: &mut watch::Receiver<bool>) {
    let _ = over.wait_for(|over| *over).await;
}

/// Waits until a run that has no share of the budget may get one. A run that has one waits forever.
async fn share_freed(worker: &Worker, job: &JobId, waits: &mut Option<watch::Receiver<()>>) {
    let Some(changes) = waits else { return std::future::pending().await };
    // The copy leaves the change unseen here, in case this future is dropped while the account is parked.
    if changes.clone().changed().await.is_err() {
        return std::future::pending().await;
    }
    worker.wait_until_unparked(&job.account).await;
    changes.mark_unchanged();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_usage_is_not_charged() {
        let known = Usage { cost_usd: Some(0.25), tokens: Some(1_200), ..Usage::default() };
        assert_eq!(amount(&known), Amount { micro_usd: 250_000, tokens: 1_200 });
        assert_eq!(amount(&Usage::default()), Amount::default());
    }
}
