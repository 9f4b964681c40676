//! Detects whether an agent prints lines in a format that its reader does not know.

/// How many of the latest lines are considered; also the least number of lines for a decision.
const WINDOW: u32 = 50;
const ENOUGH: u32 = 20;

/// The share of unknown lines among the latest ones.
#[derive(Debug, Default)]
pub struct Drift {
    /// One bit per line, the newest lowest; a set bit marks an unknown line.
    unknown: u64,
    lines: u32,
    /// Whether the format has drifted. Stays set for the rest of the session.
    pub drifted: bool,
}

impl Drift {
    /// Returns whether no line has been read yet.
    pub fn is_silent(&self) -> bool {
        self.lines == 0
    }

    /// Adds a line; returns true if this line causes the drift.
    pub fn note(&mut self, known: bool) -> bool {
        if self.drifted {
            return false;
        }
        self.unknown = (self.unknown << 1 | u64::from(!known)) & ((1 << WINDOW) - 1);
        self.lines = (self.lines + 1).min(WINDOW);
        self.drifted = self.lines >= ENOUGH && self.unknown.count_ones() * 2 > self.lines;
        self.drifted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_is_reported_once_when_most_lines_are_unknown() {
        let mut drift = Drift::default();
        let drifts: Vec<usize> = (1..=100).filter(|_| drift.note(false)).collect();
        assert_eq!(drifts, [20]);
        let mut half = Drift::default();
        assert!(!(0..1000).any(|n| half.note(n % 2 == 0)));
        let mut late = Drift::default();
        (0..1000).for_each(|_| assert!(!late.note(true)));
        assert_eq!((1..=100).find(|_| late.note(false)), Some(26), "more than half of the last fifty");
    }
}
