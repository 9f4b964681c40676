//! Errors and warnings about files and flags, with their place and a suggested fix.
//!
//! A diagnostic contains a printable copy of the line it points at, so it can be rendered, stored or sent
//! without the file. A load collects all diagnostics, so that the user can fix them in one pass.

use crate::document::{Span, SyntaxError};
use crate::limits::MAX_DIAGNOSTICS;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use dogwatch_core::text::figures::count;
use dogwatch_core::text::{clip, printable};
use serde::Serialize;
use std::fmt;

/// The text of a file and the file name used in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    /// The name used in messages.
    pub name: &'a str,
    /// The whole text.
    pub text: &'a str,
}

/// Whether a diagnostic prevents the run from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The settings cannot be used.
    Error,
    /// The settings can be used, but part of them has no effect.
    Warning,
}

/// An error or a warning about a file or a flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// One line that names the problem.
    pub message: String,
    /// The file's name as given, or `command line`.
    pub file: String,
    /// The place in the file; none if the diagnostic is about the file as a whole.
    pub place: Option<Place>,
    /// The text beside the caret.
    pub label: Option<String>,
    /// How to fix the problem.
    pub help: Option<String>,
}

/// A place in a file, with a copy of its line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The byte range in the whole file.
    pub span: Span,
    /// The line number, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The line, with control characters replaced.
    pub text: String,
    /// The byte range of `text` to underline.
    pub mark: Span,
}

/// How a diagnostic is rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Without escape sequences.
    Plain,
    /// With ANSI colors.
    Styled,
}

/// The maximum length of a message. Messages quote values from files, which can be long.
const MAX_MESSAGE_BYTES: usize = 1_000;
const BOM: char = '\u{feff}';

impl Diagnostic {
    /// Creates a diagnostic without a label or a help text.
    pub fn new(severity: Severity, source: Source<'_>, span: Option<Span>, message: &str) -> Diagnostic {
        Diagnostic {
            severity,
            message: sanitize(message),
            file: sanitize(source.name),
            place: span.map(|span| Place::of(source.text, span)),
            label: None,
            help: None,
        }
    }

    /// Sets the text beside the caret.
    pub fn label(&mut self, label: impl AsRef<str>) -> &mut Diagnostic {
        self.label = Some(sanitize(label.as_ref()));
        self
    }

    /// Sets the suggested fix.
    pub fn help(&mut self, help: impl AsRef<str>) -> &mut Diagnostic {
        self.help = Some(sanitize(help.as_ref()));
        self
    }

    /// Returns nothing, for a value that this diagnostic rejects.
    pub fn rejected<T>(&mut self) -> Option<T> {
        None
    }

    /// Returns the position as `RALPH.md:4:8`, or only the file name.
    pub fn position(&self) -> String {
        match &self.place {
            Some(place) => format!("{}:{}:{}", self.file, place.line, place.column),
            None => self.file.clone(),
        }
    }

    /// Renders the diagnostic as lines of text, without a final newline.
    pub fn render(&self, style: Style) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(self.message.as_str());
        let mut group = match &self.place {
            Some(place) => title.element(self.snippet(place)),
            None => Group::with_title(title).element(annotate_snippets::Origin::path(self.file.as_str())),
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        match style {
            Style::Plain => Renderer::plain().render(&[group]),
            Style::Styled => Renderer::styled().render(&[group]),
        }
    }

    fn snippet<'a>(&'a self, place: &'a Place) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let mark = AnnotationKind::Primary.span(place.mark.clone()).label(self.label.as_deref());
        Snippet::source(place.text.as_str()).line_start(place.line).path(self.file.as_str()).annotation(mark)
    }
}

/// Formats the diagnostic as one line, for logs.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position(), self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl Place {
    /// Returns the place of a span. A span of several lines is underlined on its first line only.
    pub fn of(text: &str, span: Span) -> Place {
        let start = clip(text, span.start).len();
        let end = clip(text, span.end).len().max(start);
        let mut line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        if line_start == 0 && text.starts_with(BOM) && start >= BOM.len_utf8() {
            line_start = BOM.len_utf8();
        }
        let before = replace_unprintable(&text[line_start..start]);
        let marked = replace_unprintable(text[start..end.min(line_end)].trim_end());
        let line = replace_unprintable(text[line_start..line_end].trim_end_matches('\r'));
        Place {
            line: text.as_bytes()[..start].iter().filter(|b| **b == b'\n').count() + 1,
            column: before.chars().count() + 1,
            mark: before.len().min(line.len())..(before.len() + marked.len()).min(line.len()),
            text: line,
            span: start..end,
        }
    }
}

