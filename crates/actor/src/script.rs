//! A parsed script: the steps, and the tables of their names.

use crate::text::Text;
use dogwatch_core::time::dur::Dur;
use rustix::process::Signal;
use std::ops::{Range, RangeInclusive};

/// The longest script, in bytes. A block must fit into one argument (128 KiB on Linux) when a child is started.
pub const SCRIPT_MAX: usize = 64 * 1024;
/// The deepest nesting of blocks.
pub const DEPTH_MAX: usize = 32;
/// The default limit of `rabbit`, so that a failing test cannot leave one behind forever.
pub const RABBIT_DEFAULT: Dur = Dur::from_secs(20);

/// The steps between braces, or the whole script.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The steps, in order.
    pub steps: Vec<Node>,
    /// The byte range in the source without the braces: the text that a child is started with.
    pub span: Range<usize>,
}

/// A step with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The step.
    pub step: Step,
    /// The offset of the step's name, for messages.
    pub at: usize,
}

/// The standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard input.
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a new process is related to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spawn {
    /// In the same session and group.
    Child,
    /// In its own session, reparented.
    Orphan,
    /// Like an orphan, with an empty environment.
    Bare,
}

/// The kinds of floods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Short lines of text.
    Lines,
    /// Lines of JSON, as a structured agent prints them.
    Json,
    /// One line without a newline.
    OneLine,
}

/// A block for when a condition holds, and optionally one for when it does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Branches {
    /// The steps for the condition.
    pub then: Block,
    /// The steps for its opposite.
    pub otherwise: Option<Block>,
}

/// One step of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Prints text.
    Print {
        /// The stream.
        to: Stream,
        /// The text.
        text: Text,
    },
    /// Prints the prompt.
    SayPrompt,
    /// Reads the prompt from stdin to its end.
    ReadPrompt,
    /// Prints an environment variable.
    Env(Text),
    /// Prints the working directory.
    Cwd,
    /// Prints the arguments.
    Argv,
    /// Prints a lot of output quickly.
    Flood {
        /// The kind of output.
        kind: Flood,
        /// The number of bytes.
        bytes: u64,
        /// The stream.
        to: Stream,
    },
    /// Closes a stream.
    Close(Stream),

    /// Writes a file.
    Write {
        /// The path of the file.
        path: Text,
        /// The content.
        text: Text,
    },
    /// Appends to a file.
    Append {
        /// The path of the file.
        path: Text,
        /// The text to append.
        text: Text,
    },
    /// Changes the time of a file, and creates it if it does not exist.
    Touch(Text),
    /// Removes a file.
    Remove(Text),
    /// Creates a directory.
    Mkdir(Text),

    /// Sleeps.
    Sleep(Dur),
    /// Waits without end.
    Hang,
    /// Uses CPU time.
    Burn(Dur),
    /// Stops the process with SIGSTOP until SIGCONT.
    Stop,
    /// Exits with a code.
    Exit(u8),
    /// Ends the process by a signal.
    Crash(Signal),
    /// Ignores signals.
    Ignore(Vec<Signal>),

    /// Writes the process id to a FIFO or file, to report readiness.
    Ready(Text),
    /// Waits for a writer of a FIFO, and then until the last writer has closed it.
    Await(Text),
    /// Keeps a FIFO open for writing until the process and all its children are gone.
    Hold(Text),

    /// Starts a child process that runs a block.
    Start(Spawn, Block),
    /// Waits for all children.
    Wait,
    /// Forks, starts a new session and exits in the parent, again and again, for at most this time.
    Rabbit(Dur),

    /// Repeats a block.
    Repeat(u64, Block),
    /// Repeats a block without end.
    Forever(Block),
    /// Runs the first block if the file does not exist, and creates it; otherwise the second block.
    Once(Text, Branches),
    /// Adds one to the number in a file, which `On` tests.
    Counter(Text),
    /// Runs a block if the number of the counter is in a range.
    On(RangeInclusive<u64>, Branches),
    /// Runs a block if the prompt contains a text.
    IfPrompt(Text, Branches),

    /// Prints a message in the format of Claude Code.
    Claude(Claude),
}

/// One or two lines in the format of Claude Code's stream-json.
#[derive(Clone, Debug, PartialEq)]
pub enum Claude {
    /// The first line of a session.
    Init,
    /// A message.
    Text(Text),
    /// A thought.
    Thinking(Text),
    /// The start and the end of a call.
    Tool(Call, Reply),
    /// The start of a tool call.
    ToolStart(Call),
    /// The end of the latest open call.
    ToolEnd(Reply),
    /// A message of a subagent under the latest open call.
    Subagent(Text),
    /// A line that only shows that the agent is alive.
    Heartbeat,
    /// A retry after this HTTP status.
    Retry(u16),
    /// The final result.
    Result(Text),
    /// The result of a failed turn: `error_during_execution`.
    Error(Text),
    /// An API failure: subtype `success` with `is_error`.
    IsError(Option<u16>, Text),
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The name of the tool.
    pub name: Text,
    /// The input of the tool, as JSON.
    pub input: Option<Text>,
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Whether the call succeeded.
    pub ok: bool,
    /// The text of the result.
    pub text: Option<Text>,
}

