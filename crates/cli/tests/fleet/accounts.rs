//! What the workers of an account share: cap, priority, budgets of the day, and a refusal of the provider.

use crate::harbor::{ACCOUNT, Harbor, id, name};
use dogwatch_core::lease::JobState;
use dogwatch_core::time::moment::Wall;
use dogwatch_fleet::names::{self, JobId};
use dogwatch_fleet::record::Parked;
use dogwatch_fleet::setup::{self, Setup};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// A session of the reader `claude` that used 100 tokens and half a dollar.
const PAID: &str = r#"cat >/dev/null
echo '{"type":"system","subtype":"init","session_id":"s","tools":[],"model":"m"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.5,"usage":{"input_tokens":60,"output_tokens":40},"session_id":"s"}'
"#;

fn account(harbor: &Harbor) -> Value {
    let text = harbor.succeed(&["fleet", "account", ACCOUNT, "--json"]);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_cap_that_a_command_sets_limits_the_jobs_of_all_workers_together() {
    let mut harbor = Harbor::new(8);
    let text = harbor.succeed(&["fleet", "account", ACCOUNT, "--cap", "1"]);
    assert!(text.contains("cap       1 job at once"), "{text}");
    for job in ["one", "two", "three"] {
        harbor.submit(job, "s5");
    }
    harbor.start_worker("anna");
    harbor.start_worker("otto");
    let mut spans = Vec::new();
    for job in ["one", "two", "three"] {
        harbor.until_state(job, JobState::Done);
        harbor.assert_once(job);
        spans.extend(harbor.ticks(job).into_values().map(|(_, first, last, _)| (first, last)));
    }
    spans.sort_unstable();
    assert!(spans.len() == 3 && spans.windows(2).all(|pair| pair[0].1 < pair[1].0), "{spans:?}");
    let (code, text) = harbor.call(&["fleet", "account", "nobody", "--cap", "1"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("the fleet has no account nobody") && text.contains("help: "), "{text}");
}

/// Runs a loop of three paid iterations with a budget that the second one spends.
fn spends_its_budget(flag: &str, budget: &str) {
    let mut harbor = Harbor::new(8);
    harbor.add_script("paid", "reader: claude", PAID);
    harbor.succeed(&["fleet", "account", ACCOUNT, flag, budget]);
    harbor.start_worker("anna");
    let mut job = harbor.job("paid");
    job.iterations = Some(3);
    harbor.submit_job(&id("one"), &job);
    let limit = harbor.until_limit("the account is parked", |limit| limit.until.is_some());
    assert_eq!(limit.why, Some(Parked::Budget), "{}", harbor.logs());
    let day = 24 * 3600 * 1000;
    assert_eq!(limit.until.map(|until| until.0 % day), Some(0), "until midnight");
    // A job that arrives now waits.
    harbor.submit("two", "s5");
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains(", parked until ") && shown.contains("its budget of the day is spent"), "{shown}");
    let spent = account(&harbor)["micro_usd_today"].as_u64().expect("a number");
    assert!((1_000_000..=1_500_000).contains(&spent), "{spent}: {}", harbor.logs());
    assert_eq!(harbor.record("two").state, JobState::Queued);
    harbor.succeed(&["fleet", "account", ACCOUNT, flag, "off", "--unpark"]);
    for job in ["one", "two"] {
        let result = harbor.until_state(job, JobState::Done).result.expect("a result");
        assert_eq!(result.outcome, "clean", "{}", harbor.logs());
    }
    let spent = account(&harbor);
    assert_eq!((&spent["micro_usd_today"], &spent["tokens_today"]), (&1_500_000.into(), &300.into()));
}

#[test]
fn an_account_that_has_spent_its_dollars_is_parked_until_the_next_day() {
    spends_its_budget("--budget-usd", "0.9");
}

#[test]
fn an_account_that_has_used_its_tokens_is_parked_until_the_next_day() {
    spends_its_budget("--budget-tokens", "150");
}

/// Makes a fleet whose account has used 0.5 of 1.2 dollars, and whose sessions use 0.5 dollars each. An agent works until
/// `let_go` is called for its job.
fn with_a_small_rest() -> Harbor {
    let mut harbor = Harbor::new(8);
    let script = format!(
        "job=$(basename \"$(dirname \"$PWD\")\")\nmark() {{ echo \"$1 $job $$\" >>'{}'; }}\n\
         mark start\nwhile [ ! -e '{}'/go-$job ]; do mark tick; sleep 0.1; done\nmark end\n{PAID}",
        harbor.marks_file().display(),
        harbor.dir.path().display()
    );
    harbor.add_script("waits", "reader: claude", &script);
    harbor.succeed(&["fleet", "account", ACCOUNT, "--budget-usd", "1.2"]);
    harbor.start_worker("anna");
    let_go(&harbor, "zero");
    harbor.submit("zero", "waits");
    harbor.until_state("zero", JobState::Done);
    assert_eq!(account(&harbor)["micro_usd_today"], 500_000);
    harbor
}

fn let_go(harbor: &Harbor, job: &str) {
    std::fs::write(harbor.dir.path().join(format!("go-{}", id(job))), "").expect("written");
}

/// Waits until a worker says that the job waits for a share of the budget.
fn until_waits(harbor: &Harbor, worker: &str, job: &str) {
    harbor.until_presence(worker, "it has no share for the job", |here| {
        let mut refused = here.refuses.iter().filter(|refusal| refusal.job == id(job).to_string());
        refused.any(|refusal| refusal.why.contains("reserved the rest of the day's budget"))
    });
}

/// Starts a job on anna that holds the rest of the budget, and one that otto cannot start for that reason.
fn with_a_job_without_a_share() -> Harbor {
    let mut harbor = with_a_small_rest();
    harbor.submit("one", "waits");
    harbor.until_works("one", 1);
    harbor.start_worker("otto");
    harbor.submit("two", "waits");
    until_waits(&harbor, "otto", "two");
    harbor
}

#[test]
fn two_workers_do_not_spend_the_rest_of_a_budget_at_once() {
    let harbor = with_a_job_without_a_share();
    let text = harbor.succeed(&["fleet", "account", ACCOUNT]);
    assert!(text.contains("money     $0.50 today, $0.50 reserved, of $1.20"), "{text}");
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains("acme.two   queued"), "{shown}");
    let_go(&harbor, "two");
    let_go(&harbor, "one");
    let limit = harbor.until_limit("the account is parked", |limit| limit.until.is_some());
    assert_eq!(limit.why, Some(Parked::Budget));
    let last = |job: &str| harbor.ticks(job).into_values().map(|(_, _, last, _)| last).max();
    for job in ["one", "two"] {
        harbor.until_state(job, JobState::Done);
        harbor.assert_once(job);
    }
    let first = harbor.ticks("two").into_values().map(|(_, first, ..)| first).min();
    assert!(last("one") < first, "{:?} {first:?}", last("one"));
    assert_eq!(account(&harbor)["reserved"]["micro_usd"], 0);
    // With a larger budget both work at once: each agent waits until the other has started.
    harbor.succeed(&["fleet", "account", ACCOUNT, "--budget-usd", "100", "--unpark"]);
    for job in ["three", "four"] {
        harbor.submit(job, "waits");
    }
    harbor.until_marks("both work", || ["three", "four"].iter().all(|job| !harbor.ticks(job).is_empty()));
    for job in ["three", "four"] {
        let_go(&harbor, job);
        harbor.until_state(job, JobState::Done);
    }
}

