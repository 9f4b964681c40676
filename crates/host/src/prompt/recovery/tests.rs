use super::*;
use dogwatch_core::record::ids::Iteration;
use dogwatch_core::run::recovery::Class;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::{Channel, Evidence};

fn diagnosis(class: Class) -> Diagnosis {
    let seen =
        |channel, counter, age: Option<f64>| Evidence { channel, last_at: age, age_seconds: age, counter };
    Diagnosis {
        class,
        iteration: Iteration(4),
        reason: "NO_OUTPUT_DEADLINE".into(),
        message: "Idle timeout: no progress for 305.1s (limit 300s, 23 messages)".into(),
        evidence: vec![seen(Channel::Stdout, 23, Some(305.1)), seen(Channel::Workspace, 0, None)],
        tried: vec!["iteration 2: Total timeout".into()],
        attempt: 2,
        budget: 3,
    }
}

fn prompt_context() -> PromptContext {
    let failed = CheckResult {
        cmd: "cargo test".into(),
        rc: 101,
        duration_s: Dur::from_secs(3),
        tail: Some("assertion failed\n2 tests failed".into()),
        truncated: false,
        timed_out: false,
        flaky: false,
        first_rc: None,
    };
    PromptContext { failed: vec![failed], ..PromptContext::default() }
}

fn rendered(template: &str) -> Result<String, String> {
    let (prompt_context, diagnosis) = (prompt_context(), diagnosis(Class::Stuck));
    let facts = Facts {
        prompt: "Fix the {{ bug }}.",
        prompt_context: &prompt_context,
        diagnosis: &diagnosis,
        last_output: "I run the tests now.",
        artifacts: &[Artifact {
            name: "plan.md".into(),
            path: "/r/fix/4/artifacts/plan.md".into(),
            bytes: 12,
            iteration: 4,
        }],
        node: "fix",
        iteration: 5,
    };
    render(template, &facts)
}

#[test]
fn the_built_in_template_contains_all_facts() {
    let expected = "\
Fix the {{ bug }}.

---

Before you begin: the previous session (iteration 4 of `fix`) did not finish; dogwatch stopped it.

What happened: Idle timeout: no progress for 305.1s (limit 300s, 23 messages) (NO_OUTPUT_DEADLINE).
It was silent or took too long. Work in smaller steps, say what you are doing, start nothing that waits for input, and run every command that may hang with its own time limit.

Activity seen up to that moment:

- stdout: 23 times, last 305.1 s before
- workspace: nothing

Its last message:

    I run the tests now.

Files saved with `save_artifact`; read them before you begin:

- /r/fix/4/artifacts/plan.md (12 bytes, iteration 4)

These checks fail:

- `cargo test` (exit code 101), the end of its output:

    assertion failed
    2 tests failed


Earlier failures:

- iteration 2: Total timeout

This is recovery attempt 2 of 3. The work done so far is in the work tree: look at it first (`git status`, `git diff`) and continue from there.";
    assert_eq!(rendered(TEMPLATE).expect("ours works"), expected);
}

#[test]
fn every_variable_is_there() {
    let template = "{{ prompt }}|{{ diagnostic.class }} {{ diagnostic.reason }} {{ diagnostic.message }}|\
        {{ evidence[0].channel }} {{ evidence[1].age_seconds }}|{{ last_output }}|{{ artifacts[0].name }}|{{ checks[0].cmd }} {{ checks[0].rc }} \
        {{ checks[0].duration_s }} {{ checks[0].truncated }}|{{ tried | length }}|{{ attempt }}/{{ budget }}|{{ node }} {{ iteration }}";
    assert_eq!(
        rendered(template).expect("renders"),
        "Fix the {{ bug }}.|stuck NO_OUTPUT_DEADLINE Idle timeout: no progress for 305.1s (limit 300s, 23 messages)|\
         stdout None|I run the tests now.|plan.md|cargo test 101 3.0 False|1|2/3|fix 5"
    );
}