/// Every step: name, arguments, description. `--help` prints this table, `docs/internals/actor.md` is tested against it, and
/// suggestions for misspelled names come from it.
pub const STEPS: &[(&str, &str, &str)] = &[
    ("say", "TEXT", "prints a line on stdout"),
    ("err", "TEXT", "prints a line on stderr"),
    ("print", "TEXT", "like say, without the newline"),
    ("raw", "\"BYTES\"…", "prints bytes on stdout, with nothing between the words"),
    ("say-prompt", "", "reads stdin to the end and prints it"),
    ("read-prompt", "", "reads stdin to the end"),
    ("env", "NAME", "prints the value of a variable, or (unset)"),
    ("cwd", "", "prints the working directory"),
    ("argv", "", "prints the arguments after the script, one per line"),
    ("marker", "NAME [REASON] [key=value]…", "prints a state marker on its own line"),
    ("flood", "BYTES [stdout|stderr]", "prints numbered text lines as fast as possible"),
    ("flood-json", "BYTES [stdout|stderr]", "prints stream-json lines of 0.3 to 4 kB as fast as possible"),
    ("line", "BYTES [stdout|stderr]", "prints one line without a newline"),
    ("close", "stdin|stdout|stderr", "closes the pipe (the descriptor then refers to /dev/null)"),
    ("claude", "WHAT …", "prints lines in the format of Claude Code's stream-json"),
    ("write", "PATH TEXT", "writes a file with this line"),
    ("append", "PATH TEXT", "appends a line to a file"),
    ("touch", "PATH", "creates a file, or updates its modification time"),
    ("remove", "PATH", "removes a file or an empty directory, if it exists"),
    ("mkdir", "PATH", "creates a directory and its parents"),
    ("sleep", "DUR", "sleeps"),
    ("hang", "", "sleeps forever"),
    ("burn", "DUR", "uses that much CPU time"),
    ("stop", "", "stops itself (SIGSTOP) until SIGCONT"),
    ("exit", "N", "exits with this code"),
    ("crash", "SIGNAL", "kills itself with the signal"),
    ("ignore", "SIGNAL…", "ignores the signals, also in the processes it starts"),
    ("ready", "PATH", "writes its pid and a newline to a FIFO or file"),
    ("await", "PATH", "reads a FIFO to the end"),
    ("hold", "PATH", "keeps a FIFO open for writing until it exits; its processes inherit it"),
    ("child", "{ … }", "plays the block in a child in the same process group"),
    ("orphan", "{ … }", "plays the block in a reparented process in its own session"),
    ("bare", "{ … }", "like orphan, with an empty environment"),
    ("wait", "", "waits for all children"),
    ("rabbit", "[DUR]", "forks, calls setsid and exits the parent, repeatedly for DUR (20 s)"),
    ("repeat", "N { … }", "plays the block N times"),
    ("forever", "{ … }", "plays the block without end"),
    ("once", "PATH { … } else { … }", "plays the first block if PATH does not exist, and creates it"),
    ("counter", "PATH", "adds one to the number in the file and keeps it as $n"),
    ("on", "N|N..|N..M { … } else { … }", "plays the block if the counter is N, at least N, or N to M"),
    ("if-prompt", "TEXT { … } else { … }", "plays the block if the prompt contains the text"),
];

/// The arguments of `claude`: name, arguments, description.
pub const CLAUDE: &[(&str, &str, &str)] = &[
    ("init", "", "the first line of a turn"),
    ("text", "TEXT", "a message"),
    ("thinking", "TEXT", "a thinking block"),
    ("tool", "NAME [ok|fail] [INPUT [RESULT]]", "a tool call and its result"),
    ("tool-start", "NAME [INPUT]", "a tool call that stays open"),
    ("tool-end", "[ok|fail] [RESULT]", "the end of the latest open call"),
    ("subagent", "TEXT", "a message of a subagent, under the latest open call"),
    ("heartbeat", "", "tool_progress of the latest open call"),
    ("retry", "[STATUS]", "api_retry (529)"),
    ("result", "TEXT", "a successful result"),
    ("error", "TEXT", "a result with error_during_execution"),
    ("is_error", "[STATUS] TEXT", "an API failure: a result success with is_error"),
];

/// The signals that a script can name. Unlike numbers, names are the same on all systems.
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
