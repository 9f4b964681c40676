//! Snapshots of real repositories: they are complete, they change nothing visible, and no program of the user runs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use dogwatch_host::git::snapshot::{self, Limits, Outcome, Request, Taken};
use tempfile::TempDir;

use crate::skip;
use skip::skip;

use crate::snapshot_rig;
use snapshot_rig::{REF, Repo, taken};

#[track_caller]
fn why_not(outcome: Outcome) -> String {
    match outcome {
        Outcome::NoWorkTree { why } => why,
        other => panic!("{other:?}"),
    }
}

fn named(taken: &Taken) -> Vec<(&str, &str)> {
    taken.named.iter().map(|skipped| (skipped.path.as_str(), skipped.why.as_str())).collect()
}

#[test]
fn untracked_changed_and_staged_files_count_as_changed() {
    let repo = Repo::new();
    assert_eq!(repo.take().changed, 0);
    repo.write("untracked", "x");
    repo.write("changed", "x");
    assert_eq!(repo.take().changed, 2);
    repo.write("added", "x");
    repo.git(&["add", "added", "changed"]);
    repo.write("changed", "staged, then changed again");
    fs::remove_file(repo.path("gone")).expect("removed");
    assert_eq!(repo.take().changed, 4);
    repo.git(&["add", "-A"]);
    repo.commit("all");
    assert_eq!(repo.take().changed, 0);
    let fresh = Repo::without_commits();
    fresh.write("first", "x");
    fresh.git(&["add", "first"]);
    assert_eq!(fresh.take().changed, 1);
}

// promise: 15
#[test]
fn snapshot_has_the_changed_and_the_new_and_not_the_gone_or_ignored() {
    let repo = Repo::new();
    repo.write("changed", "new text");
    repo.write("deep/down/new", "untracked");
    repo.write(".gitignore", "*.o\n");
    repo.write("a.o", "ignored");
    repo.write(".dogwatch/runs/x", "ours");
    fs::remove_file(repo.path("gone")).expect("removed");
    let taken = repo.take();
    assert_eq!((taken.files, taken.untracked, taken.deleted, taken.skipped), (3, 2, 1, 0), "{taken:?}");
    assert_eq!(taken.bytes, 8 + 9 + 4);
    assert_eq!(repo.paths(), [".gitignore", "changed", "deep/down/new", "kept"]);
    assert_eq!(repo.content("changed"), b"new text");
    assert_eq!(repo.text(&["rev-parse", REF]).trim(), taken.commit);
    assert_eq!(repo.text(&["rev-parse", &format!("{REF}^{{tree}}")]).trim(), taken.tree);
}

#[test]
fn the_snapshot_of_a_fresh_checkout_is_the_usual_one_without_looking_at_files() {
    let repo = Repo::new();
    let checkout = repo.dir.path().join("checkout");
    repo.git(&["worktree", "add", "-q", "--detach", checkout.to_str().expect("a path"), "HEAD"]);
    let request = Request { work_dir: checkout.clone(), ..repo.request() };
    let usual = taken(snapshot::take(&request));
    let ids = repo.text(&["rev-parse", "HEAD", "HEAD^{tree}"]);
    let pristine = ids.trim().replace('\n', ":").parse().ok();
    assert!(pristine.is_some(), "{ids}");
    let request = Request { pristine, ..request };
    // The usual way would find this file.
    fs::write(checkout.join("later"), "written after the checkout").expect("written");
    let quick = taken(snapshot::take(&request));
    assert_eq!((&quick.tree, quick.files, quick.changed), (&usual.tree, 0, 0));
    let shape = |commit: &str| repo.text(&["log", "-1", "--format=%T %s %an", commit]);
    let parents = |commit: &str| repo.text(&["log", "-1", "--format=%P", commit]).split(' ').count();
    assert_eq!(
        (shape(&quick.commit), parents(&quick.commit)),
        (shape(&usual.commit), parents(&usual.commit))
    );
    assert_eq!(repo.text(&["rev-parse", REF]).trim(), quick.commit);
    repo.git(&["fsck", "--strict"]);
    // HEAD is another commit now.
    let out = repo.try_git_at(&checkout, &["commit", "-q", "--allow-empty", "-m", "next"]);
    assert!(out.status.success());
    assert_eq!(taken(snapshot::take(&request)).untracked, 1);
}

