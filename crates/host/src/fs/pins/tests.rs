use super::*;

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("in the tree")).expect("directories");
        fs::write(path, text).expect("a file");
    }
    dir
}

fn request(dir: &Path, globs: &[&str], checks: &[&str]) -> Request {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let state_dirs = vec![dir.join(".dogwatch")];
    Request {
        work_dir: dir.to_owned(),
        globs: owned(globs),
        checks: owned(checks),
        known: Vec::new(),
        state_dirs,
        tree: false,
    }
}

fn pinned(request: &Request) -> Vec<String> {
    let pins = hash(request, &Limits::default()).expect("within the bounds");
    pins.into_iter().map(|pin| pin.path).collect()
}

#[test]
fn only_files_that_match_the_globs_are_pinned() {
    let files = ["tests/a.rs", "tests/deep/b.rs", "src/lib.rs", "Makefile", ".git/config", ".dogwatch/x"];
    let dir = tree(&files.map(|path| (path, "x")));
    let of = |globs: &[&str]| pinned(&request(dir.path(), globs, &[]));
    assert_eq!(of(&["tests/**"]), ["tests/a.rs", "tests/deep/b.rs"]);
    assert_eq!(of(&["tests"]), ["tests/a.rs", "tests/deep/b.rs"]);
    assert_eq!(of(&["./tests/*.rs", "Makefile"]), ["Makefile", "tests/a.rs"]);
    assert_eq!(of(&["**/*.rs"]), ["src/lib.rs", "tests/a.rs", "tests/deep/b.rs"]);
    assert_eq!(of(&["**"]), ["Makefile", "src/lib.rs", "tests/a.rs", "tests/deep/b.rs"]);
    assert_eq!(of(&["nothing/**", "no/such.file"]), [""; 0]);
}

#[test]
fn a_link_is_pinned_with_its_destination_and_a_nested_repository_is_searched() {
    let dir = tree(&[
        ("a.sh", "x"),
        ("b.sh", "x"),
        ("real/v.sh", "x"),
        ("other/v.sh", "x"),
        ("sub/.git/HEAD", "x"),
        ("sub/tests/t.sh", "x"),
    ]);
    let link = |to: &str, name: &str| {
        let at = dir.path().join(name);
        let _ = fs::remove_file(&at);
        std::os::unix::fs::symlink(to, at).expect("a link");
    };
    link("a.sh", "link.sh");
    link("real", "scripts");
    link("nowhere", "dangling");
    let request =
        request(dir.path(), &["scripts", "sub/tests/**", "dangling"], &["sh link.sh", "sh scripts/v.sh"]);
    let hashes = || {
        let pins = hash(&request, &Limits::default()).expect("within the bounds");
        pins.into_iter().map(|pin| (pin.path, pin.sha256)).collect::<Vec<_>>()
    };
    let before = hashes();
    let names: Vec<&str> = before.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(names, ["dangling", "link.sh", "scripts/v.sh", "sub/tests/t.sh"]);
    assert!(before.iter().all(|(_, hash)| hash.is_some()), "{before:?}");
    // A pattern that starts above the nested repository finds its files, too.
    let above = Request { globs: vec!["**/t.sh".to_owned()], checks: Vec::new(), ..request.clone() };
    assert_eq!(pinned(&above), ["sub/tests/t.sh"]);
    // The content stays the same: only the destinations change.
    for (to, name, changed) in [
        ("b.sh", "link.sh", &["link.sh"][..]),
        ("other", "scripts", &["scripts/v.sh"]),
        ("elsewhere", "dangling", &["dangling"]),
    ] {
        let was = hashes();
        link(to, name);
        let differ: Vec<String> = was
            .iter()
            .zip(hashes())
            .filter(|(was, now)| **was != *now)
            .map(|(was, _)| was.0.clone())
            .collect();
        assert_eq!(differ, changed);
    }
}

