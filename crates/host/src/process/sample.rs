//! Samples the processes that an agent started: how many are alive, and how much CPU time they used, from /proc.
//!
//! A sample is taken only after an agent has been silent for a while. A process that exits before it is read is not
//! counted.

use crate::clock;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io::Read;

/// The most processes that are read. On a machine with more, the sample is incomplete.
const MAX_PROCESSES: usize = 100_000;
/// The most bytes of a process's line in /proc: 52 fields; the longest are numbers of 20 digits.
const MAX_STAT: usize = 2048;
/// The name of dogwatch's MCP server process, which distinguishes it from the processes of an agent.
const MCP_SERVER: &CStr = c"dogwatch-mcp";
/// The unit of CPU time in /proc. User space sees 100 on every relevant Linux.
const TICKS_PER_SECOND: u64 = 100;

/// The fields of a process that a sample needs.
struct Process {
    parent: i32,
    session: i32,
    ticks: u64,
    /// Whether it is dogwatch's MCP server.
    is_mcp_server: bool,
}

/// The live child processes of an agent and the CPU time used by the session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Live processes that the agent started, without MCP servers.
    pub children: u32,
    /// CPU time in milliseconds, including that of MCP servers.
    pub cpu_ms: u64,
}

/// How long one scan of all processes is reused. Sessions that started together fall silent together, and each scan
/// reads nearly every process of the machine. A slow scan is reused longer, up to a limit, so that dogwatch does not
/// spend most of its time scanning.
const FRESH: Dur = Dur::from_millis(50);
const FRESH_TIMES: u64 = 5;
const MAX_FRESH: Dur = Dur::from_secs(1);

/// Marks this process as dogwatch's MCP server.
pub fn name_mcp_server() {
    let _ = rustix::thread::set_name(MCP_SERVER);
}

/// Takes samples for many sessions with few scans.
#[derive(Default)]
pub struct Sampler {
    scan: Option<Scan>,
}

struct Scan {
    at: Awake,
    fresh: Dur,
    processes: Processes,
}

impl Scan {
    fn now() -> Scan {
        let at = clock::awake();
        let processes = Processes::scan();
        let cost = clock::awake().since(at).saturating_mul(FRESH_TIMES);
        Scan { at, fresh: cost.max(FRESH).min(MAX_FRESH), processes }
    }

    /// Returns whether this scan is recent enough and knows the keeper.
    fn serves(&self, now: Awake, keeper: u32) -> bool {
        now.since(self.at) < self.fresh
            && i32::try_from(keeper).is_ok_and(|keeper| self.processes.all.contains_key(&keeper))
    }
}

/// All processes, indexed by parent, so that one session is found without visiting the others.
#[derive(Default)]
struct Processes {
    all: BTreeMap<i32, Process>,
    children: BTreeMap<i32, Vec<i32>>,
}

impl Sampler {
    /// Samples the tree below a keeper, from a recent scan if there is one. See [`sample`].
    pub fn sample(&mut self, keeper: u32, main: u32, structured: bool) -> Sample {
        let now = clock::awake();
        let scan = self.scan.take().filter(|scan| scan.serves(now, keeper)).unwrap_or_else(Scan::now);
        let sample = sample_of(&scan.processes, keeper, main, structured);
        self.scan = Some(scan);
        sample
    }
}

/// Samples the tree below a keeper, from a new scan.
///
/// The agent's own processes do not count: its main process and, for `structured` CLIs, its whole session, since
/// those start every tool in a new session. Dogwatch's MCP server and the servers behind it do not count as
/// children, because they live as long as the agent, whether it works or not. Their CPU time does count, because a
/// check that the agent requested runs there.
pub fn sample(keeper: u32, main: u32, structured: bool) -> Sample {
    sample_of(&Processes::scan(), keeper, main, structured)
}

fn sample_of(processes: &Processes, keeper: u32, main: u32, structured: bool) -> Sample {
    let (Ok(keeper), Ok(main)) = (i32::try_from(keeper), i32::try_from(main)) else {
        return Sample::default();
    };
    let own = |pid: i32, p: &Process| pid == main || (structured && p.session == main);
    let mut sample = Sample::default();
    // No process is visited twice: each has one parent, and the keeper is skipped below itself.
    let mut below: Vec<(i32, bool)> = processes.below(keeper).iter().map(|pid| (*pid, false)).collect();
    while let Some((pid, below_mcp)) = below.pop() {
        let Some(process) = processes.all.get(&pid) else { continue };
        let below_mcp = below_mcp || process.is_mcp_server;
        let children = processes.below(pid).iter().filter(|child| **child != keeper);
        below.extend(children.map(|child| (*child, below_mcp)));
        if !own(pid, process) {
            sample.children += u32::from(!below_mcp);
            sample.cpu_ms += process.ticks.saturating_mul(1000 / TICKS_PER_SECOND);
        }
    }
    sample
}

