"""`scripts/bench --peers`: dogwatch compared with the alternatives, which scripts/peers.py installs and calls.

A peer that cannot be installed, or that fails in a row, is reported with the reason. All peers run alternately within a row, and
the best of the rounds counts.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from bench_shared import NULL, bench, cpu_seconds, fold, timeline, tree, words
from peers import CACHE, Bash, Dogwatch, Orchestrator, PythonTool, Ralphify, RalphWorkflow, Unavailable

# Marks the processes of an agent, so that survivors are found.
MARK = "BENCH_SURVIVOR"
# Marks every process of a measurement, so that none is left behind.
RUN = "BENCH_RUN"


def version_of(*command):
    """Returns the first line that a program prints about its version."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return f"no {command[0]}"
    return next(iter((done.stdout or done.stderr).splitlines()), f"{command[0]}: no version")


ROWS = []


def row(what, figures):
    """Prints one row: a figure or a reason for every peer, with its ratio to dogwatch."""
    own = figures.get("dogwatch")
    cells = {}
    for name, figure in figures.items():
        if isinstance(figure, str):
            cells[name] = figure
        else:
            ratio = f" ({figure / own:.1f} ×)" if name != "dogwatch" and isinstance(own, (int, float)) and own > 0 else ""
            cells[name] = (f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}") + ratio
    ROWS.append((what, cells))
    print(f"{what}: " + "; ".join(f"{name} {cell}" for name, cell in cells.items()), flush=True)


def each(peers, measure, rounds=1):
    """Measures every peer `rounds` times, alternately; the least counts. A failure becomes its reason."""
    best = {}
    for _ in range(rounds):
        for peer in peers:
            if isinstance(best.get(peer.name), str):
                continue
            try:
                value = measure(peer)
                old = best.get(peer.name)
                best[peer.name] = value if isinstance(value, str) or old is None else min(value, old)
            except Unavailable as why:
                best[peer.name] = str(why)[:80]
            except (OSError, subprocess.SubprocessError) as why:
                best[peer.name] = f"failed: {str(why)[:80]}"
    return best


def begun(command, directory):
    """Starts a command in a session of its own."""
    environment = {**bench.environment(directory), RUN: str(directory)}
    return subprocess.Popen(words(command), cwd=directory, env=environment, start_new_session=True, **NULL)


def ran(command, directory, bound=600):
    """Runs a command to its end and returns the seconds."""
    start = time.perf_counter()
    run = begun(command, directory)
    try:
        # Loops that stop at a count may exit with another code than 0.
        run.wait(bound)
    except subprocess.TimeoutExpired as why:
        kill(run, directory)
        raise Unavailable(f"not finished after {bound} s") from why
    return time.perf_counter() - start


def fresh(work):
    return Path(tempfile.mkdtemp(dir=work))


def starts(work, peers):
    def measure(peer):
        ran(peer.start(), work)
        return min(ran(peer.start(), work) for _ in range(10)) * 1000

    row("start, ms", each(peers, measure, 3))


# The longest series of iterations to measure, and the longest time for all rounds of one tool, in seconds.
SERIES, ROUNDS = 120, 60


def iterations(work, peers):
    # In memory, nothing waits for the disk. No peer writes so that its record survives a power failure; dogwatch does.
    memory = Path(tempfile.mkdtemp(prefix="dogwatch-peers-", dir="/dev/shm"))
    try:
        iterations_in(memory, peers, " in memory")
    finally:
        sweep(memory)
        shutil.rmtree(memory, ignore_errors=True)
    iterations_in(work, peers, "")