#[test]
fn inserted_values_are_neither_rendered_again_nor_escaped() {
    assert_eq!(rendered("{{ prompt }} <b>{{ '<' }}").expect("renders"), "Fix the {{ bug }}. <b><");
}

// promise: 4
#[test]
fn a_template_that_never_ends_or_floods_is_stopped() {
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    assert!(rendered(endless).is_err_and(|why| why.contains("fuel")), "{:?}", rendered(endless));
    let flood = "{% for a in range(3000) %}{{ 'x' * 1000 }}{% endfor %}";
    assert!(rendered(flood).is_err_and(|why| why.contains("1048576 bytes")), "{:?}", rendered(flood).err());
    let just = MAX_ADDED_BYTES - 1;
    assert!(rendered(&format!("{{{{ prompt }}}}{{{{ 'x' * {just} }}}}")).is_ok());
    assert!(rendered(&format!("{{{{ prompt }}}}{{{{ 'x' * {MAX_ADDED_BYTES} }}}}")).is_err());
}

#[test]
fn a_broken_template_is_trouble_and_the_built_in_one_is_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("writes");
    write("good", "{{ node }}!");
    write("bad", "one\n{{ nobody }}");
    write("open", "{% if");
    write("large", &"x".repeat(MAX_TEMPLATE_BYTES + 1));
    write("largest", &"x".repeat(MAX_TEMPLATE_BYTES));
    let names = ["good", "bad", "open", "large", "largest", "gone"];
    let templates = Templates::read(dir.path(), names.into_iter());
    let (prompt_context, diagnosis) = (prompt_context(), diagnosis(Class::ErrorLoop));
    let facts = Facts {
        prompt: "go",
        prompt_context: &prompt_context,
        diagnosis: &diagnosis,
        last_output: "",
        artifacts: &[],
        node: "fix",
        iteration: 5,
    };
    let render = |name: &str| templates.render(Some(name), &facts);
    assert_eq!(render("good"), ("fix!".to_owned(), None));
    assert_eq!(render("largest").1, None);
    for (name, why) in [
        ("bad", "line 2"),
        ("open", "line 1"),
        ("large", "65536 bytes"),
        ("gone", "No such file"),
        ("other", "not read"),
    ] {
        let (prompt, trouble) = render(name);
        assert!(
            prompt.starts_with("go\n") && prompt.contains("repeated the same failing steps"),
            "{name}: {prompt}"
        );
        let Some(Input::TroubleMet { kind: "recovery_template", detail }) = trouble else { panic!("{name}") };
        assert!(
            detail.starts_with(&format!("recovery.template {name}: ")) && detail.contains(why),
            "{detail}"
        );
    }
}

#[test]
fn the_number_of_templates_of_a_run_is_limited() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("t"), "x").expect("writes");
    let names: Vec<String> = (0..=MAX_TEMPLATES).map(|n| format!("./{}t", "./".repeat(n))).collect();
    let templates = Templates::read(dir.path(), names.iter().map(String::as_str));
    let read = templates.texts.values().filter(|text| text.is_ok()).count();
    assert_eq!((templates.texts.len(), read), (MAX_TEMPLATES + 1, MAX_TEMPLATES));
}

#[test]
fn a_template_outside_of_the_loop_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let inside = dir.path().join("loop");
    std::fs::create_dir(&inside).expect("a directory");
    std::fs::write(dir.path().join("secret"), "x").expect("writes");
    std::fs::write(inside.join("good"), "x").expect("writes");
    std::os::unix::fs::symlink("../secret", inside.join("link")).expect("links");
    let outside = dir.path().join("secret").display().to_string();
    let templates = Templates::read(&inside, ["good", "../secret", "link", &outside].into_iter());
    for (name, text) in &templates.texts {
        assert_eq!(text.is_ok(), name == "good", "{name}: {text:?}");
    }
}
