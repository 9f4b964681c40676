//! Sums up the usage of all runs of a project today, from their journals.
//!
//! If a day limit is set, the driver reads this usage before each session. Only journals written today are opened, and only the lines
//! appended since the last read are parsed.

use crate::clock;
use dogwatch_core::record::day::DayUse;
use dogwatch_core::record::view::Used;
use dogwatch_core::time::moment::Wall;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::store::journal;

/// The most runs that are read, newest first, so that those of today are included.
const MAX_RUNS: usize = 10_000;

/// The usage read from each journal so far.
pub struct DayBook {
    runs_dir: PathBuf,
    /// The name of this run. The core already knows the usage of its open sessions.
    own: OsString,
    day: (Wall, Wall),
    books: BTreeMap<PathBuf, Book>,
}

/// The usage in one journal, up to `offset`.
#[derive(Default)]
struct Book {
    offset: u64,
    ended: Used,
    sessions: journal::SessionLines,
}

impl DayBook {
    /// Creates an empty day book for the runs in `runs_dir`; `own` is the name of the current run.
    pub fn new(runs_dir: PathBuf, own: OsString) -> DayBook {
        DayBook { runs_dir, own, day: (Wall(0), Wall(0)), books: BTreeMap::new() }
    }

    /// Returns the usage since the start of the current day, in the time zone of the machine.
    pub fn read(&mut self, now: Wall) -> io::Result<DayUse> {
        let day = day_of(now);
        if day != self.day {
            self.day = day;
            self.books.clear();
        }
        for dir in self.todays_runs()? {
            let book = self.books.entry(dir.clone()).or_default();
            // A journal that cannot be read now is retried by the next call.
            let _ = book.read_on(&dir.join(journal::FILE), day.0);
        }
        let mut sum = Used::default();
        for (dir, book) in &self.books {
            sum = sum.plus(book.ended);
            if dir.file_name() != Some(&self.own) {
                sum = sum.plus(book.open(day.0));
            }
        }
        Ok(DayUse::new(day, &sum))
    }

    fn todays_runs(&self) -> io::Result<Vec<PathBuf>> {
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(self.day.0.0).unwrap_or(0));
        // Names start with the time of the run, so the newest sort last.
        let mut runs: Vec<PathBuf> = std::fs::read_dir(&self.runs_dir)?.flatten().map(|e| e.path()).collect();
        runs.sort_unstable_by(|a, b| b.cmp(a));
        runs.truncate(MAX_RUNS);
        let written =
            |dir: &PathBuf| std::fs::metadata(dir.join(journal::FILE)).and_then(|meta| meta.modified());
        runs.retain(|dir| written(dir).is_ok_and(|at| at >= since));
        Ok(runs)
    }
}

impl Book {
    fn read_on(&mut self, path: &Path, since: Wall) -> io::Result<()> {
        let file = crate::store::safe_file::read(path)?;
        if file.metadata()?.len() <= self.offset {
            return Ok(());
        }
        let mut lines = journal::Tail::from(file, self.offset).in_large_pieces();
        while let Some(line) = lines.next_line()? {
            self.take(line, since);
            self.offset = lines.offset();
        }
        Ok(())
    }

    fn take(&mut self, line: &[u8], since: Wall) {
        let over = self.sessions.take(line).into_iter().filter(|session| session.at >= since);
        self.ended = over.map(|session| Used::of(&session.usage)).fold(self.ended, Used::plus);
    }

    /// Returns the usage of the open sessions.
    fn open(&self, since: Wall) -> Used {
        let open = self.sessions.open().filter(|session| session.at >= since);
        open.map(|session| Used::so_far(&session.usage)).fold(Used::default(), Used::plus)
    }
}

