//! Mappings: kernels laid onto the array. Each has its builder, a scalar reference that is independent of the array,
//! the rules of legal shapes and tilings, and test data.
//!
//! | mapping | computes | shape |
//! |---|---|---|
//! | `gemm-f32`, `gemm-fused-cast`, `gemm-drain`, `gemm-direct`, `gemm-direct-f32` | `C = A · B` on 8 × 4 cores | `MxKxN` |
//! | `gemm-drain-bt`, `gemm-direct-bt` | the same with B as `[N, K]` | `MxKxN` |
//! | `gemm-stream`, `gemm-stream-bt` | several products of one A, no pause between tiles | `MxKxN0+N1+…` |
//! | `gemm-i8` | the same of 8-bit integers with B as `[N, K]`, exact sums in 32 bits | `MxKxN0+N1+…` |
//! | `gemm-megatile` | several products of one A in megatiles (the Gemma 3 paper, §3.1.2) | `MxKxN0+N1+…` |
//! | `gemv` | `y = W · x` on 8 × 1 cores | `MxK` |
//! | `gemv-cascade` | the same on 8 × 4 cores, partial sums passed down the cascade | `MxK` |
//! | `gemv-stream` | several `y = W · x` of one x, W straight to the cores | `M0+M1+…xK` |
//! | `gemv-i8` | the same of 8-bit integers, exact sums in 32 bits | `M0+M1+…xK` |
//! | `fused-dqp` | the same with W in Q4NX blocks, dequantised in the cores | `M0+M1+…xK` |
//! | `gemm-q4nx` | several products of one A with weights in Q4NX blocks | `MxKxN0+N1+…` |
//! | `gemm-q4nx-ddr` | the same, the weights expanded to bf16 in DDR by a launch before | `MxKxN0+N1+…` |
//! | `rmsnorm`, `layernorm` | per row | `ROWSxCOLS` |
//! | `rope` | half-split rotation per row | `ROWSxHEAD_DIM` |
//! | `silu-mul`, `gelu-mul`, `gelu`, `add` | per element | `N` |
//! | `add-2d`, `add-flat` | residual add per row, the second to a flat slot | `ROWSxCOLS` |
//! | `flash-attention` | causal or full attention with grouped heads | `2048 32q/8kv d64 causal` |
//! | `token-attention` | a token over the keys of a cache and itself, on the cores of `fused-dqp` | `1x1040 32q/8kv d64` |
//! | `cached-attention` | new tokens over the keys of a cache, from a position known at run time | `1x4096 32q/8kv d64` |
//! | `prompt-attention` | the same for many tokens, with a window over the keys that it reaches; a first pass's over its own, with a mask or without | `2048x4096 32q/8kv d64` |
//! | `flow-qkv` | the same as in the Gemma 3 paper: chunks of queries side by side, each with separate keys | `2048x2048 8q/4kv d256 own` |
//! | `flow-kv` | a token over the keys of a cache as in that paper: pairs of cores, one with the keys, one with the values | `1x4096 8q/4kv d256` |
//! | `delta-net` | a token of gated delta nets, states in f32 streamed through 8 × 2 cores | `HEADSxKxV` |
//!
//! A [`Mapping`] is a row of [`TABLE`]; the command line takes its names, shapes and tilings. Builders refuse
//! impossible programs ([`BuildError`]). They leave the machine's limits to the verifier, except those that decide
//! which tilings are worth listing.

mod attention;
mod blocked;
mod cached_attention;
mod compare;
mod data;
pub(crate) mod delta_net;
mod elementwise;
pub(crate) mod flow_kv;
pub(crate) mod flow_qkv;
pub(crate) mod fused;
mod gemm;
mod gemm_stream;
mod gemv;
mod gemv_cascade;
mod gemv_stream;
mod megatile;
mod operands;
mod parts;
pub(crate) mod prompt_attention;
pub(crate) mod q4nx;
mod rowwise;
mod streaming;

pub(crate) use cached_attention::n_keys_unit;
pub use compare::{Comparison, Difference, compare};
pub use millrace_plan::{NamedNumbers, Shape, ShapeError, Tiling};

use millrace_xdna2_machine::program::Var;
use millrace_xdna2_machine::{Machine, Numerics, Profile, Program};
use std::fmt;

/// A shape or tiling that a mapping refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{mapping}: {rule}: {message}")]
pub struct BuildError {
    /// The mapping.
    pub mapping: &'static str,
    /// The rule it breaks.
    pub rule: Rule,
    /// The request, the limit, and the remedy.
    pub message: String,
}

