//! Slots whose content only the target can write and read: arrangements of its own, by typed numbers.

use crate::{PlannedLaunch, PlannedProgram, WeightLayout};
use millrace_graph::Graph;
use millrace_kernels::Cpu;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// An arrangement of weights ([`WeightLayout::Own`]), by a number that only the target knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WeightArrangement(pub u32);

/// An arrangement of a value's rows ([`Binding::Packed`](crate::Binding::Packed),
/// [`Binding::AttentionProduct`](crate::Binding::AttentionProduct)), by a number that only the target knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueArrangement(pub u32);

/// An input that follows from a pass's position ([`Binding::PassInput`](crate::Binding::PassInput)), by a number that only
/// the target knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputId(pub u32);

/// The arrangement of what a product multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandArrangement {
    /// Of a weight.
    Weight(WeightArrangement),
    /// Of a value.
    Value(ValueArrangement),
}

impl fmt::Display for WeightArrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ValueArrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for InputId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for OperandArrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperandArrangement::Weight(id) => write!(f, "{id} of weights"),
            OperandArrangement::Value(id) => write!(f, "{id} of values"),
        }
    }
}

/// A slot whose content lies in an arrangement of the target's own; `I` is the type of its number.
#[derive(Clone, Copy, Debug)]
pub struct OwnSlot<'a, I> {
    /// The program.
    pub program: &'a PlannedProgram,
    /// The slot's number.
    pub slot: usize,
    /// The arrangement.
    pub id: I,
}

/// A weight as the checkpoint has it, for a target that arranges it in a way of its own.
#[derive(Clone, Copy, Debug)]
pub struct WeightSource<'a> {
    /// Its element or block format.
    pub dtype: millrace_quant::DType,
    /// The checkpoint's bytes.
    pub bytes: &'a [u8],
    /// Rows.
    pub n: usize,
    /// Elements of a row.
    pub k: usize,
    /// With a head's elements: rows of each head are put from interleaved to half-split order.
    pub half_split: Option<usize>,
}

/// Where a pass is in its sequence.
#[derive(Clone, Copy, Debug)]
pub struct PassPosition<'a> {
    /// The model.
    pub graph: &'a Graph,
    /// Its tokens, padding behind them.
    pub tokens: &'a [u32],
    /// Tokens that are no padding.
    pub n_real: usize,
    /// Position of the first: tokens of the sequence before it.
    pub first: usize,
}

/// What the host keeps of a slot that it wrote and needs again to read the program's results: scales of
/// quantised rows. Empty where there is nothing to keep.
pub type Scales = Arc<[f32]>;

/// A weight as a launch multiplies with it, read back from a slot whose layout is the target's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackedWeight {
    /// The numbers, `[n, k]` in the order of the layout's rows; n may be padded.
    pub values: Vec<f32>,
    /// Where `w = scale·q + offset` and a group's two sums of products, with q and with the offset, are
    /// each rounded to bf16: the group's size and the offsets `[n, k / group]`.
    pub offsets: Option<(usize, Vec<f32>)>,
}

/// The bytes of slots in arrangements of the target's own.
///
/// A target whose slots all lie in common layouts implements none of it.
pub trait Arrangement: Send + Sync {
    /// Writes a weight whose layout is the target's own ([`WeightLayout::Own`]) into its slot; `out` holds
    /// anything. Gives what [`unpack`](Arrangement::unpack) needs of it.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn fill(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, WeightArrangement>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        let _ = (cpu, weight, out);
        Err(format!("the target has no layout {} of weights", at.id))
    }

    /// What becomes of a weight's numbers in a slot, in words; `None` where nothing is said of it.
    fn becomes(&self, dtype: millrace_quant::DType, layout: &WeightLayout) -> Option<&'static str> {
        let _ = (dtype, layout);
        None
    }

    /// Reads a weight of such a layout back from its slot, for who checks what a launch made of it. `None`
    /// where that is not looked at.
    fn read_weight(
        &self,
        launch: &PlannedLaunch,
        id: WeightArrangement,
        bytes: &[u8],
        k: usize,
    ) -> Option<PackedWeight> {
        let _ = (launch, id, bytes, k);
        None
    }

    /// Writes rows of a value into a slot with an arrangement of the target's own. `rows` is
    /// `[n_rows, width]`, `out` holds zeros. Gives what [`unpack`](Arrangement::unpack) needs of it.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn pack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
        rows: &[f32],
        width: usize,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        let _ = (cpu, rows, width, out);
        Err(format!("the target has no layout {} of values", at.id))
    }

    /// Reads rows of a value from such a slot. `scales` has what the call's slots were filled and packed
    /// with, one a slot.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn unpack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
        bytes: &[u8],
        scales: &[Scales],
        width: usize,
        rows: &mut [f32],
    ) -> Result<(), String> {
        let _ = (cpu, bytes, scales, width, rows);
        Err(format!("the target has no layout {} of values", at.id))
    }

    /// Writes what follows from a pass's position; `out` holds zeros.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn make(
        &self,
        at: &OwnSlot<'_, InputId>,
        position: &PassPosition<'_>,
        out: &mut [u8],
    ) -> Result<(), String> {
        let _ = (position, out);
        Err(format!("the target makes no input {}", at.id))
    }

    /// The numbers that a product multiplies, from a slot that [`fill`](Arrangement::fill) or
    /// [`pack`](Arrangement::pack) wrote: rows of the width of k, changed as
    /// [`arithmetic`](crate::Numerics::arithmetic) says. For who checks the product.
    ///
    /// # Errors
    /// That they cannot be told.
    fn operand(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, OperandArrangement>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        let _ = (cpu, bytes, scales, rows);
        Err(format!(
            "the target cannot tell what lies in layout {}",
            at.id
        ))
    }
}
