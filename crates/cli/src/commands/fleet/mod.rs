//! `dogwatch fleet`: sets up and runs the server of a fleet, and manages its users.

mod account;
mod certificates;
mod demo;
mod dir;
mod jobs;
mod kept;
mod listing;
mod poison;
mod server;
mod server_log;
mod session;
mod steer;

use crate::error::{CliError, print_line};
use clap::Subcommand;
pub use dir::FleetDir;
use dir::{DirArgs, secret};
use dogwatch_fleet::Name;
use dogwatch_fleet::record::Control;
use dogwatch_fleet::server::book::OPERATOR;
use dogwatch_fleet::server::{self as files, Book, BookError, Listen, Role, config};
pub use server::version_of as installed_version;
use std::net::{SocketAddr, ToSocketAddrs};

/// Run jobs on many machines
///
/// A fleet is a NATS server with a queue of jobs, and workers that connect to it (`dogwatch work`). Jobs are queued with
/// `dogwatch submit` and watched with `dogwatch top --fleet`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Fleet,
}

impl Args {
    /// Returns whether the command changes nothing.
    pub fn only_lists(&self) -> bool {
        matches!(self.command, Fleet::Ls(_))
    }

    /// Returns whether the command is the session of a node. It changes nothing by itself.
    pub fn is_session(&self) -> bool {
        matches!(self.command, Fleet::Session(_))
    }
}

#[derive(Subcommand)]
enum Fleet {
    Init(Init),
    Up(server::Args),
    Join(Join),
    Revoke(Revoke),
    Drain(steer::Drain),
    Ls(steer::Ls),
    Account(account::Args),
    /// End a wait of a job's run
    Wake(jobs::JobArgs),
    /// Pause a job after its current iteration
    Pause(jobs::JobArgs),
    /// Continue a paused job
    Resume(jobs::JobArgs),
    /// Stop a job after its current iteration
    Stop(jobs::JobArgs),
    Tell(jobs::Tell),
    /// Remove a schedule that `submit --every` made
    Unschedule(jobs::JobArgs),
    Bundle(jobs::Bundle),
    Demo(demo::Args),
    #[command(hide = true)]
    Session(session::Args),
}

/// Make the certificates, secrets and configuration of a new fleet
#[derive(clap::Args)]
struct Init {
    /// Host name or address, and port, at which workers reach the server
    #[arg(long, value_name = "HOST:PORT")]
    listen: Listen,
    /// Name of the fleet
    #[arg(long, value_name = "NAME", default_value = "fleet")]
    name: Name,
    #[command(flatten)]
    dir: DirArgs,
}

/// Let a worker join, and print its join line
///
/// The line contains the worker's secret and is printed once. Pass it to `dogwatch work` on the worker.
#[derive(clap::Args)]
struct Join {
    /// Name of the worker
    name: Name,
    /// Account whose jobs the worker runs; repeatable
    #[arg(long = "account", value_name = "NAME", required = true)]
    accounts: Vec<Name>,
    #[command(flatten)]
    dir: DirArgs,
}

/// Remove a worker and disconnect it
#[derive(clap::Args)]
struct Revoke {
    /// Name of the worker
    name: Name,
    #[command(flatten)]
    dir: DirArgs,
}

/// Returns the directory of the user's fleet, which may not exist.
pub fn user_dir() -> FleetDir {
    FleetDir::of_user()
}

/// Runs `dogwatch fleet` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.command {
        Fleet::Init(args) => init(args),
        Fleet::Up(args) => server::run(args),
        Fleet::Join(args) => join(args),
        Fleet::Revoke(args) => revoke(args),
        Fleet::Drain(args) => steer::drain(args),
        Fleet::Ls(args) => steer::ls(args),
        Fleet::Account(args) => account::run(args),
        Fleet::Wake(args) => jobs::control(args, &Control::Wake),
        Fleet::Pause(args) => jobs::control(args, &Control::Pause),
        Fleet::Resume(args) => jobs::control(args, &Control::Resume),
        Fleet::Stop(args) => jobs::control(args, &Control::Stop),
        Fleet::Tell(args) => jobs::tell(args),
        Fleet::Unschedule(args) => jobs::unschedule(args),
        Fleet::Bundle(args) => jobs::bundle(args),
        Fleet::Demo(args) => demo::run(args),
        Fleet::Session(args) => session::run(args),
    }
}

