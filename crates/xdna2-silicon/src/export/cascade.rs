//! Blocks through the cascade.

use super::core::{BufferInHand, CoreText};
use super::descriptor::{element_types, memref};
use crate::core::BlockEnd;
use crate::lower::NoWords;
use millrace_npu::Element;

/// Words of a value in the cascade.
const CASCADE_WORDS: usize = 16;

impl CoreText<'_> {
    /// A block through the cascade, 512 bits at a time; the last value may be filled in part.
    pub(super) fn cascade(
        &mut self,
        held: &BufferInHand,
        end: &BlockEnd,
        is_input: bool,
    ) -> Result<(), NoWords> {
        let lanes = CASCADE_WORDS as u64 * 4 / held.element.size_bytes();
        let n_whole = end.n_words as u64 / CASCADE_WORDS as u64 * lanes;
        let whole = memref(held.element, held.n_elements)?;
        if n_whole > 0 {
            let count = self.lines.constant(n_whole as i64, "index");
            let at = self.lines.begin_loop(&count, lanes as i64);
            self.cascade_value((&held.name, &whole, &at), held.element, is_input)?;
            self.lines.close("}");
        }
        let n_rest = held.n_elements - n_whole;
        if n_rest == 0 {
            return Ok(());
        }
        let part = memref(held.element, lanes)?;
        let own = self.lines.memory(&part);
        let zero = self.lines.constant(0, "index");
        if is_input {
            self.cascade_value((&own, &part, &zero), held.element, true)?;
        }
        let (count, first) = (
            self.lines.constant(n_rest as i64, "index"),
            self.lines.constant(n_whole as i64, "index"),
        );
        let at = self.lines.begin_loop(&count, 1);
        let there = self
            .lines
            .value(&format!("arith.addi {at}, {first} : index"));
        let [block, own_part] = [(&held.name, &there, &whole), (&own, &at, &part)];
        let (from, to) = if is_input {
            (own_part, block)
        } else {
            (block, own_part)
        };
        let value = self
            .lines
            .value(&format!("memref.load {}[{}] : {}", from.0, from.1, from.2));
        self.lines.line(&format!(
            "memref.store {value}, {}[{}] : {}",
            to.0, to.1, to.2
        ));
        self.lines.close("}");
        if !is_input {
            self.cascade_value((&own, &part, &zero), held.element, false)?;
        }
        Ok(())
    }

    /// 512 bits from the cascade to a place in a buffer, or the other way.
    fn cascade_value(
        &mut self,
        (buffer, of, at): (&str, &str, &str),
        element: Element,
        is_input: bool,
    ) -> Result<(), NoWords> {
        let lanes = CASCADE_WORDS as u64 * 4 / element.size_bytes();
        let vector = format!("vector<{lanes}x{}>", element_types(element)?.0);
        if is_input {
            let value = self.lines.value(&format!("aie.get_cascade() : {vector}"));
            self.lines.line(&format!(
                "vector.store {value}, {buffer}[{at}] : {of}, {vector}"
            ));
        } else {
            let value = self
                .lines
                .value(&format!("vector.load {buffer}[{at}] : {of}, {vector}"));
            self.lines
                .line(&format!("aie.put_cascade({value} : {vector})"));
        }
        Ok(())
    }
}
