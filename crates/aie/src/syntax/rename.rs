//! Other names for the values of ops.

use super::{AffineExpression, Attribute, Op};

impl Op {
    /// Gives all values of an op, and of those within, other names.
    pub(crate) fn rename(&mut self, names: &dyn Fn(&str) -> String) {
        let new = |name: &mut String| *name = names(name);
        self.operands.iter_mut().for_each(new);
        self.results.iter_mut().for_each(new);
        for (_, value) in &mut self.attributes {
            rename_in(value, names);
        }
        for successor in &mut self.successors {
            successor.operands.iter_mut().for_each(new);
        }
        for block in self
            .regions
            .iter_mut()
            .flat_map(|region| &mut region.blocks)
        {
            block.arguments.iter_mut().for_each(|(name, _)| new(name));
            block.ops.iter_mut().for_each(|op| op.rename(names));
        }
    }
}

fn rename_in(value: &mut Attribute, names: &dyn Fn(&str) -> String) {
    match value {
        Attribute::Value(name) => *name = names(name),
        Attribute::Array(all) => all.iter_mut().for_each(|value| rename_in(value, names)),
        Attribute::Fields(all) => all.values_mut().for_each(|value| rename_in(value, names)),
        Attribute::Affine(of) => rename_affine(of, names),
        _ => {}
    }
}

fn rename_affine(of: &mut AffineExpression, names: &dyn Fn(&str) -> String) {
    match of {
        AffineExpression::Value(name) => *name = names(name),
        AffineExpression::Of(_, both) => both.iter_mut().for_each(|of| rename_affine(of, names)),
        AffineExpression::Constant(_) => {}
    }
}
