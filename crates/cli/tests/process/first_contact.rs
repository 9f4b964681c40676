//! What a newcomer and an editor meet: the version, manual pages, completions in a real shell, schemas.

use crate::kit::Project;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn the_version_names_the_commit_and_is_also_json() {
    let project = Project::new();
    let text = project.call(&["--version"]).assert_code(0).text();
    assert!(text.starts_with(&format!("dogwatch {} (", env!("CARGO_PKG_VERSION"))), "{text}");
    for args in [["--version", "--json"], ["--json", "-V"]] {
        let done = project.call(&args);
        done.assert_code(0);
        let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
        let commit = json["commit"].as_str().expect("a text");
        assert!(commit == "unknown" || commit.bytes().all(|b| b.is_ascii_hexdigit()), "{commit}");
        assert!(json["profile"].is_string() && json["features"].is_array(), "{json}");
    }
}

#[test]
fn a_mistake_after_the_version_flag_is_reported() {
    let project = Project::new();
    for (args, wanted) in [
        (&["--version", "--jsno"][..], "a similar argument exists: '--json'"),
        (&["--jsno", "-V"], "a similar argument exists: '--json'"),
        (&["--version", "--json", "more"], "unrecognized subcommand 'more'"),
        (&["--json"], "--version"),
    ] {
        let done = project.call(args);
        done.assert_code(2);
        assert!(done.stdout.is_empty() && done.stderr.contains(wanted), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn a_directory_without_a_loop_names_at_most_five_loops_below_it() {
    let project = Project::new();
    let done = project.call(&["run"]);
    done.assert_code(2);
    assert!(done.stderr.contains("help: `dogwatch init .`"), "{}", done.stderr);
    for name in ["f", "a", "c", "b", "e", "d"] {
        std::fs::create_dir(project.path(name)).expect("a directory");
        project.file(&format!("{name}/RALPH.md"), "---\nagent: cat\n---\nGo.\n");
    }
    let done = project.call(&["run"]);
    done.assert_code(2);
    assert!(done.stderr.contains("help: name one of these: a, b, c, d, e\n"), "{}", done.stderr);
}

#[test]
fn a_misspelled_loop_agent_or_iteration_gets_a_way_out() {
    let project = Project::new();
    for (name, front) in
        [("fix-tests", "agent: cat"), ("typo", "agent: claud"), ("cost", "budget: {cost: 20}")]
    {
        std::fs::create_dir(project.path(name)).expect("a directory");
        project.file(&format!("{name}/RALPH.md"), &format!("---\n{front}\n---\nGo.\n"));
    }
    for (args, help) in [
        (&["run", "fix-test"][..], "fix-test does not exist\nhelp: did you mean `fix-tests`?"),
        (&["run", "elsewhere"], "help: PATH is a directory with a RALPH.md"),
        (&["run", "typo"], "help: did you mean `claude`?"),
        (&["check", "cost"], "help: did you mean `cost_usd`?"),
        (&["diff", "2"], "help: use `-i N` to name an iteration of the latest run"),
    ] {
        let done = project.call(args);
        done.assert_code(2);
        assert!(done.stderr.contains(help), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn init_writes_no_loop_beside_a_graph_and_names_the_placeholder() {
    let project = Project::new();
    project.file("graph.yaml", "nodes: {a: {prompt: x}}\n");
    let done = project.call(&["init"]);
    done.assert_code(2);
    assert!(done.stderr.contains("graph.yaml already exists"), "{}", done.stderr);
    project.file(
        "prd.json",
        r#"{"userStories": [{"id": "1", "title": "t", "description": "d", "passes": false}]}"#,
    );
    let mut command = project.command(&["init", "new", "--from", "prd.json"]);
    command.env("PATH", "/usr/bin:/bin");
    let done = crate::kit::Running::start(command).finish();
    assert!(
        done.assert_code(0).text().contains("set `agent` in the file: the placeholder"),
        "{}",
        done.text()
    );
}

#[test]
fn every_command_has_a_manual_page() {
    let project = Project::new();
    project.call(&["man", "--dir", "pages"]).assert_code(0);
    let pages = std::fs::read_dir(project.path("pages")).expect("a directory").count();
    assert!(pages > 25, "{pages} pages");
    let page = project.read("pages/dogwatch-run.1");
    assert!(page.contains(".TH dogwatch-run 1") && page.contains("stop\\-on\\-error"), "{page}");
    assert!(page.contains("\ndogwatch run [OPTIONS] [PATH]"), "{page}");
    assert_eq!(project.call(&["man", "run"]).text(), page);
    assert!(page.contains(concat!("\"dogwatch ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
    let page = project.read("pages/dogwatch-fleet-init.1");
    assert_eq!(project.call(&["man", "fleet", "init"]).text(), page);
    let done = project.call(&["man", "walk"]);
    done.assert_code(2);
    assert!(done.stderr.contains("no command `walk`"), "{}", done.stderr);
}

// --- completions ------------------------------------------------------------------------------------------

/// Returns what bash offers at the end of this line, after it has loaded the script. Like bash, it splits words at `=`.
fn bash(project: &Project, line: &str) -> Vec<String> {
    let script = r#"
source <(dogwatch completions bash)
read -ra COMP_WORDS <<<"${LINE//=/ = }"
case "$LINE" in *' ') COMP_WORDS+=("");; esac
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$LINE COMP_POINT=${#LINE} COMP_TYPE=9
command=$(complete -p dogwatch); command=${command##* -F }; command=${command%% *}
"$command" dogwatch "${COMP_WORDS[COMP_CWORD]#=}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;
    let program = Path::new(env!("CARGO_BIN_EXE_dogwatch")).parent().expect("a directory");
    let mut shell = Command::new("bash");
    let home = project.outside("home");
    let out = shell
        .args(["--norc", "-c", script])
        .current_dir(project.path("."))
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
        .env("HOME", &home)
        .env("XDG_STATE_HOME", project.outside("state"))
        .env("LINE", line)
        .output()
        .expect("bash runs");
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_runs_loops_and_keys() {
    let project = Project::acting("say hi");
    project.run(&["-n", "1"]).assert_code(0);
    let id = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    let tail = id.rsplit('-').next().expect("an end").to_owned();
    assert_eq!(bash(&project, "dogwatch stat"), ["status"]);
    assert_eq!(bash(&project, "dogwatch run --stop"), ["--stop-on-error"]);
    assert_eq!(bash(&project, "dogwatch run lo"), ["loop"]);
    assert!(bash(&project, &format!("dogwatch status {}", &tail[..2])).contains(&tail));
    assert!(bash(&project, "dogwatch status lo").contains(&"loop".to_owned()));
    assert_eq!(bash(&project, &format!("dogwatch report {}", &id[..9])), [id.as_str()]);
    assert_eq!(bash(&project, "dogwatch run loop --set watchdog.ses"), ["watchdog.session="]);
    let keys = bash(&project, "dogwatch check loop --set notify.te");
    assert_eq!(keys, ["notify.telegram.token=", "notify.telegram.chat=", "notify.telegram.api="]);
    assert!(bash(&project, "dogwatch run nowhere").is_empty());
}

#[test]
fn bash_completes_the_words_of_a_closed_set() {
    let project = Project::acting("say hi");
    for (line, wanted) in [
        ("run --profile ", &["quick", "standard", "deep", "learned"][..]),
        ("run --profile=d", &["deep"]),
        ("exec --profile ", &["quick", "standard", "deep"]),
        ("replay x --profile ", &["quick", "standard", "deep"]),
        ("run --agent c", &["claude", "codex"]),
        ("init --agent c", &["claude", "codex"]),
        ("replay x --agent p", &["plain"]),
        ("run --set prof", &["profile="]),
        ("run --set profile=", &["quick", "standard", "deep", "learned"]),
        ("run --set profile=d", &["deep"]),
        ("run --set=profile=d", &["deep"]),
        ("run --set profile=deep --set sandbox.required=", &["true", "false"]),
        ("run --set agent=c", &["claude", "codex"]),
        ("run --set delay=", &[]),
        ("run --set nothing=", &[]),
        ("exec --set watchdog.ses", &["watchdog.session="]),
        ("exec --set prof", &[]),
        ("man sta", &["status"]),
        ("man fleet dr", &["drain"]),
        ("man dr", &[]),
    ] {
        assert_eq!(bash(&project, &format!("dogwatch {line}")), wanted, "{line}");
    }
}

#[test]
fn bash_completes_runs_and_loops_in_every_command_that_takes_one() {
    let project = Project::acting("say hi");
    project.run(&["-n", "1"]).assert_code(0);
    for command in ["verdict", "undo", "replay"] {
        let found = bash(&project, &format!("dogwatch {command} lo"));
        assert!(found.contains(&"loop".to_owned()), "{command}: {found:?}");
    }
    for command in ["run", "check", "notify", "forecast", "submit"] {
        assert_eq!(bash(&project, &format!("dogwatch {command} lo")), ["loop"], "{command}");
    }
}

#[test]
fn loops_come_before_other_directories_and_graph_files() {
    let project = Project::new();
    for dir in ["z-loop", "loops", "loops/deeper", ".hidden"] {
        std::fs::create_dir(project.path(dir)).expect("a directory");
    }
    for file in ["z-loop/RALPH.md", "loops/deeper/RALPH.md", "graph.yaml", "notes.txt"] {
        project.file(file, "");
    }
    // Options follow. The project has a directory `loop` without a loop.
    let wanted = ["z-loop", "loop/", "loops/", "graph.yaml", "-n"];
    assert_eq!(bash(&project, "dogwatch run ")[..wanted.len()], wanted);
    assert_eq!(bash(&project, "dogwatch run loops/"), ["loops/deeper"]);
    assert_eq!(bash(&project, "dogwatch run .h"), [".hidden/"]);
    let absolute = project.path("z").display().to_string();
    assert_eq!(bash(&project, &format!("dogwatch run {absolute}")), [format!("{absolute}-loop")]);
}

#[test]
fn zsh_and_fish_get_scripts_that_ask_the_same_program() {
    let project = Project::acting("say hi");
    for (shell, part) in
        [("zsh", "#compdef dogwatch"), ("fish", "complete --keep-order --exclusive --command dogwatch")]
    {
        let done = project.call(&["completions", shell]);
        done.assert_code(0);
        assert!(done.text().contains(part) && done.text().contains("DOGWATCH_COMPLETE"), "{}", done.text());
    }
    let mut fish = project.command(&["--", "dogwatch", "run", "loop", "--set", "idle.stra"]);
    let out = fish.env("DOGWATCH_COMPLETE", "fish").output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "idle.strategy=\thow idle waits grow\n");
}

// --- schemas ----------------------------------------------------------------------------------------------

/// Validates documents of a list of [schema, text of YAML, TOML or JSON, format], and prints the errors of each.
const VALIDATE: &str = r#"
import json, sys, tomllib, yaml, jsonschema
class Loader(yaml.SafeLoader): pass
# Like dogwatch, take only `true` and `false` for booleans, and no dates.
Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
import re
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))
task = json.load(sys.stdin)
checkers = {}
for name, schema in task["schemas"].items():
    jsonschema.Draft202012Validator.check_schema(schema)
    checkers[name] = jsonschema.Draft202012Validator(schema)
result = []
for name, text, form in task["documents"]:
    tree = {"yaml": lambda: yaml.load(text, Loader), "toml": lambda: tomllib.loads(text), "json": lambda: json.loads(text)}[form]()
    result.append([f"{error.json_path}: {error.message}" for error in checkers[name].iter_errors({} if tree is None else tree)])
json.dump(result, sys.stdout)
"#;

/// Returns where `scripts/test` installs a set of Python packages.
fn python(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(format!("python-{name}"));
    assert!(dir.join("stamp").exists(), "{} is not there: scripts/test installs it", dir.display());
    dir
}

/// Validates documents with an independent validator. Returns the errors of each.
fn validated(project: &Project, documents: &[(&str, String, &str)]) -> Vec<Vec<String>> {
    let mut schemas = serde_json::Map::new();
    for file in ["loop", "graph", "settings"] {
        let done = project.call(&["schema", file]);
        schemas.insert(file.to_owned(), serde_json::from_slice(&done.assert_code(0).stdout).expect("JSON"));
    }
    let task = json!({"schemas": schemas, "documents": documents});
    let path = std::env::join_paths([python("mcp"), python("mkdocs")]).expect("a path");
    let mut child = Command::new("python3")
        .args(["-c", VALIDATE])
        .env("PYTHONPATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, task.to_string().as_bytes()).expect("is read");
    drop(stdin);
    let out = child.wait_with_output().expect("it ends");
    assert!(out.status.success());
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn frontmatter(text: &str) -> String {
    text.split("---\n").nth(1).unwrap_or_default().to_owned()
}

#[test]
fn the_schemas_accept_every_example_and_every_documented_key() {
    let project = Project::new();
    let mut documents: Vec<(&str, String, &str)> = Vec::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut dirs = vec![examples];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
            let path = entry.path();
            let text = || std::fs::read_to_string(&path).expect("a text");
            match path.file_name().and_then(|name| name.to_str()) {
                _ if path.is_dir() => dirs.push(path.clone()),
                Some("RALPH.md") => documents.push(("loop", frontmatter(&text()), "yaml")),
                Some("graph.yaml") => documents.push(("graph", text(), "yaml")),
                Some("graph.json") => documents.push(("graph", text(), "json")),
                _ => {}
            }
        }
    }
    assert!(documents.len() >= 8, "{} examples", documents.len());
    for key in dogwatch_config::keys::KEYS {
        documents.push(("loop", key.example.to_owned(), "yaml"));
        documents.push(("settings", key.example.to_owned(), "yaml"));
    }
    for agent in ["claude", "sh"] {
        project.call(&["init", agent, "--agent", agent]).assert_code(0);
        documents.push(("loop", frontmatter(&project.read(&format!("{agent}/RALPH.md"))), "yaml"));
    }
    for (schema, text, form) in [
        (
            "loop",
            "agent: a\nidle:\nmax_ralph_iters: 3\nsandbox: {mode: strict}\ngeneral: {of_another_tool: 1}",
            "yaml",
        ),
        (
            "loop",
            "agent: a\nwatchdog: {session: off, idle: 1h30m, tool: 90}\nidle: {stop_after: {x: 2}}\nmcp: {servers: {a: {command: b}}}",
            "yaml",
        ),
        ("graph", "nodes: {a: {deliverable: x}, b: {prompt: y, depends_on: [a], done_when: make}}", "yaml"),
        ("graph", "[{\"id\": 7, \"prompt\": \"x\", \"watchdog\": {\"idle\": \"5m\"}}]", "json"),
        (
            "settings",
            "agent = 'a'\n[watchdog]\nsession = '5m'\n[external]\nidle = 5\n[general]\nagent_idle_activity_evidence_ttl_seconds = 5",
            "toml",
        ),
        // All items may be commented out, and a dotted key is short for a block.
        ("loop", "agent: a\ncommands:\ndone_when:\nwatchdog:\nidle: true\nbudget.time: 8h", "yaml"),
        ("graph", "nodes: {a: {prompt: x, watchdog.idle: 5m, depends_on: , pin: }}", "yaml"),
        (
            "loop",
            "agent: a\nmcp:\nidle: {stop_after: }\nbudget: {day.tokens: 5}\ncredit: Yes\nworktree: 'No'",
            "yaml",
        ),
        ("loop", "agent: a\nmcp: {servers: }", "yaml"),
        ("loop", "agent: a\nmcp: {servers: {b: {command: c, headers: , tools: }}}", "yaml"),
        ("graph", "{\"$schema\": \"x\", \"nodes\": [{\"id\": \"a\", \"prompt\": \"x\"}]}", "json"),
        ("settings", "'watchdog.idle' = 5", "toml"),
    ] {
        if schema != "settings" {
            let (name, text) = match (schema, form) {
                ("loop", _) => ("RALPH.md", format!("---\n{text}\n---\nGo.\n")),
                (_, "json") => ("graph.json", text.to_owned()),
                _ => ("graph.yaml", text.to_owned()),
            };
            std::fs::create_dir(project.path("valid")).expect("a directory");
            project.file(&format!("valid/{name}"), &text);
            let done = project.call(&["check", "valid", "--set", "agent=sh"]);
            let said = done.assert_code(0).text() + &done.stderr;
            assert!(!said.contains("$schema"), "{said}");
            std::fs::remove_dir_all(project.path("valid")).expect("it is ours");
        }
        documents.push((schema, text.to_owned(), form));
    }
    let found = validated(&project, &documents);
    for (errors, document) in found.iter().zip(&documents) {
        assert!(errors.is_empty(), "{document:?}: {errors:?}");
    }
}

#[test]
fn the_schemas_refuse_what_check_refuses() {
    let project = Project::new();
    let wrong = [
        "watchdog: {sesion: 5m}",
        "watchdog: {session: soon}",
        "delay: -1",
        "delay: [1]",
        "max_iterations: 0",
        "attempts: often",
        "done_when: []",
        "recheck: 11",
        "idle: {backoff: 0.5}",
        "budget: {day: {tokens: many}}",
        "commands: [{name: a}]",
        "commands: [{name: a b, run: c}]",
        "notify: {on: [test], command: x}",
        "notify: {telegram: {token: x, chat: 1}}",
        "mcp: {servers: {a: {}}}",
        "sandbox: loose",
        "worktree: maybe",
        "idle: ''",
        "done_wen: make",
    ];
    let documents: Vec<_> = wrong.iter().map(|text| ("loop", format!("agent: a\n{text}"), "yaml")).collect();
    let found = validated(&project, &documents);
    for (errors, text) in found.iter().zip(wrong) {
        assert!(!errors.is_empty(), "the schema accepts {text}");
        project.ralph(&format!("agent: sh\n{text}"), "Go.");
        project.call(&["check", "loop"]).assert_code(2);
    }
    // With the place that the schema names.
    let wrong = [
        ("graph", "nodes: []", "$.nodes"),
        ("graph", "[]", "$"),
        ("graph", "nodes: [{prompt: x}]", "$.nodes[0]"),
        ("graph", "nodes: [{id: a}]", "$.nodes[0]"),
        ("graph", "nodes: [{id: a, promt: x, prompt: x}]", "$.nodes[0]"),
        ("graph", "nodes: [{id: a, prompt: x, prompt_file: y}]", "$.nodes[0]"),
        ("graph", "nodes: [{id: a, prompt: x, max_parallel: 2}]", "$.nodes[0]"),
        ("graph", "nodes: {a: {prompt: x, profile: quik}}", "$.nodes.a.profile"),
        ("graph", "max_paralel: 2\nnodes: {a: {prompt: x}}", "$"),
        ("settings", "titel: 1", "$"),
        ("settings", "general: {x: 1}", "$.general"),
    ];
    let documents = wrong.map(|(schema, text, _)| (schema, text.to_owned(), "yaml"));
    for (errors, (_, text, place)) in validated(&project, &documents).iter().zip(wrong) {
        assert!(errors.iter().any(|error| error.starts_with(&format!("{place}: "))), "{text}: {errors:?}");
    }
}

#[test]
fn init_names_a_schema_that_is_there() {
    let project = Project::new();
    let absolute = project.path("a/c").display().to_string();
    for (dir, file) in
        [("a/b", "a/b/RALPH.md"), (absolute.as_str(), "a/c/RALPH.md"), ("../work/a/d", "a/d/RALPH.md")]
    {
        project.call(&["init", dir, "--agent", "sh"]).assert_code(0);
        let text = project.read(file);
        let line = text.lines().nth(1).expect("a second line");
        let path = line.strip_prefix("# yaml-language-server: $schema=").expect("a modeline");
        assert_eq!(path, "../../.dogwatch/schema/loop.json", "{dir}");
    }
    let schema: Value = serde_json::from_str(&project.read(".dogwatch/schema/loop.json")).expect("JSON");
    assert_eq!(schema["properties"]["agent"]["type"], "string");
    assert_eq!(project.read(".dogwatch/.gitignore"), "*\n");
    project.call(&["init", "..", "--agent", "sh"]).assert_code(0);
    let outside = std::fs::read_to_string(project.outside("RALPH.md")).expect("is written");
    assert!(!outside.contains("yaml-language-server"), "{outside}");
}
