//! Tensors, which are values: no later write changes one.

use super::State;
use crate::core::code::Instruction as I;
use crate::core::memory::{Memories, allocate};
use crate::core::value::{Base, CoreValue, MemoryView, Number};
use millrace_xdna2_words::board::CoreView;
use std::rc::Rc;

impl State {
    /// Executes instructions that make tensors and take them apart; `false` for any other.
    pub(super) fn tensor(&mut self, of: &I, core: &mut CoreView<'_, '_>) -> Result<bool, String> {
        match of {
            I::Scratch(to, shape, number) => self.scratch(*to, shape, *number)?,
            I::TakeTensor(to, from) => {
                let mut memories = Memories {
                    core,
                    own: &mut self.own,
                };
                let values = memories.load_all(self.slots[*from].view()?)?;
                self.slots[*to] = CoreValue::Tensor(Rc::new(values));
            }
            I::PutTensor(from, into) => {
                let CoreValue::Tensor(values) = &self.slots[*from] else {
                    return Err("a tensor is needed".to_owned());
                };
                let view = self.slots[*into].view()?;
                if view.n_elements() != values.len() as i64 {
                    return Err(format!(
                        "a tensor of {} elements where {} are wanted",
                        values.len(),
                        view.n_elements()
                    ));
                }
                let mut memories = Memories {
                    core,
                    own: &mut self.own,
                };
                memories.store_all(view, values)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Memory of an op's own: the same in every round of a loop.
    fn scratch(&mut self, to: usize, shape: &[u64], number: Number) -> Result<(), String> {
        if matches!(self.slots[to], CoreValue::View(_)) {
            return Ok(());
        }
        let whole = MemoryView::whole(Base::Own(0), shape, number);
        let n_elements = usize::try_from(whole.n_elements()).unwrap_or(usize::MAX);
        let block = allocate(&mut self.own, n_elements.saturating_mul(number.bytes()))?;
        self.slots[to] = CoreValue::View(MemoryView {
            base: Base::Own(block),
            ..whole
        });
        Ok(())
    }
}
