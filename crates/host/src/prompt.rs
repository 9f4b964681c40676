//! The prompt of an iteration: the loop file's body, read afresh, filled in.
//!
//! A file that was deleted, emptied or broken does not end the night: the last good body is used and the
//! trouble is told. Settings are read once, at the start; a change to them is told as well.

use dogwatch_config::frontmatter;
use dogwatch_config::placeholders::{CommandOutput, Values, expand};
use dogwatch_core::ids::Iteration;
use dogwatch_core::input::Input;
use dogwatch_core::settings::NodePlan;
use std::io::{self, Read};
use std::path::PathBuf;

/// What the agent is told about commits when the loop file sets `credit`.
const CREDIT: &str = "When you commit, add this trailer to the message:\n\nAssisted-by: dogwatch";

/// What stands before a person's words.
const TOLD: &str = "The person who started this loop says:";

/// How an agent says that there is nothing to do. The marker is shown in backticks, with a space that a
/// real one does not have, so that an agent that prints its prompt does not seem to say it.
const IDLE_INSTRUCTION: &str = "\
If there is nothing left to do right now, do not invent work. Say so, and end your answer with a line that holds \
only an HTML comment of this form (without the backticks and without the first space):

`< !-- ralph:state idle reason=no_pending_tasks -->`

The reason is one word of your choice: no_pending_tasks when all work is done, or e.g. blocked, waiting_for_review.";

/// A prompt, ready.
#[derive(Debug, PartialEq)]
pub struct Assembled {
    pub text: String,
    /// The same without what changes by itself: equal keys ask the same.
    pub key: String,
    /// What there is to tell about the loop file.
    pub news: Option<Input>,
}

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

    /// The prompt of an iteration.
    pub fn assemble(
        &mut self,
        node: &NodePlan,
        iteration: Iteration,
        outputs: &[CommandOutput],
        told: &[String],
    ) -> Assembled {
        let news = self.reread();
        // The number of the iteration changes by itself and is no news.
        let key = self.fill_in(node, Iteration(0), outputs, told);
        Assembled { text: self.fill_in(node, iteration, outputs, told), key, news }
    }

    fn fill_in(
        &self,
        node: &NodePlan,
        iteration: Iteration,
        outputs: &[CommandOutput],
        told: &[String],
    ) -> String {
        let settings = &node.settings;
        let values = Values {
            commands: outputs,
            args: &settings.args,
            name: node.name.as_str(),
            iteration: iteration.0,
            max_iterations: settings.max_iterations,
            failed_checks: "",
        };
        let mut prompt = expand(&self.body, &values);
        let mut add = |text: &str| {
            prompt.push_str("\n\n");
            prompt.push_str(text);
        };
        if !told.is_empty() {
            add(&format!("{TOLD}\n\n- {}", told.join("\n- ")));
        }
        if settings.credit {
            add(CREDIT);
        }
        if settings.idle.as_ref().is_some_and(|i| i.instruct) {
            add(IDLE_INSTRUCTION);
        }
        prompt
    }

    fn reread(&mut self) -> Option<Input> {
        let read = read_bounded(&self.file).map_err(|e| e.to_string());
        match read.and_then(|text| self.take(&text)) {
            Ok(news) => {
                self.told = None;
                news
            }
            Err(fault) => {
                let detail = format!("{}: {fault}; going on with the last good text", self.file.display());
                let news = self.told.as_ref() != Some(&detail);
                self.told = Some(detail.clone());
                news.then_some(Input::TroubleMet { kind: "loop_file", detail })
            }
        }
    }

    /// Takes a new text in, unless it looks like half a file: somebody may be writing it just now.
    fn take(&mut self, text: &str) -> Result<Option<Input>, String> {
        let (body, settings) = (frontmatter::body(text), frontmatter::settings(text));
        if body.is_empty() && !self.body.is_empty() {
            return Err("there is no prompt in it any more".into());
        }
        if settings.is_empty() && !self.frontmatter.is_empty() {
            return Err("its settings are gone".into());
        }
        if settings == self.frontmatter {
            self.body = body;
            return Ok(None);
        }
        if let Some(fault) = frontmatter::fault(text) {
            return Err(format!("its settings cannot be read: {fault}"));
        }
        (self.body, self.frontmatter) = (body, settings);
        let message = format!(
            "the settings in {} changed; this run goes on with those it started with",
            self.file.display()
        );
        Ok(Some(Input::Noticed { kind: "settings_changed", message }))
    }
}

/// Reads a text file of bounded size.
pub fn read_bounded(file: &std::path::Path) -> io::Result<String> {
    read_at_most(file, dogwatch_config::limits::MAX_FILE_BYTES)
}