fn init(args: &Init) -> Result<u8, CliError> {
    let reachable = reachable(&args.listen)?;
    let dir = args.dir.dir()?;
    dir.create()?;
    let operator: Name = OPERATOR.parse().map_err(|_| CliError::internal("the operator has no name"))?;
    let book = Book::new(args.name.clone(), args.listen.clone(), operator, secret()?);
    certificates::make(&dir, &book)?;
    dir.write(files::CONFIG, config::server(&book, dir.path()).as_bytes())?;
    if let Some(operator) = book.operator() {
        dir.write(files::OPERATOR_LINE, format!("{}\n", dir.line(&book, operator)?).as_bytes())?;
    }
    // The book comes last: a directory without it holds no fleet, so a failed `init` can be repeated.
    dir.save(&book)?;
    super::print(made(&dir, &book).as_bytes())?;
    if let Some(note) = reachable {
        print_line(&note);
    }
    Ok(0)
}

/// Checks the address at which workers reach the server. Returns a note if other machines cannot use it.
fn reachable(listen: &Listen) -> Result<Option<String>, CliError> {
    let host = listen.host.trim_start_matches('[').trim_end_matches(']');
    let resolved = (host, listen.port).to_socket_addrs();
    let addresses: Vec<SocketAddr> = resolved.map(Iterator::collect).map_err(|error| {
        CliError::with_help(
            format!("cannot find the address of `{host}`: {error}"),
            "pass --listen a host name that resolves, or an address of this machine, as workers reach it",
        )
    })?;
    let any = addresses.iter().any(|address| address.ip().is_unspecified());
    Ok(any.then(|| {
        format!(
            "note: join lines name {listen}, which reaches the server only from this machine; for workers on other \
             machines, make the fleet with `--listen NAME:{port}`, the name or address of this machine",
            port = listen.port
        )
    }))
}

fn made(dir: &FleetDir, book: &Book) -> String {
    let flag = |path: &std::path::Path| format!(" --dir {}", path.display());
    let default = dir.path() == dogwatch_host::store::home::user_state_dir().join("fleet");
    let flag = if default { String::new() } else { flag(dir.path()) };
    format!(
        "made fleet `{name}` in {dir}\n  \
           {config}  the server's configuration: TLS, every message synced\n  \
           {users}  the users, with secrets\n  \
           {ca}, {cert}  certificates, valid for ten years\n  \
           {line}  the join line of the operator, for `submit`, `top --fleet` and `serve --fleet`\n\
         start the server: dogwatch fleet up{flag}\n\
         add a worker:     dogwatch fleet join NAME --account ACCOUNT{flag}\n",
        name = book.name,
        dir = dir.path().display(),
        config = files::CONFIG,
        users = files::USERS,
        ca = files::CA,
        cert = files::CERTIFICATE,
        line = files::OPERATOR_LINE,
    )
}

fn join(args: &Join) -> Result<u8, CliError> {
    let dir = args.dir.dir()?;
    let secret = secret()?;
    let (book, ()) = dir.change(|book| {
        let added = book.add_worker(args.name.clone(), args.accounts.clone(), secret);
        added.map_err(|error| refused(&error))
    })?;
    let user = book.users.iter().find(|user| user.name == args.name && user.role == Role::Worker);
    let user = user.ok_or_else(|| CliError::internal("the worker was not added"))?;
    let line = dir.line(&book, user)?;
    server::reload(&dir)?;
    steer::create_accounts(&dir, &user.accounts);
    steer::admit(&dir, &args.name);
    super::print(format!("{line}\n").as_bytes())
}

fn revoke(args: &Revoke) -> Result<u8, CliError> {
    let dir = args.dir.dir()?;
    let (book, user) = dir.change(|book| book.remove_worker(&args.name).map_err(|error| refused(&error)))?;
    let text = match server::reload(&dir)? {
        true => {
            steer::wait_until_refused(&dir, &book, &user)?;
            steer::mark_revoked(&dir, &args.name);
            format!("revoked {}: the server has disconnected it and refuses its secret\n", args.name)
        }
        false => format!("revoked {}; the server does not run on this machine\n", args.name),
    };
    super::print(text.as_bytes())
}

fn refused(error: &BookError) -> CliError {
    let help = match error {
        BookError::Taken(name) => format!("revoke it first with `dogwatch fleet revoke {name}`"),
        BookError::Unknown(_) => "`dogwatch fleet ls` lists the workers".to_owned(),
        BookError::NoAccount | BookError::TooMany => "pass `--account NAME`".to_owned(),
    };
    CliError::with_help(error.to_string(), help)
}
