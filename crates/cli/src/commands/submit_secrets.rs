//! Refuses a job that contains a secret. The server stores jobs, and every worker of the account can read them.

use crate::error::CliError;
use dogwatch_core::text::redact;
use dogwatch_fleet::record::Job;
use dogwatch_host::store::secrets::Secrets;

/// Returns the variables that `--set redact=…` names. The loop file of another repository is not read here, so its own names
/// are not known.
pub fn named(set: &[String]) -> Vec<String> {
    let lists = set.iter().filter_map(|pair| pair.split_once('=')).filter(|(key, _)| key.trim() == "redact");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = lists.flat_map(|(_, list)| list.split(move |c| !is_part(c)));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Refuses a job with a value that the record of a run would hide.
pub fn check(job: &Job, secrets: &Secrets) -> Result<(), CliError> {
    let is_secret = |text: &str| secrets.hide(text) != text;
    // A key of the settings may also say by its name, or by the look of its value, that it holds a secret. The arguments of a loop
    // may not: `--tokenizer` would be refused, and an argument has no other place.
    let is_secret_set = |set: &str| is_secret(set) || redact::text(set) != set;
    let found = if let Some(set) = job.set.iter().find(|set| is_secret_set(set)) {
        let key = set.split_once('=').map_or("", |(key, _)| key);
        format!("--set {}", secrets.hide(key))
    } else if job.args.iter().any(|arg| is_secret(arg)) {
        "an argument of the loop".to_owned()
    } else if is_secret(&job.repo) {
        "the address of the repository".to_owned()
    } else {
        return Ok(());
    };
    Err(CliError::with_help(
        format!("{found} contains a secret, and the server would store it with the job"),
        "leave it out, and set it on the workers: in their environment, or in the dogwatch.toml of their user",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_that_a_flag_names_are_found() {
        let set = |text: &str| vec!["delay=1s".to_owned(), text.to_owned()];
        assert_eq!(named(&set("redact=[DEPLOY_CODE, \"PIN\"]")), ["DEPLOY_CODE", "PIN"]);
        assert_eq!(named(&set("redact=DEPLOY_CODE")), ["DEPLOY_CODE"]);
        assert!(named(&set("agent=redact")).is_empty());
    }
}