def iterations_in(work, peers, where):
    """The time from one call of the agent to the next, so that the start and the end of a tool do not count."""
    known = {}
    for many in (50, 1000):
        rounds, spent = {}, {}

        def measure(peer):
            per_iteration, took = known.get(peer.name, 0), rounds.setdefault(peer.name, [])
            if isinstance(per_iteration, str):
                raise Unavailable(per_iteration)
            if per_iteration * many / 1000 > SERIES:
                raise Unavailable(f"not run: {per_iteration * many / 1000:.0f} s")
            if spent.get(peer.name, 0) < ROUNDS:
                directory = fresh(work)
                calls = directory / "calls"
                command = peer.loop(directory, f"sh -c 'exec date +%s%N >> {calls}'", many + 1)
                spent[peer.name] = spent.get(peer.name, 0) + ran(command, directory, 900)
                times = list(map(int, calls.read_text().split())) if calls.exists() else []
                if len(times) != many + 1:
                    raise Unavailable(f"{len(times)} agent calls instead of {many + 1}")
                took.append((times[-1] - times[0]) / many / 1e6)
            return min(took)

        known = each(peers, measure, 5 if many < 100 else 2)
        row(f"iteration{where}, of {many}, ms", known)
        medians = {name: statistics.median(took) for name, took in rounds.items() if took}
        print("  median of the rounds: " + "; ".join(f"{name} {value:.3g}" for name, value in medians.items()), flush=True)


