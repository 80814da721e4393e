//! Builder of core programs.

use super::Resolver;
use crate::program::{Affine, Condition, Herd, Local, MAX_NESTING, Op, Operand};
use millrace_npu::Element;

/// Blocks a core program can hold at once: names are a byte.
const MAX_BLOCKS: usize = 256;

/// A buffer of a core program: a local, or a block borrowed from a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreBuffer(CoreBufferKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoreBufferKind {
    Local(usize),
    /// Number in [`CoreBuilder::blocks`].
    Block(usize),
}

/// A block that `get` or `new` gave.
#[derive(Clone, Debug)]
struct CoreBlock {
    channel: String,
    name: u8,
    outgoing: bool,
}

/// Writes a core program, one call a step.
#[derive(Debug)]
pub struct CoreBuilder {
    name: String,
    locals: Vec<(String, Element, Vec<i64>)>,
    /// Every block ever named, and whether it is held.
    blocks: Vec<CoreBlock>,
    held: Vec<usize>,
    ops: Vec<Op>,
    /// Names of channels; until they are resolved, `Op`s hold positions in this list.
    channels: Vec<String>,
    depth: u8,
    problems: Vec<String>,
}

impl CoreBuilder {
    pub(super) fn new(name: &str) -> CoreBuilder {
        CoreBuilder {
            name: name.to_owned(),
            locals: Vec::new(),
            blocks: Vec::new(),
            held: Vec::new(),
            ops: Vec::new(),
            channels: Vec::new(),
            depth: 0,
            problems: Vec::new(),
        }
    }

    /// A buffer in L1 that keeps its content within the launch.
    pub fn local(
        &mut self,
        name: &str,
        element: Element,
        shape: impl IntoIterator<Item = i64>,
    ) -> CoreBuffer {
        self.locals
            .push((name.to_owned(), element, shape.into_iter().collect()));
        CoreBuffer(CoreBufferKind::Local(self.locals.len() - 1))
    }

    /// Waits for a full block of an incoming channel.
    pub fn get(&mut self, channel: &str, index: impl IntoIterator<Item = Affine>) -> CoreBuffer {
        let (number, block) = self.block(channel, false);
        let channel = self.channel(channel);
        let index = index.into_iter().collect();
        self.ops.push(Op::Get {
            channel,
            index,
            block,
        });
        number
    }

    /// Waits for an empty block of an outgoing channel.
    pub fn new_block(
        &mut self,
        channel: &str,
        index: impl IntoIterator<Item = Affine>,
    ) -> CoreBuffer {
        let (number, block) = self.block(channel, true);
        let channel = self.channel(channel);
        let index = index.into_iter().collect();
        self.ops.push(Op::New {
            channel,
            index,
            block,
        });
        number
    }

    /// Gives a block from [`get`](CoreBuilder::get) back.
    pub fn free(&mut self, block: CoreBuffer) {
        if let Some(block) = self.release(block, false) {
            self.ops.push(Op::Free { block });
        }
    }

    /// Sends a block from [`new_block`](CoreBuilder::new_block).
    pub fn put(&mut self, block: CoreBuffer) {
        if let Some(block) = self.release(block, true) {
            self.ops.push(Op::Put { block });
        }
    }

    /// Runs the body `count` times; the body gets the loop's variable.
    pub fn for_(&mut self, count: impl Into<Affine>, body: impl FnOnce(&mut CoreBuilder, Affine)) {
        if usize::from(self.depth) == MAX_NESTING {
            self.problems.push("loops are nested too deep".to_owned());
            return;
        }
        let outer = std::mem::take(&mut self.ops);
        let variable = crate::program::expr::l(self.depth);
        self.depth += 1;
        body(self, variable);
        self.depth -= 1;
        let body = std::mem::replace(&mut self.ops, outer);
        self.ops.push(Op::Loop {
            count: count.into(),
            body,
        });
    }

    /// Runs one of two bodies. Each may free or put a block from outside. A block that only one of them gives back
    /// counts as given back.
    pub fn if_else(
        &mut self,
        value: impl Into<Affine>,
        condition: Condition,
        then: impl FnOnce(&mut CoreBuilder),
        otherwise: impl FnOnce(&mut CoreBuilder),
    ) {
        let outer = std::mem::take(&mut self.ops);
        let held = self.held.clone();
        then(self);
        let after_then = std::mem::replace(&mut self.held, held);
        let then = std::mem::take(&mut self.ops);
        otherwise(self);
        self.held.retain(|block| after_then.contains(block));
        let otherwise = std::mem::replace(&mut self.ops, outer);
        self.ops.push(Op::If {
            value: value.into(),
            condition,
            then,
            otherwise,
        });
    }

    /// Calls a tile kernel: its dimensions, then its operands, inputs first.
    pub fn call(
        &mut self,
        kernel: &str,
        dims: impl IntoIterator<Item = i64>,
        operands: impl IntoIterator<Item = CoreBuffer>,
    ) {
        self.call_with(kernel, dims, operands, [], []);
    }

