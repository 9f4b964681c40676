"""`scripts/bench --fleet`: a fleet on this machine against its targets. Needs git, openssl and nats-server (scripts/test installs it
in target/python-fleet). Everything uses TLS, the permissions of workers and `sync_interval: always`, as `fleet init` sets it up.
"""

import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("bench", str(Path(__file__).with_name("bench")))
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
loader.exec_module(bench)

JOBS = 100
LEASES = 1_000
# Workers renew a lease every 10 s: a write to the record and a sign of life to the queue.
RENEW_S = 10
LOAD_S = 20
IDLE_S = 20


def nats_server():
    own = bench.TARGET / "python-fleet" / "bin" / "nats-server"
    found = str(own) if own.exists() else shutil.which("nats-server")
    return found or sys.exit(f"nats-server is missing; scripts/test installs it in {own.parent}")


class Nats:
    """As much of a NATS client as the measurement needs."""

    def __init__(self, line):
        found = re.match(r"dogwatch\+tls://([^:]+):([^@]+)@([^:]+):(\d+)/", line)
        user, secret, host, port = found.groups()
        plain = socket.create_connection((host, int(port)))
        while not plain.recv(4096).endswith(b"\r\n"):
            pass
        # The server is this machine's own; what is measured does not depend on who it is.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.socket = context.wrap_socket(plain)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        login = {"verbose": False, "pedantic": False, "user": user, "pass": secret, "headers": True, "protocol": 1, "lang": "py", "version": "1"}
        self.socket.sendall(f"CONNECT {json.dumps(login)}\r\nSUB _BENCH.* 1\r\nPING\r\n".encode())
        while self.line() != b"PONG":
            pass

    def line(self):
        while b"\r\n" not in self.buffer:
            self.buffer += self.socket.recv(65536)
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        if line == b"PING":
            self.socket.sendall(b"PONG\r\n")
        return line

    def publish(self, subject, payload):
        """Publishes a message and waits until the server has stored it."""
        self.socket.sendall(f"PUB {subject} _BENCH.a {len(payload)}\r\n".encode() + payload + b"\r\n")
        while True:
            line = self.line()
            if line.startswith(b"-ERR"):
                sys.exit(f"the server refused: {line.decode()}")
            if line.startswith((b"MSG", b"HMSG")):
                size = int(line.split()[-1])
                while len(self.buffer) < size + 2:
                    self.buffer += self.socket.recv(65536)
                answer, self.buffer = self.buffer[:size], self.buffer[size + 2:]
                return answer


