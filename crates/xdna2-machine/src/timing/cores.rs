//! Core programs, compiled to a list of steps that a counter walks.

use super::TimingError;
use super::points::work_needs_scalars;
use crate::Profile;
use crate::profile::Cycles;
use crate::program::{Affine, Condition, Env, Launch, Op};
use crate::tile::{self, TileKernel, TileWork};

/// One step.
pub(super) enum TimingInstruction {
    /// Begins a loop, or goes past its `Next` if the count is zero.
    Loop {
        count: Affine,
        after: usize,
        merged: u64,
    },
    /// Ends a loop's body.
    Next {
        body: usize,
    },
    /// Goes on, or elsewhere if the condition does not hold.
    Branch {
        value: Affine,
        condition: Condition,
        otherwise: usize,
    },
    Jump(usize),
    Get {
        bundle: usize,
        index: Vec<Affine>,
        block: u8,
    },
    New {
        bundle: usize,
        index: Vec<Affine>,
        block: u8,
    },
    Free(u8),
    Put(u8),
    Call(Box<CallCycles>),
}

/// Cost of a call.
pub(super) struct CallCycles {
    pub(super) name: String,
    kernel: &'static TileKernel,
    cycles: Cycles,
    dims: Vec<u32>,
    scalars: Vec<Affine>,
    /// Cycles, where they do not depend on scalars.
    fixed: Option<f64>,
    /// Calls taken as one.
    pub(super) merged: u64,
}

impl CallCycles {
    pub(super) fn cycles(&self, env: &Env<'_>) -> f64 {
        let one = self.fixed.unwrap_or_else(|| {
            let scalars: Vec<i64> = self.scalars.iter().map(|s| s.at(env)).collect();
            self.cycles.of((self.kernel.work)(&self.dims, &scalars))
        });
        one * self.merged as f64
    }
}

struct Compiler<'a> {
    launch: &'a Launch,
    profile: &'a Profile,
    steps: Vec<TimingInstruction>,
}

/// Compiles a herd's body; loops at the top level have that many iterations merged.
pub(super) fn compile(
    body: &[Op],
    launch: &Launch,
    profile: &Profile,
    merged: u64,
) -> Result<Vec<TimingInstruction>, TimingError> {
    let mut compiler = Compiler {
        launch,
        profile,
        steps: Vec::new(),
    };
    compiler.ops(body, merged, 1)?;
    Ok(compiler.steps)
}

impl Compiler<'_> {
    fn ops(&mut self, body: &[Op], merge: u64, merged: u64) -> Result<(), TimingError> {
        body.iter().try_for_each(|op| self.op(op, merge, merged))
    }

    fn op(&mut self, op: &Op, merge: u64, merged: u64) -> Result<(), TimingError> {
        match op {
            Op::Loop { count, body } => self.repeat(count, body, merge),
            Op::If {
                value,
                condition,
                then,
                otherwise,
            } => self.branch(value, *condition, [then, otherwise], merged),
            Op::Call {
                kernel,
                dims,
                scalars,
                ..
            } => {
                let cost = self.cost(kernel, dims, scalars, merged)?;
                self.steps.push(TimingInstruction::Call(Box::new(cost)));
                Ok(())
            }
            Op::Get {
                channel,
                index,
                block,
            } => self.push(TimingInstruction::Get {
                bundle: *channel,
                index: index.clone(),
                block: *block,
            }),
            Op::New {
                channel,
                index,
                block,
            } => self.push(TimingInstruction::New {
                bundle: *channel,
                index: index.clone(),
                block: *block,
            }),
            Op::Free { block } => self.push(TimingInstruction::Free(*block)),
            Op::Put { block } => self.push(TimingInstruction::Put(*block)),
        }
    }

    fn push(&mut self, step: TimingInstruction) -> Result<(), TimingError> {
        self.steps.push(step);
        Ok(())
    }

    fn branch(
        &mut self,
        value: &Affine,
        condition: Condition,
        [then, otherwise]: [&[Op]; 2],
        merged: u64,
    ) -> Result<(), TimingError> {
        let branch = self.steps.len();
        self.steps.push(TimingInstruction::Branch {
            value: value.clone(),
            condition,
            otherwise: 0,
        });
        self.ops(then, 1, merged)?;
        let jump = self.steps.len();
        self.steps.push(TimingInstruction::Jump(0));
        if let TimingInstruction::Branch { otherwise, .. } = &mut self.steps[branch] {
            *otherwise = jump + 1;
        }
        self.ops(otherwise, 1, merged)?;
        self.steps[jump] = TimingInstruction::Jump(self.steps.len());
        Ok(())
    }

    fn repeat(&mut self, count: &Affine, body: &[Op], merge: u64) -> Result<(), TimingError> {
        let begin = self.steps.len();
        self.steps.push(TimingInstruction::Loop {
            count: count.clone(),
            after: 0,
            merged: merge,
        });
        self.ops(body, 1, merge)?;
        self.steps.push(TimingInstruction::Next { body: begin + 1 });
        let end = self.steps.len();
        if let TimingInstruction::Loop { after, .. } = &mut self.steps[begin] {
            *after = end;
        }
        Ok(())
    }

    fn cost(
        &self,
        name: &str,
        dims: &[u32],
        scalars: &[Affine],
        merged: u64,
    ) -> Result<CallCycles, TimingError> {
        let kernel = tile::find(name).ok_or_else(|| TimingError::NoKernel {
            launch: self.launch.name.clone(),
            kernel: name.to_owned(),
        })?;
        let cycles = *self
            .profile
            .kernel(name)
            .ok_or_else(|| TimingError::NoCycles {
                launch: self.launch.name.clone(),
                profile: self.profile.name.clone(),
                kernel: name.to_owned(),
            })?;
        let fixed = (!work_needs_scalars(name, dims, scalars.len())).then(|| {
            let work: TileWork = (kernel.work)(dims, &vec![0; scalars.len()]);
            cycles.of(work)
        });
        Ok(CallCycles {
            name: name.to_owned(),
            kernel,
            cycles,
            dims: dims.to_vec(),
            scalars: scalars.to_vec(),
            fixed,
            merged,
        })
    }
}
