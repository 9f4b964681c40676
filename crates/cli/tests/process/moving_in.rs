//! Moving in from other tools: `init --from`, and ralphify's way to call `run`.

use crate::kit::{Done, GRACES, Project};
use std::os::unix::fs::PermissionsExt;

/// A project in which every agent CLI is on PATH, as a program that fails.
struct House {
    project: Project,
}

impl House {
    fn with(files: &[(&str, &str)]) -> House {
        let project = Project::new();
        for (name, text) in files {
            let path = project.path(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            project.file(name, text);
        }
        let bin = project.outside("bin");
        std::fs::create_dir_all(&bin).expect("a directory");
        for program in ["claude", "codex", "mytool"] {
            std::fs::write(bin.join(program), "#!/bin/sh\nexit 1\n").expect("writes");
            std::fs::set_permissions(bin.join(program), PermissionsExt::from_mode(0o755)).expect("may run");
        }
        House { project }
    }

    fn call(&self, args: &[&str]) -> Done {
        let mut command = self.project.command(args);
        let path = std::env::var("PATH").expect("a PATH");
        command.env("PATH", format!("{}:{path}", self.project.outside("bin").display()));
        crate::kit::Running::start(command).finish()
    }

    /// Converts `from` to `new`, asserts that the result passes `check`, and returns it.
    fn converted(&self, from: &str, file: &str) -> String {
        let done = self.call(&["init", "new", "--from", from]);
        done.assert_code(0);
        let check = self.call(&["check", "new"]);
        check.assert_code(0);
        // A converted check may depend on nothing that can be pinned.
        let others = check.stderr.lines().filter(|line| !line.contains("pin"));
        assert_eq!(others.collect::<Vec<_>>(), [""; 0], "no other warning");
        self.project.read(&format!("new/{file}"))
    }

    /// Asserts that the input is refused with these words, and that nothing is written.
    fn refused(&self, from: &str, words: &[&str]) {
        let done = self.call(&["init", "new", "--from", from]);
        done.assert_code(2);
        for word in words {
            assert!(done.stderr.contains(word), "{word:?} in {}", done.stderr);
        }
        assert!(!self.project.path("new").exists(), "nothing is written");
    }
}

fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found.trim() == *line), "{line:?} in\n{text}");
    }
}

const ORCHESTRATOR: &str = "\
cli:
  backend: claude
  idle_timeout_secs: 60
event_loop:
  prompt_file: work.md
  completion_promise: ALL_FINISHED
  max_iterations: 40
  max_runtime_seconds: 5400
  max_cost_usd: 12.5
  cooldown_delay_seconds: 3
core:
  guardrails: [Keep the tests green, Commit often]
hats:
  planner:
    name: Planner
    instructions: |
      Split the work.
      Print `plan.ready --> builder`.
";

