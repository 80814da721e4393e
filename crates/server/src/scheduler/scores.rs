//! Log-probabilities of a prompt's own tokens.

use millrace_runtime::sampling::{all_finite, likeliest, log_softmax};

/// A token of a prompt, with its score given the tokens before it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptToken {
    /// The token.
    pub token: u32,
    /// `None` for the first token, which has no predecessor, and for an image's rows.
    pub score: Option<PromptScore>,
}

/// A model's score of a token within a text.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptScore {
    /// Its natural log-probability.
    pub logprob: f64,
    /// 1 for the likeliest token, and so on; tokens with equal logits share the first rank.
    pub rank: usize,
    /// The likeliest tokens, likeliest first.
    pub top: Vec<(u32, f64)>,
}

impl PromptScore {
    /// The score of a token, by the row of logits of the token before it. `None` for an id beyond the row.
    fn of(row: &[f32], token: u32, n_top: usize) -> Option<PromptScore> {
        let own = *row.get(token as usize)?;
        let logprob_of = log_softmax(row);
        Some(PromptScore {
            logprob: logprob_of(token),
            rank: 1 + row.iter().filter(|logit| **logit > own).count(),
            top: (likeliest(row, n_top).into_iter())
                .map(|id| (id, logprob_of(id)))
                .collect(),
        })
    }
}

/// Progress of scoring a prompt.
pub(super) struct PromptScores {
    n_top: usize,
    so_far: Vec<PromptToken>,
}

impl PromptScores {
    /// With this many of the likeliest tokens for each.
    pub(super) fn new(n_top: usize) -> PromptScores {
        PromptScores {
            n_top,
            so_far: Vec::new(),
        }
    }

    /// Restarts: the prompt is computed again from its first token.
    pub(super) fn restart(&mut self) {
        self.so_far.clear();
    }

    /// The rows that a pass must score: the tokens after each of `n_rows` rows, from token `first` of the prompt on.
    pub(super) fn wanted(&self, prompt: &[u32], first: usize, n_rows: usize) -> ScoredRows {
        let behind = |row: usize| prompt.get(first + row + 1).copied();
        ScoredRows {
            n_top: self.n_top,
            targets: (0..n_rows).map(behind).collect(),
            scored: Vec::new(),
            not_finite: None,
        }
    }

    /// Adds the scores of a pass.
    pub(super) fn push(&mut self, prompt: &[u32], rows: ScoredRows) {
        if self.so_far.is_empty() {
            let first = prompt.iter().take(1);
            self.so_far.extend(first.map(|token| PromptToken {
                token: *token,
                score: None,
            }));
        }
        self.so_far.extend(rows.scored);
    }

    /// The scores of all tokens that were read.
    pub(super) fn finish(self) -> Vec<PromptToken> {
        self.so_far
    }
}

/// Rows of one item of a pass that are scored as they arrive, so that no pass holds the logits of a whole prompt.
pub(super) struct ScoredRows {
    n_top: usize,
    /// For each row: the token that follows it in the prompt.
    targets: Vec<Option<u32>>,
    scored: Vec<PromptToken>,
    /// First row with a logit that is not a number, or infinite.
    not_finite: Option<usize>,
}

impl ScoredRows {
    /// The first row of the item whose scores are no numbers.
    pub(super) fn not_finite(&self) -> Option<usize> {
        self.not_finite
    }

    /// Scores rows of `vocab_size` logits from row `first` on. Returns the item's last row if it is among them: the
    /// one to draw from.
    pub(super) fn take<'r>(
        &mut self,
        first: usize,
        rows: &'r [f32],
        vocab_size: usize,
    ) -> Option<&'r [f32]> {
        let mut last = None;
        for (i, row) in rows.chunks_exact(vocab_size.max(1)).enumerate() {
            let at = first + i;
            if let Some(token) = self.targets.get(at).copied().flatten() {
                let score = PromptScore::of(row, token, self.n_top);
                if !all_finite(row) {
                    self.not_finite.get_or_insert(at);
                }
                self.scored.push(PromptToken { token, score });
            }
            if at + 1 == self.targets.len() {
                last = Some(row);
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row within a prompt may be no numbers where the last one is.
    #[test]
    fn a_row_without_finite_scores_is_named() {
        for wrong in [f32::NAN, f32::INFINITY] {
            let mut rows = [0.0_f32, 2.0, 0.0].repeat(4);
            let mut wanted = PromptScores::new(1).wanted(&[2, 0, 1, 0], 0, 4);
            wanted.take(0, &rows[..3], 3);
            assert_eq!(wanted.not_finite(), None);
            rows[3] = wrong;
            wanted.take(1, &rows[3..], 3);
            assert_eq!(wanted.not_finite(), Some(1), "{wrong}");
        }
    }

    #[test]
    fn rows_score_the_tokens_behind_them_however_they_are_cut() {
        let prompt = [2, 0, 1, 9, 0];
        // The likeliest of three tokens is 1; 2 and 0 are tied after it.
        let row = [0.0_f32, 2.0, 0.0];
        let rows = row.repeat(prompt.len());
        let score = |cuts: &[usize]| {
            let mut scores = PromptScores::new(2);
            let mut first = 0;
            for n in cuts {
                let mut wanted = scores.wanted(&prompt, first, *n);
                // A pass delivers rows in pieces.
                let mut last = None;
                for (i, piece) in rows[..n * 3].chunks(6).enumerate() {
                    last = wanted.take(2 * i, piece, 3).or(last);
                }
                assert_eq!(last, Some(&row[..]));
                scores.push(&prompt, wanted);
                first += n;
            }
            scores.finish()
        };
        let whole = score(&[5]);
        assert_eq!(whole, score(&[2, 1, 2]));
        assert_eq!(whole, score(&[1, 4]));
        let tokens: Vec<u32> = whole.iter().map(|token| token.token).collect();
        assert_eq!(tokens, prompt);
        assert_eq!(whole[0].score, None);
        // A row of an image is not in the vocabulary.
        assert_eq!(whole[3].score, None);
        let sum = (2.0 + 2.0_f64.exp()).ln();
        let expected = [(1, -sum, 2), (2, 2.0 - sum, 1), (4, -sum, 2)];
        for (at, logprob, rank) in expected {
            let score = whole[at].score.clone().unwrap();
            assert!((score.logprob - logprob).abs() < 1e-6, "{at}");
            assert_eq!(score.rank, rank, "{at}");
            let top: Vec<u32> = score.top.iter().map(|(id, _)| *id).collect();
            assert_eq!(top, [1, 0], "{at}");
        }
    }
}
