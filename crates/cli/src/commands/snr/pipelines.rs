//! Pipelines to compare.

use millrace_quant::DType;
use millrace_quant::pipeline::{Step, hadamard_block};

/// Reference that a result is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnrReference {
    /// The weights as the file has them.
    File,
    /// The weights after Q4_K.
    Q4K,
}

impl SnrReference {
    pub(super) fn words(self) -> &'static str {
        match self {
            SnrReference::File => "the weights",
            SnrReference::Q4K => "their q4_k",
        }
    }
}

/// Conversion to Q4_K and back.
pub(super) const Q4K: [Step; 1] = [Step::Format(DType::Q4K)];

/// Steps that begin at a reference.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    pub(super) name: String,
    pub(super) of: SnrReference,
    steps: Vec<Step>,
    is_rotated: bool,
}

const fn int(bits: u32, group: Option<usize>) -> Step {
    Step::Integers { bits, group }
}

impl Pipeline {
    fn new(name: &str, of: SnrReference, steps: &[Step]) -> Pipeline {
        Pipeline {
            name: name.to_owned(),
            of,
            steps: steps.to_vec(),
            is_rotated: false,
        }
    }

    fn rotated(self) -> Pipeline {
        Pipeline {
            name: format!("hadamard + {}", self.name),
            is_rotated: true,
            ..self
        }
    }

    fn around(&self, steps: &[Step], k: usize) -> Vec<Step> {
        let turn = self.is_rotated.then_some(Step::Hadamard(hadamard_block(k)));
        turn.into_iter()
            .chain(steps.iter().copied())
            .chain(turn)
            .collect()
    }

    /// Steps for rows of `k` elements.
    pub(super) fn steps(&self, k: usize) -> Vec<Step> {
        self.around(&self.steps, k)
    }

    /// Steps for activations: int8 per token, rotated like the weights.
    pub(super) fn of_activations(&self, k: usize) -> Vec<Step> {
        self.around(&[int(8, None)], k)
    }
}

/// Every format; integers per channel and per group, with and without a rotation; and integers on top of Q4_K.
pub(super) fn all() -> Vec<Pipeline> {
    let (file, q4k) = (SnrReference::File, SnrReference::Q4K);
    let formats = DType::all().filter(|dtype| *dtype != DType::F32);
    let mut all: Vec<Pipeline> = formats
        .map(|dtype| Pipeline::new(dtype.name(), file, &[Step::Format(dtype)]))
        .collect();
    for bits in [8, 4] {
        let row = Pipeline::new(&format!("int{bits}/row"), file, &[int(bits, None)]);
        let group = Pipeline::new(&format!("int{bits}/64"), file, &[int(bits, Some(64))]);
        all.extend([row.clone(), row.rotated(), group.clone(), group.rotated()]);
    }
    all.extend([
        Pipeline::new("q4_k > int8/row", q4k, &[int(8, None)]),
        Pipeline::new(
            "q4_k > int8/row > int4/row",
            q4k,
            &[int(8, None), int(4, None)],
        ),
        Pipeline::new("q4_k > int8/64", q4k, &[int(8, Some(64))]),
        Pipeline::new(
            "q4_k > int8/64 > int4/64",
            q4k,
            &[int(8, Some(64)), int(4, Some(64))],
        ),
    ]);
    all
}
