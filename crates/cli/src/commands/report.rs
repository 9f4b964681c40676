use crate::error::Failure;
use crate::runs::{FoundRun, Which};
use dogwatch_core::story::Story;
use dogwatch_core::view::View;
use std::path::PathBuf;

mod html;
mod markdown;
mod paragraphs;
mod tables;

/// Tell what became of a run, as Markdown or as a page
///
/// What happened in three lines, then the timeline, the watchdog's verdicts with their evidence, waits, cost,
/// what was left behind, and the snapshots with the commands that show and undo an iteration. All of it comes
/// from the run's record; of a run that goes on, what there is so far.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Write the dashboard's page of the run, with its record, as one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find()?;
    if let Some(file) = &args.html {
        return html::write(&found, file);
    }
    let told = Told::of(&found)?;
    super::print(markdown::page(&told).as_bytes())
}

/// A run's story and where it lies.
pub struct Told {
    pub found: FoundRun,
    pub story: Story,
    pub live: bool,
    /// The first line of the record that does not follow from the one before.
    pub broken_chain: Option<u64>,
}

impl Told {
    pub fn of(found: &FoundRun) -> Result<Told, Failure> {
        let live = found.is_live();
        let record = found.record()?;
        let story = Story::fold(&record.events);
        Ok(Told { found: found.clone(), story, live, broken_chain: record.broken_chain })
    }

    pub fn view(&self) -> &View {
        &self.story.view
    }

    /// The end of a run's id is enough to name it.
    pub fn tail(&self) -> &str {
        self.found.tail()
    }
}
