//! Commands of the prompt: which output reaches it, and how failures are handled.

use crate::kit::{GRACES, Project, all, kinds, one};

/// Runs one iteration with these commands and returns its prompt.
fn prompt_of(project: &Project, commands: &str, body: &str) -> String {
    project.act_on(&format!("{GRACES}\ncommands:\n{commands}"), "read-prompt", body);
    project.run(&["-n", "1"]).assert_code(0);
    project.prompt(1)
}

#[test]
fn loop_32_commands_run_without_a_shell_unless_requested() {
    let commands = "  - {name: words, run: \"printf '%s-' a '$HOME' | cat\"}
  - {name: shell, run: \"printf '%s-' a | tr a b\", shell: true}";
    let prompt = prompt_of(&Project::new(), commands, "{{ commands.words }}\n{{ commands.shell }}");
    assert_eq!(prompt, "a-$HOME-|-cat-\nb-");
}

#[test]
fn loop_33_a_command_of_the_loop_runs_in_its_directory_and_others_in_the_current_one() {
    use std::os::unix::fs::PermissionsExt;
    let project = Project::new();
    project.file("loop/here", "#!/bin/sh\npwd\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path("loop/here"), mode).expect("we own the file");
    let commands = "  - {name: here, run: ./here}\n  - {name: there, run: pwd}";
    let prompt = prompt_of(&project, commands, "{{ commands.here }}{{ commands.there }}.");
    let work = project.path("").canonicalize().expect("exists");
    assert_eq!(prompt, format!("{0}/loop\n{0}\n.", work.display()));
}

#[test]
fn loop_34_stdout_comes_first_and_then_stderr() {
    let commands = "  - {name: both, run: 'printf err >&2; printf out', shell: true}";
    assert_eq!(prompt_of(&Project::new(), commands, "{{ commands.both }}"), "out\nerr");
}

#[test]
fn loop_35_output_and_exit_code_of_a_failed_command_are_used() {
    let project = Project::new();
    let commands = "  - {name: bad, run: 'echo half; exit 3', shell: true}";
    let prompt = prompt_of(&project, commands, "{{ commands.bad }}={{ commands.bad.exit_code }}");
    assert_eq!(prompt, "half\n=3");
    assert_eq!(one(&project.journal(), "command_finished")["exit_code"], 3);
}

#[test]
fn loop_36_a_command_that_times_out_is_killed_with_its_children_and_its_output_is_kept() {
    let project = Project::new();
    let hold = project.fifo("hold");
    project.file("slow", "hold hold; say partial; orphan { ignore TERM; hang }; ignore TERM; hang");
    let run = serde_json::Value::from(project.actor("slow"));
    let prompt =
        prompt_of(&project, &format!("  - {{name: slow, run: {run}, timeout: 1s}}"), "{{ commands.slow }}");
    hold.assert_released();
    assert!(prompt.starts_with("partial\n"), "{prompt}");
    assert!(prompt.contains("[dogwatch: timed out after 1s]"), "{prompt}");
    assert_eq!(one(&project.journal(), "command_finished")["timed_out"], true);
}

#[test]
fn loop_37_a_command_that_cannot_be_started_is_reported_and_the_run_continues() {
    let project = Project::new();
    let commands = "  - {name: gone, run: no-such-program}\n  - {name: odd, run: \"echo 'a\"}\n  - {name: ok, run: echo ok}";
    let prompt = prompt_of(&project, commands, "{{ commands.gone }}\n{{ commands.odd }}\n{{ commands.ok }}");
    let [gone, odd, ok] = prompt.lines().collect::<Vec<_>>()[..] else { panic!("{prompt}") };
    assert!(gone.contains("`gone` could not be started: no-such-program"), "{gone}");
    assert!(odd.contains("`odd` could not be started"), "{odd}");
    assert_eq!(ok, "ok");
    let journal = project.journal();
    assert_eq!(kinds(&journal, "command_not_started").len(), 2);
    assert_eq!(all(&journal, "command_finished").len(), 3);
}

#[test]
fn loop_38_a_command_reads_dev_null_and_never_dogwatchs_own_stdin() {
    let project = Project::new();
    project.act_on(
        &format!("{GRACES}\ncommands: [{{name: c, run: cat}}, {{name: l, run: readlink /proc/self/fd/0}}]"),
        "read-prompt",
        "[{{ commands.c }}{{ commands.l }}]",
    );
    let mut command = project.command(&["run", "loop", "--json", "-n", "1"]);
    // The pipe stays open and empty, so a command that reads it would hang forever.
    let (stdin, writer) = std::io::pipe().expect("a pipe");
    command.stdin(stdin);
    crate::kit::Running::start(command).finish().assert_code(0);
    drop(writer);
    assert_eq!(project.prompt(1), "[/dev/null\n]");
}

#[test]
fn loop_39_command_output_is_capped_and_the_cut_is_marked() {
    let project = Project::new();
    project.file("loud", "flood 2M");
    let run = serde_json::Value::from(project.actor("loud"));
    let prompt = prompt_of(&project, &format!("  - {{name: loud, run: {run}}}"), "{{ commands.loud }}");
    assert!(prompt.len() < 300_000, "{}", prompt.len());
    assert!(prompt.contains(" bytes cut by dogwatch …]"));
    let finished = one(&project.journal(), "command_finished").clone();
    assert_eq!(finished["bytes"], 2 * 1024 * 1024);
    assert!(finished["cut_bytes"].as_u64().is_some_and(|n| n > 1_500_000), "{finished}");
}

// promise: 1
#[test]
fn leftovers_of_a_command_are_ended_before_the_agent_starts() {
    let project = Project::new();
    let hold = project.fifo("hold");
    project.file("sly", "hold hold; orphan { ignore TERM; hang }; say done");
    let run = serde_json::Value::from(project.actor("sly"));
    let gate = project.gate("gate");
    project.act(&format!("{GRACES}\ncommands: [{{name: sly, run: {run}}}]"), "await gate");
    let mut dogwatch = project.start_run(&["-n", "1"]);
    dogwatch.wait_for("session_started");
    hold.assert_released();
    gate.open();
    dogwatch.finish().assert_code(0);
}
