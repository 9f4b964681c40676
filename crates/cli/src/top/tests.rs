//! Feeds inputs to the model and checks the acts and the screen.

use super::draw::{Look, draw};
use super::keys::Key;
use super::model::{Act, Input, Known, MAX_ROWS, Order, Top};
use dogwatch_core::record::event::{
    Event, Observation, Outcome, Recorded, RunEnded, RunStarted, WaitEndedBy, WaitWhy,
};
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use dogwatch_core::run::caller::Source;
use dogwatch_core::settings::{NodePlan, Plan, ReaderName, Settings};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Skew;
use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};
use dogwatch_core::watch::{Channel, Evidence, StopReason};
use dogwatch_host::store::registry::Origin;
use ratatui_core::backend::TestBackend;
use ratatui_core::style::Color;
use ratatui_core::terminal::Terminal;

/// 2026-11-15T20:15:33Z
const BEGAN: i64 = 1_794_773_733_000;

fn at(seconds: u64) -> Moment {
    let ms = seconds * 1000;
    Moment { awake: Awake(ms), boot: Boot(ms), wall: Wall(BEGAN + i64::try_from(ms).expect("small")) }
}

fn run(n: u8) -> RunId {
    RunId::new(Wall(BEGAN + i64::from(n) * 1000), [0, 0, 0, n])
}

fn node() -> NodeName {
    NodeName::new("fix")
}

/// A journal with one event per call.
#[derive(Default)]
struct Book {
    events: Vec<Recorded>,
}

impl Book {
    fn of(run: RunId) -> Book {
        let settings = Settings::of(vec!["agent".to_owned()], ReaderName::Plain);
        let plan = Plan {
            nodes: vec![NodePlan::alone(node(), settings)],
            stop_on_error: false,
            snapshots: false,
            graph: None,
        };
        let started = RunStarted {
            run,
            path: "/srv/demo/fix/RALPH.md".to_owned(),
            work_dir: "/srv/demo".to_owned(),
            nodes: vec![node()],
            agent: "agent".to_owned(),
            settings: plan,
            boot_id: String::new(),
            pid: 1,
            dogwatch: "test".to_owned(),
            seed: 0,
            settings_sha256: String::new(),
            flags: Vec::new(),
        };
        let mut book = Book::default();
        book.add(0, Event::RunStarted(Box::new(started)));
        book
    }

    fn add(&mut self, second: u64, event: Event) -> &mut Book {
        let seq = self.events.len() as u64 + 1;
        self.events.push(Recorded::new(seq, at(second), event));
        self
    }

    fn session(&mut self, second: u64) -> &mut Book {
        let iteration = Iteration(1);
        self.add(
            second,
            Event::IterationStarted {
                node: node(),
                iteration,
                cause: dogwatch_core::record::event::Cause::First,
            },
        );
        self.add(
            second,
            Event::SessionStarted {
                node: node(),
                iteration,
                pid: 77,
                argv: vec!["agent".to_owned()],
                agent: 0,
                resumes: None,
            },
        )
    }

    fn seen(&mut self, second: u64, channel: Channel) -> &mut Book {
        let seen = Observation::single(channel, at(second).awake);
        self.add(second, Event::Observed { node: node(), iteration: Iteration(1), seen })
    }

    fn stop(&mut self, second: u64) -> &mut Book {
        let evidence = |channel, age: Option<f64>| Evidence {
            channel,
            last_at: age.map(|a| second as f64 - a),
            age_seconds: age,
            counter: u64::from(age.is_some()),
        };
        self.add(
            second,
            Event::HardStop {
                node: node(),
                iteration: Iteration(1),
                reason: StopReason::NoOutputDeadline,
                message: "no progress for 5m".to_owned(),
                evidence_summary: vec![
                    evidence(Channel::Stdout, Some(300.0)),
                    evidence(Channel::McpTool, None),
                    evidence(Channel::Subagent, None),
                    evidence(Channel::Workspace, Some(400.0)),
                ],
                active_channel: Some(Channel::Stdout),
                recoverable: true,
            },
        )
    }

