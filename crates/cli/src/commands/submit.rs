use super::FleetDir;
use super::submit_checks::Wanted;
use super::submit_secrets;
use crate::completing;
use crate::error::CliError;
use crate::fleet_line;
use crate::supervise::random;
use dogwatch_fleet::blocking::{self, SubmitError};
use dogwatch_fleet::names::JobId;
use dogwatch_fleet::record::{JOB_VERSION, Job};
use dogwatch_fleet::server::OPERATOR_LINE;
use dogwatch_fleet::{FleetError, Name};
use dogwatch_host::clock;
use dogwatch_host::store::{journal, secrets};
use std::path::{Component, Path};
use std::process::{Command, Stdio};

/// Queue a loop or graph for the workers of a fleet
///
/// The job is the repository, the commit and the path of the loop in it. A worker checks that commit out, runs the loop and
/// pushes the result as the branch dogwatch/JOB/CLAIM. Without --repo, the job is the current commit of this repository, which
/// must be pushed; a loop that `dogwatch check` refuses is not queued.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Directory with RALPH.md or graph.*, or such a file, relative to the top of the repository
    #[arg(value_name = "LOOP", add = completing::loops())]
    path: String,
    /// Account that the job counts for
    #[arg(long, value_name = "NAME")]
    account: Name,
    /// Repository to run it in; one job for each; repeatable [default: `origin` of this one]
    #[arg(long = "repo", value_name = "URL")]
    repositories: Vec<String>,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REV")]
    commit: Option<String>,
    /// Name of the job [default: the name of the loop and a random part]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// Queue it again and again: a cron expression with seconds, or `@every 1h`
    #[arg(long, value_name = "CRON")]
    every: Option<String>,
    /// Label that a worker must have; repeatable
    #[arg(long = "need", value_name = "LABEL")]
    needs: Vec<String>,
    /// Oldest version of dogwatch that may run it
    #[arg(long, value_name = "VERSION")]
    min_version: Option<String>,
    /// Run each session of the graph's nodes as a job of its own, on any worker
    #[arg(long, conflicts_with = "every")]
    spread: bool,
    /// How many iterations to run
    #[arg(short = 'n', value_name = "N")]
    iterations: Option<u32>,
    /// Longest session
    #[arg(long, value_name = "D")]
    timeout: Option<String>,
    /// Override a key of the loop file; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", add = completing::keys(""))]
    set: Vec<String>,
    /// Operator's join line, or a file that contains it [default: $DOGWATCH_FLEET, or that of `fleet init`]
    #[arg(long, value_name = "FILE")]
    join: Option<String>,
    /// Values for the declared arguments of the loop
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch submit fix-tests --account acme
  dogwatch submit chores --account acme \\
    --repo https://git.example.org/a.git --repo https://git.example.org/b.git
  dogwatch submit release --spread --account acme
  dogwatch submit triage --account acme --every '0 0 6 * * *'

`dogwatch fleet ls` shows the jobs.";

/// Runs `dogwatch submit` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    if args.path.starts_with('/')
        || Path::new(&args.path).components().any(|part| part == Component::ParentDir)
    {
        return Err(CliError::usage("LOOP must be relative to the top of the repository"));
    }
    let local = FleetDir::of_user().file(OPERATOR_LINE);
    let join = match &args.join {
        Some(line) => fleet_line::given(line)?,
        None => fleet_line::operator(&local)?,
    };
    let mut named = submit_secrets::named(&args.set);
    let jobs = targets(args, &mut named)?;
    let hidden = secrets::install(&named);
    let mut queued = Vec::new();
    for (repo, commit) in jobs {
        let job = Job {
            v: JOB_VERSION,
            repo,
            commit,
            path: args.path.clone(),
            args: args.args.clone(),
            set: args.set.clone(),
            iterations: args.iterations,
            account: args.account.clone(),
            min_version: args.min_version.clone(),
            needs: args.needs.clone(),
            timeout: args.timeout.clone(),
            scheduled: false,
            spread: args.spread,
            node: None,
        };
        submit_secrets::check(&job, hidden)?;
        queued.push((JobId { account: args.account.clone(), job: name(args)? }, job));
    }
    blocking::submit(&join, &queued, args.every.as_deref(), clock::now().wall)
        .map_err(|e| explain(&e, args))?;
    let mut text = String::new();
    for (id, job) in &queued {
        let how = args.every.as_ref().map_or_else(String::new, |every| format!(", {every}"));
        text.push_str(&format!("queued {id}: {}{how}\n", job.title()));
    }
    super::print(text.as_bytes())
}

