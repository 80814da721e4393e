//! Requirements on every row of the table of families.

use std::collections::BTreeSet;

use millrace_format::{Checkpoint, Source, TensorInfo, TensorType};
use millrace_graph::{FEW_INPUTS, Node, Weight, WeightSource};
use millrace_quant::DType;
use millrace_testkit::Golden;

use super::{Family, WeightConvention, families};
use crate::builder::{self, TensorLayout};
use crate::catalog::Catalog;
use crate::config::hf;
use crate::names::{TensorName, WeightRole};
use crate::{Error, Model, ModelConfig};

/// `general.architecture` of the GGUF files that llama.cpp knows, as listed by its copy in llama-cpp-python 0.3.36
/// (`src/llama-arch.cpp`).
#[rustfmt::skip]
const LLAMA_CPP: [&str; 153] = [
    "clip", "llama", "llama4", "deci", "falcon", "grok",
    "gpt2", "gptj", "gptneox", "mpt", "baichuan", "starcoder",
    "refact", "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert",
    "jina-bert-v2", "jina-bert-v3", "eurobert", "bloom", "stablelm", "qwen",
    "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3next",
    "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp", "phi2",
    "phi3", "phimoe", "plamo", "plamo2", "plamo3", "codeshell",
    "orion", "internlm2", "minicpm", "minicpm3", "gemma", "gemma2",
    "gemma3", "gemma3n", "gemma4", "gemma4-assistant", "gemma-embedding", "starcoder2",
    "mamba", "mamba2", "maple", "jamba", "falcon-h1", "xverse",
    "command-r", "cohere2", "cohere2moe", "dbrx", "olmo", "olmo2",
    "olmoe", "muse-glimmer", "openelm", "arctic", "deepseek", "deepseek2",
    "deepseek2-ocr", "deepseek32", "deepseek4", "chatglm", "glm4", "glm4moe",
    "glm-dsa", "bitnet", "t5", "t5encoder", "jais", "jais2",
    "nemotron", "nemotron_h", "nemotron_h_moe", "exaone", "exaone4", "exaone-moe",
    "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "granite", "granitemoe",
    "granitehybrid", "graniteswitch", "granite_swa", "chameleon", "wavtokenizer-dec", "plm",
    "bailingmoe", "bailingmoe2", "bailingmoe3", "dots1", "dots3note", "arcee",
    "afmoe", "laguna", "ernie4_5", "ernie4_5-moe", "hunyuan-moe", "hunyuan-dense",
    "hunyuan_vl", "hy_v3", "hy_v4", "smollm3", "gpt-oss", "lfm2",
    "lfm2moe", "dream", "smallthinker", "llada", "llada-moe", "seed_oss",
    "grovemoe", "apertus", "minimax-01", "hrm_text", "minimax-m2", "minimax-m3",
    "cogvlm", "rnd1", "pangu-embedded", "mistral3", "eagle3", "dflash",
    "mistral4", "paddleocr", "mimo2", "step35", "spark2_5", "llama-embed",
    "maincoder", "kimi-linear", "kimi-k3", "glm5-next", "talkie", "mellum",
    "nanbeige", "qwen3tts", "pockettts",
];

const LAYOUTS: [(Source, WeightConvention); 2] = [
    (Source::Gguf, WeightConvention::Gguf),
    (Source::HuggingFace, WeightConvention::HuggingFace),
];

/// The model of the family's fixture.
fn of_fixture(family: &Family) -> Model {
    let golden = Golden::named(family.golden());
    let checkpoint = Checkpoint::open(golden.hf()).unwrap();
    Model::from_checkpoint(&checkpoint).unwrap_or_else(|error| panic!("{error}"))
}

/// All families with folders, which have fixtures.
fn published() -> impl Iterator<Item = (&'static Family, Model)> {
    let has_folders = |family: &&Family| !family.hf_classes.is_empty();
    let published = families().filter(has_folders);
    published.map(|family| (family, of_fixture(family)))
}

fn tensor(name: String, shape: &[usize]) -> TensorInfo {
    TensorInfo {
        name,
        tensor_type: TensorType::Weights(DType::F32),
        shape: shape.to_vec(),
        nominal_shape: false,
        file: 0,
        offset: 0,
        size_bytes: 4 * shape.iter().product::<usize>(),
    }
}

