//! The operator's requests to jobs, schedules, and jobs that no worker runs.

use crate::harbor::{ACCOUNT, Harbor, git, id};
use dogwatch_core::lease::JobState;
use dogwatch_fleet::client::From;
use dogwatch_fleet::names;
use serde_json::Value;

/// Returns the journal of a job, as the server has it.
pub fn journal(harbor: &Harbor, job: &str) -> String {
    let pieces = harbor.block_on(|client| async move {
        client.read(names::EVENTS, &id(job).events_subject(), From::First).await
    });
    let pieces = pieces.expect("pieces");
    pieces.iter().map(|piece| String::from_utf8_lossy(&piece.payload).into_owned()).collect()
}

#[test]
fn a_job_is_paused_told_resumed_and_stopped_by_commands_on_another_machine() {
    let mut harbor = Harbor::new(8);
    let prompts = harbor.dir.path().join("prompts");
    let script = format!(
        "cat >>'{}'\necho tick acme.one $$ 1 >>'{}'\nsleep 0.2\n",
        prompts.display(),
        harbor.marks_file().display()
    );
    harbor.add_script("many", "", &script);
    harbor.start_worker("anna");
    let mut job = harbor.job("many");
    job.iterations = None;
    harbor.submit_job(&id("one"), &job);
    harbor.until_works("one", 1);
    let paused = harbor.succeed(&["fleet", "pause", "acme.one"]);
    assert_eq!(paused, "acme.one: paused: no new iteration starts\n");
    harbor.until_journal("one", "a pause", |text| text.contains(r#""why":"paused""#));
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains("job     acme.one  paused  anna  run "), "{shown}");
    let told = harbor.succeed(&["fleet", "tell", "acme.one", "look at the parser"]);
    assert_eq!(told, "acme.one: the agent gets the message with its next prompt\n");
    assert_eq!(harbor.succeed(&["fleet", "resume", "acme.one"]), "acme.one: resumed\n");
    harbor.until_marks("the agent reads the message", || {
        std::fs::read_to_string(&prompts).unwrap_or_default().contains("look at the parser")
    });
    harbor.succeed(&["fleet", "stop", "acme.one"]);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "stopped", "{}", harbor.logs());
    let (code, text) = harbor.call(&["fleet", "wake", "acme.one"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("acme.one is over (stopped)") && text.contains("help: "), "{text}");
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains("job     acme.one  stopped  anna  run "), "{shown}");
    let (code, text) = harbor.call(&["fleet", "stop", "one"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("expected ACCOUNT.JOB") && text.contains("did you mean acme.one?"), "{text}");
    let (code, text) = harbor.call(&["fleet", "wake", "acme.two"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("job acme.two does not exist"), "{text}");
}

#[test]
fn a_wait_of_a_remote_run_ends_with_a_wake() {
    let mut harbor = Harbor::new(8);
    harbor.add_loop("slow", "agent: sh work/agent.sh 2\ndelay: 1h");
    harbor.push_loops();
    harbor.start_worker("anna");
    let mut job = harbor.job("slow");
    job.iterations = Some(2);
    harbor.submit_job(&id("one"), &job);
    harbor.until_journal("one", "a wait", |text| text.contains("wait_started"));
    harbor.succeed(&["fleet", "wake", "acme.one"]);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "clean", "{}", harbor.logs());
    assert_eq!(harbor.ticks("one").len(), 2);
}

#[test]
fn a_queued_job_that_is_stopped_never_runs() {
    let mut harbor = Harbor::new(8);
    harbor.submit("one", "s5");
    let text = harbor.succeed(&["fleet", "stop", "acme.one"]);
    assert!(text.contains("no worker runs it now"), "{text}");
    harbor.start_worker("anna");
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "stopped");
    assert_eq!(harbor.ticks("one").len(), 0);
}

#[test]
fn a_schedule_queues_a_job_again_and_again_until_it_is_removed() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    let repo = harbor.repository();
    let repo = repo.to_str().expect("a path of text");
    let every = ["--every", "@every 1s", "--name", "tick", "-n", "1"];
    let queued =
        harbor.succeed(&[&["submit", "s5", "--account", ACCOUNT, "--repo", repo][..], &every].concat());
    assert!(queued.contains("queued acme.tick") && queued.contains("@every 1s"), "{queued}");
    let done = harbor.until_jobs("two jobs of the schedule are done", |all| {
        let done = all
            .iter()
            .filter(|(id, record)| id.job.as_str().starts_with("tick-") && record.state == JobState::Done);
        let done: Vec<String> = done.map(|(id, _)| id.job.to_string()).collect();
        (done.len() >= 2).then_some(done)
    });
    for job in &done {
        harbor.assert_once(job);
    }
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains("every   acme.tick  @every 1s"), "{shown}");
    harbor.succeed(&["fleet", "unschedule", "acme.tick"]);
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(!shown.contains("every   acme.tick"), "{shown}");
    let (code, text) = harbor.call(&["fleet", "unschedule", "acme.tick"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("schedule acme.tick does not exist"), "{text}");
    let bad = ["submit", "s5", "--account", ACCOUNT, "--repo", repo, "--every", "sometimes"];
    let (code, text) = harbor.call(&bad);
    assert_eq!(code, Some(2));
    assert!(text.contains("help: "), "{text}");
}

