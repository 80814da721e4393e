//! Calls of tile kernels against the table of tile kernels.

use super::rule::{Rule, RuleFinding};
use crate::program::{Channel, Flat, Herd, Op, Operand};
use crate::tile::{self, CallShape};
use millrace_npu::Element;

/// Refuses a call of an unknown kernel, of operands it does not take, of an output that is a received block or also
/// another operand. `block` returns the channel of a held block and whether the core is to send it.
pub(super) fn check<'p>(
    flat: &Flat<'p>,
    herd: &Herd,
    op: &Op,
    block: &dyn Fn(u8) -> Option<(&'p Channel, bool)>,
) -> Result<(), RuleFinding> {
    let Op::Call {
        kernel,
        dims,
        operands,
        scalars,
        constants,
    } = op
    else {
        return Ok(());
    };
    let refuse = |message: String, fix: &str| {
        let message = format!("call of {kernel}{dims:?}: {message}");
        Err(RuleFinding::new(Rule::Kernel, message).fix(fix.to_string()))
    };
    let Some(row) = tile::find(kernel) else {
        return refuse("no such tile kernel".into(), &nearest(kernel));
    };
    let found = match operand_shapes(row.inputs, herd, operands, block) {
        Ok(found) => found,
        Err((message, fix)) => return refuse(message, fix),
    };
    let shape = CallShape {
        dims,
        operands: &found,
        n_scalars: scalars.len(),
        constants,
    };
    match (row.check)(&shape) {
        Ok(()) => Ok(()),
        Err(message) => refuse(
            message,
            &format!(
                "In launch {}, fit dims, blocks and locals to each other",
                flat.launch.name
            ),
        ),
    }
}

/// Type and size of each operand; else the fault of one, and the remedy.
fn operand_shapes<'p>(
    inputs: usize,
    herd: &Herd,
    operands: &[Operand],
    block: &dyn Fn(u8) -> Option<(&'p Channel, bool)>,
) -> Result<Vec<(Element, u64)>, (String, &'static str)> {
    let mut found = Vec::with_capacity(operands.len());
    for (position, operand) in operands.iter().enumerate() {
        found.push(match *operand {
            Operand::Local(local) => {
                let local = &herd.locals[local];
                let n = local.shape.iter().map(|&d| u64::from(d)).product();
                (local.element, n)
            }
            Operand::Block(b) => {
                let Some((channel, new)) = block(b) else {
                    continue;
                };
                if position >= inputs && !new {
                    let message = format!(
                        "output {position} is b{b}, a received block of {}",
                        channel.name
                    );
                    return Err((message, "Write to a local or to a block that is to be sent"));
                }
                (channel.element, channel.block_elements())
            }
        });
        if position >= inputs && operands.iter().filter(|o| *o == operand).count() > 1 {
            let message = format!("output {position} is also another operand");
            let fix = "Name a buffer once; one that is read and written is an output";
            return Err((message, fix));
        }
    }
    Ok(found)
}

fn nearest(name: &str) -> String {
    let stem = name.split('.').next().unwrap_or(name);
    let same = tile::TABLE.iter().map(|k| k.name);
    let same: Vec<&str> = same.filter(|n| n.split('.').next() == Some(stem)).collect();
    if same.is_empty() {
        "Choose one of the table of tile kernels".to_string()
    } else {
        format!("Variants are {}", same.join(", "))
    }
}
