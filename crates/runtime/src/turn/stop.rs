//! Finds stop texts in a stream, never letting out the beginning of one.

/// Scans pieces of text for stop texts.
#[derive(Debug)]
pub(super) struct StopScanner {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop text.
    held: String,
}

impl StopScanner {
    /// Empty stop texts are ignored: they would end every generation at once.
    pub(super) fn new(stops: &[String]) -> StopScanner {
        let stops = stops
            .iter()
            .filter(|stop| !stop.is_empty())
            .cloned()
            .collect();
        StopScanner {
            stops,
            held: String::new(),
        }
    }

    /// Adds a piece. Returns the text that is safe to show, and the complete stop text, if there is one. Of several
    /// it is the first, and the longest of those that begin there.
    pub(super) fn push(&mut self, piece: &str) -> (String, Option<String>) {
        self.held.push_str(piece);
        let found = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop))
            .min();
        if let Some(at) = found {
            let behind = &self.held[at..];
            let begun = self.stops.iter().filter(|stop| behind.starts_with(*stop));
            let stop = begun.max_by_key(|stop| stop.len()).cloned();
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), stop);
        }
        let keep = self
            .stops
            .iter()
            .map(|stop| overlap(&self.held, stop))
            .max()
            .unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), None)
    }

    /// The text held back, which turned out to be plain text.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest end of `text` that is a proper beginning of `stop`.
pub(super) fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len().saturating_sub(1));
    let fits = |n: &usize| stop.is_char_boundary(*n) && text.ends_with(&stop[..*n]);
    (1..=longest).rev().find(fits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut scanner = StopScanner::new(&stops);
        let mut out = String::new();
        for piece in pieces {
            let (text, stopped) = scanner.push(piece);
            out.push_str(&text);
            if stopped.is_some() {
                return (out, true);
            }
        }
        out.push_str(&scanner.finish());
        (out, false)
    }

    #[test]
    fn a_stop_text_split_over_pieces_is_found_and_not_shown() {
        assert_eq!(
            feed(&["END"], &["say E", "N", "D now"]),
            ("say ".into(), true)
        );
        assert_eq!(
            feed(&["END"], &["say E", "N", "x"]),
            ("say ENx".into(), false)
        );
        assert_eq!(
            feed(&["\n\n", "Q:"], &["a\n", "Q", ":"]),
            ("a\n".into(), true)
        );
    }

    #[test]
    fn the_first_of_several_wins_and_empty_ones_are_ignored() {
        assert_eq!(feed(&["c", "b", ""], &["abc"]), ("a".into(), true));
        assert_eq!(feed(&[""], &["abc"]), ("abc".into(), false));
    }

    #[test]
    fn the_stop_text_is_told() {
        for (stops, text, stop) in [
            (["b", "bc"], "abcd", "bc"),
            (["c", "bcd"], "abcd", "bcd"),
            (["bcx", "c"], "abcd", "c"),
        ] {
            let mut scanner = StopScanner::new(&stops.map(String::from));
            assert_eq!(scanner.push(text).1.as_deref(), Some(stop), "{stops:?}");
        }
    }

    #[test]
    fn characters_are_never_cut() {
        assert_eq!(feed(&["éé!"], &["aé", "é", "?"]), ("aéé?".into(), false));
        assert_eq!(feed(&["é"], &["aé"]), ("a".into(), true));
    }
}
