//! What failed, in words for an agent: each check, how it ended, and the end of its output.

use dogwatch_core::record::event::CheckResult;
use dogwatch_core::run::decision::PromptContext;

/// What `{{ checks.failed }}` stands for; nothing if nothing failed.
pub(super) fn text(brief: &PromptContext) -> String {
    let mut parts: Vec<String> = brief.failed.iter().map(one).collect();
    if !brief.tampered.is_empty() {
        parts.push(format!(
            "- files that the checks rest on were changed; put them back as they were: {}",
            brief.tampered.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(", ")
        ));
    }
    parts.join("\n\n")
}

/// The same for a prompt that does not say where it goes.
pub(super) fn block(brief: &PromptContext, text: &str) -> String {
    let of = brief.max_attempts.map(|max| format!(" of {max}")).unwrap_or_default();
    format!(
        "The work is done when all checks pass. This is attempt {}{of}. In the last one these did not:\n\n{text}",
        brief.attempt
    )
}

fn one(check: &CheckResult) -> String {
    let how = if check.timed_out { "took too long" } else { "failed" };
    let mut text = format!("- `{}` {how} (exit code {})", check.cmd, check.rc);
    let tail = check.tail.as_deref().unwrap_or("").trim_end();
    if tail.is_empty() {
        text.push_str(" and printed nothing");
        return text;
    }
    text.push_str(if check.truncated { "; the end of its output:\n" } else { "; its output:\n" });
    for line in tail.lines() {
        // Indented it is quoted, whatever stands in it.
        text.push_str("\n    ");
        text.push_str(line);
    }
    text
}
