//! The words of a scratchpad, which a host gives by name.

use super::{MOST_WORDS, PARAMETER};
use crate::design::{Design, HostNumber, ReadOptions};
use crate::syntax::{Location, Op, SyntaxError, Type};

/// A word of the host's scratchpad.
#[derive(Clone, Debug)]
pub(crate) struct ScratchpadWord {
    /// The name that the host uses for it.
    pub(crate) name: String,
    /// Its content; `None` if no one gave it.
    pub(crate) bits: Option<u32>,
}

impl Design {
    /// The host's scratchpad; zeros for words without a given content, which nothing uses.
    pub(crate) fn scratchpad_words(&self) -> Vec<u32> {
        let words = self.scratchpad.iter();
        words.map(|word| word.bits.unwrap_or(0)).collect()
    }

    /// A word of the host's scratchpad, for an op that uses it.
    pub(crate) fn scratchpad_word(
        &self,
        at: Location,
        op: &str,
        entry: u8,
    ) -> Result<u32, SyntaxError> {
        let word = self.scratchpad.get(usize::from(entry));
        let problem = match word {
            None => format!("word {entry} of a scratchpad, which has {MOST_WORDS} at most"),
            Some(word) => match word.bits {
                Some(bits) => return Ok(bits),
                None => format!(
                    "word {entry} of the scratchpad is the host's: give it by --number {}=VALUE",
                    word.name
                ),
            },
        };
        Err(SyntaxError::new(at, problem).in_op(op))
    }
}

/// Words from the host's numbers: of parameters that a text declares, and of others by their index.
pub(in crate::design) fn words(
    outside: &[&Op],
    options: &ReadOptions,
) -> Result<Vec<ScratchpadWord>, SyntaxError> {
    let mut all = Vec::new();
    for i in 0..MOST_WORDS {
        let name = format!("scratchpad{i}");
        let bits = match options.numbers.get(&name).map(|of| of.whole()) {
            None => None,
            Some(value) => {
                let bits = value.and_then(|value| u32::try_from(value).ok());
                let problem = format!("{name} is a word: a whole number of 0 to 4294967295");
                Some(bits.ok_or_else(|| SyntaxError::new(Location::default(), problem))?)
            }
        };
        all.push(ScratchpadWord { name, bits });
    }
    for op in outside.iter().filter(|op| op.name == PARAMETER) {
        let name = op.text("sym_name")?;
        let entry: usize = op.number("state_table_idx")?;
        let given = options.numbers.get(name).copied();
        let bits = given.map(|number| encoded(op, number)).transpose()?;
        if let Some(word) = all.get_mut(entry) {
            *word = ScratchpadWord {
                name: name.to_owned(),
                bits,
            };
        }
    }
    Ok(all)
}

/// A parameter's word as the host has to write it.
fn encoded(op: &Op, number: HostNumber) -> Result<u32, SyntaxError> {
    let (name, is_offset) = (op.text("sym_name")?, op.flag("is_offset"));
    let of = op.types.first();
    if of == Some(&Type::Bf16) {
        let value = match number {
            HostNumber::Whole(value) => value as f64,
            HostNumber::Point(value) => value,
        };
        return Ok(u32::from(half::bf16::from_f64(value).to_bits()) << 2);
    }
    let bits = match of {
        Some(Type::Integer { bits, .. }) => *bits,
        _ => 32,
    };
    // Firmware clears two bits of a word for a core.
    let most = if is_offset { 32 } else { bits.min(30) };
    let least = if bits <= 30 { -1 << (bits - 1) } else { 0 };
    let value = number
        .whole()
        .filter(|value| (least..1i64 << most).contains(value));
    let value = value.ok_or_else(|| {
        let end = (1i64 << most) - 1;
        op.error(format!("@{name} is a whole number of {least} to {end}"))
    })?;
    let value = (value & ((1 << bits) - 1)) as u32;
    Ok(if is_offset { value } else { value << 2 })
}