def with_variable(fits):
    """Returns the live processes whose environment has a variable that fits."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and any(map(fits, (path / "environ").read_bytes().split(b"\0"))):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def marked(directory):
    """Returns the live processes that carry the mark of a directory."""
    mark = f"{MARK}={directory}".encode()
    return with_variable(lambda variable: variable == mark)


def sweep(directory):
    """Ends every process of the measurements in a directory."""
    prefix = f"{RUN}={directory}".encode()
    for pid in with_variable(lambda variable: variable.startswith(prefix)):
        end(pid)


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def sleeping_agent(directory):
    """An agent that sleeps, with a child in a new session."""
    script = directory / "agent"
    script.write_text(f"#!/bin/sh\nexport {MARK}={directory}\nsetsid sleep 300 &\ntouch {directory}/ready\nexec sleep 300\n")
    script.chmod(0o755)
    return str(script)


def started(peer, directory, limit=None, agent=None, n=1, delay=None):
    run = begun(peer.loop(directory, agent or sleeping_agent(directory), n, limit, delay, ends=agent is not None), directory)
    latest = time.monotonic() + 30
    while not (directory / "ready").exists():
        if time.monotonic() > latest or run.poll() is not None:
            kill(run, directory)
            raise Unavailable("the agent was not started")
        time.sleep(0.005)
    return run


def kill(run, directory):
    for pid in {*tree(run.pid), *marked(directory)}:
        end(pid)
    sweep(directory)
    run.wait()


def resting(work, peers, what, start):
    """Private memory, CPU and switches of a tool that has nothing to do, in ten seconds."""
    figures = {"private memory, MB": {}, "CPU in 10 s, s": {}, "switches in 10 s": {}}
    for peer in peers:
        directory = fresh(work)
        try:
            run = start(peer, directory)
        except (Unavailable, OSError) as why:
            for cells in figures.values():
                cells[peer.name] = str(why)[:80]
            continue
        time.sleep(2)
        ours = [pid for pid in tree(run.pid) if pid not in marked(directory)]
        look = lambda: (sum(map(bench.cpu, ours)), sum(bench.status(pid, "voluntary_ctxt_switches") for pid in ours))
        try:
            before = look()
            time.sleep(10)
            after = look()
            private = sum(bench.footprint(pid)[0] for pid in ours)
            found = private, f"{after[0] - before[0]:.2f}", str(after[1] - before[1])
        except OSError:
            found = ["one of its processes ended"] * len(figures)
        finally:
            kill(run, directory)
        for cells, figure in zip(figures.values(), found):
            cells[peer.name] = figure
    for name, cells in figures.items():
        row(f"{what}, {name}", cells)


def asleep(work, peers):
    resting(work, peers, "agent asleep", started)


def waiting(work, peers):
    """Between two iterations, with a delay of a minute."""
    def start(peer, directory):
        agent = directory / "quick"
        agent.write_text(f"#!/bin/sh\nexport {MARK}={directory}\ntouch {directory}/ready\n")
        agent.chmod(0o755)
        return started(peer, directory, agent=str(agent), n=2, delay=60)

    resting(work, peers, "between iterations", start)


def floods(work, peers):
    for what, script in (("text", f"flood {bench.FLOOD}"), ("JSON lines", f"flood-json {bench.FLOOD}")):
        def measure(peer):
            directory = fresh(work)
            # The mark shows that the whole flood was taken.
            agent = f"sh -c \"{bench.DOGWATCH} actor -e '{script}' && touch {directory}/done\""
            took = ran(peer.loop(directory, agent, 1), directory)
            if not (directory / "done").exists():
                raise Unavailable("the agent did not finish")
            return took

        row(f"200 MB of {what}, s", each(peers, measure, 2))


# A night of eight hours: four iterations of 46.2 s with work, then each call needs 12 s to find that there is none. The waits of
# dogwatch, from 30 s to 5 minutes, and the agent are a thousand times faster here.
NIGHT, WORKING, WORK_CALL, IDLE_CALL, FASTER = 28_800, 4, 46.2, 12, 1000
IDLE = "idle: {delay: 30ms, backoff: 2.0, max_delay: 300ms, max: off, stop_after: off}\n"
# An assumption, in thousands: instructions, tools, prompt and a short answer. It changes the figures, not their ratio.
TOKENS_PER_CALL = 20


def night(work, peers):
    """How often an agent is called in a night with little work.

    The own time of a tool per call is not a thousand times shorter here. It is what the measured time from call to call has beyond
    the waits and the agent, and counts as it is.
    """
    def measure(peer):
        directory = fresh(work)
        agent = directory / "agent"
        agent.write_text(
            f"#!/bin/sh\nexport {MARK}={directory}\ncat > /dev/null\ndate +%s%N >> {directory}/calls\n"
            f"if [ $(wc -l < {directory}/calls) -le {WORKING} ]; then sleep {WORK_CALL / FASTER}; echo 'Task done.'; exit; fi\n"
            f"sleep {IDLE_CALL / FASTER}\necho 'Nothing to do.'\necho '<!-- ralph:state idle reason=no_pending_tasks -->'\n"
        )
        agent.chmod(0o755)
        command = peer.loop(directory, str(agent), 1_000_000)
        if peer.name == "dogwatch":
            bench.loop(directory / "dogwatch", str(agent), IDLE)
        run = begun(command, directory)
        latest = time.monotonic() + NIGHT / FASTER
        while time.monotonic() < latest and run.poll() is None:
            time.sleep(0.05)
        kill(run, directory)
        times = list(map(int, (directory / "calls").read_text().split())) if (directory / "calls").exists() else []
        idle = times[WORKING:]
        if len(idle) < 2:
            raise Unavailable(f"{len(times)} agent calls")
        # No other tool waits for work.
        wait = (lambda n: min(30 * 2**n, 300)) if peer.name == "dogwatch" else lambda n: 0
        planned = sum(wait(n) + IDLE_CALL for n in range(len(idle) - 1)) / FASTER
        own = ((idle[-1] - idle[0]) / 1e9 - planned) / (len(idle) - 1)
        calls, elapsed = WORKING, WORKING * (WORK_CALL + own)
        while elapsed < NIGHT:
            elapsed += IDLE_CALL + own + wait(calls - WORKING)
            calls += 1
        return calls

    calls = each(peers, measure)
    row("calls of an agent in a night with four tasks", calls)
    tokens = {name: cell if isinstance(cell, str) else cell * TOKENS_PER_CALL / 1000 for name, cell in calls.items()}
    row(f"tokens paid for it at {TOKENS_PER_CALL},000 per call, millions", tokens)


def wakes(work, peers):
    """From a changed file to the next call of the agent, in the middle of a wait of a minute; the median of ten."""
    def measure(peer):
        if peer.name != "dogwatch":
            raise Unavailable("does not wake")
        directory = fresh(work)
        (directory / "inbox").mkdir()
        agent = directory / "agent"
        agent.write_text(f"#!/bin/sh\nexport {MARK}={directory}\ncat > /dev/null\ndate +%s%N >> {directory}/calls\n")
        agent.chmod(0o755)
        path = bench.loop(directory / "dogwatch", str(agent), "wake_on: {paths: [inbox]}\n")
        command = [bench.DOGWATCH, "run", path, "--state-dir", directory / "state", "--delay", "60s", "-n", "20"]
        run = begun(command, directory)
        calls, late = directory / "calls", []
        for n in range(1, 12):
            latest = time.monotonic() + 10
            while not calls.exists() or len(calls.read_text().splitlines()) < n:
                if time.monotonic() > latest:
                    kill(run, directory)
                    raise Unavailable("the agent was not called")
                time.sleep(0.002)
            if n > 1:
                late.append((int(calls.read_text().splitlines()[-1]) - written) / 1e6)
            time.sleep(0.3)
            written = time.time_ns()
            (directory / "inbox" / str(n)).write_text("work\n")
        kill(run, directory)
        return sorted(late)[len(late) // 2]

    row("changed file to agent call, ms", each(peers, measure))


def ended(work, peers):
    """From the time limit to the end of every process, and what is left behind."""

    def stuck(peer):
        directory = fresh(work)
        run = started(peer, directory, limit=3)
        start = time.monotonic()
        while marked(directory) and time.monotonic() < start + 20:
            time.sleep(0.02)
        late = time.monotonic() - start - 3
        left = len(marked(directory))
        kill(run, directory)
        return f"{left} left after 20 s" if left else late

    row("stuck for 3 s, then tree gone after, s", each(peers, stuck))

    def survivors(how):
        def measure(peer):
            directory = fresh(work)
            run = started(peer, directory)
            # Some tools take the first Ctrl-C as a request to stop after the iteration, and the third as "now".
            for _ in range(3 if how == signal.SIGINT else 1):
                if run.poll() is None:
                    os.kill(run.pid, how)
                    time.sleep(1)
            latest = time.monotonic() + 15
            while marked(directory) and time.monotonic() < latest:
                time.sleep(0.05)
            left = len(marked(directory))
            kill(run, directory)
            return str(left)

        return measure

    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        times = "three times " if how == signal.SIGINT else ""
        row(f"left 15 s after {times}{how.name} of the supervisor", each(peers, survivors(how)))

    def clean(peer):
        directory = fresh(work)
        script = directory / "agent"
        script.write_text(f"#!/bin/sh\nexport {MARK}={directory}\nsetsid sleep 60 > /dev/null 2>&1 &\nexit 0\n")
        script.chmod(0o755)
        ran(peer.loop(directory, str(script), 1), directory)
        left = marked(directory)
        sweep(directory)
        return str(len(left))

    row("left after a clean exit of the agent", each(peers, clean))


def graphs(work):
    """Jobs of a graph, compared with GNU parallel."""
    class Parallel:
        name = "GNU parallel"

    def compare(what, jobs, command, settings, node="", rounds=1, minus=0):
        """Runs a command for GNU parallel's `jobs` lines of input, and a graph of as many nodes with these settings."""
        def measure(peer):
            directory = fresh(work)
            if isinstance(peer, Parallel):
                if not shutil.which("parallel"):
                    raise Unavailable("not installed (apt install parallel)")
                return ran(["sh", "-c", f"seq {jobs} | parallel {command}"], directory) - minus
            nodes = "".join(f"  - {{id: n{n}, prompt: Go on.{node}}}\n" for n in range(jobs))
            (directory / "graph.yaml").write_text(f"{settings}nodes:\n{nodes}")
            return ran([bench.DOGWATCH, "run", "graph.yaml", "--state-dir", directory / "state"], directory) - minus

        row(what, each([Parallel(), Dogwatch()], measure, rounds))

    agent = "agent: sh -c 'cat > /dev/null; sleep 0.2; echo ok'\n"
    compare("200 jobs, 50 at once, s", 200, "-j50 'sleep 0.2; echo ok; true {}'", f"{agent}max_parallel: 50\n", ", done_when: ['true']", 3)
    once = "max_iterations: 1\n"
    compare("10,000 short jobs, 8 at once, s", 10_000, "-j8 'true {}'", f"agent: 'true'\nmax_parallel: 8\n{once}", rounds=2)
    limits = "watchdog: {session: 15s, grace: 1s}\nmax_parallel: 300\n"
    what = "300 hung jobs with a limit of 15 s, all gone after, s"
    compare(what, 300, "-j300 --timeout 15 'exec sleep 600'", f"agent: sleep 600\n{limits}{once}", minus=15)


