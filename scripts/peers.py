"""The tools that `scripts/bench --peers` compares: how each is installed, started, and given a command as its agent.

Peers are installed into ~/.cache/dogwatch-peers and stay there.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_shared import bench

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dogwatch-peers"


class Unavailable(Exception):
    """The peer cannot do this, or cannot be installed."""


def installed(*command):
    """Runs a command that installs something, and returns the seconds."""
    begun = time.perf_counter()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(lines[-1][:160])
    return time.perf_counter() - begun


class Bash:
    """The floor: a shell loop, with timeout(1) where a limit is needed."""

    name = "bash"

    def install(self):
        self.version = "timeout(1)"

    def start(self):
        return ["bash", "--version"]

    def loop(self, work, agent, n, limit=None, delay=None):
        bounded = f"timeout {limit} {agent}" if limit else agent
        pause = f"; sleep {delay}" if delay else ""
        (work / "prompt").write_text("Go on.\n")
        return ["bash", "-c", f"for ((i = 0; i < {n}; i++)); do {bounded} < prompt > out 2> err{pause}; done"]


class Ralphify:
    def __init__(self, version):
        self.version, self.name = version, f"ralphify {version}"
        self.venv = CACHE / f"ralphify-{version}"

    def install(self):
        if not (self.venv / "seconds").exists():
            took = installed(sys.executable, "-m", "venv", "--clear", self.venv)
            took += installed(self.venv / "bin/pip", "install", "--quiet", "--no-cache-dir", f"ralphify=={self.version}")
            (self.venv / "seconds").write_text(str(took))

    def ready_after(self):
        return float((self.venv / "seconds").read_text())

    def start(self):
        return [self.venv / "bin/ralph", "--version"]

    def loop(self, work, agent, n, limit=None, delay=None):
        path = bench.loop(work / "ralphify", agent)
        flags = (["--timeout", str(limit)] if limit else []) + (["--delay", str(delay)] if delay else [])
        return [self.venv / "bin/ralph", "run", path, "-n", str(n), *flags]

    def code(self):
        """Returns the lines of its source and the number of packages that it needs."""
        packages = self.venv.glob("lib/python*/site-packages")
        site = next(packages)
        lines = sum(len(f.read_text().splitlines()) for f in (site / "ralphify").rglob("*.py"))
        return lines, len([d for d in site.glob("*.dist-info") if not d.name.startswith(("pip-", "setuptools-", "ralphify-"))])


class RalphWorkflow:
    name, version = "Ralph Workflow", "PyPI"

    def install(self):
        venv = CACHE / "ralph-workflow"
        installed(sys.executable, "-m", "venv", venv)
        try:
            installed(venv / "bin/pip", "install", "--quiet", "ralph-workflow")
        except Unavailable as why:
            python = ".".join(map(str, sys.version_info[:2]))
            raise Unavailable(f"{why} (it needs Python 3.12 or newer; this is {python})") from why
        raise Unavailable("this script does not know how to give it a command as an agent")


class Orchestrator:
    """ralph-orchestrator. Its build takes minutes and is kept."""

    name, version = "ralph-orchestrator", "2.10.1"
    program = CACHE / "ralph-cli" / "bin" / "ralph"
    seconds = CACHE / "ralph-cli" / "seconds"

    def install(self):
        if not self.seconds.exists():
            root = CACHE / "ralph-cli"
            shutil.rmtree(root, ignore_errors=True)
            with tempfile.TemporaryDirectory() as target:
                flags = ["--quiet", "--locked", "--root", root, "--target-dir", target]
                took = installed("cargo", "install", *flags, f"ralph-cli@{self.version}")
            self.seconds.write_text(str(took))

    def ready_after(self):
        return float(self.seconds.read_text())

    def start(self):
        return [self.program, "--version"]

    def code(self):
        """Returns the lines of its source and the number of packages that it needs."""
        home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
        own = [d for d in home.glob("registry/src/*/ralph-*") if d.name.endswith(f"-{self.version}")]
        if not own:
            raise Unavailable("its source is not there")
        lock = next(d / "Cargo.lock" for d in own if d.name == f"ralph-cli-{self.version}")
        return rust_lines(own), lock.read_text().count("[[package]]") - len(own)

    def loop(self, work, agent, n, limit=None, delay=None):
        directory = work / "orchestrator"
        directory.mkdir(exist_ok=True)
        script = directory / "agent.sh"
        script.write_text(f"#!/bin/sh\ncat > /dev/null\n{agent}\n")
        script.chmod(0o755)
        (directory / "PROMPT.md").write_text("Go on.\n")
        timeout = f"  idle_timeout_secs: {limit}\n" if limit else ""
        # A custom command has the limits of the adapter of Claude.
        adapters = f"adapters:\n  claude:\n    timeout: {limit}\n" if limit else ""
        pause = f"  cooldown_delay_seconds: {delay}\n" if delay else ""
        (directory / "ralph.yml").write_text(
            f"cli:\n  backend: custom\n  command: {script}\n  prompt_mode: stdin\n{timeout}"
            f"event_loop:\n  prompt_file: PROMPT.md\n  max_iterations: {n}\n  completion_promise: NEVER_SAID\n{pause}{adapters}"
        )
        return ["env", "-C", directory, self.program, "run", "--no-tui", "-c", "ralph.yml"]


class Dogwatch:
    name, version = "dogwatch", "this"

    def install(self):
        bench.build()

    def ready_after(self):
        """Builds it cold, as a user who has the source does."""
        with tempfile.TemporaryDirectory() as target:
            manifest = bench.ROOT / "Cargo.toml"
            return installed("cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", manifest, "--target-dir", target)

    def start(self):
        return [bench.DOGWATCH, "--version"]

    def code(self):
        """Returns the lines of its source, without tests, and the number of packages that it needs."""
        parts = [d / "src" for d in (bench.ROOT / "crates").iterdir() if d.name not in ("sim", "fuzz")]
        tree = ["cargo", "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}", "-p", "dogwatch"]
        packages = subprocess.run(tree, cwd=bench.ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        return rust_lines(parts), len({line.removesuffix(" (*)") for line in packages if "/crates/" not in line})

    def loop(self, work, agent, n, limit=None, delay=None):
        path = bench.loop(work / "dogwatch", agent)
        limits = ["--timeout", f"{limit}s", "--set", "watchdog.grace=1s"] if limit else []
        pause = ["--delay", f"{delay}s"] if delay else []
        return [bench.DOGWATCH, "run", path, "--state-dir", work / "dogwatch-state", "-n", str(n), *limits, *pause]


def rust_lines(directories):
    return sum(len(f.read_text().splitlines()) for d in directories for f in d.rglob("*.rs") if "tests" not in f.parts)
