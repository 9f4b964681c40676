//! The sandbox of a session. The agents here try to write, read, connect and signal outside of it.

use crate::kit::{GRACES, Project, Running, kinds, one};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

/// Returns whether this kernel enforces everything. The tests of the sandbox are skipped elsewhere.
pub fn is_supported() -> bool {
    let support = dogwatch_host::sandbox::Support { landlock: 6, mounts: true };
    let out = Command::new(env!("CARGO_BIN_EXE_dogwatch")).arg("sandboxed").output();
    let text = String::from_utf8_lossy(&out.expect("dogwatch starts").stdout).into_owned();
    let is = text.trim() == format!("{} mounts", support.landlock);
    if !is {
        println!("skipped: this kernel cannot enforce the sandbox: {text}");
    }
    is
}

/// Makes a git project whose agent runs the attempts of a shell script. Each attempt is a line `NAME: COMMAND`; the
/// names of those that succeed are appended to the file `done`.
fn attempting(sandbox: &str, attempts: &[(&str, &str)]) -> Project {
    let project = Project::new();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        project.set_environment(&mut command);
        assert!(command.args(args).output().expect("git is there").status.success());
    };
    git(&["init", "-q"]);
    project.file("dogwatch.toml", "");
    let lines = attempts
        .iter()
        .map(|(name, command)| format!("if ( {command} ) >>log 2>&1; then echo {name} >>done; fi"));
    project.file("agent.sh", &lines.collect::<Vec<_>>().join("\n"));
    project.ralph(&format!("agent: sh agent.sh\n{GRACES}\n{sandbox}"), "Go on.");
    std::fs::write(project.outside("home/.netrc"), "secret").expect("writes");
    std::fs::create_dir_all(project.outside("home/.cache/tool")).expect("a directory");
    project
}

const WRITES: [(&str, &str); 18] = [
    ("tree", "echo x >new && mkdir -p sub/dir && echo x >sub/dir/file && rm new"),
    ("git", "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x"),
    ("temporary", "f=$(mktemp) && echo x >$f"),
    ("null", "echo x >/dev/null"),
    ("listed", "echo x >~/.cache/tool/file"),
    ("HOME", "echo x >~/file"),
    ("TMP", "echo x >/tmp/dogwatch-sandbox-test-$$"),
    ("ABOVE", "echo x >../file"),
    ("JOURNAL", "echo x >>.dogwatch/runs/*/events.jsonl"),
    ("REPLACE", "rm -rf .dogwatch/runs"),
    ("MOVE", "mv .dogwatch away"),
    ("HOOK", "mkdir -p .git/hooks && echo x >.git/hooks/pre-commit"),
    ("CONFIG", "git config core.pager evil"),
    ("LOOP", "echo x >>loop/RALPH.md"),
    ("SETTINGS", "echo x >>dogwatch.toml"),
    ("NEW_GIT", "mv .git g && cp -r g .git && echo x >>.git/config"),
    ("NEW_LOOP", "mv loop l && mkdir loop && echo x >loop/RALPH.md"),
    ("NEW_HOOKS", "rmdir .git/hooks; mv .git/hooks h; mkdir .git/hooks && echo x >.git/hooks/pre-commit"),
];

#[test]
fn a_sandboxed_session_writes_only_the_work_tree_and_what_it_needs() {
    if !is_supported() {
        return;
    }
    for mode in ["worktree", "strict"] {
        let project = attempting(
            &format!("sandbox: {{mode: {mode}, write: [~/.cache/tool], required: true}}"),
            &WRITES,
        );
        let done = project.run(&["-n", "1"]);
        let log =
            String::from_utf8_lossy(&std::fs::read(project.path("log")).unwrap_or_default()).into_owned();
        done.assert_code(0);
        assert_eq!(project.lines("done"), ["tree", "git", "temporary", "null", "listed"], "{mode}: {log}");
        assert!(log.contains("Permission denied") || log.contains("Read-only file system"), "{log}");
        let events = done.events();
        assert_eq!(one(&events, "session_started")["argv"][0], "sh");
        assert!(kinds(&events, "sandbox_incomplete").is_empty());
    }
    // Without a sandbox everything succeeds, so the attempts are real.
    let project = attempting("sandbox: off", &WRITES[..8]);
    project.run(&["-n", "1"]).assert_code(0);
    assert_eq!(project.lines("done").len(), 8, "{:?}", project.lines("log"));
}

#[test]
fn a_session_that_removes_its_temporary_directory_does_not_take_it_from_the_next_one() {
    if !is_supported() {
        return;
    }
    for harm in ["rm -r $TMPDIR", "rm -r $TMPDIR && ln -s /etc $TMPDIR"] {
        let project = attempting("sandbox: strict", &[("made", "mktemp"), ("harmed", harm)]);
        project.run(&["-n", "2"]).assert_code(0);
        let wanted = ["made", "harmed", "made", "harmed"];
        assert_eq!(project.lines("done"), wanted, "{harm}: {:?}", project.lines("log"));
    }
}

