//! The fleet of this machine: whether its server keeps what it confirms.

use super::Finding;
use crate::commands::fleet::{FleetDir, installed_version, user_dir};
use dogwatch_fleet::operator::Operator;
use dogwatch_fleet::server::{self, Fault, Version, audit};
use std::path::Path;

/// Checks the server of the user's fleet. A machine without a fleet has no findings.
pub fn all() -> Vec<Finding> {
    let dir = user_dir();
    let line = crate::fleet_line::configured(&dir.file(server::OPERATOR_LINE));
    let mut findings = Vec::new();
    if dir.book().is_ok() {
        findings.push(program());
        findings.push(configuration(&dir));
    }
    match line {
        None => {}
        Some(Err(error)) => {
            let advice = "run `dogwatch fleet init`, or copy the operator's join line again";
            findings.push(Finding::problem("fleet server", error.message(), advice));
        }
        Some(Ok(line)) => findings.push(match Operator::connect(&line) {
            Ok(operator) => answered(operator.server_version().as_deref()),
            Err(error) => {
                Finding::warning("fleet server", error.to_string(), "start it with `dogwatch fleet up`")
            }
        }),
    }
    findings
}

fn program() -> Finding {
    match installed_version(Path::new("nats-server")) {
        Ok(version) => judged("nats-server", audit::version(version), version.to_string()),
        Err(error) => Finding::problem("nats-server", error.message(), audit::INSTALL),
    }
}

fn configuration(dir: &FleetDir) -> Finding {
    match dir.text(server::CONFIG) {
        Ok(text) => judged("fleet config", audit::config(&text), "every confirmed message is on disk"),
        Err(error) => Finding::problem("fleet config", error.message(), "make the fleet again"),
    }
}

fn answered(version: Option<&str>) -> Finding {
    let Some(version) = version.and_then(Version::parse) else {
        return Finding::warning("fleet server", "answers, but does not report its version", audit::INSTALL);
    };
    judged("fleet server", audit::version(version), format!("answers, version {version}"))
}

fn judged(name: &str, fault: Option<Fault>, found: impl Into<String>) -> Finding {
    match fault {
        None => Finding::ok(name, found),
        Some(fault) => Finding::problem(name, fault.what, fault.fix),
    }
}