def sizes(peers):
    programs = {"dogwatch": bench.DOGWATCH, "ralph-orchestrator": Orchestrator.program}
    figures = {name: path.stat().st_size / 1e6 for name, path in programs.items() if path.exists()}
    for peer in peers:
        if isinstance(peer, PythonTool):
            figures[peer.name] = sum(f.stat().st_size for f in peer.venv.rglob("*") if f.is_file() and "pip" not in f.parts) / 1e6
    row("size, MB (Python: its environment)", figures)
    lines, packages = {}, {}
    for peer in peers:
        try:
            lines[peer.name], packages[peer.name] = peer.code()
        except (AttributeError, Unavailable, OSError, subprocess.SubprocessError):
            continue
    row("lines of source", lines)
    row("packages that it needs", packages)


def builds(work, peers):
    """From nothing to a program that can be started, with a warm cache of downloads for Rust."""
    row("cold build (Python: installation), s", each([peer for peer in peers if hasattr(peer, "ready_after")], lambda p: p.ready_after()))


def records(work, peers):
    """What no other tool does."""
    row("replay of 1,000,000 raw lines, CPU s", {"dogwatch": cpu_seconds(work, timeline(work, 1_000_000))})
    row("fold of 1,000,000 events, CPU s", {"dogwatch": cpu_seconds(work, fold(work, 1_000_000))})