/// Why a mapping refuses a shape or tiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A dimension is zero or beyond the range of offsets.
    Range,
    /// A dimension is not a whole number of tiles or vectors.
    Divides,
    /// The herd is larger than the array.
    Herd,
    /// A core's buffers exceed its L1.
    L1,
    /// A memory tile's buffers exceed it, or the software's own limit on a panel.
    L2,
    /// More streams than the shims have DMA channels.
    Streams,
    /// A stride beyond a descriptor's field.
    Stride,
    /// More iterations than repeat counts express.
    Repeat,
    /// A transfer is not a whole number of address units (4 bytes).
    Granularity,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Range => "range",
            Rule::Divides => "divides",
            Rule::Herd => "herd",
            Rule::L1 => "L1",
            Rule::L2 => "L2",
            Rule::Streams => "streams",
            Rule::Stride => "stride",
            Rule::Repeat => "repeat",
            Rule::Granularity => "granularity",
        })
    }
}

/// How far a result may be from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Equal bit for bit: the rule fixes every operation and its order.
    Exact,
    /// At most so many units in the last place of the output's type, or so much in absolute terms (results near zero of
    /// cancelling terms).
    Close {
        /// Units in the last place.
        ulps: u32,
        /// Absolute difference.
        absolute: f32,
    },
}

/// Least work of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeastWork {
    /// Floating-point operations, a multiplication and an addition being two.
    pub flops: u64,
    /// Bytes to and from DDR when everything is moved once.
    pub ddr_bytes: u64,
}

/// A kernel laid onto the array.
pub trait Mapping: Sync {
    /// Name on the command line: lower case, digits, `-`.
    fn name(&self) -> &'static str;

    /// One line on its computation and the spelling of shapes.
    fn summary(&self) -> &'static str;

    /// A shape from its text (`2048x2048x8192`).
    ///
    /// # Errors
    /// The text is not such a shape.
    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError>;

    /// The default tiling: legal if any is.
    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling;

    /// Legal tilings worth comparing, without duplicates.
    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling>;

    /// The tile program.
    ///
    /// # Errors
    /// Names the rule that shape or tiling breaks.
    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError>;

    /// Contents of all slots of [`build`](Mapping::build)'s program before a run: seeded random
    /// inputs, zeros in the slots that the program writes.
    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>>;

    /// Expected contents of the output slots after a run: index and content.
    fn reference(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        self.reference_in(Numerics::Bf16, shape, tiling, slots)
    }

    /// The same for a program with [`Numerics::apply`], which changes only products of matrices.
    fn reference_in(
        &self,
        numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)>;

    /// Slots of keys and values, where the mapping attends.
    fn keys_and_values(&self) -> &'static [usize] {
        &[]
    }

    /// How close a run must come to the reference.
    fn tolerance(&self) -> Tolerance;

    /// Least work of the problem.
    fn work(&self, shape: &Shape) -> LeastWork;
}

/// Every mapping, in the order of the module's table.
pub const TABLE: &[&dyn Mapping] = &[
    &gemm::F32,
    &gemm::FUSED_CAST,
    &gemm::DRAIN,
    &gemm::DIRECT,
    &gemm::DIRECT_F32,
    &gemm::DRAIN_BT,
    &gemm::DIRECT_BT,
    &gemm_stream::PLAIN,
    &gemm_stream::BT,
    &gemm_stream::I8,
    &megatile::Megatile,
    &gemv::Gemv,
    &gemv_stream::BF16,
    &gemv_stream::I8,
    &gemv_cascade::GemvCascade,
    &q4nx::dqp::FusedDqp,
    &q4nx::gemm::GemmQ4nx,
    &q4nx::expanded::ExpandedGemm,
    &q4nx::token::TokenAttention,
    &rowwise::RMSNORM,
    &rowwise::LAYERNORM,
    &rowwise::ROPE,
    &elementwise::SILU_MUL,
    &elementwise::GELU_MUL,
    &elementwise::GELU,
    &elementwise::ADD,
    &elementwise::ADD_2D,
    &elementwise::ADD_FLAT,
    &attention::AttentionMapping,
    &cached_attention::CachedAttention,
    &prompt_attention::PromptAttention,
    &flow_qkv::FlowQkv,
    &flow_kv::FlowKv,
    &delta_net::DeltaNet,
];

/// Products of 8-bit integers, of a prompt and of a token.
pub(crate) const GEMM_I8: &str = "gemm-i8";
/// See [`GEMM_I8`].
pub(crate) const GEMV_I8: &str = "gemv-i8";

