//! A vision encoder on a device.
//!
//! A block is two programs: all of its attention behind the norm, and all of its feed-forward network. The normed rows
//! cross to the device, and the addends of the residual stream come back. The host computes norms and sums, and keeps
//! that stream in f32. The products of patches before the blocks and of pooled rows behind them are separate programs.
//!
//! ```text
//!  host    n = norm1 x ─┐                        ┌─ x += y + b ; n = norm2 x ─┐                     ┌─ x += y + b
//!  device               └─ y = out(attention(n)) ┘                            └─ y = down(gelu(up n)) ┘
//! ```
//!
//! A bias within a program is a column of its matrix, by which a one in every row is multiplied.

use crate::predict::{Crossing, HostWork, ModelPart, PriceError, SlotBytes};
use crate::{Call, Chunk, HeadRows, Phase, Plan, PlannedProgram, Pricer};
use millrace_graph::Graph;
use millrace_model::VisionConfig;
use serde::Serialize;

/// Sizes of a vision encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct VisionShape {
    /// Rows.
    pub n_patches: u64,
    /// Elements of a row.
    pub d_model: u64,
    /// Elements between the two matrices of the feed-forward network.
    pub d_ff: u64,
    /// Heads; all rows see each other.
    pub n_heads: u64,
    /// Elements of a head; `n_heads · head_dim` is `d_model`.
    pub head_dim: u64,
    /// Numbers of a patch.
    pub patch_elems: u64,
    /// Rows that the text model takes.
    pub n_tokens: u64,
    /// Elements of each.
    pub d_text: u64,
}

impl VisionShape {
    /// A vision encoder's.
    pub fn of(config: &VisionConfig) -> VisionShape {
        let patch = config.patch_size * config.patch_size;
        VisionShape {
            n_patches: config.n_patches() as u64,
            d_model: config.d_model as u64,
            d_ff: config.d_ff as u64,
            n_heads: config.n_heads as u64,
            head_dim: config.head_dim() as u64,
            patch_elems: (VisionConfig::CHANNELS * patch) as u64,
            n_tokens: config.n_tokens as u64,
            d_text: config.d_text as u64,
        }
    }
}

/// A matrix of a vision encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VisionMatrix {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// The output projection of attention.
    Out,
    /// The feed-forward network's first.
    Up,
    /// Its second.
    Down,
    /// The matrix of patches, before all blocks.
    Patches,
    /// The matrix into the text model's width, behind all blocks.
    Projection,
}

/// Content of a slot of a vision encoder's program, in bf16. Rows are of patches, or of the text model's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VisionSlot {
    /// Rows that the host computed, with that width: their own elements, a one behind them where their matrix has a
    /// bias, then zeros.
    Rows {
        /// Elements of a row.
        width: u64,
        /// Whether there is a one.
        bias: bool,
    },
    /// A matrix `[n, k]`, outputs by inputs, zeros beyond its own.
    Matrix {
        /// The matrix.
        of: VisionMatrix,
        /// Rows.
        n: u64,
        /// Elements of a row.
        k: u64,
        /// Whether the element behind its own inputs is its bias.
        bias: bool,
    },
    /// [The position](crate::position_slot) behind all rows.
    Position,
    /// Passed from launch to launch.
    Scratch,
    /// Rows that the host takes: addends of the residual stream without a bias, rows of patches, or rows of the text
    /// model.
    Sum,
}

/// A program of a vision encoder.
#[derive(Clone, Debug)]
pub struct VisionProgram {
    /// The program.
    pub program: PlannedProgram,
    /// Content of its slots.
    pub slots: Vec<VisionSlot>,
}

/// The programs of a vision encoder: every block runs two, with its own matrices.
#[derive(Clone, Debug)]
pub struct VisionPlan {
    /// Sizes.
    pub shape: VisionShape,
    /// Attention, from normed rows to the addend of the residual stream.
    pub attention: VisionProgram,
    /// The feed-forward network.
    pub feed_forward: VisionProgram,
    /// The product of patches.
    pub patches: VisionProgram,
    /// The product into the text model's width.
    pub projection: VisionProgram,
}