    /// Calls a tile kernel that also takes scalars computed by the core, and constants.
    pub fn call_with(
        &mut self,
        kernel: &str,
        dims: impl IntoIterator<Item = i64>,
        operands: impl IntoIterator<Item = CoreBuffer>,
        scalars: impl IntoIterator<Item = Affine>,
        constants: impl IntoIterator<Item = f32>,
    ) {
        let operands: Vec<CoreBuffer> = operands.into_iter().collect();
        let operands = operands
            .into_iter()
            .filter_map(|operand| match operand.0 {
                CoreBufferKind::Local(local) => Some(Operand::Local(local)),
                CoreBufferKind::Block(_) => self.name_of(operand, kernel).map(Operand::Block),
            })
            .collect();
        let dims: Vec<i64> = dims.into_iter().collect();
        if let Some(bad) = dims.iter().find(|&&d| u32::try_from(d).is_err()) {
            let problem = format!("call of `{kernel}`: {bad} is not a size");
            self.problems.push(problem);
        }
        self.ops.push(Op::Call {
            kernel: kernel.to_owned(),
            dims: dims.iter().map(|&d| d as u32).collect(),
            operands,
            scalars: scalars.into_iter().collect(),
            constants: constants.into_iter().map(f32::to_bits).collect(),
        });
    }

    fn channel(&mut self, name: &str) -> usize {
        let known = self.channels.iter().position(|c| c == name);
        known.unwrap_or_else(|| {
            self.channels.push(name.to_owned());
            self.channels.len() - 1
        })
    }

    /// A block under the smallest name that no held block has.
    fn block(&mut self, channel: &str, outgoing: bool) -> (CoreBuffer, u8) {
        let taken = |name: u8| self.held.iter().any(|&b| self.blocks[b].name == name);
        let name = (0..=u8::MAX).find(|&name| !taken(name)).unwrap_or_else(|| {
            let problem = format!("more than {MAX_BLOCKS} blocks are held at once");
            self.problems.push(problem);
            0
        });
        let number = self.blocks.len();
        self.blocks.push(CoreBlock {
            channel: channel.to_owned(),
            name,
            outgoing,
        });
        self.held.push(number);
        (CoreBuffer(CoreBufferKind::Block(number)), name)
    }

    fn release(&mut self, buffer: CoreBuffer, put: bool) -> Option<u8> {
        let verb = if put { "put" } else { "free" };
        let name = self.name_of(buffer, verb)?;
        let CoreBufferKind::Block(number) = buffer.0 else {
            return None;
        };
        let block = &self.blocks[number];
        if block.outgoing != put {
            let (got, right) = match put {
                true => ("get", "free"),
                false => ("new_block", "put"),
            };
            let problem = format!(
                "{verb} of a block of channel `{}` that `{got}` gave: use `{right}`",
                block.channel
            );
            self.problems.push(problem);
        }
        self.held.retain(|&held| held != number);
        Some(name)
    }

    fn name_of(&mut self, buffer: CoreBuffer, what: &str) -> Option<u8> {
        let problem = match buffer.0 {
            CoreBufferKind::Local(local) => match self.locals.get(local) {
                Some((name, ..)) => format!("{what}: `{name}` is a local buffer, not a block"),
                None => format!("{what}: a local buffer of another herd"),
            },
            CoreBufferKind::Block(number) => match self.blocks.get(number) {
                Some(block) if self.held.contains(&number) => return Some(block.name),
                Some(block) => format!(
                    "{what}: a block of channel `{}` is used after it was given back",
                    block.channel
                ),
                None => format!("{what}: a block of another herd"),
            },
        };
        self.problems.push(problem);
        None
    }

    pub(super) fn finish(self, at: (i64, i64), size: (i64, i64)) -> HerdParts {
        HerdParts {
            core: self,
            at,
            size,
        }
    }
}

/// A herd whose channels are still names.
#[derive(Debug)]
pub(super) struct HerdParts {
    core: CoreBuilder,
    at: (i64, i64),
    size: (i64, i64),
}

impl HerdParts {
    pub(super) fn resolve(self, resolver: &mut Resolver<'_>) -> Herd {
        let core = self.core;
        let place = format!("herd `{}`", core.name);
        for problem in &core.problems {
            resolver.problem(&place, problem);
        }
        let channels: Vec<usize> = core
            .channels
            .iter()
            .map(|name| resolver.channel(&place, name))
            .collect();
        let mut body = core.ops;
        rename(&mut body, &channels);
        let locals = core
            .locals
            .into_iter()
            .map(|(name, element, shape)| Local {
                shape: resolver.sizes(&format!("{place}, local `{name}`"), &shape),
                name,
                element,
            })
            .collect();
        Herd {
            col: resolver.size(&place, self.at.0),
            row: resolver.size(&place, self.at.1),
            cols: resolver.size(&place, self.size.0),
            rows: resolver.size(&place, self.size.1),
            name: core.name,
            locals,
            body,
        }
    }
}

fn rename(ops: &mut [Op], channels: &[usize]) {
    for op in ops {
        match op {
            Op::Get { channel, .. } | Op::New { channel, .. } => *channel = channels[*channel],
            Op::Loop { body, .. } => rename(body, channels),
            Op::If {
                then, otherwise, ..
            } => {
                rename(then, channels);
                rename(otherwise, channels);
            }
            Op::Free { .. } | Op::Put { .. } | Op::Call { .. } => {}
        }
    }
}