// promise: 15
#[test]
fn nothing_that_a_user_sees_changes() {
    let repo = Repo::new();
    repo.write("changed", "staged");
    repo.git(&["add", "changed"]);
    repo.write("changed", "staged, then changed");
    repo.write("new", "untracked");
    repo.git(&["config", "core.logAllRefUpdates", "always"]);
    let before = repo.visible();
    repo.take();
    assert_eq!(repo.visible(), before);
    repo.take();
    assert_eq!(repo.visible(), before);
}

#[test]
fn snapshot_knows_the_index_and_the_head_it_was_taken_on() {
    let repo = Repo::new();
    repo.write("changed", "staged");
    repo.git(&["add", "changed"]);
    repo.write("changed", "worked on");
    repo.take();
    assert_eq!(repo.text(&["rev-parse", &format!("{REF}^1")]), repo.text(&["rev-parse", "HEAD"]));
    assert_eq!(repo.text(&["show", &format!("{REF}^2:changed")]), "staged");
    // A snapshot can be applied like a stash.
    repo.git(&["checkout", "-q", "-f", "HEAD"]);
    repo.git(&["stash", "apply", "-q", REF]);
    assert_eq!(fs::read(repo.path("changed")).expect("there"), b"worked on");
}

#[test]
fn change_within_the_clock_tick_of_the_index_is_seen() {
    let repo = Repo::new();
    // Simulates a file system with coarse clocks: git looks again only because the index is not younger.
    repo.git(&["config", "core.trustctime", "false"]);
    let at = |name: &str, time| {
        let file = fs::File::options().write(true).open(repo.path(name)).expect("there");
        file.set_modified(time).expect("set");
    };
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
    at("changed", then);
    repo.git(&["update-index", "--refresh"]);
    at(".git/index", then);
    repo.write("changed", "CHANGED");
    at("changed", then);
    repo.take();
    assert_eq!(repo.content("changed"), b"CHANGED");
}

/// Configures a filter that leaves a trace when it runs.
fn filtering(repo: &Repo, name: &str, key: &str, command: &str) {
    repo.write(".gitattributes", format!("*.big filter={name}\n*.txt text\n*.id ident\n"));
    repo.write("a.big", "raw content");
    repo.git(&["add", "-A"]);
    repo.commit("attributes");
    let trace = repo.dir.path().join("filter-ran");
    let command = format!("touch '{}'; {command}", trace.display());
    repo.git(&["config", &format!("filter.{name}.{key}"), &command]);
    repo.git(&["config", &format!("filter.{name}.required"), "true"]);
}

#[test]
fn no_filter_runs_whatever_it_is_called() {
    // Longer than a snapshot may take, but short enough for a failing test to end.
    let forever = "sleep 20";
    for (name, key, command) in [
        ("lfs", "clean", forever),
        ("lfs", "process", forever),
        ("a=b.c", "clean", forever),
        ("x", "clean", "rev"),
    ] {
        let repo = Repo::new();
        filtering(&repo, name, key, command);
        repo.write("a.big", "RAW CONTENT");
        repo.write("new.big", "also raw");
        repo.take();
        assert_eq!(repo.content("a.big"), b"RAW CONTENT", "{name} {key}");
        assert_eq!(repo.content("new.big"), b"also raw");
        assert!(!repo.dir.path().join("filter-ran").exists(), "{name} {key}");
    }
}

// promise: 15
#[test]
fn bytes_are_kept_whatever_the_attributes_say() {
    let repo = Repo::new();
    repo.write(".gitattributes", "* text=auto\n*.id ident\n*.u16 working-tree-encoding=UTF-16LE\n");
    repo.git(&["config", "core.autocrlf", "true"]);
    repo.git(&["config", "core.safecrlf", "true"]);
    let files = [("a.txt", &b"one\r\ntwo\r\n"[..]), ("b.id", b"$Id: x$"), ("c.u16", b"odd")];
    for (name, content) in files {
        repo.write(name, content);
    }
    repo.take();
    for (name, content) in files {
        assert_eq!(repo.content(name), content, "{name}");
    }
}

