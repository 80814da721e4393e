//! Content of the slots of a call.

use crate::{AttentionPart, Bias, InputId, KeyRange, TableRows, ValueArrangement, WeightLayout};
use millrace_graph::{RopeId, ValueId, WeightId};
use serde::{Deserialize, Serialize};

/// Content of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Binding {
    /// A weight in the slot's element type, arranged as the layout says; quantised ones are decoded unless the layout
    /// is the target's own. It is `static`; as `input` it is arranged anew for every call, in a buffer that other slots
    /// use too.
    Weight {
        /// The weight.
        weight: WeightId,
        /// Its layout in the slot.
        layout: WeightLayout,
    },
    /// Cosines and sines ([`rope_table`](crate::rope_table)): `static` in a prefill, where they
    /// hold from the chunk's first position, `input` in decode.
    RopeTable {
        /// The rotation, with its frequencies.
        rope: RopeId,
        /// The rows of the table.
        rows: TableRows,
    },
    /// A value: an `input` slot is written from the host's copy, an `output` slot read to it.
    Value(ValueId),
    /// Elements `start .. start + len` of each of a value's rows; the rest of each row of the slot is padding.
    Part {
        /// The value.
        value: ValueId,
        /// First element.
        start: usize,
        /// Number of elements.
        len: usize,
    },
    /// A layer's cached keys or values, `[n_kv_heads, max_tokens, head_dim]`: the sequence's own, never written as a whole. Rows that were
    /// never written are zeros. `static` where the host brings the pass's rows before the call
    /// ([`HostStep::AppendKv`](super::HostStep::AppendKv)). `intermediate` where the program writes them itself; then it may also write
    /// the last row, which belongs to no token.
    Cache {
        /// The cache's layer.
        layer: usize,
        /// Which of the layer's two arrays.
        of: CachePart,
    },
    /// The rows of a layer's cached keys or values that the pass [reaches](KeyRange), its own among them,
    /// `[n_kv_heads, n_rows, head_dim]`. The host writes them after [`HostStep::AppendKv`](super::HostStep::AppendKv);
    /// they are zeros where there is no token. `input`.
    CacheRange {
        /// The cache's layer.
        layer: usize,
        /// Which of the layer's two arrays.
        of: CachePart,
        /// The rows.
        range: KeyRange,
    },
    /// Position of the pass among such rows ([`KeyRange::slot`]). `input`.
    RangePosition {
        /// The rows.
        range: KeyRange,
    },
    /// A value in one of the target's own arrangements: the target [packs](crate::Arrangement::pack) the host's rows
    /// into it, and [unpacks](crate::Arrangement::unpack) the rows that the host reads.
    Packed {
        /// The value.
        value: ValueId,
        /// The arrangement.
        id: ValueArrangement,
        /// For a product that leaves the device without its bias: the host adds this vector to the unpacked rows, in
        /// f32, before it rounds to bf16.
        bias: Option<Bias>,
    },
    /// An operand or a result of the products that are a node's attention, of one key-value head; arranged and
    /// moved as [`Packed`](Binding::Packed) is.
    AttentionProduct {
        /// The node.
        node: usize,
        /// The key-value head.
        kv_head: usize,
        /// The operand or result.
        of: AttentionPart,
        /// Keys of the product.
        n_keys: usize,
        /// The arrangement.
        id: ValueArrangement,
    },
    /// Result of [`HostStep::DeltaRows`](super::HostStep::DeltaRows) for the node's operands, f32. `input`.
    DeltaRows {
        /// The node.
        node: usize,
    },
    /// A recurrent state of the sequence before the pass's only token, in f32 as its op keeps it. The host writes it. `input`.
    StateBefore {
        /// The state's number.
        index: usize,
    },
    /// The same state after the token, which the host keeps. `output`.
    StateBehind {
        /// The state's number.
        index: usize,
    },
    /// Position of the pass's first token ([`position_slot`](crate::position_slot)). `input`.
    Position,
    /// An input that follows from the pass's position (masks, positions, tokens):
    /// [`Arrangement::make`](crate::Arrangement::make) makes it. `input`.
    PassInput {
        /// Kind of input.
        id: InputId,
    },
    /// Overwritten by the program, unused afterwards. `intermediate`.
    Scratch,
}

impl Binding {
    /// The value that the slot holds, whole or a part of it.
    pub fn value(&self) -> Option<ValueId> {
        match self {
            Binding::Value(value) | Binding::Part { value, .. } | Binding::Packed { value, .. } => {
                Some(*value)
            }
            Binding::AttentionProduct { of, .. } => of.value(),
            _ => None,
        }
    }
}

/// One of the two arrays of a layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CachePart {
    /// Rotated keys.
    Keys,
    /// Values.
    Values,
}