#[test]
fn ralph_orchestrators_settings_prompt_and_rules_are_mapped_and_the_rest_is_explained() {
    let house = House::with(&[
        ("old/ralph.yml", ORCHESTRATOR),
        ("old/work.md", "Port the parser {{ args.x }}.\n\nPrint ALL_FINISHED at the end.\n"),
    ]);
    let text = house.converted("old", "RALPH.md");
    assert_lines(
        &text,
        &[
            "agent: claude",
            "max_iterations: 40",
            "time: 1h30m",
            "cost_usd: 12.5",
            "delay: 3s",
            "max: 5",
            "# event_loop.max_iterations, old/ralph.yml:7",
            "# - old/work.md:3: the prompt asks for `ALL_FINISHED`: the phrase does not end a run; checks do",
            "- Keep the tests green",
        ],
    );
    for part in [
        "event_loop.completion_promise",
        "cli.idle_timeout_secs",
        "# - old/ralph.yml:13: hats: a loop has one prompt",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(
        text.contains("Port the parser { { args.x }}.") && text.contains("plan.ready -- > builder"),
        "{text}"
    );
    let prompt = house.call(&["check", "new", "--explain"]).text();
    assert!(prompt.contains("max_iterations"), "{prompt}");
}

#[test]
fn a_custom_backend_gets_its_prompt_as_before() {
    let front = "cli: {backend: custom, command: mytool, args: [--fast, 'a b'], prompt_flag: --ask}\nevent_loop: {prompt: Go on.}\n";
    let house = House::with(&[("ralph.yml", front)]);
    let text = house.converted(".", "RALPH.md");
    assert!(text.contains(r#"agent: "sh -c 'exec mytool --fast '\\''a b'\\'' --ask \"$(cat)\"'""#), "{text}");
    assert!(text.ends_with("---\nGo on.\n"), "{text}");
    let stdin = "cli: {backend: custom, command: mytool, prompt_mode: stdin}\nevent_loop: {prompt: Go on.}\n";
    let text = House::with(&[("ralph.yml", stdin)]).converted(".", "RALPH.md");
    assert_lines(&text, &["agent: mytool"]);
}

const RALPHRC: &str = "\
# settings
PROJECT_NAME=\"${PROJECT_NAME:-shop}\"
MAX_CALLS_PER_HOUR=100
CLAUDE_TIMEOUT_MINUTES=20 # minutes
ALLOWED_TOOLS=\"Write,Read,Bash(git add *)\"
CB_NO_PROGRESS_THRESHOLD=3
CB_SAME_ERROR_THRESHOLD=4
[[ -f extra ]] && source extra
";

#[test]
fn ralph_claude_codes_tasks_become_the_gate_of_the_loop() {
    let house = House::with(&[
        (".ralphrc", RALPHRC),
        (".ralph/PROMPT.md", "Take the first open task.\nEnd with EXIT_SIGNAL: true.\n<!-- managed -->\n"),
        (".ralph/fix_plan.md", "- [x] one\n  - [ ] two\n"),
    ]);
    let text = house.converted(".", "RALPH.md");
    assert_lines(
        &text,
        &[
            "agent: \"claude -p --allowedTools 'Write,Read,Bash(git add *)'\"",
            "session: 20m",
            "max: 4",
            "stop_after: 1",
            "# - .ralphrc:8: this line: it is shell code, which is not run",
            "# - .ralph/PROMPT.md:2: the prompt asks for `EXIT_SIGNAL`: the phrase does not end a run; checks do",
            "# - .ralphrc:3: MAX_CALLS_PER_HOUR: dogwatch waits when the service refuses; `budget` limits a run or a day",
        ],
    );
    assert!(text.contains("HTML comments in the prompt"), "{text}");
    // The gate sees the open task, and none once it is ticked.
    let gate = text.lines().find_map(|l| l.strip_prefix("work_when: ")).expect("a gate");
    let gate: String = serde_json::from_str(gate).expect("a quoted text");
    let open = || {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &gate]).current_dir(house.project.path(".")).status().expect("runs").code()
    };
    assert_eq!(open(), Some(0));
    house.project.file(".ralph/fix_plan.md", "- [x] one\n  - [x] two\n");
    assert_eq!(open(), Some(1));
}

#[test]
fn a_loop_made_of_a_task_list_ends_when_no_task_is_open() {
    let house = House::with(&[("PROMPT.md", "Do the first open task.\n"), ("@fix_plan.md", "- [ ] one\n")]);
    house.converted(".", "RALPH.md");
    let agent = "--agent=sh -c 'sed -i \"s/\\[ \\]/[x]/\" @fix_plan.md; echo ok'";
    let done = house.call(&["run", "new", agent, "--json"]);
    done.assert_code(0);
    assert_eq!((done.count("iteration_completed"), done.count("iteration_idle")), (1, 1));
    assert_eq!(done.end()["outcome"], "idle");
}

const PRD: &str = r#"{
  "project": "Shop",
  "branchName": "ralph/cart",
  "description": "A cart that survives a restart",
  "verificationCommands": {"types": "test -f types", "tests": "test -f tests"},
  "userStories": [
    {"id": "US-2", "title": "Show the cart", "description": "As a buyer I see it.", "acceptanceCriteria": ["A: \"quoted\"", "B"], "priority": 2, "passes": false, "notes": "see #7"},
    {"id": "US-1", "title": "Store the cart", "acceptanceCriteria": [], "priority": 1, "passes": false, "notes": ""},
    {"id": "US-0", "title": "Set up", "priority": 0, "passes": true}
  ]
}
"#;