// promise: 15
#[test]
fn no_hook_and_no_monitor_runs() {
    let repo = Repo::new();
    let trace = repo.dir.path().join("hook-ran");
    let script = format!("#!/bin/sh\ntouch '{}'\n", trace.display());
    for name in ["post-index-change", "reference-transaction", "pre-commit", "pre-auto-gc", "watch"] {
        let path = format!(".git/hooks/{name}");
        repo.write(&path, &script);
        fs::set_permissions(repo.path(&path), fs::Permissions::from_mode(0o755)).expect("made executable");
    }
    let hook = repo.path(".git/hooks/watch");
    repo.git(&["config", "core.fsmonitor", hook.to_str().expect("plain")]);
    repo.git(&["config", "commit.gpgSign", "true"]);
    repo.git(&["config", "gpg.program", hook.to_str().expect("plain")]);
    repo.git(&["config", "gc.auto", "1"]);
    repo.write("new", "x");
    repo.take();
    assert!(!trace.exists());
    // In a shared repository git writes the objects and the ref.
    repo.git(&["config", "core.sharedRepository", "umask"]);
    repo.write("newer", "x");
    repo.take();
    assert!(!trace.exists());
}

// promise: 15
#[test]
fn links_modes_and_names_of_all_kinds_are_kept() {
    let repo = Repo::new();
    symlink("no/where \n else", repo.path("link")).expect("a link");
    repo.write("run.sh", "#!/bin/sh");
    fs::set_permissions(repo.path("run.sh"), fs::Permissions::from_mode(0o755)).expect("made executable");
    let names: [&[u8]; 7] = [b"new\nline", b"quo\"te\\", b" lead", b"\xff\xfe", b"tab\t", b"-n", b"git~1"];
    for name in names {
        fs::write(repo.top().join(OsStr::from_bytes(name)), name).expect("written");
    }
    let taken = repo.take();
    assert_eq!((taken.files, taken.skipped), (9, 0), "{taken:?}");
    assert_eq!(repo.content("link"), b"no/where \n else");
    assert_eq!((repo.mode("link"), repo.mode("run.sh")), ("120000".to_owned(), "100755".to_owned()));
    let listing = repo.git(&["ls-tree", "-r", "-z", "--name-only", REF]);
    for name in names {
        assert!(
            listing.split(|byte| *byte == 0).any(|found| found == name),
            "{}",
            String::from_utf8_lossy(name)
        );
    }
    assert_eq!(repo.content("new\nline"), b"new\nline");
}

#[test]
fn file_and_directory_may_have_swapped_places() {
    let repo = Repo::new();
    repo.write("dir/inside", "x");
    repo.git(&["add", "-A"]);
    repo.commit("a directory");
    fs::remove_dir_all(repo.path("dir")).expect("removed");
    repo.write("dir", "a file now");
    fs::remove_file(repo.path("kept")).expect("removed");
    repo.write("kept/inside", "a directory now");
    fs::remove_file(repo.path("gone")).expect("removed");
    symlink("kept", repo.path("gone")).expect("a link");
    repo.take();
    assert_eq!(repo.paths(), ["changed", "dir", "gone", "kept/inside"]);
    assert_eq!(repo.mode("gone"), "120000");
}

#[test]
fn directory_behind_a_link_is_not_mistaken_for_the_original() {
    let repo = Repo::new();
    repo.write("dir/inside", "x");
    repo.git(&["add", "-A"]);
    repo.commit("a directory");
    fs::rename(repo.path("dir"), repo.dir.path().join("elsewhere")).expect("moved");
    symlink("../elsewhere", repo.path("dir")).expect("a link");
    repo.take();
    assert_eq!(repo.paths(), ["changed", "dir", "gone", "kept"]);
}

#[test]
fn repository_without_commits_has_a_snapshot() {
    let repo = Repo::without_commits();
    repo.take();
    assert!(repo.paths().is_empty());
    repo.write("first", "x");
    repo.write("staged", "y");
    repo.git(&["add", "staged"]);
    let before = repo.visible();
    repo.take();
    assert_eq!(repo.visible(), before);
    assert_eq!(repo.paths(), ["first", "staged"]);
}

#[test]
fn locked_index_does_not_matter() {
    let repo = Repo::new();
    repo.write(".git/index.lock", "");
    repo.write("new", "x");
    repo.take();
    assert_eq!(repo.paths(), ["changed", "gone", "kept", "new"]);
    assert!(repo.path(".git/index.lock").exists());
}

