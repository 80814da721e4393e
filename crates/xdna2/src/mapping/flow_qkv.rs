//! A prompt's attention as in the Gemma 3 paper, FlowQKV (§3.1.3 and §3.2 of *Mapping Gemma3 onto an Edge Dataflow
//! Architecture*): chunks of queries side by side, each of which sweeps the keys separately.
//!
//! Slots, shapes and masks are those of [`prompt_attention`](super::prompt_attention), and so are the bits. A query
//! takes tiles of `tile_kv` keys in the order of the sequence, on any core.
//!
//! # On the array
//! `chunks` chunks of queries (a *super-chunk*) are treated at once, with `heads` key-value heads each. A column has the cores of
//! `col_heads` of these heads: of Gemma3-4B four heads of keys are two columns of two, two adjacent cores a head, and eight columns
//! have four chunks.
//!
//! ```text
//!         column 0        column 1        column 2 …
//! row 3   chunk 0, head 1  chunk 0, head 3  chunk 1, head 1
//! row 2   chunk 0, head 1  chunk 0, head 3  chunk 1, head 1
//! row 1   chunk 0, head 0  chunk 0, head 2  chunk 1, head 0
//! row 0   chunk 0, head 0  chunk 0, head 2  chunk 1, head 0
//! ```
//!
//! A column's shim brings keys on one channel and values on the other, `keys_l2` rows of one of its heads after those of the other;
//! its memory tile sends each head's to both its cores, keys to one of a core's two DMA channels and values to the other. Queries come
//! first on the channel of keys, the position on that of values: both cores see all queries of the chunk's heads, and each selects its own. A core
//! goes through equations 6 to 12 for every tile: scores, maximum, exponentials, correction, denominators, numerators; at the end
//! the division.
//!
//! So a chunk's keys are read for its own few tokens, from DDR, and all chunks of a super-chunk read them at the same
//! time. [`prompt_attention`](super::prompt_attention) reads a key once for a hundred tokens; here it is once for
//! `chunk_tokens` (16 of Gemma3-4B), and DDR bounds it. Mode fastflowlm predicts the paper's times from it.
//!
//! # One configuration
//! With a window and without, and without a mask (FlowQKV-SWA, FlowQKV-NCA), channels, stages and cores are the same
//! except for constants that cores read when they run. Walks of shims differ. With a window, super-chunks that have
//! left a pass's first keys behind are a separate launch, which sweeps the window. All chunks sweep to the end of their
//! super-chunk, and a core leaves out tiles that none of its tokens sees.

mod cores;
mod shape;

use super::cached_attention;
use super::parts::{
    Checks, at, constant, core, deep, end, i, int, launch, pattern, small, stage, stream,
};
use super::prompt_attention::{parse, reference, resident, work};
use super::{BuildError, LeastWork, Mapping, Shape, ShapeError, Tiling, Tolerance};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{
    Affine, Channel, GridOrder, IndexRange, Launch, Pattern, Place, Stage, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Program};
use shape::FlowQkvDims;
pub(crate) use shape::{fits, reach_unit};

/// The mapping.
pub(super) struct FlowQkv;

/// Its name.
pub(crate) const NAME: &str = "flow-qkv";

// Bundles of channels, in this order; then keys and values to the cores of each head of a column.
const K_IN: usize = 0;
const V_IN: usize = 1;
const Y: usize = 2;
const Y_OUT: usize = 3;
const TO_CORES: usize = 4;

/// Keys to the cores of a column's head with that number.
const fn keys_of(head: u64) -> usize {
    TO_CORES + 2 * head as usize
}

/// Values to them.
const fn values_of(head: u64) -> usize {
    keys_of(head) + 1
}

