//! The stream that `git fast-import` reads: contents as they are, then two commits on one ref.

use std::io::{self, Write};

/// Writes the stream. Until its last word git changes no ref, so that a stream cut short is no snapshot.
pub(super) struct Stream<W> {
    out: W,
    when: i64,
    /// The last mark that was given.
    mark: u64,
}

/// The commit of the index, which the snapshot names as its last parent.
const INDEX_MARK: &str = ":1";

impl<W: Write> Stream<W> {
    /// `when` in seconds on the wall.
    pub(super) fn new(mut out: W, when: i64) -> io::Result<Stream<W>> {
        out.write_all(b"feature done\n")?;
        Ok(Stream { out, when, mark: 1 })
    }

    /// A file's content; what is answered stands for it in [`Stream::put`].
    pub(super) fn content(&mut self, content: &[u8]) -> io::Result<u64> {
        self.mark += 1;
        write!(self.out, "blob\nmark :{}\ndata {}\n", self.mark, content.len())?;
        self.out.write_all(content)?;
        self.out.write_all(b"\n")?;
        Ok(self.mark)
    }

    /// Begins the snapshot: from here on it is the index, and what is put or removed changes that.
    /// `words` are its message after the first line.
    pub(super) fn begin(
        &mut self,
        ref_name: &str,
        head: Option<&str>,
        index_tree: &str,
        words: &str,
    ) -> io::Result<()> {
        self.commit(ref_name, &format!("mark {INDEX_MARK}\n"), "index of the snapshot")?;
        if let Some(head) = head {
            writeln!(self.out, "from {head}^0")?;
        }
        writeln!(self.out, "M 040000 {index_tree} \"\"\n")?;
        let title = ref_name.strip_prefix(super::REFS).unwrap_or(ref_name);
        self.commit(ref_name, "", &format!("dogwatch snapshot {title}{words}"))?;
        // Without a HEAD the commit before is the parent by itself.
        if let Some(head) = head {
            writeln!(self.out, "from {head}^0\nmerge {INDEX_MARK}")?;
        }
        writeln!(self.out, "M 040000 {index_tree} \"\"")
    }

    fn commit(&mut self, ref_name: &str, mark: &str, message: &str) -> io::Result<()> {
        let when = self.when;
        write!(self.out, "commit {ref_name}\n{mark}committer dogwatch <dogwatch@localhost> {when} +0000\n")?;
        write!(self.out, "data {}\n{message}\n", message.len())
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> io::Result<()> {
        self.out.write_all(b"D ")?;
        self.path(path)
    }

    /// `mode` as git writes it: `100644`, `100755` or `120000`.
    pub(super) fn put(&mut self, mode: &str, path: &[u8], content: u64) -> io::Result<()> {
        write!(self.out, "M {mode} :{content} ")?;
        self.path(path)
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.out.write_all(b"\ndone\n")?;
        self.out.flush()
    }

    /// In quotes, so that it may hold anything.
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