fn explain(error: &SubmitError, args: &Args) -> CliError {
    match error {
        SubmitError::NoAccount(name) => CliError::with_help(
            error.to_string(),
            format!("let a worker join for it: `dogwatch fleet join WORKER --account {name}`"),
        ),
        SubmitError::Exists(_) => CliError::with_help(error.to_string(), "choose another name with --name"),
        SubmitError::Fleet(FleetError::Connect { .. }) => {
            CliError::with_help(error.to_string(), "start the server with `dogwatch fleet up`")
        }
        SubmitError::Fleet(FleetError::Refused { .. }) if args.every.is_some() => CliError::with_help(
            format!("cannot queue by the schedule: {error}"),
            "write six fields, seconds first, as in `0 0 6 * * *`, or `@every 1h`",
        ),
        SubmitError::Fleet(_) => {
            CliError::with_help(error.to_string(), "`dogwatch doctor` checks the server")
        }
    }
}

/// Returns the name of a job.
fn name(args: &Args) -> Result<Name, CliError> {
    if let Some(name) = args.name.as_ref().filter(|_| args.repositories.len() < 2) {
        return Ok(name.clone());
    }
    let last = Path::new(&args.path).file_stem().map(|stem| stem.to_string_lossy().to_lowercase());
    let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let base: String = match (&args.name, last) {
        (Some(name), _) => name.to_string(),
        (None, Some(stem)) => stem.chars().map(clean).take(40).collect(),
        (None, None) => "job".to_owned(),
    };
    let base = base.trim_matches('-');
    let base = if base.is_empty() { "job" } else { base };
    let name = format!("{base}-{}", journal::hex(&random::<3>()?));
    name.parse().map_err(|e: dogwatch_fleet::names::NameError| CliError::usage(e.to_string()))
}

/// Returns the repositories of the jobs, each with its commit. Adds the variables that the loop names in `redact`, if it can be
/// read here.
fn targets(args: &Args, named: &mut Vec<String>) -> Result<Vec<(String, String)>, CliError> {
    let rev = args.commit.as_deref().unwrap_or("HEAD");
    if args.repositories.is_empty() {
        let repo = git(&["remote", "get-url", "origin"]).map_err(|why| {
            CliError::with_help(
                format!("cannot find the address of this repository: {why}"),
                "pass --repo URL",
            )
        })?;
        let commit = git(&["rev-parse", "--verify", &format!("{rev}^{{commit}}")])
            .map_err(|why| CliError::usage(format!("cannot find the commit {rev}: {why}")))?;
        let Args { path, set, args, spread, .. } = args;
        named.extend(Wanted { repo: &repo, commit: &commit, path, set, args, spread: *spread }.check()?);
        return Ok(vec![(repo, commit)]);
    }
    let mut all = Vec::new();
    for repo in &args.repositories {
        let full = rev.len() == 40 && rev.bytes().all(|byte| byte.is_ascii_hexdigit());
        if full {
            all.push((repo.clone(), rev.to_owned()));
            continue;
        }
        let listed = git(&["ls-remote", "--", repo, rev])
            .map_err(|why| CliError::usage(format!("cannot read {repo}: {why}")))?;
        let commit = listed.split_whitespace().next().map(str::to_owned);
        let commit = commit.ok_or_else(|| CliError::usage(format!("{repo} has no {rev}")))?;
        all.push((repo.clone(), commit));
    }
    Ok(all)
}

/// Runs git in the current directory, and returns what it printed.
pub fn git(args: &[&str]) -> Result<String, String> {
    let out = Command::new("git")
        .args(args)
        .env("GIT_TERMINAL_PROMPT", "0")
        // A server that sends nothing for half a minute is not waited for.
        .envs([("GIT_HTTP_LOW_SPEED_LIMIT", "1"), ("GIT_HTTP_LOW_SPEED_TIME", "30")])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run git: {e}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned());
    }
    Err(dogwatch_core::text::one_line(&String::from_utf8_lossy(&out.stderr), 300))
}
