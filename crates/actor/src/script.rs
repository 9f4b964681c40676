//! A script as it was read: steps, and the table of their names.

use crate::text::Text;
use dogwatch_core::dur::Dur;
use rustix::process::Signal;
use std::ops::{Range, RangeInclusive};

/// The longest script: a block must fit into one argument (128 KiB on Linux) when a child gets it.
pub const SCRIPT_MAX: usize = 64 * 1024;
/// Blocks inside blocks; more is a script gone wrong.
pub const DEPTH_MAX: usize = 32;
/// How long a `rabbit` runs when nothing is said: a failing test cannot leave one behind for ever.
pub const RABBIT_DEFAULT: Dur = Dur::from_secs(20);

/// Steps between braces, or the whole script.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub steps: Vec<Node>,
    /// Where it stands in the source, without the braces: a child is given this text.
    pub span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub step: Step,
    /// Offset of the step's name, for messages.
    pub at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

/// How far away from its parent a new process goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spawn {
    /// Same session, same group.
    Child,
    /// Own session, reparented.
    Orphan,
    /// As an orphan, and nothing in its environment.
    Bare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    Lines,
    Json,
    /// One line that never ends.
    OneLine,
}

/// A block that is played when a condition holds, and the one that is played when not.
#[derive(Clone, Debug, PartialEq)]
pub struct Branches {
    pub then: Block,
    pub otherwise: Option<Block>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Print { to: Stream, text: Text },
    SayPrompt,
    ReadPrompt,
    Env(Text),
    Cwd,
    Argv,
    Flood { kind: Flood, bytes: u64, to: Stream },
    Close(Stream),

    Write { path: Text, text: Text },
    Append { path: Text, text: Text },
    Touch(Text),
    Remove(Text),
    Mkdir(Text),

    Sleep(Dur),
    Hang,
    Burn(Dur),
    Stop,
    Exit(u8),
    Crash(Signal),
    Ignore(Vec<Signal>),

    Ready(Text),
    Await(Text),
    Hold(Text),

    Start(Spawn, Block),
    Wait,
    Rabbit(Dur),

    Repeat(u64, Block),
    Forever(Block),
    Once(Text, Branches),
    Counter(Text),
    On(RangeInclusive<u64>, Branches),
    IfPrompt(Text, Branches),

    Claude(Claude),
}

/// One or two lines in the shape of Claude Code's stream-json.
#[derive(Clone, Debug, PartialEq)]
pub enum Claude {
    Init,
    Text(Text),
    Thinking(Text),
    /// Start and end of a call.
    Tool(Call, Reply),
    ToolStart(Call),
    /// End of the latest open call.
    ToolEnd(Reply),
    /// A line of a subagent's own, under the latest open call.
    Subagent(Text),
    Heartbeat,
    Retry(u16),
    Result(Text),
    /// The result of a turn that broke: `error_during_execution`.
    Error(Text),
    /// An API failure: subtype success, yet `is_error`.
    IsError(Option<u16>, Text),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: Text,
    pub input: Option<Text>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub ok: bool,
    pub text: Option<Text>,
}

/// Every step: name, what follows it, what it does. `--help` prints it, `docs/actor.md` is tested
/// against it, and the nearest name to a typing error is looked for here.
pub const STEPS: &[(&str, &str, &str)] = &[
    ("say", "TEXT", "a line on stdout"),
    ("err", "TEXT", "a line on stderr"),
    ("print", "TEXT", "as say, without the newline"),
    ("raw", "\"BYTES\"…", "bytes on stdout, nothing between the words"),
    ("say-prompt", "", "reads stdin to its end and prints it"),
    ("read-prompt", "", "reads stdin to its end"),
    ("env", "NAME", "a variable's value, or (unset)"),
    ("cwd", "", "the working directory"),
    ("argv", "", "the arguments after the script, one a line"),
    ("marker", "NAME [REASON] [key=value]…", "a state marker on its own line"),
    ("flood", "BYTES [stdout|stderr]", "numbered text lines, as fast as they are taken"),
    ("flood-json", "BYTES [stdout|stderr]", "stream-json lines of 0.3 to 4 kB, as fast as they are taken"),
    ("line", "BYTES [stdout|stderr]", "one line, without its newline"),
    ("close", "stdin|stdout|stderr", "lets go of the pipe (the descriptor then leads to /dev/null)"),
    ("claude", "WHAT …", "lines in the shape of Claude Code's stream-json"),
    ("write", "PATH TEXT", "a file with this line"),
    ("append", "PATH TEXT", "a line more in a file"),
    ("touch", "PATH", "creates a file, or renews its time"),
    ("remove", "PATH", "a file or an empty directory; no error if it is not there"),
    ("mkdir", "PATH", "a directory and those above it"),
    ("sleep", "DUR", "sleeps"),
    ("hang", "", "for ever, without CPU"),
    ("burn", "DUR", "uses that much CPU time"),
    ("stop", "", "stops itself (SIGSTOP) until SIGCONT"),
    ("exit", "N", "ends with this code"),
    ("crash", "SIGNAL", "kills itself by it"),
    ("ignore", "SIGNAL…", "ignores them; so do the processes it starts"),
    ("ready", "PATH", "writes its pid and a newline to a FIFO or file"),
    ("await", "PATH", "reads a FIFO to its end"),
    ("hold", "PATH", "keeps a FIFO open for writing till death, inherited by those it starts"),
    ("child", "{ … }", "plays the block in a child of the same group"),
    ("orphan", "{ … }", "plays the block in a session of its own, reparented"),
    ("bare", "{ … }", "as orphan, with an empty environment"),
    ("wait", "", "for all its children"),
    ("rabbit", "[DUR]", "forks, setsids and lets the parent exit, for at most DUR (20 s)"),
    ("repeat", "N { … }", "N times"),
    ("forever", "{ … }", "without end"),
    ("once", "PATH { … } else { … }", "the first block if PATH was not there; creates it"),
    ("counter", "PATH", "adds one to the number in the file and remembers it as $n"),
    ("on", "N|N..|N..M { … } else { … }", "when the counter is N, or from N on, or N to M"),
    ("if-prompt", "TEXT { … } else { … }", "when the prompt contains the text"),
];

/// What may follow `claude`.
pub const CLAUDE: &[(&str, &str, &str)] = &[
    ("init", "", "the first line of a turn"),
    ("text", "TEXT", "a message"),
    ("thinking", "TEXT", "a thinking block"),
    ("tool", "NAME [ok|fail] [INPUT [RESULT]]", "a call and its result"),
    ("tool-start", "NAME [INPUT]", "a call that stays open"),
    ("tool-end", "[ok|fail] [RESULT]", "the end of the latest open call"),
    ("subagent", "TEXT", "a message of a subagent, under the latest open call"),
    ("heartbeat", "", "tool_progress of the latest open call"),
    ("retry", "[STATUS]", "api_retry (529)"),
    ("result", "TEXT", "a good result"),
    ("error", "TEXT", "a result error_during_execution"),
    ("is_error", "[STATUS] TEXT", "a result success with is_error, as API failures are"),
];

/// The signals a script may name; numbers differ between systems, names do not.
pub const SIGNALS: &[(&str, Signal)] = &[
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ILL", Signal::ILL),
    ("TRAP", Signal::TRAP),
    ("ABRT", Signal::ABORT),
    ("BUS", Signal::BUS),
    ("FPE", Signal::FPE),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("SEGV", Signal::SEGV),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("CHLD", Signal::CHILD),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
    ("TSTP", Signal::TSTP),
    ("TTIN", Signal::TTIN),
    ("TTOU", Signal::TTOU),
];
