//! Inputs that follow from the position of a pass.

use crate::Element;
use crate::host::{self, MASKED, SequencePart};
use crate::lower::PassSizes;
use millrace_plan::{InputId, PassPosition};

/// Input of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotInput {
    /// Tokens, i32 `[s_q]`.
    Tokens,
    /// Index of the last token that is no padding, i32.
    Last,
    /// Mask added to scores, f32 `[s_q, s_k]`. With a window, keys before it are hidden too; 0 means no window.
    Mask { window: u32 },
    /// Rotations of the pass's positions, bf16 `[s_q, d_k_prime, f, r]`.
    Rotations { rope: u32 },
    /// Rows of a cache of `rows` for the tokens, i32 `[s_q]`: their positions. Padding gets the last row, which belongs
    /// to no token.
    Positions { rows: u32 },
}

const N_KINDS: u32 = 5;

impl SlotInput {
    /// The input as a plan's number.
    pub(super) fn id(self) -> InputId {
        InputId(match self {
            SlotInput::Tokens => 0,
            SlotInput::Last => 1,
            SlotInput::Mask { window } => 2 + N_KINDS * window,
            SlotInput::Rotations { rope } => 3 + N_KINDS * rope,
            SlotInput::Positions { rows } => 4 + N_KINDS * rows,
        })
    }

    /// The input of a plan's number.
    pub(super) fn of(InputId(id): InputId) -> SlotInput {
        let of = id / N_KINDS;
        match id % N_KINDS {
            0 => SlotInput::Tokens,
            1 => SlotInput::Last,
            2 => SlotInput::Mask { window: of },
            3 => SlotInput::Rotations { rope: of },
            _ => SlotInput::Positions { rows: of },
        }
    }

    /// Writes the slot.
    ///
    /// # Errors
    /// A slot of another size, a rotation that the graph lacks.
    pub(super) fn make(self, position: &PassPosition<'_>, out: &mut [u8]) -> Result<(), String> {
        let bytes = match self {
            SlotInput::Tokens => {
                let tokens = position.tokens.iter();
                tokens.flat_map(|token| token.to_le_bytes()).collect()
            }
            SlotInput::Last => {
                let last = position.n_real.saturating_sub(1) as i32;
                last.to_le_bytes().to_vec()
            }
            SlotInput::Mask { window } => mask(position, window as usize, out.len()),
            SlotInput::Rotations { rope } => {
                let rope = position.graph.ropes.get(rope as usize);
                let rope = rope.ok_or_else(|| "the model has no such rotation".to_owned())?;
                let (first, n) = (position.first as u64, position.tokens.len() as u64);
                host::rotations(rope, first..first + n)
            }
            SlotInput::Positions { rows } => {
                let call = PassSizes {
                    batch: 1,
                    n_tokens: position.tokens.len() as u64,
                    n_keys: 0,
                    n_cache: u64::from(rows),
                };
                host::positions(call, &[part(position)])
            }
        };
        if bytes.len() != out.len() {
            return Err(format!("{} bytes for a slot of {}", bytes.len(), out.len()));
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }
}

fn part(position: &PassPosition<'_>) -> SequencePart {
    SequencePart {
        n_past: position.first as u64,
        n_new: position.n_real as u64,
    }
}

/// A token sees itself and earlier ones, within the window. Padding sees the same as the last token.
fn mask(position: &PassPosition<'_>, window: usize, n_bytes: usize) -> Vec<u8> {
    let n_tokens = position.tokens.len().max(1);
    let call = PassSizes {
        batch: 1,
        n_tokens: n_tokens as u64,
        n_keys: (n_bytes / 4 / n_tokens) as u64,
        n_cache: 0,
    };
    let mut mask = host::mask(call, &[part(position)]);
    if window > 0 {
        let rows = mask.chunks_exact_mut(4 * call.n_keys.max(1) as usize);
        for (token, row) in rows.enumerate() {
            let last = position.first + token.min(position.n_real.saturating_sub(1));
            let hidden = (last + 1).saturating_sub(window);
            for key in row
                .chunks_exact_mut(Element::F32.bytes(1) as usize)
                .take(hidden)
            {
                key.copy_from_slice(&MASKED.to_le_bytes());
            }
        }
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_graph::{Graph, Rope, RopeStyle};

    fn made(made: SlotInput, element: Element, n: usize) -> Vec<f32> {
        let graph = Graph {
            ropes: vec![Rope {
                style: RopeStyle::HalfSplit,
                n_rot: 2,
                inv_freq: vec![1.0],
                attention_factor: 1.0,
            }],
            ..Graph::default()
        };
        let position = PassPosition {
            graph: &graph,
            tokens: &[7, 8, 0],
            n_real: 2,
            first: 3,
        };
        let mut out = vec![0; element.bytes(n as u64) as usize];
        assert_eq!(SlotInput::of(made.id()), made);
        made.make(&position, &mut out).unwrap();
        let mut values = vec![0.0; n];
        element.decode(&out, 0, &mut values);
        let mut short = vec![0; 1];
        assert!(made.make(&position, &mut short).is_err());
        values
    }

    #[test]
    fn inputs_follow_from_where_a_pass_stands() {
        assert_eq!(made(SlotInput::Tokens, Element::I32, 3), [7.0, 8.0, 0.0]);
        assert_eq!(made(SlotInput::Last, Element::I32, 1), [1.0]);
        // Of three tokens the last is padding.
        let rows = SlotInput::Positions { rows: 65 };
        assert_eq!(made(rows, Element::I32, 3), [3.0, 4.0, 64.0]);
        let seen = |window| -> Vec<Vec<usize>> {
            let mask = made(SlotInput::Mask { window }, Element::F32, 24);
            let keys = |row: &[f32]| (0..8).filter(|&key| row[key] == 0.0).collect();
            mask.chunks(8).map(keys).collect()
        };
        let all = [vec![0, 1, 2, 3], vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3, 4]];
        assert_eq!(seen(0), all);
        assert_eq!(seen(2), [vec![2, 3], vec![3, 4], vec![3, 4]]);
        let turned = made(SlotInput::Rotations { rope: 0 }, Element::Bf16, 12);
        let (sin, cos) = 3f32.sin_cos();
        let expected = [cos, sin, -sin, cos].map(|x| Element::Bf16.round(x));
        assert_eq!(turned[..4], expected);
    }
}