/// The tensors of a complete file for the configuration, with one tensor per expert where the layout has that.
fn complete(config: &ModelConfig, layout: WeightConvention) -> Vec<TensorInfo> {
    let names = super::by_name(config.family).hf_names();
    let mut all = Vec::new();
    for TensorLayout { name, shape, .. } in builder::layout(config, layout, 0..config.n_layers) {
        let spelled = match layout {
            WeightConvention::Gguf => name.gguf(),
            _ => name.hf("model.", names).unwrap_or_else(|| panic!("{name}")),
        };
        match spelled.contains("{}") {
            true => all.extend((0..shape[0]).map(|expert| {
                let name = spelled.replacen("{}", &expert.to_string(), 1);
                tensor(name, &shape[1..])
            })),
            false => all.push(tensor(spelled, &shape)),
        }
    }
    all
}

fn build(config: &ModelConfig, source: Source, tensors: &[TensorInfo]) -> Result<Model, Error> {
    Model::build(config.clone(), &Catalog::new("tiny", source, tensors))
}

/// Whether some weights are computed from tensors of other shapes than the graph's.
fn is_derived(model: &Model) -> bool {
    let derived = |weight: &&Weight| matches!(weight.source, WeightSource::Derived(_));
    let mut derived = model.graph.weights.iter().filter(derived);
    derived.any(|weight| !weight.tensors().is_empty())
}

#[test]
fn every_family_builds_of_exactly_what_it_lists_in_both_conventions() {
    let mut built = 0;
    for (family, fixture) in published() {
        for (source, layout) in LAYOUTS {
            if layout == WeightConvention::HuggingFace && is_derived(&fixture) {
                continue;
            }
            let tensors = complete(&fixture.config, layout);
            let listed: BTreeSet<&str> = tensors.iter().map(|info| info.name.as_str()).collect();
            assert_eq!(listed.len(), tensors.len(), "{}: a name twice", family.name);
            let model = build(&fixture.config, source, &tensors);
            let graph = model.unwrap_or_else(|error| panic!("{error}")).graph;
            assert_eq!(millrace_graph::check(&graph), Ok(()), "{}", family.name);
            // The step of a token allocates nothing for inputs.
            let is_few = |node: &Node| node.inputs.len() <= FEW_INPUTS;
            assert!(graph.nodes.iter().all(is_few), "{}", family.name);
            let mut places = BTreeSet::new();
            for node in graph
                .nodes
                .iter()
                .filter(|node| !node.op.weights().is_empty())
            {
                // Devices keep weights by layer and label.
                let is_new = places.insert((node.layer, node.label));
                assert!(is_new, "{}: {} twice in a layer", family.name, node.label);
            }
            let read: Vec<_> = graph.weights.iter().flat_map(Weight::tensors).collect();
            let read: BTreeSet<&str> = read.iter().map(|name| &**name).collect();
            assert_eq!(read, listed, "{}", family.name);
            built += 1;
        }
    }
    assert!(built >= families().count(), "{built}");
}

/// The shape of square gates and ups does not tell their orientation; that of the down projections does.
#[test]
fn square_matrices_of_experts_are_read_as_the_others_lie() {
    let checkpoint = Checkpoint::open(Golden::named("qwen3vlmoe").hf()).unwrap();
    let mut config = Model::from_checkpoint(&checkpoint).unwrap().config;
    let d_model = config.d_model;
    let experts = config.experts.as_mut().unwrap();
    experts.d_ff = d_model / 2;
    let (n_experts, d_ff) = (experts.n_experts, experts.d_ff);
    for (down, is_turned) in [([d_ff, d_model], true), ([d_model, d_ff], false)] {
        let reshaped = |info: &TensorInfo| {
            let shape = match info.name.rsplit('.').next() {
                Some("gate_up_proj") => vec![n_experts, d_model, 2 * d_ff],
                Some("down_proj") => vec![n_experts, down[0], down[1]],
                _ => info.shape.clone(),
            };
            tensor(info.name.clone(), &shape)
        };
        let tensors: Vec<_> = checkpoint.tensors().iter().map(reshaped).collect();
        let model = build(&config, Source::HuggingFace, &tensors).unwrap();
        let of_gates = |weight: &&Weight| {
            weight
                .tensors()
                .iter()
                .any(|name| name.ends_with("gate_up_proj"))
        };
        let mut gates = model.graph.weights.iter().filter(of_gates).peekable();
        assert!(gates.peek().is_some());
        let is_derived = |weight: &Weight| matches!(weight.source, WeightSource::Derived(_));
        assert!(gates.all(|gate| is_derived(gate) == is_turned), "{down:?}");
    }
}