class Fleet:
    def __init__(self, work):
        self.work = work
        self.processes = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.call("fleet", "init", "--listen", f"127.0.0.1:{self.port}")
        self.up = self.start("fleet", "up", "--nats-server", nats_server(), wait="is up at")
        self.lines = {name: self.call("fleet", "join", name, "--account", "bench").strip() for name in ("anna", "otto")}
        self.state = work / "state" / "dogwatch" / "fleet"
        self.nats = Nats((self.state / "operator.join").read_text())
        self.marks = work / "marks"
        self.marks.write_text("")
        repo = work / "repo"
        for steps in (0, 1000):
            agent = f"sh -c 'cat >/dev/null; n=0; while date +%s%N >> {self.marks} && [ $n -lt {steps} ]; do n=$((n+1)); sleep 0.1; done'"
            bench.loop(repo / f"s{steps}", agent)
        identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        for args in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "loops"]):
            subprocess.run(["git", *identity, *args], cwd=repo, check=True)
        self.repo = str(repo)
        self.commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo, check=True, capture_output=True, text=True).stdout.strip()

    def call(self, *args):
        command = [bench.DOGWATCH, *args]
        return subprocess.run(command, cwd=self.work, env=bench.environment(self.work), check=True, capture_output=True, text=True).stdout

    def start(self, *args, wait=None):
        log = open(self.work / f"log-{len(self.processes)}", "w+")
        out = subprocess.PIPE if wait else subprocess.DEVNULL
        process = subprocess.Popen([bench.DOGWATCH, *args], cwd=self.work, env=bench.environment(self.work), stdin=subprocess.DEVNULL, stdout=out, stderr=log, text=True)
        self.processes.append(process)
        while wait and wait not in process.stdout.readline():
            if process.poll() is not None:
                sys.exit(f"dogwatch {' '.join(args)} ended: {open(log.name).read()[-500:]}")
        return process

    def worker(self, name, slots=2):
        return self.start("work", self.lines[name], "--allow-repo", self.repo, "--slots", str(slots), "--dir", str(self.work / name))

    def submit(self, name, path):
        job = {"v": 1, "repo": self.repo, "commit": self.commit, "path": path, "iterations": 1, "account": "bench"}
        sent = time.time_ns()
        answer = self.nats.publish(f"dw.jobs.bench.{name}", json.dumps(job).encode())
        if b'"error"' in answer:
            sys.exit(f"cannot queue a job: {answer.decode()}")
        return sent

    def times(self):
        return [int(line) for line in self.marks.read_text().split()]

    def next_mark(self, after, limit=120):
        """Waits for the first mark that an agent made after this time."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            later = [at for at in self.times() if at > after]
            if later:
                return min(later)
            time.sleep(0.002)
        sys.exit("no agent started in time; nothing was measured")

    def server_pid(self):
        return int((self.state / "nats.pid").read_text())

    def end(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait(timeout=70)


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def private_mb(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"Private_(?:Clean|Dirty): +(\d+) kB", text)) / 1024


def starts(fleet, _worker):
    took = []
    for number in range(JOBS):
        sent = fleet.submit(f"start-{number}", "s0")
        took.append((fleet.next_mark(sent) - sent) / 1e6)
        # The next job starts on an idle worker.
        time.sleep(0.3)
    took.sort()
    p99, median = took[int(len(took) * 0.99) - 1], took[len(took) // 2]
    bench.row(f"fleet, publish to agent start, of {JOBS}", "p99 ≤ 50 ms", f"p99 {p99:.0f} ms, median {median:.0f} ms", p99 <= 50)


def idle(fleet, worker):
    time.sleep(3)
    before = cpu(worker.pid)
    time.sleep(IDLE_S)
    used, size = cpu(worker.pid) - before, private_mb(worker.pid)
    bench.row("fleet, idle worker, private memory", "≤ 12 MB", f"{size:.1f} MB", size <= 12)
    bench.row(f"fleet, idle worker, CPU in {IDLE_S} s", "none", f"{used:.2f} s", used <= 0.02)


def moves(fleet, anna):
    """Drains the worker of a job, then kills the next one. Returns when both have moved."""
    sent = fleet.submit("moves", "s1000")
    fleet.next_mark(sent)
    time.sleep(3)
    otto = fleet.worker("otto")
    time.sleep(2)
    began = time.time_ns()
    anna.send_signal(signal.SIGTERM)
    anna.wait()
    # The last mark of the first agent comes before the longest pause between marks.
    fleet.next_mark(time.time_ns())
    pause, first = gap(fleet.times(), began)
    bench.row("fleet, drain, agent to next agent", "≤ 1 s", f"{pause:.2f} s", pause <= 1)
    anna = fleet.worker("anna")
    time.sleep(3)
    began = time.time_ns()
    otto.kill()
    otto.wait()
    time.sleep(0.5)
    last = max(fleet.times())
    start = fleet.next_mark(last)
    took = (start - began) / 1e9
    bench.row("fleet, takeover after kill -9, lease of 60 s", "≤ 90 s", f"{took:.0f} s", took <= 90)
    anna.terminate()
    anna.wait()


def gap(times, after):
    """Returns the longest pause between two marks after a time, in seconds, and its end."""
    times = sorted(at for at in times if at > after - 1_000_000_000)
    pauses = [(later - earlier, later) for earlier, later in zip(times, times[1:])]
    longest, end = max(pauses)
    return longest / 1e9, end


def leases(fleet, _worker):
    """Writes the records of many leases as their workers do, spread over the time between two renewals."""
    record = json.dumps({
        "state": "running", "owner": "anna", "nonce": "0" * 24, "epoch": 1, "sequence": 1, "run": "20261115-201533-k3f9",
        "title": "loop of a repository", "crashes": 0, "moved": True,
    }).encode()
    connections = [Nats((fleet.state / "operator.join").read_text()) for _ in range(4)]
    pid, begin = fleet.server_pid(), time.monotonic() + 0.5
    written = [0] * len(connections)

    def renew(at):
        number, pace = 0, RENEW_S / LEASES * len(connections)
        while time.monotonic() < begin + LOAD_S:
            due = begin + number * pace
            time.sleep(max(0, due - time.monotonic()))
            lease = (number * len(connections) + at) % LEASES
            connections[at].publish(f"$KV.dw_jobs.bench.lease-{lease}", record)
            number += 1
        written[at] = number

    threads = [threading.Thread(target=renew, args=(at,)) for at in range(len(connections))]
    before = cpu(pid)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    share = (cpu(pid) - before) / LOAD_S * 100
    rate = sum(written) / LOAD_S
    bench.row(f"fleet, {LEASES:,} leases on one server", "≤ 15 % of a core", f"{share:.1f} % ({rate:.0f} renewals/s, synced)", share <= 15 and rate >= LEASES / RENEW_S * 0.95)


def main():
    bench.build()
    work = Path(tempfile.mkdtemp(prefix="dogwatch-bench-fleet-"))
    fleet = Fleet(work)
    try:
        anna = fleet.worker("anna")
        words = [word for word in sys.argv[1:] if not word.startswith("--")]
        for measure in (idle, starts, leases, moves):
            if not words or any(word in measure.__name__ for word in words):
                measure(fleet, anna)
    finally:
        fleet.end()
        shutil.rmtree(work, ignore_errors=True)
    print("\n| what | bar | figure | |\n|---|---|---|---|")
    for cells in bench.ROWS:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
