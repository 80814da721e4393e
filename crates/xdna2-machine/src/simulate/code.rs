//! A core program as a flat list of steps, so that it can stop at any and go on later.

use crate::program::{Affine, Condition, Herd, Op, Operand};
use crate::tile::{self, TileKernel};
use millrace_npu::Element;

/// One step.
pub enum CoreStep<'p> {
    /// Begins a loop, or goes to `end` if the count is zero.
    Begin {
        /// Number of turns.
        count: &'p Affine,
        /// The step after its `End`.
        end: usize,
    },
    /// Goes back to `begin` unless that was the last time.
    End {
        /// The loop's `Begin`.
        begin: usize,
    },
    /// Goes to `otherwise` unless the condition holds.
    Unless {
        /// Compared with zero.
        value: &'p Affine,
        /// The comparison.
        condition: Condition,
        /// The target.
        otherwise: usize,
    },
    /// Goes there.
    Jump(usize),
    /// Waits for a full block.
    Get {
        /// Index in the launch's channels.
        channel: usize,
        /// Index in the bundle.
        index: &'p [Affine],
        /// The block's name.
        block: u8,
    },
    /// Gives back a block that `Get` took.
    Free(u8),
    /// Waits for an empty block.
    New {
        /// Index in the launch's channels.
        channel: usize,
        /// Index in the bundle.
        index: &'p [Affine],
        /// The block's name.
        block: u8,
    },
    /// Sends a block that `New` took.
    Put(u8),
    /// Calls a tile kernel.
    Call(Box<CallStep<'p>>),
    /// A call that makes no sense.
    Fault(String),
}

/// A call, with its kernel found.
pub struct CallStep<'p> {
    /// The kernel.
    pub kernel: &'static TileKernel,
    /// Dimensions.
    pub dims: &'p [u32],
    /// Buffers, inputs first.
    pub operands: &'p [Operand],
    /// Numbers that the core computes.
    pub scalars: &'p [Affine],
    /// Constants compiled in.
    pub constants: &'p [u32],
    /// Position among the calls of the program.
    pub number: usize,
}

/// A herd's program.
pub struct HerdCode<'p> {
    /// The steps in order.
    pub steps: Vec<CoreStep<'p>>,
    /// Calls among them.
    pub n_calls: usize,
    /// Block names are below this.
    pub n_names: usize,
}

/// Element type and number of elements, as kernels check them.
pub type Signature = Vec<(Element, u64)>;

impl<'p> HerdCode<'p> {
    /// The steps of a herd's body.
    ///
    /// # Errors
    /// None today; an invalid call becomes a step that reports the fault.
    pub fn new(herd: &'p Herd) -> Result<HerdCode<'p>, String> {
        let mut code = HerdCode {
            steps: Vec::new(),
            n_calls: 0,
            n_names: 0,
        };
        code.body(&herd.body, herd)?;
        Ok(code)
    }

    fn name(&mut self, block: u8) -> u8 {
        self.n_names = self.n_names.max(usize::from(block) + 1);
        block
    }

    fn body(&mut self, ops: &'p [Op], herd: &'p Herd) -> Result<(), String> {
        for op in ops {
            self.op(op, herd)?;
        }
        Ok(())
    }

    fn op(&mut self, op: &'p Op, herd: &'p Herd) -> Result<(), String> {
        match op {
            Op::Loop { count, body } => {
                let begin = self.steps.len();
                self.steps.push(CoreStep::Begin { count, end: 0 });
                self.body(body, herd)?;
                self.steps.push(CoreStep::End { begin });
                let end = self.steps.len();
                self.steps[begin] = CoreStep::Begin { count, end };
            }
            Op::If {
                value,
                condition,
                then,
                otherwise,
            } => self.branch(value, *condition, then, otherwise, herd)?,
            Op::Get {
                channel,
                index,
                block,
            } => {
                let block = self.name(*block);
                self.steps.push(CoreStep::Get {
                    channel: *channel,
                    index,
                    block,
                });
            }
            Op::New {
                channel,
                index,
                block,
            } => {
                let block = self.name(*block);
                self.steps.push(CoreStep::New {
                    channel: *channel,
                    index,
                    block,
                });
            }
            Op::Free { block } => {
                let block = self.name(*block);
                self.steps.push(CoreStep::Free(block));
            }
            Op::Put { block } => {
                let block = self.name(*block);
                self.steps.push(CoreStep::Put(block));
            }
            Op::Call {
                kernel,
                dims,
                operands,
                scalars,
                constants,
            } => {
                let number = self.n_calls;
                self.n_calls += 1;
                let kernel = match find(kernel, operands, herd) {
                    Ok(kernel) => kernel,
                    // The verifier accepts faults in steps that never run.
                    Err(problem) => {
                        self.steps.push(CoreStep::Fault(problem));
                        return Ok(());
                    }
                };
                for operand in operands {
                    if let Operand::Block(block) = operand {
                        self.name(*block);
                    }
                }
                self.steps.push(CoreStep::Call(Box::new(CallStep {
                    kernel,
                    dims,
                    operands,
                    scalars,
                    constants,
                    number,
                })));
            }
        }
        Ok(())
    }

    fn branch(
        &mut self,
        value: &'p Affine,
        condition: Condition,
        then: &'p [Op],
        otherwise: &'p [Op],
        herd: &'p Herd,
    ) -> Result<(), String> {
        let at = self.steps.len();
        self.steps.push(CoreStep::Jump(0));
        self.body(then, herd)?;
        let jump = self.steps.len();
        self.steps.push(CoreStep::Jump(0));
        self.steps[at] = CoreStep::Unless {
            value,
            condition,
            otherwise: self.steps.len(),
        };
        self.body(otherwise, herd)?;
        self.steps[jump] = CoreStep::Jump(self.steps.len());
        Ok(())
    }
}

/// The kernel of a call; checks the number of its operands, and that they exist.
fn find(name: &str, operands: &[Operand], herd: &Herd) -> Result<&'static TileKernel, String> {
    let kernel = tile::find(name).ok_or_else(|| format!("there is no tile kernel `{name}`"))?;
    let expected = kernel.inputs + kernel.outputs;
    if operands.len() != expected {
        return Err(format!(
            "`{name}` takes {expected} operands, {} given",
            operands.len()
        ));
    }
    for operand in operands {
        if let Operand::Local(local) = operand
            && *local >= herd.locals.len()
        {
            return Err(format!(
                "`{name}` names local buffer {local} of {}",
                herd.locals.len()
            ));
        }
    }
    Ok(kernel)
}
