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
from bench_shared import bench, cpu_seconds, fold, timeline


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
    tree = work / f"graph-{at_once}-{n}"
    tree.mkdir()
    nodes = "".join(f"  - {{id: n{i}, prompt: Go on.}}\n" for i in range(n))
    (tree / "graph.yaml").write_text(f"agent: {agent}\nmax_parallel: {at_once}\nmax_iterations: 1\n{settings}nodes:\n{nodes}")
    return [bench.DOGWATCH, "run", tree / "graph.yaml", "--state-dir", tree / "state"]


def sessions(work, n):
    """As many sessions at once that the watchdog ends."""
    return graph(work, n, "sleep 600", n, "watchdog: {session: 15s, grace: 1s}\n")


def run(work, n):
    path = bench.loop(work / "growing", "true")
    return [bench.DOGWATCH, "run", path, "--state-dir", work / f"growing-{n}", "-n", str(n)]


def growth(work):
    """CPU seconds at 1, 10 and 100 times the input, with the slope: 1 is linear, 2 quadratic. What has all cores busy is
    limited by them, what has one busy by the code that runs there, and what has less by the disk or by a limit in time."""
    what = (
        ("replay, lines", 10_000, timeline), ("loop, iterations", 30, run), ("fold, events in the journal", 10_000, fold),
        ("graph, nodes", 100, graph), ("text, bytes", 10_000_000, flood("flood")),
        ("JSON lines, bytes", 10_000_000, flood("flood-json")), ("sessions at once, ended after 15 s", 3, sessions),
    )
    print("| what | 1 × | 10 × | 100 × | slope | cores busy at 100 × |\n|---|---|---|---|---|---|")
    for name, base, command in what:
        points = []
        for n in (base, 10 * base, 100 * base):
            line = command(work, n)
            before = time.monotonic()
            try:
                points.append((n, cpu_seconds(work, line)))
            except subprocess.CalledProcessError as why:
                print(f"| {name} | failed at {n}: exit {why.returncode} | | | | |")
                break
            took = time.monotonic() - before
        if len(points) == 3:
            cells = " | ".join(f"{seconds:.3f} s ({n:,})" for n, seconds in points)
            busy = points[-1][1] / took
            print(f"| {name} | {cells} | {slope(points):.2f} | {busy:.1f} of {os.cpu_count()} |", flush=True)


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
