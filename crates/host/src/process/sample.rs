//! What the agent has started and whether it is at work: children alive and CPU time used, from /proc.
//!
//! Taken only when an agent has been silent for a while. A process that is gone by the time it is looked at
//! counts for nothing.

use crate::clock;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;

/// The most processes that are looked at; a machine with more gives a sample that knows less.
const MAX_PROCESSES: usize = 100_000;
/// What dogwatch's own MCP server calls itself, so that it is told from what an agent starts.
const MCP_SERVER: &CStr = c"dogwatch-mcp";
/// What /proc counts CPU time in. It is 100 on every Linux that matters; user space sees no other.
const TICKS_PER_SECOND: u64 = 100;

/// One process, as far as it matters here.
struct Process {
    parent: i32,
    session: i32,
    ticks: u64,
    /// It is dogwatch's own MCP server.
    is_mcp_server: bool,
}

/// Children alive, and the CPU time of all of them so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub children: u32,
    pub cpu_ms: u64,
}

/// So long a look at all processes serves: sessions that began together fall silent together, and each look reads
/// about every process of the machine. Where that takes long it serves longer, so that looking is never what we do most.
const FRESH: Dur = Dur::from_millis(50);
const FRESH_TIMES: u64 = 5;
const MAX_FRESH: Dur = Dur::from_secs(1);

/// Marks this process as dogwatch's own MCP server.
pub fn be_a_door() {
    let _ = rustix::thread::set_name(MCP_SERVER);
}

/// Samples for many sessions, with few looks.
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

    /// Who has come since is not known to it.
    fn serves(&self, now: Awake, keeper: u32) -> bool {
        now.since(self.at) < self.fresh
            && i32::try_from(keeper).is_ok_and(|keeper| self.processes.all.contains_key(&keeper))
    }
}

/// All processes, and who was started by whom: of a machine full of sessions each is found without the others.
#[derive(Default)]
struct Processes {
    all: BTreeMap<i32, Process>,
    children: BTreeMap<i32, Vec<i32>>,
}

impl Sampler {
    pub fn sample(&mut self, keeper: u32, main: u32, structured: bool) -> Sample {
        let now = clock::awake();
        let scan = self.scan.take().filter(|scan| scan.serves(now, keeper)).unwrap_or_else(Scan::now);
        let sample = sample_of(&scan.processes, keeper, main, structured);
        self.scan = Some(scan);
        sample
    }
}

/// Samples the tree below a keeper. The agent's own processes are no children of it: its main process, and
/// for the known CLIs all of its session, since they start every tool in a session of its own. Nor are our MCP server
/// and the servers that stand behind it: they are there as long as the agent, whether it works or not. What they use of
/// the processor is effort all the same: a check that the agent asked for runs there.
pub fn sample(keeper: u32, main: u32, structured: bool) -> Sample {
    sample_of(&Processes::scan(), keeper, main, structured)
}

fn sample_of(processes: &Processes, keeper: u32, main: u32, structured: bool) -> Sample {
    let (Ok(keeper), Ok(main)) = (i32::try_from(keeper), i32::try_from(main)) else {
        return Sample::default();
    };
    let own = |pid: i32, p: &Process| pid == main || (structured && p.session == main);
    let mut sample = Sample::default();
    // Nobody is met twice: each has one parent, and the keeper is not looked for below itself.
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

fn read(pid: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<Process> {
    // The command's name may hold blanks and parentheses; the fields begin after the last one, with the state.
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    let is_dead = matches!(*fields.first()?, "Z" | "X");
    let process = Process {
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        // Its own time and that of the children it has waited for, user and system.
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
        // Whose session began outside of this pid namespace has the session 0.
        assert_eq!(parse(&stat.replace(" 60 ", " 0 ")).expect("it lives").session, 0);
        assert!(parse(&stat.replace(") S ", ") Z ")).is_none(), "the dead count for nothing");
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
        // A busy machine may take longer than that between the two.
        assert!(at(&sampler) == first || at(&sampler).since(first) >= FRESH);
        let scan = sampler.scan.as_ref().expect("there is a scan");
        assert!(scan.fresh >= FRESH && scan.fresh <= MAX_FRESH);
        assert!(scan.serves(scan.at, own) && !scan.serves(scan.at.plus(scan.fresh), own));
        assert!(!scan.serves(scan.at, u32::MAX), "nobody has seen that one");
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
        // Our own MCP server is no child, and the servers behind it are none.
        let all = list.into_iter().map(|(pid, parent, session)| {
            (pid, Process { is_mcp_server: pid == 12, ..process(parent, session) })
        });
        assert_eq!(
            sample_of(&Processes::of(all.collect()), 10, 11, false),
            Sample { children: 1, cpu_ms: 210 }
        );
        // Looked at one after the other, a pid may have come to mean somebody else, who is below himself.
        let round = [(10, 12, 10), (11, 10, 11), (12, 11, 11)];
        let all = round.into_iter().map(|(pid, parent, session)| (pid, process(parent, session)));
        assert_eq!(sample_of(&Processes::of(all.collect()), 10, 11, false).children, 1);
    }

    #[test]
    fn the_tree_of_an_unknown_keeper_is_empty() {
        assert_eq!(sample(u32::MAX, 1, true), Sample::default());
    }
}
