//! Lines as the CLIs write them, shortened.

use super::*;
use dogwatch_core::record::windows::{Window, WindowName};
use dogwatch_core::time::moment::Wall;

const PARENT: &str = "01a1e198-1dda-7730-8986-27bb90dc0594";
const CHILD: &str = "01a1e198-2013-7222-93f7-5bf90a112f61";
const NOTHING: [usize; 0] = [];

fn log(name: ReaderName) -> SubagentLog {
    let env = |var: &str| (var == "HOME").then(|| "/h".to_owned());
    let mut log = SubagentLog::new(name, "/srv/my_project", env).expect("the agent has subagent logs");
    log.of_session(PARENT);
    log
}

/// Returns the indices of the lines that show work.
fn work(log: &mut SubagentLog, lines: &[String]) -> Vec<usize> {
    let mut reading = Reading::default();
    let did =
        |(_, line): &(usize, &String)| log.read(&mut reading, Line { bytes: line.as_bytes(), cut: false });
    lines.iter().enumerate().filter(did).map(|(n, _)| n).collect()
}

fn steps(log: &SubagentLog, path: &[&str]) -> Vec<Entry> {
    path.iter().enumerate().map(|(depth, name)| log.entry(depth, name)).collect()
}

fn rollout(id: &str, parent: &str) -> Vec<String> {
    let spawned = format!(r#"{{"subagent":{{"thread_spawn":{{"parent_thread_id":"{parent}","depth":1}}}}}}"#);
    [
        format!(r#"{{"timestamp":"t","type":"session_meta","payload":{{"session_id":"{parent}","id":"{id}","parent_thread_id":"{parent}","cwd":"/srv","source":{spawned}}}}}"#),
        r#"{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"what the parent said"}]}}"#.to_owned(),
        r#"{"type":"event_msg","payload":{"type":"task_started","turn_id":"1"}}"#.to_owned(),
        r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"list the files"}]}}"#.to_owned(),
        r#"{"type":"event_msg","payload":{"type":"item_completed","item":{"type":"UserMessage","id":"1"}}}"#.to_owned(),
        r#"{"type":"world_state","payload":{"full":true}}"#.to_owned(),
        r#"{"type":"turn_context","payload":{"cwd":"/srv"}}"#.to_owned(),
        r#"{"type":"response_item","payload":{"type":"message","status":"completed","role":"assistant","content":[]}}"#.to_owned(),
        r#"{"type":"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{}"}}"#.to_owned(),
        r#"{"type":"event_msg","payload":{"type":"token_count","info":{}}}"#.to_owned(),
        r#"{"type":"token_usage_record","payload":{"usage":{}}}"#.to_owned(),
        r#"{"type":"event_msg","payload":{"type":"item_completed","item":{"type":"CommandExecution","id":"2"}}}"#.to_owned(),
        r#"{"type":"response_item","payload":{"type":"function_call_output","output":"done"}}"#.to_owned(),
        r#"{"type":"event_msg","payload":{"type":"task_complete","last_agent_message":"three files"}}"#.to_owned(),
    ]
    .into()
}

#[test]
fn a_codex_subagent_works_from_its_own_first_turn_on() {
    assert_eq!(work(&mut log(ReaderName::Codex), &rollout(CHILD, PARENT)), [7, 8, 11, 12, 13]);
}

#[test]
fn only_codex_threads_of_the_session_are_its_subagents() {
    assert_eq!(work(&mut log(ReaderName::Codex), &rollout(CHILD, "another")), NOTHING);
    assert_eq!(work(&mut log(ReaderName::Codex), &rollout(PARENT, PARENT)), NOTHING);
    // Without its first line, the owner of a file is unknown.
    assert_eq!(work(&mut log(ReaderName::Codex), &rollout(CHILD, PARENT)[1..]), NOTHING);
}

/// When a report was made, and its windows: name, share and reset.
type Report = (Option<Wall>, Vec<(WindowName, f64, Option<i64>)>);

/// Returns the windows that the session's own file reports.
fn windows(lines: &[&str]) -> Option<Report> {
    let mut log = log(ReaderName::Codex);
    let mut reading = Reading::own();
    for line in lines {
        assert!(!log.read(&mut reading, Line { bytes: line.as_bytes(), cut: false }), "it is no subagent");
    }
    let mut signs = log.take_signs();
    assert!(signs.len() <= 1, "only the last report counts: {signs:?}");
    let Sign::Windows { seen_at, windows } = signs.pop()? else { panic!("not a report about windows") };
    let of = |w: &Window| (w.window, w.used_percent.value(), w.resets_at.map(|at| at.0));
    Some((seen_at, windows.iter().map(of).collect()))
}

