//! Servers behind the proxy: tool lists, time limits, and isolation of misbehaving servers.
use crate::support;

use serde_json::json;
use std::time::{Duration, Instant};
use support::{Agent, runtime, server, tool_result};

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(400);

#[test]
fn tools_of_other_servers_are_listed_and_callable() {
    runtime().block_on(async {
        let mut agent =
            Agent::start(vec![server("a", "good", MINUTE), server("b", "good", MINUTE)], &[]).await;
        let tools = agent.tools().await;
        for name in ["report_state", "check_done", "echo", "b_echo", "a_heartbeat", "b_heartbeat", "b_hang"] {
            assert!(tools.iter().any(|t| t == name), "{name} in {tools:?}");
        }
        let answer = agent.call("b_echo", json!({"text": "hello"})).await;
        assert_eq!(tool_result(&answer), ("hello".to_owned(), false));
        assert!(agent.log("b").contains(r#""name":"echo""#), "the server is called with its own tool name");
        // dogwatch's tool keeps its name.
        assert_eq!(
            tool_result(&agent.call("heartbeat", json!({})).await).0,
            "Alive. This does not count as progress."
        );
        for phase in ["start", "end"] {
            agent.run.wait_for(|s| s["say"] == "call" && s["server"] == "b" && s["phase"] == phase).await;
        }
        assert!(agent.run.keys.lock().unwrap().iter().all(|key| key == "Bearer key"));
    });
}

#[test]
fn descriptions_of_other_servers_lose_control_and_hidden_characters() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("a", "good", MINUTE)], &[]).await;
        let listed = agent.ask("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        let echo = tools.iter().find(|tool| tool["name"] == "echo").unwrap();
        assert_eq!(echo["description"], "echo\u{fffd}\u{fffd}\u{fffd}");
    });
}

#[test]
fn a_hanging_call_times_out_and_repeated_timeouts_restart_the_server() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("slow", "good", SHORT)], &[]).await;
        agent.tools().await;
        for (nth, more) in [(1, ""), (2, "; the server will be restarted after 2 timeouts in a row")] {
            let began = Instant::now();
            let (text, failed) = tool_result(&agent.call("hang", json!({})).await);
            assert!(failed);
            assert_eq!(text, format!("server `slow`: `hang` did not answer within its limit of 0.4 s{more}"));
            assert!(began.elapsed() >= SHORT && began.elapsed() < MINUTE, "{:?}", began.elapsed());
            assert_eq!(agent.log("slow").matches("started").count(), 1, "{nth}");
        }
        assert_eq!(tool_result(&agent.call("echo", json!({"text": "new"})).await), ("new".to_owned(), false));
        assert_eq!(agent.log("slow").matches("started").count(), 2);
        assert!(agent.log("slow").contains("notifications/cancelled"), "the server is notified");
        agent.run.wait_for(|s| s["say"] == "call" && s["phase"] == "timed_out").await;
    });
}

#[test]
fn a_tool_can_have_its_own_timeout() {
    runtime().block_on(async {
        let mut plan = server("s", "good", SHORT);
        plan.tools = vec![("late".to_owned(), dogwatch_core::time::dur::Dur::from_secs(60))];
        let mut agent = Agent::start(vec![plan], &[]).await;
        agent.tools().await;
        assert_eq!(
            tool_result(&agent.call("late", json!({"after": "0.8"})).await),
            ("late".to_owned(), false)
        );
    });
}

#[test]
fn a_late_response_is_dropped() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("s", "good", SHORT)], &[]).await;
        agent.tools().await;
        assert!(tool_result(&agent.call("late", json!({"after": "0.6"})).await).1);
        for n in 0..20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let text = n.to_string();
            assert_eq!(tool_result(&agent.call("echo", json!({"text": text})).await), (text, false));
        }
    });
}

#[test]
fn a_server_that_dies_during_a_call_is_restarted() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("s", "good", MINUTE)], &[]).await;
        agent.tools().await;
        let (text, failed) = tool_result(&agent.call("die", json!({})).await);
        assert!(failed && text.starts_with("server `s` has exited"), "{text}");
        assert_eq!(
            tool_result(&agent.call("echo", json!({"text": "back"})).await),
            ("back".to_owned(), false)
        );
        agent.run.wait_for(|s| s["say"] == "server_trouble").await;
    });
}