#[test]
fn the_share_of_a_lost_worker_ends_with_its_lease() {
    let harbor = with_a_job_without_a_share();
    let_go(&harbor, "two");
    harbor.signal("anna", Signal::KILL);
    let record = harbor.until_owner("one", "otto");
    assert_eq!(record.epoch, 2);
    let_go(&harbor, "one");
    for job in ["one", "two"] {
        assert_eq!(harbor.until_state(job, JobState::Done).owner, "otto", "{}", harbor.logs());
        harbor.assert_once(job);
    }
    assert_eq!(account(&harbor)["reserved"]["micro_usd"], 0);
}

#[test]
fn the_session_of_a_lost_worker_is_charged_when_another_one_continues_the_job() {
    let mut harbor = Harbor::new(8);
    let step = |reason: &str| {
        format!(
            r#"echo '{{"type":"step_finish","sessionID":"s","part":{{"reason":"{reason}","tokens":{{"total":100}},"cost":0.5}}}}'"#
        )
    };
    let script = format!(
        "cat >/dev/null\n{}\njob=$(basename \"$(dirname \"$PWD\")\")\n\
         while [ ! -e '{}'/go-$job ]; do sleep 0.1; done\n{}\n",
        step("tool-calls"),
        harbor.dir.path().display(),
        step("stop")
    );
    harbor.add_script("steps", "reader: opencode", &script);
    harbor.start_worker("anna");
    harbor.submit("one", "steps");
    harbor.until_journal("one", "a report of usage", |text| text.contains("\"event\":\"used\""));
    harbor.start_worker("otto");
    harbor.signal("anna", Signal::KILL);
    harbor.until_owner("one", "otto");
    let_go(&harbor, "one");
    harbor.until_state("one", JobState::Done);
    // One step of the lost session and both of the next one.
    let spent = account(&harbor);
    let figures = (&spent["micro_usd_today"], &spent["tokens_today"]);
    assert_eq!(figures, (&1_500_000.into(), &300.into()), "{}", harbor.logs());
}

