//! Measures the cost of `dogwatch serve`: how long the status of one run and of all takes with 200 runs registered, and
//! how much CPU time 50 clients that follow a run of 1,000 events per second cost the server and the run.
//!
//! `cargo run --release -p dogwatch-server --example machine_cost [SECONDS]`

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::settings::{Profile, WatchPolicy};
use dogwatch_core::time::moment::Wall;
use dogwatch_host::clock;
use dogwatch_host::store::journal::Journal;
use dogwatch_host::store::registry::{Alive, Pointer, Registry};
use dogwatch_host::store::token::Token;
use dogwatch_server::{Client, MachineSetup, serve_machine};
use dogwatch_sim::plan;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const RUNS: u32 = 200;
const EVENTS: u64 = 1_000;
const FOLLOWERS: usize = 50;
const PER_SECOND: u64 = 1_000;

fn main() -> std::io::Result<()> {
    let seconds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10);
    let dir = std::env::temp_dir().join(format!("dogwatch-machine-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let result = measure(&dir, seconds);
    std::fs::remove_dir_all(&dir)?;
    result
}

fn measure(dir: &Path, seconds: u64) -> std::io::Result<()> {
    let registry = dir.join("runs");
    let mut runs: Vec<(RunId, Journal, u64)> = (0..RUNS).map(|n| make_run(dir, &registry, n)).collect();
    let (last, mut journal, mut seq) = runs.pop().ok_or_else(|| std::io::Error::other("no runs"))?;
    let _alive = Alive::hold(&dir.join("project/.dogwatch/runs").join(last.as_str()))?;
    let token = Token::at(&dir.join("token")).map_err(std::io::Error::other)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    let socket = dir.join("all");
    let served = serve_machine(MachineSetup {
        registry: Registry::at(registry),
        tcp: Some((listener, token.clone())),
        socket: Some(socket.clone()),
        limits: MachineSetup::limits(),
        others: None,
        external: WatchPolicy::of(Profile::Quick),
        continue_run: std::sync::Arc::new(|_| Err("nothing continues here".to_owned())),
    })?;
    let began = Instant::now();
    let size = Client::connect(&socket)?.get("/v1/runs")?.body.len();
    println!(
        "all {RUNS} runs, records of {EVENTS} events read for the first time: {:?}, {size} bytes",
        began.elapsed()
    );
    timed("status of one run", 2_000, || ask(at, &token, &format!("/v1/runs/{last}")))?;
    timed("all runs", 500, || ask(at, &token, "/v1/runs"))?;
    let quiet = switches("api");
    std::thread::sleep(Duration::from_secs(3));
    println!("context switches in 3 s without requests: {}", switches("api") - quiet);
    let alone = write_for(seconds, &mut journal, &mut seq)?;
    println!("writing {PER_SECOND} events/s without followers: {:.1} % of a core", alone.per_cent);
    let taken = AtomicU64::new(0);
    let followers: Vec<TcpStream> =
        (0..FOLLOWERS).map(|_| follow(at, &token, &last, seq)).collect::<std::io::Result<_>>()?;
    std::thread::scope(|scope| -> std::io::Result<()> {
        for stream in &followers {
            let taken = &taken;
            scope.spawn(move || read_all(stream, taken));
        }
        let (cpu, wall) = (cpu_of("api"), Instant::now());
        let followed = write_for(seconds, &mut journal, &mut seq)?;
        let cpu = (cpu_of("api") - cpu) as f64 / wall.elapsed().as_millis() as f64 * 100.0;
        println!("the same with {FOLLOWERS} followers: {:.1} % of a core", followed.per_cent);
        println!("longest write: {:?} alone, {:?} followed", alone.longest, followed.longest);
        println!("the server meanwhile: {cpu:.1} % of a core");
        for stream in &followers {
            stream.shutdown(std::net::Shutdown::Both)?;
        }
        Ok(())
    })?;
    println!(
        "events taken by the followers: {} of {}",
        taken.load(Ordering::Relaxed),
        FOLLOWERS as u64 * seconds * PER_SECOND
    );
    served.shut_down();
    Ok(())
}

fn make_run(dir: &Path, registry: &Path, n: u32) -> (RunId, Journal, u64) {
    let since = Wall(1_794_773_733_000 + i64::from(n) * 1_000);
    let run = RunId::new(since, n.to_be_bytes());
    let run_dir = dir.join("project/.dogwatch/runs").join(run.as_str());
    std::fs::create_dir_all(&run_dir).expect("a directory");
    let pointer = Pointer {
        run: run.clone(),
        run_dir: run_dir.clone(),
        path: dir.join("RALPH.md"),
        pid: 1,
        since,
        head: false,
        origin: None,
    };
    Registry::at(registry.to_owned()).add(&pointer).expect("registers");
    let mut journal = Journal::create(&run_dir).expect("a journal");
    let mut seq = 0;
    let mut started = plan::started(plan::plan(|_| {}));
    started.run = run.clone();
    write(&mut journal, &mut seq, Event::RunStarted(Box::new(started)));
    while seq < EVENTS {
        write(&mut journal, &mut seq, notice());
    }
    journal.flush().expect("writes");
    (run, journal, seq)
}

fn notice() -> Event {
    Event::Notice { kind: "test".into(), message: "x".repeat(150) }
}

fn write(journal: &mut Journal, seq: &mut u64, event: Event) {
    *seq += 1;
    journal.append(&Recorded::new(*seq, clock::now(), event)).expect("takes it");
}

struct Written {
    per_cent: f64,
    longest: Duration,
}

/// Writes one event per millisecond, each at once, as the driver does.
fn write_for(seconds: u64, journal: &mut Journal, seq: &mut u64) -> std::io::Result<Written> {
    let (cpu, began) = (own_cpu(), Instant::now());
    let mut longest = Duration::ZERO;
    for n in 0..seconds * PER_SECOND {
        let due = began + Duration::from_micros(n * 1_000_000 / PER_SECOND);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let at = Instant::now();
        write(journal, seq, notice());
        journal.flush().map_err(std::io::Error::other)?;
        longest = longest.max(at.elapsed());
    }
    let per_cent = (own_cpu() - cpu) as f64 / began.elapsed().as_millis() as f64 * 100.0;
    Ok(Written { per_cent, longest })
}

fn ask(at: SocketAddr, token: &Token, path: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(at)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
        token.as_str()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    Ok(())
}

fn timed(what: &str, times: usize, mut ask: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        ask()?;
        all.push(began.elapsed());
    }
    all.sort();
    println!("{what}, {times} times: p50 {:?}, p99 {:?}", all[times / 2], all[times * 99 / 100]);
    Ok(())
}

