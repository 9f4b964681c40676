use crate::detached;
use crate::error::CliError;
use crate::loading;
use crate::remote::{HostArgs, OnChange};
use dogwatch_host::store::registry::Registry;
use dogwatch_host::store::serving;
use dogwatch_host::store::token::Token;
use dogwatch_host::sys::{self, SignalFd};
use dogwatch_server::{MachineSetup, serve_machine};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// The default port: "dogw" on a phone keypad.
const PORT: u16 = 3649;

/// Serve the dashboard, API and metrics of all runs
///
/// The server listens on the loopback address and prints a URL that contains the token. Runs do not depend on it:
/// you can start and stop it at any time. Stop it with Ctrl-C.
#[derive(clap::Args)]
pub struct Args {
    /// Loopback address and port to listen on; port 0 picks a free port [default: 127.0.0.1:3649]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Unix socket to listen on, without a token; disables TCP unless --listen is given
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    hosts: HostArgs,
}

impl Args {
    /// Returns whether the server listens on TCP, and so replaces the token of an earlier one.
    pub fn renews_token(&self) -> bool {
        self.listen.is_some() || self.socket.is_none()
    }
}

/// Parses a loopback address and port: `127.0.0.1:3649`, `[::1]:3649`, `localhost:3649` or `3649`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let found = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(local),
        None => text.parse().ok().or_else(|| text.parse().ok().map(local)),
    };
    let Some(found) = found else {
        return Err("expected an address like 127.0.0.1:3649, [::1]:3649, localhost:3649 or 3649".to_owned());
    };
    // A token that crosses a network unencrypted is not a secret.
    let loopback = match found.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    if !loopback {
        return Err(format!(
            "{} is not a loopback address; for remote access use `ssh -L 3649:127.0.0.1:3649`",
            found.ip()
        ));
    }
    Ok(found)
}

/// Runs `dogwatch serve` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let signals = signals().map_err(|e| CliError::internal(format!("cannot set up signals: {e}")))?;
    let tcp = match (args.listen, &args.socket) {
        (None, Some(_)) => None,
        (listen, _) => Some(listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))),
    };
    let listener = tcp.map(bind).transpose()?;
    let others = {
        let on_change: OnChange = Arc::new(|| {});
        args.hosts.connect(&on_change)?
    };
    let external = loading::external_policy()?;
    let mut page = None;
    let mut urls = String::new();
    let tcp = match listener {
        Some(listener) => {
            let at = listener
                .local_addr()
                .map_err(|e| CliError::internal(format!("cannot read the listener's address: {e}")))?;
            // Last, because scripts that use another server read the token from its file.
            let token = Token::renew_of_user().map_err(|e| CliError::usage(e.to_string()))?;
            page = Some(format!("http://{at}/"));
            urls = format!("http://{at}/#token={}\n", token.as_str());
            Some((listener, token))
        }
        None => None,
    };
    let setup = MachineSetup {
        registry: Registry::of_user(),
        others: others.clone(),
        tcp,
        socket: args.socket.clone(),
        limits: MachineSetup::limits(),
        external,
        continue_run: Arc::new(detached::continue_run),
    };
    let served = serve_machine(setup).map_err(|e| match &args.socket {
        Some(path) => CliError::usage(format!("cannot serve on {}: {e}", path.display())),
        None => CliError::internal(format!("cannot serve: {e}")),
    })?;
    if let Some(path) = &args.socket {
        urls.push_str(&format!("unix:{}\n", path.display()));
    }
    // Notifications then link to the page of their run. Without the file they have no link.
    let announced = page.and_then(|page| serving::announce(&page).ok());
    // Printed after the server listens, so a reader of these lines can connect.
    super::print(urls.as_bytes())?;
    let code = ended_by(&signals)?;
    drop(announced);
    served.shut_down();
    drop(others);
    Ok(code)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn bind(at: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(at).map_err(|e| match e.kind() {
        ErrorKind::AddrInUse => CliError::with_help(
            format!("cannot listen on {at}: the address is in use, perhaps by another `dogwatch serve`"),
            "pass `--listen 127.0.0.1:0` to use a free port",
        ),
        _ => CliError::usage(format!("cannot listen on {at}: {e}")),
    })
}

/// Blocks the signals that stop the server and returns a descriptor that reads them. Call it before any thread
/// starts, because threads inherit the mask.
fn signals() -> std::io::Result<SignalFd> {
    let mut wanted = vec![Signal::INT, Signal::TERM];
    // Under nohup the server must survive the end of the terminal.
    if !sys::ignores(Signal::HUP) {
        wanted.push(Signal::HUP);
    }
    sys::block(&wanted)?;
    SignalFd::new(&wanted)
}

fn ended_by(signals: &SignalFd) -> Result<u8, CliError> {
    loop {
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(CliError::internal(format!("cannot wait for signals: {e}"))),
        }
        match signals.take() {
            Ok(Some(number)) => return Ok(u8::try_from(128 + number).unwrap_or(1)),
            Ok(None) => {}
            Err(e) => return Err(CliError::internal(format!("cannot read signals: {e}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_accepted() {
        let is = |text: &str| address(text).map(|a| a.to_string());
        assert_eq!(is("127.0.0.1:80").as_deref(), Ok("127.0.0.1:80"));
        assert_eq!(is("[::1]:0").as_deref(), Ok("[::1]:0"));
        assert_eq!(is("localhost:7").as_deref(), Ok("127.0.0.1:7"));
        assert_eq!(is("7").as_deref(), Ok("127.0.0.1:7"));
        assert_eq!(is("127.9.9.9:1").as_deref(), Ok("127.9.9.9:1"));
        for other in ["0.0.0.0:80", "[::]:80", "192.168.0.1:80", "[::ffff:127.0.0.1]:80"] {
            assert!(is(other).is_err_and(|e| e.contains("is not a loopback address")), "{other}");
        }
        for nothing in ["", "x", "localhost", "127.0.0.1", "127.0.0.1:99999", "evil.example:80"] {
            assert!(is(nothing).is_err_and(|e| e.contains("expected an address")), "{nothing}");
        }
    }
}
