//! What is wrong with a file or a flag, where, and what to do about it.
//!
//! A diagnostic carries the line it points at, made fit to be shown, so it can be rendered, stored or
//! sent anywhere without the file. All diagnostics of a load are collected; nobody fixes one per attempt.

use crate::limits::MAX_DIAGNOSTICS;
use crate::tree::Span;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use dogwatch_core::text::{clip, printable};
use serde::Serialize;
use std::fmt;

/// A text and the name people know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    pub message: String,
    /// The file's name as given, or `command line`.
    pub file: String,
    pub place: Option<Place>,
    /// Stands beside the caret.
    pub label: Option<String>,
    /// What to do about it.
    pub help: Option<String>,
}

/// A place in a file, with the line itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Bytes of the whole file.
    pub span: Span,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The line without anything a terminal might obey.
    pub text: String,
    /// Bytes of `text` to put the caret under.
    pub mark: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// With ANSI colours.
    Styled,
}

/// Messages quote what people wrote; nobody reads more of it than this.
const MAX_MESSAGE_BYTES: usize = 1_000;
const BOM: char = '\u{feff}';

impl Diagnostic {
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

    pub fn label(&mut self, label: impl AsRef<str>) -> &mut Diagnostic {
        self.label = Some(sanitize(label.as_ref()));
        self
    }

    pub fn help(&mut self, help: impl AsRef<str>) -> &mut Diagnostic {
        self.help = Some(sanitize(help.as_ref()));
        self
    }

    /// `RALPH.md:4:8`, or only the file.
    pub fn position(&self) -> String {
        match &self.place {
            Some(place) => format!("{}:{}:{}", self.file, place.line, place.column),
            None => self.file.clone(),
        }
    }

    /// The whole finding as lines of text, without a newline at the end.
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

/// In one line, for logs.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position(), self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl Place {
    /// The line that holds the span's first byte. A span over several lines is marked on the first.
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

/// Character for character, so that columns stay true.
fn replace_unprintable(line: &str) -> String {
    let mut buffer = [0; 4];
    line.chars()
        .map(|c| {
            let same = printable(c.encode_utf8(&mut buffer)).starts_with(c);
            if same { c } else { char::REPLACEMENT_CHARACTER }
        })
        .collect()
}

/// One line, fit to be shown, of bounded length.
fn sanitize(text: &str) -> String {
    let clean = printable(text).replace('\n', " ");
    let clipped = clip(&clean, MAX_MESSAGE_BYTES);
    if clipped.len() < clean.len() { format!("{clipped}…") } else { clean }
}

/// What was found so far, in order.
#[derive(Debug, Default)]
pub struct Diagnostics {
    kept: Vec<Diagnostic>,
    /// The last finding beyond the limit, which is not kept.
    spare: Option<Diagnostic>,
    dropped: usize,
}

impl Diagnostics {
    pub fn error(&mut self, source: Source<'_>, span: Span, message: impl AsRef<str>) -> &mut Diagnostic {
        self.push(Severity::Error, source, Some(span), message.as_ref())
    }

    pub fn warning(&mut self, source: Source<'_>, span: Span, message: impl AsRef<str>) -> &mut Diagnostic {
        self.push(Severity::Warning, source, Some(span), message.as_ref())
    }

    /// For what is wrong with a file as a whole.
    pub fn error_in(&mut self, source: Source<'_>, message: impl AsRef<str>) -> &mut Diagnostic {
        self.push(Severity::Error, source, None, message.as_ref())
    }

    /// Whether one more would be shown. Who looks for a hint in a large file should ask before.
    pub fn has_room(&self, severity: Severity) -> bool {
        self.kept.iter().filter(|d| d.severity == severity).count() < MAX_DIAGNOSTICS
    }

    /// The same is not told twice: the nodes of a graph share most of their settings.
    fn push(
        &mut self,
        severity: Severity,
        source: Source<'_>,
        span: Option<Span>,
        message: &str,
    ) -> &mut Diagnostic {
        if !self.has_room(severity) {
            self.dropped += 1;
            // Without its place: to count the lines of a large file again and again would take for ever.
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

    pub fn has_errors(&self) -> bool {
        self.kept.iter().any(|d| d.severity == Severity::Error)
    }

    /// Everything found, errors first; if there was more, the last says so.
    pub fn into_vec(mut self) -> Vec<Diagnostic> {
        self.kept.sort_by_key(|d| d.severity == Severity::Warning);
        if let Some(spare) = self.spare {
            let message = match self.dropped {
                1 => "1 more finding is not shown".to_owned(),
                n => format!("{n} more diagnostics are not shown"),
            };
            let rest = Source { name: &spare.file, text: "" };
            self.kept.push(Diagnostic::new(Severity::Warning, rest, None, &message));
        }
        self.kept
    }
}