fn follow(at: SocketAddr, token: &Token, run: &RunId, after: u64) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(at)?;
    write!(
        stream,
        "GET /v1/runs/{run}/events?after={after} HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {}\r\naccept: text/event-stream\r\n\r\n",
        token.as_str()
    )?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(stream)
}

fn read_all(mut stream: &TcpStream, taken: &AtomicU64) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        let events = buffer[..read].windows(5).filter(|w| *w == b"\nid: ").count();
        taken.fetch_add(events as u64, Ordering::Relaxed);
    }
}

/// Returns the CPU time of this thread, in milliseconds.
fn own_cpu() -> u64 {
    let tid = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    stat_cpu(&Path::new("/proc").join(tid))
}

/// Returns the CPU time of the threads with this name.
fn cpu_of(name: &str) -> u64 {
    tasks(name).iter().map(|task| stat_cpu(task)).sum()
}

fn stat_cpu(task: &Path) -> u64 {
    let text = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or("");
    let ticks = |n: usize| rest.split_whitespace().nth(n).and_then(|t| t.parse::<u64>().ok()).unwrap_or(0);
    // User and system time are in hundredths of a second.
    (ticks(11) + ticks(12)) * 10
}

fn switches(name: &str) -> u64 {
    let count = |task: &std::path::PathBuf| {
        let text = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap_or("0");
        line.trim().parse::<u64>().unwrap_or(0)
    };
    tasks(name).iter().map(count).sum()
}

fn tasks(name: &str) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|t| t.path());
    all.filter(|t| std::fs::read_to_string(t.join("comm")).is_ok_and(|comm| comm.trim() == name)).collect()
}
