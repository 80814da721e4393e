//! Work to measure: the SHAPE argument as a list of matrices and numbers of tokens.

use super::HwbenchArgs;
use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::ModelArgs;
use crate::output::Ui;
use millrace_model::Model;
use millrace_quant::DType;

/// Gate and up projections of Llama 3.2 1B.
pub(super) const DEFAULT: &str = "8192,2048";

/// One token, and a prompt of the usual benchmark length.
const DEFAULT_TOKENS: [usize; 2] = [1, 512];

/// A matrix `[n, k]` in a format that can hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixCase {
    pub(super) dtype: DType,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Size of the matrix.
    pub(super) size_bytes: usize,
}

impl MatrixCase {
    fn new(dtype: DType, n: usize, k: usize) -> Option<MatrixCase> {
        let size_bytes = dtype.size_bytes(n, k)?;
        Some(MatrixCase {
            dtype,
            n,
            k,
            size_bytes,
        })
    }

    /// Memory for the weights, for `m` tokens in and out, and for the tokens in a kernel's own
    /// form; `u64::MAX` on overflow.
    pub(super) fn memory_bytes(&self, m: usize, stream_bytes: usize) -> u64 {
        let (m, n, k) = (m as u64, self.n as u64, self.k as u64);
        let weights = (stream_bytes as u64).checked_add(self.size_bytes as u64);
        let row_bytes = n.checked_add(2 * k).and_then(|elems| elems.checked_mul(4));
        row_bytes
            .and_then(|bytes| bytes.checked_mul(m))
            .and_then(|bytes| bytes.checked_add(weights?))
            .unwrap_or(u64::MAX)
    }
}

/// The whole work to measure.
#[derive(Debug)]
pub(super) struct HwbenchWork {
    pub(super) cases: Vec<MatrixCase>,
    pub(super) tokens: Vec<usize>,
    /// Formats whose blocks do not fit the shape.
    pub(super) unfit: Vec<DType>,
}

/// The SHAPE argument.
#[derive(Debug, PartialEq, Eq)]
enum ShapeArg<'a> {
    Numbers {
        m: Option<usize>,
        n: usize,
        k: usize,
    },
    Model(&'a str),
}

impl ShapeArg<'_> {
    fn parse(text: &str) -> CommandResult<ShapeArg<'_>> {
        // A path may contain digits and commas, but nobody names a model with nothing else.
        if !text.chars().all(|c| c.is_ascii_digit() || c == ',') {
            return Ok(ShapeArg::Model(text));
        }
        let numbers: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
        match numbers.as_deref() {
            Ok([n, k]) if *n > 0 && *k > 0 => Ok(ShapeArg::Numbers {
                m: None,
                n: *n,
                k: *k,
            }),
            Ok([m, n, k]) if *m > 0 && *n > 0 && *k > 0 => Ok(ShapeArg::Numbers {
                m: Some(*m),
                n: *n,
                k: *k,
            }),
            _ => Err(CommandFailure::usage(format!("`{text}` is no shape"))
                .hint("write N,K or M,N,K, as 8192,2048 or 512,8192,2048")),
        }
    }
}

impl HwbenchWork {
    pub(super) fn of(args: &HwbenchArgs, ui: Ui) -> CommandResult<HwbenchWork> {
        let wanted = |dtype: &DType| args.format.is_empty() || args.format.contains(dtype);
        let shape = ShapeArg::parse(&args.shape)?;
        let tokens = tokens(&shape, &args.tokens)?;
        let (cases, unfit) = match shape {
            ShapeArg::Model(model) => {
                let mut cases = matrices(model, args.offline, ui)?;
                cases.retain(|case| wanted(&case.dtype));
                (cases, Vec::new())
            }
            ShapeArg::Numbers { n, k, .. } => {
                let formats = DType::all().filter(wanted);
                let (fit, unfit) =
                    formats.partition::<Vec<_>, _>(|dtype| dtype.size_bytes(n, k).is_some());
                let cases = fit
                    .into_iter()
                    .filter_map(|dtype| MatrixCase::new(dtype, n, k));
                (cases.collect(), unfit)
            }
        };
        Ok(HwbenchWork {
            cases,
            tokens,
            unfit,
        })
    }
}

fn tokens(shape: &ShapeArg<'_>, given: &[usize]) -> CommandResult<Vec<usize>> {
    if given.contains(&0) {
        return Err(CommandFailure::usage("-m 0 multiplies nothing"));
    }
    match (shape, given) {
        (ShapeArg::Numbers { m: Some(m), .. }, []) => Ok(vec![*m]),
        (ShapeArg::Numbers { m: Some(_), .. }, _) => Err(CommandFailure::usage(
            "the number of tokens is given twice: M,N,K and -m",
        )),
        (_, []) => Ok(DEFAULT_TOKENS.to_vec()),
        (_, given) => Ok(given.to_vec()),
    }
}

/// Matrices that a model multiplies by: each shape and format once, in order of first use.
fn matrices(model: &str, offline: bool, ui: Ui) -> CommandResult<Vec<MatrixCase>> {
    let model = ModelArgs {
        model: model.to_owned(),
        offline,
    };
    let graph = Model::from_checkpoint(&model.open(ui)?)?.graph;
    let mut cases = Vec::new();
    for node in &graph.nodes {
        if let Some(product) = node.op.product() {
            let weight = &graph.weights[product.weight().0];
            let case = MatrixCase::new(weight.dtype, weight.n, weight.k);
            cases.extend(case.filter(|case| !cases.contains(case)));
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_two_or_three_positive_numbers_or_a_model() {
        let numbers = |m, n, k| ShapeArg::Numbers { m, n, k };
        for (text, shape) in [
            ("8192,2048", numbers(None, 8192, 2048)),
            ("512,8192,2048", numbers(Some(512), 8192, 2048)),
            ("demo", ShapeArg::Model("demo")),
            ("hf:a/b:Q4_0", ShapeArg::Model("hf:a/b:Q4_0")),
            ("8192x2048", ShapeArg::Model("8192x2048")),
        ] {
            assert_eq!(ShapeArg::parse(text).expect(text), shape);
        }
        for bad in [
            "",
            "5",
            "0,5",
            "5,0",
            "1,2,3,4",
            "1,,2",
            "1,99999999999999999999",
        ] {
            assert!(ShapeArg::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tokens_are_given_once() {
        let (pair, triple) = ("8,8", "4,8,8");
        let of = |text, given: &[usize]| tokens(&ShapeArg::parse(text).expect(text), given).ok();
        assert_eq!(of(pair, &[]), Some(vec![1, 512]));
        assert_eq!(of(pair, &[7]), Some(vec![7]));
        assert_eq!(of(triple, &[]), Some(vec![4]));
        assert_eq!(of(triple, &[7]), None);
        assert_eq!(of(pair, &[0]), None);
    }

    #[test]
    fn memory_counts_everything_and_does_not_overflow() {
        let case = MatrixCase::new(DType::F32, 10, 20).expect("any shape");
        assert_eq!(case.memory_bytes(3, 1000), 1000 + 800 + 3 * 4 * (10 + 40));
        assert_eq!(case.memory_bytes(usize::MAX, 0), u64::MAX);
    }
}
