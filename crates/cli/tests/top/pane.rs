//! A private tmux with one pane. All waits are for output of the pane, with a limit.

use crate::kit::{Project, TIMEOUT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A tmux pane that runs `top`.
pub struct Pane<'p> {
    project: &'p Project,
    socket: PathBuf,
    /// Receives a copy of everything that the pane prints.
    output: OwnedFd,
}

/// The script in the pane: runs `top` and saves the terminal settings before and after it.
const SCRIPT: &str = "\
stty -g > ../before
sh -c 'echo $$ > ../pid; exec \"$DOGWATCH_UNDER_TEST\" top $TOP_ARGS'
echo $? > ../code
stty -g > ../after
echo it is over
exec cat";

impl<'p> Pane<'p> {
    /// Starts tmux with `top` in its pane.
    pub fn open(project: &'p Project, env: &[(&str, &str)]) -> Pane<'p> {
        let fifo = project.outside("output");
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).expect("a FIFO");
        // Opened for reading and writing, so that reads never see the end of the file.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let output = rustix::fs::open(&fifo, flags, Mode::empty()).expect("opens");
        let pane = Pane { project, socket: project.outside("tmux"), output };
        let mut start = pane.command(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24"]);
        for (name, value) in env {
            start.env(name, value);
        }
        start.env("DOGWATCH_UNDER_TEST", env!("CARGO_BIN_EXE_dogwatch")).args(["sh", "-c", SCRIPT]);
        finish(start);
        pane.tmux(&["pipe-pane", &format!("exec cat > '{}'", fifo.display())]);
        pane
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        self.project.set_environment(&mut command);
        command.env_remove("TMUX").env_remove("NO_COLOR").env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
        command.arg("-u").arg("-S").arg(&self.socket).args(args);
        command
    }

    /// Runs a tmux command and returns its output.
    pub fn tmux(&self, args: &[&str]) -> String {
        finish(self.command(args))
    }

    /// Sends keys to the pane.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Returns the text on the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen matches, and returns it.
    #[track_caller]
    pub fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + TIMEOUT;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && self.output_within(left), "no {what} on\n{screen}");
        }
    }

    /// Waits until the screen contains this text, and returns it.
    #[track_caller]
    pub fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Waits for output.
    fn output_within(&self, bound: std::time::Duration) -> bool {
        let bound = Timespec::try_from(bound).expect("seconds");
        let ready = poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&bound)).expect("polls");
        let mut chunk = [0; 4096];
        while rustix::io::read(&self.output, &mut chunk).is_ok_and(|n| n > 0) {}
        ready > 0
    }

    /// Sends a signal to `top`.
    pub fn signal(&self, signal: Signal) {
        let pid = std::fs::read_to_string(self.project.outside("pid")).expect("top has started");
        let pid = Pid::from_raw(pid.trim().parse().expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("the process is alive");
    }

    /// Asserts that `top` exited with this code and restored the terminal.
    #[track_caller]
    pub fn assert_restored(&self, code: u8) {
        let screen = self.until_shown("it is over");
        let read = |name: &str| std::fs::read_to_string(self.project.outside(name)).expect("written");
        assert_eq!(read("code").trim(), code.to_string(), "{screen}");
        assert_eq!(read("after"), read("before"), "the settings of the terminal");
        assert_eq!(self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
        assert!(!screen.contains("dogwatch top"), "the previous screen is restored:\n{screen}");
    }
}

impl Drop for Pane<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).stderr(Stdio::null()).status();
    }
}

fn finish(mut command: Command) -> String {
    let out = command.output().expect("tmux is there: scripts/test installs it");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}
