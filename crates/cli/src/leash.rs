//! The flag `--leash`, which `run` and `resume` share.

use crate::error::CliError;
use dogwatch_host::leash::{Leash, LeashError};

/// The flag that ties a run to another process.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct LeashFlag {
    /// End the run unless times keep arriving on this inherited pipe
    ///
    /// Each line is the time until which the run may live, in milliseconds of the boot clock (/proc/uptime), or `+N`
    /// for N milliseconds from now. When the time is over or the pipe is closed, every process of the run is killed and
    /// dogwatch exits with 6. The run can be resumed.
    #[arg(long, value_name = "FD")]
    leash: Option<u32>,
}

impl LeashFlag {
    /// Opens the leash and waits for its first line.
    pub fn open(self) -> Result<Option<Leash>, CliError> {
        self.leash.map(Leash::open).transpose().map_err(|error| refuse(&error))
    }

    /// Returns whether a leash is given.
    pub fn is_given(self) -> bool {
        self.leash.is_some()
    }
}

fn refuse(error: &LeashError) -> CliError {
    let help = match error {
        LeashError::Unreadable { .. } | LeashError::NotAPipe(_) => {
            "pass the reading end of a pipe, for example `dogwatch run --leash 3 3<PIPE`"
        }
        LeashError::NoTime { .. } | LeashError::BadLine(_) => {
            "write a line with the milliseconds of the boot clock until which the run may live, or `+30000` for 30 s from now"
        }
    };
    CliError::with_help(error.to_string(), help)
}