// promise: 13
#[test]
fn a_linked_directory_is_pinned_with_its_files_if_it_is_in_the_work_tree() {
    let dir = tree(&[("tests/run.sh", "x"), ("shared/case.sh", "x"), ("shared/deep/b.sh", "x")]);
    let outside = tree(&[("big", "x")]);
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, dir.path().join(name)).expect("a link");
    };
    link(Path::new("../shared"), "tests/data");
    link(outside.path(), "tests/outside");
    // Neither a link around itself nor one that is reached through a link is followed.
    link(Path::new(".."), "tests/up");
    link(Path::new("../tests"), "shared/back");
    let request = request(dir.path(), &["tests/**"], &[]);
    let names = pinned(&request);
    let followed = ["tests/data", "tests/data/back", "tests/data/case.sh", "tests/data/deep/b.sh"];
    assert_eq!(names, [&followed[..], &["tests/outside", "tests/run.sh", "tests/up"]].concat());
}

#[test]
fn a_glob_that_matches_nothing_is_an_error_when_the_node_starts() {
    let dir = tree(&[("tests/a", "1")]);
    let first = request(dir.path(), &["tests/**", "test/**"], &["make"]);
    assert_eq!(hash(&first, &Limits::default()), Err("pin `test/**` matches no file".to_owned()));
    assert_eq!(matching_nothing(&first), Ok(vec!["test/**".to_owned()]));
}

#[test]
fn a_known_file_that_changed_or_disappeared_shows() {
    let dir = tree(&[("a", "1"), ("b", "1")]);
    let mut request = request(dir.path(), &[], &[]);
    request.known = vec!["a".into(), "b".into()];
    let before = hash(&request, &Limits::default()).expect("hashes");
    fs::write(dir.path().join("a"), "2").expect("writes");
    fs::remove_file(dir.path().join("b")).expect("removes");
    let after = hash(&request, &Limits::default()).expect("hashes");
    assert_ne!(before[0].sha256, after[0].sha256);
    assert_eq!(after[1].sha256, None);
    // A directory in its place is not a file, and a FIFO must not block.
    fs::create_dir(dir.path().join("b")).expect("makes");
    assert_eq!(hash(&request, &Limits::default()).expect("hashes")[1].sha256, None);
    fs::remove_dir(dir.path().join("b")).expect("removes");
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("b")).status().expect("mkfifo");
    assert!(made.success());
    assert_eq!(hash(&request, &Limits::default()).expect("hashes")[1].sha256, None);
}

// promise: 4
#[test]
fn every_bound_holds_at_its_limit_and_is_named() {
    let dir = tree(&[("a", "12345"), ("b", "12345")]);
    let request = request(dir.path(), &["*"], &[]);
    let with = |change: fn(&mut Limits, u64), n: u64| {
        let mut limits = Limits::default();
        change(&mut limits, n);
        hash(&request, &limits)
    };
    let files = |limits: &mut Limits, n: u64| limits.files = n as usize;
    assert!(with(files, 2).is_ok());
    assert!(with(files, 1).is_err_and(|why| why.contains("more than 1 files")));
    let bytes = |limits: &mut Limits, n: u64| limits.bytes = n;
    assert!(with(bytes, 10).is_ok());
    assert!(with(bytes, 9).is_err_and(|why| why.contains("more than 9 bytes")));
    let looked_at = |limits: &mut Limits, n: u64| limits.looked_at = n as usize;
    assert!(with(looked_at, 3).is_ok());
    assert!(with(looked_at, 2).is_err_and(|why| why.contains("more than 2 files to search")));
    let names = |limits: &mut Limits, n: u64| limits.names = n as usize;
    assert!(with(names, 2).is_ok());
    assert!(with(names, 1).is_err_and(|why| why.contains("more than 1 bytes")));
    let time = |limits: &mut Limits, n: u64| limits.time = Duration::from_secs(n);
    assert!(with(time, 0).is_err_and(|why| why.contains("longer than 0 s")));
}

#[test]
fn the_answer_comes_from_another_thread() {
    let dir = tree(&[("a", "1")]);
    let (sender, receiver) = mpsc::channel();
    for tree in [false, true] {
        let (request, sender) = (Request { tree, ..request(dir.path(), &["a"], &[]) }, sender.clone());
        hash_aside(request, move |hashed| sender.send(hashed).expect("the test waits"));
        let Hashed { pins, tree: digest } = receiver.recv().expect("an answer");
        assert_eq!((pins.expect("hashes").len(), digest.is_some()), (1, tree));
    }
}
