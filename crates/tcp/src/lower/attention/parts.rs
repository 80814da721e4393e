//! Softmax over keys in parts, where the scores of one query with all keys exceed data memory.
//!
//! Parts come in the order of their keys, twice. The first time, each part updates a running pair `(m, l)` of each
//! query with its largest score and its sum of exponentials:
//!
//! ```text
//! m' = max(m, max(s))
//! l' = l · exp(m - m') + Σ exp(s - m')
//! ```
//!
//! The second time, scores are computed again and become `exp(s - m) / l` with the last pair, as with a single part.
//! Then the weighted sums of parts are added (Milakov and Gimelshein, arXiv:1805.02867, algorithm 3). So probabilities
//! are rounded as everywhere else, and no sum of values is ever rescaled; keys are read twice.

use super::{AttentionSplit, Cache};
use crate::Element;
use crate::lower::LowerError;
use crate::lower::builder::{Builder, ax, fetch, list, padded, vector};
use crate::program::{ReduceOp, Stage, VectorOp, VectorOperand, View};

impl Builder<'_> {
    /// Attention of a tile of queries, part by part.
    pub(super) fn attend_parts(
        &mut self,
        spread_q: usize,
        cut: &AttentionSplit,
        cache: Cache,
        (sequence, query): (u64, u64),
    ) -> Result<usize, LowerError> {
        let bases = (0..cut.n_parts).map(|part| part * cut.part);
        let mut state = None;
        for base in bases.clone() {
            let scores = self.scores(spread_q, cut, cache, (sequence, query, base))?;
            state = Some(self.running(cut, scores, state)?);
            self.retire(scores);
        }
        let Some((largest, sums)) = state else {
            return Err(LowerError::Unsupported("attention to no keys".to_owned()));
        };
        let below = self.target.machine.vrf_bytes / 2;
        let mut total = None;
        for base in bases {
            let scores = self.scores(spread_q, cut, cache, (sequence, query, base))?;
            // These take the place of masks.
            let held = self.per_query(cut, "largest_v", largest, 0)?;
            let divisor = self.per_query(cut, "sums_v", sums, below)?;
            let weights = self.normalised(cut, scores, (held, divisor))?;
            self.retire(scores);
            total = Some(self.weighted_onto(cut, cache, (weights, total), (sequence, base))?);
            self.retire(weights);
        }
        self.retire(largest);
        self.retire(sums);
        self.narrowed_sum(cut, total)
    }

    /// Updates the running largest score and sum of exponentials with one more part.
    fn running(
        &mut self,
        cut: &AttentionSplit,
        scores: usize,
        before: Option<(usize, usize)>,
    ) -> Result<(usize, usize), LowerError> {
        let time = cut.by_query(&self.queries(cut));
        let own = self.over_keys(cut, scores, ReduceOp::Max, &time, &[])?;
        let Some((largest, sums)) = before else {
            let held = self.per_query(cut, "largest_v", own, 0)?;
            let sums = self.exponentials(cut, (scores, held), &time)?;
            return Ok((own, sums));
        };
        let both = vector(VectorOp::Max, VectorOperand::Second);
        let next = self.scalars(cut, "largest", (largest, Some(own)), &[both])?;
        let held = self.per_query(cut, "largest_v", next, 0)?;
        let own_sums = self.exponentials(cut, (scores, held), &time)?;
        let less = [
            vector(VectorOp::Sub, VectorOperand::Vrf(held)),
            vector(VectorOp::Exp, VectorOperand::None),
        ];
        let factor = self.scalars(cut, "rescale", (largest, None), &less)?;
        let below = self.target.machine.vrf_bytes / 2;
        let factor_v = self.per_query(cut, "rescale_v", factor, below)?;
        let added = [
            vector(VectorOp::Mul0, VectorOperand::Vrf(factor_v)),
            vector(VectorOp::Add, VectorOperand::Second),
        ];
        let total = self.scalars(cut, "sums", (sums, Some(own_sums)), &added)?;
        for tensor in [own, largest, own_sums, factor, sums] {
            self.retire(tensor);
        }
        Ok((next, total))
    }

    /// A value a query and head from one or two others.
    fn scalars(
        &mut self,
        cut: &AttentionSplit,
        stem: &str,
        (from, with): (usize, Option<usize>),
        stages: &[Stage],
    ) -> Result<usize, LowerError> {
        let queries = self.queries(cut);
        let heads = padded(ax("G"), self.target.dims.n_groups, 8);
        let layout = list([queries.clone(), heads.clone()]);
        let out = self.dm(stem, Element::F32, &cut.by_head(), layout)?;
        let mut all = Vec::from(fetch(View::of(from), None, queries, heads));
        if let Some(Stage::Fetch { with: second, .. }) = all.first_mut() {
            *second = with.map(View::of);
        }
        all.extend_from_slice(stages);
        all.push(Stage::Commit { to: View::of(out) });
        self.main(stem, all);
        Ok(out)
    }
}
