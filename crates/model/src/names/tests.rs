use super::*;

fn all() -> impl Iterator<Item = TensorName> {
    TABLE.iter().flat_map(|row| {
        let layers: &[Option<usize>] = if row.per_layer {
            &[Some(0), Some(27)]
        } else {
            &[None]
        };
        layers.iter().flat_map(|&layer| {
            [
                ParameterKind::Weight,
                ParameterKind::Bias,
                ParameterKind::Scale,
            ]
            .map(|part| TensorName {
                layer,
                role: row.role,
                part,
            })
        })
    })
}

#[test]
fn table_is_in_enum_order() {
    for (i, row) in TABLE.iter().enumerate() {
        assert_eq!(row.role as usize, i);
    }
}

#[test]
fn every_name_parses_back() {
    for name in all() {
        // A norm may have the name of the one before attention. Gate and up projection in one have the up projection's name. A norm, or a
        // bias for the choice, without a suffix has no bias. A matrix in place of attention has the name of its output projection.
        let is_linear = name.role == WeightRole::AttnLinear;
        let is_of_another = match name.role {
            WeightRole::FfnNormBeside | WeightRole::FfnGateUp | WeightRole::SharedGateUp => true,
            WeightRole::FfnPreNorm | WeightRole::ChoiceBias => name.part != ParameterKind::Weight,
            _ => false,
        };
        if !is_of_another && !is_linear {
            assert_eq!(TensorName::parse_gguf(&name.gguf()), Some(name));
        }
    }
}

#[test]
fn known_spellings() {
    let q = TensorName::block(3, WeightRole::AttnQ);
    assert_eq!(q.gguf(), "blk.3.attn_q.weight");
    assert_eq!(q.bias().gguf(), "blk.3.attn_q.bias");
    let hf = |name: TensorName, prefix, norms| {
        name.hf(
            prefix,
            HfNames {
                norms,
                own: &[],
                layers: "layers",
            },
        )
        .unwrap()
    };
    assert_eq!(
        hf(q, "model.", HfNorms::Pre),
        "model.layers.3.self_attn.q_proj.weight"
    );
    let head = TensorName::global(WeightRole::Output);
    assert_eq!(hf(head, "model.", HfNorms::Pre), "lm_head.weight");
    let multimodal = "language_model.model.";
    assert_eq!(
        hf(head, multimodal, HfNorms::Pre),
        "language_model.lm_head.weight"
    );
    assert_eq!(
        hf(head, "model.language_model.", HfNorms::Pre),
        "lm_head.weight"
    );
    let norm = TensorName::block(0, WeightRole::FfnNorm);
    assert_eq!(
        hf(norm, "model.", HfNorms::Pre),
        "model.layers.0.post_attention_layernorm.weight"
    );
    assert_eq!(
        hf(norm, "model.", HfNorms::PreAndPost),
        "model.layers.0.pre_feedforward_layernorm.weight"
    );
}

#[test]
fn other_names_are_not_read() {
    let names = [
        "blk.x.attn_q.weight",
        "blk.03.attn_q.weight",
        "blk.3.attn_q",
        "attn_q.weight",
    ];
    for name in names
        .into_iter()
        .chain(["blk.3.output.weight", "", ".weight", "blk."])
    {
        assert_eq!(TensorName::parse_gguf(name), None, "{name}");
    }
}

#[test]
fn a_family_names_modules_and_parameters_of_its_own() {
    let names = HfNames {
        layers: "layers",
        norms: HfNorms::Pre,
        own: &[(WeightRole::ExpertsGate, "block_sparse_moe.experts.{}.w1")],
    };
    let spelled = |role| TensorName::block(2, role).hf("model.", names).unwrap();
    assert_eq!(
        spelled(WeightRole::ExpertsGate),
        "model.layers.2.block_sparse_moe.experts.{}.w1.weight"
    );
    assert_eq!(
        spelled(WeightRole::AttnSinks),
        "model.layers.2.self_attn.sinks"
    );
    let bias = TensorName::block(2, WeightRole::ExpertsGateUp).bias();
    assert_eq!(
        bias.hf("model.", names).unwrap(),
        "model.layers.2.mlp.experts.gate_up_proj_bias"
    );
    // Factors are stored beside packed matrices.
    let scale = TensorName::block(2, WeightRole::ExpertsGate).scale();
    assert_eq!(
        scale.hf("model.", names).unwrap(),
        "model.layers.2.block_sparse_moe.experts.{}.w1.scale"
    );
    let sinks = TensorName::block(2, WeightRole::AttnSinks).scale();
    assert_eq!(sinks.hf("model.", names), None);
    let choice = TensorName::router_bias(2);
    assert_eq!(choice.gguf(), "blk.2.exp_probs_b.bias");
    assert_eq!(
        choice.hf("model.", names).unwrap(),
        "model.layers.2.mlp.gate.e_score_correction_bias"
    );
}

#[test]
fn permutation_brings_rotated_rows_together() {
    let rows = permutation(2, 8);
    assert_eq!(rows, [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]);
}
