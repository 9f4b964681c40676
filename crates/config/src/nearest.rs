//! Finds the known word that is most similar to a misspelled one, for "did you mean" hints.

/// Longer words get no suggestion. No known word is this long.
const MAX_WORD_BYTES: usize = 64;

/// An unknown word that is at most this many edits away from a known one is a typing mistake.
const MAX_TYPO_EDITS: usize = 2;

/// Returns the known word that this one most likely misspells. Short words allow fewer edits: `title` is not
/// `idle`.
pub fn typo_of<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let near = nearest(word, known)?;
    (distance(&normalize(word), &normalize(near)) <= MAX_TYPO_EDITS).then_some(near)
}

/// Returns the most similar known word, if it is similar enough.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > MAX_WORD_BYTES {
        return None;
    }
    let word = normalize(word);
    known
        .into_iter()
        .map(|candidate| (distance(&word, &normalize(candidate)), candidate))
        .filter(|(far, candidate)| *far <= (candidate.len() / 3).max(1))
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// Normalizes case and separators, so that `max-delay`, `maxDelay` and `Max_Delay` all match `max_delay`.
fn normalize(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns the edit distance of two words. Swapping two adjacent characters is one edit.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_words_get_a_suggestion_and_other_words_do_not() {
        let known = ["agent", "commands", "delay", "max_delay", "idle"];
        for (word, meant) in [
            ("agnet", Some("agent")),
            ("command", Some("commands")),
            ("max-delay", Some("max_delay")),
            ("maxDelay", Some("max_delay")),
            ("Delay", Some("delay")),
            ("idel", Some("idle")),
            ("description", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"agent".repeat(100), known), None);
    }

    #[test]
    fn a_typo_is_at_most_two_edits_away_and_fewer_in_short_words() {
        let known = ["idle", "budget", "done_when", "args", "max_iterations"];
        for (word, meant) in [
            ("bugdet", Some("budget")),
            ("done_wen", Some("done_when")),
            ("max-iteration", Some("max_iterations")),
            ("max_iterat", None),
            ("title", None),
            ("tags", None),
            ("description", None),
        ] {
            assert_eq!(typo_of(word, known), meant, "{word}");
        }
    }

    #[test]
    fn distance_counts_edits() {
        let d = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(
            (d("", "abc"), d("abc", ""), d("abc", "abc"), d("abc", "acb"), d("abc", "abxc")),
            (3, 3, 0, 1, 1)
        );
    }
}