impl FlowQkvDims {
    fn channels(&self) -> Vec<Channel> {
        let bf16 = Element::Bf16;
        let (tk, d, y_rows) = (self.core.tile_kv, self.of.head_dim, self.core.y_rows);
        let cols = [self.cols()];
        let (shim, memory) = (|| Place::Shim(i(0, 1)), || Place::Memory(i(0, 1)));
        // Rows of one head: a cache has heads far apart, and then each is a task.
        let rows = [self.keys_l2, d];
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let each = [self.cols(), self.rows];
        let mut channels = vec![
            stream("k_in", &cols, bf16, &rows, shim(), memory()),
            stream("v_in", &cols, bf16, &rows, shim(), memory()),
            deep(stream("y", &each, bf16, &[y_rows, d], here(), memory()), 1),
            stream(
                "y_out",
                &cols,
                bf16,
                &[self.rows * y_rows, d],
                memory(),
                shim(),
            ),
        ];
        let blocks = [d / 8, tk / 8, 8, 8];
        for head in 0..self.col_heads {
            let of_head = IndexRange::Range {
                start: small(head * self.cores()),
                len: small(self.cores()),
            };
            for part in ["k", "v"] {
                let to = core(at(i(0, 1)), of_head.clone());
                let channel = stream(&format!("{part}{head}"), &cols, bf16, &blocks, memory(), to);
                channels.push(deep(channel, self.core.l1_depth));
            }
        }
        channels
    }

    /// Rows of keys or of values of a column's heads, sent tile by tile in 8 × 8 blocks.
    fn rows_stage(&self, name: &str, from: usize, to: impl Fn(u64) -> usize) -> Stage {
        let (tk, d) = (self.core.tile_kv, self.of.head_dim);
        let part = self.keys_l2 * d;
        let own = || vec![i(0, 1)];
        let whole = pattern(constant(0), &[(self.col_heads * part, 1)]);
        let tiles = [(self.keys_l2 / tk, tk * d), (d / 8, 8), (tk, d), (8, 1)];
        let of_head = |head: u64| end(to(head), own(), pattern(constant(head * part), &tiles));
        let block = [self.col_heads, self.keys_l2, d];
        let ends = [end(from, own(), whole), of_head(0)];
        let mut stage = stage(name, self.cols(), i(0, 1), Element::Bf16, &block, ends);
        stage.drains.extend((1..self.col_heads).map(of_head));
        stage.copies = 2;
        stage
    }

    /// Results of a column's cores, one after the other.
    fn results_stage(&self) -> Stage {
        let part = self.core.y_rows * self.of.head_dim;
        let of_row = pattern(Affine::of(Var::Each, int(part)), &[(part, 1)]);
        let index = vec![i(0, 1), Affine::of(Var::Each, 1)];
        let whole = pattern(constant(0), &[(self.rows * part, 1)]);
        let ends = [end(Y, index, of_row), end(Y_OUT, vec![i(0, 1)], whole)];
        let block = [self.rows * self.core.y_rows, self.of.head_dim];
        let mut stage = stage("y_l2", self.cols(), i(0, 1), Element::Bf16, &block, ends);
        stage.fills[0].each = small(self.rows);
        stage.copies = 2;
        stage
    }

    fn transfers(&self) -> Vec<Transfer> {
        let (d, group, token) = (self.of.head_dim, self.of.group(), self.of.token());
        // Offset of the iteration's first head of a column, with `rows` rows a head.
        let of_heads = |rows: u64| {
            let of_round = Affine::of(Var::Grid(1), int(self.heads * rows * d));
            of_round.plus(Var::Index(1), int(self.col_heads * rows * d))
        };
        // A task for every column: chunks, then heads of a chunk.
        let transfer = |arg: usize, channel: usize, pattern| Transfer {
            dims: vec![small(self.chunks), small(self.chunk_cols())],
            loops: Vec::new(),
            arg,
            channel,
            index: vec![i(0, self.chunk_cols()) + i(1, 1)],
            pattern,
        };
        let first = of_heads(group)
            .plus(self.of.token_tile(), int(self.iteration_tokens() * token))
            .plus(Var::Index(0), int(self.chunk_tokens() * token));
        let first = first + self.of.skipped();
        // As many queries as a block has keys, of one head after the other.
        let tokens = self.keys_l2 / group;
        let queries = [
            (self.query_blocks(), tokens * token),
            (self.col_heads, group * d),
            (tokens, token),
            (group * d, 1),
        ];
        let positions = [(self.position_repeats(), 0), (self.core.at_elements(), 1)];
        let keys = |arg: usize, channel: usize| {
            let row = self.of.first_row(self.iteration_tokens()) * int(self.of.key_stride());
            let row = of_heads(self.of.head_rows()) + row;
            let (loops, pattern) = self.keys(row);
            Transfer {
                loops,
                ..transfer(arg, channel, pattern)
            }
        };
        // Parts of a core's result, a whole number of tokens each.
        let part = self.core.y_rows / group;
        let results = [
            (self.col_heads, group * d),
            (self.cores(), self.core.tile_tokens * token),
            (part, token),
            (group * d, 1),
        ];
        let result = first.clone().plus(Var::Loop(0), int(part * token));
        vec![
            transfer(0, K_IN, pattern(first, &queries)),
            transfer(3, V_IN, pattern(constant(0), &positions)),
            keys(1, K_IN),
            keys(2, V_IN),
            Transfer {
                loops: vec![constant(self.core.y_parts())],
                ..transfer(4, Y_OUT, pattern(result, &results))
            },
        ]
    }