#[test]
fn a_sandboxed_session_in_the_home_directory_does_not_write_the_state_of_the_user() {
    if !is_supported() {
        return;
    }
    let attempts = [
        ("tree", "echo x >new"),
        ("HEADS", "for head in state/dogwatch/heads/*; do echo x >>$head || exit 1; done"),
        ("TOKEN", "echo x >state/dogwatch/token"),
        ("MOVE", "mv state/dogwatch away"),
    ];
    for (sandbox, wanted) in [("worktree", &["tree"][..]), ("strict", &["tree"]), ("off", &["tree", "HEADS"])]
    {
        let project =
            attempting(&format!("sandbox: {sandbox}"), &attempts[..if sandbox == "off" { 2 } else { 4 }]);
        let mut command = project.command(&["run", "loop", "-n", "1"]);
        command.env("XDG_STATE_HOME", project.path("state"));
        Running::start(command).finish();
        assert_eq!(project.lines("done"), wanted, "{sandbox}: {:?}", project.lines("log"));
    }
}

#[test]
fn a_sandboxed_session_reaches_neither_its_keeper_nor_abstract_sockets_outside() {
    if !is_supported() {
        return;
    }
    // The name of an abstract socket begins with a null byte.
    let name = format!("dogwatch-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name.as_bytes()).expect("an address");
    let _listener = UnixListener::bind_addr(&address).expect("an abstract socket");
    let abstract_socket =
        format!("/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\")'");
    let attempts = [
        ("KEEPER", "kill -STOP $PPID"),
        ("DOGWATCH", "kill -TERM $(ps -o ppid= -p $PPID)"),
        ("ABSTRACT", abstract_socket.as_str()),
        ("own", "sleep 60 & kill $!"),
    ];
    for mode in ["worktree", "strict"] {
        let project = attempting(&format!("sandbox: {mode}"), &attempts);
        let done = project.run(&["-n", "1"]);
        done.assert_code(0);
        assert_eq!(project.lines("done"), ["own"], "{mode}: {:?}", project.lines("log"));
    }
    // Without a sandbox the socket accepts, so the attempt is real.
    let project = attempting("sandbox: off", &attempts[2..]);
    project.run(&["-n", "1"]).assert_code(0);
    assert_eq!(project.lines("done"), ["ABSTRACT", "own"], "{:?}", project.lines("log"));
}

#[test]
fn a_strict_session_reads_neither_the_home_directory_nor_other_projects_and_connects_only_to_listed_ports() {
    if !is_supported() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let connect =
        format!("/usr/bin/python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'");
    let attempts = [
        ("system", "cat /etc/passwd && ls /usr/bin"),
        ("tree", "cat agent.sh"),
        ("NETRC", "cat ~/.netrc"),
        ("LIST", "ls ~/"),
        ("NPM", "cat ~/.npmrc"),
        ("GIT", "cat ~/.config/git/credentials"),
        ("RUN", "ls /run"),
        ("OTHER", "cat ../other/file"),
        ("CONNECT", connect.as_str()),
    ];
    for (ports, wanted) in
        [("", &["system", "tree"][..]), (&format!(", ports: [{port}]"), &["system", "tree", "CONNECT"])]
    {
        let project = attempting(&format!("sandbox: {{mode: strict{ports}}}"), &attempts);
        std::fs::create_dir(project.outside("other")).expect("a directory");
        std::fs::write(project.outside("other/file"), "x").expect("writes");
        put_credentials(&project);
        project.run(&["-n", "1"]).assert_code(0);
        assert_eq!(project.lines("done"), wanted, "{:?}", project.lines("log"));
    }
    let project = attempting("sandbox: worktree", &attempts[..7]);
    put_credentials(&project);
    project.run(&["-n", "1"]).assert_code(0);
    assert_eq!(project.lines("done"), ["system", "tree", "NETRC", "LIST", "NPM", "GIT", "RUN"]);
}

fn put_credentials(project: &Project) {
    std::fs::create_dir_all(project.outside("home/.config/git")).expect("a directory");
    for file in ["home/.npmrc", "home/.config/git/credentials"] {
        std::fs::write(project.outside(file), "secret").expect("writes");
    }
}

/// The mount is made outside of the user namespace of the run, as on a machine whose disks have these options.
#[test]
fn files_are_protected_on_a_file_system_without_access_times() {
    if !is_supported() {
        return;
    }
    let project = attempting("sandbox: {mode: worktree, required: true}", &WRITES);
    std::fs::create_dir(project.path("mnt")).expect("a directory");
    let script = "mount -t tmpfs -o noatime,nodiratime none mnt || exit 77
        cp -r .git dogwatch.toml agent.sh loop mnt && cd mnt
        unshare -Urm \"$0\" run loop -n 1 && cat done";
    let mut command = Command::new("unshare");
    project.set_environment(&mut command);
    command.args(["-Urm", "sh", "-c", script, env!("CARGO_BIN_EXE_dogwatch")]);
    let out = command.output().expect("unshare is there");
    if out.status.code() == Some(77) {
        println!("skipped: cannot mount a file system here");
        return;
    }
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let done: Vec<&str> = text.lines().skip_while(|line| *line != "tree").collect();
    assert_eq!(done, ["tree", "git", "temporary", "null"], "{text}{}", String::from_utf8_lossy(&out.stderr));
}