#[test]
fn the_file_of_a_codex_session_reports_its_windows_by_their_length() {
    use WindowName::{FiveHour, SevenDay};
    let line = |limits: &str| {
        format!(
            r#"{{"timestamp":"2026-09-14T10:00:00Z","type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{{"input_tokens":1}}}},"rate_limits":{limits}}}}}"#
        )
    };
    let at = Wall::from_rfc3339("2026-09-14T10:00:00Z");
    let both = line(
        r#"{"limit_id":"codex","primary":{"used_percent":16.0,"window_minutes":300,"resets_at":1788465600},"secondary":{"used_percent":17.5,"window_minutes":10080,"resets_at":1789005600},"plan_type":"pro"}"#,
    );
    let week = line(
        r#"{"primary":{"used_percent":84,"window_minutes":10079,"resets_in_seconds":600},"secondary":null}"#,
    );
    let model = line(
        r#"{"limit_id":"of_one_model","primary":{"used_percent":99.0,"window_minutes":300,"resets_at":1788465600}}"#,
    );
    let found = vec![(FiveHour, 16.0, Some(1_788_465_600_000)), (SevenDay, 17.5, Some(1_789_005_600_000))];
    assert_eq!(windows(&[&both]), Some((at, found.clone())));
    assert_eq!(windows(&[&both, &model]), Some((at, found)), "another limit is ignored");
    let later = at.map(|at| at.0 + 600_000);
    assert_eq!(
        windows(&[&both, &week]),
        Some((at, vec![(SevenDay, 84.0, later)])),
        "its position says nothing"
    );
    for none in [
        "null",
        "{}",
        r#"{"primary":{"used_percent":5,"window_minutes":60}}"#,
        r#"{"primary":{"used_percent":5}}"#,
    ] {
        assert_eq!(windows(&[&line(none)]), None, "{none}");
    }
    assert_eq!(windows(&["\"token_count\"", r#"{"type":"token_count"}"#]), None);
}

#[test]
fn messages_and_tool_results_of_a_claude_subagent_are_work() {
    let side = format!(r#""isSidechain":true,"agentId":"a1","sessionId":"{PARENT}""#);
    let lines = [
        format!(r#"{{{side},"type":"user","message":{{"role":"user","content":"list the files"}}}}"#),
        format!(r#"{{{side},"attachment":{{"type":"environment"}},"type":"attachment"}}"#),
        format!(r#"{{"type":"api-request","sessionId":"{PARENT}","agentId":"a1"}}"#),
        format!(
            r#"{{"type":"api-request-blob","sessionId":"{PARENT}","message":{{"role":"user","content":[{{"type":"tool_result"}}]}}}}"#
        ),
        format!(
            r#"{{{side},"message":{{"role":"assistant","content":[{{"type":"text","text":"I list."}}]}},"type":"assistant"}}"#
        ),
        format!(
            r#"{{{side},"type":"user","message":{{"role":"user","content":[{{"tool_use_id":"t","type":"tool_result","content":"a"}}]}}}}"#
        ),
        r#"{"sessionId":"another","message":{"role":"assistant","content":[]},"type":"assistant"}"#
            .to_owned(),
    ];
    assert_eq!(work(&mut log(ReaderName::Claude), &lines), [4, 5]);
}

#[test]
fn messages_and_tool_results_of_a_gemini_subagent_are_work() {
    let lines = [
        r#"{"sessionId":"s","projectHash":"h","kind":"subagent"}"#,
        r#"{"id":"1","type":"user","content":[{"text":"list the files"}]}"#,
        r#"{"$set":{"lastUpdated":"2026-11-15T23:44:56.631Z"}}"#,
        r#"{"id":"2","type":"gemini","content":"I list.","tokens":{"input":1}}"#,
        r#"{"id":"2","type":"gemini","content":"I list.","toolCalls":[{"id":"c"}]}"#,
        r#"{"id":"3","type":"user","content":[{"functionResponse":{"id":"c","response":{}}}]}"#,
    ]
    .map(str::to_owned);
    assert_eq!(work(&mut log(ReaderName::Gemini), &lines), [3, 4, 5]);
}

#[test]
fn a_new_step_of_an_opencode_subagent_is_work() {
    let created = |id: &str, parent: &str| {
        format!(
            "timestamp=t level=INFO run=4 message=created id={id} slug=x directory=/srv path=\"\" parentID={parent} title=\"t\""
        )
    };
    let step =
        |id: &str, n: u64| format!("timestamp=t level=INFO run=4 message=loop session.id={id} step={n}");
    let stream = |id: &str| {
        format!(
            "timestamp=t level=INFO message=stream providerID=p session.id={id} small=false mode=subagent"
        )
    };
    let lines = [
        created("ses_other", "undefined"),
        step("ses_other", 3),
        created("ses_child", PARENT),
        step("ses_child", 0),
        stream("ses_child"),
        step("ses_child", 1),
        stream("ses_child"),
        stream("ses_child"),
        step("ses_child", 1),
        step(PARENT, 2),
        created("ses_grandchild", "ses_child"),
        step("ses_grandchild", 1),
        "timestamp=t level=INFO message=\"exiting loop\" session.id=ses_child".to_owned(),
    ];
    assert_eq!(work(&mut log(ReaderName::Opencode), &lines), [5, 11, 12]);
}

#[test]
fn only_files_of_the_session_are_found() {
    use Entry::{Dir, File, Newest, Nothing, Recent};
    let claude = log(ReaderName::Claude);
    assert_eq!(claude.root(), "/h/.claude");
    let way = ["projects", "-srv-my-project", PARENT, "subagents", "agent-a1.jsonl"];
    assert_eq!(steps(&claude, &way), [Dir, Dir, Dir, Dir, File]);
    let wrong = ["todos", "-srv-other", CHILD, "tool-results", "agent-a1.meta.json"];
    assert_eq!(steps(&claude, &wrong), [Nothing; 5]);

    let codex = log(ReaderName::Codex);
    let way = ["sessions", "2026", "11", "15", "rollout-2026-11-15T23-43-25-x.jsonl"];
    assert_eq!(steps(&codex, &way), [Dir, Newest, Newest, Newest, File]);
    assert_eq!(steps(&codex, &["log", "x", "111", "..", "history.jsonl"]), [Nothing; 5]);

    let gemini = log(ReaderName::Gemini);
    assert_eq!(
        steps(&gemini, &["tmp", "my-project", "chats", PARENT, "x.jsonl"]),
        [Dir, Recent, Dir, Dir, File]
    );
    assert_eq!(gemini.entry(3, "session-2026-11-15T23-44-61e8c149.jsonl"), Nothing);

    let opencode = log(ReaderName::Opencode);
    assert_eq!(opencode.root(), "/h/.local/share/opencode");
    assert_eq!(steps(&opencode, &["log", "opencode.log"]), [Dir, File]);
    assert_eq!(steps(&opencode, &["storage", "opencode.txt"]), [Nothing; 2]);
}

#[test]
fn an_invalid_or_unknown_session_id_has_no_logs() {
    let mut claude = log(ReaderName::Claude);
    for id in ["", "..", "a/b", "a b", "a\0b", &"x".repeat(129)] {
        claude.of_session(id);
        assert_eq!(claude.entry(0, "projects"), Entry::Nothing, "{id:?}");
    }
    assert!(SubagentLog::new(ReaderName::Plain, "/srv", |_| None).is_none());
    assert!(SubagentLog::new(ReaderName::Codex, "/srv", |_| None).is_none(), "without a home");
    assert!(SubagentLog::new(ReaderName::Codex, "/srv", |_| Some("here".into())).is_none());
}

#[test]
fn truncated_and_foreign_lines_are_not_work() {
    for name in [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini] {
        let mut log = log(name);
        let lines = [
            "",
            "{",
            "null",
            "[]",
            "\u{0}",
            r#"{"type":"assistant""#,
            " message=",
            "message=created id= parentID=",
        ];
        assert_eq!(work(&mut log, &lines.map(str::to_owned)), NOTHING, "{name}");
        let mut reading = Reading::default();
        assert!(!log.read(&mut reading, Line { bytes: b"\xff\xfe", cut: false }));
    }
}

#[test]
fn a_cut_line_counts_by_its_beginning() {
    let mut gemini = log(ReaderName::Gemini);
    let cut = Line { bytes: br#"{"id":"2","type":"gemini","content":"long text and"#, cut: true };
    assert!(gemini.read(&mut Reading::default(), cut));
}