#[test]
fn the_open_stories_of_a_prd_become_a_chain_of_nodes_in_order_of_priority() {
    let house = House::with(&[("prd.json", PRD)]);
    let text = house.converted(".", "graph.yaml");
    assert_lines(
        &text,
        &[
            "agent: claude",
            "max_parallel: 1",
            "done_when: [test -f types, test -f tests]",
            "- id: US-1",
            "- id: US-2",
            "depends_on: [US-1]",
            "- A: \"quoted\"",
            "# - prd.json:6: 1 of 3 stories: they have `passes: true`",
            "# - prd.json:3: branchName: dogwatch works on the branch that is checked out; run `git switch -c` first",
        ],
    );
    assert!(!text.contains("US-0") && text.find("id: US-1") < text.find("id: US-2"), "{text}");
    let agent = "--agent=sh -c 'cat >> prompts; touch types tests; echo ok'";
    house.call(&["run", "new", agent, "--json"]).assert_code(0);
    let prompts = house.project.read("prompts");
    for part in [
        "Project Shop: A cart that survives a restart",
        "Story US-2: Show the cart",
        "- A: \"quoted\"",
        "Notes: see #7",
    ] {
        assert!(prompts.contains(part), "{part} in {prompts}");
    }
}

const WORKFLOW: &str = "\
---
tracker:
  kind: linear
  project_slug: shop
polling: {interval_ms: 5000}
hooks:
  timeout_ms: \"90000\"
  before_run: |
    git fetch
    git status --short
  after_run: ./tidy.sh
agent: {max_concurrent_agents: 10}
codex:
  command: codex app-server
  stall_timeout_ms: 0
---
Work on {{ issue.identifier }}: {{ issue.title | escape }}.
{% if attempt %}
This is try {{ attempt }}.
{% else %}
A fresh start.
{% endif %}
";

#[test]
fn a_workflow_of_symphony_becomes_a_loop_with_the_issue_as_arguments() {
    let house = House::with(&[("WORKFLOW.md", WORKFLOW)]);
    let text = house.converted(".", "RALPH.md");
    assert_lines(
        &text,
        &[
            "agent: codex",
            "session: 1h",
            "idle: off",
            "delay: 5s",
            "strategy: fixed",
            "- name: before_run",
            "timeout: 1m30s",
            "git status --short",
            "args: [issue_identifier, issue_title]",
            "Work on {{ args.issue_identifier }}: {{ args.issue_title }}.",
            "This is try {{ ralph.iteration }}.",
            "# - WORKFLOW.md:3: tracker.kind: dogwatch reads no tracker; start a run per issue and pass its fields as arguments",
            "# - WORKFLOW.md:18: `{% if attempt %}`: prompts have no conditions; the first branch was kept",
        ],
    );
    assert!(!text.contains("A fresh start"), "{text}");
    let agent = "--agent=sh -c 'cat > prompt; echo ok'";
    let args = ["run", "new", agent, "-n", "1", "--issue_identifier", "AB-1", "--issue_title", "It's late"];
    house.call(&args).assert_code(0);
    assert!(house.project.read("prompt").contains("Work on AB-1: It's late.\n"));
}

