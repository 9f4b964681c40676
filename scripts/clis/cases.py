"""The cases that are run with each CLI. A case plays a loop and checks its record."""

import json
import tempfile

from stage import Played, expect

WROTE = "I have written it."


def works(stage):
    """A normal session: dogwatch reads messages, calls and usage, the work tree changes, and the check passes."""
    played = stage.play(
        {
            "answers": [
                {"say": "First I look around.", "calls": [{"shell": "ls"}], "tokens": [1000, 10]},
                {"calls": [{"write": [str(stage.work / "made.txt"), "made\n"]}], "tokens": [1100, 20]},
                {"say": WROTE, "tokens": [1200, 30]},
            ]
        },
        {"done_when": "[\"grep -q made made.txt\"]"},
    )
    played.expect_ended("clean", 0)
    session = played.one("session_ended")
    expect(session["ended_by"] == "itself" and session["exit_code"] == 0, "the session exits by itself", session)
    expect(session["messages"] >= 2 and session["tools"] == 2, "two calls and the messages", session)
    expect(session.get("tokens", 0) >= 3300, "the token count", session)
    expect(session.get("said") == WROTE, "the result text", session)
    expect(session.get("session"), "the session id", session)
    expect(played.one("node_attempt")["converged"], "the check passes", played.summary())
    expect(not played.of("agent_drifted") and not played.of("trouble"), "no drift, no trouble", played.summary())
    expect(played.of("observed", channel="workspace"), "the change is evidence", played.summary())


def reports(stage):
    """The agent gets dogwatch's MCP server and calls it; the calls are evidence."""
    note = "half of it is ported"
    calls = [
        {"say": "I report.", "calls": [{"mcp": ["report_progress", {"message": note, "done": 1, "total": 2}]}]},
        {"calls": [{"mcp": ["report_state", {"state": "idle", "reason": "no_pending_tasks"}]}]},
        {"say": "Reported."},
    ]
    look = [{"calls": [{"find_tools": "dogwatch report progress state own note"}]}] if stage.cli.name == "codex" else []
    played = stage.play({"answers": look + calls}, {"idle": "{delay: 1s, stop_after: 1}"})
    played.expect_ended("idle", 0)
    reported = played.one("agent_reported", kind="progress")
    expect((reported["text"], reported.get("done"), reported.get("total")) == (note, 1, 2), "the note", reported)
    expect(played.one("iteration_idle")["reason"] == "no_pending_tasks", "the reported state is used", played.summary())
    expect(played.of("agent_reported", kind="state"), "the state is in the record", played.summary())
    expect(evidence(played, "mcp_tool"), "the calls are evidence", played.summary())
    expect(knows_own_server(played), "the user's own server is still available", played.asked)
    expect(not played.of("trouble"), "no trouble", played.summary())


def reports_from_an_open_place(stage):
    """The same in a home below a directory that other users can write to."""
    reports(stage)


reports_from_an_open_place.place = tempfile.gettempdir()


def knows_own_server(played):
    """Returns whether the user's own server is available together with dogwatch's."""
    offered = {name for asked in played.asked for name in asked["tools"] if name}
    # Claude Code shows the tools of a server to the model only on a search, but lists the servers at the start.
    begun = [json.loads(line) for line in played.stdout().splitlines() if '"subtype":"init"' in line]
    there = {server["name"] for init in begun for server in init.get("mcp_servers", []) if server["status"] == "connected"}
    return any("own_note" in name for name in offered) or {"mine", "dogwatch"} <= there


def without_mcp(stage):
    """With `mcp: false`, the agent does not get the server."""
    played = stage.play({"answers": [{"say": "Nothing to report."}]}, {"mcp": "false"}, "-n", "1")
    played.expect_ended("clean", 0)
    reported = [name for asked in played.asked for name in asked["tools"] if name and "report_progress" in name]
    argv = played.one("session_started")["argv"]
    expect(not reported and not any("dogwatch" in word for word in argv), "no server of ours", (reported, argv))


def hangs(stage):
    """The model stops in the middle of an answer; the session is stopped at its limit."""
    limit = stage.silence
    words = {"say": "I begin.", "calls": [{"shell": "echo begun > begun.txt"}]}
    played = stage.play(
        {"answers": [words, {"hang": "midway", "say": "And then"}]},
        {"watchdog": f"{{idle: {limit}s, grace: 3s}}", "recovery": "{budget: 0}", "mcp": "false"},
    )
    ended_as_silent(played, limit)


def never_answers(stage):
    """The model accepts the request and does not even send a status line."""
    limit = stage.silence
    played = stage.play(
        {"answers": [{"hang": "headers"}]},
        {"watchdog": f"{{idle: {limit}s, grace: 3s}}", "recovery": "{budget: 0}"},
    )
    ended_as_silent(played, limit)


