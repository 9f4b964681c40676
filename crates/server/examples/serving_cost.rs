//! Measures the cost of serving: resident memory before serving, without clients, after requests, and with clients that
//! follow a large journal without reading. Prints kilobytes and, for the idle time, context switches.
//!
//! `cargo run --release -p dogwatch-server --example serving_cost`

use dogwatch_core::record::view::View;
use dogwatch_server::{BusyError, Client, Request, RunHandle, serve, socket_path, watch};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Quiet(watch::Sender<u64>);

impl RunHandle for Quiet {
    fn view(&self) -> Option<View> {
        Some(View::default())
    }
    fn ask(&self, _: Request) -> Result<(), BusyError> {
        Ok(())
    }
    fn changed(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

fn main() -> std::io::Result<()> {
    let dir = std::env::temp_dir().join(format!("dogwatch-cost-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let result = measure(&dir);
    std::fs::remove_dir_all(&dir)?;
    result
}

fn measure(dir: &std::path::Path) -> std::io::Result<()> {
    write_journal(&dir.join("events.jsonl"), 100_000)?;
    println!("before serving:              {} kB", resident());
    let socket = socket_path(dir);
    let served = serve(socket.clone(), dir.to_owned(), Arc::new(Quiet(watch::Sender::new(1))))?;
    std::thread::sleep(Duration::from_millis(200));
    println!("serving, no client yet:      {} kB", resident());
    let before = switches();
    std::thread::sleep(Duration::from_secs(5));
    println!("context switches in 5 s without requests: {}", switches() - before);
    let mut times = Vec::new();
    for _ in 0..1000 {
        let began = Instant::now();
        Client::connect(&socket)?.get("/v1/status")?;
        times.push(began.elapsed());
    }
    times.sort();
    println!("status, 1000 times:          p50 {:?}, p99 {:?}", times[500], times[990]);
    std::thread::sleep(Duration::from_millis(1500));
    println!("idle after 1000 requests:    {} kB", resident());
    let began = Instant::now();
    let lines = Client::connect(&socket)?.get("/v1/events?after=99990")?.body.len();
    println!("the last 10 of 100,000 events: {lines} bytes in {:?}", began.elapsed());
    let slow: Vec<_> =
        (0..50).map(|_| Client::connect(&socket)?.stream("/v1/events")).collect::<Result<_, _>>()?;
    std::thread::sleep(Duration::from_secs(1));
    println!("50 clients that do not read: {} kB", resident());
    drop(slow);
    std::thread::sleep(Duration::from_millis(1500));
    println!("and after they left:         {} kB", resident());
    let began = Instant::now();
    served.shut_down();
    println!("shut down in {:?}", began.elapsed());
    Ok(())
}

fn write_journal(path: &std::path::Path, events: u64) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let filler = "x".repeat(250);
    for seq in 1..=events {
        writeln!(file, r#"{{"v":1,"seq":{seq},"event":"notice","kind":"test","message":"{filler}"}}"#)?;
    }
    file.flush()
}

fn resident() -> u64 {
    field("/proc/self/status", "VmRSS:")
}

/// Returns the context switches of all threads except the measuring one, which only sleeps.
fn switches() -> u64 {
    let me = std::process::id().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let others = tasks.filter(|t| t.file_name().to_string_lossy() != me);
    others.map(|t| field(&t.path().join("status").to_string_lossy(), "voluntary_ctxt_switches:")).sum()
}

fn field(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("0");
    line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
