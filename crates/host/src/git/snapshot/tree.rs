//! Trees of git, built from a list of all files.

use super::objects::{Hash, Id};
use std::collections::{BTreeMap, HashSet};

/// Files by their paths below the top: the mode in git's notation, and the id. The order of the paths is also git's order
/// of the entries of a tree, which sorts a directory as if its name ended with a slash.
pub(super) type Files = BTreeMap<Vec<u8>, (String, Id)>;

/// A tree object that may have to be written.
pub(super) struct Tree {
    pub(super) id: Id,
    pub(super) content: Vec<u8>,
}

/// Builds the tree of these files and of all directories. `keep` gets every tree, the root last. Returns the id of the root, or
/// `None` if a path is a file and a directory.
pub(super) fn build(files: &Files, hash: Hash, mut keep: impl FnMut(Tree)) -> Option<Id> {
    let list: Vec<(&[u8], &(String, Id))> =
        files.iter().map(|(path, file)| (path.as_slice(), file)).collect();
    directory(&list, 0, hash, &mut keep)
}

/// Builds one directory from its files. `from` is the length of the path of the directory, with a slash.
fn directory(
    mut files: &[(&[u8], &(String, Id))],
    from: usize,
    hash: Hash,
    keep: &mut dyn FnMut(Tree),
) -> Option<Id> {
    let mut content = Vec::new();
    let mut names = HashSet::new();
    while let Some((path, (mode, id))) = files.first() {
        let rest = &path[from..];
        let end = rest.iter().position(|byte| *byte == b'/');
        let name = &rest[..end.unwrap_or(rest.len())];
        if name.is_empty() || !names.insert(name) {
            return None;
        }
        let (mode, id, count) = match end {
            None => (mode.as_str(), id.clone(), 1),
            Some(end) => {
                let prefix = &path[..from + end + 1];
                let count = files.iter().take_while(|(path, _)| path.starts_with(prefix)).count();
                ("40000", directory(&files[..count], prefix.len(), hash, keep)?, count)
            }
        };
        content.extend_from_slice(mode.as_bytes());
        content.push(b' ');
        content.extend_from_slice(name);
        content.push(0);
        content.extend(bytes(&id)?);
        files = &files[count..];
    }
    let id = hash.id("tree", &content);
    keep(Tree { id: id.clone(), content });
    Some(id)
}

/// Decodes hexadecimal digits.
fn bytes(id: &str) -> Option<Vec<u8>> {
    (0..id.len()).step_by(2).map(|at| u8::from_str_radix(id.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Files {
        let blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        paths.iter().map(|path| (path.as_bytes().to_vec(), ("100644".to_owned(), blob.to_owned()))).collect()
    }

    #[test]
    fn directories_are_sorted_as_git_sorts_them() {
        let mut trees = Vec::new();
        build(&files(&["a/b", "a-b", "a.b", "ab"]), Hash::Sha1, |tree| trees.push(tree)).expect("a tree");
        assert_eq!(trees.len(), 2);
        let root = &trees[1].content;
        let at = |name: &[u8]| root.windows(name.len()).position(|part| part == name);
        let order = [at(b" a-b\0"), at(b" a.b\0"), at(b" a\0"), at(b" ab\0")];
        assert!(order.is_sorted() && order[0].is_some(), "{order:?}");
    }

    #[test]
    fn a_path_that_is_a_file_and_a_directory_is_not_a_tree() {
        for paths in [&["a", "a/b"][..], &["a", "a-b", "a/b"], &["/a"], &["a//b"]] {
            assert_eq!(build(&files(paths), Hash::Sha1, |_| ()), None, "{paths:?}");
        }
    }
}
