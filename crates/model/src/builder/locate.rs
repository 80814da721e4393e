//! Where a checkpoint has the tensors of a weight.

use std::ops::Range;

use super::layout::stored_shape;
use crate::Error;
use crate::arch::{Family, WeightConvention};
use crate::catalog::Catalog;
use crate::derive;
use crate::warnings;
use millrace_graph::WeightSource;
use millrace_quant::DType;

/// A weight's format, and where it is. Where each expert has a separate tensor, all their names.
pub(super) fn locate(
    catalog: &Catalog<'_>,
    name: &str,
    shape: &[usize],
    source: WeightSource,
) -> Result<(WeightSource, DType), Error> {
    if let WeightSource::Derived(derivation) = &source {
        let dtype = derive::check(catalog, name, derivation, shape)?;
        return Ok((source, dtype));
    }
    let mut shape = stored_shape(shape, &source);
    if let (&[n_heads, n_rows, k], WeightSource::Rows { .. }) = (&shape[..], &source)
        && catalog.shape(name).is_some_and(|found| found.len() == 2)
    {
        // Matrices of heads may be stacked in one matrix.
        shape = vec![n_heads * n_rows, k];
    }
    let shape = shape.as_slice();
    let (n_experts, shape) = match *shape {
        [n_experts, n, k] if name.contains("{}") => (n_experts, vec![n, k]),
        // A vector for each head.
        [n_heads, k] if name.contains("{}") => (n_heads, vec![k]),
        // A number beside each expert's matrix.
        [n_experts] if name.contains("{}") => (n_experts, vec![1]),
        _ => return Ok((source, catalog.check(name, shape)?)),
    };
    let names = (0..n_experts).map(|expert| name.replacen("{}", &expert.to_string(), 1));
    let names: Vec<String> = names.collect();
    let mut dtype = DType::F32;
    for (expert, name) in names.iter().enumerate() {
        let found = catalog.check(name, &shape)?;
        if expert > 0 && found != dtype {
            return Err(Error::TensorType {
                file: catalog.file().into(),
                tensor: name.clone(),
                found: found.name().into(),
                expected: format!("{}, as of the experts before", dtype.name()),
            });
        }
        dtype = found;
    }
    Ok((WeightSource::Experts(names), dtype))
}

/// Whether a tensor is a parameter of one of these blocks of the text model. Tensors elsewhere do not
/// take part in the text model, nor do blocks behind its last, which predict further tokens; [`crate::warnings()`]
/// names both.
pub(super) fn is_of_a_block(
    catalog: &Catalog<'_>,
    name: &str,
    (family, blocks): (&Family, Range<usize>),
) -> bool {
    let prefix = match catalog.layout() {
        WeightConvention::Gguf => "blk.".to_owned(),
        WeightConvention::HuggingFace | WeightConvention::Q4nx => {
            format!("{}{}.", catalog.hf_prefix(), family.hf_layers)
        }
    };
    let Some(rest) = name.strip_prefix(&prefix) else {
        return false;
    };
    let number = rest.split('.').next().and_then(|layer| layer.parse().ok());
    let is_elsewhere = number.is_some_and(|layer: usize| !blocks.contains(&layer));
    !is_elsewhere && !warnings::is_derived(name)
}