#[test]
fn a_job_that_no_worker_runs_is_shown_with_the_reason_and_waits() {
    let mut harbor = Harbor::new(8);
    let job = harbor.job("s5");
    let with = |needs: &[&str], min_version: Option<&str>| dogwatch_fleet::record::Job {
        needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        min_version: min_version.map(str::to_owned),
        ..job.clone()
    };
    harbor.submit_job(&id("label"), &with(&["gpu"], None));
    harbor.submit_job(&id("version"), &with(&[], Some("99.0")));
    harbor.submit("agent", "s5");
    let other = harbor.dir.path().join("tree").display().to_string();
    harbor.submit_job(&id("repo"), &dogwatch_fleet::record::Job { repo: other, ..job.clone() });
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains("(no worker of account acme is present)"), "{shown}");
    let allowed = ["--allow-repo", job.repo.as_str(), "--allow-agent", "claude"];
    harbor.start_worker_at("anna", harbor.port(), &allowed);
    let waiting = |job: &str| -> Option<String> {
        let text = harbor.succeed(&["fleet", "ls", "--json"]);
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let jobs = all["jobs"].as_array().expect("jobs").clone();
        let found = jobs.into_iter().find(|found| found["job"] == format!("acme.{job}")).expect("the job");
        found["waiting"].as_str().map(str::to_owned)
    };
    // The presence of a worker is written after its refusals.
    harbor.until_presence("anna", "four refusals", |here| here.refuses.len() == 4);
    for (job, why) in [
        ("label", "no worker runs it: anna: it needs the label gpu"),
        ("version", "no worker runs it: anna: it needs dogwatch 99.0 or newer"),
        ("agent", "no worker runs it: anna: the agent `sh` is not allowed"),
        ("repo", "no worker runs it: anna: its repository is not allowed"),
    ] {
        assert_eq!(waiting(job).as_deref(), Some(why), "{}", harbor.logs());
    }
    // A worker that may run them takes what it can.
    harbor.start_worker_at("otto", harbor.port(), &["--label", "gpu", "--allow-agent", "sh"]);
    for job in ["label", "agent", "repo"] {
        let record = harbor.until_state(job, JobState::Done);
        assert_eq!(record.owner, "otto", "{}", harbor.logs());
        assert_eq!(record.result.expect("a result").outcome, "clean");
        harbor.assert_once(job);
    }
    assert_eq!(harbor.record("version").state, JobState::Queued);
    assert_eq!(harbor.record("version").epoch, 0);
}

#[test]
fn a_stopped_job_that_every_worker_refuses_gives_its_place_to_the_next_job() {
    let mut harbor = Harbor::new(1);
    let needs = vec!["gpu".to_owned()];
    harbor.submit_job(&id("gpu"), &dogwatch_fleet::record::Job { needs, ..harbor.job("s5") });
    harbor.start_worker("anna");
    harbor.until_presence("anna", "a refusal", |here| here.refuses.len() == 1);
    harbor.submit("next", "s5");
    harbor.succeed(&["fleet", "stop", "acme.gpu"]);
    let record = harbor.until_state("gpu", JobState::Done);
    assert_eq!((record.epoch, record.result.expect("a result").outcome.as_str()), (0, "stopped"));
    harbor.until_state("next", JobState::Done);
    harbor.assert_once("next");
}

#[test]
fn a_bundle_of_a_refused_push_is_saved_by_a_command() {
    let mut harbor = Harbor::new(8);
    harbor.refuse_pushes(true);
    harbor.start_worker("anna");
    harbor.submit("one", "s5");
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    let commit = result.commit.expect("a commit");
    let file = harbor.dir.path().join("one.bundle");
    let file = file.to_str().expect("a path of text");
    harbor.succeed(&["fleet", "bundle", "acme.one", "-o", file]);
    let tree = harbor.dir.path().join("tree");
    git(&tree, &["fetch", "--quiet", file, "refs/dogwatch/bundle"]);
    assert_eq!(git(&tree, &["rev-parse", "FETCH_HEAD"]).trim(), commit);
    assert_eq!(git(&tree, &["show", "FETCH_HEAD:result.txt"]), "done\n");
    assert!(journal(&harbor, "one").contains("run_ended"));
}

#[test]
fn a_drain_of_an_unknown_worker_is_refused_and_a_known_one_is_drained_until_it_is_undone() {
    let mut harbor = Harbor::new(8);
    for args in [&["fleet", "drain", "nosuch"][..], &["fleet", "drain", "nosuch", "--undo"]] {
        let (code, text) = harbor.call(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("worker `nosuch` does not exist") && text.contains("help: "), "{text}");
    }
    harbor.start_worker("anna");
    harbor.until_presence("anna", "is present", |_| true);
    let drained = harbor.succeed(&["fleet", "drain", "anna"]);
    assert!(drained.contains("gives its jobs back and ends"), "{drained}");
    assert!(harbor.wait("anna").success());
    let undone = harbor.succeed(&["fleet", "drain", "anna", "--undo"]);
    assert!(undone.contains("may take jobs again"), "{undone}");
}

#[test]
fn a_job_that_no_worker_can_run_is_listed_as_refused_with_the_reason_that_its_worker_prints() {
    let mut harbor = Harbor::new(8);
    harbor.start_worker("anna");
    harbor.submit("one", "nowhere");
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "refused");
    let why = result.detail.expect("a reason");
    harbor.until_says("anna", &format!("acme.one: refused: {why}"));
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains("job     acme.one  refused  anna  "), "{shown}");
    assert!(shown.contains(&format!("({why})")), "{shown}");
}
