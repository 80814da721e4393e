//! Names of programs and slots.

use super::assemble::is_norm;
use super::group::NodeGroup;
use super::kernel::{Arg, Kernels, LoweredKernel};
use super::{CachePart, Phase};
use millrace_graph::{self as graph, Node, Op, ValueId, WeightId};

/// A launch in a program's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaunchKind {
    Norm,
    Linear,
    Rope,
    Attention,
    CachedAttention,
    DeltaNet,
    Glu,
    Add,
    Head,
    HeadOfAllRows,
}

use LaunchKind::{Add, Glu, Linear, Norm, Rope};

/// Names of runs of launches, in prefill and decode, as in MLIR-AIR's Llama-3.2-1B example.
const RUNS: &[(&[LaunchKind], &str, &str)] = &[
    (
        &[Norm, Linear, Linear, Linear, Rope, Rope],
        "rms_gemms_rope",
        "rms_gemv_rope",
    ),
    (
        &[Linear, Add, Norm, Linear, Linear, Glu, Linear, Add],
        "o_ffn",
        "o_gemv_ffn",
    ),
];

/// A group's name from its launches: the example's where it has one, else the kinds of its launches,
/// repeated ones once. One of whole blocks is named for that.
pub(super) fn program(group: &NodeGroup, kernels: &Kernels<'_>) -> String {
    if group.attends() {
        return "token_layers".to_owned();
    }
    let kind = |(number, members): &(usize, Vec<LoweredKernel>)| {
        let node = &kernels.graph.nodes[*number];
        let cached = |arg: &Arg| matches!(arg, Arg::Cache(..) | Arg::CacheRange(..));
        let over_cache = |k: &LoweredKernel| k.args.iter().any(cached);
        match node.op {
            _ if kernels.is_head(node) && kernels.is_single_row() => LaunchKind::Head,
            _ if kernels.is_head(node) => LaunchKind::HeadOfAllRows,
            Op::RmsNorm(_) => LaunchKind::Norm,
            Op::Rope(_) => LaunchKind::Rope,
            Op::Attention(_) if members.iter().any(over_cache) => LaunchKind::CachedAttention,
            Op::Attention(_) => LaunchKind::Attention,
            Op::DeltaNet(_) => LaunchKind::DeltaNet,
            Op::Glu(_) => LaunchKind::Glu,
            Op::Add(_) => LaunchKind::Add,
            // All other kernels multiply with a matrix.
            _ => LaunchKind::Linear,
        }
    };
    let kinds: Vec<LaunchKind> = group.members.iter().map(kind).collect();
    let prefill = kernels.phase == Phase::Prefill;
    let mut words: Vec<&str> = Vec::new();
    let mut rest = &kinds[..];
    while let Some((&first, after)) = rest.split_first() {
        let run = RUNS.iter().find(|(run, ..)| rest.starts_with(run));
        let word = match run {
            Some((run, in_prefill, in_decode)) => {
                rest = &rest[run.len()..];
                if prefill { in_prefill } else { in_decode }
            }
            None => {
                rest = after;
                word(first, prefill)
            }
        };
        if words.last() != Some(&word) {
            words.push(word);
        }
    }
    words.join("_")
}

fn word(kind: LaunchKind, prefill: bool) -> &'static str {
    match kind {
        LaunchKind::Norm => "rms",
        LaunchKind::Linear if prefill => "gemm",
        LaunchKind::Linear => "gemv",
        LaunchKind::Rope => "rope",
        LaunchKind::Attention => "flash_attn",
        LaunchKind::CachedAttention => "cached_attn",
        LaunchKind::DeltaNet => "delta_net",
        LaunchKind::Glu => "glu",
        LaunchKind::Add => "add",
        LaunchKind::Head => "lm_head_gemv",
        LaunchKind::HeadOfAllRows => "lm_head_gemm",
    }
}

/// A slot's name, the same in every block: the label of the node that writes it, or the launch's
/// name and the parameter's kind.
pub(super) fn slot(
    arg: &Arg,
    kernel: &LoweredKernel,
    group: &NodeGroup,
    kernels: &Kernels<'_>,
) -> String {
    match arg {
        Arg::Value(value) => self::value(*value, group, kernels),
        Arg::Part { .. } => format!("{}_logits", kernel.name),
        Arg::Weight(weight, _) => format!("{}_w", label(*weight, kernel, group, kernels)),
        Arg::Shares(_) => format!("{}_parts", kernel.name),
        Arg::Expanded(weight) => format!("{}_bf16", label(*weight, kernel, group, kernels)),
        Arg::Table(..) => format!("{}_lut", kernel.name),
        Arg::Cache(_, CachePart::Keys) => "k_cache".to_owned(),
        Arg::Cache(_, CachePart::Values) => "v_cache".to_owned(),
        Arg::CacheRange(_, CachePart::Keys, _) => "k_reached".to_owned(),
        Arg::CacheRange(_, CachePart::Values, _) => "v_reached".to_owned(),
        Arg::Position | Arg::RangePosition(_) => "position".to_owned(),
        Arg::DeltaRows(_) => "delta_rows".to_owned(),
        Arg::StateBefore(_) => "state".to_owned(),
        Arg::StateBehind(_) => "state_behind".to_owned(),
    }
}

/// The label of the node that takes a weight where a kernel takes several, else the kernel's name.
fn label<'n>(
    weight: WeightId,
    kernel: &'n LoweredKernel,
    group: &NodeGroup,
    kernels: &'n Kernels<'_>,
) -> &'n str {
    if !kernel.is_fused() {
        return &kernel.name;
    }
    let graph = kernels.graph;
    let mut nodes = group
        .members
        .iter()
        .map(|&(number, _)| &graph.nodes[number]);
    let takes = |node: &&Node| matches!(node.op, Op::Linear(graph::Linear { weight: w, .. }) if w == weight);
    nodes.find(takes).map_or(&*kernel.name, |node| node.label)
}

fn value(value: ValueId, group: &NodeGroup, kernels: &Kernels<'_>) -> String {
    let graph = kernels.graph;
    let inside = group.producer(kernels, value);
    // Hidden states come from the embedding or from a block: their names must not show which.
    if inside.is_none() && graph.hidden.contains(&value) {
        let mut members = group.members.iter().map(|&(n, _)| &graph.nodes[n]);
        let first = members.find(|n| n.inputs.contains(&value));
        let normed = first.is_some_and(|n| is_norm(&n.op));
        return if normed { "x_in" } else { "x_residual" }.to_owned();
    }
    let producer = inside.or_else(|| graph.nodes.iter().find(|n| n.output == value));
    producer.map_or("x", |n| n.label).to_owned()
}