/// Creates two branches that change the same file, with a rebase of one onto the other in progress.
fn mid_rebase() -> Repo {
    let repo = Repo::new();
    for (branch, text) in [("one", "1"), ("two", "2")] {
        repo.git(&["checkout", "-q", "-b", branch, "main"]);
        repo.write("changed", text);
        repo.git(&["rm", "-q", "gone"]);
        repo.git(&["add", "-A"]);
        repo.commit(branch);
    }
    assert!(!repo.try_git(&["rebase", "-q", "one"]).status.success(), "the rebase stops at the conflict");
    repo
}

#[test]
fn rebase_that_stopped_at_a_conflict_is_kept_as_it_is() {
    let repo = mid_rebase();
    let before = repo.visible();
    repo.take();
    assert_eq!(repo.visible(), before);
    assert_eq!(repo.content("changed"), fs::read(repo.path("changed")).expect("there"));
    assert_eq!(repo.paths(), ["changed", "kept"]);
    fs::remove_file(repo.path("changed")).expect("removed");
    repo.take();
    assert_eq!(repo.paths(), ["kept"]);
}

#[test]
fn work_tree_of_another_repository_is_taken_where_it_is() {
    let repo = Repo::new();
    let other = repo.dir.path().join("other");
    repo.git(&["worktree", "add", "-q", "-b", "side", other.to_str().expect("plain")]);
    fs::write(other.join("new"), "x").expect("written");
    fs::create_dir(other.join("below")).expect("a directory");
    let request = Request { work_dir: other.join("below"), ..repo.request() };
    taken(snapshot::take(&request));
    assert_eq!(repo.paths(), ["changed", "gone", "kept", "new"]);
    assert_eq!(repo.text(&["rev-parse", &format!("{REF}^1")]), repo.text(&["rev-parse", "side"]));
}

#[test]
fn submodule_stays_as_the_index_has_it_and_nothing_in_it_runs() {
    let inner = Repo::new();
    let repo = Repo::new();
    repo.git(&["submodule", "--quiet", "add", inner.top().to_str().expect("plain"), "sub"]);
    repo.commit("a submodule");
    let trace = repo.dir.path().join("inner-ran");
    let command = format!("touch '{}'", trace.display());
    let sub = repo.path("sub");
    assert!(repo.try_git_at(&sub, &["config", "core.fsmonitor", &command]).status.success());
    repo.write("sub/changed", "in the submodule");
    repo.write("sub/new", "in the submodule");
    let nested = repo.path("nested");
    fs::create_dir(&nested).expect("a directory");
    assert!(repo.try_git_at(&nested, &["init", "-q"]).status.success());
    let taken = repo.take();
    assert_eq!(repo.text(&["ls-tree", REF, "sub"]), repo.text(&["ls-tree", "HEAD", "sub"]));
    assert_eq!(named(&taken), [("nested/", "a nested repository")]);
    assert!(!trace.exists());
}

#[test]
fn a_missing_work_tree_is_distinguished_from_a_failure() {
    let dir = TempDir::new().expect("a directory");
    let request = |work_dir: &Path| Request { work_dir: work_dir.to_owned(), ..Repo::new().request() };
    assert_eq!(why_not(snapshot::take(&request(dir.path()))), "not a git work tree");
    let repo = Repo::new();
    assert_eq!(why_not(snapshot::take(&request(&repo.path(".git")))), "not a git work tree");
    let bare = repo.dir.path().join("bare.git");
    repo.git(&["init", "-q", "--bare", bare.to_str().expect("plain")]);
    assert_eq!(why_not(snapshot::take(&request(&bare))), "not a git work tree");
    let nowhere = snapshot::take(&request(&repo.path("nowhere")));
    assert!(matches!(nowhere, Outcome::Failed { .. }), "{nowhere:?}");
    repo.write(".git/index", "not an index");
    assert!(matches!(repo.outcome(), Outcome::Failed { .. }));
}

#[test]
fn repository_of_another_user_is_reported_with_a_fix() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can give files away");
    }
    let repo = Repo::new();
    for path in [repo.top(), repo.path(".git")] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("given away");
    }
    let why = why_not(repo.outcome());
    assert!(why.contains("dubious ownership") && why.contains("safe.directory"), "{why}");
}

#[test]
fn file_that_cannot_be_read_is_left_out_by_name() {
    if rustix::process::geteuid().is_root() {
        return skip("root can read everything");
    }
    let repo = Repo::new();
    repo.write("secret", "x");
    repo.write("open", "x");
    fs::set_permissions(repo.path("secret"), fs::Permissions::from_mode(0o000)).expect("closed");
    let taken = repo.take();
    assert_eq!(taken.named[0].path, "secret");
    assert_eq!(repo.paths(), ["changed", "gone", "kept", "open"]);
}

