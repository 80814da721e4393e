//! Reads the measurements, and selects the mapping, shape, tiling and profile of each.

use super::{Measurement, ReportKind};
use millrace_xdna2::mapping::LeastWork;

/// The program to build for a measurement.
pub(super) struct FidelityCase {
    pub(super) group: &'static str,
    pub(super) mapping: &'static str,
    pub(super) shape: String,
    /// `name=number` pairs over the default tiling.
    pub(super) tiling: String,
    pub(super) profile: &'static str,
}

/// Measurements from CSV text: a heading, then a row a line; quoted fields may hold commas. Lines without a measurement
/// are skipped.
pub(super) fn read(text: &str) -> Vec<Measurement> {
    text.lines().skip(1).filter_map(measured).collect()
}

fn measured(line: &str) -> Option<Measurement> {
    let fields = fields(line);
    let [
        id,
        source,
        hardware,
        model,
        dtype,
        phase,
        kernel,
        shape,
        _,
        metric,
        value,
        notes,
    ] = <[String; 12]>::try_from(fields).ok()?;
    Some(Measurement {
        id,
        source,
        hardware,
        model,
        dtype,
        phase,
        kernel,
        shape,
        metric,
        value: value.parse().ok()?,
        notes,
    })
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        let field = fields.last_mut();
        match (c, field) {
            ('"', Some(field)) if quoted && characters.peek() == Some(&'"') => {
                field.push('"');
                characters.next();
            }
            ('"', _) => quoted = !quoted,
            (',', _) if !quoted => fields.push(String::new()),
            (c, Some(field)) => field.push(c),
            (_, None) => {}
        }
    }
    fields
}

/// The report that a measurement belongs to: each belongs to one of the two.
pub(super) fn kind(measured: &Measurement) -> ReportKind {
    match measured.phase.as_str() {
        "gemm" | "kernel" => ReportKind::Kernels,
        _ => ReportKind::Models,
    }
}

/// A time in the measurement's unit.
pub(super) fn in_unit(measured: &Measurement, work: &LeastWork, ns: f64) -> Result<f64, String> {
    match measured.metric.as_str() {
        "us" => Ok(ns / 1e3),
        "ms" => Ok(ns / 1e6),
        "GFLOP_per_s" => Ok(work.flops as f64 / ns),
        "TOPS" => Ok(work.flops as f64 / ns / 1e3),
        "GB_per_s_r+w" => Ok(work.ddr_bytes as f64 / ns),
        other => Err(format!("the unit `{other}` is no time or rate of a kernel")),
    }
}

/// The program to build for a measurement, or why none can be built.
pub(super) fn case(measured: &Measurement) -> Result<FidelityCase, String> {
    if measured.notes.contains("inherited") {
        return Err("inherited from another shape by its source, not measured".into());
    }
    let source = measured.source.as_str();
    let from = |name: &str| source.contains(name);
    let case = if from("GEMM_bf16_in_bf16_out") || from("GEMM_bf16_in_fp32_out") {
        gemm(measured)
    } else if from("Mapping Gemma3 onto") && measured.kernel.contains("megatile") {
        megatile(measured)
    } else if from("GEMV_bf16") {
        gemv(measured)
    } else if from("FlashAttention_bf16") {
        attention(measured)
    } else if from("kernel_registry/details") {
        streaming(measured)
    } else {
        None
    };
    case.ok_or_else(|| reason(measured))
}

const AIR: &str = "air-strix-2026";

/// Source of the registry's compiler-generated GEMMs.
const REGISTRY: &str = "air-strix-registry-2026";

fn new(group: &'static str, mapping: &'static str, shape: &str, tiling: String) -> FidelityCase {
    FidelityCase {
        group,
        mapping,
        shape: shape.to_owned(),
        tiling,
        profile: AIR,
    }
}

/// Whole numbers between other characters.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

fn gemm(measured: &Measurement) -> Option<FidelityCase> {
    const CAST_F32: &str = "GEMM fused-cast and f32";
    let f32 = measured.dtype.ends_with("f32");
    let sweep = measured.kernel.contains("sweep");
    let (group, mapping) = match measured.kernel.split(' ').next()? {
        "fused-cast" => (CAST_F32, "gemm-fused-cast"),
        "external" => (CAST_F32, "gemm-f32"),
        "direct" if f32 => (CAST_F32, "gemm-direct-f32"),
        "direct" => ("GEMM direct", "gemm-direct"),
        "drain" => ("GEMM drain", "gemm-drain"),
        _ if sweep && f32 => (CAST_F32, "gemm-f32"),
        _ => return None,
    };
    let (shape, tile) = if sweep {
        swept(measured)?
    } else {
        let (shape, tile) = measured.shape.split_once(" tile ")?;
        (shape.to_owned(), <[u64; 6]>::try_from(numbers(tile)).ok()?)
    };
    let [tm, kl2, tk, tn, cols, rows] = tile;
    let tiling =
        format!("tile_m={tm},tile_k_l2={kl2},tile_k_l1={tk},tile_n={tn},cols={cols},rows={rows}");
    let profile = match mapping {
        "gemm-direct" | "gemm-direct-f32" => REGISTRY,
        _ => AIR,
    };
    Some(FidelityCase {
        profile,
        ..new(group, mapping, &shape, tiling)
    })
}

/// The sweeps in the registry's text: one tile size varied, the others those of the table.
fn swept(measured: &Measurement) -> Option<(String, [u64; 6])> {
    let (name, kl2) = measured.shape.split_once(" kl2=")?;
    let shape = match name {
        "2048^3" => "2048x2048x2048",
        "4096^3" => "4096x4096x4096",
        "Down K=8192" => "2048x8192x2048",
        other => other,
    };
    let kernel = measured.kernel.as_str();
    let tile_n = kernel
        .strip_prefix("tile_n=")
        .map_or(Some(128), |rest| numbers(rest).first().copied())?;
    Some((shape.to_owned(), [64, kl2.parse().ok()?, 32, tile_n, 8, 4]))
}

