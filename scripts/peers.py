"""The tools that `scripts/bench --peers` compares: how each is installed, started, and given a command as its agent.

Peers are installed into ~/.cache/dogwatch-peers and stay there. `loop` returns the command for `n` iterations; `ends` is false for an
agent that never exits by itself.
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


def python(oldest):
    """Returns a Python that is new enough: the one that runs this, one on PATH, or one of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    names = [f"python3.{minor}" for minor in (14, 13, 12)]
    found = [sys.executable, *filter(None, map(shutil.which, names))]
    found += [path for name in names for path in sorted(pyenv.glob(f"versions/*/bin/{name}"))]
    for path in found:
        # A shim of pyenv may exist without the version that it is named after.
        probe = "import sys, ensurepip, venv; print(*sys.version_info[:2])"
        done = subprocess.run([path, "-c", probe], capture_output=True, text=True)
        if done.returncode == 0 and tuple(map(int, done.stdout.split())) >= oldest:
            return path
    raise Unavailable(f"it needs Python {'.'.join(map(str, oldest))} or newer, and no such Python was found")


class Bash:
    """The floor: a shell loop, with timeout(1) where a limit is needed."""

    name = "bash"

    def install(self):
        self.version = "timeout(1)"

    def start(self):
        return ["bash", "--version"]

    def loop(self, work, agent, n, limit=None, delay=None, ends=True):
        bounded = f"timeout {limit} {agent}" if limit else agent
        pause = f"; sleep {delay}" if delay else ""
        (work / "prompt").write_text("Go on.\n")
        return ["bash", "-c", f"for ((i = 0; i < {n}; i++)); do {bounded} < prompt > out 2> err{pause}; done"]


class PythonTool:
    """A tool from PyPI, in a virtual environment that is kept. `package` is the name of its directory of source."""

    oldest = (3, 0)

    def __init__(self, version):
        self.version, self.name = version, f"{self.title} {version}"
        self.venv = CACHE / f"{self.project}-{version}"

    def install(self):
        if not (self.venv / "seconds").exists():
            took = installed(python(self.oldest), "-m", "venv", "--clear", self.venv)
            took += installed(self.venv / "bin/pip", "install", "--quiet", "--no-cache-dir", f"{self.project}=={self.version}")
            (self.venv / "seconds").write_text(str(took))

    def ready_after(self):
        return float((self.venv / "seconds").read_text())

    def code(self):
        """Returns the lines of its source and the number of packages that it needs."""
        site = next(self.venv.glob("lib/python*/site-packages"))
        lines = sum(len(f.read_text().splitlines()) for f in (site / self.package).rglob("*.py"))
        own = ("pip-", "setuptools-", self.project.replace("-", "_") + "-")
        return lines, len([d for d in site.glob("*.dist-info") if not d.name.startswith(own)])


class Ralphify(PythonTool):
    title = project = package = "ralphify"

    def start(self):
        return [self.venv / "bin/ralph", "--version"]

    def loop(self, work, agent, n, limit=None, delay=None, ends=True):
        path = bench.loop(work / "ralphify", agent)
        flags = (["--timeout", str(limit)] if limit else []) + (["--delay", str(delay)] if delay else [])
        return [self.venv / "bin/ralph", "run", path, "-n", str(n), *flags]


