//! The parsed form of a file in any format: values with their spans.

use std::ops::Range;

/// A byte range in the whole file, including the frontmatter fences.
pub type Span = Range<usize>;

/// A value and its span.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub value: Value,
    pub span: Span,
}

/// A value of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// Wide enough for every integer that YAML and TOML can hold.
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

/// A syntax error and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntaxError {
    pub message: String,
    pub span: Option<Span>,
    pub help: Option<&'static str>,
}

impl Node {
    /// Creates a node.
    pub fn new(value: Value, span: Span) -> Node {
        Node { value, span }
    }

    /// Returns the type as a noun phrase, for "this is …" in error messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "empty",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// Returns whether the value is missing or null.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Returns the text, if the value is one.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// Returns the whole number, if the value is one.
    pub fn int(&self) -> Option<i128> {
        if let Value::Int(n) = self.value { Some(n) } else { None }
    }

    /// Returns the number, if the value is one, whole or not.
    pub fn number(&self) -> Option<f64> {
        if let Value::Float(n) = self.value { Some(n) } else { self.int().map(|n| n as f64) }
    }

    /// Returns the items, if the value is a list.
    pub fn list(&self) -> Option<&[Node]> {
        if let Value::List(items) = &self.value { Some(items) } else { None }
    }

    /// Returns the entries, if the value is a mapping.
    pub fn map(&self) -> Option<&[Entry]> {
        if let Value::Map(entries) = &self.value { Some(entries) } else { None }
    }
}