/// The mapping of that name.
pub fn find(name: &str) -> Option<&'static dyn Mapping> {
    TABLE.iter().copied().find(|m| m.name() == name)
}

/// Bytes that a program's shim tasks move for those slots, over all grid points.
pub fn moved_bytes(program: &Program, slots: &[usize]) -> u64 {
    let mut bytes = 0_u64;
    for launch in &program.launches {
        let n_points: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
        for number in 0..n_points {
            let value = |var| match var {
                Var::Grid(dim) => coordinate(&launch.grid, number, dim),
                _ => 0,
            };
            for transfer in &launch.transfers {
                let Some(slot) = launch.args.get(transfer.arg).filter(|s| slots.contains(s)) else {
                    continue;
                };
                let element = program
                    .slots
                    .get(*slot)
                    .map_or(0, |s| s.element.size_bytes());
                let copies: u64 = transfer.dims.iter().map(|&n| u64::from(n)).product();
                let tasks: i64 = transfer.loops.iter().map(|n| n.eval(value)).product();
                let elements = transfer.pattern.n_elements(value).saturating_mul(tasks);
                bytes += copies * u64::try_from(elements).unwrap_or(0) * element;
            }
        }
    }
    bytes
}

/// Coordinate `dim` of a grid's point with that number, the last dimension fastest.
fn coordinate(grid: &[u32], number: u64, dim: u8) -> i64 {
    let (dim, mut rest) = (usize::from(dim), number);
    for (at, &n) in grid.iter().enumerate().rev() {
        let n = u64::from(n).max(1);
        if at == dim {
            return i64::try_from(rest % n).unwrap_or(0);
        }
        rest /= n;
    }
    0
}

/// Legal tilings of a mapping that streams weights, by their estimated time under a profile; none for other mappings.
pub(crate) fn ranked(
    name: &str,
    shape: &Shape,
    machine: &Machine,
    profile: &Profile,
) -> Vec<Tiling> {
    match name {
        "gemv-stream" => gemv_stream::ranked(&gemv_stream::BF16, shape, machine, profile),
        GEMV_I8 => gemv_stream::ranked(&gemv_stream::I8, shape, machine, profile),
        q4nx::dqp::NAME => q4nx::dqp::ranked(shape, machine, profile),
        q4nx::gemm::NAME => q4nx::gemm::ranked(shape, machine, profile),
        q4nx::expanded::NAME => q4nx::expanded::ranked(shape, machine, profile),
        _ => gemm_stream::ranked(name, shape, machine, profile),
    }
}

/// Legal tilings on more cores than the default has, where a profile finds them faster, the fastest
/// first: row-wise and element-wise kernels through memory tiles.
pub(crate) fn on_more_cores(
    name: &str,
    shape: &Shape,
    machine: &Machine,
    profile: &Profile,
) -> Vec<Tiling> {
    let Some(mapping) = find(name) else {
        return Vec::new();
    };
    let default = mapping.default_tiling(shape, machine);
    let of = (machine, profile);
    let mut found = rowwise::ranked(name, shape, &default, of);
    found.extend(elementwise::ranked(name, shape, &default, of));
    found
}

/// Flash attention's tilings with a causal mask's work shared evenly, with the numerics of `tiling`.
pub(crate) fn balanced_attention(
    shape: &Shape,
    tiling: &Tiling,
    (machine, profile): (&Machine, Option<&Profile>),
) -> Vec<Tiling> {
    attention::balanced(shape, tiling, machine, profile)
}

/// Largest dimension of a shape: the bytes of two multiplied stay far from overflow.
const DIM_MAX: u64 = 1 << 28;

/// Dimensions written `AxBxC`, each from 1 to [`DIM_MAX`].
fn parse_dims<const N: usize>(text: &str, names: [&'static str; N]) -> Result<Shape, ShapeError> {
    let form = names.map(str::to_uppercase).join("x");
    let expected = format!("the shape is {form}, whole numbers from 1 to {DIM_MAX}");
    let parts: Vec<&str> = text.trim().split(['x', 'X', '×']).collect();
    let mut pairs = Vec::with_capacity(N);
    for (i, name) in names.into_iter().enumerate() {
        let value = parts.get(i).and_then(|p| p.trim().parse::<u64>().ok());
        match value {
            Some(v) if (1..=DIM_MAX).contains(&v) && parts.len() == N => pairs.push((name, v)),
            _ => return Err(ShapeError::new(text, &expected)),
        }
    }
    Ok(NamedNumbers::new(&pairs))
}