def ended_as_silent(played, limit):
    slack = played.stage.slack
    stop = played.one("hard_stop")
    expect(stop["reason"] in ("NO_OUTPUT_DEADLINE", "NO_OUTPUT_AT_START"), "the reason is silence", stop)
    printed = bool(played.stdout())
    expect((stop["reason"] == "NO_OUTPUT_DEADLINE") == printed, "NO_OUTPUT_AT_START only without any output", stop)
    began = played.one("session_started")["awake_ms"]
    seen = [row for row in stop["evidence_summary"] if row["last_at"] is not None]
    last = max((row["last_at"] for row in seen), default=0)
    late = (stop["awake_ms"] - began) / 1000 - last - limit
    expect(-0.1 <= late <= slack, "the verdict comes within a second of the limit on an idle machine", (late, slack, stop))
    session = played.one("session_ended")
    expect(session["ended_by"] == "watchdog", "the watchdog stopped the session", session)
    # Interrupt, terminate and kill: three graces of 3 s, plus some time to notice.
    took = (session["awake_ms"] - stop["awake_ms"]) / 1000
    expect(took <= 15 * slack, "the process tree is gone in time", took)


def is_limited(stage):
    """429 with a reset time: dogwatch waits for the limit and counts no failure. This case does not wait that long."""
    waits_itself = stage.cli.name in ("codex", "opencode")
    played = stage.play(
        {"answers": [{"refuse": 429, "retry_after": 3600, "text": "You have hit your usage limit. Try again in 1 hour."}]},
        {"mcp": "false", **({"watchdog": f"{{idle: {stage.silence}s, grace: 3s}}"} if waits_itself else {})},
        until="wait_started",
    )
    if waits_itself:
        # These CLIs wait on their own but report the refusal. After stopping them, dogwatch waits for the limit.
        ended_as_silent(played, stage.silence)
        expect(played.one("agent_retrying").get("status") == 429, "the refusal is recorded", played.summary())
    else:
        limited = played.one("iteration_rate_limited")
        expect(limited["limit"] == "rate_limit", "a rate limit", limited)
    waits = played.one("wait_started")
    expect(waits["why"] == "rate_limit", "the wait is for the rate limit", waits)
    expect(not played.of("iteration_failed"), "no failure", played.summary())


def is_refused(stage):
    """401: the run ends at once with the reason."""
    played = stage.play(
        {"answers": [{"refuse": 401, "text": "Invalid API key provided."}]},
        {"mcp": "false", "errors": "{max: 3}"},
    )
    played.expect_ended("auth_failed", 1)
    expect(len(played.of("session_started")) == 1, "only one session", played.summary())
    expect(not played.of("hard_stop"), "no hard stop", played.summary())


def is_overloaded(stage):
    """529: dogwatch backs off."""
    played = stage.play(
        {"answers": [{"refuse": 529, "text": "Overloaded"}]}, {"mcp": "false"}, until="wait_started"
    )
    limited = played.one("iteration_rate_limited")
    expect((limited["limit"], limited["resets_at"]) == ("overload", None), "an overload limit", limited)
    expect(played.one("wait_started")["why"] == "rate_limit", "the wait is for the limit", played.summary())


def continues(stage):
    """A hung session is resumed: the CLI remembers its conversation."""
    words = "REMEMBERED-WORDS"
    played = stage.play(
        {
            "answers": [
                {"say": f"I begin: {words}.", "calls": [{"shell": "echo begun > begun.txt"}]},
                {"hang": "stream"},
                {"calls": [{"shell": "echo made > made.txt"}]},
                {"say": WROTE},
            ],
            "look_for": [words, "PLAYED"],
        },
        {"watchdog": f"{{idle: {stage.silence}s, grace: 3s}}", "recovery": "{resume: true}",
         "done_when": "[\"grep -q made made.txt\"]"},
    )
    played.expect_ended("clean", 0)
    first, second = played.of("session_ended")
    expect(first.get("session") and first["ended_by"] == "watchdog", "the watchdog stopped the first session", first)
    resumed = played.of("session_started")[1]
    expect(resumed.get("resumes") == first["session"], "the second session resumes it", resumed)
    expect(second.get("session") == first["session"], "the CLI reports the same session", (first, second))
    # Three complete answers have 1050 tokens each. Gemini CLI does not report the one before it was stopped.
    spent = played.status["spent"]["tokens"]
    expect(2100 <= spent <= 3150, "nothing is charged twice", played.status["spent"])
    after = [asked for asked in played.asked if asked["whose"] == "answers"][2:]
    expect(all(words in asked["holds"] for asked in after), "the conversation is remembered", after)