#[test]
fn broken_servers_do_not_affect_the_others() {
    runtime().block_on(async {
        let bad = ["dies", "garbage", "endless"].map(|mode| server(mode, mode, MINUTE));
        let servers =
            bad.into_iter().chain([server("good", "good", MINUTE), server("chatty", "chatty", MINUTE)]);
        let mut agent = Agent::start(servers.collect(), &[]).await;
        let began = Instant::now();
        let tools = agent.tools().await;
        assert!(began.elapsed() < MINUTE, "{:?}", began.elapsed());
        assert!(tools.iter().any(|t| t == "echo") && tools.iter().any(|t| t == "chatty_echo"), "{tools:?}");
        assert_eq!(tool_result(&agent.call("echo", json!({"text": "x"})).await), ("x".to_owned(), false));
        agent.run.wait_for(|s| s["say"] == "server_trouble" && s["server"] == "dies").await;
        let text = agent.run.requests().iter().find(|s| s["server"] == "dies").unwrap()["text"].clone();
        assert!(text.as_str().unwrap().contains("no such database"), "{text}");
    });
}

#[test]
fn a_server_that_never_answers_initialize_does_not_delay_the_tool_list() {
    runtime().block_on(async {
        let mut agent =
            Agent::start(vec![server("mute", "silent", MINUTE), server("good", "good", MINUTE)], &[]).await;
        let began = Instant::now();
        let tools = agent.tools().await;
        let limit = dogwatch_mcp::limits::LIST_LIMIT;
        assert!(began.elapsed() < limit + Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(tools.iter().any(|t| t == "echo"), "{tools:?}");
    });
}

#[test]
fn a_flooding_server_is_throttled_and_still_answers() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("f", "flood", MINUTE)], &[]).await;
        agent.tools().await;
        assert_eq!(tool_result(&agent.call("echo", json!({"text": "dry"})).await), ("dry".to_owned(), false));
    });
}

#[test]
fn progress_reaches_the_caller_before_the_result() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("s", "good", MINUTE)], &[]).await;
        agent.tools().await;
        // Repeat this: clients drop progress that arrives after the result, and the order was once random.
        for n in 0..50 {
            let mine = format!("mine {n}");
            let call = json!({"name": "progress", "arguments": {}, "_meta": {"progressToken": mine}});
            let answer = agent.ask("tools/call", call).await;
            assert_eq!(tool_result(&answer), ("done".to_owned(), false));
            let progress: Vec<_> = agent.notes.drain(..).map(|note| note["params"].clone()).collect();
            let [note] = &progress[..] else {
                panic!("expected one notification before the result: {progress:?}")
            };
            assert_eq!((&note["progressToken"], &note["message"]), (&json!(mine), &json!("half")));
        }
        agent.run.wait_for(|s| s["say"] == "call" && s["phase"] == "progress").await;
    });
}

#[test]
fn cancellation_is_forwarded_to_the_server() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("s", "good", MINUTE)], &[]).await;
        agent.tools().await;
        let id = agent.send("tools/call", json!({"name": "hang", "arguments": {}})).await;
        agent.run.wait_for(|s| s["say"] == "call" && s["phase"] == "start").await;
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        agent.put(&cancel.to_string()).await;
        agent.run.wait_for(|s| s["say"] == "call" && s["phase"] == "end").await;
        let until = Instant::now() + MINUTE;
        while !agent.log("s").contains("notifications/cancelled") && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(agent.log("s").contains("notifications/cancelled"));
    });
}

/// The benchmark measures how long a call takes.
#[test]
fn each_call_through_the_proxy_is_one_call_of_the_server() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("s", "good", MINUTE)], &[]).await;
        agent.tools().await;
        for n in 0..20 {
            assert!(!tool_result(&agent.call("echo", json!({"text": n.to_string()})).await).1);
        }
        assert_eq!(agent.log("s").matches("tools/call").count(), 20);
    });
}

#[test]
fn server_errors_are_passed_to_the_agent() {
    runtime().block_on(async {
        let mut agent = Agent::start(vec![server("s", "good", MINUTE)], &[]).await;
        agent.tools().await;
        assert_eq!(
            tool_result(&agent.call("refuse", json!({})).await),
            ("server `s`: not today".to_owned(), true)
        );
    });
}
