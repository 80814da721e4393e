//! Gemma 3n, text part. It has several residual streams, of which a block computes one and corrects all (AltUp).
//! Beside attention is a low-rank residual (Laurel), and each layer has embeddings. Only the largest elements of
//! gates count. The last layers read keys and values of earlier ones.

mod config;

use super::Family;
use super::block::{feed_forward, layer_embedding, norm};
use super::gemma4::{self, Sources};
use crate::Error;
use crate::arch::WeightConvention;
use crate::builder::GraphBuilder;
use crate::config::hf::{HfDefaults, HfWindows};
use crate::config::{ModelConfig, StreamConfig};
use crate::names::{HfNorms, ParameterKind, TensorName, WeightRole};
use millrace_graph::{
    Activation, AddToStreams, ConcatHeads, GaussianTopK, HeadLinear, MatchMagnitude, MixStreams,
    Multiply, SliceHeads, Softcap, TableRow, ValueId, WeightSource,
};

/// Lower bound of the mean square of a projected stream (`modeling_gemma3n.py`).
const MAGNITUDE_FLOOR: f32 = 1e-5;

/// Labels of the sums of streams, one for each stream but the first: devices distinguish the calls of a
/// layer by their labels.
const SUM_LABELS: [&str; StreamConfig::STREAMS_MAX - 1] = [
    "altup_sum_1",
    "altup_sum_2",
    "altup_sum_3",
    "altup_sum_4",
    "altup_sum_5",
    "altup_sum_6",
    "altup_sum_7",
];

/// Weights that GGUF files have in layers with shared keys and values, and that nothing reads.
const UNREAD: [WeightRole; 3] = [WeightRole::AttnK, WeightRole::AttnV, WeightRole::AttnKNorm];

pub(super) static FAMILY: Family = Family {
    name: "gemma3n",
    gguf_arch: "gemma3n",
    hf_model_types: &["gemma3n_text", "gemma3n"],
    hf_classes: &["Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"],
    hf_norms: HfNorms::PreAndPost,
    activation: Activation::GeluTanh,
    models: "Gemma 3n (text): E2B, E4B",
    scaled_embeddings: true,
    local_rope_theta: Some(10_000.0),
    hf_windows: HfWindows::Pattern {
        window: 512,
        pattern: 5,
    },
    hf_defaults: HfDefaults {
        vocab_size: 262_400,
        d_model: 2048,
        d_ff: 16_384,
        n_layers: 35,
        n_heads: 8,
        n_kv_heads: Some(2),
        head_dim: Some(256),
        context_length: 32_768,
        tied_head: true,
        rope_theta: 1_000_000.0,
    },
    gguf_window_pattern: Some(5),
    gguf_roles: &UNREAD,
    sizes_by_layer: true,
    hf_own_keys: &["intermediate_size"],
    fixed: config::fixed,
    gguf: config::gguf,
    hf: config::hf,
    write_hf: config::write_hf,
    write_gguf: config::write_gguf,
    values,
    build,
    ..Family::PLAIN
};

/// Zeros for the weights that GGUF files have in layers with shared keys and values: llama.cpp refuses a file without them.
fn values(
    config: &ModelConfig,
    (name, layout): (TensorName, WeightConvention),
) -> Option<Vec<f32>> {
    let layer = name.layer.filter(|_| layout == WeightConvention::Gguf)?;
    let is_unread = UNREAD.contains(&name.role) && config.kv_layer_of(layer) != layer;
    let n_elems = match (name.role, name.part) {
        (WeightRole::AttnKNorm, _) => config.head_dim,
        (_, ParameterKind::Weight) => config.kv_width() * config.d_model,
        (_, ParameterKind::Bias) => config.kv_width(),
        (_, ParameterKind::Scale) => return None,
    };
    is_unread.then(|| vec![0.0; n_elems])
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let config = b.config();
    let Some(streams) = &config.layers.streams else {
        return Err(Error::MissingKey {
            file: config.family.into(),
            key: "altup_num_inputs".into(),
        });
    };
    let x = b.embed()?;
    let embeddings = layer_embedding::all(b, x)?;
    let mut x = expand(b, streams, x)?;
    let mut sources: Sources = [None; 2];
    for layer in b.layers() {
        b.enter_layer(layer);
        let active = slice(b, "altup_active", streams.active, x);
        b.hidden(active);
        let weights = predict_weights(b, streams, active)?;
        let mix = MixStreams {
            n_streams: streams.n_streams,
        };
        let width = b.width(x);
        let predicted = b.push("altup_predict", mix.into(), vec![x, weights], width);
        x = block(b, (layer, streams), predicted, &mut sources)?;
        x = add_layer_embedding(b, (layer, streams), x, embeddings)?;
        keep_unread(b, layer)?;
    }
    b.leave_layers();
    let x = merge(b, streams, x)?;
    b.hidden(x);
    b.head(x)
}