/// Returns the start and the end of the day of this moment.
fn day_of(now: Wall) -> (Wall, Wall) {
    let whole = || {
        let at = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(clock::zone());
        let begin = at.start_of_day().ok()?;
        let end = at.tomorrow().and_then(|next| next.start_of_day()).ok()?;
        Some((Wall(begin.timestamp().as_millisecond()), Wall(end.timestamp().as_millisecond())))
    };
    // Outside the range of the calendar, use days of 24 hours.
    const DAY: i64 = 24 * 3600 * 1000;
    whole().unwrap_or_else(|| {
        let begin = now.0.div_euclid(DAY) * DAY;
        (Wall(begin), Wall(begin.saturating_add(DAY)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::journal::sessions::tests::{of_session as row, resumed};
    use std::io::Write;

    struct Project(tempfile::TempDir);

    impl Project {
        fn append(&self, run: &str, line: &str) {
            let dir = self.0.path().join(run);
            std::fs::create_dir_all(&dir).expect("creates");
            let file = std::fs::OpenOptions::new().create(true).append(true).open(dir.join(journal::FILE));
            file.expect("opens").write_all(line.as_bytes()).expect("writes");
        }

        fn book(&self) -> DayBook {
            DayBook::new(self.0.path().to_owned(), "own".into())
        }
    }

    #[test]
    fn all_runs_of_today_are_summed_and_read_incrementally() {
        let project = Project(tempfile::tempdir().expect("a directory"));
        let now = crate::clock::now().wall;
        let (today, tomorrow) = day_of(now);
        assert!(today <= now && now < tomorrow);
        let yesterday = Wall(today.0 - 1);
        project.append("a", &row("session_ended", yesterday, 1, ",\"tokens\":1000000,\"cost_usd\":99.0"));
        project.append("a", &row("session_ended", now, 2, ",\"tokens\":10,\"cost_usd\":0.5"));
        project.append("b", &row("session_ended", now, 1, ",\"tokens\":5"));
        let mut book = project.book();
        let day = book.read(now).expect("reads");
        assert_eq!((day.since, day.until), (today, tomorrow));
        assert_eq!((day.tokens, day.cost_usd, day.unknown_cost, day.unknown_tokens), (15, 0.5, 1, 0));

        // The open session of another run counts as far as it is known. The core knows the one of this run.
        for run in ["b", "own"] {
            project.append(run, &row("session_started", now, 2, ""));
            project.append(run, &row("used", now, 2, ",\"tokens\":100"));
            project.append(run, &row("used", now, 2, ",\"tokens\":200,\"cost_usd\":1.0"));
        }
        assert_eq!(book.read(now).map(|day| (day.tokens, day.cost_usd)).ok(), Some((215, 1.5)));
        project.append("b", &row("session_ended", now, 2, ",\"tokens\":250,\"cost_usd\":1.5"));
        project.append("own", &row("session_ended", now, 2, ",\"tokens\":300,\"cost_usd\":1.0"));
        assert_eq!(book.read(now).map(|day| (day.tokens, day.cost_usd)).ok(), Some((565, 3.0)));
        assert_eq!(
            project.book().read(now).map(|day| day.tokens).ok(),
            Some(565),
            "a fresh day book reads the same sum"
        );
    }

    #[test]
    fn a_session_that_lost_its_supervisor_still_counts_after_the_run_is_resumed() {
        let project = Project(tempfile::tempdir().expect("a directory"));
        let now = crate::clock::now().wall;
        let start = |iteration| project.append("own", &row("session_started", now, iteration, ""));
        let uses = |iteration, tokens| project.append("own", &row("used", now, iteration, tokens));
        start(1);
        uses(1, ",\"tokens\":100");
        let mut book = project.book();
        assert_eq!(book.read(now).map(|day| day.tokens).ok(), Some(0), "the core knows it");
        project.append("own", &resumed(now));
        start(2);
        uses(2, ",\"tokens\":7");
        assert_eq!(book.read(now).map(|day| (day.tokens, day.unknown_cost)).ok(), Some((100, 1)));
        // A session that was lost before its first report was not free.
        project.append("own", &resumed(now));
        start(3);
        project.append("own", &resumed(now));
        let used = book.read(now).map(|day| (day.tokens, day.unknown_tokens, day.unknown_cost));
        assert_eq!(used.ok(), Some((107, 1, 3)));
    }

    #[test]
    fn torn_foreign_and_huge_lines_are_skipped() {
        let project = Project(tempfile::tempdir().expect("a directory"));
        let now = crate::clock::now().wall;
        project.append("a", "no json but \"used\"\n");
        project.append("a", &format!("\"used\"{}\n", "x".repeat(3 * 1024 * 1024)));
        project.append("a", &row("session_ended", now, 1, ",\"tokens\":7,\"cost_usd\":0.0"));
        let torn = row("session_ended", now, 2, ",\"tokens\":8,\"cost_usd\":0.0");
        let (half, rest) = torn.split_at(30);
        project.append("a", half);
        std::fs::create_dir_all(project.0.path().join("empty")).expect("creates");
        let mut book = project.book();
        assert_eq!(book.read(now).map(|day| day.tokens).ok(), Some(7));
        project.append("a", rest);
        assert_eq!(book.read(now).map(|day| day.tokens).ok(), Some(15));
        assert!(DayBook::new("/nowhere".into(), "own".into()).read(now).is_err());
    }
}
