//! The input stream of `git fast-import`: contents, then two commits on one ref.

use std::io::{self, Write};

/// Collects a snapshot: contents, then two commits on one ref.
pub(super) trait Commits {
    /// Stores a file's content and returns its number for [`Commits::put`].
    fn content(&mut self, content: &[u8]) -> io::Result<u64>;

    /// Begins the snapshot commit with the tree of the index; `put` and `remove` change it from there.
    fn begin(
        &mut self,
        ref_name: &str,
        head: Option<&str>,
        index_tree: &str,
        message: &str,
    ) -> io::Result<()>;

    /// Removes a file.
    fn remove(&mut self, path: &[u8]) -> io::Result<()>;

    /// Adds a file. `mode` is in git's notation: `100644`, `100755` or `120000`.
    fn put(&mut self, mode: &str, path: &[u8], content: u64) -> io::Result<()>;
}

/// The author and committer of snapshots.
pub(super) const IDENTITY: &str = "dogwatch <dogwatch@localhost>";
/// The message of the commit of the index.
pub(super) const INDEX_MESSAGE: &str = "index of the snapshot";

/// Writes the stream. Git changes no ref before the last command, so a truncated stream leaves no snapshot.
pub(super) struct Stream<W> {
    out: W,
    when: i64,
    /// The last mark that was assigned.
    mark: u64,
}

/// The mark of the index commit, which is the last parent of the snapshot.
const INDEX_MARK: &str = ":1";
/// The mark of the snapshot commit.
const SNAPSHOT_MARK: &str = ":2";

/// Returns the ids of the commit and of its tree from the answer to [`Stream::end`].
pub(super) fn ids(answer: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(answer).ok()?;
    let (commit, rest) = text.split_once('\n')?;
    let tree = rest.strip_prefix("040000 tree ")?.split(char::is_whitespace).next()?;
    Some((commit.to_owned(), tree.to_owned()))
}

impl<W: Write> Stream<W> {
    /// Begins a stream. `when` is in seconds on the wall clock.
    pub(super) fn new(mut out: W, when: i64) -> io::Result<Stream<W>> {
        out.write_all(b"feature done\nfeature get-mark\nfeature ls\n")?;
        Ok(Stream { out, when, mark: 2 })
    }

    fn commit(&mut self, ref_name: &str, mark: &str, message: &str) -> io::Result<()> {
        let when = self.when;
        write!(self.out, "commit {ref_name}\n{mark}committer {IDENTITY} {when} +0000\n")?;
        write!(self.out, "data {}\n{message}\n", message.len())
    }

    /// Ends the commit and asks for its id and its tree, which [`ids`] parses.
    pub(super) fn end(mut self) -> io::Result<()> {
        write!(self.out, "\nget-mark {SNAPSHOT_MARK}\nls {SNAPSHOT_MARK} \"\"\ndone\n")?;
        self.out.flush()
    }

    /// Writes a quoted path, which may contain any bytes.
    fn path(&mut self, path: &[u8]) -> io::Result<()> {
        let mut quoted = vec![b'"'];
        for byte in path {
            match byte {
                b'\n' => quoted.extend_from_slice(b"\\n"),
                b'"' | b'\\' => quoted.extend_from_slice(&[b'\\', *byte]),
                byte => quoted.push(*byte),
            }
        }
        quoted.extend_from_slice(b"\"\n");
        self.out.write_all(&quoted)
    }
}

impl<W: Write> Commits for Stream<W> {
    fn content(&mut self, content: &[u8]) -> io::Result<u64> {
        self.mark += 1;
        write!(self.out, "blob\nmark :{}\ndata {}\n", self.mark, content.len())?;
        self.out.write_all(content)?;
        self.out.write_all(b"\n")?;
        Ok(self.mark)
    }

    fn begin(
        &mut self,
        ref_name: &str,
        head: Option<&str>,
        index_tree: &str,
        message: &str,
    ) -> io::Result<()> {
        self.commit(ref_name, &format!("mark {INDEX_MARK}\n"), INDEX_MESSAGE)?;
        if let Some(head) = head {
            writeln!(self.out, "from {head}^0")?;
        }
        writeln!(self.out, "M 040000 {index_tree} \"\"\n")?;
        self.commit(ref_name, &format!("mark {SNAPSHOT_MARK}\n"), message)?;
        // Without a HEAD the previous commit becomes the parent automatically.
        if let Some(head) = head {
            writeln!(self.out, "from {head}^0\nmerge {INDEX_MARK}")?;
        }
        writeln!(self.out, "M 040000 {index_tree} \"\"")
    }

    fn remove(&mut self, path: &[u8]) -> io::Result<()> {
        self.out.write_all(b"D ")?;
        self.path(path)
    }

    fn put(&mut self, mode: &str, path: &[u8], content: u64) -> io::Result<()> {
        write!(self.out, "M {mode} :{content} ")?;
        self.path(path)
    }
}
