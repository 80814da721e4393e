//! Words of a descriptor in the terms of `aie.dma_bd`: in elements.

use crate::lower::NoWords;
use millrace_npu::Element;
use millrace_xdna2_words::WordField as F;
use millrace_xdna2_words::tile::TileKind;
use std::fmt;

/// An element's type in MLIR, and in the C++ of a core.
pub(super) fn element_types(element: Element) -> Result<(&'static str, &'static str), NoWords> {
    Ok(match element {
        Element::U8 => ("ui8", "uint8_t"),
        Element::I8 => ("i8", "int8_t"),
        Element::I16 => ("i16", "int16_t"),
        Element::I32 => ("i32", "int32_t"),
        Element::Bf16 => ("bf16", "bfloat16"),
        Element::F32 => ("f32", "float"),
        Element::F16 | Element::F8E4m3 | Element::I4 => {
            let problem = format!("the cores' C++ has no type for {element}");
            return Err(NoWords::new("a buffer", problem));
        }
    })
}

/// `memref<…>` of so many elements.
pub(super) fn memref(element: Element, n_elements: u64) -> Result<String, NoWords> {
    Ok(format!(
        "memref<{n_elements}x{}>",
        element_types(element)?.0
    ))
}

/// Length and dimensions of a descriptor in elements; its text is `length, [<size, stride>, …]`.
#[derive(Debug)]
pub(super) struct DescriptorText {
    length: u64,
    /// Sizes and strides, the outermost first; none for contiguous elements.
    dimensions: Vec<(u64, u64)>,
}

const WORD_BYTES: u64 = 4;
const WRAPS: [F; 3] = [F::D0Wrap, F::D1Wrap, F::D2Wrap];
const STEPS: [F; 4] = [F::D0Step, F::D1Step, F::D2Step, F::D3Step];

impl DescriptorText {
    /// Text of a descriptor's fields, for elements of a type.
    pub(super) fn new(
        fields: &[(F, u64)],
        element: Element,
        kind: TileKind,
    ) -> Result<DescriptorText, String> {
        let get = |field: F| fields.iter().find(|row| row.0 == field).map(|row| row.1);
        let words = get(F::Length).ok_or("a descriptor without a length")?;
        let per_word = WORD_BYTES / element.size_bytes();
        // Innermost first, in words.
        let mut dimensions: Vec<(u64, u64)> = Vec::new();
        let mut inner = 1;
        for (d, step) in STEPS.into_iter().enumerate() {
            let Some(step) = get(step) else { break };
            let size = WRAPS.get(d).and_then(|&wrap| get(wrap));
            let size = size.unwrap_or(words / inner).max(1);
            inner *= size;
            dimensions.push((size, step + 1));
        }
        if let [(_, 1)] = dimensions[..] {
            dimensions.clear();
        }
        // In elements: those of a word are contiguous.
        match dimensions.first_mut() {
            Some((size, 1)) => {
                *size *= per_word;
                dimensions[1..].iter_mut().for_each(|row| row.1 *= per_word);
            }
            Some(_) => {
                dimensions.iter_mut().for_each(|row| row.1 *= per_word);
                if per_word > 1 {
                    dimensions.insert(0, (per_word, 1));
                }
            }
            None => {}
        }
        let most = if kind == TileKind::Memory { 4 } else { 3 };
        if dimensions.len() > most {
            let n = dimensions.len();
            return Err(format!(
                "{n} dimensions in elements of {element}; {most} are there"
            ));
        }
        if let Some(n) = get(F::IterationWrap) {
            // `aie.dma_bd` writes an iteration as the dimension outside of all others.
            if dimensions.len() != most || kind != TileKind::Shim {
                return Err("an iteration outside of fewer dimensions than there are".to_owned());
            }
            let step = get(F::IterationStep).unwrap_or(0) + 1;
            dimensions.push((n + 1, step * per_word));
        }
        dimensions.reverse();
        Ok(DescriptorText {
            length: words * per_word,
            dimensions,
        })
    }
}

impl fmt::Display for DescriptorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.length)?;
        if self.dimensions.is_empty() {
            return Ok(());
        }
        let dimension =
            |&(size, stride): &(u64, u64)| format!("<size = {size}, stride = {stride}>");
        let all: Vec<String> = self.dimensions.iter().map(dimension).collect();
        write!(f, ", [{}]", all.join(", "))
    }
}
