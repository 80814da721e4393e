//! An op that is defined outside of this crate. It runs by its definition, wherever a graph runs.

use super::{Attention, MatrixProduct, OpRole, Operation, WeightUse};
use crate::check::Shapes;
use crate::{Depth, Graph, OpCost, SequenceMemory, TokenContext};
use std::ops::Deref;
use std::sync::Arc;

/// A user-defined op. Two are equal if they are the same object.
#[derive(Clone, Debug)]
pub struct Extension(Arc<dyn Operation>);

impl Extension {
    /// Creates an op from its definition.
    pub fn new(op: impl Operation + 'static) -> Extension {
        Extension(Arc::new(op))
    }
}

impl PartialEq for Extension {
    fn eq(&self, other: &Extension) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Operation for Extension {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn arity(&self) -> usize {
        self.0.arity()
    }

    fn weights(&self) -> Vec<WeightUse> {
        self.0.weights()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        self.0.check(shapes)
    }

    fn memory(&self) -> SequenceMemory {
        self.0.memory()
    }

    fn in_place(&self) -> &'static [usize] {
        self.0.in_place()
    }

    fn product(&self) -> Option<MatrixProduct<'_>> {
        self.0.product()
    }

    fn attention(&self) -> Option<&Attention> {
        self.0.attention()
    }

    fn role(&self) -> OpRole {
        self.0.role()
    }

    fn shares_input(&self) -> bool {
        self.0.shares_input()
    }

    fn cost(&self, graph: &Graph, depth: &Depth) -> OpCost {
        self.0.cost(graph, depth)
    }

    fn row(&self, row: &TokenContext<'_, f32>, state: &mut [f32], out: &mut [f32]) {
        self.0.deref().row(row, state, out);
    }

    fn row_f64(&self, row: &TokenContext<'_, f64>, state: &mut [f64], out: &mut [f64]) {
        self.0.deref().row_f64(row, state, out);
    }
}
