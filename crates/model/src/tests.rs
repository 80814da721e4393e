//! Models built from the fixtures, and the refusals.

use std::path::Path;

use millrace_format::{Checkpoint, Source, TensorInfo, TensorType};
use millrace_quant::DType;
use millrace_testkit::Golden;

use crate::arch::{self, WeightConvention};
use crate::catalog::Catalog;
use crate::config::{BranchScales, RecurrentMixer, RopeScaling, hf};
use crate::names::TensorName;
use crate::synth::ModelGeometry;
use crate::{Error, Model, ModelConfig};
use millrace_graph::{Embed, Op, RmsNorm, RopeStyle, Weight};

fn open(path: &Path) -> Model {
    let checkpoint = Checkpoint::open(path).unwrap();
    Model::from_checkpoint(&checkpoint).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_fixture_builds_with_the_expected_shapes() {
    for golden in Golden::all() {
        let (model, expected) = (open(golden.hf()), golden.expected());
        let graph = &model.graph;
        assert_eq!(graph.hidden.len(), expected.hidden.len(), "{}", golden.name);
        assert_eq!(model.config.n_layers + 1, graph.hidden.len());
        let width = |value: millrace_graph::ValueId| graph.values[value.0].width;
        assert_eq!(width(graph.hidden[0]), expected.hidden[0].width);
        assert_eq!(width(graph.logits.unwrap()), expected.logits.width);
    }
}

#[test]
fn both_versions_of_transformers_give_the_same_model() {
    let mut compared = 0;
    for golden in Golden::all() {
        if let Some(folder) = golden.hf_v4() {
            assert_eq!(open(folder.path()), open(golden.hf()), "{}", golden.name);
            compared += 1;
        }
    }
    assert!(compared >= 8, "{compared}");
}

/// A folder's configuration without the values that llama.cpp's converter puts into weights or leaves out.
fn as_llama_cpp_says(config: &ModelConfig) -> ModelConfig {
    let mut config = ModelConfig {
        family: config.family,
        ..arch::by_name(config.family).folded(config)
    };
    // Its converter leaves the number of dense layers out: layers without a router show it.
    if let ("hy-v3", Some(experts)) = (config.family, &mut config.experts) {
        experts.dense_layers = (0..std::mem::take(&mut experts.n_dense_layers)).collect();
    }
    if let Some(recurrent) = &mut config.recurrent {
        let beside = &mut recurrent.beside_attention;
        *beside = beside.map(|_| BranchScales::NONE);
        if let RecurrentMixer::Mamba(mamba) = &mut recurrent.mixer {
            mamba.dt_limit = (0.0, f32::INFINITY);
            if !config.unrotated_layers.is_empty() {
                config.context_length = 1 << 20;
            }
        }
    }
    config
}

/// GGUF and Hugging Face differ in names, pairing of rotated rows and the norms' offset, and in
/// nothing else.
#[test]
fn gguf_gives_the_same_model() {
    let mut compared = 0;
    for golden in Golden::all() {
        let Some(path) = golden.gguf() else { continue };
        let (gguf, hf) = (open(&path), open(golden.hf()));
        let mut config = gguf.config.clone();
        if let RopeScaling::Factors(_) = config.rope.scaling {
            let (a, b) = (&gguf.graph.ropes[0].inv_freq, &hf.graph.ropes[0].inv_freq);
            assert!(
                a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * b),
                "{}",
                golden.name
            );
            config.rope = hf.config.rope.clone();
        }
        // Families that share an architecture of GGUF are distinguished by the file's contents.
        let in_folders = (arch::by_name(config.family).hf_family)(&config);
        if in_folders == Some(hf.config.family) {
            config.family = hf.config.family;
        }
        let expected = as_llama_cpp_says(&hf.config);
        if let (Some(found), Some(said)) = (&mut config.layers.streams, &expected.layers.streams) {
            // PyTorch rounds the deviation of a share differently.
            let pairs = found.gate_deviations.iter_mut().zip(&said.gate_deviations);
            for (found, said) in pairs.filter(|(a, b)| (**a - **b).abs() < 1e-6) {
                *found = *said;
            }
        }
        assert_eq!(config, expected, "{}", golden.name);
        compared += 1;
        // Factors that GGUF files fold into weights are ops of a folder's graph.
        let is_folded = expected.recurrent != hf.config.recurrent
            || expected.embed_scale != hf.config.embed_scale;
        if is_folded || config.family == "muse-glimmer" {
            continue;
        }
        let n_nodes = (gguf.graph.nodes.len(), hf.graph.nodes.len());
        assert_eq!(n_nodes.0, n_nodes.1, "{}", golden.name);
        for (a, b) in gguf.graph.nodes.iter().zip(&hf.graph.nodes) {
            assert_eq!((a.label, a.layer, &a.inputs), (b.label, b.layer, &b.inputs));
        }
    }
    assert!(compared >= 4, "{compared}");
}

