//! Secrets of the environment never reach the record or a view. Each of these canaries takes another way.

use crate::kit::{GRACES, Project, Running, one};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The variables, and where their values appear.
const CANARIES: [&str; 16] = [
    "AGENT_API_KEY",     // a word of the agent's command line
    "COMMAND_TOKEN",     // a prep command in the settings
    "OUTPUT_SECRET",     // the output of a prep command
    "CHECK_PASSWORD",    // a check in the settings
    "TAIL_ACCESS_KEY",   // the output of a failing check
    "GATE_TOKEN",        // the gate
    "ARGUMENT_PASSWD",   // an argument of the loop
    "LAST_WORDS_TOKEN",  // the last line of the agent
    "STDERR_TOKEN",      // an error of the agent
    "MARKER_TOKEN",      // the reason in a marker
    "MESSAGE_TOKEN",     // a message of the operator
    "NOTIFY_CREDENTIAL", // the notify command
    "PROBE_TOKEN",       // the wake probe
    "HEADER_DEPLOY_KEY", // a header of an MCP server
    "PROGRESS_TOKEN",    // a progress report over the agent channel
    "PLAIN_NAME",        // named by `redact`
];

fn value(name: &str) -> String {
    format!("canary/{}+in-a-mine", name.to_lowercase())
}

fn command(project: &Project, args: &[&str]) -> Running {
    let mut command = project.command(args);
    command.envs(CANARIES.map(|name| (name, value(name))));
    Running::start(command)
}

/// Returns the names of the canaries in a text.
fn found(text: &[u8]) -> Vec<&'static str> {
    let text = String::from_utf8_lossy(text);
    CANARIES.into_iter().filter(|name| text.contains(&value(name))).collect()
}

fn files_below(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            files_below(&entry.path(), out);
        } else if kind.is_file() {
            out.push(entry.path());
        }
    }
}

