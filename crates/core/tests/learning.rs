//! Learned idling against its test vectors, and its promises under random input. `learning/vectors.json` comes from an
//! independent implementation.

use dogwatch_core::learn::{Arrivals, Basis, Gap, History, LearnedState, Schedule, Trace};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::run::idle;
use dogwatch_core::settings::{IdlePolicy, Strategy};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

const VECTORS: &str = include_str!("learning/vectors.json");
/// The number of expected outputs in the vectors.
const OUTPUTS: usize = 1_090;
/// Monday, 2026-01-05 00:00 UTC.
const MONDAY: i64 = 1_767_571_200_000;

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    policy: Prices,
    #[serde(default)]
    journal: Vec<Box<RawValue>>,
    node: Option<String>,
    offset: Option<i64>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Prices {
    delay: u64,
    backoff: f64,
    max_delay: u64,
    longest: u64,
    look: u64,
}

#[derive(Deserialize)]
struct Step {
    op: String,
    args: Vec<Value>,
    out: Option<Value>,
}

impl Prices {
    fn policy(&self) -> IdlePolicy {
        IdlePolicy {
            delay: Dur::from_millis(self.delay),
            backoff: self.backoff,
            max_delay: Dur::from_millis(self.max_delay),
            longest: Dur::from_millis(self.longest),
            look: Some(Dur::from_millis(self.look)),
            strategy: Strategy::Learned,
            ..IdlePolicy::default()
        }
    }
}

impl Step {
    fn int(&self, n: usize) -> i64 {
        self.args[n].as_i64().expect("an integer")
    }

    fn ms(&self, n: usize) -> u64 {
        // Negative lengths in the vectors are gaps that no clock can produce here; an empty gap is ignored alike.
        u64::try_from(self.int(n)).unwrap_or(0)
    }

    fn run(&self, state: &mut Arrivals, schedule: &Schedule) -> Value {
        let decided =
            |state: &Arrivals| state.decide(schedule, self.int(0), self.int(1), self.ms(2), self.ms(3));
        match self.op.as_str() {
            "fold" => {
                let found = self.args[4].as_bool().expect("a flag");
                let (end, length, age) = (self.int(0), self.ms(1), self.ms(2));
                state.fold(Gap { end, length, age, offset_ms: self.int(3), found });
                Value::Null
            }
            "settle" => {
                state.settle(schedule, self.ms(0), self.ms(1), self.ms(2));
                json!(state.credit(schedule))
            }
            "decide" => {
                let decided = decided(state);
                json!([decided.wait.as_millis(), decided.basis.as_str()])
            }
            "explain" => json!(state.explain(decided(state), self.int(0), self.int(1))),
            "pattern" => json!(state.pattern()),
            "state" => serde_json::to_value(state.recorded()).expect("serializes"),
            other => panic!("unknown operation {other}"),
        }
    }
}

#[test]
fn all_vectors_give_exactly_the_expected_outputs() {
    let vectors: Vectors = serde_json::from_str(VECTORS).expect("vectors");
    let mut outputs = 0;
    for case in vectors.cases {
        let policy = case.policy.policy();
        let schedule = Schedule::of(&policy, false);
        let mut history = History::of(Arrivals::default(), case.offset.unwrap_or(0));
        if let Some(node) = &case.node {
            let node = NodeName::new(node);
            for event in case.journal {
                let recorded = dogwatch_codec::read(event.get().as_bytes()).expect("an event");
                history.apply(&policy, &node, &recorded);
            }
        }
        let mut state = history.arrivals;
        for (n, step) in case.steps.iter().enumerate() {
            let got = step.run(&mut state, &schedule);
            if let Some(expected) = &step.out {
                assert_eq!(got, *expected, "{} step {n}: {} {:?}", case.name, step.op, step.args);
                outputs += 1;
            }
        }
    }
    assert_eq!(outputs, OUTPUTS);
}

fn schedule_for(look_s: u64) -> Schedule {
    let policy = IdlePolicy { look: Some(Dur::from_secs(look_s)), ..IdlePolicy::default() };
    Schedule::of(&policy, false)
}

#[test]
fn without_a_history_the_waits_are_exponential() {
    let policy = IdlePolicy { strategy: Strategy::Learned, backoff: 1.7, ..IdlePolicy::default() };
    let (state, schedule) = (Arrivals::default(), Schedule::of(&policy, false));
    for n in 1..40 {
        let decided = state.decide(&schedule, MONDAY, 0, n * 77_777, n);
        assert_eq!(decided.basis, Basis::Plain);
        assert_eq!(decided.wait, idle::delay(&policy, n, Dur::ZERO, 0), "{n}");
    }
}