#[test]
fn large_files_and_surplus_are_left_out_by_name() {
    let repo = Repo::new();
    repo.write("kept", vec![b'x'; 101]);
    repo.write("changed", vec![b'x'; 100]);
    repo.write("small", vec![b'x'; 10]);
    repo.write("middle", vec![b'x'; 89]);
    repo.write("more", vec![b'x'; 90]);
    let limits = Limits { file_bytes: 100, total_bytes: 199, ..Limits::default() };
    let taken = taken(snapshot::take(&Request { limits, ..repo.request() }));
    assert_eq!(named(&taken), [("kept", "larger than 100 bytes"), ("more", "more than 199 bytes in total")]);
    assert_eq!((taken.files, taken.bytes, taken.skipped), (3, 199, 2));
    // A file that was left out has its committed content.
    assert_eq!(repo.content("kept"), b"kept");
    assert_eq!(repo.paths(), ["changed", "gone", "kept", "middle", "small"]);
}

#[test]
fn list_of_what_was_left_out_is_bounded() {
    let repo = Repo::new();
    for number in 0..=snapshot::MAX_NAMED {
        repo.write(&format!("new-{number}"), "x");
    }
    let limits = Limits { files: 0, ..Limits::default() };
    let taken = taken(snapshot::take(&Request { limits, ..repo.request() }));
    assert_eq!((taken.skipped, taken.named.len()), (21, snapshot::MAX_NAMED));
    assert_eq!(taken.named[0].why, "more than 0 files");
}

#[test]
fn older_snapshots_make_room_but_the_first_stays() {
    let repo = Repo::new();
    let base = REF.rsplit_once('/').expect("a ref with components").0;
    let mut pruned = Vec::new();
    for number in 0..6 {
        let request = Request { ref_name: format!("{base}/{number}"), keep: Some(2), ..repo.request() };
        pruned.push(taken(snapshot::take(&request)).pruned);
    }
    let left = |repo: &Repo| repo.text(&["for-each-ref", "--format=%(refname)", "refs/dogwatch"]);
    assert_eq!(left(&repo), format!("{base}/0\n{base}/3\n{base}/4\n{base}/5\n"));
    assert_eq!(pruned.iter().sum::<u64>(), 2);
    assert_eq!(snapshot::prune(&repo.top(), "refs/dogwatch/20261115-201533-k3f9/", 1), Ok(2));
    assert_eq!(left(&repo), format!("{base}/0\n{base}/5\n"));
    assert!(snapshot::prune(&repo.top(), "refs/heads/", 0).is_err());
}

#[test]
fn state_directory_of_any_name_is_never_taken() {
    let repo = Repo::new();
    repo.write("deep/state/runs/x", "ours");
    repo.write("deep/statement", "theirs");
    let request = Request { state_dirs: vec![repo.path("deep/state")], ..repo.request() };
    taken(snapshot::take(&request));
    assert_eq!(repo.paths(), ["changed", "deep/statement", "gone", "kept"]);
}

#[test]
fn sha256_and_split_index_work() {
    let repo = Repo { dir: TempDir::new().expect("a directory") };
    fs::create_dir(repo.top()).expect("a directory");
    repo.git(&["init", "-q", "--object-format=sha256"]);
    repo.write("kept", "x");
    repo.git(&["config", "core.splitIndex", "true"]);
    repo.git(&["add", "-A"]);
    repo.commit("first");
    repo.git(&["update-index", "--split-index"]);
    repo.write("new", "x");
    let before = repo.visible();
    assert_eq!(repo.take().commit.len(), 64);
    assert_eq!(repo.visible(), before);
    assert_eq!(repo.paths(), ["kept", "new"]);
}

