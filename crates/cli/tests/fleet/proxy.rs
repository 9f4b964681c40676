//! A TCP proxy that can cut the connection to the server without closing it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the proxy tries to reach the server.
const CONNECT: Duration = Duration::from_secs(1);

/// A proxy in front of the server.
pub struct Proxy {
    pub port: u16,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy on this machine in front of a port.
    pub fn before(port: u16) -> Proxy {
        Proxy::between("127.0.0.1", SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Starts a proxy that listens on an address and forwards to another one.
    pub fn between(host: &str, to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((host, 0)).expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let cut = Arc::new(AtomicBool::new(false));
        let flag = cut.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect_timeout(&to, CONNECT) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let pair = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let flag = flag.clone();
                    std::thread::spawn(move || copy(pair.0, pair.1, &flag));
                }
            }
        });
        Proxy { port: own, cut }
    }

    /// Drops everything that is sent, or lets it pass again.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }
}

/// Copies bytes. Bytes that arrive while the line is cut are lost, so the connection is closed when it is whole again.
fn copy(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let mut lost = false;
    let mut bytes = [0; 16 * 1024];
    loop {
        let is_cut = cut.load(Ordering::SeqCst);
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(_) if is_cut => lost = true,
            Ok(_) if lost => break,
            Ok(count) => {
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if lost && !is_cut {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}