#[test]
fn a_refusal_of_the_provider_parks_the_account_on_all_workers_and_is_shown() {
    let mut harbor = Harbor::new(8);
    // The first session is refused for an hour; the next one works.
    let marks = harbor.marks_file();
    let resets = std::time::SystemTime::now() + Duration::from_secs(3600);
    let resets = resets.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let script = format!(
        "cat >/dev/null\nif [ -e ../refused ]; then\necho 'start acme.'$(basename $(dirname $PWD)) >/dev/null\n{PAID}exit 0\nfi\n\
         touch ../refused\necho refused >>'{}'\n\
         echo '{{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\",\"tools\":[],\"model\":\"m\"}}'\n\
         echo '{{\"type\":\"rate_limit_event\",\"rate_limit_info\":{{\"status\":\"rejected\",\"resetsAt\":{resets},\"rateLimitType\":\"five_hour\"}},\"session_id\":\"s\"}}'\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"api_error_status\":429,\"result\":\"You have hit your limit\",\"session_id\":\"s\"}}'\nexit 1\n",
        marks.display()
    );
    harbor.add_script("limited", "reader: claude", &script);
    harbor.start_worker("anna");
    harbor.start_worker("otto");
    harbor.submit("one", "limited");
    let limit = harbor.until_limit("the account is parked", |limit| limit.until.is_some());
    assert_eq!(limit.why, Some(Parked::RateLimit), "{}", harbor.logs());
    assert_eq!(limit.until, Some(Wall(i64::try_from(resets + 15).expect("a time") * 1000)));
    let owner = harbor.record("one").owner;
    assert_eq!(limit.by.map(|by| by.to_string()), Some(owner.clone()));
    harbor.submit("two", "s5");
    let shown = harbor.succeed(&["fleet", "ls"]);
    assert!(shown.contains(&format!("the provider refused {owner}")), "{shown}");
    // The queue delivers nothing while it is parked, so the job cannot start now or later.
    let queue = harbor.block_on(|client| async move {
        client.api(&format!("CONSUMER.INFO.{}.{ACCOUNT}", names::JOBS), &serde_json::json!({})).await
    });
    let queue = queue.expect("the queue");
    assert_eq!((&queue["paused"], &queue["num_pending"]), (&true.into(), &1.into()));
    assert_eq!(harbor.record("two").state, JobState::Queued);
    harbor.succeed(&["fleet", "account", ACCOUNT, "--unpark"]);
    for job in ["one", "two"] {
        let result = harbor.until_state(job, JobState::Done).result.expect("a result");
        assert_eq!(result.outcome, "clean", "{}", harbor.logs());
    }
}

#[test]
fn a_worker_of_two_accounts_serves_the_one_with_the_higher_priority_first() {
    let mut harbor = Harbor::new(8);
    let setup = Setup { replicas: 1, ack_wait: Duration::from_secs(2) };
    harbor.block_on(|client| async move {
        setup::account(&client, &name("corp"), 8, setup).await.expect("a queue");
    });
    let text = harbor.succeed(&["fleet", "account", "corp", "--priority", "5"]);
    assert!(text.contains("priority  5"), "{text}");
    let corp = |job: &str| JobId { account: name("corp"), job: name(job) };
    for job in ["a1", "a2", "a3"] {
        harbor.submit(job, "s5");
    }
    for job in ["c1", "c2", "c3"] {
        let document = dogwatch_fleet::record::Job { account: name("corp"), ..harbor.job("s5") };
        harbor.submit_job(&corp(job), &document);
    }
    let line = format!("{},corp", harbor.join("anna"));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    harbor.start_worker_by("anna", &line, &[], &mut command);
    for job in ["a1", "a2", "a3"] {
        harbor.until_state(job, JobState::Done);
    }
    let started =
        |id: &JobId| harbor.ticks_of(id).into_values().map(|(_, first, ..)| first).max().expect("an agent");
    let last_corp = ["c1", "c2", "c3"].map(|job| started(&corp(job))).into_iter().max().expect("three jobs");
    // The worker may take one job before it has read the priorities.
    let before = ["a1", "a2", "a3"].iter().filter(|job| started(&id(job)) < last_corp).count();
    assert!(before <= 1, "{before} jobs of the lower priority started first");
}