#[test]
fn a_file_that_only_its_owner_may_read_stays_out_of_the_repository() {
    use std::os::unix::fs::PermissionsExt;
    let repo = Repo::new();
    repo.write("open.txt", "open");
    repo.write("prod.env", "TOKEN=canary");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(repo.path("prod.env"), private).expect("the file is ours");
    // A directory protects what is in it.
    repo.write("shut/deep/open.txt", "canary");
    std::fs::set_permissions(repo.path("shut"), std::fs::Permissions::from_mode(0o700)).expect("ours");
    // The repository has an earlier content of a tracked file, and not this one.
    repo.write("kept", "canary of today");
    std::fs::set_permissions(repo.path("kept"), std::fs::Permissions::from_mode(0o600)).expect("ours");
    let taken = repo.take();
    assert!(repo.paths().contains(&"open.txt".to_owned()));
    for private in ["prod.env", "shut/deep/open.txt", "kept"] {
        let said = named(&taken);
        assert!(
            said.iter().any(|(path, why)| *path == private && why.contains("only its owner")),
            "{said:?}"
        );
        let stored = repo.try_git(&["show", &format!("{REF}:{private}")]);
        assert!(!String::from_utf8_lossy(&stored.stdout).contains("canary"), "{private}");
    }
    // No other user can enter the repository, so nothing has to stay out.
    std::fs::set_permissions(repo.path(".git"), std::fs::Permissions::from_mode(0o700)).expect("ours");
    let taken = repo.take();
    assert_eq!(taken.skipped, 0, "{taken:?}");
    assert_eq!(repo.text(&["show", &format!("{REF}:kept")]), "canary of today");
}

/// Returns a snapshot commit without its times.
fn commit_text(repo: &Repo, commit: &str) -> String {
    let text = repo.text(&["cat-file", "commit", commit]);
    let timeless = |line: &str| match line.starts_with("author ") || line.starts_with("committer ") {
        true => line.split('>').next().unwrap_or_default().to_owned(),
        false => line.to_owned(),
    };
    text.lines().filter(|line| !line.starts_with("parent ")).map(timeless).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_snapshot_without_fast_import_is_the_same_commit() {
    for format in ["sha1", "sha256"] {
        let repo = Repo { dir: TempDir::new().expect("a directory") };
        fs::create_dir(repo.top()).expect("a directory");
        repo.git(&["init", "-q", "-b", "main", &format!("--object-format={format}")]);
        for name in
            ["kept", "changed", "gone", "dir/kept", "dir/sub/changed", "dir.a", "dir-a", "swapped/a", "plain"]
        {
            repo.write(name, name);
        }
        repo.git(&["add", "-A"]);
        repo.commit("first");
        repo.write("changed", "new");
        repo.write("dir/sub/changed", vec![b'x'; 100_000]);
        repo.write("dir/sub/deep/er/new", "");
        repo.write("odd \n\"\\ name", b"\0\xff");
        fs::remove_file(repo.path("gone")).expect("removed");
        fs::remove_dir_all(repo.path("swapped")).expect("removed");
        repo.write("swapped", "now a file");
        fs::remove_file(repo.path("plain")).expect("removed");
        repo.write("plain/now", "a directory");
        symlink("kept", repo.path("link")).expect("a link");
        fs::set_permissions(repo.path("changed"), fs::Permissions::from_mode(0o750)).expect("set");
        let direct = repo.take();
        // The ref and every object that it needs exist, and git finds no errors in them.
        assert_eq!(repo.text(&["rev-parse", REF]).trim(), direct.commit);
        repo.git(&["fsck", "--strict", "--full"]);
        let text = commit_text(&repo, &direct.commit);
        let index = commit_text(&repo, &format!("{}^2", direct.commit));
        // A shared repository needs other permissions, so there git writes the objects.
        repo.git(&["config", "core.sharedRepository", "umask"]);
        let imported = repo.take();
        assert_eq!(direct.tree, imported.tree, "{format}");
        assert_eq!(text, commit_text(&repo, &imported.commit), "{format}");
        assert_eq!(index, commit_text(&repo, &format!("{}^2", imported.commit)), "{format}");
        let counts =
            |taken: &Taken| (taken.files, taken.changed, taken.untracked, taken.deleted, taken.bytes);
        assert_eq!(counts(&direct), counts(&imported), "{format}");
    }
}

#[test]
fn a_locked_ref_is_a_failure_and_leaves_the_lock_alone() {
    let repo = Repo::new();
    repo.write("changed", "new");
    let lock = repo.path(".git").join(format!("{REF}.lock"));
    fs::create_dir_all(lock.parent().expect("a parent")).expect("a directory");
    fs::write(&lock, "").expect("written");
    let outcome = repo.outcome();
    assert!(matches!(&outcome, Outcome::Failed { why } if why.contains("lock")), "{outcome:?}");
    assert!(lock.exists());
}