#[test]
fn conventions_follow_the_file() {
    let style = |path: &Path| open(path).graph.ropes[0].style;
    let offset = |path: &Path| {
        open(path)
            .graph
            .nodes
            .iter()
            .find_map(|node| match node.op {
                Op::RmsNorm(RmsNorm { offset, .. }) => Some(offset),
                _ => None,
            })
    };
    let llama = Golden::named("llama-llama3");
    assert_eq!(style(llama.hf()), RopeStyle::HalfSplit);
    assert_eq!(style(&llama.gguf().unwrap()), RopeStyle::Interleaved);
    assert_eq!(offset(llama.hf()), Some(0.0));
    let gemma = Golden::named("gemma3-pattern");
    assert_eq!(style(&gemma.gguf().unwrap()), RopeStyle::HalfSplit);
    assert_eq!(offset(gemma.hf()), Some(1.0));
    assert_eq!(offset(&gemma.gguf().unwrap()), Some(0.0));
}

#[test]
fn gemma_layers_alternate_between_two_ropes() {
    let model = open(Golden::named("gemma3-pattern").hf());
    let windows: Vec<_> = (0..7).map(|layer| model.config.window_of(layer)).collect();
    let w = Some(13);
    assert_eq!(windows, [w, w, w, w, w, None, w]);
    assert_eq!(model.graph.ropes.len(), 2);
    let scale = model.graph.nodes.iter().find_map(|node| match node.op {
        Op::Embed(Embed { scale, .. }) => Some(scale),
        _ => None,
    });
    assert_eq!(scale, Some(40f32.sqrt()));
}

/// A configuration and a file that has exactly the tensors it calls for.
fn complete(config: &ModelConfig, source: Source) -> Vec<TensorInfo> {
    let layout = match source {
        Source::Gguf => WeightConvention::Gguf,
        Source::HuggingFace => WeightConvention::HuggingFace,
    };
    let names = crate::arch::by_name(config.family).hf_names();
    let info = |name: String, shape: &[usize]| TensorInfo {
        name,
        tensor_type: TensorType::Weights(DType::F32),
        shape: shape.to_vec(),
        nominal_shape: false,
        file: 0,
        offset: 0,
        size_bytes: 4 * shape.iter().product::<usize>(),
    };
    let tensors = crate::builder::layout(config, layout, 0..config.n_layers);
    let shape_of = |name| {
        let known = tensors.iter().find(|tensor| tensor.name == name);
        known.map_or_else(|| config.shape_of(name), |tensor| tensor.shape.clone())
    };
    let mut out = Vec::new();
    for name in config.tensors(layout) {
        let shape = shape_of(name);
        let spelled = match layout {
            WeightConvention::Gguf => name.gguf(),
            _ => name.hf("model.", names).unwrap(),
        };
        match (spelled.contains("{}"), &shape[..]) {
            (true, [n_experts, matrix @ ..]) => {
                let name = |expert: usize| spelled.replacen("{}", &expert.to_string(), 1);
                out.extend((0..*n_experts).map(|expert| info(name(expert), matrix)));
            }
            _ => out.push(info(spelled, &shape)),
        }
    }
    out
}

fn tiny() -> ModelConfig {
    let json = serde_json::json!({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "attention_bias": true,
    });
    hf::read("tiny", &json).unwrap()
}

fn build(config: ModelConfig, source: Source, tensors: &[TensorInfo]) -> Result<Model, Error> {
    Model::build(config, &Catalog::new("tiny", source, tensors))
}

#[test]
fn listed_tensors_are_exactly_those_the_graph_reads() {
    let mut configs = vec![tiny()];
    configs.extend(Golden::all().iter().map(|golden| open(golden.hf()).config));
    for config in configs {
        for source in [Source::Gguf, Source::HuggingFace] {
            let tensors = complete(&config, source);
            let model = build(config.clone(), source, &tensors).unwrap();
            let mut listed: Vec<_> = tensors.iter().map(|info| info.name.as_str()).collect();
            // The divisors are part of the configuration, not of the graph.
            listed.retain(|name| {
                let name = TensorName::parse_gguf(name);
                name.is_none_or(|name| !name.role.is_rope_table())
            });
            let weights = model.graph.weights.iter();
            let mut read: Vec<_> = weights.flat_map(Weight::tensors).collect();
            listed.sort_unstable();
            read.sort_unstable();
            // Parts of one tensor.
            read.dedup();
            assert_eq!(listed, read);
        }
    }
}

