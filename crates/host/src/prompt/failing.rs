//! Describes failing checks for an agent: each check, how it ended, and the end of its output.

use dogwatch_core::record::event::CheckResult;
use dogwatch_core::run::decision::PromptContext;

/// Returns the text for `{{ checks.failed }}`, empty if nothing failed.
pub(super) fn text(prompt_context: &PromptContext) -> String {
    let mut parts: Vec<String> = prompt_context.failed.iter().map(one).collect();
    if !prompt_context.tampered.is_empty() {
        parts.push(format!(
            "- files that the checks depend on were changed; restore them: {}",
            prompt_context.tampered.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(", ")
        ));
    }
    parts.join("\n\n")
}

/// Returns the same text as a block for a prompt without the placeholder.
pub(super) fn block(prompt_context: &PromptContext, text: &str) -> String {
    let of = prompt_context.max_attempts.map(|max| format!(" of {max}")).unwrap_or_default();
    format!(
        "The work is done when all checks pass. This is attempt {}{of}. These failed in the last one:\n\n{text}",
        prompt_context.attempt
    )
}

fn one(check: &CheckResult) -> String {
    let how = if check.timed_out { "timed out" } else { "failed" };
    let mut text = format!("- `{}` {how} (exit code {})", check.cmd, check.rc);
    let tail = check.tail.as_deref().unwrap_or("").trim_end();
    if tail.is_empty() {
        text.push_str(" and printed nothing");
        return text;
    }
    text.push_str(if check.truncated { "; the end of its output:\n" } else { "; its output:\n" });
    for line in tail.lines() {
        // Indentation quotes the output, whatever it contains.
        text.push_str("\n    ");
        text.push_str(line);
    }
    text
}