/// A small generator of random numbers, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 += 1;
        idle::draw(42, self.0) % n.max(1)
    }

    /// Returns a number below `rare` once in `times`, and one below `usual` otherwise.
    fn at_times(&mut self, times: u64, rare: u64, usual: u64) -> u64 {
        let most = if self.below(times) == 0 { rare } else { usual };
        self.below(most)
    }
}

#[test]
fn any_gap_in_any_zone_keeps_the_wait_between_delay_and_longest() {
    let mut random = Random(0);
    for round in 0..60 {
        let policy = IdlePolicy {
            delay: Dur::from_millis(1 + random.below(60_000)),
            longest: Dur::from_millis(60_000 + random.below(90_000_000)),
            look: Some(Dur::from_millis(random.below(600_000))),
            max_delay: Dur::from_millis(60_000 + random.below(3_600_000)),
            ..IdlePolicy::default()
        };
        let schedule = Schedule::of(&policy, false);
        let mut state = Arrivals::default();
        for _ in 0..40 {
            // Clocks jump to and fro, also before 1970 and far into the future.
            let wall = match random.below(8) {
                0 => -(random.below(1 << 50) as i64),
                1 => random.below(1 << 50) as i64,
                2 => i64::MAX - random.below(9) as i64,
                _ => MONDAY + random.below(400 * 86_400_000) as i64,
            };
            let offset_ms = (random.below(29) as i64 - 14) * 3_600_000;
            let length = random.at_times(5, u64::MAX, 7_200_000);
            let age = random.at_times(5, u64::MAX, 90_000_000);
            state.fold(Gap { end: wall, length, age, offset_ms, found: random.below(3) == 0 });
            if random.below(3) == 0 {
                state.settle(&schedule, random.below(50), random.below(7_200_000), age);
            }
            let looks = 1 + random.at_times(9, u64::MAX - 1, 30);
            let decided = state.decide(&schedule, wall, offset_ms, age, looks);
            if decided.basis == Basis::Learned {
                assert!(
                    decided.wait >= policy.delay && decided.wait <= policy.longest,
                    "{round} {decided:?}"
                );
            } else {
                assert!(decided.wait >= policy.delay.min(policy.max_delay), "{round} {decided:?}");
                assert!(decided.wait <= policy.max_delay.max(policy.delay), "{round} {decided:?}");
            }
            let _ = (state.explain(decided, wall, offset_ms), state.levels());
            let _ = state.expected_at(Wall(wall), offset_ms);
            assert_eq!(Arrivals::read(&state.recorded()), Some(state.clone()));
        }
    }
}

/// The streaks end after random times, and the arrival is taken at the middle of its gap, as the ledger does. Over any
/// window of streaks the learned waits cost at most a tenth more than plain ones, and the size of the ledger.
#[test]
fn the_ledger_bounds_the_cost_of_any_window() {
    let mut random = Random(7);
    let policy = IdlePolicy::default();
    for round in 0..12 {
        let look_s = [5, 20, 60][round % 3];
        let (schedule, look) = (schedule_for(look_s), look_s as f64 * 1000.0);
        let longest = schedule.longest() as f64;
        let mut state = Arrivals::default();
        let (mut now, mut window, mut worst) = (MONDAY, 0.0f64, 0.0f64);
        for n in 0..200 {
            // Long quiet streaks teach long waits; then short ones punish them.
            let most = if n % 40 < 20 { 40_000_000 } else { 400_000 };
            let quiet = random.below(most);
            let (mut age, mut looks) = (0, 1u64);
            let gap = loop {
                let wait = state.decide(&schedule, now, 0, age, looks).wait.as_millis();
                now += wait as i64;
                let found = age + wait > quiet;
                state.fold(Gap { end: now, length: wait, age, offset_ms: 0, found });
                age += wait;
                if found {
                    break wait;
                }
                looks += 1;
            };
            state.settle(&schedule, looks, gap, age);
            let used = look * (looks - 1) as f64 + (gap - gap / 2) as f64;
            let arrived = age - gap / 2;
            let vain = (1..).take_while(|n| plain_end(&policy, *n) < arrived).count() as u64;
            let plain = look * vain as f64 + (plain_end(&policy, vain + 1) - arrived) as f64;
            window = (window + used - 1.1 * plain).max(0.0);
            worst = worst.max(window);
            now += 600_000;
        }
        let bucket = 20.0 * look + longest / 2.0;
        let bound = bucket + longest / 2.0 + 2.0 * look + policy.max_delay.as_millis() as f64;
        assert!(worst <= bound, "round {round}, look {look_s}s: {worst} ms above plain, {bound} allowed");
    }
}

