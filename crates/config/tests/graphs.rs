//! Tests graph files: their formats, settings, errors and limits.
use crate::common;

use common::{Graph, lines};
use dogwatch_config::limits::*;
use dogwatch_config::{Loaded, Style};
use dogwatch_core::settings::{NodePlan, PromptSource, ReaderName};
use dogwatch_core::time::dur::Dur;

fn node<'l>(loaded: &'l Loaded, id: &str) -> &'l NodePlan {
    loaded.plan.nodes.iter().find(|node| node.name.as_str() == id).unwrap()
}

fn names(nodes: &[dogwatch_core::record::ids::NodeName]) -> Vec<&str> {
    nodes.iter().map(|name| name.as_str()).collect()
}

/// Returns a graph of these nodes, each with a prompt, one per line from line 3.
fn graph(nodes: &[&str]) -> String {
    let items: String = nodes.iter().map(|node| format!("  - {{{node}, prompt: x}}\n")).collect();
    format!("agent: sh\nnodes:\n{items}")
}

const YAML: &str = "\
agent: sh
max_parallel: 2
budget: {time: 8h}
nodes:
  - id: schema
    prompt: Write the schema.
    touches: [db/**]
    done_when: [test -s db/schema.sql]
  - id: api
    prompt_file: there.md
    depends_on: schema
    parallel_safe: false
    budget: {iterations: 3}
  - id: docs
    deliverable: The docs.
    depends_on: [schema, api]
    agent: claude
";

#[test]
fn nodes_have_their_own_settings() {
    let loaded = Graph::yaml(YAML).loaded();
    assert_eq!(lines(&loaded.warnings), [""; 0]);
    let graph = loaded.plan.graph.as_ref().unwrap();
    assert_eq!((graph.max_parallel, graph.budget.time), (2, Some(Dur::from_hours(8))));
    let [schema, api, docs] = &loaded.plan.nodes[..] else { panic!("three nodes") };
    assert_eq!((schema.name.as_str(), schema.parallel_safe), ("schema", true));
    assert_eq!(schema.prompt, PromptSource::Text("Write the schema.".to_owned()));
    assert_eq!(schema.touches, ["db/**"]);
    assert_eq!((schema.settings.max_iterations, schema.settings.budget.time), (Some(6), None));
    assert_eq!(api.prompt, PromptSource::File("there.md".to_owned()));
    assert_eq!((names(&api.depends_on), api.parallel_safe), (vec!["schema"], false));
    assert_eq!((api.settings.budget.iterations, api.settings.max_iterations), (Some(3), None));
    assert!(!api.settings.checks.any());
    assert_eq!(docs.prompt, PromptSource::Text("The docs.".to_owned()));
    assert_eq!(names(&docs.depends_on), ["schema", "api"]);
    assert_eq!((docs.settings.agent[0].as_str(), docs.settings.reader), ("claude", ReaderName::Claude));
}

#[test]
fn the_same_graph_can_be_written_in_every_format() {
    let expected =
        Graph::yaml("agent: sh\nnodes:\n  - {id: a, prompt: x}\n  - {id: b, prompt: y, depends_on: [a]}\n")
            .loaded()
            .plan;
    for (name, text) in [
        ("graph.yml", "agent: sh\nnodes:\n  a: {prompt: x}\n  b: {prompt: y, depends_on: a}\n"),
        (
            "graph.toml",
            "agent = 'sh'\n[[nodes]]\nid = 'a'\nprompt = 'x'\n[[nodes]]\nid = 'b'\nprompt = 'y'\ndepends_on = ['a']\n",
        ),
        ("g.toml", "agent = 'sh'\n[nodes.a]\nprompt = 'x'\n[nodes.b]\nprompt = 'y'\ndepends_on = ['a']\n"),
        (
            "graph.json",
            "{\"agent\": \"sh\",\n\t\"nodes\": [{\"id\": \"a\", \"prompt\": \"x\"},\n\t{\"id\": \"b\", \"prompt\": \"y\", \"depends_on\": [\"a\"]}]}",
        ),
    ] {
        assert_eq!(Graph::file(name, text).loaded().plan, expected, "{name}");
    }
}

const KAHN: &str = r#"{
	"name": "auth",
	"max_ralph_iters": 4,
	"nodes": [
		{
			"id": "db-auth",
			"deliverable": "src/db/auth.ts with tests \u2014 and \/docs",
			"depends_on": [],
			"touches": ["src/db/**"],
			"done_when": ["pnpm test src/db/auth.test.ts"]
		},
		{
			"id": "api",
			"deliverable": "The API.",
			"depends_on": ["db-auth"],
			"touches": ["src/api/**"],
			"parallel_safe": false,
			"done_when": ["pnpm test src/api", "pnpm lint"],
			"max_ralph_iters": 2,
			"owner": "nobody"
		}
	]
}"#;

#[test]
fn a_kahn_graph_loads_unchanged_with_an_agent_from_another_layer() {
    let case = Graph { project: Some("agent = 'claude'"), ..Graph::file("graph.json", KAHN) };
    let loaded = case.loaded();
    let first = node(&loaded, "db-auth");
    assert_eq!(first.prompt, PromptSource::Text("src/db/auth.ts with tests — and /docs".to_owned()));
    assert_eq!(first.settings.checks.commands, ["pnpm test src/db/auth.test.ts"]);
    assert_eq!((first.settings.max_iterations, first.parallel_safe), (Some(4), true));
    let api = node(&loaded, "api");
    assert_eq!((api.settings.max_iterations, api.parallel_safe), (Some(2), false));
    assert_eq!(names(&api.depends_on), ["db-auth"]);
    assert_eq!(
        lines(&loaded.warnings),
        ["graph.json:2:2: unknown key `name`", "graph.json:20:4: unknown key `owner` in a node"]
    );
    // A missing agent is reported once.
    let found = Graph::file("graph.json", KAHN).load().unwrap_err();
    assert_eq!(found[0].to_string(), "graph.json:6:10: node `db-auth` and 1 more have no `agent`");
    assert!(found[0].help.as_ref().unwrap().contains("--set agent=claude"));
    assert_eq!(Graph::file("graph.json", KAHN).set(&["agent=claude"]).errors(), [""; 0]);
}

#[test]
fn a_misspelled_key_of_a_node_is_an_error_and_any_other_unknown_key_a_warning() {
    let text =
        "agent: sh\nnodes:\n  - id: a\n    prompt: x\n    done_wen: make\n    depend_on: []\n    story: y\n";
    let found = Graph::yaml(text).load().unwrap_err();
    let errors: Vec<String> = found.iter().map(ToString::to_string).collect();
    for (line, help) in [
        ("graph.yaml:5:5: unknown key `done_wen` in a node", "did you mean `done_when`?"),
        ("graph.yaml:6:5: unknown key `depend_on` in a node", "did you mean `depends_on`?"),
    ] {
        let at = errors.iter().position(|error| error == line).unwrap_or_else(|| panic!("{errors:?}"));
        assert_eq!(found[at].help.as_deref(), Some(help));
    }
    let loaded = Graph::yaml("agent: sh\nnodes: [{id: a, prompt: x, story: y, done_when: }]\n").loaded();
    assert_eq!(
        lines(&loaded.warnings),
        [
            "graph.yaml:2:28: unknown key `story` in a node",
            "graph.yaml:2:38: `done_when` has no value: nothing is checked"
        ]
    );
}

#[test]
fn stronger_layers_win_and_every_node_explains_its_origins() {
    let text = "\
agent: sh
delay: 3
reader: codex
idle: {delay: 1m}
nodes:
  - {id: a, prompt: x, delay: 4, done_when: test}
  - {id: b, prompt: x, agent: claude -p, idle: off}
  - {id: c, prompt: x}
";
    let mut case =
        Graph { user: Some("delay = 1"), project: Some("delay = 2\ncredit = true"), ..Graph::yaml(text) };
    case.flags.max_iterations = Some("9".to_owned());
    let loaded = case.loaded();
    let delays: Vec<u64> = loaded.plan.nodes.iter().map(|n| n.settings.delay.as_millis() / 1000).collect();
    assert_eq!(delays, [4, 3, 3]);
    assert!(loaded.plan.nodes.iter().all(|n| n.settings.max_iterations == Some(9) && n.settings.credit));
    // A node with its own agent does not inherit `reader`.
    let readers: Vec<ReaderName> = loaded.plan.nodes.iter().map(|n| n.settings.reader).collect();
    assert_eq!(readers, [ReaderName::Codex, ReaderName::Claude, ReaderName::Codex]);
    assert!(node(&loaded, "b").settings.idle.is_none() && node(&loaded, "c").settings.idle.is_some());
    let shown = |settings: &[dogwatch_config::Setting]| -> Vec<String> {
        settings.iter().map(|s| format!("{}={} ({})", s.key, s.value, s.origin)).collect()
    };
    let own = |id: &str| shown(&loaded.explain_nodes.iter().find(|(name, _)| name.as_str() == id).unwrap().1);
    assert_eq!(own("a"), ["delay=4s (graph.yaml:6:31)", "done_when=test (graph.yaml:6:45)"]);
    assert!(own("b").contains(&"agent=claude -p (graph.yaml:7:31)".to_owned()), "{:?}", own("b"));
    assert!(own("b").contains(&"reader=claude (from `agent`)".to_owned()), "{:?}", own("b"));
    assert!(own("b").contains(&"idle.delay=off (graph.yaml:7:48)".to_owned()), "{:?}", own("b"));
    assert_eq!(own("c"), [""; 0]);
    let top = shown(&loaded.explain);
    for row in [
        "delay=3s (graph.yaml:2:8)",
        "credit=true (dogwatch.toml:2:10)",
        "max_iterations=9 (flag -n)",
        "max_parallel=4 (built-in)",
    ] {
        assert!(top.contains(&row.to_owned()), "{row} in {top:#?}");
    }
    assert_eq!(
        case.set(&["delay=5", "idle.max=1h"])
            .loaded()
            .plan
            .nodes
            .iter()
            .map(|n| n.settings.delay.as_millis() / 1000)
            .collect::<Vec<_>>(),
        [5, 5, 5]
    );
}

#[test]
fn a_top_level_budget_applies_to_the_run_and_a_nodes_budget_to_the_node() {
    let text = "agent: sh\nnodes:\n  - {id: a, prompt: x, budget: {iterations: 2}}\n  - {id: b, prompt: x}\n";
    let case = Graph { project: Some("budget.cost_usd = 5"), ..Graph::yaml(text) }.set(&["budget.time=1h"]);
    let loaded = case.loaded();
    let run = &loaded.plan.graph.as_ref().unwrap().budget;
    assert_eq!((run.time, run.cost_usd, run.iterations), (Some(Dur::from_hours(1)), Some(5.0), None));
    let own: Vec<_> =
        loaded.plan.nodes.iter().map(|n| (n.settings.budget.iterations, n.settings.budget.time)).collect();
    assert_eq!(own, [(Some(2), None), (None, None)]);
    let budget = |settings: &[dogwatch_config::Setting]| {
        settings.iter().filter(|s| s.key.starts_with("budget.")).map(|s| s.value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(budget(&loaded.explain), ["off", "1h", "off", "5", "off", "off", "off", "off"]);
    assert_eq!(budget(&loaded.explain_nodes[0].1), ["2"]);
    assert_eq!(budget(&loaded.explain_nodes[1].1), [""; 0]);
}

#[test]
fn graph_errors_have_a_place() {
    for (nodes, message) in [
        (&["id: a", "id: b, depends_on: [c]"][..], "4:26: `b` depends on `c`, which does not exist"),
        (&["id: a", "id: b", "id: a"], "5:10: duplicate node id `a`"),
        (&["id: a, depends_on: a"], "3:25: `a` depends on itself"),
        (&["id: a, done_when: []"], "3:24: `done_when` is empty: nothing would be checked"),
        (&["id: a/b"], "3:10: invalid node id `a/b`: contains a path separator"),
        (&["id: '..'"], "3:10: invalid node id `..`: starts with a dot or a dash"),
        (&["id: -a"], "3:10: invalid node id `-a`: starts with a dot or a dash"),
        (&["id: ' a'"], "3:10: invalid node id ` a`: must start and end with a letter or digit"),
        (&["id: Alive"], "3:10: invalid node id `Alive`: reserved for a file of the record"),
        (&["id: ''"], "3:10: `id` is empty"),
        (&["id: [a]"], "3:10: `id` must be text"),
        (&["id: 1.5"], "3:10: `id` must be text"),
        (&["depends_on: []"], "3:5: this node has no `id`"),
        (&["id: a", "id: A"], "4:10: `a` and `A` would use the same file"),
        (&["id: a", "id: A.log"], "4:10: `a` and `A.log` would use the same file"),
        (&["id: a, depends_on: 1.5"], "3:25: `depends_on` must be a list of ids"),
        (&["id: a, depends_on: [[b]]"], "3:26: `depends_on` must be text"),
        (&["id: a, touches: ['x[']"], "3:23: `x[` is not a valid glob: unclosed `[`"),
        (&["id: a, parallel_safe: maybe"], "3:28: `parallel_safe` must be true or false"),
        (&["id: a, prompt_file: b"], "3:13: a node cannot have both `prompt` and `prompt_file`"),
        (&["id: a, max_parallel: 2"], "3:27: `max_parallel` applies to the whole graph, not to a node"),
        (&["id: a, watchdog: {run: 2h}"], "3:29: `watchdog.run` applies to the whole graph, not to a node"),
        (&["id: a, idle: {dealy: 2h}"], "3:20: unknown key `dealy` in `idle`"),
        (&["id: a, delay: soon"], "3:20: `delay` must be a duration"),
        (&["id: a, depends_on: b", "id: b, depends_on: a"], "3:25: dependency cycle: a → b → a"),
    ] {
        let text = graph(nodes);
        assert_eq!(Graph::yaml(&text).errors(), [format!("graph.yaml:{message}")], "{text}");
    }
}

#[test]
fn a_file_that_is_not_a_graph_is_an_error() {
    for (name, text, message) in [
        ("graph.yaml", "agent: sh\nnodes: []\n", "graph.yaml:2:8: the graph has no nodes"),
        ("graph.yaml", "agent: sh\n", "graph.yaml:1:1: the graph has no nodes"),
        ("graph.yaml", "", "graph.yaml:1:1: the graph has no nodes"),
        ("graph.json", "{}", "graph.json:1:1: the graph has no nodes"),
        ("graph.json", "[]", "graph.json:1:1: the graph has no nodes"),
        ("graph.json", "5", "graph.json:1:1: a graph must be a mapping with `nodes`"),
        ("graph.json", "{\"nodes\": [}", "graph.json:1:12: invalid JSON: expected a value, found `}`"),
        (
            "graph.toml",
            "nodes = \n",
            "graph.toml:1:9: invalid TOML: string values must be quoted, expected literal string",
        ),
        ("graph.yaml", "nodes: [\n", "graph.yaml:1:8: invalid YAML: unclosed bracket '['"),
        (
            "graph.yaml",
            "nodes: 5\n",
            "graph.yaml:1:8: `nodes` must be a list of nodes, or a mapping from id to node",
        ),
        ("graph.yaml", "nodes: [5]\n", "graph.yaml:1:9: each node must be a mapping with `id` and `prompt`"),
        (
            "graph.yaml",
            "agent: sh\nnodes:\n  a: {id: b, prompt: x}\n",
            "graph.yaml:3:7: the `id` of node `a` differs from its key",
        ),
        ("graph.yaml", "agent: sh\nnodes:\n  a: {delay: 1}\n", "graph.yaml:3:3: node `a` has no prompt"),
        ("graph.yaml", "agent: ''\nnodes:\n  a: {prompt: x}\n", "graph.yaml:1:8: `agent` is empty"),
    ] {
        assert_eq!(Graph::file(name, text).errors(), [message], "{text:?}");
    }
}

#[test]
fn a_cycle_is_reported_with_its_path() {
    let text = graph(&[
        "id: root",
        "id: a, depends_on: [root, c]",
        "id: b, depends_on: a",
        "id: c, depends_on: [root, b]",
        "id: late, depends_on: c",
    ]);
    let found = Graph::yaml(&text).load().unwrap_err();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].render(Style::Plain),
        "\
error: dependency cycle: a → c → b → a
 --> graph.yaml:4:32
  |
4 |   - {id: a, depends_on: [root, c], prompt: x}
  |                                ^ `a` depends on `c`
  |
  = help: remove one of these dependencies"
    );
}

#[test]
fn a_worktree_without_the_work_of_its_dependency_is_a_warning() {
    let text =
        graph(&["id: a", "id: b, depends_on: a, worktree: true", "id: c, depends_on: b, worktree: true"]);
    let loaded = Graph::yaml(&text).loaded();
    let warning = "graph.yaml:4:10: `b` has a worktree, but its dependency `a` has none";
    assert_eq!(lines(&loaded.warnings), [warning]);
}

#[test]
fn a_misspelled_id_or_field_gets_a_suggestion() {
    let help = |nodes: &[&str]| {
        let text = graph(nodes);
        let loaded = Graph::yaml(&text).load();
        let found = loaded.map_or_else(|found| found, |loaded| loaded.warnings);
        found[0].help.clone().unwrap_or_default()
    };
    assert_eq!(help(&["id: schema", "id: b, depends_on: shcema"]), "did you mean `schema`?");
    assert_eq!(help(&["id: a, depend_on: []"]), "did you mean `depends_on`?");
    assert_eq!(help(&["id: a, donewhen: x"]), "did you mean `done_when`?");
    assert_eq!(help(&["id: a", "id: a"]), "first used on line 3");
}

#[test]
fn an_error_shared_by_all_nodes_is_reported_once() {
    let text = "agent: sh\nidle: {delay: 10m}\nnodes:\n  - {id: a, prompt: x}\n  - {id: b, prompt: x, delay: 1}\n  - {id: c, prompt: x}\n";
    assert_eq!(
        Graph::yaml(text).errors(),
        ["graph.yaml:2:15: `idle.max_delay` (5m) is less than `idle.delay` (10m)"]
    );
}

#[test]
fn missing_programs_and_files_are_reported_once_with_their_place() {
    let text = "\
agent: gone
nodes:
  - {id: a, prompt: x}
  - {id: b, prompt: x, agent: sh}
  - {id: c, prompt_file: nowhere.md}
  - {id: d, prompt_file: there.md, agent: other}
";
    let loaded = Graph { bare: true, ..Graph::yaml(text) }.loaded();
    assert_eq!(
        lines(&loaded.faults),
        [
            "graph.yaml:1:8: the agent's program `gone` was not found on PATH",
            "graph.yaml:5:26: cannot read the prompt file `nowhere.md`",
            "graph.yaml:6:43: the agent's program `other` was not found on PATH",
        ]
    );
}

#[test]
fn missing_programs_and_files_are_reported_together_with_all_other_errors() {
    let text = "\
agent: gone
delay: soon
nodes:
  - {id: a}
  - {id: b, prompt_file: nowhere.md, agent: other}
";
    assert_eq!(
        Graph { bare: true, ..Graph::yaml(text) }.errors(),
        [
            "graph.yaml:2:8: `delay` must be a duration",
            "graph.yaml:4:10: node `a` has no prompt",
            "graph.yaml:1:8: the agent's program `gone` was not found on PATH",
            "graph.yaml:5:45: the agent's program `other` was not found on PATH",
            "graph.yaml:5:26: cannot read the prompt file `nowhere.md`",
        ]
    );
}

#[test]
fn arguments_belong_to_the_graph_and_reach_every_node() {
    let text = "\
agent: sh
args: [area]
nodes:
  - {id: a, prompt: 'In {{ args.area }} and {{ args.extra }}.'}
  - {id: b, prompt_file: there.md}
";
    let case = Graph { bare: true, args: &["src", "--extra", "1", "--who=me"], ..Graph::yaml(text) };
    let pairs: Vec<(String, String)> =
        [("area", "src"), ("extra", "1"), ("who", "me")].map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
    assert!(case.loaded().plan.nodes.iter().all(|node| node.settings.args == pairs));
    let case = Graph { args: &["--nonsense", "1"], ..Graph::yaml(text) };
    assert_eq!(case.errors(), ["command line:1:4: the loop has no argument `nonsense`"]);
    let text = graph(&["id: a, args: [x]"]);
    assert_eq!(
        Graph::yaml(&text).errors(),
        ["graph.yaml:3:19: `args` applies to the whole graph, not to a node"]
    );
}

#[test]
fn a_whole_number_is_a_valid_id() {
    let text = graph(&["id: 1", "id: 2, depends_on: [1]", "id: 3, depends_on: 2"]);
    let loaded = Graph::yaml(&text).loaded();
    assert_eq!(names(&node(&loaded, "3").depends_on), ["2"]);
    assert_eq!(names(&node(&loaded, "2").depends_on), ["1"]);
}

#[test]
fn the_number_of_nodes_and_the_size_of_a_graph_are_limited() {
    let many = |n: usize| {
        let items: Vec<String> = (0..n).map(|i| format!("{{\"id\":\"n{i}\",\"prompt\":\"x\"}}")).collect();
        format!("{{\"agent\":\"sh\",\"nodes\":[{}]}}", items.join(",\n"))
    };
    assert_eq!(Graph::file("g.json", &many(MAX_NODES)).loaded().plan.nodes.len(), MAX_NODES);
    assert_eq!(
        Graph::file("g.json", &many(MAX_NODES + 1)).errors(),
        ["g.json:1:23: the graph has 20001 nodes; at most 20000 are allowed"]
    );
    for (n, errors) in [(MAX_GRAPH_BYTES, 0), (MAX_GRAPH_BYTES + 1, 1)] {
        let small = many(1);
        let text = format!("{small}{}", " ".repeat(n - small.len()));
        assert_eq!(Graph::file("g.json", &text).errors().len(), errors);
    }
    for (n, errors) in [(MAX_PROMPT_BYTES, 0), (MAX_PROMPT_BYTES + 1, 1)] {
        let text = format!("agent: sh\nnodes:\n  a: {{prompt: {}}}\n", "x".repeat(n));
        assert_eq!(Graph::yaml(&text).errors().len(), errors);
    }
}

#[test]
fn only_the_first_nodes_are_explained() {
    let nodes: Vec<String> = (0..=MAX_EXPLAINED).map(|n| format!("id: n{n}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let text = graph(&nodes);
    assert_eq!(Graph::yaml(&text).loaded().explain_nodes.len(), MAX_EXPLAINED);
}

#[test]
fn errors_over_the_limit_are_counted() {
    let items: String = (0..10_000)
        .map(|n| format!("  - {{id: n{n}, prompt: x, depends_on: [gone{n}], delay: x}}\n"))
        .collect();
    let text = format!("agent: sh\nnodes:\n{items}");
    let found = Graph::yaml(&text).load().unwrap_err();
    assert_eq!(found.len(), MAX_DIAGNOSTICS + 1);
    assert_eq!(found[MAX_DIAGNOSTICS].message, "19950 more diagnostics not shown");
}

/// A random number generator with a fixed seed, so that every run of the test uses the same graphs.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

/// Returns a random acyclic graph in shuffled order. With `back`, adds dependencies that form a cycle.
fn random_graph(dice: &mut Dice, back: bool) -> (usize, Vec<(usize, usize)>) {
    let n = 2 + dice.below(12);
    let mut order: Vec<usize> = (0..n).collect();
    (1..n).for_each(|i| order.swap(i, dice.below(i + 1)));
    let mut links = Vec::new();
    for _ in 0..dice.below(2 * n) {
        let (a, b) = (dice.below(n), dice.below(n));
        if a != b {
            links.push((order[a.max(b)], order[a.min(b)]));
        }
    }
    if back {
        let (first, last) = (dice.below(n - 1), n - 1);
        links.push((order[last], order[first]));
        links.push((order[first], order[last]));
    }
    (n, links)
}

fn written(n: usize, links: &[(usize, usize)]) -> String {
    let node = |at: usize| {
        let on: Vec<String> =
            links.iter().filter(|(from, _)| *from == at).map(|(_, on)| format!("n{on}")).collect();
        format!("id: n{at}, depends_on: [{}]", on.join(", "))
    };
    let nodes: Vec<String> = (0..n).map(node).collect();
    graph(&nodes.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn acyclic_graphs_load_and_cyclic_graphs_report_a_real_cycle() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..300 {
        let (n, links) = random_graph(&mut dice, round % 2 == 1);
        let text = written(n, &links);
        let case = Graph::yaml(&text);
        if round % 2 == 0 {
            let loaded = case.loaded();
            assert_eq!(loaded.plan.nodes.len(), n);
            continue;
        }
        let errors = case.errors();
        assert!(!errors.is_empty(), "{text}");
        for error in errors {
            let path = error.split("dependency cycle: ").nth(1).unwrap_or_else(|| panic!("{error}"));
            let path: Vec<usize> = path.split(" → ").map(|name| name[1..].parse().unwrap()).collect();
            assert_eq!(path.first(), path.last(), "{error}");
            assert!(path.windows(2).all(|pair| links.contains(&(pair[0], pair[1]))), "{error} in {text}");
            let mut inner = path[1..].to_vec();
            inner.sort_unstable();
            inner.dedup();
            assert_eq!(inner.len(), path.len() - 1, "{error} visits a node twice");
        }
    }
}
