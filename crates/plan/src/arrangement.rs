//! Slots that only the target can write and read: its own arrangements, identified by typed numbers.

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

/// Arrangement of an operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandArrangement {
    /// That of a weight.
    Weight(WeightArrangement),
    /// That of a value.
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

/// A slot in one of the target's own arrangements; `I` is the type of its number.
#[derive(Clone, Copy, Debug)]
pub struct OwnSlot<'a, I> {
    /// The program.
    pub program: &'a PlannedProgram,
    /// The slot's number.
    pub slot: usize,
    /// The arrangement.
    pub id: I,
}

/// A weight as the checkpoint has it, for a target that arranges it itself.
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

/// Position of a pass in its sequence.
#[derive(Clone, Copy, Debug)]
pub struct PassPosition<'a> {
    /// The model.
    pub graph: &'a Graph,
    /// Its tokens, padding behind them.
    pub tokens: &'a [u32],
    /// Tokens other than padding.
    pub n_real: usize,
    /// Position of the first: tokens of the sequence before it.
    pub first: usize,
}

/// Data that the host keeps after it wrote a slot, to read the program's results later: scales of quantised rows. Empty
/// where there are none.
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

/// The bytes of slots in the target's own arrangements.
///
/// A target whose slots all use common layouts implements none of it.
pub trait Arrangement: Send + Sync {
    /// Writes a weight whose layout is the target's own ([`WeightLayout::Own`]) into its slot; `out` holds anything.
    /// Gives the scales that [`unpack`](Arrangement::unpack) needs.
    ///
    /// # Errors
    /// Why it does not fit, in words.
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

    /// How a slot changes a weight's numbers, in words; `None` where there is no description.
    fn becomes(&self, dtype: millrace_quant::DType, layout: &WeightLayout) -> Option<&'static str> {
        let _ = (dtype, layout);
        None
    }

    /// Reads a weight of such a layout back from its slot, for checks of a launch's result. `None` where it is not
    /// checked.
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

    /// Writes rows of a value into a slot in one of the target's own arrangements. `rows` is `[n_rows, width]`, `out`
    /// holds zeros. Gives the scales that [`unpack`](Arrangement::unpack) needs.
    ///
    /// # Errors
    /// Why it does not fit, in words.
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

    /// Reads rows of a value from such a slot. `scales` has one entry for each slot of the call: the scales from
    /// filling or packing it.
    ///
    /// # Errors
    /// Why it does not fit, in words.
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

    /// Writes an input that follows from a pass's position; `out` holds zeros.
    ///
    /// # Errors
    /// Why it does not fit, in words.
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
    /// [`arithmetic`](crate::Numerics::arithmetic) says. For checks of the product.
    ///
    /// # Errors
    /// The numbers cannot be read from the slot.
    fn operand(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, OperandArrangement>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        let _ = (cpu, bytes, scales, rows);
        Err(format!("the target cannot read the layout {}", at.id))
    }
}