#[test]
fn a_script_of_symphony_for_new_workspaces_becomes_setup_unless_it_clones_the_repository() {
    let workflow =
        |script: &str| format!("---\nhooks:\n  after_create: |\n    {script}\n    npm ci\n---\nGo.\n");
    let house = House::with(&[("WORKFLOW.md", &workflow("cp ../.env ."))]);
    let text = house.converted(".", "RALPH.md");
    assert_lines(&text, &["worktree: true", "setup:", "cp ../.env .", "npm ci"]);
    assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    let house = House::with(&[("WORKFLOW.md", &workflow("git clone https://example.org/x ."))]);
    let text = house.converted(".", "RALPH.md");
    let left = "# - WORKFLOW.md:3: hooks.after_create: a worktree has the repository already; put the rest into `setup`";
    assert_lines(&text, &[left]);
    assert!(!text.contains("worktree: true"), "{text}");
}

#[test]
fn ralphifys_file_runs_unchanged_and_its_copy_spells_out_the_defaults() {
    let ralph = "---\nagent: claude -p\ncommands:\n  # the log\n  - name: log\n    run: git log -n 3\nargs:\n  - focus\n---\nWork on {{ args.focus }}.\n{{ commands.log }}\n";
    let house = House::with(&[("RALPH.md", ralph)]);
    let text = house.converted(".", "RALPH.md");
    assert_lines(&text, &["agent: claude -p", "- name: log", "run: git log -n 3", "- focus", "credit: true"]);
    assert!(text.ends_with("---\nWork on {{ args.focus }}.\n{{ commands.log }}\n"), "{text}");
    let done = house.call(&["init", "--from", "."]);
    done.assert_code(2);
    assert!(
        done.stderr.contains("RALPH.md needs no conversion") && done.stderr.contains("help: "),
        "{}",
        done.stderr
    );
    assert_eq!(house.project.read("RALPH.md"), ralph);
}

#[test]
fn bad_empty_huge_and_foreign_files_are_refused_with_their_place() {
    for (file, text, words) in [
        ("ralph.yml", "cli:\n  backend: [", &["old/ralph.yml:2:12", "invalid YAML"][..]),
        ("ralph.yml", "cli: 5\n", &["old/ralph.yml:1:6", "`cli` must be a mapping"]),
        (
            "ralph.yml",
            "event_loop: {prompt: x, max_iterations: many}\n",
            &["old/ralph.yml:1:41", "max_iterations"],
        ),
        (
            "ralph.yml",
            "version: 3\nservices: {}\n",
            &["old/ralph.yml:1:1", "not a configuration of ralph-orchestrator"],
        ),
        ("ralph.yml", "cli: {backend: claude}\n", &["PROMPT.md", "needs this file, and it is not there"]),
        ("ralph.yml", "", &["old/ralph.yml:1:1", "the file is empty"]),
        ("prd.json", "{\"userStories\": [}", &["old/prd.json:1:18", "invalid JSON"]),
        ("prd.json", "{\"stories\": []}", &["old/prd.json:1:1", "no `userStories`"]),
        (
            "prd.json",
            "{\"userStories\": [{\"id\": \"a\"}, {\"id\": \"a\"}]}",
            &["old/prd.json:1:38", "two stories have the id `a`"],
        ),
        (
            "prd.json",
            "{\"userStories\": [{\"id\": \"a\", \"passes\": true}]}",
            &["no story is open", "help: "],
        ),
        ("prd.json", "[1]", &["old/prd.json:1:1", "must hold a mapping"]),
        (".ralphrc", "echo hello\n", &["old/.ralphrc:1:1", "no line `KEY=VALUE`"]),
        (".ralphrc", "CLAUDE_TIMEOUT_MINUTES=soon\n", &["old/.ralphrc:1:1", "whole number from 1"]),
        ("WORKFLOW.md", "---\nhooks: {}\n---\n{% if x %}a\n", &["old/WORKFLOW.md:4:1", "{% endif %}"]),
        ("WORKFLOW.md", "---\nhooks: {}\n", &["old/WORKFLOW.md:1:1", "not closed"]),
        ("WORKFLOW.md", "How we work here.\n", &["old/WORKFLOW.md:1:1", "not a workflow of Symphony"]),
        (
            "WORKFLOW.md",
            "---\npolling: {interval_ms: soon}\n---\nGo\n",
            &["old/WORKFLOW.md:2:24", "milliseconds"],
        ),
        ("RALPH.md", "no fence\n", &["old/RALPH.md:1:1", "no frontmatter"]),
        ("PROMPT.md", " \n", &["old/PROMPT.md:1:1", "the file is empty"]),
        ("README.md", "hello", &["found no files of another tool", "help: "]),
    ] {
        let house = House::with(&[(&format!("old/{file}"), text)]);
        house.refused("old", words);
    }
    let house = House::with(&[("old/PROMPT.md", &"x".repeat((1 << 20) + 1))]);
    house.refused("old", &["old/PROMPT.md", "larger than 1048576 bytes"]);
    std::fs::write(house.project.path("old/PROMPT.md"), b"one\ntwo \xff\n").expect("writes");
    house.refused("old", &["old/PROMPT.md:2:5", "not UTF-8"]);
    house.refused("nowhere", &["cannot read nowhere"]);
    house.project.file("old/prd.json", PRD);
    house.project.file("old/WORKFLOW.md", WORKFLOW);
    house.refused("old", &["files of several tools", "old/prd.json"]);
    house.converted("old/prd.json", "graph.yaml");
}

