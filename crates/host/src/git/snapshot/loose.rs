//! A small snapshot without `git fast-import`: a few loose objects and a ref, written directly.
//!
//! It makes the same commit as [`super::stream`], in a fraction of the time. It is for the usual case only: the index is
//! what HEAD has, the changes are few, and the repository has the usual format. Everything else takes the other way.

use super::changes::Quick;
use super::objects::{Id, Objects};
use super::stream::{Commits, IDENTITY};
use super::tree;
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The most files of a snapshot that is written in this way. Git, too, writes packs instead of loose objects from 100 on.
pub(super) const MAX_FILES: usize = 60;
/// The most bytes in them.
pub(super) const MAX_BYTES: u64 = 1024 * 1024;

pub(super) struct Loose<'a> {
    quick: &'a Quick,
    objects: Objects,
    when: i64,
    blobs: Vec<Id>,
    files: tree::Files,
    commit: Option<NewCommit>,
}

struct NewCommit {
    ref_name: String,
    head: String,
    message: String,
}

impl<'a> Loose<'a> {
    /// Begins a snapshot. `when` is in seconds on the wall clock.
    pub(super) fn new(quick: &'a Quick, when: i64) -> Loose<'a> {
        let objects = Objects::new(quick.objects.clone(), quick.hash);
        Loose { quick, objects, when, blobs: Vec::new(), files: quick.files.clone(), commit: None }
    }

    /// Writes the trees, the commits and the ref. Returns the ids of the snapshot and of its tree.
    pub(super) fn finish(self) -> io::Result<(Id, Id)> {
        let odd = || io::Error::other("the tree of the snapshot cannot be built");
        let NewCommit { ref_name, head, message } = self.commit.as_ref().ok_or_else(odd)?;
        let known: HashSet<&Id> = self.quick.trees.iter().collect();
        let mut new = Vec::new();
        let root = tree::build(&self.files, self.objects.hash(), |tree| {
            if !known.contains(&tree.id) {
                new.push(tree);
            }
        });
        let root = root.ok_or_else(odd)?;
        for tree in new {
            self.objects.write("tree", &tree.content)?;
        }
        let trees = [head.as_str(), &self.quick.index_tree, &root];
        let commit = write_commits(&self.objects, self.when, trees, message)?;
        set_ref(&self.quick.refs, ref_name, &commit)?;
        Ok((commit, root))
    }
}

/// Writes the commit of the index and the commit of the snapshot, and returns the id of the latter. The ids are those of HEAD,
/// of the tree of the index, and of the tree of the snapshot.
pub(super) fn write_commits(
    objects: &Objects,
    when: i64,
    [head, index_tree, root]: [&str; 3],
    message: &str,
) -> io::Result<Id> {
    let commit = |tree: &str, parents: &[&str], message: &str| {
        let parents: String = parents.iter().map(|parent| format!("parent {parent}\n")).collect();
        let text = format!(
            "tree {tree}\n{parents}author {IDENTITY} {when} +0000\ncommitter {IDENTITY} {when} +0000\n\n{message}"
        );
        objects.write("commit", text.as_bytes())
    };
    let index = commit(index_tree, &[head], super::stream::INDEX_MESSAGE)?;
    commit(root, &[head, &index], message)
}

impl Commits for Loose<'_> {
    fn content(&mut self, content: &[u8]) -> io::Result<u64> {
        self.blobs.push(self.objects.write("blob", content)?);
        Ok(self.blobs.len() as u64 - 1)
    }

    fn begin(&mut self, ref_name: &str, head: Option<&str>, _: &str, message: &str) -> io::Result<()> {
        let (ref_name, head, message) =
            (ref_name.to_owned(), head.unwrap_or_default().to_owned(), message.to_owned());
        self.commit = Some(NewCommit { ref_name, head, message });
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> io::Result<()> {
        self.files.remove(path);
        Ok(())
    }

    fn put(&mut self, mode: &str, path: &[u8], content: u64) -> io::Result<()> {
        let blob = usize::try_from(content).ok().and_then(|at| self.blobs.get(at));
        let blob = blob.ok_or(io::ErrorKind::InvalidInput)?.clone();
        self.files.insert(path.to_vec(), (mode.to_owned(), blob));
        Ok(())
    }
}

/// Sets a ref as git does: a lock file that is renamed. `refs` is the directory of [`super::REFS`].
pub(super) fn set_ref(refs: &Path, name: &str, id: &str) -> io::Result<()> {
    let name = name.strip_prefix(super::REFS).ok_or(io::ErrorKind::InvalidInput)?;
    let path = refs.join(name);
    let lock = refs.join(format!("{name}.lock"));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&lock)?;
    let written = file.write_all(format!("{id}\n").as_bytes()).and_then(|()| fs::rename(&lock, &path));
    if written.is_err() {
        let _ = fs::remove_file(&lock);
    }
    written
}