/// One of several streams that are side by side in a row.
fn slice(b: &mut GraphBuilder<'_>, label: &'static str, stream: usize, x: ValueId) -> ValueId {
    let d_model = b.config().d_model;
    let slice = SliceHeads {
        n_heads: 1,
        range: stream * d_model..(stream + 1) * d_model,
    };
    b.push(label, slice.into(), vec![x], d_model)
}

/// Two values side by side.
fn beside(b: &mut GraphBuilder<'_>, label: &'static str, [a, c]: [ValueId; 2]) -> ValueId {
    let [n_a, n_c] = [b.width(a), b.width(c)];
    let concat = ConcatHeads {
        n_heads: 1,
        from_a: 0..n_a,
        from_b: 0..n_c,
    };
    b.push(label, concat.into(), vec![a, c], n_a + n_c)
}

/// All streams but the first, each times its own matrix, as large as `like`.
fn project(
    b: &mut GraphBuilder<'_>,
    [label, magnitude]: [&'static str; 2],
    role: WeightRole,
    [x, like]: [ValueId; 2],
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let width = b.width(x);
    let n_heads = width / d_model;
    let name = b.name_of(role);
    let shape = [n_heads, d_model, d_model];
    let weight = b.weight_from(name, name, &shape, WeightSource::Whole)?;
    let linear = HeadLinear {
        weight,
        n_heads,
        first: 0,
    };
    let out = b.push(label, linear.into(), vec![x], width);
    let matched = MatchMagnitude {
        floor: MAGNITUDE_FLOOR,
    };
    Ok(b.push(magnitude, matched.into(), vec![out, like], width))
}

/// The streams of a token's embedding, which is the first.
fn expand(b: &mut GraphBuilder<'_>, streams: &StreamConfig, x: ValueId) -> Result<ValueId, Error> {
    let mut copies = x;
    for _ in 2..streams.n_streams {
        copies = beside(b, "altup_copies", [copies, x]);
    }
    let labels = ["altup_proj", "altup_proj_magnitude"];
    let others = project(b, labels, WeightRole::AltUpProj, [copies, x])?;
    Ok(beside(b, "altup_streams", [x, others]))
}

/// The mean of the first stream and of the projections of the others.
fn merge(b: &mut GraphBuilder<'_>, streams: &StreamConfig, x: ValueId) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let mut sum = slice(b, "altup_first", 0, x);
    let range = d_model..streams.n_streams * d_model;
    let width = range.len();
    let rest = SliceHeads { n_heads: 1, range };
    let rest = b.push("altup_rest", rest.into(), vec![x], width);
    let labels = ["altup_unembed", "altup_unembed_magnitude"];
    let rest = project(b, labels, WeightRole::AltUpUnembed, [rest, sum])?;
    for (stream, label) in (1..streams.n_streams).zip(SUM_LABELS) {
        let other = slice(b, "altup_other", stream - 1, rest);
        sum = b.add(label, sum, other);
    }
    Ok(b.scale("altup_mean", 1.0 / streams.n_streams as f32, sum))
}

/// The labels of a router's norm, of its product, and of the weights computed from it.
type RouterLabels = [&'static str; 3];

/// Weights of streams, from the router's output for one stream.
fn weights(
    b: &mut GraphBuilder<'_>,
    [norm_label, label, out_label]: RouterLabels,
    (role, n, n_streams): (WeightRole, usize, usize),
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let normed = norm::rms(b, norm_label, (WeightRole::AltUpRouterNorm, d_model), x)?;
    let scaled = b.scale("altup_route_scale", 1.0 / d_model as f32, normed);
    let routed = b.linear(label, WeightRole::AltUpRouter, (n_streams, false), scaled)?;
    // A soft bound of 1 is the hyperbolic tangent.
    let bound = Softcap { cap: 1.0 };
    let bounded = b.push("altup_route_tanh", bound.into(), vec![routed], n_streams);
    b.linear(out_label, role, (n, false), bounded)
}

fn predict_weights(
    b: &mut GraphBuilder<'_>,
    streams: &StreamConfig,
    active: ValueId,
) -> Result<ValueId, Error> {
    let n = streams.n_streams;
    let labels = [
        "altup_predict_norm",
        "altup_predict_route",
        "altup_predict_weights",
    ];
    weights(b, labels, (WeightRole::AltUpPredict, n * n, n), active)
}

/// The block's output for the active stream, with the correction of all streams by it.
fn block(
    b: &mut GraphBuilder<'_>,
    (layer, streams): (usize, &StreamConfig),
    predicted: ValueId,
    sources: &mut Sources,
) -> Result<ValueId, Error> {
    let active = slice(b, "altup_predicted", streams.active, predicted);
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, active)?;
    let laurel = laurel(b, streams, normed)?;
    let out = gemma4::attend_normed(b, layer, normed, sources)?;
    let x = b.residual("attn_residual", active, out);
    let sum = b.add("laurel_add", x, laurel);
    let x = b.scale("laurel_half", std::f32::consts::FRAC_1_SQRT_2, sum);
    let out = feed_forward(b, streams.deviations(layer), x)?;
    let x = b.residual("ffn_residual", x, out);
    correct(b, streams, x, [predicted, active])
}

/// The low-rank residual: the normed input plus a narrow product of it.
fn laurel(
    b: &mut GraphBuilder<'_>,
    streams: &StreamConfig,
    normed: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let size = (streams.laurel_rank, false);
    let out = b.linear("laurel_down", WeightRole::LaurelDown, size, normed)?;
    let out = b.linear("laurel_up", WeightRole::LaurelUp, (d_model, false), out)?;
    let role = (WeightRole::LaurelPostNorm, d_model);
    let out = norm::rms(b, "laurel_post_norm", role, out)?;
    Ok(b.add("laurel_residual", normed, out))
}

/// The gated network with norms before and behind it. In a sparse gate only values far above the mean count.
fn feed_forward(
    b: &mut GraphBuilder<'_>,
    deviations: Option<f32>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (d_ff, d_model) = (b.d_ff(), b.config().d_model);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let mut gate = b.linear("ffn_gate", WeightRole::FfnGate, (d_ff, false), normed)?;
    let up = b.linear("ffn_up", WeightRole::FfnUp, (d_ff, false), normed)?;
    if let Some(deviations) = deviations {
        let sparse = GaussianTopK { deviations };
        gate = b.push("ffn_gate_topk", sparse.into(), vec![gate], d_ff);
    }
    let out = feed_forward::glu(b, "ffn_glu", gate, up);
    let out = b.linear("ffn_down", WeightRole::FfnDown, (d_model, false), out)?;
    norm::stream(b, "ffn_post_norm", WeightRole::FfnPostNorm, out)
}

/// Corrects the predicted streams by the error of the prediction of the active one.
fn correct(
    b: &mut GraphBuilder<'_>,
    streams: &StreamConfig,
    x: ValueId,
    [predicted, active]: [ValueId; 2],
) -> Result<ValueId, Error> {
    let n_streams = streams.n_streams;
    let labels = [
        "altup_correct_norm",
        "altup_correct_route",
        "altup_correct_weights",
    ];
    let role = (WeightRole::AltUpCorrect, n_streams, n_streams);
    let weights = weights(b, labels, role, x)?;
    let negative = b.scale("altup_negative", -1.0, active);
    let error = b.add("altup_error", x, negative);
    let op = AddToStreams {
        n_streams,
        first: 0,
        offset: 1.0,
        weighted: true,
    };
    let (inputs, width) = (vec![predicted, error, weights], b.width(predicted));
    Ok(b.push("altup_correct", op.into(), inputs, width))
}

/// Adds the layer's own embedding, gated, to all streams but the first.
fn add_layer_embedding(
    b: &mut GraphBuilder<'_>,
    (layer, streams): (usize, &StreamConfig),
    x: ValueId,
    embeddings: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let active = slice(b, "altup_corrected", streams.active, x);
    let table = b.vector(WeightRole::AltUpCorrectScale, d_model)?;
    let row = TableRow { table, step: 0 };
    let factors = b.push("altup_correct_scale", row.into(), vec![], d_model);
    let inputs = vec![active, factors];
    let scaled = b.push("altup_scaled", Multiply.into(), inputs, d_model);
    let out = layer_embedding::gated(b, layer, scaled, embeddings)?;
    let op = AddToStreams {
        n_streams: streams.n_streams,
        first: 1,
        offset: 1.0,
        weighted: false,
    };
    let width = b.width(x);
    Ok(b.push("layer_residual", op.into(), vec![x, out], width))
}

/// Names the weights that a GGUF file has in a layer with shared keys and values, so that they are written and known.
fn keep_unread(b: &mut GraphBuilder<'_>, layer: usize) -> Result<(), Error> {
    let config = b.config();
    if !b.is_gguf() || config.kv_layer_of(layer) == layer {
        return Ok(());
    }
    for role in UNREAD {
        let name = b.name_of(role);
        let shape = match role {
            WeightRole::AttnKNorm => vec![config.head_dim],
            _ => vec![config.kv_width(), config.d_model],
        };
        if b.has_own(name) {
            b.weight_from(name, name, &shape, WeightSource::Whole)?;
        }
    }
    Ok(())
}