/// llama.cpp's programs drop dimensions of one when they write a file again.
#[test]
fn norms_of_one_group_may_stand_as_vectors() {
    let config = ModelGeometry::named("granite-4.0-h-tiny").unwrap();
    let config = config.config(Some(1));
    let mut tensors = complete(&config, Source::Gguf);
    let norm = tensors
        .iter_mut()
        .find(|info| info.name == "blk.0.ssm_norm.weight");
    let norm = norm.unwrap();
    assert_eq!(norm.shape, [1, 3072]);
    norm.shape = vec![3072];
    let graph = build(config, Source::Gguf, &tensors).unwrap().graph;
    assert_eq!(millrace_graph::check(&graph), Ok(()));
}

#[test]
fn a_wrong_weight_is_named() {
    let tensors = complete(&tiny(), Source::Gguf);
    for i in 0..tensors.len() {
        let name = tensors[i].name.clone();
        let refused = |tensors: &[TensorInfo]| {
            let error = build(tiny(), Source::Gguf, tensors)
                .unwrap_err()
                .to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
            error
        };
        let mut missing = tensors.clone();
        missing.remove(i);
        assert!(refused(&missing).contains("missing"));
        let mut reshaped = tensors.clone();
        reshaped[i].shape[0] += 1;
        assert!(refused(&reshaped).contains("shape"));
        let mut integers = tensors.clone();
        integers[i].tensor_type = TensorType::Plain(millrace_format::PlainType::I32);
        assert!(refused(&integers).contains("stored as i32"));
        let mut activations = tensors.clone();
        activations[i].tensor_type = TensorType::Weights(DType::Q8K);
        assert!(refused(&activations).contains("stored as q8_k"));
    }
}

#[test]
fn a_quantised_vector_is_refused() {
    let mut tensors = complete(&tiny(), Source::Gguf);
    let norm = tensors
        .iter_mut()
        .find(|info| info.name == "output_norm.weight")
        .unwrap();
    norm.tensor_type = TensorType::Weights(DType::Q8_0);
    let error = build(tiny(), Source::Gguf, &tensors).unwrap_err();
    assert!(matches!(error, Error::TensorType { .. }), "{error}");
}

#[test]
fn weights_without_a_place_are_refused_inside_blocks_only() {
    let extra = |name: &str| {
        let mut tensors = complete(&tiny(), Source::Gguf);
        tensors.push(TensorInfo {
            name: name.into(),
            ..tensors[0].clone()
        });
        build(tiny(), Source::Gguf, &tensors)
    };
    let error = extra("blk.1.ffn_gate_inp.weight").unwrap_err();
    assert!(matches!(error, Error::UnknownTensor { .. }), "{error}");
    for harmless in ["blk.0.attn_rot_embd.weight", "mm.0.weight"] {
        assert!(extra(harmless).is_ok(), "{harmless}");
    }
}

#[test]
fn q4nx_tensors_take_their_shape_from_the_configuration() {
    let config = ModelConfig {
        d_model: 256,
        ..tiny()
    };
    let mut tensors = complete(&config, Source::HuggingFace);
    for info in &mut tensors {
        if info.name.ends_with("q_proj.weight") {
            let [n, k] = info.shape[..] else {
                panic!("a matrix")
            };
            info.tensor_type = TensorType::Weights(DType::Q4nx);
            info.size_bytes = DType::Q4nx.size_bytes(n, k).unwrap();
            info.shape = vec![info.size_bytes / 5120 * 32, 256];
            info.nominal_shape = true;
        }
    }
    let model = build(config, Source::HuggingFace, &tensors).unwrap();
    let q = model
        .graph
        .weights
        .iter()
        .find(|weight| weight.name.contains("q_proj"))
        .unwrap();
    assert_eq!((q.n, q.k, q.dtype), (64, 256, DType::Q4nx));
}

/// A checkpoint of random weights and a model without any have one graph.
#[test]
fn without_weights_is_the_graph_of_a_synthetic_checkpoint() {
    let geometry = crate::synth::ModelGeometry::named("llama-tiny").unwrap();
    let recipe = crate::recipe::Recipe::parse("bf16").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = crate::synth::SynthOptions {
        recipe,
        vocab: None,
        vision: false,
        n_layers: Some(2),
        seed: 1,
        n_threads: Some(1),
    };
    for (name, source) in [("m.gguf", Source::Gguf), ("m", Source::HuggingFace)] {
        let path = folder.path().join(name);
        let mut go_on = |_, _| std::ops::ControlFlow::Continue(());
        crate::synth::write(geometry, &path, &options, &mut go_on).unwrap();
        let found = Model::without_weights(geometry, Some(2), recipe, source).unwrap();
        assert_eq!(found.graph.nodes, open(&path).graph.nodes);
        assert_eq!(found.graph.weights, open(&path).graph.weights);
    }
    let layers = Some(usize::MAX);
    assert!(Model::without_weights(geometry, layers, recipe, Source::Gguf).is_err());
}