fn plain_end(policy: &IdlePolicy, n: u64) -> u64 {
    (1..=n).map(|n| idle::delay(policy, n, Dur::ZERO, 0).as_millis()).sum()
}

#[test]
fn a_state_that_no_fold_produced_is_refused() {
    let good = Arrivals::default().recorded();
    assert!(Arrivals::read(&good).is_some());
    let bad = [
        LearnedState::default(),
        LearnedState { v: 2, ..good.clone() },
        LearnedState { week_e: vec![0; 167], ..good.clone() },
        LearnedState { age_x: vec![u64::MAX; 14], ..good.clone() },
        LearnedState { credit: Some(i64::MIN), ..good.clone() },
        LearnedState { phase_e: Vec::new(), ..good },
    ];
    for state in bad {
        assert_eq!(Arrivals::read(&state), None, "{state:?}");
    }
}

/// Folds weeks of work that arrives on weekdays from 09:00 to 17:00, with a look every five minutes.
fn office(days: i64) -> Arrivals {
    let mut state = Arrivals::default();
    let mut age = 0;
    for step in 0..days * 288 {
        let end = MONDAY + (step + 1) * 300_000;
        let (day, minute) = (step / 288 % 7, step % 288 * 5);
        let found = day < 5 && (540..1020).contains(&minute) && minute % 30 == 0;
        state.fold(Gap { end, length: 300_000, age, offset_ms: 0, found });
        age = if found { 0 } else { age + 300_000 };
    }
    state
}

#[test]
fn a_wait_ends_at_the_predicted_burst_instead_of_within_it() {
    let state = office(28);
    let policy = IdlePolicy { longest: Dur::from_hours(4), ..IdlePolicy::default() };
    let schedule = Schedule::of(&policy, false);
    assert_eq!(state.pattern(), "work usually arrives 09:00-17:00 on weekdays");
    let day = MONDAY + 28 * 86_400_000;
    let age = 15 * 3_600_000;
    let at = |hours: f64| day + (hours * 3_600_000.0) as i64;
    let look = |from: f64| {
        let wait = state.decide(&schedule, at(from), 0, age, 20).wait.as_millis() as i64;
        (at(from) + wait - day) as f64 / 3_600_000.0
    };
    // The same wait in the middle of the night would reach far into the morning.
    let asleep = look(1.0) - 1.0;
    assert!(asleep > 0.6, "a wait at 01:00 takes {asleep} hours");
    for from in [8.5, 8.75, 8.9] {
        let next = look(from);
        assert!((9.0..9.1).contains(&next), "a wait from {from} ends at {next}");
    }
    // The night and the weekend have no arrivals, so work is expected soon after the office opens.
    for (from, opens) in
        [(2.0, 9.0), (4.0 * 24.0 + 18.0, 7.0 * 24.0 + 9.0), (5.0 * 24.0 + 12.0, 7.0 * 24.0 + 9.0)]
    {
        let expected = state.expected_at(Wall(at(from)), 0).expect("a time");
        assert!((at(opens)..at(opens + 0.75)).contains(&expected.0), "from {from}: {expected}");
    }
    let within = state.expected_at(Wall(at(12.0)), 0).expect("a time");
    assert!((at(12.0)..at(13.0)).contains(&within.0), "{within}");
}

#[test]
fn bad_traces_are_refused_with_their_line() {
    for (text, error) in [
        ("", "no arrivals, and no `# start:` and `# end:`"),
        ("# start: 5\nx\n", "line 2 is neither a header nor a time in Unix seconds"),
        ("# start: 5\n# end: 5\n", "the trace must end after its start, and within 3660 days of it"),
        ("1\n99999999999\n", "the trace must end after its start, and within 3660 days of it"),
        ("# offset: 5\n1\n", "line 1 is neither a header nor a time in Unix seconds"),
    ] {
        assert_eq!(Trace::parse(text).map_err(|e| e.to_string()), Err(error.to_owned()), "{text:?}");
    }
    let short = Trace::parse("1767571200\r\n\n1767571300.5\n").expect("a trace");
    assert!(short.judge(&schedule_for(20)).cost_ratio.is_finite());
}
