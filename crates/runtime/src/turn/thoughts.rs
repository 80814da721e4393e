//! Separates a model's thoughts from its answer, while it writes.

use super::stop::overlap;

/// How a model writes thoughts, and how long it may think.
///
/// Thoughts are between two marks. They come before the answer; models that write in channels may think again within it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// The text that begins a thought, without white space around it. Not empty.
    pub open: String,
    /// The text that ends it. Not empty.
    pub close: String,
    /// Where the prompt leaves the model.
    pub start: Phase,
    /// A thought may begin anywhere; otherwise only where the answer would begin.
    pub is_anywhere: bool,
    /// Tokens of thoughts at most, those of the two texts among them. Then [`closing`](Thinking::closing) is written for the
    /// model, and it goes on from there.
    pub budget: Option<usize>,
    /// The tokens that end a thought.
    pub closing: Vec<u32>,
}

impl Thinking {
    /// The parts of a complete text, as a turn would return them; consecutive parts may be of the same kind.
    pub fn part(&self, text: &str) -> Vec<TurnPiece> {
        let mut scanner = ThoughtScanner::new(self);
        let mut pieces = Vec::new();
        scanner.push(text, &mut pieces);
        scanner.finish(&mut pieces);
        pieces
    }
}

/// A new piece of a model's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnPiece {
    /// Part of the answer.
    Answer(String),
    /// Part of a thought, without the marks around it and the white space beside them.
    Thought(String),
}

/// Where in an answer a model is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is written yet: thoughts or the answer may follow.
    #[default]
    Begin,
    /// Within a thought.
    Thought,
    /// Within the answer.
    Answer,
}

/// Scans pieces of text for thoughts.
#[derive(Debug)]
pub(super) struct ThoughtScanner {
    open: String,
    close: String,
    is_anywhere: bool,
    phase: Phase,
    /// Text that may be the beginning of a mark, or white space before one.
    held: String,
    /// White space that comes next belongs to the mark before it.
    skips_space: bool,
}