impl Processes {
    fn scan() -> Processes {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        let all = pids.take(MAX_PROCESSES).filter_map(|pid| Some((pid, read(pid)?)));
        Processes::of(all.collect())
    }

    fn of(all: BTreeMap<i32, Process>) -> Processes {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (pid, process) in &all {
            children.entry(process.parent).or_default().push(*pid);
        }
        Processes { all, children }
    }

    fn below(&self, pid: i32) -> &[i32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }
}

/// Reads a process with three system calls: its line fits into the buffer, and the kernel returns it at once.
fn read(pid: i32) -> Option<Process> {
    let mut line = [0; MAX_STAT];
    let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    // The command name may be any bytes.
    parse(&String::from_utf8_lossy(&line[..length]))
}

fn parse(stat: &str) -> Option<Process> {
    // The command name may contain spaces and parentheses. The other fields start after the last parenthesis.
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    let is_dead = matches!(*fields.first()?, "Z" | "X");
    let process = Process {
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        // The CPU time of the process and of the children it has reaped, user and system.
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        is_mcp_server: head.split_once('(')?.1.as_bytes() == MCP_SERVER.to_bytes(),
    };
    (!is_dead).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_any_name_is_parsed() {
        let stat = "71 (a ) R 1 (b) S 40 71 60 0 -1 4194304 9 9 9 9 1 20 300 4000 20 0 1 0 5 6 7";
        let process = parse(stat).expect("it lives");
        assert_eq!((process.parent, process.session, process.ticks), (40, 60, 4321));
        // A session that began outside of this pid namespace has the id 0.
        assert_eq!(parse(&stat.replace(" 60 ", " 0 ")).expect("it lives").session, 0);
        assert!(parse(&stat.replace(") S ", ") Z ")).is_none(), "dead processes do not count");
        assert!(parse("71 (cut) S 40 71").is_none());
        assert!(
            !process.is_mcp_server
                && parse(&stat.replace("(a ) R 1 (b)", "(dogwatch-mcp)")).expect("lives").is_mcp_server
        );
    }

    #[test]
    fn a_process_knows_its_parent() {
        let own = i32::try_from(std::process::id()).expect("a pid fits");
        let me = read(own).expect("we are alive");
        assert_eq!(me.parent, i32::try_from(std::os::unix::process::parent_id()).expect("a pid fits"));
        assert!(read(i32::MAX).is_none());
    }

    #[test]
    fn a_recent_scan_is_reused_for_the_keepers_it_knows() {
        let at = |sampler: &Sampler| sampler.scan.as_ref().map(|scan| scan.at).expect("there is a scan");
        let (mut sampler, own) = (Sampler::default(), std::process::id());
        sampler.sample(own, own, true);
        let first = at(&sampler);
        sampler.sample(own, own, false);
        // On a busy machine more time may pass between the two.
        assert!(at(&sampler) == first || at(&sampler).since(first) >= FRESH);
        let scan = sampler.scan.as_ref().expect("there is a scan");
        assert!(scan.fresh >= FRESH && scan.fresh <= MAX_FRESH);
        assert!(scan.serves(scan.at, own) && !scan.serves(scan.at.plus(scan.fresh), own));
        assert!(!scan.serves(scan.at, u32::MAX), "not in the scan");
    }

    #[test]
    fn only_processes_below_the_keeper_count_without_those_of_the_agent() {
        let list =
            [(10, 1, 10), (11, 10, 11), (12, 11, 11), (13, 12, 13), (14, 10, 14), (20, 1, 20), (21, 20, 21)];
        let process = |parent, session| Process { parent, session, ticks: 7, is_mcp_server: false };
        let all = list.into_iter().map(|(pid, parent, session)| (pid, process(parent, session)));
        let processes = Processes::of(all.collect());
        assert_eq!(sample_of(&processes, 10, 11, false), Sample { children: 3, cpu_ms: 210 });
        assert_eq!(sample_of(&processes, 10, 11, true), Sample { children: 2, cpu_ms: 140 });
        // Dogwatch's MCP server and the servers behind it do not count as children.
        let all = list.into_iter().map(|(pid, parent, session)| {
            (pid, Process { is_mcp_server: pid == 12, ..process(parent, session) })
        });
        assert_eq!(
            sample_of(&Processes::of(all.collect()), 10, 11, false),
            Sample { children: 1, cpu_ms: 210 }
        );
        // A pid may be reused between two reads, so a process may appear below itself.
        let round = [(10, 12, 10), (11, 10, 11), (12, 11, 11)];
        let all = round.into_iter().map(|(pid, parent, session)| (pid, process(parent, session)));
        assert_eq!(sample_of(&Processes::of(all.collect()), 10, 11, false).children, 1);
    }

    #[test]
    fn the_tree_of_an_unknown_keeper_is_empty() {
        assert_eq!(sample(u32::MAX, 1, true), Sample::default());
    }
}
