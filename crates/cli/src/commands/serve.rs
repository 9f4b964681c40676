use crate::error::Failure;
use crate::{detached, loading};
use dogwatch_host::registry::Registry;
use dogwatch_host::sys::{self, SignalFd};
use dogwatch_host::token::Token;
use dogwatch_server::{MachineSetup, serve_machine};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// The word "dogw" on a telephone.
const PORT: u16 = 3649;

/// Serve all runs of this machine over HTTP: dashboard, API, metrics
///
/// It listens on the loopback address and prints one URL that holds the token. Runs do not need it, and do
/// not notice when it comes and goes. It ends with Ctrl-C.
#[derive(clap::Args)]
pub struct Args {
    /// Where to listen: a loopback address and a port; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// A Unix socket for you alone, without a token; without --listen there is no TCP then
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// A loopback address and a port, as people write it.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let found = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(local),
        None => text.parse().ok().or_else(|| text.parse().ok().map(local)),
    };
    let Some(found) = found else {
        return Err("write it as 127.0.0.1:3649, [::1]:3649, localhost:3649 or 3649".to_owned());
    };
    // A token that goes over a network unencrypted is nobody's secret.
    let loopback = match found.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    if !loopback {
        return Err(format!(
            "{} is no loopback address; to reach it from elsewhere use `ssh -L 3649:127.0.0.1:3649`",
            found.ip()
        ));
    }
    Ok(found)
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let signals = signals().map_err(|e| Failure::internal(format!("cannot listen for signals: {e}")))?;
    let tcp = match (args.listen, &args.socket) {
        (None, Some(_)) => None,
        (listen, _) => Some(listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))),
    };
    let tcp = tcp.map(bind).transpose()?;
    let mut told = match &tcp {
        Some((listener, token)) => {
            let at = listener.local_addr().map_err(|e| Failure::internal(format!("no address: {e}")))?;
            format!("http://{at}/#token={}\n", token.as_str())
        }
        None => String::new(),
    };
    let setup = MachineSetup {
        registry: Registry::of_user(),
        tcp,
        socket: args.socket.clone(),
        limits: MachineSetup::limits(),
        external: loading::external_policy()?,
        continue_run: Arc::new(detached::continue_run),
    };
    let served = serve_machine(setup).map_err(|e| match &args.socket {
        Some(path) => Failure::usage(format!("cannot serve at {}: {e}", path.display())),
        None => Failure::internal(format!("cannot serve: {e}")),
    })?;
    if let Some(path) = &args.socket {
        told.push_str(&format!("unix:{}\n", path.display()));
    }
    // Printed once it listens: whoever reads the line can ask.
    super::print(told.as_bytes())?;
    let code = ended_by(&signals)?;
    served.shut_down();
    Ok(code)
}

fn bind(at: SocketAddr) -> Result<(TcpListener, Token), Failure> {
    let token = Token::of_user().map_err(|e| Failure::usage(e.to_string()))?;
    let listener = TcpListener::bind(at).map_err(|e| match e.kind() {
        ErrorKind::AddrInUse => Failure::with_hint(
            format!("{at} is taken, maybe by another `dogwatch serve`"),
            "`--listen 127.0.0.1:0` takes a port that is free",
        ),
        _ => Failure::usage(format!("cannot listen at {at}: {e}")),
    })?;
    Ok((listener, token))
}

/// Before any thread is started, so that all of them leave these signals to us.
fn signals() -> std::io::Result<SignalFd> {
    let mut wanted = vec![Signal::INT, Signal::TERM];
    // Under nohup it is to stay when the terminal goes.
    if !sys::ignores(Signal::HUP) {
        wanted.push(Signal::HUP);
    }
    sys::block(&wanted)?;
    SignalFd::new(&wanted)
}

fn ended_by(signals: &SignalFd) -> Result<u8, Failure> {
    loop {
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Failure::internal(format!("cannot wait for signals: {e}"))),
        }
        match signals.take() {
            Ok(Some(number)) => return Ok(u8::try_from(128 + number).unwrap_or(1)),
            Ok(None) => {}
            Err(e) => return Err(Failure::internal(format!("cannot read signals: {e}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loopback_address_is_listened_at() {
        let is = |text: &str| address(text).map(|a| a.to_string());
        assert_eq!(is("127.0.0.1:80").as_deref(), Ok("127.0.0.1:80"));
        assert_eq!(is("[::1]:0").as_deref(), Ok("[::1]:0"));
        assert_eq!(is("localhost:7").as_deref(), Ok("127.0.0.1:7"));
        assert_eq!(is("7").as_deref(), Ok("127.0.0.1:7"));
        assert_eq!(is("127.9.9.9:1").as_deref(), Ok("127.9.9.9:1"));
        for other in ["0.0.0.0:80", "[::]:80", "192.168.0.1:80", "[::ffff:127.0.0.1]:80"] {
            assert!(is(other).is_err_and(|e| e.contains("is no loopback address")), "{other}");
        }
        for nothing in ["", "x", "localhost", "127.0.0.1", "127.0.0.1:99999", "evil.example:80"] {
            assert!(is(nothing).is_err_and(|e| e.contains("write it as")), "{nothing}");
        }
    }
}
