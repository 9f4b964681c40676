//! The fleet's own certificate authority and the certificate of its server, made by `openssl`.

use super::dir::FleetDir;
use crate::error::CliError;
use dogwatch_fleet::server::{self, Book};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// How long the certificates are valid, in days. The keys never leave the fleet's directory.
const DAYS: &str = "3650";

/// Makes the certificates of a new fleet.
pub fn make(dir: &FleetDir, book: &Book) -> Result<(), CliError> {
    dir.write("openssl.cnf", settings(book).as_bytes())?;
    for args in commands() {
        openssl(dir.path(), &args)?;
    }
    for left in ["openssl.cnf", "server.csr", "ca.srl"] {
        let _ = std::fs::remove_file(dir.file(left));
    }
    Ok(())
}

/// Returns the settings of `openssl`: what the certificates say.
fn settings(book: &Book) -> String {
    format!(
        "[req]\n\
         prompt = no\n\
         distinguished_name = name\n\
         [name]\n\
         CN = dogwatch fleet {name}\n\
         [ca]\n\
         basicConstraints = critical,CA:TRUE,pathlen:0\n\
         keyUsage = critical,keyCertSign\n\
         subjectKeyIdentifier = hash\n\
         [server]\n\
         basicConstraints = critical,CA:FALSE\n\
         keyUsage = critical,digitalSignature\n\
         extendedKeyUsage = serverAuth\n\
         subjectAltName = {host},DNS:localhost,IP:127.0.0.1\n",
        name = book.name,
        host = book.listen.certified_name(),
    )
}

/// Returns the calls of `openssl`, in order.
fn commands() -> [Vec<&'static str>; 4] {
    const NEW_KEY: [&str; 7] =
        ["-config", "openssl.cnf", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let with_key = |before: &[&'static str], after: &[&'static str]| [before, &NEW_KEY, after].concat();
    [
        with_key(
            &["req", "-x509"],
            &["-extensions", "ca", "-days", DAYS, "-keyout", server::CA_KEY, "-out", server::CA],
        ),
        with_key(
            &["req", "-new", "-subj", "/CN=dogwatch fleet server"],
            &["-keyout", server::KEY, "-out", "server.csr"],
        ),
        vec![
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            server::CA,
            "-CAkey",
            server::CA_KEY,
            "-CAcreateserial",
            "-days",
            DAYS,
            "-extfile",
            "openssl.cnf",
            "-extensions",
            "server",
            "-out",
            server::CERTIFICATE,
        ],
        vec!["x509", "-in", server::CA, "-outform", "DER", "-out", server::CA_DER],
    ]
}

fn openssl(dir: &Path, args: &[&str]) -> Result<(), CliError> {
    let run = Command::new("openssl").args(args).current_dir(dir).stdin(Stdio::null()).output();
    let output = match run {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CliError::with_help(
                "`openssl` is not installed; it makes the certificates of the fleet",
                "install it, for example with `apt-get install openssl`",
            ));
        }
        Err(error) => return Err(CliError::internal(format!("cannot start openssl: {error}"))),
    };
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(CliError::internal(format!("openssl {} failed: {last}", args.first().unwrap_or(&""))))
}
