//! Finds the processes at the other end of a TCP connection on this machine.
//!
//! The kernel reports the peer of a Unix socket, but not that of a TCP socket. Its tables have the inode of the client's socket, and
//! the descriptors of a process name the inodes of its sockets.

use std::fs::{DirEntry, File};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The most bytes of a table of connections that are read: about 100,000 connections.
const MAX_TABLE: u64 = 16 * 1024 * 1024;
/// The most processes that are searched.
const MAX_PROCESSES: usize = 100_000;
/// The most descriptors of a process that are searched.
const MAX_DESCRIPTORS: usize = 16_384;

/// The client of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpClient {
    /// The processes of this user that hold its socket. Empty if another user holds it, or another machine.
    Held(Vec<i32>),
    /// It has closed its end, so it cannot be identified.
    Gone,
}

/// Returns the client of the connection from `client` to `server`. Reads `/proc`, so it may block for a moment.
pub fn find(client: SocketAddr, server: SocketAddr) -> TcpClient {
    let table = match client {
        SocketAddr::V4(_) => "/proc/net/tcp",
        SocketAddr::V6(_) => "/proc/net/tcp6",
    };
    let mut text = String::new();
    if let Ok(file) = File::open(table) {
        let _ = file.take(MAX_TABLE).read_to_string(&mut text);
    }
    match inode(&text, client, server) {
        None => TcpClient::Held(Vec::new()),
        Some(0) => TcpClient::Gone,
        Some(inode) => TcpClient::Held(holders(&format!("socket:[{inode}]"))),
    }
}

/// Returns the inode of the client's socket from a table of the kernel; 0 if the socket is closed.
fn inode(table: &str, client: SocketAddr, server: SocketAddr) -> Option<u64> {
    let (client, server) = (written(client), written(server));
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_it = fields.next()? == client && fields.next()? == server;
        if is_it { fields.nth(6)?.parse().ok() } else { None }
    })
}

/// Returns an address as the kernel writes it: words of four bytes in the order of this machine.
fn written(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let host: String = words.map(|word| format!("{word:08X}")).collect();
    format!("{host}:{:04X}", address.port())
}

/// Returns the processes that have a descriptor of this name. Those of other users cannot be read.
fn holders(name: &str) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().take(MAX_PROCESSES);
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |descriptor: DirEntry| {
        std::fs::read_link(descriptor.path()).is_ok_and(|target| target == Path::new(name))
    };
    let holds = |pid: &i32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.take(MAX_DESCRIPTORS).any(is_it)
    };
    pids.filter(holds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_client_of_a_connection_is_found_until_it_closes_its_end() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
            let (server, from) = listener.accept().expect("accepts");
            let at = server.local_addr().expect("an address");
            let me = i32::try_from(std::process::id()).expect("a pid");
            assert_eq!(find(from, at), TcpClient::Held(vec![me]), "{host}");
            drop(client);
            assert_eq!(find(from, at), TcpClient::Gone, "{host}");
        }
    }

    #[test]
    fn a_connection_that_is_not_in_the_table_has_no_process_here() {
        let [client, server] = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| text.parse().expect("an address"));
        assert_eq!(find(client, server), TcpClient::Held(Vec::new()));
    }
}
