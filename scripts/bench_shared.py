"""What `scripts/bench --peers` and `--growth` share: the module of `scripts/bench`, and inputs of any size for dogwatch."""

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("bench", str(Path(__file__).with_name("bench")))
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
loader.exec_module(bench)

NULL = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def words(command):
    return [str(word) for word in command]


def tree(pid):
    """Returns a process and all its descendants by parent."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue += parents.get(found[-1], [])
    return found


def journal(directory, events):
    """Makes a valid record of `events` events out of a short run, and returns its state directory."""
    state = directory / "state"
    path = bench.loop(directory / "turn", "true")
    subprocess.run([bench.DOGWATCH, "run", path, "--state-dir", state, "-n", "3"], cwd=directory, check=True, **NULL)
    file = next(state.glob("runs/*/events.jsonl"))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    first = next(i for i, line in enumerate(lines) if line.get("iteration") == 2)
    turn = [line for line in lines if line.get("iteration") == 2]
    last = "0" * 32
    with file.open("w") as out:
        for i in range(events):
            place = i - first
            line = lines[i] if place < 0 else turn[place % len(turn)]
            line |= {"seq": i + 1, "prev": last}
            if place >= 0:
                line["iteration"] = 2 + place // len(turn)
            text = json.dumps(line, separators=(",", ":"), ensure_ascii=False)
            last = hashlib.sha256(text.encode()).hexdigest()[:32]
            out.write(text + "\n")
    return state


def timeline(work, n):
    """Replays a timeline of raw lines."""
    path = work / f"timeline-{n}"
    text = '{\\"type\\":\\"assistant\\",\\"message\\":{\\"content\\":[{\\"type\\":\\"text\\",\\"text\\":\\"step %d\\"}]}}'
    with path.open("w") as file:
        file.writelines(f'{{"t_ms": {i * 3}, "line": "{text % i}"}}\n' for i in range(n))
    return [bench.DOGWATCH, "replay", path, "--agent", "claude", "--json", "--set", "watchdog.session=off"]


def fold(work, n):
    """Shows the status of a run from its journal."""
    return [bench.DOGWATCH, "status", "--json", "--state-dir", journal(work / f"folded-{n}", n)]


def cpu_seconds(work, command):
    """Returns the CPU time of a command and of everything that it starts. Sessions that are ended make it exit with 1."""
    os.environ.update({k: v for k, v in bench.environment(work).items() if k.startswith("XDG")})
    os.chdir(work)
    return bench.cpu_of(words(command), codes=(0, 1))
