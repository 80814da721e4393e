//! Selective scan of Mamba: each channel has a vector whose elements decay at separate rates.

use super::heads::STRIP_TOKENS;
use super::leaves::{ChannelToken, RecurrentKernels};
use super::{LANES, MAX_KEY_DIM, SharedSlots, StateRun, StateSlots};
use crate::cpu::Cpu;
use crate::pool::DisjointMut;
use std::ops::Range;

/// Channels of a selective scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelScanShape {
    /// Channels.
    pub n_channels: usize,
    /// Elements of a key.
    pub d_state: usize,
}

/// Inputs of a selective scan of channels, besides its state.
#[derive(Clone, Copy, Debug)]
pub struct ChannelScanInput<'a> {
    /// Rows of `n_channels` values.
    pub x: &'a [f32],
    /// Rows of `n_channels` numbers, for the steps.
    pub dt: &'a [f32],
    /// Rows of `d_state` elements of keys.
    pub k: &'a [f32],
    /// Rows of `d_state` elements of queries.
    pub q: &'a [f32],
    /// `[n_channels, d_state]`: rates of decay, or logarithms of their negatives.
    pub rate: &'a [f32],
    /// Whether they are logarithms.
    pub rate_is_log: bool,
    /// `[n_channels]`: the share of the value that goes past the state.
    pub skip: &'a [f32],
}

impl ChannelScanShape {
    /// Elements of all channels' states: `[n_channels / 16 rounded up, d_state, 16]`.
    #[must_use]
    pub fn state_elems(&self) -> usize {
        self.n_channels.next_multiple_of(LANES) * self.d_state
    }
}

/// For each channel: every element of the state decays by its rate and the token's step. The token's value is added at
/// its key by the step, and the state is read at its query.
///
/// # Panics
/// If lengths do not fit each other or the shape, a key has more than [`MAX_KEY_DIM`] elements, or a run's slots do not
/// cover its positions or lie outside.
pub fn channel_scan(
    cpu: &Cpu,
    shape: &ChannelScanShape,
    input: ChannelScanInput<'_>,
    slots: StateSlots<'_>,
    runs: &[StateRun<'_>],
    out: &mut [f32],
) {
    let ChannelScanShape {
        n_channels,
        d_state,
    } = *shape;
    assert!((1..=MAX_KEY_DIM).contains(&d_state), "{shape:?}");
    assert!(n_channels > 0 && out.len().is_multiple_of(n_channels));
    let n_rows = out.len() / n_channels;
    assert!([input.x, input.dt].iter().all(|x| x.len() == out.len()));
    assert!(
        [input.k, input.q]
            .iter()
            .all(|x| x.len() == n_rows * d_state)
    );
    assert_eq!(input.rate.len(), n_channels * d_state);
    assert_eq!(input.skip.len(), n_channels);
    let kernels = RecurrentKernels::for_level(cpu.level());
    let slots = SharedSlots::new(slots, shape.state_elems());
    let out = DisjointMut::new(out);
    cpu.pool().run(n_channels.div_ceil(LANES), &|block| {
        let mut block = ChannelBlock::new(shape, input, block, kernels);
        let n_elems = d_state * LANES;
        for run in runs {
            let place = (block.first / LANES * n_elems, n_elems);
            // SAFETY: a block's part of every slot belongs to it alone, and it runs once.
            unsafe {
                slots.for_strips(run, place, STRIP_TOKENS, |rows, state| {
                    block.compute(rows, state, &out);
                });
            }
        }
    });
}

/// Neighbouring channels: as many as there are lanes, or the remaining ones.
struct ChannelBlock<'a> {
    n_channels: usize,
    d_state: usize,
    input: ChannelScanInput<'a>,
    /// The first channel.
    first: usize,
    /// How many there are.
    width: usize,
    /// `[d_state, LANES]`: rates of decay; where channels are missing, numbers that zeros fade by.
    rates: Vec<f32>,
    /// `[d_state, LANES]`: the elements' decay factors at a token.
    decays: Vec<f32>,
    kernels: &'a RecurrentKernels,
}

impl<'a> ChannelBlock<'a> {
    fn new(
        shape: &ChannelScanShape,
        input: ChannelScanInput<'a>,
        block: usize,
        kernels: &'a RecurrentKernels,
    ) -> ChannelBlock<'a> {
        let d_state = shape.d_state;
        let first = block * LANES;
        let width = LANES.min(shape.n_channels - first);
        let mut rates = vec![0.0; d_state * LANES];
        let rows = input.rate[first * d_state..].chunks_exact(d_state);
        for (lane, row) in rows.take(width).enumerate() {
            for (i, rate) in row.iter().enumerate() {
                rates[i * LANES + lane] = *rate;
            }
        }
        if input.rate_is_log {
            kernels.exp(&mut rates);
            rates.iter_mut().for_each(|rate| *rate = -*rate);
        }
        ChannelBlock {
            n_channels: shape.n_channels,
            d_state,
            input,
            first,
            width,
            decays: vec![0.0; rates.len()],
            rates,
            kernels,
        }
    }

    fn compute(&mut self, rows: Range<usize>, state: &mut [f32], out: &DisjointMut<'_, f32>) {
        let ChannelBlock { d_state, width, .. } = *self;
        let (n_channels, first) = (self.n_channels, self.first);
        let place = |row: usize| row * n_channels + first;
        let mut steps = [[0.0; LANES]; STRIP_TOKENS];
        for (steps, row) in steps.iter_mut().zip(rows.clone()) {
            steps[..width].copy_from_slice(&self.input.dt[place(row)..][..width]);
        }
        self.kernels
            .softplus(steps[..rows.len()].as_flattened_mut());
        for (steps, row) in steps.iter().zip(rows) {
            let rates = self.rates.chunks_exact(LANES);
            for (decays, rates) in self.decays.chunks_exact_mut(LANES).zip(rates) {
                for ((decay, rate), step) in decays.iter_mut().zip(rates).zip(steps) {
                    *decay = rate * step;
                }
            }
            self.kernels.exp(&mut self.decays);
            let x = &self.input.x[place(row)..][..width];
            let mut v = [0.0; LANES];
            for ((v, x), step) in v.iter_mut().zip(x).zip(steps) {
                *v = step * x;
            }
            let token = ChannelToken {
                k: &self.input.k[row * d_state..][..d_state],
                q: &self.input.q[row * d_state..][..d_state],
                decays: &self.decays,
                v: &v,
            };
            let mut sums = [0.0; LANES];
            self.kernels.fade(state, &token, &mut sums);
            // SAFETY: these channels belong to the block alone, and it runs once.
            let out = unsafe { out.slice(place(row)..place(row) + width) };
            let skips = &self.input.skip[self.first..];
            for (((out, sum), skip), x) in out.iter_mut().zip(&sums).zip(skips).zip(x) {
                *out = sum + skip * x;
            }
        }
    }
}
