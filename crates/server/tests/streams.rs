//! Following events, many clients at once, and shutting down while they are connected.

use crate::support;

use dogwatch_server::{Client, Limits, SseEvent};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use support::{PATIENCE, Rig, head, notice, observed, run_ended};

const FOLLOW: &str = "GET /v1/events HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n";

fn ids(events: &[SseEvent]) -> Vec<u64> {
    events.iter().map(|e| e.id.expect("has a number")).collect()
}

#[test]
fn a_stream_carries_past_and_new_events_until_the_run_ends() {
    let mut rig = Rig::new();
    rig.write(notice("before"));
    let mut stream = rig.client().stream("/v1/events").expect("streams");
    let mut next = || stream.next().map(|e| e.expect("reads"));
    assert_eq!(next().expect("the first").event, "run_started");
    assert_eq!(next().expect("the second").id, Some(2));
    rig.write(observed());
    rig.write(notice("after"));
    let live = next().expect("live");
    assert_eq!((live.id, live.event.as_str()), (Some(4), "notice"));
    let journal = std::fs::read_to_string(rig.dir.path().join("events.jsonl")).expect("reads");
    assert_eq!(Some(live.data.as_str()), journal.lines().nth(3));
    rig.write(run_ended());
    assert_eq!(next().expect("the last").event, "run_ended");
    assert_eq!(next(), None);
}

#[test]
fn a_resumed_run_is_followed_beyond_its_first_end() {
    let mut rig = Rig::new();
    rig.write(run_ended());
    rig.write(notice("taken up again"));
    let mut stream = rig.client().stream("/v1/events?after=1").expect("streams");
    assert_eq!(stream.next().expect("an event").expect("reads").event, "run_ended");
    assert_eq!(stream.next().expect("an event").expect("reads").id, Some(3));
    rig.write(run_ended());
    assert_eq!(stream.map(|e| e.expect("reads").id).collect::<Vec<_>>(), [Some(4)]);
}

