//! Plays a script step by step in a single thread.

use crate::claude::Session;
use crate::error::{Source, position};
use crate::flood;
use crate::out::{self, Wrote, write_all};
use crate::processes::{self, Inherited, SelfCommand};
use crate::script::{Block, Branches, Call, Claude, Node, Reply, Spawn, Step, Stream};
use crate::text::{Piece, Text};
use crate::work;
use dogwatch_core::time::dur::Dur;
use dogwatch_host::sys;
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// The exit code that a shell reports for a program killed by SIGPIPE.
const EXIT_PIPE_CLOSED: u8 = 128 + 13;
/// The exit code when a step fails (EX_SOFTWARE). Scripts do not use it themselves.
pub const EXIT_FAILED: u8 = 70;

/// Why a script ended before its last step.
#[derive(Debug)]
pub enum Ended {
    Exit(u8),
    Failed { at: Option<usize>, what: String },
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Failed { at: None, what: error.to_string() }
    }
}

impl From<rustix::io::Errno> for Ended {
    fn from(errno: rustix::io::Errno) -> Ended {
        io::Error::from(errno).into()
    }
}

type Played = Result<(), Ended>;

/// The state of a script that is being played.
pub struct Actor {
    pub source: Source,
    pub self_command: SelfCommand,
    /// The arguments after the script.
    pub args: Vec<OsString>,
    pub count: Option<u64>,
    /// Whether a closed pipe is ignored.
    pub epipe_ok: bool,
    prompt: Option<Vec<u8>>,
    children: Vec<Child>,
    latest_child: Option<u32>,
    /// Descriptors that stay open until the process exits.
    held: Vec<OwnedFd>,
    claude: Session,
    flood_round: u64,
}

impl Actor {
    /// Creates an actor for a script.
    pub fn new(source: Source, self_command: SelfCommand, args: Vec<OsString>) -> Actor {
        Actor {
            source,
            self_command,
            args,
            count: None,
            epipe_ok: false,
            prompt: None,
            children: Vec::new(),
            latest_child: None,
            held: Vec::new(),
            claude: Session::of_this_process(),
            flood_round: 0,
        }
    }

    /// Plays the whole script and returns the exit code.
    pub fn perform(&mut self, script: &Block) -> u8 {
        match self.play(script) {
            Ok(()) => 0,
            Err(Ended::Exit(code)) => code,
            Err(Ended::Failed { at, what }) => {
                let (line, column) = position(&self.source.text, at.unwrap_or(0));
                let message = format!("error: {}:{line}:{column}: {what}\n", self.source.name);
                // Ignore write errors: the exit code also reports the failure.
                let _ = write_all(out::descriptor(Stream::Stderr), message.as_bytes());
                EXIT_FAILED
            }
        }
    }