#[test]
fn a_converted_file_never_replaces_another() {
    let house = House::with(&[("prd.json", PRD), ("graph.yaml", "mine")]);
    let done = house.call(&["init", "--from", "."]);
    done.assert_code(2);
    assert!(done.stderr.contains("it was not changed"), "{}", done.stderr);
    assert_eq!(house.project.read("graph.yaml"), "mine");
}

#[test]
fn a_second_conversion_says_that_the_file_exists() {
    let house = House::with(&[("ralph.yml", "event_loop: {max_iterations: 3}\n"), ("PROMPT.md", "Go on.\n")]);
    house.call(&["init", "--from", "."]).assert_code(0);
    let written = house.project.read("RALPH.md");
    let again = house.call(&["init", "--from", "."]);
    again.assert_code(2);
    assert!(again.stderr.contains("RALPH.md already exists; it was not changed"), "{}", again.stderr);
    assert_eq!(house.project.read("RALPH.md"), written);
    // For another target, the file is a source like the others.
    house.refused(".", &["files of several tools", "ralphify (./RALPH.md)"]);
}

#[test]
fn ralphifys_short_flags_and_arguments_without_dashes_work() {
    let project = Project::new();
    let front = format!("agent: sh -c 'cat; echo; echo oops >&2'\nargs: [focus]\n{GRACES}");
    project.ralph(&front, "Work on {{ args.focus }} and {{ args.where }}.");
    let line = [
        "run", "loop", "--where", "the docs", "api", "-n", "2", "-d", "0.01", "-t", "60", "-s", "-l", "logs",
        "--json",
    ];
    let done = project.call(&line);
    done.assert_code(0);
    assert_eq!(done.count("iteration_completed"), 2);
    let mut logs: Vec<_> =
        std::fs::read_dir(project.path("logs")).expect("a directory").flatten().map(|e| e.path()).collect();
    logs.sort();
    assert_eq!(logs.len(), 2);
    assert!(logs[0].file_name().is_some_and(|name| name.to_string_lossy().starts_with("001_20")), "{logs:?}");
    let log = std::fs::read_to_string(&logs[0]).expect("a log");
    assert!(log.starts_with("Work on api and the docs.") && log.ends_with("oops\n"), "{log}");
}

#[test]
fn a_misspelled_option_is_not_taken_for_an_argument_of_the_loop() {
    let project = Project::acting("say hi");
    let done = project.call(&["run", "loop", "--dealy", "5"]);
    done.assert_code(2);
    assert!(done.stderr.contains("--delay"), "{}", done.stderr);
    let done = project.call(&["run", "loop", "--focus", "5"]);
    done.assert_code(2);
    assert!(done.stderr.contains("the loop has no argument `focus`"), "{}", done.stderr);
    assert!(!project.path(".dogwatch").exists(), "nothing was started");
}