def delegates(stage):
    """A subagent works longer than the idle limit; its work is evidence, so the session continues."""
    limit = stage.silence
    pause = max(limit // 3, 4)
    nap = {"calls": [{"shell": f"python3 -c 'import time; time.sleep({pause})'"}]}
    begin = [{"say": "I delegate.", "calls": [{"delegate": "DELEGATED: wait and report."}]}]
    if stage.cli.name == "codex":
        begin = [{"calls": [{"find_tools": "spawn agent wait agent"}]}, *begin, {"calls": [{"await": 10 * pause}]}]
    played = stage.play(
        {
            "answers": [*begin, {"say": "It has reported."}],
            "delegated": [{"say": "I wait.", **nap}, nap, nap, nap, {"say": "REPORT: all is well."}],
        },
        {"watchdog": f"{{idle: {limit}s, grace: 3s}}", "recovery": "{budget: 0}", "mcp": "false"},
        "-n", "1",
    )
    expect([a for a in played.asked if a["whose"] == "delegated"], "a subagent was started", played.asked)
    expect(evidence(played, "subagent"), "its work is evidence", played.summary())
    played.expect_ended("clean", 0)
    session = played.one("session_ended")
    expect(session["duration_s"] > limit, "the session lasted longer than the idle limit", session)


def evidence(played, channel):
    """Returns whether there is evidence on the channel, as observations or as facts."""
    if played.of("observed", channel=channel):
        return True
    facts = played.of("fact")
    if channel == "mcp_tool":
        return any(fact.get("mcp") for fact in facts)
    return any(fact["fact"] in ("subagent_started", "subagent_ended") for fact in facts)


def starts_from_init(stage):
    """The loop that `init` writes runs unchanged."""
    log = stage.directory / "asked.jsonl"
    with stage.model({"answers": [{"say": "No task is left."}], "look_for": ["Read TODO.md"]}, log) as url:
        stage.cli.settle(stage.home, stage.work, url)
        stage.ask([stage.dogwatch, "init", "new", "--agent", stage.cli.name])
        stage.run([stage.dogwatch, "run", "new", "-n", "1", "--json"], url, None)
    played = Played(stage, log)
    played.expect_ended("clean", 0)
    expect(any(asked["holds"] for asked in played.asked), "the model gets the prompt", played.asked)
    expect(not played.of("trouble"), "no trouble", played.summary())
    played.expect_nothing_left()


def looks_at_runs(stage):
    """The plugin shows the runs to an interactive session, and gives nothing to one that dogwatch supervises."""
    install = lambda: stage.ask([stage.dogwatch, "plugin", "install"])
    played = stage.play({"answers": [{"say": "I am supervised."}]}, {"mcp": "false"}, "-n", "1", prepare=install)
    played.expect_ended("clean", 0)
    begun = [json.loads(line) for line in played.stdout().splitlines() if '"subtype":"init"' in line]
    expect(begun and not any("list_runs" in tool for tool in begun[0]["tools"]), "no tools while supervised", begun)
    _, said = asked(stage, "list_runs", {}, "Which runs are there?")
    expect(played.directory.name in said, "the session sees the run", said[-2000:])


def steers_runs(stage):
    """With --allow-steering, an interactive session knows the skill, and starts a run that outlives it."""
    loop = stage.work / "nightly"
    loop.mkdir()
    (loop / "RALPH.md").write_text("---\nagent: echo done\n---\nGo on.\n")
    install = lambda: stage.ask([stage.dogwatch, "plugin", "install", "--allow-steering"])
    arguments = {"path": "nightly", "iterations": 2}
    begun, said = asked(stage, "start_run", arguments, "Start the nightly loop.", prepare=install)
    expect("dogwatch:dogwatch" in begun["skills"], "Claude Code knows the skill", begun["skills"])
    expect("started run" in said, "the run is started", said[-2000:])
    # This ends with the run.
    stage.ask([stage.dogwatch, "logs", "-f"])
    ended = json.loads(stage.ask([stage.dogwatch, "status", "--json"]))["ended"]
    expect(ended["outcome"] == "clean", "the run works to its end", ended)


def asked(stage, name, arguments, question, prepare=None):
    """An interactive session that calls one tool of the plugin. Returns its first event and its output."""
    tool = f"mcp__plugin_dogwatch_dogwatch__{name}"
    answers = [{"calls": [{"tool": [tool, arguments]}]}, {"say": "This is what I found."}]
    with stage.model({"answers": answers}, stage.directory / "interactive.jsonl") as url:
        if prepare is not None:
            stage.cli.settle(stage.home, stage.work, url)
            prepare()
        command = ["claude", "-p", "--output-format", "stream-json", "--verbose", "--allowedTools", tool, "--", question]
        said = stage.ask(command, url)
    begun = next(json.loads(line) for line in said.splitlines() if '"subtype":"init"' in line)
    refused = json.dumps({"type": "tool_result", "is_error": True})[1:-1]
    expect(refused not in said, "the call succeeds", said[-2000:])
    return begun, said


# Only Claude Code has plugins.
looks_at_runs.only = steers_runs.only = ("claude",)


CASES = [
    works,
    reports,
    reports_from_an_open_place,
    without_mcp,
    hangs,
    never_answers,
    is_limited,
    is_refused,
    is_overloaded,
    continues,
    delegates,
    starts_from_init,
    looks_at_runs,
    steers_runs,
]
