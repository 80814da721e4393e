//! Attention of a chunk over the pages of its sequences.

use super::chunk::{Chunk, PassBuffers, RunSpan};
use super::plan::Register;
use crate::kv::{LayerCache, PageTables};
use millrace_graph::Attention;
use millrace_kernels::{self as kernels, AttentionInput, AttentionScratch, Cpu, KvRun};

pub(super) struct AttendArgs<'a> {
    pub(super) attention: &'a Attention,
    pub(super) registers: [Register; 3],
    pub(super) out: Register,
    /// Whether keys and values go into the cache first; one that is shared has them already.
    pub(super) appends: bool,
    /// A sink of each head.
    pub(super) sinks: Option<&'a [f32]>,
}

/// Appends the chunk's keys and values where the cache is its own, and attends.
pub(super) fn attend(
    cpu: &Cpu,
    buffers: &mut PassBuffers,
    (scratch, memory): (&mut AttentionScratch, &mut Vec<KvRun<'static>>),
    layer: &mut LayerCache,
    tables: PageTables<'_>,
    chunk: &Chunk,
    args: AttendArgs<'_>,
) {
    let AttendArgs {
        attention,
        registers: [q, k, v],
        out,
        appends,
        sinks,
    } = args;
    let m = chunk.tokens.len();
    let run = |span: &RunSpan| {
        let (pages, pages_first_pos) = tables.pages(span.seq, attention.layer);
        KvRun {
            rows: span.rows.clone(),
            first_pos: span.first_pos,
            pages,
            pages_first_pos,
        }
    };
    let mut runs = recycle(std::mem::take(memory));
    runs.extend(chunk.spans.iter().map(run));
    if appends {
        let (k, v) = (buffers.rows(k, m), buffers.rows(v, m));
        kernels::kv_append(cpu, &layer.layout, k, v, &mut layer.k, &mut layer.v, &runs);
    }
    let shape = kernels::AttentionShape {
        n_heads: attention.n_heads,
        n_kv_heads: attention.n_kv_heads,
        head_dim: attention.head_dim,
        scale: attention.scale,
        window: attention.window,
        chunked: attention.chunked,
        softcap: attention.softcap,
    };
    buffers.write(out, m, |buffers, out| {
        let q = buffers.rows(q, m);
        let input = AttentionInput {
            q,
            k_pages: &layer.k,
            v_pages: &layer.v,
            runs: &runs,
            blocks: chunk.blocks(attention.window),
            sinks,
            slopes: attention.slopes.as_deref(),
        };
        kernels::attention(cpu, &shape, &layer.layout, &input, scratch, out);
    });
    *memory = recycle(runs);
}

/// Reuses the memory of a list of runs for runs of another lifetime (`To` is `Run` except for that). Collecting from a vector's own
/// iterator reuses its memory, though the library does not promise it; `tests/allocation.rs` watches.
pub(super) fn recycle<Run, To>(mut runs: Vec<Run>) -> Vec<To> {
    runs.clear();
    runs.into_iter()
        .map(|_| unreachable!("the list is empty"))
        .collect()
}
