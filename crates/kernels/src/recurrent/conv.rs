//! Causal depthwise convolution.

use super::heads::STRIP_TOKENS;
use super::leaves::{ConvTaps, RecurrentKernels};
use super::{Before, LANES, MAX_TAPS, PageTokens, SharedSlots, StateRun, StateSlots};
use crate::cpu::Cpu;
use crate::elementwise::SERIAL_ELEMS;
use crate::pool::DisjointMut;
use std::ops::Range;

/// Inputs of a convolution, besides its state.
#[derive(Clone, Copy, Debug)]
pub struct ConvInput<'a> {
    /// Rows of channels.
    pub x: &'a [f32],
    /// `[n_channels, n_taps]`, the oldest token's first.
    pub weight: &'a [f32],
    /// `[n_channels]`.
    pub bias: Option<&'a [f32]>,
    /// Channels.
    pub n_channels: usize,
    /// Whether the sum goes through SiLU.
    pub silu: bool,
}

/// Blocks of channels that a thread processes at a time.
const CHUNK_BLOCKS: usize = 4;

/// For each channel the weighted sum of its last tokens, then SiLU if requested. A state holds the inputs of the
/// last `n_taps - 1` tokens, the oldest first.
///
/// # Panics
/// If lengths do not fit each other, there are fewer than 2 or more than [`MAX_TAPS`] taps, or a run's slots do
/// not cover its positions or lie outside.
pub fn causal_conv(
    cpu: &Cpu,
    input: ConvInput<'_>,
    slots: StateSlots<'_>,
    runs: &[StateRun<'_>],
    out: &mut [f32],
) {
    let n = input.n_channels;
    assert!(n > 0 && input.weight.len().is_multiple_of(n));
    let n_taps = input.weight.len() / n;
    assert!((2..=MAX_TAPS).contains(&n_taps), "{n_taps} taps");
    assert_eq!(input.x.len(), out.len(), "as many inputs as results");
    assert!(input.bias.is_none_or(|bias| bias.len() == n));
    let kernels = RecurrentKernels::for_level(cpu.level());
    let slots = SharedSlots::new(slots, (n_taps - 1) * n);
    let n_elems = out.len();
    let out = DisjointMut::new(out);
    let n_blocks = n.div_ceil(LANES);
    let chunk = |chunk: usize| {
        let first = chunk * CHUNK_BLOCKS;
        for block in first..n_blocks.min(first + CHUNK_BLOCKS) {
            ChannelBlock {
                input,
                n_taps,
                slots: &slots,
                first: block * LANES,
                width: LANES.min(n - block * LANES),
            }
            .run(kernels, runs, &out);
        }
    };
    let n_chunks = n_blocks.div_ceil(CHUNK_BLOCKS);
    match n_elems < SERIAL_ELEMS {
        true => (0..n_chunks).for_each(chunk),
        false => cpu.pool().run(n_chunks, &chunk),
    }
}

/// Neighbouring channels.
struct ChannelBlock<'a> {
    input: ConvInput<'a>,
    n_taps: usize,
    slots: &'a SharedSlots<'a>,
    first: usize,
    width: usize,
}

impl ChannelBlock<'_> {
    fn run(&self, kernels: &RecurrentKernels, runs: &[StateRun<'_>], out: &DisjointMut<'_, f32>) {
        let taps = self.taps();
        for run in runs {
            let mut window = [[0.0; LANES]; MAX_TAPS];
            for page in self.slots.pages(run, self.first) {
                self.load(&page, &mut window);
                let mut first = page.rows.start;
                while first < page.rows.end {
                    let rows = first..page.rows.end.min(first + STRIP_TOKENS);
                    first = rows.end;
                    self.compute(kernels, &taps, rows, &mut window, out);
                }
                self.store(&page, &window);
            }
        }
    }

    /// Sums of tokens, and the activation of all of them at once: a single one would mostly wait on latency.
    fn compute(
        &self,
        kernels: &RecurrentKernels,
        taps: &ConvTaps,
        rows: Range<usize>,
        window: &mut [[f32; LANES]; MAX_TAPS],
        out: &DisjointMut<'_, f32>,
    ) {
        let n = self.input.n_channels;
        let mut sums = [[0.0; LANES]; STRIP_TOKENS];
        let sums = &mut sums[..rows.len()];
        for (row, sums) in rows.clone().zip(sums.iter_mut()) {
            let newest = &mut window[self.n_taps - 1];
            let x = &self.input.x[row * n + self.first..][..self.width];
            newest[..self.width].copy_from_slice(x);
            kernels.conv(taps, window, sums);
        }
        if self.input.silu {
            kernels.silu(sums.as_flattened_mut());
        }
        for (row, sums) in rows.zip(sums) {
            let at = row * n + self.first;
            // SAFETY: the columns of a block belong to it alone, and it runs once.
            let out = unsafe { out.slice(at..at + self.width) };
            out.copy_from_slice(&sums[..self.width]);
        }
    }

    fn taps(&self) -> ConvTaps {
        let mut taps = ConvTaps {
            weight: [[0.0; LANES]; MAX_TAPS],
            bias: [0.0; LANES],
            n_taps: self.n_taps,
        };
        let channels = self.first..self.first + self.width;
        for (lane, channel) in channels.enumerate() {
            let weight = &self.input.weight[channel * self.n_taps..][..self.n_taps];
            for (tap, weight) in taps.weight.iter_mut().zip(weight) {
                tap[lane] = *weight;
            }
            taps.bias[lane] = self.input.bias.map_or(0.0, |bias| bias[channel]);
        }
        taps
    }

    fn load(&self, page: &PageTokens, window: &mut [[f32; LANES]; MAX_TAPS]) {
        let from = match page.before {
            Before::Same => page.slot,
            Before::Slot(from) => from,
            Before::Zeros => return *window = [[0.0; LANES]; MAX_TAPS],
        };
        for (i, lanes) in window[..self.n_taps - 1].iter_mut().enumerate() {
            let at = from + i * self.input.n_channels;
            // SAFETY: the channels of a block belong to it alone, in every slot, and it runs once.
            let row = unsafe { self.slots.data.slice(at..at + self.width) };
            lanes[..self.width].copy_from_slice(row);
        }
    }

    fn store(&self, page: &PageTokens, window: &[[f32; LANES]; MAX_TAPS]) {
        for (i, lanes) in window[..self.n_taps - 1].iter().enumerate() {
            let at = page.slot + i * self.input.n_channels;
            // SAFETY: as in `load`.
            let row = unsafe { self.slots.data.slice(at..at + self.width) };
            row.copy_from_slice(&lanes[..self.width]);
        }
    }
}