#[test]
fn last_event_id_resumes_a_stream() {
    let mut rig = Rig::new();
    rig.write_notices(20, 10);
    rig.write(run_ended());
    let first: Vec<SseEvent> =
        rig.client().stream("/v1/events").expect("streams").take(7).map(|e| e.expect("reads")).collect();
    assert_eq!(ids(&first), (1..=7).collect::<Vec<_>>());
    let answer = rig.send(
        "GET /v1/events?after=2 HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\
         connection: close\r\nlast-event-id: 7\r\n\r\n",
    );
    let seen: Vec<&str> = answer.lines().filter_map(|l| l.strip_prefix("id: ")).collect();
    assert_eq!(seen, (8..=22).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(answer.contains("content-type: text/event-stream\r\n"), "{answer}");
}

#[test]
fn observations_are_sent_only_on_request() {
    let mut rig = Rig::new();
    rig.write(observed());
    rig.write(run_ended());
    let all = |path: &str| {
        let events = rig.client().stream(path).expect("streams").map(|e| e.expect("reads"));
        ids(&events.collect::<Vec<_>>())
    };
    assert_eq!(all("/v1/events"), [1, 3]);
    assert_eq!(all("/v1/events?observed=true"), [1, 2, 3]);
}

#[test]
fn sentences_are_added_only_on_request() {
    let mut rig = Rig::new();
    rig.write(observed());
    rig.write(notice("a \"quoted\" word"));
    rig.write(run_ended());
    let all = |path: &str| -> Vec<serde_json::Value> {
        let events = rig.client().stream(path).expect("streams").map(|e| e.expect("reads").data);
        events.map(|data| serde_json::from_str(&data).expect("JSON")).collect()
    };
    assert!(all("/v1/events?observed=true").iter().all(|e| e.get("sentence").is_none()));
    let with = all("/v1/events?observed=true&sentences=true");
    assert_eq!(with[1].get("sentence"), None, "an observation is too frequent");
    let text = with[2]["message"].as_str().expect("a message");
    assert!(with[2]["sentence"].as_str().is_some_and(|s| s.starts_with(text)), "{}", with[2]);
    assert!(with[3]["sentence"].as_str().is_some_and(|s| s.starts_with("run ended: ")), "{}", with[3]);
}

#[test]
fn a_client_that_does_not_read_blocks_no_other_and_misses_nothing() {
    let mut rig = Rig::new();
    let mut slow = rig.raw();
    slow.write_all(FOLLOW.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes()).expect("writes");
    // Far more than a socket buffer holds.
    rig.write_notices(400, 20_000);
    rig.write(run_ended());
    let quick = rig.client().stream("/v1/events").expect("streams");
    assert_eq!(quick.filter(Result::is_ok).count(), 402);
    assert_eq!(rig.client().get("/v1/status").expect("answers").status, 200);
    let mut late = String::new();
    slow.read_to_string(&mut late).expect("reads to the end");
    let seen: Vec<&str> = late.lines().filter_map(|l| l.strip_prefix("id: ")).collect();
    assert_eq!(seen, (1..=402).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn clients_beyond_the_connection_limit_are_rejected() {
    let rig = Rig::new();
    let open: Vec<UnixStream> = (0..100).map(|_| rig.raw()).collect();
    let (mut served, mut refused) = (0, 0);
    for stream in &open {
        // A rejected connection may be closed already.
        let _ = { stream }.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n");
        match &head(stream)[..13] {
            "HTTP/1.1 200 " => served += 1,
            "HTTP/1.1 503 " => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((served, refused), (64, 36));
    let full = rig.client().get("/v1/status").expect("answers");
    assert_eq!(full.message(), "too many callers at once");
    drop(open);
    let room =
        |_| Client::connect(&rig.socket).and_then(|mut c| c.get("/v1/status")).is_ok_and(|r| r.is_ok());
    assert!((0..10_000).any(room), "connection permits are released");
}

#[test]
fn followers_leave_room_for_control_requests() {
    let rig = Rig::new();
    let streams: Vec<_> =
        (0..Limits::default().streams).map(|_| rig.client().stream("/v1/events").expect("streams")).collect();
    let error = rig.client().stream("/v1/events").err().expect("refused");
    assert_eq!(error.to_string(), "too many clients follow the events");
    assert_eq!(rig.client().post("/v1/stop", &serde_json::json!({})).expect("answers").status, 202);
    drop(streams);
    assert!((0..10_000).any(|_| rig.client().stream("/v1/events").is_ok()), "stream permits are released");
}

#[test]
fn shutting_down_ends_every_stream_within_a_second() {
    let mut rig = Rig::new();
    let mut reading = rig.client().stream("/v1/events").expect("streams");
    assert_eq!(reading.next().expect("an event").expect("reads").id, Some(1));
    let followers: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = rig.raw();
            stream.write_all(FOLLOW.as_bytes()).expect("writes");
            assert!(head(&stream).starts_with("HTTP/1.1 200 "));
            stream
        })
        .collect();
    let _silent: Vec<_> = (0..20).map(|_| rig.raw()).collect();
    rig.write_notices(400, 20_000);
    let began = Instant::now();
    rig.served.take().expect("is served").shut_down();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(!rig.socket.exists());
    // The connections are closed, whatever was left in them.
    for mut stream in followers {
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

#[test]
fn a_stream_carries_the_last_events_before_shutdown() {
    let mut rig = Rig::new();
    let stream = rig.client().stream("/v1/events").expect("streams");
    rig.write_notices(50, 100);
    rig.write(run_ended());
    rig.served.take().expect("is served").shut_down();
    let events: Vec<SseEvent> = stream.map(|e| e.expect("reads")).collect();
    assert_eq!(ids(&events), (1..=52).collect::<Vec<_>>());
}

#[test]
fn a_driver_that_never_answers_does_not_delay_shutdown() {
    struct Deaf(support::FakeRunHandle);
    impl dogwatch_server::RunHandle for Deaf {
        fn view(&self) -> Option<dogwatch_core::record::view::View> {
            std::thread::park_timeout(PATIENCE);
            None
        }
        fn ask(&self, request: dogwatch_server::Request) -> Result<(), dogwatch_server::BusyError> {
            self.0.ask(request)
        }
        fn changed(&self) -> dogwatch_server::watch::Receiver<u64> {
            self.0.changed()
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dogwatch_server::socket_path(dir.path());
    let handle = std::sync::Arc::new(Deaf(support::FakeRunHandle {
        view: Default::default(),
        asked: Default::default(),
        busy: Default::default(),
        written: dogwatch_server::watch::Sender::new(0),
    }));
    let served = dogwatch_server::serve(socket.clone(), dir.path().to_owned(), handle).expect("serves");
    let mut waiting = UnixStream::connect(&socket).expect("connects");
    waiting.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n").expect("writes");
    let mut client = Client::connect(&socket).expect("connects");
    assert_eq!(client.post("/v1/wake", &serde_json::json!({})).expect("answers").status, 202);
    let began = Instant::now();
    served.shut_down();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let rig = Rig::new();
    let stale = rig.dir.path().join("stale");
    std::fs::create_dir(&stale).expect("makes it");
    let socket = dogwatch_server::socket_path(&stale);
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("binds"));
    assert!(Client::connect(&socket).is_err());
    let served =
        dogwatch_server::serve(socket.clone(), stale.clone(), rig.handle.clone()).expect("replaces it");
    assert_eq!(Client::connect(&socket).expect("connects").get("/v1/status").expect("answers").status, 200);
    let twice = dogwatch_server::serve(socket.clone(), stale, rig.handle.clone());
    assert_eq!(twice.err().expect("refused").kind(), std::io::ErrorKind::AddrInUse);
    drop(served);
    assert!(Client::connect(&socket).is_err());
}