    /// Tasks and walk over the keys of a column's heads in an iteration. In a pass's own keys heads are neighbours, and
    /// it is one walk. In a cache they are farther apart than a descriptor's stride reaches, so each block of a head is
    /// a task.
    fn keys(&self, first: Affine) -> (Vec<Affine>, Pattern) {
        let (d, row) = (int(self.of.head_dim), int(self.of.key_stride()));
        let rows = int(self.keys_l2);
        let blocks = self.band(self.keys_l2);
        if self.of.own {
            let mut dims = vec![(blocks, rows * row)];
            if self.col_heads > 1 {
                dims.push((constant(self.col_heads), d));
            }
            dims.extend([(Affine::new(rows), row), (Affine::new(d), 1)]);
            let offset = first;
            return (Vec::new(), Pattern { offset, dims });
        }
        if self.col_heads == 1 {
            let dims = vec![(self.band(1) * d, 1)];
            let offset = first;
            return (Vec::new(), Pattern { offset, dims });
        }
        let offset = first
            .plus(Var::Loop(0), rows * d)
            .plus(Var::Loop(1), int(self.of.head_rows()) * d);
        let dims = vec![(Affine::new(rows * d), 1)];
        (
            vec![blocks, constant(self.col_heads)],
            Pattern { offset, dims },
        )
    }

    /// A launch for each part of the pass, on one configuration.
    fn launches(&self) -> Vec<Launch> {
        let parts = self.of.parts(self.iteration_tokens(), self.keys_l2);
        let parts = parts.into_iter().map(|of| FlowQkvDims { of, ..*self });
        let launches = parts.map(|part| part.launch());
        resident(launches.collect())
    }

    fn launch(&self) -> Launch {
        let grid = self.of.grid(self.iteration_tokens(), self.heads);
        Launch {
            channels: self.channels(),
            stages: vec![
                self.rows_stage("k_l2", K_IN, keys_of),
                self.rows_stage("v_l2", V_IN, values_of),
                self.results_stage(),
            ],
            transfers: self.transfers(),
            herds: vec![self.herd()],
            ..launch("attention", &[0, 1, 2, 3, 4], &grid, GridOrder::Streamed)
        }
    }
}

impl Mapping for FlowQkv {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "O = softmax(Q K^T / sqrt(d)) V of a prompt as the Gemma 3 paper lays it out, bf16; `NEWxKEYS HEADSq/KVHEADSkv dD [of MAX] [window W] [own|full|image]`"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        parse(text)
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        shape::default(shape, machine)
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        shape::all(shape, machine)
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let p = FlowQkvDims::new(shape, tiling);
        let checks = Checks { mapping: NAME };
        checks.bounded(shape, tiling)?;
        p.check(machine)?;
        let q = [p.of.n_queries, p.of.n_heads, p.of.head_dim];
        Ok(Program {
            name: NAME.replace('-', "_"),
            slots: cached_attention::slots(q, p.of.kv_shape(), p.core.at_elements()),
            launches: p.launches(),
        })
    }

    /// Inputs with a position from the seed. For one seed in two, a window's rows begin before the sequence.
    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let p = FlowQkvDims::new(shape, &shape::default(shape, &Machine::npu2()));
        let at = (reach_unit(p.core.tile_kv), p.core.at_elements());
        p.of.inputs(shape, at, seed)
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        vec![(4, reference(shape, tiling["tile_kv"], slots))]
    }

    fn keys_and_values(&self) -> &'static [usize] {
        &[1, 2]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        work(shape)
    }
}
