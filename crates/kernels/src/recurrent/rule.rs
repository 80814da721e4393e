//! Common part of recurrences with rank-one updates of a head's matrix: `S = decay ⊙ S + write ⊗ (Sᵀ read) + k ⊗ v` by rows,
//! then `out = Sᵀ q`.

use super::heads::STRIP_TOKENS;
use super::leaves::{RecurrentKernels, RuleToken};
use super::{LANES, MAX_KEY_DIM, SharedSlots, StateRun, StateSlots};
use crate::cpu::Cpu;
use crate::pool::DisjointMut;
use std::ops::Range;

/// A token's inputs to a head's matrix, besides its values. Elements beyond the head's size are meaningless.
pub(super) struct ReadyToken {
    pub(super) q: [f32; MAX_KEY_DIM],
    pub(super) decay: [f32; MAX_KEY_DIM],
    pub(super) k: [f32; MAX_KEY_DIM],
    pub(super) read: [f32; MAX_KEY_DIM],
    pub(super) write: [f32; MAX_KEY_DIM],
}

impl ReadyToken {
    const ZEROS: ReadyToken = ReadyToken {
        q: [0.0; MAX_KEY_DIM],
        decay: [0.0; MAX_KEY_DIM],
        k: [0.0; MAX_KEY_DIM],
        read: [0.0; MAX_KEY_DIM],
        write: [0.0; MAX_KEY_DIM],
    };
}

/// Prepares the inputs to a head's matrix from the head's part of a row.
pub(super) type Prepare<'a> =
    dyn Fn(&RecurrentKernels, (usize, usize), &mut ReadyToken) + Sync + 'a;

/// Heads whose matrices are revised by this rule: those of Kimi delta attention and of RWKV 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleShape {
    /// Heads.
    pub n_heads: usize,
    /// Elements of a head, of keys as of values.
    pub head_dim: usize,
}

impl RuleShape {
    /// Elements of a head's state: `[head_dim / 16 rounded up, head_dim, 16]`.
    #[must_use]
    pub fn head_elems(&self) -> usize {
        self.head_dim.next_multiple_of(LANES) * self.head_dim
    }

    /// Elements of all heads.
    #[must_use]
    pub fn width(&self) -> usize {
        self.n_heads * self.head_dim
    }
}

/// The recurrence of such heads over the rows of runs. `prepare` is called once for each row and head; `v` and `out` have rows
/// of all heads.
pub(super) fn run(
    cpu: &Cpu,
    shape: &RuleShape,
    (prepare, v): (&Prepare<'_>, &[f32]),
    slots: StateSlots<'_>,
    runs: &[StateRun<'_>],
    out: &mut [f32],
) {
    let RuleShape { n_heads, head_dim } = *shape;
    assert!(
        (1..=MAX_KEY_DIM).contains(&head_dim) && n_heads > 0,
        "{shape:?}"
    );
    assert!(v.len() == out.len() && out.len().is_multiple_of(shape.width()));
    let kernels = RecurrentKernels::for_level(cpu.level());
    let slots = SharedSlots::new(slots, n_heads * shape.head_elems());
    let out = DisjointMut::new(out);
    cpu.pool().run(n_heads, &|head| {
        let head = RuleHead {
            prepare,
            v,
            slots: &slots,
            head,
            shape: *shape,
            kernels,
        };
        for run in runs {
            // Clearing a strip takes as long as a token.
            match run.rows.len() {
                1 => head.run::<1>(run, &out),
                _ => head.run::<STRIP_TOKENS>(run, &out),
            }
        }
    });
}

/// One head.
struct RuleHead<'a> {
    prepare: &'a Prepare<'a>,
    v: &'a [f32],
    slots: &'a SharedSlots<'a>,
    head: usize,
    shape: RuleShape,
    kernels: &'a RecurrentKernels,
}

impl RuleHead<'_> {
    fn run<const N: usize>(&self, run: &StateRun<'_>, out: &DisjointMut<'_, f32>) {
        let n_elems = self.shape.head_elems();
        let mut strip = [const { ReadyToken::ZEROS }; N];
        let place = (self.head * n_elems, n_elems);
        // SAFETY: a head's part of every slot belongs to it alone, and it runs once.
        unsafe {
            self.slots.for_strips(run, place, N, |rows, state| {
                for (token, row) in strip.iter_mut().zip(rows.clone()) {
                    (self.prepare)(self.kernels, (row, self.head), token);
                }
                self.compute(rows, &strip, state, out);
            });
        }
    }

    /// Block by block: a block of a state stays in the nearest cache while the tokens pass.
    fn compute(
        &self,
        rows: Range<usize>,
        strip: &[ReadyToken],
        state: &mut [f32],
        out: &DisjointMut<'_, f32>,
    ) {
        let RuleShape {
            n_heads,
            head_dim: n,
        } = self.shape;
        for (block, tile) in state.chunks_exact_mut(n * LANES).enumerate() {
            let column = block * LANES;
            let width = LANES.min(n - column);
            for (row, token) in rows.clone().zip(strip) {
                let at = (row * n_heads + self.head) * n + column;
                let mut v = [0.0; LANES];
                v[..width].copy_from_slice(&self.v[at..][..width]);
                let mut sums = [0.0; LANES];
                let token = RuleToken {
                    q: &token.q[..n],
                    decay: &token.decay[..n],
                    k: &token.k[..n],
                    read: &token.read[..n],
                    write: &token.write[..n],
                    v: &v,
                };
                self.kernels.revise(tile, &token, &mut sums);
                // SAFETY: the columns of a head belong to it alone, and it runs once.
                let out = unsafe { out.slice(at..at + width) };
                out.copy_from_slice(&sums[..width]);
            }
        }
    }
}