impl ThoughtScanner {
    pub(super) fn new(thinking: &Thinking) -> ThoughtScanner {
        ThoughtScanner {
            open: thinking.open.clone(),
            close: thinking.close.clone(),
            is_anywhere: thinking.is_anywhere,
            phase: thinking.start,
            held: String::new(),
            skips_space: thinking.start == Phase::Thought,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Adds text. Pieces that are certain go to `out`.
    pub(super) fn push(&mut self, text: &str, out: &mut Vec<TurnPiece>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    /// Returns the pieces that are certain in this phase; true if another phase begins.
    fn step(&mut self, out: &mut Vec<TurnPiece>) -> bool {
        if self.skips_space {
            let n_space = self.held.len() - self.held.trim_start().len();
            self.held.drain(..n_space);
            self.skips_space = self.held.is_empty();
        }
        match self.phase {
            Phase::Begin => self.begin(),
            Phase::Thought => {
                let Some(at) = self.held.find(&self.close) else {
                    let kept = self.held.len() - overlap(&self.held, &self.close);
                    // White space before the mark belongs to it.
                    let kept = self.held[..kept].trim_end().len();
                    self.tell(kept, out);
                    return false;
                };
                self.tell(self.held[..at].trim_end().len(), out);
                let end = self.held.find(&self.close).unwrap_or(0) + self.close.len();
                self.enter(end, Phase::Answer)
            }
            Phase::Answer => {
                if !self.is_anywhere {
                    self.tell(self.held.len(), out);
                    return false;
                }
                let Some(at) = self.held.find(&self.open) else {
                    let kept = self.held.len() - overlap(&self.held, &self.open);
                    self.tell(kept, out);
                    return false;
                };
                self.tell(at, out);
                self.enter(self.open.len(), Phase::Thought)
            }
        }
    }

    fn begin(&mut self) -> bool {
        let begun = self.held.trim_start();
        if begun.starts_with(&self.open) {
            let n_space = self.held.len() - begun.len();
            return self.enter(n_space + self.open.len(), Phase::Thought);
        }
        // Models that need not think say so with the end of a thought.
        if begun.starts_with(&self.close) {
            let n_space = self.held.len() - begun.len();
            return self.enter(n_space + self.close.len(), Phase::Answer);
        }
        if self.open.starts_with(begun) || self.close.starts_with(begun) {
            return false;
        }
        self.phase = Phase::Answer;
        true
    }

    fn enter(&mut self, n_bytes: usize, phase: Phase) -> bool {
        self.held.drain(..n_bytes);
        self.phase = phase;
        self.skips_space = true;
        true
    }

    fn tell(&mut self, n_bytes: usize, out: &mut Vec<TurnPiece>) {
        if n_bytes == 0 {
            return;
        }
        let text: String = self.held.drain(..n_bytes).collect();
        out.push(match self.phase {
            Phase::Thought => TurnPiece::Thought(text),
            _ => TurnPiece::Answer(text),
        });
    }

    /// The text has ended: text held back is not a mark.
    pub(super) fn finish(&mut self, out: &mut Vec<TurnPiece>) {
        let kept = match self.phase {
            Phase::Thought => self.held.trim_end().len(),
            _ => self.held.len(),
        };
        self.tell(kept, out);
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tags(is_open: bool, is_anywhere: bool) -> Thinking {
        Thinking {
            open: "<think>".to_owned(),
            close: "</think>".to_owned(),
            start: match is_open {
                true => Phase::Thought,
                false => Phase::Begin,
            },
            is_anywhere,
            ..Thinking::default()
        }
    }

    /// Thoughts in brackets, with consecutive pieces joined.
    fn scan<'a>(thinking: &Thinking, pieces: impl IntoIterator<Item = &'a str>) -> String {
        let mut scanner = ThoughtScanner::new(thinking);
        let mut found = Vec::new();
        for piece in pieces {
            scanner.push(piece, &mut found);
        }
        scanner.finish(&mut found);
        let (mut out, mut was_thought) = (String::new(), false);
        for piece in found {
            let (text, is_thought) = match &piece {
                TurnPiece::Answer(text) => (text, false),
                TurnPiece::Thought(text) => (text, true),
            };
            if is_thought != was_thought {
                out.push(if is_thought { '[' } else { ']' });
            }
            was_thought = is_thought;
            out += text;
        }
        out
    }

    #[test]
    fn thoughts_stand_apart_from_the_answer() {
        for (is_open, is_anywhere, text, found) in [
            (false, false, "<think>\nhm\n</think>\n\nYes", "[hm]Yes"),
            (false, false, " \n<think>hm</think>Yes", "[hm]Yes"),
            (true, false, "\nhm, <b>\n\n</think>\n\nYes", "[hm, <b>]Yes"),
            (true, false, "hm", "[hm"),
            (true, false, "hm</thin", "[hm</thin"),
            (true, false, "</think>Yes", "Yes"),
            (
                true,
                false,
                "a <think> b</think>c</think>",
                "[a <think> b]c</think>",
            ),
            (false, false, "Yes", "Yes"),
            (false, false, "  Yes ", "  Yes "),
            (false, false, "<thin", "<thin"),
            (false, false, "</think>Yes", "Yes"),
            (false, false, "\n</think>\n\nYes</think>", "Yes</think>"),
            (false, false, "</thin", "</thin"),
            (
                false,
                false,
                "Write <think>x</think>.",
                "Write <think>x</think>.",
            ),
            (false, true, "a<think>b</think> c<think>d", "a[b]c[d"),
            (false, true, "a<th", "a<th"),
            (false, false, "<think></think>", ""),
            (false, false, "", ""),
        ] {
            let thinking = tags(is_open, is_anywhere);
            assert_eq!(scan(&thinking, [text]), found, "{text:?}");
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let cut = chars.iter().map(String::as_str);
            assert_eq!(scan(&thinking, cut), found, "{text:?} by characters");
        }
        let answering = Thinking {
            start: Phase::Answer,
            ..tags(false, false)
        };
        assert_eq!(scan(&answering, ["<think>x</think>"]), "<think>x</think>");
    }

    #[test]
    fn any_cut_gives_the_same_pieces() {
        let part = prop::sample::select(vec![
            "<think>", "</think>", "<th", "ink>", "</", "think", " ", "\n", "a", "é", "<", ">",
        ]);
        let parts = prop::collection::vec(part, 0..14);
        let cuts = prop::collection::vec(any::<bool>(), 120);
        proptest!(ProptestConfig::with_cases(2000), |(parts in parts, cuts in cuts, open: bool, anywhere: bool)| {
            let text = parts.concat();
            let thinking = tags(open, anywhere);
            let mut pieces = vec![String::new()];
            for (c, cut) in text.chars().zip(cuts.iter().cycle()) {
                if *cut {
                    pieces.push(String::new());
                }
                pieces.last_mut().unwrap().push(c);
            }
            let cut = scan(&thinking, pieces.iter().map(String::as_str));
            prop_assert_eq!(&cut, &scan(&thinking, [text.as_str()]));
            // Nothing but marks and white space is lost.
            let plain = |text: &str| text.replace(|c: char| !"aé".contains(c), "");
            prop_assert_eq!(plain(&cut), plain(&text));
        });
    }
}
