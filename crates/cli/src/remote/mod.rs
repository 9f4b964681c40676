//! The runs of other machines, read over SSH without a server: `dogwatch top --host` and `dogwatch serve --host`.
//!
//! For each host one `ssh HOST dogwatch feed` runs. It sends the list of runs and the lines of their journals, which are
//! copied to a [`Mirror`], and passes requests on to the runs. Each host has its own thread: a host that is down
//! does not delay the others.

mod host;
pub mod wire;

use crate::error::CliError;
#[cfg(feature = "fleet")]
use crate::{commands::FleetDir, fleet_line};
use dogwatch_core::time::moment::Wall;
#[cfg(feature = "fleet")]
use dogwatch_fleet::{operator::FleetView, server::OPERATOR_LINE};
use dogwatch_host::clock;
use dogwatch_host::store::mirror::Mirror;
use dogwatch_host::store::registry::{Pointer, Registry};
use dogwatch_server::{MachineEntry, MachineState, OtherMachines, Response};
use host::Host;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The most hosts.
pub const MAX_HOSTS: usize = 64;

/// Called when the state of a host changes.
pub type OnChange = Arc<dyn Fn() + Send + Sync>;

/// The flag that names hosts, shared by `top` and `serve`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct HostArgs {
    /// Also show the runs of this host, read over SSH; repeatable
    #[arg(long = "host", value_name = "USER@MACHINE", value_parser = host_name)]
    hosts: Vec<String>,
    /// Also show the workers, the queue and the runs of your fleet
    #[cfg(feature = "fleet")]
    #[arg(long)]
    fleet: bool,
}

/// Parses the name of a host. `ssh` would take a name that starts with a dash for an option.
fn host_name(text: &str) -> Result<String, String> {
    let sane = |c: char| !c.is_control() && !c.is_whitespace();
    if text.is_empty() || text.starts_with('-') || !text.chars().all(sane) {
        return Err(
            "expected a host as `ssh` takes it: machine, user@machine or a name in ~/.ssh/config".into()
        );
    }
    Ok(text.to_owned())
}

impl HostArgs {
    /// Connects to the hosts; `None` without hosts. Call it after the signals are blocked, because threads inherit the mask.
    pub fn connect(&self, on_change: &OnChange) -> Result<Option<Arc<dyn OtherMachines>>, CliError> {
        if self.hosts.len() > MAX_HOSTS {
            return Err(CliError::usage(format!("more than {MAX_HOSTS} hosts")));
        }
        let cannot =
            |e: io::Error| CliError::internal(format!("cannot copy the runs of other machines: {e}"));
        let mut sources: Vec<Arc<dyn OtherMachines>> = Vec::new();
        if !self.hosts.is_empty() {
            let mut hosts = self.hosts.clone();
            hosts.sort();
            hosts.dedup();
            sources.push(Arc::new(Remotes::start(&hosts, on_change).map_err(cannot)?));
        }
        #[cfg(feature = "fleet")]
        if self.fleet {
            let line = fleet_line::operator(&FleetDir::of_user().file(OPERATOR_LINE))?;
            let view = FleetView::start(line, Arc::clone(on_change)).map_err(cannot)?;
            sources.push(Arc::new(view));
        }
        Ok(if sources.is_empty() { None } else { Some(Arc::new(Sources(sources))) })
    }
}

/// Several sources as one.
struct Sources(Vec<Arc<dyn OtherMachines>>);

impl OtherMachines for Sources {
    fn registries(&self) -> Vec<Registry> {
        self.0.iter().flat_map(|source| source.registries()).collect()
    }

    fn machines(&self) -> Vec<MachineEntry> {
        self.0.iter().flat_map(|source| source.machines()).collect()
    }

    fn summary(&self) -> Option<String> {
        let all: Vec<String> = self.0.iter().filter_map(|source| source.summary()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn ask(&self, pointer: &Pointer, what: &str, body: &Value) -> Result<Response, String> {
        let source = self.0.iter().find(|source| source.has(pointer));
        source.ok_or_else(|| "its machine is not watched".to_owned())?.ask(pointer, what, body)
    }
}

/// The hosts and the copies of their runs.
pub struct Remotes {
    hosts: Vec<Arc<Host>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Readable once the threads must end.
    stop: Arc<OwnedFd>,
    /// Removed after the threads, which write to it, have ended.
    mirror: Arc<Mirror>,
}

impl Remotes {
    fn start(names: &[String], on_change: &OnChange) -> io::Result<Remotes> {
        let mirror = Arc::new(Mirror::create()?);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut remotes = Remotes { hosts: Vec::new(), threads: Mutex::default(), stop, mirror };
        for name in names {
            let host = Arc::new(Host::new(name, Arc::clone(on_change)));
            let (mirror, stop) = (Arc::clone(&remotes.mirror), Arc::clone(&remotes.stop));
            let follow = {
                let host = Arc::clone(&host);
                move || host.follow(&mirror, &stop)
            };
            let thread = std::thread::Builder::new().name("host".into()).spawn(follow)?;
            remotes.threads.get_mut().unwrap_or_else(PoisonError::into_inner).push(thread);
            remotes.hosts.push(host);
        }
        Ok(remotes)
    }
}

impl Drop for Remotes {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl OtherMachines for Remotes {
    fn registries(&self) -> Vec<Registry> {
        vec![self.mirror.registry().clone()]
    }

    fn machines(&self) -> Vec<MachineEntry> {
        self.hosts.iter().map(|host| host.entry()).collect()
    }

    fn ask(&self, pointer: &Pointer, what: &str, body: &Value) -> Result<Response, String> {
        let name = pointer.origin.as_ref().map_or("", |origin| origin.host.as_str());
        let host = self.hosts.iter().find(|host| host.name == name);
        host.ok_or_else(|| "its host is not watched".to_owned())?.ask(&pointer.run, what, body)
    }
}

/// Returns the entry of a host that no connection was tried to yet.
fn connecting(name: &str) -> MachineEntry {
    MachineEntry {
        name: name.to_owned(),
        state: MachineState::Connecting,
        since: now(),
        why: None,
        version: None,
        runs: 0,
        detail: None,
    }
}

fn now() -> Wall {
    clock::now().wall
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_never_an_option_of_ssh() {
        for name in ["box1", "me@box1", "ssh://me@box1:2222", "10.0.0.7", "[::1]"] {
            assert_eq!(host_name(name).as_deref(), Ok(name));
        }
        for name in ["", "-oProxyCommand=evil", "a b", "a\nb", "\u{1b}[2J"] {
            assert!(host_name(name).is_err(), "{name:?}");
        }
    }
}