#[test]
fn names_of_every_familys_weights_parse_back() {
    for (family, fixture) in published() {
        let config = &fixture.config;
        for TensorLayout { name, .. } in
            builder::layout(config, WeightConvention::Gguf, 0..config.n_layers)
        {
            // Gate and up projection in one have the up projection's name, a matrix in place of attention that of its output.
            if ![WeightRole::FfnGateUp, WeightRole::AttnLinear].contains(&name.role) {
                let parsed = TensorName::parse_gguf(&name.gguf());
                assert_eq!(parsed, Some(name), "{}", family.name);
            }
        }
    }
}

#[test]
fn a_stranger_within_a_block_is_refused_in_every_family() {
    for (family, fixture) in published() {
        for (source, layout) in LAYOUTS {
            if layout == WeightConvention::HuggingFace && is_derived(&fixture) {
                continue;
            }
            let name = match layout {
                WeightConvention::Gguf => "blk.0.stranger.weight".to_owned(),
                _ => format!("model.{}.0.stranger.weight", family.hf_layers),
            };
            let mut tensors = complete(&fixture.config, layout);
            tensors.push(tensor(name.clone(), &[8]));
            let error = build(&fixture.config, source, &tensors).unwrap_err();
            let named = matches!(&error, Error::UnknownTensor { tensor, .. } if *tensor == name);
            assert!(named, "{}: {error}", family.name);
        }
    }
}

#[test]
fn every_familys_configuration_reads_back_as_it_was_written() {
    for (family, fixture) in published() {
        let written = hf::write(&fixture.config).unwrap();
        let read = hf::read("config.json", &written).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = fixture.config;
        // Only tensors record these.
        expected.layers.head_bias = false;
        expected.layers.xielu.clear();
        assert_eq!(read, expected, "{}", family.name);
    }
}

/// One row for an architecture and a type: the first would hide the others.
#[test]
fn a_causal_model_is_of_one_family() {
    let mut types = BTreeSet::new();
    for family in families().filter(|family| !family.hf_classes.is_empty()) {
        assert!(types.insert(family.hf_model_types[0]), "{}", family.name);
        let own = super::by_hf_model_type(family.hf_model_types[0]);
        assert_eq!(own.map(|own| own.name), Some(family.name));
        let class = super::by_hf_class(family.hf_classes[0]);
        assert_eq!(class.map(|own| own.name), Some(family.name));
    }
}

/// A user who opens a file of any of llama.cpp's architectures at least learns why it cannot run.
#[test]
fn every_architecture_of_llama_cpp_runs_or_is_refused_by_name() {
    for name in LLAMA_CPP {
        let runs = super::by_gguf_arch(name).is_some();
        assert_eq!(runs, super::refused::why(name).is_none(), "{name}");
    }
}

/// transformers saves some weights under other names than published folders have.
#[test]
fn second_names_are_read() {
    let mut n_families = 0;
    for (family, model) in published() {
        let (names, layers) = (family.hf_names(), 0..model.config.n_layers);
        let mut tensors = complete(&model.config, WeightConvention::HuggingFace);
        let roles: BTreeSet<WeightRole> = names.own.iter().map(|(role, _)| *role).collect();
        let weights = roles.into_iter().flat_map(|role| {
            layers
                .clone()
                .map(move |layer| TensorName::block(layer, role))
        });
        let mut n_renamed = 0;
        for weight in weights {
            let Some(second) = weight.hf_second("model.", names) else {
                continue;
            };
            let usual = weight.hf("model.", names);
            for tensor in &mut tensors {
                if Some(&tensor.name) == usual.as_ref() {
                    tensor.name.clone_from(&second);
                    n_renamed += 1;
                }
            }
        }
        n_families += usize::from(n_renamed > 0);
        build(&model.config, Source::HuggingFace, &tensors).unwrap();
    }
    assert!(n_families > 0);
}