#[test]
fn no_secret_of_the_environment_reaches_the_record_or_a_view() {
    let project = Project::new();
    let v = value;
    project.file(
        "agent.sh",
        &format!(
            "echo \"$STDERR_TOKEN failed: error\" >&2
             {} mcp --help >/dev/null 2>&1
             echo \"<!-- ralph:state blocked reason=$MARKER_TOKEN -->\"
             echo \"the last words are $LAST_WORDS_TOKEN and $PLAIN_NAME and $PROGRESS_TOKEN\"",
            env!("CARGO_BIN_EXE_dogwatch")
        ),
    );
    let front = format!(
        "agent: \"sh agent.sh {}\"
{GRACES}
args: [area]
redact: [PLAIN_NAME]
commands: [{{name: one, run: \"echo {}\"}}, {{name: two, run: printenv OUTPUT_SECRET}}]
done_when: [\"test -n '{}' && printenv TAIL_ACCESS_KEY; false\"]
max_iterations: 1
work_when: \"test -n '{}'\"
wake_on: {{probe: \"test -z '{}'\"}}
notify: {{on: ended, command: \"echo '{}' >/dev/null\"}}
mcp: {{servers: {{far: {{url: \"https://127.0.0.1:1/\", headers: {{x: \"{}\"}}}}}}}}",
        v("AGENT_API_KEY"),
        v("COMMAND_TOKEN"),
        v("CHECK_PASSWORD"),
        v("GATE_TOKEN"),
        v("PROBE_TOKEN"),
        v("NOTIFY_CREDENTIAL"),
        v("HEADER_DEPLOY_KEY"),
    );
    project.ralph(&front, "Go on in {{ args.area }}: {{ commands.one }} {{ commands.two }}");
    let done = command(&project, &["run", "loop", "--json", "--", "--area", &v("ARGUMENT_PASSWD")]).finish();
    done.assert_code(1);
    assert_eq!(found(&done.stdout), [""; 0], "the events on stdout");
    assert_eq!(found(done.stderr.as_bytes()), [""; 0], "stderr");

    let raw = ["stdout", "stderr", "prompt.md", "plan.json"];
    let mut files = Vec::new();
    files_below(&project.path(".dogwatch"), &mut files);
    files_below(&project.outside("state"), &mut files);
    let mut planted = Vec::new();
    for file in &files {
        let name = file.file_name().expect("a name").to_string_lossy();
        let canaries = found(&std::fs::read(file).expect("a file"));
        if raw.contains(&name.as_ref()) {
            let mode = file.metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", file.display());
            planted.extend(canaries);
        } else {
            assert_eq!(canaries, [""; 0], "{}", file.display());
        }
    }
    planted.sort_unstable();
    planted.dedup();
    assert!(planted.len() >= 13, "the test must plant its secrets: {planted:?}");

    for args in [
        &["status", "--json"][..],
        &["status"],
        &["events"],
        &["report"],
        &["history"],
        &["history", "--json"],
        &["ps", "--all", "--json"],
    ] {
        let done = project.call(args);
        assert_eq!(found(&done.stdout), [""; 0], "{args:?}");
    }
    responses_are_clean(&project, &one(&done.events(), "run_started")["run"]);
}

#[test]
fn a_secret_in_the_output_is_hidden_on_the_screen_and_in_what_later_sessions_read() {
    let project = Project::new();
    let secret = "canary-in-another-mine";
    project.file(
        "agent.sh",
        "echo \"the key is $SHOWN_TOKEN\"\necho \"<!-- ralph:state idle reason=$SHOWN_TOKEN -->\"\n",
    );
    let front = format!("agent: sh agent.sh\nidle: {{delay: 10ms, stop_after: 1}}\n{GRACES}");
    project.ralph(&front, "Go on.");
    let mut command = project.command(&["run", "loop", "-v"]);
    command.env("SHOWN_TOKEN", secret);
    let done = Running::start(command).finish();
    let screen = done.assert_code(0).text() + &done.stderr;
    assert!(screen.contains("the key is ***") && !screen.contains(secret), "{screen}");
    let context = project.read(".dogwatch/decisions.jsonl");
    assert!(context.contains("orchestrator_sleep") && !context.contains(secret), "{context}");
    assert!(String::from_utf8_lossy(&project.raw(1, "stdout")).contains(secret), "the agent printed it");
}

const TOKEN: &str = "canary-0123456789abcdef0123456789abcdef-END";

/// Runs a command with a token in its environment.
fn with_token(project: &Project, args: &[&str]) -> crate::kit::Done {
    let mut command = project.command(args);
    // The second value is a word of the settings.
    command.env("MY_TOKEN", TOKEN).env("DB_PASSWORD", "standard");
    Running::start(command).finish()
}

/// Returns the parts of the token, longer than what may stay, in the files of a project and not in raw output.
fn parts_in_files(project: &Project) -> Vec<String> {
    let raw = ["stdout", "stderr", "prompt.md", "plan.json"];
    let mut files = Vec::new();
    files_below(&project.path(".dogwatch"), &mut files);
    files_below(&project.outside("state"), &mut files);
    files.retain(|file| !raw.contains(&file.file_name().expect("a name").to_string_lossy().as_ref()));
    let texts = files.iter().map(|file| (file, std::fs::read(file).expect("a file")));
    let texts = texts.map(|(file, bytes)| (file, String::from_utf8_lossy(&bytes).into_owned()));
    texts.filter(|(_, text)| has_part(text)).map(|(file, _)| file.display().to_string()).collect()
}

fn has_part(text: &str) -> bool {
    (0..=TOKEN.len() - 8).any(|at| text.contains(&TOKEN[at..at + 8]))
}

#[test]
fn no_part_of_a_secret_is_left_where_a_text_was_cut() {
    let project = Project::new();
    // The last words are cut within the token, and so are the tail of the check and the ends of the streams in the log.
    project.file(
        "agent.sh",
        "printf 'x%.0s' $(seq 1 270); echo \" $MY_TOKEN\"
         { echo \"$MY_TOKEN\"; head -c 65499 /dev/zero | tr '\\0' z; } >&2",
    );
    project.file("c.sh", "echo \"$MY_TOKEN\"; head -c 4055 /dev/zero | tr '\\0' 'y'; false");
    project.ralph(
        &format!("agent: sh agent.sh\ndone_when: [\"sh c.sh\"]\nmax_iterations: 1\n{GRACES}"),
        "Go on.",
    );
    let done = with_token(&project, &["run", "loop", "--json"]);
    done.assert_code(1);
    let ended = one(&done.events(), "session_ended")["said"].as_str().expect("words").to_owned();
    assert!(ended.ends_with("***…"), "the test must cut the token: {ended}");
    assert!(!has_part(&String::from_utf8_lossy(&done.stdout)) && !has_part(&done.stderr));
    assert_eq!(parts_in_files(&project), [""; 0]);
    let log = project.read(&format!("{}/loop.log", project.run_dir().display()));
    assert!(
        log.contains("***\n        yyyy") && log.contains("bytes)\n***\nzzzz"),
        "the log shows where it was cut"
    );
    assert!(!has_part(&project.call(&["report"]).text()));
}

#[test]
fn a_secret_that_is_a_word_of_the_settings_does_not_uncover_the_others() {
    let project = Project::new();
    project.file("agent.sh", "echo hi");
    project.ralph(&format!("agent: sh agent.sh\nargs: [a]\n{GRACES}"), "Go on.");
    let done = with_token(&project, &["run", "loop", "-n", "1", "--json", "--", "--a", TOKEN]);
    done.assert_code(0);
    let started = one(&done.events(), "run_started").to_string();
    assert!(started.contains("\"standard\""), "a word that the record needs: {started}");
    assert!(!has_part(&String::from_utf8_lossy(&done.stdout)));
    assert_eq!(parts_in_files(&project), [""; 0]);
}

#[test]
fn check_and_exec_show_and_record_no_secret_of_the_environment() {
    let project = Project::new();
    let front = format!(
        "agent: sh agent.sh\ndone_when: [\"test -n '{TOKEN}'\"]\ncommands: [{{name: one, run: \"echo {TOKEN}\"}}]\n{GRACES}"
    );
    project.ralph(&front, "Go on.");
    for args in [&["check", "loop", "--explain"][..], &["check", "loop", "--json"], &["check", "loop"]] {
        let done = with_token(&project, args);
        assert!(!has_part(&done.assert_code(0).text()) && !has_part(&done.stderr), "{args:?}");
    }
    let explained = with_token(&project, &["check", "loop", "--explain"]).text();
    assert!(explained.contains("test -n '***'"), "{explained}");
    // An error shows the line of the file.
    project.ralph(&format!("agent: sh agent.sh\ndone_wen: \"{TOKEN}\"\n{GRACES}"), "Go on.");
    for args in [&["check", "loop"][..], &["check", "loop", "--json"]] {
        let done = with_token(&project, args);
        assert!(
            !has_part(&done.assert_code(2).text()) && !has_part(&done.stderr),
            "{args:?}: {}",
            done.stderr
        );
    }

    let script = format!("echo {TOKEN}; echo '\u{202e}' >&2");
    with_token(&project, &["exec", "--json", "events.jsonl", "--", "sh", "-c", &script]).assert_code(0);
    let events = project.read("events.jsonl");
    assert!(events.contains("echo ***") && !has_part(&events), "{events}");
    assert!(events.contains("\\u202e") && !events.contains('\u{202e}'), "{events}");
    let mode = std::fs::metadata(project.path("events.jsonl")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Asks the server for everything that its OpenAPI document lists, except for raw output, and looks for canaries.
fn responses_are_clean(project: &Project, run: &Value) {
    let mut server = project.start(&["serve", "--socket", "all"]);
    server.wait_for_line("unix:all");
    let get = |path: &str| {
        let asked =
            dogwatch_server::Client::connect(&project.path("all")).and_then(|mut client| client.get(path));
        asked.unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let document: Value = get("/openapi.json").json().expect("is JSON");
    let run = run.as_str().expect("an id");
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        // A stream of events has no end, and raw output is what it is.
        if methods.get("get").is_none() || path.contains("{stream}") {
            continue;
        }
        let path = path
            .replace("{run}", run)
            .replace("{node}", "loop")
            .replace("{iteration}", "1")
            .replace("{id}", "x");
        let answer = get(&path);
        assert_eq!(found(&answer.body), [""; 0], "{path}");
        asked += usize::from(answer.status == 200);
    }
    assert!(asked >= 6, "only {asked} paths answered");
    server.signal(rustix::process::Signal::INT);
    server.finish().assert_code(130);
}