    fn waits(&mut self, second: u64, delay: u64) -> &mut Book {
        let until = at(second + delay).wall;
        let delay_s = Some(Dur::from_secs(delay));
        self.add(
            second,
            Event::WaitStarted {
                node: node(),
                why: WaitWhy::Idle,
                delay_s,
                until: Some(until),
                utc_offset_s: None,
                because: None,
            },
        )
    }

    fn ends(&mut self, second: u64, outcome: Outcome, exit_code: u8) -> &mut Book {
        self.add(
            second,
            Event::RunEnded(RunEnded {
                outcome,
                reason: "enough".to_owned(),
                // Only a check can be flaky.
                verified: outcome == Outcome::CleanWithFlake,
                iterations: 1,
                completed: 1,
                failed: 0,
                idle: 0,
                nodes: Default::default(),
                flake_retries: 0,
                total_duration_s: Dur::from_secs(second),
                exit_code,
            }),
        )
    }
}

/// Returns a model with these runs, all of them read.
fn top_of(runs: Vec<(RunId, bool, Book)>, now: u64) -> Top {
    let mut top = Top::new(at(now), (80, 24));
    let known = runs
        .iter()
        .map(|(run, live, _)| Known { run: run.clone(), live: *live, job: None, origin: None })
        .collect();
    top.apply(at(now), Input::Runs(known));
    for (run, _, book) in runs {
        top.apply(at(now), Input::Read { run, events: book.events, more: false });
    }
    top
}

fn press(top: &mut Top, keys: &str) -> Vec<Act> {
    let now = top.now;
    keys.chars().flat_map(|c| top.apply(now, Input::Key(Key::Char(c)))).collect()
}

fn key(top: &mut Top, key: Key) -> Vec<Act> {
    let now = top.now;
    top.apply(now, Input::Key(key))
}

/// Opens the page of the selected run, as the shell does.
fn open(top: &mut Top, book: &Book) {
    let acts = key(top, Key::Enter);
    let run = top.page.as_ref().expect("a page").run.clone();
    assert_eq!(acts, [Act::Reread(run.clone())]);
    let now = top.now;
    top.apply(now, Input::Read { run, events: book.events.clone(), more: false });
}

fn screen(top: &Top, width: u16, height: u16) -> Vec<String> {
    let look = Look { color: true };
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw(top, look, frame.buffer_mut())).expect("draws");
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

fn working() -> Book {
    let mut book = Book::of(run(1));
    book.session(2).seen(10, Channel::Stdout).seen(40, Channel::Workspace);
    book
}

