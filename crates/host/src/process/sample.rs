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
const DOOR: &CStr = c"dogwatch-mcp";
/// What /proc counts CPU time in. It is 100 on every Linux that matters; user space sees no other.
const TICKS_PER_SECOND: u64 = 100;

/// One process, as far as it matters here.
struct Process {
    parent: i32,
    session: i32,
    ticks: u64,
    /// It is dogwatch's own MCP server.
    is_door: bool,
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
    let _ = rustix::thread::set_name(DOOR);
}

/// Samples for many sessions, with few looks.
#[derive(Default)]
pub struct Sampler {
    looked: Option<Looked>,
}

struct Looked {
    at: Awake,
    fresh: Dur,
    there: Processes,
}

impl Looked {
    fn now() -> Looked {
        let at = clock::awake();
        let there = Processes::look();
        let cost = clock::awake().since(at).saturating_mul(FRESH_TIMES);
        Looked { at, fresh: cost.max(FRESH).min(MAX_FRESH), there }
    }

    /// Who has come since is not known to it.
    fn serves(&self, now: Awake, keeper: u32) -> bool {
        now.since(self.at) < self.fresh
            && i32::try_from(keeper).is_ok_and(|keeper| self.there.all.contains_key(&keeper))
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
        let looked =
            self.looked.take().filter(|looked| looked.serves(now, keeper)).unwrap_or_else(Looked::now);
        let sample = sample_of(&looked.there, keeper, main, structured);
        self.looked = Some(looked);
        sample
    }
}

/// Samples the tree below a keeper. The agent's own processes are no children of it: its main process, and
/// for the known CLIs all of its session, since they start every tool in a session of its own. Nor are our MCP server
/// and the servers that stand behind it: they are there as long as the agent, whether it works or not. What they use of
/// the processor is effort all the same: a check that the agent asked for runs there.
pub fn sample(keeper: u32, main: u32, structured: bool) -> Sample {
    sample_of(&Processes::look(), keeper, main, structured)
}

fn sample_of(there: &Processes, keeper: u32, main: u32, structured: bool) -> Sample {
    let (Ok(keeper), Ok(main)) = (i32::try_from(keeper), i32::try_from(main)) else {
        return Sample::default();
    };
    let own = |pid: i32, p: &Process| pid == main || (structured && p.session == main);
    let mut sample = Sample::default();
    // Nobody is met twice: each has one parent, and the keeper is not looked for below itself.
    let mut below: Vec<(i32, bool)> = there.below(keeper).iter().map(|pid| (*pid, false)).collect();
    while let Some((pid, behind)) = below.pop() {
        let Some(process) = there.all.get(&pid) else { continue };
        let behind = behind || process.is_door;
        let children = there.below(pid).iter().filter(|child| **child != keeper);
        below.extend(children.map(|child| (*child, behind)));
        if !own(pid, process) {
            sample.children += u32::from(!behind);
            sample.cpu_ms += process.ticks.saturating_mul(1000 / TICKS_PER_SECOND);
        }
    }
    sample
}

impl Processes {
    fn look() -> Processes {
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
        is_door: head.split_once('(')?.1.as_bytes() == DOOR.to_bytes(),
    };
    (!is_dead).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_is_called() {
        let stat = "71 (a ) R 1 (b) S 40 71 60 0 -1 4194304 9 9 9 9 1 20 300 4000 20 0 1 0 5 6 7";
        let process = parse(stat).expect("it lives");
        assert_eq!((process.parent, process.session, process.ticks), (40, 60, 4321));
        // Whose session began outside of this pid namespace has the session 0.
        assert_eq!(parse(&stat.replace(" 60 ", " 0 ")).expect("it lives").session, 0);
        assert!(parse(&stat.replace(") S ", ") Z ")).is_none(), "the dead count for nothing");
        assert!(parse("71 (cut) S 40 71").is_none());
        assert!(
            !process.is_door
                && parse(&stat.replace("(a ) R 1 (b)", "(dogwatch-mcp)")).expect("lives").is_door
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
    fn looks_that_follow_each_other_closely_are_one_for_whom_the_first_has_seen() {
        let at = |sampler: &Sampler| sampler.looked.as_ref().map(|looked| looked.at).expect("it has looked");
        let (mut sampler, own) = (Sampler::default(), std::process::id());
        sampler.sample(own, own, true);
        let first = at(&sampler);
        sampler.sample(own, own, false);
        // A busy machine may take longer than that between the two.
        assert!(at(&sampler) == first || at(&sampler).since(first) >= FRESH);
        let looked = sampler.looked.as_ref().expect("it has looked");
        assert!(looked.fresh >= FRESH && looked.fresh <= MAX_FRESH);
        assert!(looked.serves(looked.at, own) && !looked.serves(looked.at.plus(looked.fresh), own));
        assert!(!looked.serves(looked.at, u32::MAX), "nobody has seen that one");
    }

    #[test]
    fn of_all_processes_only_those_below_the_keeper_count_and_not_the_agents_own() {
        let list =
            [(10, 1, 10), (11, 10, 11), (12, 11, 11), (13, 12, 13), (14, 10, 14), (20, 1, 20), (21, 20, 21)];
        let process = |parent, session| Process { parent, session, ticks: 7, is_door: false };
        let all = list.into_iter().map(|(pid, parent, session)| (pid, process(parent, session)));
        let there = Processes::of(all.collect());
        assert_eq!(sample_of(&there, 10, 11, false), Sample { children: 3, cpu_ms: 210 });
        assert_eq!(sample_of(&there, 10, 11, true), Sample { children: 2, cpu_ms: 140 });
        // Our own MCP server is no child, and the servers behind it are none.
        let all = list
            .into_iter()
            .map(|(pid, parent, session)| (pid, Process { is_door: pid == 12, ..process(parent, session) }));
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
    fn a_tree_of_nobody_is_empty() {
        assert_eq!(sample(u32::MAX, 1, true), Sample::default());
    }
}
