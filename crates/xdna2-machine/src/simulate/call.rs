//! A core's calls of tile kernels: operands found, checked and lent.

use super::block::{BlockContent, ByteBlock};
use super::code::{CallStep, Signature};
use super::context::{LaunchContext, Trouble};
use super::core::{BlockBinding, CoreActor};
use super::counters::Tally;
use super::ends::{Receiver, Sender};
use crate::program::Operand;
use crate::tile::{CallShape, TileCall};
use millrace_npu::Element;
use std::sync::Arc;

/// Number of scalars of a call that need no allocation.
const FEW_SCALARS: usize = 8;

impl<'p> CoreActor<'p> {
    /// Element type of an operand.
    fn element(
        &self,
        operand: Operand,
        senders: &[Sender<'p>],
        receivers: &[Receiver<'p>],
        ctx: &LaunchContext<'_>,
    ) -> Option<(Element, usize)> {
        let of_channel = |channel: usize| ctx.flat.channels[channel].decl.element;
        match operand {
            Operand::Local(local) => {
                let decl = &ctx.flat.cores[self.number].decl.locals[local];
                Some((decl.element, self.locals[local].len()))
            }
            Operand::Block(block) => match &self.held[usize::from(block)] {
                BlockBinding::Nothing => None,
                BlockBinding::Taken(at, parcel) => {
                    Some((of_channel(receivers[*at].channel), parcel.block.len()))
                }
                BlockBinding::New(at, block) => {
                    Some((of_channel(senders[*at].channel), block.len()))
                }
            },
        }
    }

    pub(super) fn call(
        &mut self,
        call: &CallStep<'_>,
        senders: &[Sender<'p>],
        receivers: &[Receiver<'p>],
        ctx: &LaunchContext<'_>,
        tally: &mut Tally,
    ) -> Result<(), Trouble> {
        let kernel = call.kernel;
        let found = |operand: &Operand| {
            let (element, len) = self.element(*operand, senders, receivers, ctx)?;
            Some((element, len as u64 / element.size_bytes()))
        };
        let accepted = self.accepted[call.number].iter().copied().map(Some);
        if !call.operands.iter().map(found).eq(accepted) {
            let mut signature = Signature::with_capacity(call.operands.len());
            for operand in call.operands {
                let Some(found) = found(operand) else {
                    let problem = format!(
                        "`{}` is given {operand:?}, which names no block",
                        kernel.name
                    );
                    return Err(self.trouble(problem, ctx));
                };
                signature.push(found);
            }
            let shape = CallShape {
                dims: call.dims,
                operands: &signature,
                n_scalars: call.scalars.len(),
                constants: call.constants,
            };
            (kernel.check)(&shape).map_err(|problem| {
                self.trouble(format!("`{}` {:?}: {problem}", kernel.name, call.dims), ctx)
            })?;
            self.accepted[call.number] = signature;
        }
        let env = self.env(ctx);
        let (mut few, mut many) = ([0; FEW_SCALARS], Vec::new());
        let scalars = match call.scalars.len() {
            n @ 0..=FEW_SCALARS => &mut few[..n],
            n => {
                many.resize(n, 0);
                &mut many[..]
            }
        };
        for (value, scalar) in scalars.iter_mut().zip(call.scalars) {
            *value = scalar.at(&env);
        }
        tally.add_call((kernel.work)(call.dims, scalars));
        self.compute(call, scalars, ctx)
    }

    /// Lends the operands to the kernel.
    fn compute(
        &mut self,
        call: &CallStep<'_>,
        scalars: &[i64],
        ctx: &LaunchContext<'_>,
    ) -> Result<(), Trouble> {
        let (inputs, outputs) = call.operands.split_at(call.kernel.inputs);
        if let Some(twice) = (1..outputs.len()).find(|&i| outputs[..i].contains(&outputs[i])) {
            let problem = format!("`{}` writes {:?} twice", call.kernel.name, outputs[twice]);
            return Err(self.trouble(problem, ctx));
        }
        // An operand both read and written is read as it was before the call.
        let copies: Vec<(Operand, ByteBlock)> = (inputs.iter())
            .filter(|input| outputs.contains(input))
            .map(|input| (*input, ByteBlock::copy_of(self.content(*input))))
            .collect();
        let mut lent = std::mem::take(&mut self.lent);
        lent.extend(outputs.iter().map(|output| self.lend(*output)));
        (call.kernel.run)(&mut TileCall {
            cpu: ctx.cpu,
            dims: call.dims,
            inputs: (inputs.iter())
                .map(|input| {
                    let copy = copies.iter().find(|(operand, _)| operand == input);
                    copy.map_or_else(|| self.content(*input), |(_, copy)| copy.bytes())
                })
                .collect(),
            outputs: lent.iter_mut().map(ByteBlock::bytes_mut).collect(),
            scalars,
            constants: call.constants,
        });
        for (output, block) in outputs.iter().zip(lent.drain(..)) {
            self.give_back(*output, block);
        }
        self.lent = lent;
        Ok(())
    }

    /// The bytes of an operand that has some.
    fn content(&self, operand: Operand) -> &[u8] {
        match operand {
            Operand::Local(local) => self.locals[local].bytes(),
            Operand::Block(block) => match &self.held[usize::from(block)] {
                BlockBinding::Taken(_, parcel) => parcel.block.bytes(),
                BlockBinding::New(_, block) => block.bytes(),
                BlockBinding::Nothing => unreachable!("operands were looked up before"),
            },
        }
    }

    /// Takes the buffer of an operand out, to write. A block shared with other cores is copied: each has its own copy
    /// in L1.
    fn lend(&mut self, operand: Operand) -> ByteBlock {
        match operand {
            Operand::Local(local) => std::mem::take(&mut self.locals[local]),
            Operand::Block(block) => match &mut self.held[usize::from(block)] {
                BlockBinding::Taken(_, parcel) => std::mem::take(parcel.block.own_mut()),
                BlockBinding::New(_, block) => std::mem::take(block),
                BlockBinding::Nothing => ByteBlock::default(),
            },
        }
    }

    fn give_back(&mut self, operand: Operand, content: ByteBlock) {
        match operand {
            Operand::Local(local) => self.locals[local] = content,
            Operand::Block(block) => match &mut self.held[usize::from(block)] {
                BlockBinding::Taken(_, parcel) => {
                    parcel.block = BlockContent::Own(Arc::new(content))
                }
                BlockBinding::New(_, block) => *block = content,
                BlockBinding::Nothing => {}
            },
        }
    }
}