#[test]
fn the_overview_shows_state_reason_countdown_activity_iterations_and_cost() {
    let mut waiting = Book::of(run(2));
    waiting.session(1).seen(5, Channel::Stdout).waits(50, 120);
    let mut ended = Book::of(run(3));
    ended.ends(50, Outcome::CleanWithFlake, 0);
    let lost = Book::of(run(4));
    let top = top_of(
        vec![
            (run(4), false, lost),
            (run(3), false, ended),
            (run(2), true, waiting),
            (run(1), true, working()),
        ],
        100,
    );
    let screen = screen(&top, 80, 24);
    assert_eq!(screen[0], " dogwatch top  4 runs, 2 live                                      20:17:13 UTC");
    assert_eq!(
        &screen[1..6],
        [
            "  run           state         reason, next start  last activity    iters cost",
            "  fix           waiting       1m 10s left, idle   stdout 1m35s     0     -",
            "  fix           working       iter 1 for 1m 38s   workspace 1m00s  0     -",
            "  fix           lost          supervisor died; `… none yet         0     -",
            "  fix           clean, flaky  enough              none yet         0     -",
        ]
    );
    assert!(screen[23].contains("w wake") && screen[23].contains("q quit"), "{}", screen[23]);
    assert!(screen.iter().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_success_that_no_check_confirmed_is_unverified() {
    let mut ended = Book::of(run(1));
    ended.ends(50, Outcome::Clean, 0);
    let top = top_of(vec![(run(1), false, ended)], 60);
    assert!(screen(&top, 120, 24)[2].contains("  clean, unverified enough "));
    let narrow = screen(&top, 80, 24);
    assert!(narrow[2].contains(" clean, unver… enough "), "{}", narrow[2]);
    assert!(narrow.iter().any(|line| line == " clean, unverified: enough"), "{}", narrow.join("\n"));
}

#[test]
fn a_lost_run_counts_its_open_iteration_and_the_time_until_its_loss() {
    let mut top = top_of(vec![(run(1), false, working())], 100);
    top.apply(at(100), Input::Lost(run(1), at(65).wall));
    let shown = screen(&top, 80, 24);
    assert!(shown[2].contains(" lost ") && shown[2].ends_with(" 1     ?"), "{}", shown[2]);
    let sum = " 1 iteration: 0 completed, 1 unfinished; 1m 05s";
    assert!(shown.iter().any(|line| line == sum), "{}", shown.join("\n"));
}

#[test]
fn the_screen_ticks_only_while_something_on_it_counts() {
    let mut ended = Book::of(run(1));
    ended.ends(50, Outcome::Clean, 0);
    assert!(!top_of(vec![(run(1), false, ended)], 60).counts());
    let mut paused = Book::of(run(1));
    paused.add(5, Event::Paused {});
    paused.add(
        6,
        Event::WaitStarted {
            node: node(),
            why: WaitWhy::Paused,
            delay_s: None,
            until: None,
            utc_offset_s: None,
            because: None,
        },
    );
    assert!(!top_of(vec![(run(1), true, paused)], 60).counts());
    let mut waiting = Book::of(run(1));
    waiting.waits(50, 120);
    let events = waiting.events.clone();
    assert!(top_of(vec![(run(1), true, waiting)], 60).counts());
    assert!(!top_of(vec![(run(1), false, Book { events })], 60).counts(), "a lost run does not wait");
    assert!(top_of(vec![(run(1), true, working())], 60).counts());
}

#[test]
fn the_selection_follows_the_run_when_lines_move() {
    let books = || vec![(run(3), true, Book::of(run(3))), (run(2), true, Book::of(run(2)))];
    let mut top = top_of(books(), 10);
    press(&mut top, "j");
    assert_eq!(top.current().map(|row| row.run.clone()), Some(run(2)));
    let now = top.now;
    let known = [4, 3, 2].map(|n| Known { run: run(n), live: true, job: None, origin: None }).to_vec();
    top.apply(now, Input::Runs(known));
    assert_eq!(top.current().map(|row| row.run.clone()), Some(run(2)));
    top.apply(now, Input::Live(run(3), false));
    let order: Vec<RunId> = top.rows.iter().map(|row| row.run.clone()).collect();
    assert_eq!(order, [run(4), run(2), run(3)]);
    assert_eq!(top.selected(), 1);
}

#[test]
fn a_run_of_another_machine_has_its_name_and_a_node_also_that_of_its_graph() {
    let of = |graph: Option<&str>| {
        let (host, graph) = ("carl".to_owned(), graph.map(str::to_owned));
        let origin = Some(Origin { host, job: None, graph, skew: Skew::default() });
        let mut top = Top::new(at(10), (120, 24));
        top.apply(at(10), Input::Runs(vec![Known { run: run(1), live: true, job: None, origin }]));
        top.apply(at(10), Input::Read { run: run(1), events: Book::of(run(1)).events, more: false });
        screen(&top, 120, 24).join("\n")
    };
    assert!(of(None).contains(" fix @carl "), "{}", of(None));
    assert!(of(Some("release")).contains(" release/fix @carl "), "{}", of(Some("release")));
}

#[test]
fn a_run_of_a_fleets_job_has_the_name_of_the_job_and_is_not_to_be_resumed() {
    let known = |live: bool, host: Option<&str>| {
        let job = Some("acme.one".to_owned());
        let origin = host.map(|host| Origin {
            host: host.to_owned(),
            job: job.clone(),
            graph: None,
            skew: Skew::default(),
        });
        let mut top = Top::new(at(10), (120, 24));
        top.apply(at(10), Input::Runs(vec![Known { run: run(1), live, job, origin }]));
        top.apply(at(10), Input::Read { run: run(1), events: Book::of(run(1)).events, more: false });
        screen(&top, 120, 24).join("\n")
    };
    let shown = known(true, Some("carl"));
    assert!(shown.contains(" acme.one @carl "), "{shown}");
    for shown in [known(false, Some("carl")), known(false, None)] {
        assert!(shown.contains("not running here; `dogwatch fleet"), "{shown}");
        assert!(!shown.contains("dogwatch resume"), "{shown}");
    }
}

#[test]
fn the_number_of_rows_is_limited_and_live_runs_come_first() {
    let id = |n: usize| RunId::new(Wall(BEGAN + n as i64 * 1000), [0; 4]);
    let known =
        (0..=MAX_ROWS).rev().map(|n| Known { run: id(n), live: n == 0, job: None, origin: None }).collect();
    let mut top = Top::new(at(0), (80, 24));
    top.apply(at(0), Input::Runs(known));
    assert_eq!((top.rows.len(), top.hidden), (MAX_ROWS, 1));
    assert_eq!(top.rows[0].run, id(0));
    assert!(screen(&top, 80, 24)[0].contains("1 older not shown"));
}

#[test]
fn requests_go_to_the_selected_run_one_at_a_time_and_a_stop_needs_confirmation() {
    let mut top = top_of(vec![(run(1), true, working())], 60);
    assert_eq!(press(&mut top, "w"), [Act::Send { run: run(1), order: Order::Wake }]);
    assert_eq!(press(&mut top, "w"), [], "it has not answered yet");
    let answer = |error: Option<&str>| Input::Answered {
        run: run(1),
        order: Order::Wake,
        error: error.map(str::to_owned),
    };
    top.apply(at(61), answer(Some("busy")));
    assert!(screen(&top, 80, 24)[23].contains("busy"));
    assert_eq!(press(&mut top, "p"), [Act::Send { run: run(1), order: Order::Pause }]);
    top.apply(at(61), answer(None));
    top.apply(
        at(62),
        Input::Read { run: run(1), events: vec![Recorded::new(9, at(62), Event::Paused {})], more: false },
    );
    assert_eq!(press(&mut top, "p"), [Act::Send { run: run(1), order: Order::Resume }]);
    top.apply(at(63), answer(None));
    assert_eq!(press(&mut top, "s"), []);
    assert!(screen(&top, 80, 24)[23].contains("after the current iteration? y/n"));
    assert_eq!(press(&mut top, "n"), []);
    assert_eq!(press(&mut top, "sq"), [], "any other key cancels, and does nothing else");
    assert_eq!(press(&mut top, "sy"), [Act::Send { run: run(1), order: Order::Stop }]);
}

#[test]
fn a_run_without_a_supervisor_gets_no_requests() {
    for (outcome, hint) in [
        (Outcome::Clean, "it has ended"),
        (Outcome::Idle, "continue it with `dogwatch wake`"),
        (Outcome::Stopped, "continue it with `dogwatch resume`"),
    ] {
        let mut ended = Book::of(run(1));
        ended.ends(50, outcome, 0);
        let mut top = top_of(vec![(run(1), false, ended)], 60);
        for order in ["w", "p", "s"] {
            assert_eq!(press(&mut top, order), []);
            assert!(top.said.as_ref().is_some_and(|(_, said)| said.contains(hint)), "{:?}", top.said);
        }
    }
    let mut empty = Top::new(at(0), (80, 24));
    assert_eq!(press(&mut empty, "wpsjk"), []);
    assert_eq!(key(&mut empty, Key::Enter), []);
    assert!(screen(&empty, 80, 24)[2].contains("no runs on this machine"));
}

#[test]
fn the_page_shows_all_lanes_and_the_evidence_of_the_selected_verdict() {
    let mut book = working();
    book.stop(100);
    book.add(
        102,
        Event::MessageReceived { text: "\u{1b}]0;evil\u{7}try\nagain".to_owned(), from: Source::Operator },
    );
    let mut top = top_of(vec![(run(1), true, Book { events: book.events.clone() })], 120);
    open(&mut top, &book);
    press(&mut top, "V");
    let lines = screen(&top, 80, 24);
    let page = lines.join("\n");
    for lane in ["session", "wait", "stdout", "mcp_tool", "subagent", "workspace", "checks", "verdicts"] {
        assert!(lines.iter().any(|l| l.trim_start().starts_with(lane)), "{lane} in\n{page}");
    }
    let row = |name: &str| lines.iter().find(|l| l.trim_start().starts_with(name)).expect("a lane").clone();
    assert!(row("verdicts").contains('✖') && row("verdicts").contains('“'), "{page}");
    assert!(row("session").ends_with("██") && row("stdout").contains('▃'), "{page}");
    assert!(page.contains("stopped by the watchdog: no progress for 5m [NO_OUTPUT_DEADLINE]"), "{page}");
    assert!(page.contains("*stdout    5m 00s ago, 1 seen"), "{page}");
    assert!(
        page.contains(" workspace 6m 40s ago, 1 seen") && page.contains("mcp_tool  never seen"),
        "{page}"
    );
    assert!(page.contains("operator message: try again") && !page.contains("evil"), "{page}");
    assert!(lines[2].contains("╵20:1"), "the axis has labels: {}", lines[2]);
}

#[test]
fn the_window_moves_zooms_and_follows() {
    let book = working();
    let mut top = top_of(vec![(run(1), true, working())], 3_600);
    open(&mut top, &book);
    let range = |top: &Top| {
        let page = top.page.as_ref().expect("a page");
        let first = page.lanes.first.expect("events");
        let (from, to) = page.window.range(first, top.now.wall.0);
        ((from - BEGAN) / 1000, (to - BEGAN) / 1000)
    };
    assert_eq!(range(&top), (0, 3_600));
    press(&mut top, "+");
    assert_eq!(range(&top), (1_800, 3_600));
    key(&mut top, Key::Left);
    assert_eq!(range(&top), (1_350, 3_150));
    top.apply(at(3_700), Input::Tick);
    assert_eq!(range(&top), (1_350, 3_150), "it does not move");
    press(&mut top, "f");
    assert_eq!(range(&top), (1_900, 3_700), "it follows again");
    press(&mut top, "0");
    assert_eq!(range(&top), (0, 3_700));
    for _ in 0..40 {
        press(&mut top, "+");
    }
    assert_eq!(range(&top), (3_690, 3_700), "not shorter than ten seconds");
    for _ in 0..40 {
        press(&mut top, "-");
    }
    assert_eq!(range(&top), (0, 3_700));
    for _ in 0..20 {
        key(&mut top, Key::Right);
        key(&mut top, Key::Left);
        key(&mut top, Key::Left);
    }
    let (from, to) = range(&top);
    assert!(from < to && to >= 10, "never beyond the run: {from} {to}");
}

#[test]
fn the_latest_event_is_followed_until_another_is_selected() {
    let mut book = working();
    for n in 0..30 {
        book.add(50 + n, Event::MessageReceived { text: format!("word {n}"), from: Source::Operator });
    }
    let mut top = top_of(vec![(run(1), true, Book { events: book.events.clone() })], 90);
    open(&mut top, &book);
    assert!(screen(&top, 80, 24).iter().any(|l| l.contains("word 29")));
    key(&mut top, Key::Up);
    let seq = book.events.len() as u64 + 1;
    let woken = Event::WaitEnded { node: node(), by: WaitEndedBy::Api };
    let more = vec![Recorded::new(seq, at(91), woken)];
    top.apply(at(91), Input::Read { run: run(1), events: more, more: false });
    let page = top.page.as_ref().expect("a page");
    assert_eq!(page.entry().map(|e| e.text.as_str()), Some("operator message: word 28"));
    key(&mut top, Key::End);
    assert_eq!(top.page.as_ref().and_then(|p| p.entry()).map(|e| e.text.as_str()), Some("woken (api)"));
    assert_eq!(key(&mut top, Key::Escape), [], "back to the overview");
    assert!(top.page.is_none());
    assert_eq!(press(&mut top, "q"), [Act::Quit]);
}

#[test]
fn a_small_terminal_gets_a_note_and_every_size_can_be_drawn() {
    let book = working();
    let mut top = top_of(vec![(run(1), true, working())], 60);
    assert_eq!(screen(&top, 59, 18)[..2], ["59×18 is too small", "top needs 60×18"]);
    for open_page in [false, true] {
        if open_page {
            open(&mut top, &book);
        }
        for (width, height) in [(1, 1), (60, 18), (80, 24), (60, 17), (200, 60), (500, 3), (3, 200)] {
            screen(&top, width, height);
            press(&mut top, "?");
            screen(&top, width, height);
            press(&mut top, "?");
        }
    }
}

#[test]
fn nothing_is_colored_without_color() {
    let mut book = working();
    book.stop(100);
    let mut top = top_of(vec![(run(1), true, Book { events: book.events.clone() })], 120);
    for color in [true, false] {
        let mut colored = false;
        for page in [false, true] {
            top.page = None;
            if page {
                open(&mut top, &book);
            }
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a screen");
            terminal.draw(|frame| draw(&top, Look { color }, frame.buffer_mut())).expect("draws");
            let buffer = terminal.backend().buffer();
            colored |= buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        }
        assert_eq!(colored, color);
    }
}

#[test]
fn a_page_closes_when_its_run_is_gone_and_restarts_when_its_journal_is_replaced() {
    let book = working();
    let mut top = top_of(vec![(run(1), true, working())], 60);
    open(&mut top, &book);
    top.apply(at(61), Input::Replaced(run(1)));
    assert!(top.page.as_ref().is_some_and(|p| p.log.entries.is_empty() && p.reading));
    top.apply(at(62), Input::Unreadable(run(1), "no\nsuch file".to_owned()));
    assert!(screen(&top, 80, 24)[1].contains("no"));
    top.apply(at(63), Input::Runs(Vec::new()));
    assert!(top.page.is_none() && top.said.is_some());
}

#[test]
fn a_run_has_no_state_until_its_record_is_read() {
    let mut top = Top::new(at(10), (80, 24));
    top.apply(at(10), Input::Runs(vec![Known { run: run(1), live: false, job: None, origin: None }]));
    assert!(screen(&top, 80, 24)[2].contains("reading …") && !screen(&top, 80, 24)[2].contains("lost"));
    let book = working();
    top.apply(at(10), Input::Read { run: run(1), events: book.events.clone(), more: true });
    assert!(screen(&top, 80, 24)[2].contains("reading …"));
    top.apply(at(10), Input::Read { run: run(1), events: Vec::new(), more: false });
    assert!(screen(&top, 80, 24)[2].contains("lost"));
}

#[test]
fn checks_have_a_lane_and_lines_of_a_graph_name_their_node() {
    let mut book = working();
    let Event::RunStarted(started) = &mut book.events[0].event else { panic!("the first") };
    started.nodes.push(NodeName::new("docs"));
    let attempt = |converged| {
        Event::NodeAttempt(dogwatch_core::record::event::NodeAttempt {
            node: node(),
            iteration: Iteration(1),
            duration_s: Dur::from_secs(50),
            converged,
            backoff_s: None,
            uncounted: false,
            progress: false,
            tree: None,
            results: Vec::new(),
        })
    };
    book.add(50, Event::ChecksStarted { node: node(), iteration: Iteration(1) });
    book.add(60, attempt(false));
    book.add(90, Event::ChecksStarted { node: node(), iteration: Iteration(1) });
    book.add(95, attempt(true));
    let mut top = top_of(vec![(run(1), true, Book { events: book.events.clone() })], 100);
    open(&mut top, &book);
    let lines = screen(&top, 80, 24);
    let lane = lines.iter().find(|l| l.trim_start().starts_with("checks")).expect("the lane");
    let count = |sign: char| lane.chars().filter(|c| *c == sign).count();
    assert!((5..10).contains(&count('✘')) && (2..6).contains(&count('✔')), "10 s and 5 s of 100: {lane}");
    assert!(lines.iter().any(|l| l.contains("fix: 0 checks passed")), "{}", lines.join("\n"));
    assert!(lines[1].contains("2 pending"), "{}", lines[1]);
}
