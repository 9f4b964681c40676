//! The prompt of an iteration: the loop file's body, read afresh, filled in.
//!
//! A file that was deleted or cannot be read any more does not end the night: the last good body is used
//! and the trouble is told. Settings are read once, at the start; a change to them is told as well.

use dogwatch_config::frontmatter;
use dogwatch_config::placeholders::{CommandOutput, Values, expand};
use dogwatch_core::ids::Iteration;
use dogwatch_core::input::Input;
use dogwatch_core::settings::NodePlan;
use std::io::{self, Read};
use std::path::PathBuf;

/// What the agent is told about commits when the loop file sets `credit`.
const CREDIT: &str = "When you commit, add this trailer to the message:\n\nAssisted-by: dogwatch";

pub struct Prompter {
    file: PathBuf,
    body: String,
    frontmatter: String,
    /// The trouble told last, so that the same is not told every iteration.
    told: Option<String>,
}

impl Prompter {
    /// `text` is the loop file as it was when the settings were read from it.
    pub fn new(file: PathBuf, text: &str) -> Prompter {
        Prompter { file, body: frontmatter::body(text), frontmatter: frontmatter::settings(text), told: None }
    }

    /// The prompt, and what there is to tell about the file.
    pub fn assemble(
        &mut self,
        node: &NodePlan,
        iteration: Iteration,
        outputs: &[CommandOutput],
    ) -> (String, Option<Input>) {
        let news = self.reread();
        let settings = &node.settings;
        let values = Values {
            commands: outputs,
            args: &settings.args,
            name: node.name.as_str(),
            iteration: iteration.0,
            max_iterations: settings.max_iterations,
        };
        let mut prompt = expand(&self.body, &values);
        if settings.credit {
            prompt.push_str("\n\n");
            prompt.push_str(CREDIT);
        }
        (prompt, news)
    }

    fn reread(&mut self) -> Option<Input> {
        match read_bounded(&self.file) {
            Ok(text) => {
                self.told = None;
                self.body = frontmatter::body(&text);
                let settings = frontmatter::settings(&text);
                if settings == self.frontmatter {
                    return None;
                }
                self.frontmatter = settings;
                let message = format!(
                    "the settings in {} changed; this run goes on with those it started with",
                    self.file.display()
                );
                Some(Input::Noticed { kind: "settings_changed", message })
            }
            Err(error) => {
                let detail = format!("{}: {error}; going on with the last good text", self.file.display());
                let news = self.told.as_ref() != Some(&detail);
                self.told = Some(detail.clone());
                news.then_some(Input::TroubleMet { kind: "loop_file", detail })
            }
        }
    }
}

/// Reads a text file of bounded size.
pub fn read_bounded(file: &std::path::Path) -> io::Result<String> {
    let max = dogwatch_config::limits::MAX_FILE_BYTES as u64;
    // Opening a FIFO would wait for a writer for ever.
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {max} bytes")));
    }
    String::from_utf8(bytes).map_err(|e| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::dur::Dur;
    use dogwatch_core::ids::NodeName;
    use dogwatch_core::settings::{
        Budget, ErrorPolicy, Profile, ReaderName, Settings, WakePolicy, WatchPolicy,
    };

    fn node() -> NodePlan {
        NodePlan {
            name: NodeName::new("demo"),
            settings: Settings {
                agent: vec!["true".into()],
                reader: ReaderName::Plain,
                commands: vec![],
                args: vec![],
                credit: false,
                delay: Dur::ZERO,
                profile: Profile::Standard,
                max_iterations: None,
                watchdog: WatchPolicy::of(Profile::Standard),
                errors: ErrorPolicy::default(),
                budget: Budget::default(),
                idle: None,
                wake_on: WakePolicy::default(),
                work_when: None,
            },
        }
    }

    const FIRST: &str = "---\nagent: true\n---\nGo {{ ralph.iteration }}";

    fn prompter() -> (tempfile::TempDir, Prompter) {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("RALPH.md");
        std::fs::write(&file, FIRST).expect("writes");
        let prompter = Prompter::new(file, FIRST);
        (dir, prompter)
    }

    #[test]
    fn item_44_the_body_is_read_afresh_and_a_changed_frontmatter_is_a_notice() {
        let (dir, mut p) = prompter();
        assert_eq!(p.assemble(&node(), Iteration(1), &[]), ("Go 1".into(), None));
        std::fs::write(dir.path().join("RALPH.md"), "---\nagent: true\n---\nStay {{ ralph.iteration }}")
            .expect("writes");
        assert_eq!(p.assemble(&node(), Iteration(2), &[]), ("Stay 2".into(), None));
        std::fs::write(dir.path().join("RALPH.md"), "---\nagent: false\n---\nStay").expect("writes");
        let (text, news) = p.assemble(&node(), Iteration(3), &[]);
        assert_eq!(text, "Stay");
        assert!(matches!(news, Some(Input::Noticed { kind: "settings_changed", .. })));
        assert_eq!(p.assemble(&node(), Iteration(4), &[]).1, None);
    }

    #[test]
    fn a_deleted_loop_file_is_trouble_once_and_the_last_good_text_serves() {
        let (dir, mut p) = prompter();
        std::fs::remove_file(dir.path().join("RALPH.md")).expect("removes");
        let (text, news) = p.assemble(&node(), Iteration(2), &[]);
        assert_eq!(text, "Go 2");
        assert!(matches!(news, Some(Input::TroubleMet { kind: "loop_file", .. })));
        assert_eq!(p.assemble(&node(), Iteration(3), &[]), ("Go 3".into(), None));
        std::fs::write(dir.path().join("RALPH.md"), FIRST).expect("writes");
        assert_eq!(p.assemble(&node(), Iteration(4), &[]), ("Go 4".into(), None));
    }

    #[test]
    fn a_file_that_is_no_text_or_no_file_is_trouble() {
        let (dir, mut p) = prompter();
        let file = dir.path().join("RALPH.md");
        std::fs::write(&file, b"---\nagent: true\n---\n\xff\xfe").expect("writes");
        let (_, news) = p.assemble(&node(), Iteration(1), &[]);
        assert!(
            matches!(news, Some(Input::TroubleMet { detail, .. }) if detail.contains("not UTF-8 at byte 20"))
        );
        std::fs::remove_file(&file).expect("removes");
        std::fs::create_dir(&file).expect("makes");
        let (_, news) = p.assemble(&node(), Iteration(1), &[]);
        assert!(
            matches!(news, Some(Input::TroubleMet { detail, .. }) if detail.contains("not a regular file"))
        );
    }

    #[test]
    fn item_25_credit_adds_our_own_trailer_when_asked() {
        let (_dir, mut p) = prompter();
        let mut node = node();
        node.settings.credit = true;
        assert!(p.assemble(&node, Iteration(1), &[]).0.ends_with("Assisted-by: dogwatch"));
    }
}
