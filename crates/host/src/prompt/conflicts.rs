//! Asks an agent to resolve the conflicts with which its node starts.

use dogwatch_core::run::job::Conflict;

/// The request before the list of conflicts.
const REQUEST: &str = "\
This work tree is the merge of the tasks that this one depends on, and the merge left conflicts. Resolve them first: \
keep what each side intended, and remove the lines with conflict markers (`<<<<<<<`, `=======`, `>>>>>>>`). The work is \
not done while a marker is left.";

/// Returns the block for the prompt.
pub(super) fn block(conflicts: &[Conflict]) -> String {
    let mut text = REQUEST.to_owned();
    for Conflict { from, files, detail } in conflicts {
        let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
        text.push_str(&format!("\n\n- from `{from}`: {}", files.join(", ")));
        for line in detail.lines() {
            // Indentation quotes the output of git, even if file names contain markup.
            text.push_str("\n    ");
            text.push_str(line);
        }
    }
    text
}
