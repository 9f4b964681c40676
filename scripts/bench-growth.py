"""`scripts/bench --growth`: how the costs of dogwatch grow with the input."""

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from bench_shared import bench, cpu_seconds, fold, timeline, tree


def slope(points):
    """Returns the slope of the least squares line through the logarithms."""
    logs = [(math.log(x), math.log(max(y, 1e-9))) for x, y in points]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def flood(kind):
    def command(work, n):
        path = bench.loop(work / kind, f"{bench.DOGWATCH} actor -e '{kind} {n}'")
        return [bench.DOGWATCH, "run", path, "--state-dir", work / f"{kind}-{n}", "-n", "1"]

    return command


def graph(work, n, agent="'true'", at_once=8, settings=""):
    project = work / f"graph-{at_once}-{n}"
    project.mkdir()
    nodes = "".join(f"  - {{id: n{i}, prompt: Go on.}}\n" for i in range(n))
    (project / "graph.yaml").write_text(f"agent: {agent}\nmax_parallel: {at_once}\nmax_iterations: 1\n{settings}nodes:\n{nodes}")
    return [bench.DOGWATCH, "run", project / "graph.yaml", "--state-dir", project / "state"]


def sessions(work, n):
    """As many sessions at once that the watchdog ends."""
    return graph(work, n, "sleep 600", n, "watchdog: {session: 15s, grace: 1s}\n")


def run(work, n):
    path = bench.loop(work / "growing", "true")
    return [bench.DOGWATCH, "run", path, "--state-dir", work / f"growing-{n}", "-n", str(n)]


def cost(command):
    """Measures the CPU time of a command and of everything that it starts, and how many cores that kept busy."""
    def measure(work, n):
        line = command(work, n)
        begun = time.monotonic()
        used = cpu_seconds(work, line)
        return used, f"{used / (time.monotonic() - begun):.1f} of {os.cpu_count()} cores busy"

    return measure


def asleep(work, n):
    """The private memory of dogwatch and its keepers while sessions sleep, in megabytes."""
    path, state = work / f"asleep-{n}.yaml", work / f"asleep-{n}"
    nodes = "".join(f"  - {{id: n{i}, prompt: Go on.}}\n" for i in range(n))
    path.write_text(f"agent: sleep 600\nmax_parallel: {n}\nnodes:\n{nodes}")
    run = bench.start(work, path, state)
    bench.until(lambda: bench.journal(state) and len(bench.events(state, "session_started")) == n)
    time.sleep(2)
    own = [pid for pid in tree(run.pid) if program(pid) == program(run.pid)]
    private = [bench.footprint(pid)[0] for pid in own]
    run.send_signal(signal.SIGTERM)
    run.wait()
    return sum(private), f"{private[0]:.1f} MB dogwatch, {len(own) - 1} keepers"


def program(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def snapshot(work, n):
    """The median of seven snapshots, in milliseconds."""
    took = bench.snapshot_times(work, n)
    return took[3], f"at most {took[-1]:.0f} ms"


def wake(work, n):
    """The median from a changed file to the next session with as many watched directories, in milliseconds."""
    project = work / f"watched-{n}"
    for i in range(n):
        (project / "inbox" / str(i // 100) / str(i % 100)).mkdir(parents=True)
    state = project / "state"
    run = bench.start(project, bench.loop(project / "waiting", bench.IDLE, bench.WAITING), state)
    bench.until(lambda: bench.has_event(state, "wait_started"))
    took = bench.wake_times(run, state, project / "inbox", 21)
    return took[10], f"at most {took[-1]:.0f} ms"


def growth(work):
    """Figures at 1, 10 and 100 times the input, with the slope: 1 is linear, 2 quadratic. A command that has all cores busy is
    limited by them, one that has one busy by the code that runs there, and one that has less by the disk or by a limit in time."""
    what = (
        ("replay, lines", "s", 10_000, cost(timeline)), ("loop, iterations", "s", 30, cost(run)),
        ("fold, events in the journal", "s", 10_000, cost(fold)), ("graph, nodes", "s", 100, cost(graph)),
        ("text, bytes", "s", 10_000_000, cost(flood("flood"))), ("JSON lines, bytes", "s", 10_000_000, cost(flood("flood-json"))),
        ("sessions at once, ended after 15 s", "s", 3, cost(sessions)), ("sessions asleep, private memory", "MB", 3, asleep),
        ("snapshot, files", "ms", 500, snapshot), ("changed file to session, watched directories", "ms", 100, wake),
    )
    chosen = [word for word in sys.argv[1:] if not word.startswith("--")]
    print("| what | 1 × | 10 × | 100 × | slope | at 100 × |\n|---|---|---|---|---|---|")
    for name, unit, base, measure in what:
        if chosen and not any(word in name for word in chosen):
            continue
        points, detail = [], ""
        for n in (base, 10 * base, 100 * base):
            try:
                value, detail = measure(work, n)
            except subprocess.CalledProcessError as why:
                print(f"| {name} | failed at {n}: exit {why.returncode} | | | | |")
                break
            points.append((n, value))
        if len(points) == 3:
            digits = 3 if unit == "s" else 1
            cells = " | ".join(f"{value:.{digits}f} {unit} ({n:,})" for n, value in points)
            print(f"| {name} | {cells} | {slope(points):.2f} | {detail} |", flush=True)


def main():
    work = Path(tempfile.mkdtemp(prefix="dogwatch-growth-"))
    # A shell that starts this in the background makes it, and everything that it starts, ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        bench.build()
        growth(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


main()