/// Replaces every unprintable character with one other character, so that columns stay correct.
fn replace_unprintable(line: &str) -> String {
    let mut buffer = [0; 4];
    line.chars()
        .map(|c| {
            let same = printable(c.encode_utf8(&mut buffer)).starts_with(c);
            if same { c } else { char::REPLACEMENT_CHARACTER }
        })
        .collect()
}

/// Returns the text as one printable line of limited length.
fn sanitize(text: &str) -> String {
    let clean = printable(text).replace('\n', " ");
    let clipped = clip(&clean, MAX_MESSAGE_BYTES);
    if clipped.len() < clean.len() { format!("{clipped}…") } else { clean }
}

/// Collects the diagnostics of a load, in order.
#[derive(Debug, Default)]
pub struct Diagnostics {
    kept: Vec<Diagnostic>,
    /// The last diagnostic over the limit. Callers may modify it, but it is not reported.
    spare: Option<Diagnostic>,
    /// The number of diagnostics over the limit.
    dropped: usize,
}

impl Diagnostics {
    /// Adds an error at a place in a file.
    pub fn error(&mut self, source: Source<'_>, span: Span, message: impl AsRef<str>) -> &mut Diagnostic {
        self.push(Severity::Error, source, Some(span), message.as_ref())
    }

    /// Adds a warning at a place in a file.
    pub fn warning(&mut self, source: Source<'_>, span: Span, message: impl AsRef<str>) -> &mut Diagnostic {
        self.push(Severity::Warning, source, Some(span), message.as_ref())
    }

    /// Adds an error about a file as a whole.
    pub fn error_in(&mut self, source: Source<'_>, message: impl AsRef<str>) -> &mut Diagnostic {
        self.push(Severity::Error, source, None, message.as_ref())
    }

    /// Adds an error for each syntax error. One without a place is reported at the start of the part that was parsed.
    pub fn syntax_errors(
        &mut self,
        source: Source<'_>,
        what: &str,
        start: usize,
        errors: impl IntoIterator<Item = SyntaxError>,
    ) {
        for SyntaxError { message, span, help } in errors {
            let span = span.unwrap_or(start..start);
            self.error(source, span, format!("invalid {what}: {message}")).help = help.map(str::to_owned);
        }
    }

    /// Returns whether another diagnostic of this severity would be reported. Check it before computing an
    /// expensive help text.
    pub fn has_room(&self, severity: Severity) -> bool {
        self.kept.iter().filter(|d| d.severity == severity).count() < MAX_DIAGNOSTICS
    }

    /// Adds a diagnostic unless an equal one exists: the nodes of a graph share most of their settings.
    fn push(
        &mut self,
        severity: Severity,
        source: Source<'_>,
        span: Option<Span>,
        message: &str,
    ) -> &mut Diagnostic {
        if !self.has_room(severity) {
            self.dropped += 1;
            // Skip the place: counting the lines of a large file for every diagnostic is too slow.
            return self.spare.insert(Diagnostic::new(severity, source, None, message));
        }
        let new = Diagnostic::new(severity, source, span, message);
        let same =
            |old: &Diagnostic| (&old.message, &old.file, &old.place) == (&new.message, &new.file, &new.place);
        let at = self.kept.iter().position(same).unwrap_or(self.kept.len());
        if at == self.kept.len() {
            self.kept.push(new);
        }
        &mut self.kept[at]
    }

    /// Adds the diagnostics of another list, as far as there is room.
    pub fn append(&mut self, other: Diagnostics) {
        for diagnostic in other.kept {
            if self.has_room(diagnostic.severity) {
                self.kept.push(diagnostic);
            } else {
                self.dropped += 1;
                self.spare = Some(diagnostic);
            }
        }
        self.dropped += other.dropped;
        self.spare = self.spare.take().or(other.spare);
    }

    /// Returns whether an error was added.
    pub fn has_errors(&self) -> bool {
        self.kept.iter().any(|d| d.severity == Severity::Error)
    }

    /// Returns all diagnostics, errors first. If some were dropped, the last entry gives their number.
    pub fn into_vec(mut self) -> Vec<Diagnostic> {
        self.kept.sort_by_key(|d| d.severity == Severity::Warning);
        if let Some(spare) = self.spare {
            let message = format!("{} not shown", count(self.dropped as u64, "more diagnostic"));
            let rest = Source { name: &spare.file, text: "" };
            self.kept.push(Diagnostic::new(Severity::Warning, rest, None, &message));
        }
        self.kept
    }
}
