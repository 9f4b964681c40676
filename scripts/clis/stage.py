"""One run of the real dogwatch with a real agent CLI and a scripted model, and access to its record."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import agents

HERE = Path(__file__).resolve().parent
# The longest run of a case, in seconds.
LONGEST = 400
# How long dogwatch may take to stop a run, in seconds.
LAST = 60
# The runs in progress.
RUNS = set()


class Failed(Exception):
    """A failed expectation."""


def expect(true, what, seen=None):
    if not true:
        raise Failed(f"expected: {what}" if seen is None else f"expected: {what}; got: {seen}")


def load_factor():
    """Returns how much slower this machine is than an idle one, as a factor from 1 to 3."""
    return max(1, min(3, os.getloadavg()[0] / (2 * os.cpu_count())))


class Stage:
    """The setup of one case. `silence` is the `watchdog.idle` of its loop, `slack` the allowed delay of a verdict."""

    def __init__(self, directory, cli, programs, dogwatch, sandbox="off"):
        self.directory, self.cli, self.dogwatch, self.sandbox = directory, cli, dogwatch, sandbox
        self.slack = load_factor()
        self.silence = round(cli.silence * self.slack)
        self.home, self.work = directory / "home", directory / "work"
        (self.home / "tmp").mkdir(parents=True, exist_ok=True)
        self.work.mkdir()
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run([*git, "init", "-q"], cwd=self.work, check=True)
        (self.work / "README.md").write_text("A place to play.\n")
        subprocess.run([*git, "add", "."], cwd=self.work, check=True)
        subprocess.run([*git, "commit", "-qm", "begin"], cwd=self.work, check=True)
        self.programs = programs

    def play(self, play, settings, *args, until=None, prepare=None):
        """Runs the loop to its end, or until an event occurs, and returns the record. `prepare` runs before the loop."""
        log = self.directory / "asked.jsonl"
        lines = "".join(f"{key}: {value}\n" for key, value in {"agent": self.cli.name, **settings}.items())
        loop = self.directory / "task"
        loop.mkdir()
        (loop / "RALPH.md").write_text(f"---\n{lines}---\nDo the PLAYED task.\n")
        with self.model(play, log) as url:
            written = self.cli.settle(self.home, self.work, url)
            if prepare is not None:
                prepare()
            before = {path: digest(path) for path in written}
            # In strict mode the CLI may connect to its scripted model and nothing else that is local.
            port = url.rsplit(":", 1)[1]
            # The user's own MCP server is outside of the work tree.
            limits = [f"sandbox={self.sandbox}", f"sandbox.ports={port}", f"sandbox.read={HERE}"]
            limits = [] if self.sandbox == "off" else [word for limit in limits for word in ("--set", limit)]
            self.run([self.dogwatch, "run", loop, "--json", *limits, *args], url, until)
        played = Played(self, log)
        for path, was in before.items():
            expect(digest(path) == was, f"the user's {path.name} is unchanged")
        played.expect_nothing_left()
        return played

    @contextlib.contextmanager
    def model(self, play, log):
        """Runs the scripted model and yields its URL."""
        script = self.directory / f"{log.stem}.play.json"
        script.write_text(json.dumps({**play, "log": str(log)}))
        with open(self.directory / "model.err", "w") as errors:
            model = subprocess.Popen(
                [sys.executable, HERE / "model.py", script],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )
        try:
            yield f"http://127.0.0.1:{json.loads(model.stdout.readline())['port']}"
        finally:
            model.stdin.close()
            model.wait(timeout=10)

    def ask(self, command, url=None):
        """Runs a command as the user would, in the work directory, and returns its output."""
        env = agents.environment(self.programs, self.home, self.cli.env(url) if url else {})
        done = subprocess.run(
            command, cwd=self.work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST,
        )
        expect(done.returncode == 0, f"{command[:3]} succeeds", (done.stdout[-500:], done.stderr[-500:]))
        return done.stdout

    def run(self, command, url, until):
        """Runs dogwatch in its own session, so that terminal signals do not reach its processes."""
        env = agents.environment(self.programs, self.home, self.cli.env(url))
        with open(self.directory / "stderr", "w") as errors:
            child = subprocess.Popen(
                command, cwd=self.work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                text=True, start_new_session=True,
            )
        RUNS.add(child)
        # On SIGTERM dogwatch stops everything that it started.
        late = threading.Timer(LONGEST, child.terminate)
        late.start()
        for line in child.stdout:
            if until is not None and json.loads(line)["event"] == until:
                child.terminate()
        self.exit_code = child.wait(timeout=LAST)
        RUNS.discard(child)
        expect(late.is_alive(), f"the run ends within {LONGEST} s")
        late.cancel()


def end_all():
    """Stops all runs after a signal."""
    for child in list(RUNS):
        child.terminate()
    for child in list(RUNS):
        try:
            child.wait(timeout=LAST)
        except subprocess.TimeoutExpired:
            child.kill()


class Played:
    """The record of a run that has ended."""

    def __init__(self, stage, log):
        self.stage, self.exit_code = stage, stage.exit_code
        runs = list((stage.work / ".dogwatch" / "runs").glob("*"))
        expect(len(runs) == 1, "one run", (stage.directory / "stderr").read_text()[-1000:])
        self.directory = runs[0]
        self.events = lines_of(self.directory / "events.jsonl")
        self.asked = lines_of(log)
        self.status = self.read_status()

    def read_status(self):
        stage = self.stage
        env = agents.environment(stage.programs, stage.home, {})
        found = subprocess.run(
            [stage.dogwatch, "status", self.directory.name, "--json"],
            cwd=stage.work, env=env, capture_output=True, text=True, timeout=30,
        )
        expect(found.returncode == 0, "the status of the run", found.stderr)
        return json.loads(found.stdout)

    def of(self, name, **fields):
        same = lambda event: all(event.get(key) == value for key, value in fields.items())
        return [event for event in self.events if event["event"] == name and same(event)]

    def one(self, name, **fields):
        found = self.of(name, **fields)
        expect(len(found) == 1, f"one `{name}` {fields or ''}", [e["event"] for e in self.events])
        return found[0]

    def stdout(self, iteration=1):
        path = self.directory / "task" / f"{iteration:06}" / "stdout"
        return path.read_text() if path.exists() else ""

    def expect_ended(self, outcome, exit_code):
        ended = self.one("run_ended")
        seen = (ended["outcome"], self.exit_code, self.status["ended"]["outcome"])
        expect(seen == (outcome, exit_code, outcome), f"the run ends as {outcome}, {exit_code}", (seen, self.summary()))

    def expect_nothing_left(self):
        """Checks that no process with this home in its environment or command line is left."""
        left = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                about = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if str(self.stage.home).encode() in about:
                    left.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        expect(not left, "no process is left", left)

    def summary(self):
        """Returns the endings and stops of the run, for debugging."""
        words = ("hard_stop", "trouble", "agent_drifted", "run_ended", "session_ended", "notice")
        found = [e for e in self.events if e["event"] in words or e["event"].startswith("iteration_")]
        keep = ("event", "reason", "message", "because", "said", "exit_code", "kind", "detail", "outcome")
        return [{key: e[key] for key in keep if key in e} for e in found]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def digest(path):
    # Claude Code stores its own data in the file with the user's servers.
    if path.name == ".claude.json":
        return json.loads(path.read_text())["mcpServers"]
    return hashlib.sha256(path.read_bytes()).hexdigest()
