//! Findings of a check of ops.

use millrace_plan::Phase;
use std::collections::BTreeMap;

/// Counts and worst cases of a check so far.
#[derive(Clone, Debug, Default)]
pub struct CheckSummary {
    /// Ops of the device that were computed again, over all passes.
    pub n_ops: u64,
    /// Slots whose bytes were compared with where they came from.
    pub n_moved: u64,
    /// By op: the largest error so far, as a share of its tolerance.
    pub worst: BTreeMap<&'static str, f64>,
    /// Ops that have no rule, and so were not looked at.
    pub unchecked: BTreeMap<&'static str, String>,
    /// The first fault.
    pub finding: Option<Finding>,
}

/// A fault, and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Prefill or decode.
    pub phase: Phase,
    /// Position of the pass's first token.
    pub first: usize,
    /// The dispatch within the pass, from 0.
    pub call: usize,
    /// The program.
    pub program: String,
    /// Its buffer set.
    pub set: String,
    /// The launch that writes the slot; none where bytes were only moved.
    pub launch: Option<String>,
    /// The slot's number in the program.
    pub slot: usize,
    /// Its name.
    pub slot_name: String,
    /// The op: that of the launch, or the one that computed a value that was moved.
    pub op: Option<&'static str>,
    /// Its number in the graph.
    pub node: Option<usize>,
    /// Its layer.
    pub layer: Option<usize>,
    /// The mismatch.
    pub what: Mismatch,
}

/// How bytes are wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Mismatch {
    /// An op's result is too far from the value computed from its operands.
    Op {
        /// The worst element's row: a token of the pass.
        row: usize,
        /// Its column.
        col: usize,
        /// The op's value in f64.
        expected: f64,
        /// The device's value.
        found: f64,
        /// The largest allowed distance.
        tolerance: f64,
        /// Elements beyond their tolerance.
        n_wrong: u64,
        /// Elements compared.
        n_elements: u64,
    },
    /// A weight or table differs from the checkpoint's.
    Static {
        /// The first byte that differs; in a layout of the target's own, the first number of the matrix.
        at: usize,
        /// Bytes that differ, or numbers.
        n_wrong: usize,
    },
    /// A value that arrived differs from the one that was sent.
    Value {
        /// The first byte that differs.
        at: usize,
        /// Bytes that differ.
        n_wrong: usize,
    },
}