fn megatile(measured: &Measurement) -> Option<FidelityCase> {
    let (shape, mega) = measured.shape.split_once(" megatile ")?;
    // Printed M x K x N of the megatile, K being the depth of its blocks in L2; see docs/timing-model.md for the reading.
    let [mega_m, k_l2, mega_n] = <[u64; 3]>::try_from(numbers(mega)).ok()?;
    let (cols, rows) = (8, 4);
    let (m, n) = (mega_m / cols, mega_n / rows);
    // The paper does not say how a core's part is tiled: the largest tile that fits L1.
    let tile_m = m.min(64);
    let tile_n = n.min(if tile_m > 32 { 64 } else { 128 });
    let (e_y, e_x) = (m / tile_m, n / tile_n);
    let tiling = format!(
        "tile_m={tile_m},tile_n={tile_n},e_y={e_y},e_x={e_x},tile_k_l2={k_l2},cols={cols},rows={rows}"
    );
    Some(FidelityCase {
        profile: "paper-kraken",
        ..new("GEMM megatile", "gemm-megatile", shape, tiling)
    })
}

fn gemv(measured: &Measurement) -> Option<FidelityCase> {
    let (_, config) = measured.kernel.split_once("m_input ")?;
    let [cols, tile_m, m_input] = <[u64; 3]>::try_from(numbers(config)).ok()?;
    let tiling = format!("cols={cols},tile_m={tile_m},m_input={m_input}");
    Some(new("GEMV", "gemv", &measured.shape, tiling))
}

fn attention(measured: &Measurement) -> Option<FidelityCase> {
    let [length, heads, kv_heads, d] = <[u64; 4]>::try_from(numbers(&measured.shape)).ok()?;
    let causal = if measured.kernel.contains("causal") {
        "causal"
    } else {
        "full"
    };
    let shape = format!("{length} {heads}q/{kv_heads}kv d{d} {causal}");
    Some(new(
        "FlashAttention",
        "flash-attention",
        &shape,
        String::new(),
    ))
}

/// Kernels of one row of cores that stream: `cfg COLS/ROWS/TILE`, `herd COLS/ROWS`, or `cores=N`.
fn streaming(measured: &Measurement) -> Option<FidelityCase> {
    let kernel = measured.kernel.as_str();
    let mapping = match kernel.split([' ', '*']).next()? {
        "RMSNorm" => "rmsnorm",
        "LayerNorm" => "layernorm",
        "RoPE" => "rope",
        "SiLU" => "silu-mul",
        "GELU" => "gelu",
        "eltwise" => "add",
        _ => return None,
    };
    let (shape, cores) = match measured.shape.split_once(" cores=") {
        Some((shape, cores)) => (shape, cores.parse::<u64>().ok()),
        None => (measured.shape.as_str(), None),
    };
    let config = kernel.rsplit(' ').next().filter(|_| kernel.contains("cfg"));
    let tiling = match (cores, config.map(numbers).as_deref()) {
        (Some(cores), _) if cores > 8 => format!("cols=8,rows={}", cores / 8),
        (Some(cores), _) => format!("cols={cores},rows=1"),
        (None, Some(&[cols, rows, tile])) => format!("cols={cols},rows={rows},tile={tile}"),
        (None, Some(&[cols])) => format!("cols={cols}"),
        _ if kernel.contains("8x1") || kernel.contains("8/1") => "cols=8,rows=1".into(),
        _ if kernel.contains("2x4") => "cols=2,rows=4".into(),
        _ => return None,
    };
    // Mappings of one row of cores have no `rows`.
    let one_row = matches!(mapping, "rmsnorm" | "layernorm" | "rope");
    let tiling = if one_row {
        tiling.replace(",rows=1", "")
    } else {
        tiling
    };
    Some(new("element-wise and row-wise", mapping, shape, tiling))
}

/// Why a row has no prediction.
fn reason(measured: &Measurement) -> String {
    let has = |text: &str| measured.source.contains(text) || measured.kernel.contains(text);
    let any = |words: &[&str]| words.iter().any(|word| has(word));
    let costs = [
        "dispatch",
        "latency",
        "throughput",
        "overhead",
        "switch",
        "reconfiguration",
        "penalty",
        "set_lock",
        "RTP",
        "transpose",
    ];
    let why = if measured.hardware.contains("NPU1") || has("NPU1") {
        "other hardware"
    } else if any(&costs) {
        "a cost of driver, host or configuration, not a kernel"
    } else if in_unit(measured, &LeastWork::default(), 1.0).is_err() {
        "a rate, a size or a ratio, not the time of a kernel"
    } else if ["i8", "int8"].iter().any(|t| measured.dtype.starts_with(t)) {
        "integers: sums of 8 or 16 bits, which no kernel here has, or tilings that `gemm-i8` is not compared in"
    } else if any(&["Striking the Balance", "IRON", "iron"]) {
        "a design of its own (objects, tiles, power mode) that no mapping here builds"
    } else if has("smolvla") {
        "a registry shape in another build: compared lowerings (ELF, xclbin), tilings in part unknown"
    } else if has("attention_decode") {
        "attention of one token before and after a change, in a design that no mapping here builds"
    } else if has("fused_decode") {
        "a part of fused decode, of which only the whole is modelled"
    } else {
        "no shape or tiling is published"
    };
    why.into()
}