/// Time of a vision encoder, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct VisionCost {
    /// Launches at work.
    pub work_ns: f64,
    /// The part of it for products of matrices.
    pub products_ns: f64,
    /// The part of it for attention.
    pub attention_ns: f64,
    /// Loading cores.
    pub load_ns: f64,
    /// Calls, and rows written and read.
    pub call_ns: f64,
    /// The host's norms and sums.
    pub host_ns: f64,
    /// Dispatches.
    pub n_dispatches: u64,
}

impl VisionCost {
    /// Sum of work, loading, calls and the host.
    pub fn total_ns(&self) -> f64 {
        self.work_ns + self.load_ns + self.call_ns + self.host_ns
    }
}

impl VisionPlan {
    /// All programs, in the order in which an image first runs them.
    pub fn programs(&self) -> [&VisionProgram; 4] {
        [
            &self.patches,
            &self.attention,
            &self.feed_forward,
            &self.projection,
        ]
    }

    /// Cost of an image with `n_layers` blocks. The host's norms and sums count as the bytes that they read and write, each
    /// once. Their rate is that of the pricer's host when it writes rows into a buffer.
    ///
    /// # Errors
    /// A program that has no time.
    pub fn cost(&self, n_layers: usize, pricer: &mut dyn Pricer) -> Result<VisionCost, PriceError> {
        let (f32, bf16) = (4, 2);
        let VisionShape {
            n_patches,
            d_model,
            patch_elems,
            n_tokens,
            ..
        } = self.shape;
        let elements = n_patches * d_model;
        // Half a block: the residual stream through a norm, then its sum with the device's result.
        let half = elements * ((f32 + bf16) + (bf16 + 2 * f32));
        // Pixels in the order of patches, with positions added. The last norm, its mean by squares, and a norm of that.
        let patches = n_patches * patch_elems * (f32 + bf16) + elements * (bf16 + 2 * f32);
        let projection = elements * 3 * f32 + n_tokens * d_model * (f32 + bf16);
        let parts = [
            (&self.patches, 1, patches),
            (&self.attention, n_layers, half),
            (&self.feed_forward, n_layers, half),
            (&self.projection, 1, projection),
        ];
        let mut cost = VisionCost::default();
        for (program, runs, host_bytes) in parts {
            self.add(&mut cost, program, (runs as u64, host_bytes), pricer)?;
        }
        Ok(cost)
    }

    fn add(
        &self,
        cost: &mut VisionCost,
        program: &VisionProgram,
        (runs, host_bytes): (u64, u64),
        pricer: &mut dyn Pricer,
    ) -> Result<(), PriceError> {
        let (graph, plan) = (Graph::default(), empty_plan(self.shape.n_patches));
        let work = HostWork {
            graph: &graph,
            plan: &plan,
            chunk: Chunk::token(0),
        };
        let call = Call {
            program: 0,
            set: String::new(),
            bindings: Vec::new(),
            nodes: Vec::new(),
            experts: None,
        };
        let crossing = |written_bytes, read_bytes| Crossing {
            written_bytes,
            read_bytes,
            relayed_bytes: 0,
        };
        let run = pricer.program(&program.program)?;
        let n = runs as f64;
        let work_ns: f64 = run.launches.iter().map(|launch| launch.ns).sum();
        for launch in &run.launches {
            match launch.part {
                ModelPart::Attention => cost.attention_ns += n * launch.ns,
                ModelPart::Elementwise => {}
                _ => cost.products_ns += n * launch.ns,
            }
        }
        let bytes = SlotBytes::of(program.program.slots());
        let moved = pricer.call(&work, &call, crossing(bytes.input, bytes.output));
        let host_ns = pricer.call(&work, &call, crossing(host_bytes, 0)).write_ns;
        let call_ns = run.run_ns - run.load_ns - work_ns;
        cost.work_ns += n * work_ns;
        cost.load_ns += n * (run.load_ns + run.switch_ns);
        cost.call_ns += n * (call_ns + moved.call_ns + moved.write_ns + moved.read_ns);
        cost.host_ns += n * host_ns;
        cost.n_dispatches += runs;
        Ok(())
    }
}

/// A plan without steps, for pricing calls that belong to no plan.
fn empty_plan(n_tokens: u64) -> Plan {
    Plan {
        phase: Phase::Prefill,
        n_tokens,
        alias: true,
        head: HeadRows::Last,
        programs: Vec::new(),
        steps: Vec::new(),
        placement: Vec::new(),
        single_row: Vec::new(),
    }
}