def main():
    work = Path(tempfile.mkdtemp(prefix="dogwatch-peers-"))
    CACHE.mkdir(parents=True, exist_ok=True)
    # A shell that starts this in the background makes it, and everything that it starts, ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        peers = []
        for peer in (Dogwatch(), Bash(), Ralphify("0.3.0"), Ralphify("0.4.0b3"), Orchestrator(), RalphWorkflow("0.9.30")):
            try:
                peer.install()
                peers.append(peer)
            except (Unavailable, OSError) as why:
                print(f"not compared: {peer.name}: {why}", flush=True)
        python = ".".join(map(str, sys.version_info[:3]))
        others = [version_of("bash", "--version"), version_of("parallel", "--version"), version_of("rustc", "--version")]
        print("; ".join([version_of(str(bench.DOGWATCH), "--version"), f"Python {python}", *others]), flush=True)
        chosen = [word for word in sys.argv[1:] if not word.startswith("--")]
        for measure in (starts, iterations, asleep, waiting, floods, night, wakes, ended, records, builds):
            if not chosen or any(word in measure.__name__ for word in chosen):
                measure(work, peers)
                sweep(work)
        if not chosen or "graphs" in chosen:
            graphs(work)
        sizes(peers)
        names = list(dict.fromkeys(name for _, cells in ROWS for name in cells))
        print("\n| what | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
        for what, cells in ROWS:
            print(f"| {what} | " + " | ".join(cells.get(name, "") for name in names) + " |")
    finally:
        sweep(work)
        shutil.rmtree(work, ignore_errors=True)


main()
