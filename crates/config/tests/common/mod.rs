//! Helpers that load settings from strings.
#![allow(dead_code, clippy::unwrap_used)]

use dogwatch_config::{
    Diagnostic, Flags, Format, Loaded, Machine, Severity, Source, Sources, Style, load, load_graph,
};
use dogwatch_core::settings::{ReaderName, Settings};

/// The inputs of one load of a loop file.
pub struct Case<'a> {
    pub file: &'a str,
    pub user: Option<&'a str>,
    pub project: Option<&'a str>,
    pub flags: Flags,
    pub args: &'a [&'a str],
}

impl<'a> Case<'a> {
    pub fn file(file: &'a str) -> Case<'a> {
        Case { file, user: None, project: None, flags: Flags::default(), args: &[] }
    }

    pub fn set(mut self, set: &[&str]) -> Case<'a> {
        self.flags.set = set.iter().map(|s| s.to_string()).collect();
        self
    }

    pub fn load(&self) -> Result<Loaded, Vec<Diagnostic>> {
        self.load_on(None)
    }

    /// Returns the errors for a machine that only has `sh` and the file `there.md`.
    pub fn faults(&self) -> Vec<Diagnostic> {
        self.load_on(Some(&Bare)).unwrap().faults
    }

    pub fn load_on(&self, machine: Option<&dyn Machine>) -> Result<Loaded, Vec<Diagnostic>> {
        let args: Vec<String> = self.args.iter().map(|a| a.to_string()).collect();
        let sources = Sources {
            file: Source { name: "RALPH.md", text: self.file },
            user: self.user.map(|text| Source { name: "~/.config/dogwatch/dogwatch.toml", text }),
            project: self.project.map(|text| Source { name: "dogwatch.toml", text }),
            flags: &self.flags,
            args: &args,
            detect: &detect,
            machine,
        };
        load(&sources, "fix")
    }

    pub fn settings(&self) -> Settings {
        self.load()
            .unwrap_or_else(|found| panic!("{}", lines(&found).join("\n")))
            .plan
            .nodes
            .remove(0)
            .settings
    }

    /// Returns every error as `position: message`.
    pub fn errors(&self) -> Vec<String> {
        match self.load() {
            Ok(_) => Vec::new(),
            Err(found) => {
                lines(&found.into_iter().filter(|d| d.severity == Severity::Error).collect::<Vec<_>>())
            }
        }
    }
}

/// A machine that only has `sh` and the file `there.md`.
pub struct Bare;

impl Machine for Bare {
    fn has_program(&self, program: &str) -> bool {
        program == "sh"
    }

    fn wake_paths(&self, globs: &[String]) -> Result<(), String> {
        globs.iter().find(|glob| glob.contains('[')).map_or(Ok(()), |glob| Err(format!("`{glob}`: unclosed")))
    }

    fn read(&self, path: &str) -> Result<String, String> {
        if path == "there.md" {
            Ok("Hello {{ args.who }}".to_owned())
        } else {
            Err("no such file".to_owned())
        }
    }

    fn template(&self, path: &str) -> Result<(), String> {
        self.read(path).map(drop)
    }
}

pub fn detect(agent: &[String]) -> ReaderName {
    if agent[0] == "claude" { ReaderName::Claude } else { ReaderName::Plain }
}

pub fn lines(found: &[Diagnostic]) -> Vec<String> {
    found.iter().map(|d| d.to_string()).collect()
}

/// Returns a loop file with an agent and these settings.
pub fn with(yaml: &str) -> String {
    format!("---\nagent: echo\n{yaml}\n---\nHello\n")
}

pub fn settings(yaml: &str) -> Settings {
    Case::file(&with(yaml)).settings()
}

/// Returns the only error of a file with these settings, as `line:column: message`.
pub fn error(yaml: &str) -> String {
    let errors = Case::file(&with(yaml)).errors();
    assert_eq!(errors.len(), 1, "{yaml:?} gave {errors:#?}");
    errors[0].strip_prefix("RALPH.md:").unwrap().to_owned()
}

/// Returns all diagnostics of a file, rendered.
pub fn rendered(file: &str) -> String {
    let found = match Case::file(file).load() {
        Ok(loaded) => loaded.warnings,
        Err(found) => found,
    };
    found.iter().map(|d| d.render(Style::Plain)).collect::<Vec<_>>().join("\n\n")
}

/// The inputs of one load of a graph file.
pub struct Graph<'a> {
    pub name: &'a str,
    pub text: &'a str,
    pub user: Option<&'a str>,
    pub project: Option<&'a str>,
    pub flags: Flags,
    pub args: &'a [&'a str],
    /// Check against the machine [`Bare`].
    pub bare: bool,
}

impl<'a> Graph<'a> {
    pub fn file(name: &'a str, text: &'a str) -> Graph<'a> {
        Graph { name, text, user: None, project: None, flags: Flags::default(), args: &[], bare: false }
    }

    pub fn yaml(text: &'a str) -> Graph<'a> {
        Graph::file("graph.yaml", text)
    }

    pub fn set(mut self, set: &[&str]) -> Graph<'a> {
        self.flags.set = set.iter().map(|s| s.to_string()).collect();
        self
    }

    pub fn load(&self) -> Result<Loaded, Vec<Diagnostic>> {
        let args: Vec<String> = self.args.iter().map(|a| a.to_string()).collect();
        let sources = Sources {
            file: Source { name: self.name, text: self.text },
            user: self.user.map(|text| Source { name: "~/.config/dogwatch/dogwatch.toml", text }),
            project: self.project.map(|text| Source { name: "dogwatch.toml", text }),
            flags: &self.flags,
            args: &args,
            detect: &detect,
            machine: if self.bare { Some(&Bare) } else { None },
        };
        load_graph(&sources, Format::of(self.name).unwrap(), true)
    }

    pub fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|found| panic!("{}", lines(&found).join("\n")))
    }

    /// Returns every error as `position: message`.
    pub fn errors(&self) -> Vec<String> {
        let found = self.load().err().unwrap_or_default();
        lines(&found.into_iter().filter(|d| d.severity == Severity::Error).collect::<Vec<_>>())
    }
}
