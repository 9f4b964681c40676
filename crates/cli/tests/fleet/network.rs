//! A network of its own for one worker, which can be taken down.

use crate::proxy::Proxy;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;

/// A network namespace that is connected to this machine by a pair of virtual devices.
pub struct Network {
    name: String,
    device: String,
    /// The address of this machine in the network.
    pub host: String,
}

impl Network {
    /// Makes a network, or says why that is not possible here.
    pub fn new() -> Result<Network, String> {
        let pid = std::process::id();
        let (name, device, peer) = (format!("dw{pid}"), format!("dwh{pid}"), format!("dwp{pid}"));
        let net = format!("10.203.{}", pid % 250);
        let (host, inner) = (format!("{net}.1"), format!("{net}.2/24"));
        ip(&["netns", "add", &name])?;
        let network = Network { name: name.clone(), device: device.clone(), host: host.clone() };
        ip(&["link", "add", &device, "type", "veth", "peer", "name", &peer])?;
        ip(&["link", "set", &peer, "netns", &name])?;
        ip(&["addr", "add", &format!("{host}/24"), "dev", &device])?;
        ip(&["link", "set", &device, "up"])?;
        ip(&["-n", &name, "addr", "add", &inner, "dev", &peer])?;
        ip(&["-n", &name, "link", "set", &peer, "up"])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        Ok(network)
    }

    /// Takes the network down, or up again.
    pub fn cut(&self, cut: bool) {
        let state = if cut { "down" } else { "up" };
        ip(&["link", "set", &self.device, state]).expect("the device is ours");
    }

    /// Returns a command that runs a program in the network.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Starts a proxy in the network that forwards to an address outside.
    pub fn proxy(&self, to: SocketAddr) -> Proxy {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace");
        let start = move || {
            // The thread and those that it starts stay in the namespace.
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("the namespace");
            Proxy::between("127.0.0.1", to)
        };
        std::thread::spawn(start).join().expect("a proxy")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.device]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let out = Command::new("ip").args(args).output().map_err(|error| format!("cannot run ip: {error}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim())),
    }
}
