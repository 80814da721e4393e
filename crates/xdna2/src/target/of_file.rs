//! The mode that a file's weights decide.

use super::modes::{FAST, INT4};
use millrace_graph::{Graph, Linear, Op, WeightId};
use millrace_plan::ModeChoice;
use millrace_quant::DType;

/// Whether a format has four bits a weight, in blocks: up to one more is for scales.
fn is_four_bit(dtype: DType) -> bool {
    (4.0..=5.0).contains(&dtype.bits_per_element())
}

/// 4-bit blocks if more than half of the numbers in products' matrices are in such; otherwise no decision. Mode fast
/// would expand them to bf16, four times the bytes that each token reads.
pub(super) fn mode(graph: &Graph) -> Option<ModeChoice> {
    let mut matrices: Vec<WeightId> = Vec::new();
    for node in &graph.nodes {
        if let Op::Linear(Linear { weight, .. }) = node.op
            && !matrices.contains(&weight)
        {
            matrices.push(weight);
        }
    }
    let (mut four, mut all) = (0u64, 0u64);
    for id in matrices {
        let weight = &graph.weights[id.0];
        let n = (weight.n * weight.k) as u64;
        all += n;
        four += if is_four_bit(weight.dtype) { n } else { 0 };
    }
    (2 * four > all).then(|| ModeChoice {
        mode: INT4,
        reason: format!(
            "{:.0} % of the weights in products are in 4-bit blocks, which this mode keeps; --mode {FAST} expands them to bf16",
            four as f64 / all as f64 * 100.0
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_format::Source;
    use millrace_model::Model;
    use millrace_model::recipe::Recipe;
    use millrace_model::synth::ModelGeometry;

    #[test]
    fn files_of_mostly_four_bits_keep_them() {
        let recipes = [
            ("BF16", None),
            ("F16", None),
            ("F32", None),
            ("Q8_0", None),
            ("Q6_K", None),
            ("Q5_K", None),
            ("Q4_0", Some(INT4)),
            ("Q4_1", Some(INT4)),
            ("Q4_K", Some(INT4)),
            ("Q4_K_M", Some(INT4)),
            ("IQ4_NL", Some(INT4)),
            ("MXFP4", Some(INT4)),
            ("Q5_0", None),
        ];
        for geometry in ["llama-3.2-1b", "llama-tiny"] {
            let geometry = ModelGeometry::named(geometry).expect("a geometry");
            for (recipe, expected) in recipes {
                let parsed = Recipe::parse(recipe).expect(recipe);
                let model = Model::without_weights(geometry, None, parsed, Source::Gguf);
                let found = mode(&model.expect("a model").graph);
                let found = found.map(|choice| choice.mode);
                assert_eq!(found, expected, "{} in {recipe}", geometry.name());
            }
        }
    }
}
