//! Connects the driver with the API: a handle through which the API talks to the driver, and a reporter that
//! announces new events to the API.

use dogwatch_core::record::event::{Recorded, WaitEndedBy};
use dogwatch_core::record::view::View;
use dogwatch_core::run::agent_channel::AgentRequest;
use dogwatch_core::run::input::Input;
use dogwatch_core::time::moment::Moment;
use dogwatch_host::driver::inbox::{Inbox, Mail};
use dogwatch_host::driver::{OutputView, Reporter};
use dogwatch_host::process::caller;
use dogwatch_server::{BusyError, Reply, Request, RunHandle, watch};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long a query may wait for the driver.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The API's handle of a driver. Requests are posted to the driver's inbox.
pub struct DriverHandle {
    inbox: Inbox,
    changed: watch::Receiver<u64>,
    nonce: String,
    inherited: Vec<String>,
}

impl DriverHandle {
    /// Returns a handle that posts to this inbox. The nonce marks the processes of the run.
    pub fn new(inbox: Inbox, changed: watch::Receiver<u64>, nonce: String) -> DriverHandle {
        DriverHandle { inbox, changed, nonce, inherited: caller::inherited() }
    }
}

impl RunHandle for DriverHandle {
    fn view(&self) -> Option<View> {
        let (reply, view) = sync_channel(1);
        if !self.inbox.post(Mail::ViewAsked(reply)) {
            return None;
        }
        view.recv_timeout(QUERY_TIMEOUT).ok()
    }

    fn ask(&self, request: Request) -> Result<(), BusyError> {
        let input = match request {
            Request::Wake => Input::WakeAsked(WaitEndedBy::Api),
            Request::Pause => Input::PauseAsked,
            Request::Resume => Input::UnpauseAsked,
            Request::Stop { accept: false } => Input::StopAsked,
            Request::Stop { accept: true } => Input::StopAccepted,
            Request::Limit { until, account } => Input::LimitAsked { until, account },
            Request::Message { text, from } => Input::MessageReceived { text, from },
            Request::Label { node, iteration, label } => Input::VerdictLabeled { node, iteration, label },
        };
        if self.inbox.post(Mail::Input(input)) { Ok(()) } else { Err(BusyError) }
    }

    fn hear(&self, token: String, request: AgentRequest, reply: Reply) -> Result<(), BusyError> {
        let mail = Mail::AgentRequested { token, request: Box::new(request), reply };
        if self.inbox.post(mail) { Ok(()) } else { Err(BusyError) }
    }

    fn nonce(&self) -> Option<&str> {
        Some(&self.nonce)
    }

    fn inherited(&self) -> &[String] {
        &self.inherited
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }
}

/// A reporter that also publishes the sequence number of the last event, for clients that follow the record.
pub struct Announcing {
    inner: Box<dyn Reporter>,
    last: watch::Sender<u64>,
}

impl Announcing {
    /// Wraps a reporter.
    pub fn new(inner: Box<dyn Reporter>) -> Announcing {
        Announcing { inner, last: watch::Sender::new(0) }
    }

    /// Returns a receiver of the sequence number of the last event.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

impl Reporter for Announcing {
    fn begin(&mut self) -> std::io::Result<()> {
        self.inner.begin()
    }

    fn show(&mut self, event: &Recorded, view: &View) {
        self.inner.show(event, view);
        self.last.send_replace(event.seq);
    }

    fn tick(&mut self, now: Moment, view: &View) {
        self.inner.tick(now, view);
    }

    fn ticks(&self) -> bool {
        self.inner.ticks()
    }

    fn output(&self) -> Option<std::sync::Arc<dyn OutputView>> {
        self.inner.output()
    }
}
