//! The sandbox of a session. The agents here try to write, read, connect and signal outside of it.

use crate::kit::{GRACES, Project, Running, kinds, one};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
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

fn git(project: &Project, args: &[&str]) {
    let mut command = Command::new("git");
    project.set_environment(&mut command);
    let out = command.args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(args).output();
    let out = out.expect("git is there");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Makes a git project whose agent runs the attempts of a shell script. Each attempt is a line `NAME: COMMAND`; the
/// names of those that succeed are appended to the file `done`.
fn attempting(sandbox: &str, attempts: &[(&str, &str)]) -> Project {
    let project = Project::new();
    git(&project, &["init", "-q"]);
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

#[test]
fn what_a_session_leaves_in_the_work_tree_allows_later_sessions_and_runs_no_more() {
    if !is_supported() {
        return;
    }
    let attempts = [
        ("planted", "echo gitdir: ~ >.git; rm -rf cache .venv/lib; ln -s ~/victim cache; ln -s ~ .venv/lib"),
        ("WRITE", "echo x >~/victim/file"),
        ("READ", "cat ~/.netrc"),
    ];
    for (mode, attempts) in [("worktree", &attempts[..2]), ("strict", &attempts)] {
        let project =
            attempting(&format!("sandbox: {{mode: {mode}, write: [cache], required: true}}"), attempts);
        std::fs::remove_dir_all(project.path(".git")).expect("a repository");
        for dir in [project.path("cache"), project.path(".venv/bin"), project.outside("home/victim")] {
            std::fs::create_dir_all(dir).expect("a directory");
        }
        let programs =
            [project.path(".venv/bin"), project.outside("home")].map(|dir| dir.display().to_string());
        let path = format!("{}:{}", programs.join(":"), std::env::var("PATH").expect("a path"));
        for _ in 0..2 {
            let mut command = project.command(&["run", "loop", "-n", "2"]);
            command.env("PATH", &path);
            Running::start(command).finish().assert_code(0);
        }
        assert_eq!(project.lines("done"), ["planted"; 4], "{mode}: {:?}", project.lines("log"));
        assert!(!project.outside("home/hooks").exists(), "dogwatch created hooks outside");
    }
}

#[test]
fn a_session_cannot_replace_a_link_or_file_that_leads_to_what_is_protected() {
    if !is_supported() {
        return;
    }
    let attempts = [
        ("commit", "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x"),
        ("MAIN", "echo x >../new"),
        ("UNLINK", "rm .git"),
        ("RELINK", "echo gitdir: evil >.git"),
        ("COMMON", "echo /evil >$(git rev-parse --git-dir)/commondir"),
        ("HOOKS", "rm ../.git/hooks"),
        ("HOOK", "echo x >../.git/hooks/pre-commit"),
        ("LOOP", "rm loop/RALPH.md"),
        ("LOOPS", "mv loop other"),
    ];
    let project = attempting("sandbox: {mode: worktree, required: true}", &attempts);
    git(&project, &["commit", "-q", "--allow-empty", "-m", "x"]);
    git(&project, &["worktree", "add", "-q", "wt"]);
    std::fs::remove_dir_all(project.path(".git/hooks")).expect("hooks");
    std::fs::create_dir_all(project.path("wt/real")).expect("a directory");
    std::fs::create_dir(project.path(".githooks")).expect("a directory");
    for (from, to) in [("agent.sh", "wt/agent.sh"), ("loop/RALPH.md", "wt/real/RALPH.md")] {
        std::fs::rename(project.path(from), project.path(to)).expect("moves");
    }
    symlink("../.githooks", project.path(".git/hooks")).expect("a link");
    symlink("real", project.path("wt/loop")).expect("a link");
    let mut command = project.command(&["run", "loop", "-n", "2"]);
    command.current_dir(project.path("wt"));
    Running::start(command).finish().assert_code(0);
    assert_eq!(project.lines("wt/done"), ["commit"; 2], "{:?}", project.lines("wt/log"));
}

#[test]
fn a_session_in_a_worktree_of_its_own_node_cannot_leave_it_through_its_git_file() {
    if !is_supported() {
        return;
    }
    let project = Project::new();
    git(&project, &["init", "-q"]);
    git(&project, &["commit", "-q", "--allow-empty", "-m", "x"]);
    let main = project.path("").display().to_string();
    let attempts = [
        "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x || echo COMMIT",
        "rm .git && echo UNLINK",
        "echo gitdir: evil >.git && echo RELINK",
        &format!("echo x >{main}/new && echo MAIN"),
    ];
    let script = project.outside("agent.sh");
    std::fs::write(&script, format!("({}) >~/log 2>/dev/null", attempts.join("\n"))).expect("writes");
    let settings = "worktree: true\nsandbox: {mode: worktree, write: [~/log], required: true}";
    std::fs::write(project.outside("home/log"), "untouched").expect("writes");
    project.ralph(&format!("agent: sh {}\n{GRACES}\n{settings}", script.display()), "Go on.");
    project.run(&["-n", "2"]);
    let log = std::fs::read_to_string(project.outside("home/log")).expect("the agent ran");
    assert_eq!(log, "", "these attempts succeeded");
}

#[test]
fn a_session_in_a_subdirectory_does_not_write_the_record_at_the_top_of_the_work_tree() {
    if !is_supported() {
        return;
    }
    let attempts = [("tree", "echo x >../new"), ("RECORD", "echo x >>../.dogwatch/file")];
    let project = attempting("sandbox: {mode: worktree, required: true}", &attempts);
    for dir in [".dogwatch", "sub"] {
        std::fs::create_dir(project.path(dir)).expect("a directory");
    }
    project.file(".dogwatch/file", "");
    for name in ["agent.sh", "loop"] {
        std::fs::rename(project.path(name), project.path("sub").join(name)).expect("moves");
    }
    let mut command = project.command(&["run", "loop", "-n", "1"]);
    command.current_dir(project.path("sub"));
    Running::start(command).finish().assert_code(0);
    assert_eq!(project.lines("sub/done"), ["tree"], "{:?}", project.lines("sub/log"));
}

#[test]
fn a_session_cannot_make_git_read_settings_elsewhere() {
    if !is_supported() {
        return;
    }
    let planted = [("planted", "mkdir evil; echo ../evil >.git/commondir")];
    let sandbox = "sandbox: {mode: worktree, required: true}\ndone_when: [\"ls .git >listed\"]";
    let project = attempting(sandbox, &planted);
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert_eq!(project.lines("done"), ["planted"]);
    assert_eq!(kinds(&done.events(), "git_redirected").len(), 1);
    let listed = project.lines("listed");
    assert!(listed.contains(&"config".to_owned()) && !listed.contains(&"commondir".to_owned()), "{listed:?}");
    // One that is there before the run is not dogwatch's to remove.
    project.file(".git/commondir", ".");
    let refused = project.run(&["-n", "1"]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("commondir"), "{}", refused.stderr);
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