    fn play(&mut self, block: &Block) -> Played {
        for Node { step, at } in &block.steps {
            self.step(step).map_err(|ended| match ended {
                Ended::Failed { at: None, what } => Ended::Failed { at: Some(*at), what },
                other @ (Ended::Exit(_) | Ended::Failed { .. }) => other,
            })?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Played {
        match step {
            Step::Print { to, text } => self.print(*to, text),
            Step::SayPrompt => self.say_prompt(),
            Step::ReadPrompt => self.read_prompt().map(drop),
            Step::Env(name) => self.say_env(name),
            Step::Cwd => self.write_line(std::env::current_dir()?.as_os_str().as_bytes()),
            Step::Argv => self.args.clone().iter().try_for_each(|arg| self.write_line(arg.as_bytes())),
            Step::Flood { kind, bytes, to } => {
                let wrote = flood::flood(*kind, out::descriptor(*to), *bytes, &mut self.flood_round)?;
                self.after_write(wrote)
            }
            Step::Close(stream) => Ok(out::redirect_to_null(*stream)?),
            Step::Write { path, text } => Ok(std::fs::write(self.path(path)?, self.bytes(text)?)?),
            Step::Append { path, text } => Ok(work::append(&self.path(path)?, &self.bytes(text)?)?),
            Step::Touch(path) => Ok(work::touch(&self.path(path)?)?),
            Step::Remove(path) => Ok(work::remove(&self.path(path)?)?),
            Step::Mkdir(path) => Ok(std::fs::create_dir_all(self.path(path)?)?),
            Step::Sleep(dur) => {
                std::thread::sleep((*dur).into());
                Ok(())
            }
            Step::Hang => hang(),
            Step::Burn(dur) => {
                burn(*dur);
                Ok(())
            }
            Step::Stop => Ok(signal_myself(Signal::STOP)?),
            Step::Exit(code) => Err(Ended::Exit(*code)),
            Step::Crash(signal) => crash(*signal),
            Step::Ignore(signals) => self.ignore(signals),
            Step::Ready(path) => Ok(work::ready(&self.path(path)?)?),
            Step::Await(path) => Ok(work::await_end(&self.path(path)?)?),
            Step::Hold(path) => {
                let held = work::hold(&self.path(path)?)?;
                self.held.push(held);
                Ok(())
            }
            Step::Start(spawn, block) => self.start(*spawn, block),
            Step::Wait => self.wait(),
            Step::Rabbit(limit) => Ok(processes::run_rabbit(*limit)?),
            Step::Repeat(times, block) => (0..*times).try_for_each(|_| self.play(block)),
            Step::Forever(block) => loop {
                self.play(block)?;
            },
            Step::Once(path, branches) => {
                let first = work::create_new(&self.path(path)?)?;
                self.branch(first, branches)
            }
            Step::Counter(path) => {
                self.count = Some(work::count_up(&self.path(path)?)?);
                Ok(())
            }
            Step::On(range, branches) => self.branch(range.contains(&self.counted()?), branches),
            Step::IfPrompt(text, branches) => {
                let wanted = self.bytes(text)?;
                let found = contains(self.read_prompt()?, &wanted);
                self.branch(found, branches)
            }
            Step::Claude(what) => self.claude(what),
        }
    }

    fn branch(&mut self, holds: bool, branches: &Branches) -> Played {
        match (holds, &branches.otherwise) {
            (true, _) => self.play(&branches.then),
            (false, Some(otherwise)) => self.play(otherwise),
            (false, None) => Ok(()),
        }
    }

    fn bytes(&mut self, text: &Text) -> Result<Vec<u8>, Ended> {
        let mut bytes = Vec::new();
        for piece in text.pieces() {
            match piece {
                Piece::Bytes(own) => bytes.extend(own),
                Piece::Pid => bytes.extend(std::process::id().to_string().bytes()),
                Piece::Child => bytes.extend(self.child()?.to_string().bytes()),
                Piece::Count => bytes.extend(self.counted()?.to_string().bytes()),
                Piece::Prompt => bytes.extend(self.read_prompt()?),
                Piece::Env(name) => bytes.extend(std::env::var_os(name).unwrap_or_default().into_vec()),
                Piece::Arg(n) => bytes.extend(self.args.get(n - 1).map_or(&b""[..], |arg| arg.as_bytes())),
            }
        }
        Ok(bytes)
    }

    fn string(&mut self, text: &Text) -> Result<String, Ended> {
        Ok(String::from_utf8_lossy(&self.bytes(text)?).into_owned())
    }

    fn path(&mut self, text: &Text) -> Result<PathBuf, Ended> {
        Ok(OsString::from_vec(self.bytes(text)?).into())
    }

    fn counted(&self) -> Result<u64, Ended> {
        self.count.ok_or_else(|| failed("`$n` has no value yet; use `counter PATH` first"))
    }

    fn child(&self) -> Result<u32, Ended> {
        self.latest_child.ok_or_else(|| failed("`$child` has no value yet; use `child { … }` first"))
    }

    fn read_prompt(&mut self) -> Result<&[u8], Ended> {
        if self.prompt.is_none() {
            self.prompt = Some(work::read_to_end(out::descriptor(Stream::Stdin))?);
        }
        Ok(self.prompt.as_deref().unwrap_or_default())
    }

    fn say_prompt(&mut self) -> Played {
        let prompt = self.read_prompt()?.to_vec();
        self.write(Stream::Stdout, &prompt)
    }

    fn say_env(&mut self, name: &Text) -> Played {
        let name = OsString::from_vec(self.bytes(name)?);
        // The standard library panics on invalid names.
        let legal = !name.is_empty() && !name.as_bytes().iter().any(|b| *b == b'=' || *b == 0);
        let value = if legal { std::env::var_os(&name) } else { None };
        self.write_line(value.map_or(b"(unset)".to_vec(), OsString::into_vec).as_slice())
    }

    fn print(&mut self, to: Stream, text: &Text) -> Played {
        let bytes = self.bytes(text)?;
        self.write(to, &bytes)
    }

    fn write_line(&mut self, line: &[u8]) -> Played {
        self.write(Stream::Stdout, &[line, b"\n"].concat())
    }

    fn write(&mut self, to: Stream, bytes: &[u8]) -> Played {
        let wrote = write_all(out::descriptor(to), bytes)?;
        self.after_write(wrote)
    }

    fn after_write(&self, wrote: Wrote) -> Played {
        match wrote {
            Wrote::PipeClosed if !self.epipe_ok => Err(Ended::Exit(EXIT_PIPE_CLOSED)),
            Wrote::PipeClosed | Wrote::All => Ok(()),
        }
    }

    fn ignore(&mut self, signals: &[Signal]) -> Played {
        for signal in signals {
            sys::ignore(*signal)?;
            self.epipe_ok |= *signal == Signal::PIPE;
        }
        Ok(())
    }

    fn start(&mut self, spawn: Spawn, block: &Block) -> Played {
        let with = Inherited {
            count: self.count,
            epipe_ok: self.epipe_ok,
            prompt: self.prompt.as_deref(),
            args: &self.args,
        };
        if let Some(child) =
            processes::start(&self.self_command, spawn, &self.source.text[block.span.clone()], &with)?
        {
            self.latest_child = Some(child.id());
            self.children.push(child);
        }
        Ok(())
    }

    fn wait(&mut self) -> Played {
        for mut child in self.children.drain(..) {
            child.wait()?;
        }
        Ok(())
    }

    fn claude(&mut self, what: &Claude) -> Played {
        let lines = match what {
            Claude::Init => vec![self.claude.init()],
            Claude::Text(text) => self.spoken(text, Session::message)?,
            Claude::Thinking(text) => self.spoken(text, Session::thinking)?,
            Claude::Tool(call, reply) => vec![self.call(call)?, self.reply(reply)?],
            Claude::ToolStart(call) => vec![self.call(call)?],
            Claude::ToolEnd(reply) => vec![self.reply(reply)?],
            Claude::Subagent(text) => self.spoken(text, Session::subagent)?,
            Claude::Heartbeat => vec![self.claude.heartbeat()],
            Claude::Retry(status) => vec![self.claude.retry(*status)],
            Claude::Result(text) => self.spoken(text, Session::result)?,
            Claude::Error(text) => self.spoken(text, Session::error)?,
            Claude::IsError(status, text) => {
                let text = self.string(text)?;
                self.claude.api_error(*status, &text).to_vec()
            }
        };
        lines.iter().try_for_each(|line| self.write_line(line.to_string().as_bytes()))
    }

    fn spoken(&mut self, text: &Text, line: fn(&mut Session, &str) -> Value) -> Result<Vec<Value>, Ended> {
        let text = self.string(text)?;
        Ok(vec![line(&mut self.claude, &text)])
    }

    fn call(&mut self, call: &Call) -> Result<Value, Ended> {
        let name = self.string(&call.name)?;
        let input = self.string(call.input.as_ref().unwrap_or(&"make".into()))?;
        Ok(self.claude.call(&name, &input))
    }

    fn reply(&mut self, reply: &Reply) -> Result<Value, Ended> {
        let default = Text::from(if reply.ok { "done" } else { "Exit code 1\nfailed" });
        let text = self.string(reply.text.as_ref().unwrap_or(&default))?;
        Ok(self.claude.reply(reply.ok, &text))
    }
}

fn failed(what: &str) -> Ended {
    Ended::Failed { at: None, what: what.to_owned() }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

fn hang() -> Played {
    loop {
        std::thread::sleep(Duration::from_secs(24 * 60 * 60));
    }
}

/// Uses this much CPU time, not wall time, so that the effort is the same on a busy machine.
fn burn(dur: Dur) {
    let used = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
    };
    let until = used() + Duration::from(dur);
    while used() < until {
        for _ in 0..10_000 {
            std::hint::spin_loop();
        }
    }
}

fn signal_myself(signal: Signal) -> rustix::io::Result<()> {
    rustix::process::kill_process(rustix::process::getpid(), signal)
}

/// Dies by the signal even if it is ignored or the runtime handles it, without a core dump.
fn crash(signal: Signal) -> Played {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Core).maximum;
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
    if signal != Signal::KILL && signal != Signal::STOP {
        sys::default_action(signal)?;
    }
    Ok(signal_myself(signal)?)
}