/// Reads a text file of at most `max` bytes.
pub fn read_at_most(file: &std::path::Path, max: usize) -> io::Result<String> {
    // Opening a FIFO would wait for a writer for ever.
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max {
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
    use dogwatch_core::ids::NodeName;
    use dogwatch_core::settings::{IdlePolicy, ReaderName, Settings};

    fn node() -> NodePlan {
        NodePlan::alone(NodeName::new("demo"), Settings::of(vec!["true".into()], ReaderName::Plain))
    }

    const FIRST: &str = "---\nagent: true\n---\nGo {{ ralph.iteration }}";

    fn prompter() -> (tempfile::TempDir, Prompter) {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("RALPH.md");
        std::fs::write(&file, FIRST).expect("writes");
        let prompter = Prompter::new(file, FIRST);
        (dir, prompter)
    }

    fn ask(p: &mut Prompter, node: &NodePlan, iteration: u64) -> (String, Option<Input>) {
        let assembled = p.assemble(node, Iteration(iteration), &[], &[]);
        (assembled.text, assembled.news)
    }

    #[test]
    fn what_a_person_said_stands_in_the_prompt() {
        let (_dir, mut p) = prompter();
        let text = p.assemble(&node(), Iteration(1), &[], &["be brief".into(), "skip the docs".into()]).text;
        assert_eq!(text, "Go 1\n\nThe person who started this loop says:\n\n- be brief\n- skip the docs");
    }

    #[test]
    fn the_key_of_a_prompt_does_not_change_with_the_iteration() {
        let (_dir, mut p) = prompter();
        let first = p.assemble(&node(), Iteration(1), &[], &[]);
        let second = p.assemble(&node(), Iteration(2), &[], &[]);
        assert_ne!(first.text, second.text);
        assert_eq!(first.key, second.key);
        assert_ne!(second.key, p.assemble(&node(), Iteration(2), &[], &["news".into()]).key);
    }

    #[test]
    fn an_idle_block_tells_the_agent_about_the_marker_and_an_echo_of_it_is_none() {
        let (_dir, mut p) = prompter();
        let mut node = node();
        node.settings.idle = Some(IdlePolicy::default());
        let text = p.assemble(&node, Iteration(1), &[], &[]).text;
        assert!(text.contains("ralph:state idle reason=no_pending_tasks"));
        for structured in [false, true] {
            assert_eq!(dogwatch_agents::last_marker(&text, structured, &text), None);
            assert_eq!(dogwatch_agents::last_marker(&text, structured, ""), None);
        }
        node.settings.idle = Some(IdlePolicy { instruct: false, ..IdlePolicy::default() });
        assert_eq!(p.assemble(&node, Iteration(1), &[], &[]).text, "Go 1");
    }

    #[test]
    fn item_44_the_body_is_read_afresh_and_a_changed_frontmatter_is_a_notice() {
        let (dir, mut p) = prompter();
        assert_eq!(ask(&mut p, &node(), 1), ("Go 1".into(), None));
        std::fs::write(dir.path().join("RALPH.md"), "---\nagent: true\n---\nStay {{ ralph.iteration }}")
            .expect("writes");
        assert_eq!(ask(&mut p, &node(), 2), ("Stay 2".into(), None));
        std::fs::write(dir.path().join("RALPH.md"), "---\nagent: false\n---\nStay").expect("writes");
        let (text, news) = ask(&mut p, &node(), 3);
        assert_eq!(text, "Stay");
        assert!(matches!(news, Some(Input::Noticed { kind: "settings_changed", .. })));
        assert_eq!(ask(&mut p, &node(), 4).1, None);
    }

    #[test]
    fn a_deleted_loop_file_is_trouble_once_and_the_last_good_text_serves() {
        let (dir, mut p) = prompter();
        std::fs::remove_file(dir.path().join("RALPH.md")).expect("removes");
        let (text, news) = ask(&mut p, &node(), 2);
        assert_eq!(text, "Go 2");
        assert!(matches!(news, Some(Input::TroubleMet { kind: "loop_file", .. })));
        assert_eq!(ask(&mut p, &node(), 3), ("Go 3".into(), None));
        std::fs::write(dir.path().join("RALPH.md"), FIRST).expect("writes");
        assert_eq!(ask(&mut p, &node(), 4), ("Go 4".into(), None));
    }

    #[test]
    fn half_a_file_is_trouble_and_the_last_good_text_serves() {
        let (dir, mut p) = prompter();
        for half in ["", "---\n", "---\nagent: tr", "---\nagent: true\n---\n", "---\nagent: [\n---\nNew"] {
            std::fs::write(dir.path().join("RALPH.md"), half).expect("writes");
            let (text, news) = ask(&mut p, &node(), 2);
            assert_eq!(text, "Go 2", "{half:?}");
            assert!(!matches!(news, Some(Input::Noticed { .. })), "{half:?}");
        }
        std::fs::write(dir.path().join("RALPH.md"), "---\nagent: false\n---\nNew").expect("writes");
        let (text, news) = ask(&mut p, &node(), 3);
        assert_eq!(text, "New");
        assert!(matches!(news, Some(Input::Noticed { .. })));
    }

    #[test]
    fn a_file_that_is_no_text_or_no_file_is_trouble() {
        let (dir, mut p) = prompter();
        let file = dir.path().join("RALPH.md");
        std::fs::write(&file, b"---\nagent: true\n---\n\xff\xfe").expect("writes");
        let (_, news) = ask(&mut p, &node(), 1);
        assert!(
            matches!(news, Some(Input::TroubleMet { detail, .. }) if detail.contains("not UTF-8 at byte 20"))
        );
        std::fs::remove_file(&file).expect("removes");
        std::fs::create_dir(&file).expect("makes");
        let (_, news) = ask(&mut p, &node(), 1);
        assert!(
            matches!(news, Some(Input::TroubleMet { detail, .. }) if detail.contains("not a regular file"))
        );
    }

    #[test]
    fn item_25_credit_adds_our_own_trailer_when_asked() {
        let (_dir, mut p) = prompter();
        let mut node = node();
        node.settings.credit = true;
        assert!(ask(&mut p, &node, 1).0.ends_with("Assisted-by: dogwatch"));
    }
}
