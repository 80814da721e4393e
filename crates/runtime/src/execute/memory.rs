//! Ops that read a sequence's memory, by their definition: one token after the other.

use super::ops::Ops;
use super::recurrent::{has_state_kernel, state_run};
use crate::kv::{CacheParts, LayerCache, PAGE_TOKENS, StateSlab};
use crate::sequences::SeqId;
use millrace_graph::{
    AllTokensShape, InputRows, Keys, KvShape, Node, SequenceMemory, SequenceSpan, StateShape,
    Tokens,
};
use millrace_kernels::{self as kernels, KvRun, KvSide, kv_read};

/// The memory of a sequence, with room for the tokens to be computed.
pub(crate) struct Past<'a> {
    layers: &'a mut [LayerCache],
    states: &'a mut StateSlab,
    /// By layer: pages, and the position of the first.
    tables: crate::kv::PageTables<'a>,
    seq: SeqId,
}

impl<'a> Past<'a> {
    /// The past of that sequence.
    pub(crate) fn of(cache: &'a mut CacheParts<'_>, seq: SeqId) -> Past<'a> {
        Past {
            layers: &mut *cache.layers,
            states: &mut *cache.states,
            tables: cache.tables,
            seq,
        }
    }
}

impl Ops<'_> {
    /// An op with memory over a span of tokens; `out` has all rows. An op that shares a cache needs only the queries
    /// as input.
    pub(crate) fn over_memory(
        &self,
        node: &Node,
        (tokens, span): (Tokens<'_>, SequenceSpan),
        inputs: &[&[f32]],
        past: Past<'_>,
        out: &mut [f32],
    ) {
        match node.op.memory() {
            SequenceMemory::None => self.by_definition(node, tokens, inputs, out),
            SequenceMemory::KvCache(kv)
            | SequenceMemory::SharedKv(kv)
            | SequenceMemory::TargetKv(kv) => {
                self.over_cache(node, kv, (tokens, span), inputs, past, out)
            }
            SequenceMemory::AllTokens(all) => self.over_all(node, all, (tokens, span), inputs, out),
            SequenceMemory::State(state) => {
                self.over_state(node, state, (tokens, span), inputs, past, out)
            }
        }
    }

    fn over_cache(
        &self,
        node: &Node,
        kv: KvShape,
        (tokens, span): (Tokens<'_>, SequenceSpan),
        inputs: &[&[f32]],
        past: Past<'_>,
        out: &mut [f32],
    ) {
        let layer = &mut past.layers[kv.layer];
        let (pages, pages_first_pos) = past.tables.pages(past.seq, kv.layer);
        let run = KvRun {
            rows: span.rows.clone(),
            first_pos: span.first_pos,
            pages,
            pages_first_pos,
        };
        let layout = layer.layout;
        // A cache that is shared has the tokens already.
        if node.op.memory() == SequenceMemory::KvCache(kv) {
            let (k, v) = (inputs[1], inputs[2]);
            kernels::kv_append(self.cpu, &layout, k, v, &mut layer.k, &mut layer.v, &[run]);
        }
        let first = kv.seen(span.first_pos).start;
        let end = span.first_pos + span.rows.len();
        let read = |side, slab: &[u8]| {
            let mut rows = vec![0.0; (end - first) * kv.width()];
            for (position, row) in (first..end).zip(rows.chunks_exact_mut(kv.width())) {
                for (head, row) in row.chunks_exact_mut(kv.head_dim).enumerate() {
                    let table = (pages, pages_first_pos);
                    kv_read(&layout, side, slab, table, (head, position), row);
                }
            }
            rows
        };
        let (k, v) = (read(KvSide::K, &layer.k), read(KvSide::V, &layer.v));
        let keys = (first, Keys { k: &k, v: &v });
        self.executor()
            .over_keys(node, (tokens, &span), inputs, keys, out);
    }

    /// Every token sees the other tokens of its span.
    fn over_all(
        &self,
        node: &Node,
        all: AllTokensShape,
        (tokens, span): (Tokens<'_>, SequenceSpan),
        inputs: &[&[f32]],
        out: &mut [f32],
    ) {
        let of_span = span.rows.start * all.width..span.rows.end * all.width;
        let keys = Keys {
            k: &inputs[1][of_span.clone()],
            v: &inputs[2][of_span],
        };
        let keys = (span.first_pos, keys);
        self.executor()
            .over_keys(node, (tokens, &span), inputs, keys, out);
    }

    /// The state after the last token of a page stays in that page's slot; the next page begins with a copy.
    fn over_state(
        &self,
        node: &Node,
        state: StateShape,
        (tokens, span): (Tokens<'_>, SequenceSpan),
        inputs: &[&[f32]],
        past: Past<'_>,
        out: &mut [f32],
    ) {
        if has_state_kernel(&node.op) {
            let run = state_run(past.tables, past.seq, (span.rows, span.first_pos));
            // A device's rows may be padded.
            let n_rows = tokens.positions.len();
            let rows = node.inputs.iter().zip(inputs);
            let rows = rows.map(|(value, rows)| &rows[..n_rows * self.graph().width(*value)]);
            let inputs: InputRows<'_, f32> = rows.collect();
            return self.by_state_kernel(&node.op, &inputs, past.states, &[run], out);
        }
        let width = out.len() / tokens.positions.len().max(1);
        let (pages, first_page) = past.tables.state_pages(past.seq);
        for (position, index) in (span.first_pos..).zip(span.rows) {
            let at = position / PAGE_TOKENS - first_page;
            if position % PAGE_TOKENS == 0 {
                let before = (position > 0).then(|| pages[at - 1]);
                past.states.begin(state, before, pages[at]);
            }
            let state = past.states.state_mut(state, pages[at]);
            let out = &mut out[index * width..][..width];
            self.executor()
                .row(node, (tokens, index), inputs, Keys::default(), state, out);
        }
    }
}