class RalphWorkflow(PythonTool):
    """Ralph Workflow, with a short pipeline: one phase with the agent, and a commit that finds no changes.

    It accepts only CLIs that it knows, so the agent is a script with the name of one of them. An iteration counts as done when
    the agent calls `declare_complete` on the MCP server of the session.
    """

    title, project, package, oldest = "Ralph Workflow", "ralph-workflow", "ralph", (3, 12)

    def install(self):
        super().install()
        self.network = Loopback()

    def settings(self, root, *options):
        """Returns a call of env(1) that keeps everything below `root`, and telemetry off."""
        values = {
            "HOME": root / "home", "TMPDIR": root / "tmp", "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            **{f"XDG_{name}_HOME": root / name.lower() for name in ("CONFIG", "STATE", "CACHE", "DATA")},
            "RALPH_DISABLE_TELEMETRY": 1, "RALPH_DISABLE_UPDATE_CHECK": 1, "NO_COLOR": 1,
        }
        return ["env", *options, *(f"{name}={value}" for name, value in values.items())]

    def start(self):
        return [*self.settings(self.venv / "settings"), self.venv / "bin/ralph", "--version"]

    def loop(self, work, agent, n, limit=None, delay=None, ends=True):
        if delay:
            raise Unavailable("has no delay")
        root = work / "ralph-workflow"
        for name in ("bin", "config", "home", "tmp", "repository/.agent/artifacts"):
            (root / name).mkdir(parents=True)
        script = root / "bin" / "claude"
        after = f"{agent} < /dev/null\nexec bash {root / 'complete'}" if ends else f"exec {agent}"
        script.write_text(f"#!/bin/sh\n{after}\n")
        script.chmod(0o755)
        (root / "complete").write_text(DECLARE_COMPLETE)
        limits = f"agent_idle_timeout_seconds = {limit}\nagent_max_session_seconds = {limit}\n" if limit else ""
        (root / "config" / "ralph-workflow.toml").write_text(WORKFLOW + limits)
        (root / "config" / "ralph-workflow-pipeline.toml").write_text(PIPELINE)
        repository = root / "repository"
        (repository / "PROMPT.md").write_text("Go on.\n")
        # Without the mark, agents first write its policy files.
        (repository / "AGENTS.md").write_text("<!-- ralph-workflow-policy: skip -->\n")
        for plan in ("PLAN.md", "artifacts/plan.md"):
            (repository / ".agent" / plan).write_text("# Plan\n\nGo on with the work, one step in each iteration, until it is done.\n")
        git = ["git", "-C", repository, "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        for command in (["init", "--quiet", "-b", "main"], ["add", "."], ["commit", "--quiet", "-m", "Start"]):
            installed(*git, *command)
        call = [*self.network.enter(), *self.settings(root, "-C", repository), self.venv / "bin/ralph"]
        # The first start in a repository installs skills and commits them. Users pay for that once.
        installed(*call, "--init")
        return [*call, "--developer-iters", str(n)]


class Loopback:
    """A network with nothing but this machine, for a tool that connects to public resolvers every ten seconds and pauses when
    neither answers. No setting turns that off. Both addresses are on the loopback device of the namespace, with a listener.
    """

    SCRIPT = """
import socket, subprocess, sys, threading
for words in ("link set lo up", "address add 1.1.1.1/32 dev lo", "address add 8.8.8.8/32 dev lo"):
    subprocess.run(["ip", *words.split()], check=True)
server = socket.create_server(("", 53))
def answer():
    while True:
        server.accept()[0].close()
threading.Thread(target=answer, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""

    def __init__(self):
        # The process ends with its input, and so with this one.
        command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", self.SCRIPT]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        if self.process.stdout.readline() != "ready\n":
            why = self.process.communicate()[1].strip().splitlines() or ["no message"]
            raise Unavailable(f"it needs a network of its own: {why[-1][:120]}")

    def enter(self):
        return ["nsenter", "--target", self.process.pid, "--user", "--net", "--preserve-credentials"]


# Tells the MCP server of the session that the work is done.
DECLARE_COMPLETE = r"""
address=${RALPH_MCP_ENDPOINT#http://} address=${address%/mcp}
body='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"declare_complete","arguments":{"summary":"done"}}}'
exec 3<> "/dev/tcp/${address%:*}/${address##*:}"
printf 'POST /mcp HTTP/1.0\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n' >&3
printf 'Content-Length: %s\r\n\r\n%s' ${#body} "$body" >&3
while read -r -t 10 line <&3; do
    case $line in data:*) exit 0 ;; esac
done
exit 1
"""

WORKFLOW = """
[agents.claude-headless]
cmd = "claude -p"
transport = "claude"
json_parser = "claude"
[agent_chains]
bench = ["claude-headless"]
[agent_drains]
planning = "bench"
planning_analysis = "bench"
development = "bench"
development_analysis = "bench"
development_commit = "bench"
analysis = "bench"
commit = "bench"
[general]
telemetry_enabled = false
auto_integrate_enabled = false
git_user_name = "bench"
git_user_email = "bench@localhost"
"""

# The drain `analysis` has no artifact that the agent would have to submit.
PIPELINE = """
entry_block = "development"
terminal_phase = "complete"
budget_counters.iteration = {tracks_budget = true, default_max = 1}
recovery = {failed_route = "failed_terminal", terminal_failure_phase = "failed_terminal"}

[blocks.development]
kind = "individual"
phase_name = "development"
[blocks.development.phase]
drain = "analysis"
role = "execution"
prompt_template = "planning.jinja"
artifact_required = false
transitions = {on_success = "development_commit"}

[blocks.development_commit]
kind = "individual"
phase_name = "development_commit"
[blocks.development_commit.phase]
drain = "development_commit"
role = "commit"
prompt_template = "commit_message.jinja"
transitions = {on_success = "complete", on_failure = "failed_terminal"}
[blocks.development_commit.phase.commit_policy]
requires_artifact = false
increments_counter = "iteration"
loop_resets = []

[blocks.complete]
kind = "individual"
phase_name = "complete"
phase = {drain = "complete", role = "terminal", terminal_outcome = "success", transitions = {on_success = "complete"}}

[blocks.failed_terminal]
kind = "individual"
phase_name = "failed_terminal"
phase = {drain = "failed_terminal", role = "terminal", terminal_outcome = "failure", transitions = {on_success = "failed_terminal"}}

[[post_commit_routes]]
target = "development"
when = {phase = "development_commit", budget_state = "remaining"}
[[post_commit_routes]]
target = "complete"
when = {phase = "development_commit", budget_state = "exhausted"}
[[post_commit_routes]]
target = "complete"
when = {phase = "development_commit", budget_state = "no_review"}
"""


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

    def loop(self, work, agent, n, limit=None, delay=None, ends=True):
        directory = work / "orchestrator"
        directory.mkdir(exist_ok=True)
        script = directory / "agent.sh"
        script.write_text(f"#!/bin/sh\ncat > /dev/null\nexec {agent}\n")
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

    def loop(self, work, agent, n, limit=None, delay=None, ends=True):
        path = bench.loop(work / "dogwatch", agent)
        limits = ["--timeout", f"{limit}s", "--set", "watchdog.grace=1s"] if limit else []
        pause = ["--delay", f"{delay}s"] if delay else []
        return [bench.DOGWATCH, "run", path, "--state-dir", work / "dogwatch-state", "-n", str(n), *limits, *pause]


def rust_lines(directories):
    return sum(len(f.read_text().splitlines()) for d in directories for f in d.rglob("*.rs") if "tests" not in f.parts)
