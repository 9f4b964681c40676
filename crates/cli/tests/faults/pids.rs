//! A process that got the number of a dead one is left alone.

use crate::kit::Project;
use crate::kit::skip::skip;
use std::process::Command;

/// Runs in a new process namespace, where the next pid can be chosen.
const SCRIPT: &str = r#"
set -eu
$DOGWATCH run loop -n 2 --json > out1 & run=$!
read agent < there
keeper=$(awk '{print $4}' "/proc/$agent/stat")
kill -9 $run
while [ -e "/proc/$keeper" ]; do sleep 0.02; done
wait $run || true
for pid in $run $keeper $agent; do
  echo $((pid - 1)) > /proc/sys/kernel/ns_last_pid
  sleep 600 &
  [ $! = $pid ] || { echo "got $! instead of $pid" >&2; exit 3; }
done
$DOGWATCH resume --json > out2
for pid in $run $keeper $agent; do kill -0 $pid || { echo "$pid was ended" >&2; exit 4; }; done
"#;

// promise: 1
#[test]
fn a_process_that_got_the_number_of_a_dead_one_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can choose the number of a process");
    }
    let project = Project::acting("counter ../count; on 1 { ready there; hang }");
    // The reader of the script opens it.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        project.path("there"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a FIFO");
    project.file("script.sh", SCRIPT);
    let mut command = Command::new("unshare");
    project.set_environment(&mut command);
    command.env("DOGWATCH", env!("CARGO_BIN_EXE_dogwatch"));
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "script.sh"]);
    let done = crate::kit::Running::start(command).finish();
    if done.stderr.contains("Operation not permitted") {
        return skip("cannot make a process namespace");
    }
    done.assert_code(0);
    let end = project.journal().pop().expect("an event");
    assert_eq!((&end["event"], &end["completed"]), (&"run_ended".into(), &2.into()), "{end}");
}
