//! The stitched bf16 stack of MLIR-AIR's Llama-3.2-1B example and its successor, with the host's part. There are two
//! [`Build`]s of it. The example's own programs are those that mode mlir-air lowers to. Each launch of the later build
//! is simulated alone, and a program is the call plus its launches plus loading their cores.

use super::lowered::ModelRunTimes;
use crate::xdna2::geometry::{Extra, Geometry};
use millrace_xdna2::lower::{self, Phase};
use millrace_xdna2::mapping;
use millrace_xdna2_machine::profile::HostProfile;
use millrace_xdna2_machine::{Machine, Profile, timing};
use std::cell::RefCell;
use std::collections::HashMap;

/// A stitched program of MLIR-AIR's Llama-3.2-1B example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackProgram {
    RmsGemmsRope,
    FlashAttention,
    OFfn,
    LmHead,
    RmsGemvRope,
    OGemvFfn,
    /// Former head of a prompt: GEMMs of all rows. In no plan.
    LmHeadOfAllRows,
}

impl StackProgram {
    /// Its name in a plan.
    pub(super) fn name(self) -> &'static str {
        match self {
            StackProgram::RmsGemmsRope => "rms_gemms_rope",
            StackProgram::FlashAttention => "flash_attn",
            StackProgram::OFfn => "o_ffn",
            StackProgram::LmHead => "lm_head_gemv",
            StackProgram::RmsGemvRope => "rms_gemv_rope",
            StackProgram::OGemvFfn => "o_gemv_ffn",
            StackProgram::LmHeadOfAllRows => "lm_head_gemm",
        }
    }

    fn phase(self) -> Phase {
        match self {
            StackProgram::RmsGemmsRope
            | StackProgram::FlashAttention
            | StackProgram::OFfn
            | StackProgram::LmHeadOfAllRows => Phase::Prefill,
            StackProgram::LmHead | StackProgram::RmsGemvRope | StackProgram::OGemvFfn => {
                Phase::Decode
            }
        }
    }
}

/// Whose programs were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Build {
    /// The example's: compiler-generated GEMMs with bf16 sums. Mode mlir-air.
    Example,
    /// Its successor's, from June 2026 on: GEMMs by the kernel registry's methods (f32 sums).
    Registry,
}

/// A run to predict.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackWork {
    pub(super) build: Build,
    pub(super) model: &'static Geometry,
    /// Tokens of the prompt.
    pub(super) length: u64,
    /// The host between the calls.
    pub(super) host: HostProfile,
}

/// A kernel and its shape.
type StackKernel = (&'static str, String);

/// Results computed so far, or why they could not be computed.
type Memo<K, V> = RefCell<HashMap<K, Result<V, String>>>;

/// A simulated kernel: time of its launches, their herds, and the bytes of configuration and kernel objects of each.
#[derive(Clone, Debug)]
struct KernelTimes {
    ns: f64,
    herds: usize,
    loads: Vec<(u64, usize)>,
}

/// Simulates kernels under one profile, each once.
pub(super) struct Stack<'a> {
    machine: &'a Machine,
    profile: &'a Profile,
    kernels: Memo<(Phase, StackKernel), KernelTimes>,
    /// By model and length.
    lowered: Memo<(&'static str, u64), ModelRunTimes>,
}

/// Rows of a partition of the LM head.
const HEAD_ROWS: u64 = 16_384;

/// Products of at least this many multiply-accumulates keep f32 sums and cast them in a separate launch. Smaller ones
/// drain in bf16 (mlir-air's `method auto`).
const FUSED_CAST_MACS: u64 = 4_000_000_000;

impl<'a> Stack<'a> {
    pub(super) fn new(machine: &'a Machine, profile: &'a Profile) -> Stack<'a> {
        Stack {
            machine,
            profile,
            kernels: RefCell::default(),
            lowered: RefCell::default(),
        }
    }

    /// The NPU's run of a program, in nanoseconds.
    pub(super) fn run_ns(&self, work: &StackWork, program: StackProgram) -> Result<f64, String> {
        match (work.build, program) {
            (_, StackProgram::LmHeadOfAllRows) | (Build::Registry, _) => {
                self.assembled_ns(work, program)
            }
            (Build::Example, _) => self.lowered(work)?.run_ns(program),
        }
    }

    fn lowered(&self, work: &StackWork) -> Result<ModelRunTimes, String> {
        let key = (work.model.name, work.length);
        if let Some(known) = self.lowered.borrow().get(&key) {
            return known.clone();
        }
        let lowered = ModelRunTimes::new(key.0, key.1, self.machine, self.profile);
        self.lowered.borrow_mut().insert(key, lowered.clone());
        lowered
    }

    /// The call, its launches and the loading of their cores.
    fn assembled_ns(&self, work: &StackWork, program: StackProgram) -> Result<f64, String> {
        let kernels = (parts(work.model, work.length, program).into_iter())
            .map(|part| self.kernel(program.phase(), part))
            .collect::<Result<Vec<_>, _>>()?;
        let dispatch = &self.profile.dispatch;
        let herds: usize = kernels.iter().map(|k| k.herds).sum();
        let load_ns = |&(bytes, objects): &(u64, usize)| dispatch.load_ns(bytes, objects, herds);
        let launches_ns = |k: &KernelTimes| k.ns + k.loads.iter().map(load_ns).sum::<f64>();
        Ok(dispatch.call_ns + kernels.iter().map(launches_ns).sum::<f64>())
    }

    /// Writing a call's buffers of a prompt's program, in nanoseconds. Attention's include its output,
    /// which the published runtime fills with zeros before every call: 20 MB at 2,048 tokens, as
    /// mlir-air's `PROFILE.html` says.
    pub(super) fn write_ns(&self, work: &StackWork, program: StackProgram) -> f64 {
        let (g, length) = (work.model, work.length);
        let (x, q) = (length * g.d_model, length * g.n_heads * g.head_dim);
        let kv = 2 * length * g.n_kv_heads * g.head_dim;
        let elements = match program {
            StackProgram::RmsGemmsRope | StackProgram::LmHeadOfAllRows => x,
            StackProgram::FlashAttention => q + kv + q,
            StackProgram::OFfn => q + x,
            StackProgram::LmHead | StackProgram::RmsGemvRope | StackProgram::OGemvFfn => g.d_model,
        };
        2.0 * elements as f64 / work.host.write_gb_per_s
    }

    /// A call of a program: of a prompt's, with its buffers written and synced; of a token's, which
    /// moves a few KB, without.
    pub(super) fn call_ns(&self, work: &StackWork, program: StackProgram) -> Result<f64, String> {
        let host = &work.host;
        let run_ns = self.run_ns(work, program)?;
        Ok(match program {
            StackProgram::RmsGemvRope | StackProgram::OGemvFfn => host.call_ns + run_ns,
            _ => host.call_ns + self.write_ns(work, program) + run_ns + host.read_ns,
        })
    }

    /// Sum over a prompt's calls: three a layer and the LM head.
    pub(super) fn prompt_ns(
        &self,
        work: &StackWork,
        of: impl Fn(StackProgram) -> Result<f64, String>,
    ) -> Result<f64, String> {
        let layer = [
            StackProgram::RmsGemmsRope,
            StackProgram::FlashAttention,
            StackProgram::OFfn,
        ];
        let layer_ns: f64 = layer.map(&of).into_iter().sum::<Result<f64, String>>()?;
        Ok(work.model.n_layers as f64 * layer_ns + of(StackProgram::LmHead)?)
    }

    /// A layer of a prompt with the host's work between its calls.
    pub(super) fn layer_ns(&self, work: &StackWork) -> Result<f64, String> {
        let layer = [
            StackProgram::RmsGemmsRope,
            StackProgram::FlashAttention,
            StackProgram::OFfn,
        ];
        let calls = layer.map(|program| self.call_ns(work, program));
        let calls_ns: f64 = calls.into_iter().sum::<Result<f64, String>>()?;
        Ok(calls_ns + between_ns(work))
    }

    /// A prompt from text to its first token.
    pub(super) fn ttft_ns(&self, work: &StackWork) -> Result<f64, String> {
        let calls_ns = self.prompt_ns(work, |program| self.call_ns(work, program))?;
        let host = &work.host;
        Ok(calls_ns + work.model.n_layers as f64 * between_ns(work) + host.prompt_ns)
    }

    /// A token at a short context, attention on the CPU.
    pub(super) fn token_ns(&self, work: &StackWork) -> Result<f64, String> {
        let host = &work.host;
        let call = |program| Ok::<f64, String>(self.run_ns(work, program)? + host.call_ns);
        let more = (token_calls(work.model) - 2) as f64;
        let more_ns = more * (self.profile.dispatch.call_ns + host.call_ns);
        let layer_ns =
            call(StackProgram::RmsGemvRope)? + call(StackProgram::OGemvFfn)? + host.token_layer_ns;
        let layer_ns = layer_ns + more_ns;
        Ok(work.model.n_layers as f64 * layer_ns + call(StackProgram::LmHead)?)
    }

    fn kernel(&self, phase: Phase, part: StackKernel) -> Result<KernelTimes, String> {
        let key = (phase, part);
        if let Some(known) = self.kernels.borrow().get(&key) {
            return known.clone();
        }
        let (name, shape) = &key.1;
        let kernel = self.simulate(phase, &key.1);
        let kernel = kernel.map_err(|e| format!("{name} {shape}: {e}"));
        self.kernels.borrow_mut().insert(key, kernel.clone());
        kernel
    }

    /// Simulates a kernel, in the stack's tiling if that differs from the mapping's own.
    fn simulate(&self, phase: Phase, (name, shape): &StackKernel) -> Result<KernelTimes, String> {
        let mapping = mapping::find(name).ok_or("no such mapping")?;
        let shape = mapping.parse_shape(shape).map_err(|e| e.to_string())?;
        let default = mapping.default_tiling(&shape, self.machine);
        let build = |tiling| mapping.build(&shape, tiling, self.machine);
        let stack = lower::reference_tilings(phase, name, &shape, &default);
        let program = match stack.iter().find_map(|tiling| build(tiling).ok()) {
            Some(program) => program,
            None => build(&default).map_err(|e| e.to_string())?,
        };
        let herds = program.launches.iter().map(|l| l.herds.len()).sum();
        let timing = timing::predict(&program, self.machine, self.profile);
        let timing = timing.map_err(|e| e.to_string())?;
        Ok(KernelTimes {
            ns: timing.total_ns - timing.dispatch_ns,
            herds,
            loads: (timing.launches.iter())
                .map(|l| (l.configuration_bytes, l.objects))
                .collect(),
        })
    }
}

/// The host's work between the calls of a layer of a prompt. If the feed-forward has no program, gate, up and their
/// product cross the host's buffers too.
fn between_ns(work: &StackWork) -> f64 {
    let (g, host) = (work.model, &work.host);
    let layer_ns = host.prompt_layer_ns(work.length, g.d_ff);
    let crossing_bytes = match work.build == Build::Example || is_joined(g) {
        true => 0,
        false => 3 * 2 * work.length * g.d_ff,
    };
    layer_ns + crossing_bytes as f64 / host.write_gb_per_s
}

/// Whether the stack joins everything after attention into one program.
fn is_joined(g: &Geometry) -> bool {
    g.d_model < 2560 && g.d_ff.is_multiple_of(512)
}

/// Programs of a layer of a token. mlir-air's stack leaves the part after attention in four programs if the
/// feed-forward is not a multiple of 512 or the width is 2,560 and more (the README of its `llms`, "ELF/layer").
fn token_calls(g: &Geometry) -> u64 {
    if is_joined(g) { 2 } else { 5 }
}

/// The kernels of a program for a prompt of that length; those of a token do not depend on it.
fn parts(g: &Geometry, length: u64, program: StackProgram) -> Vec<StackKernel> {
    let (d, ff) = (g.d_model, g.d_ff);
    let (q, kv) = (g.n_heads * g.head_dim, g.n_kv_heads * g.head_dim);
    let gate = if g.gelu { "gelu-mul" } else { "silu-mul" };
    match program {
        StackProgram::RmsGemmsRope => {
            let product = |n| gemm(length, d, n);
            let mut parts = vec![norm(length, d), product(q), product(kv), product(kv)];
            parts.extend(heads(g, length));
            parts
        }
        StackProgram::RmsGemvRope => {
            let mut parts = vec![norm(1, d), gemv(q, d), gemv(kv, d), gemv(kv, d)];
            parts.extend(heads(g, 1));
            parts
        }
        StackProgram::FlashAttention => {
            let (h, kv, hd) = (g.n_heads, g.n_kv_heads, g.head_dim);
            // Heads of 64 stay in a token's row; those of 128 are gathered by the host, head by head.
            let layout = if hd == 64 { " seq-first" } else { "" };
            vec![(
                "flash-attention",
                format!("{length} {h}q/{kv}kv d{hd} causal{layout}"),
            )]
        }
        StackProgram::OFfn => vec![
            gemm(length, q, d),
            ("add-2d", format!("{length}x{d}")),
            norm(length, d),
            gemm(length, d, ff),
            gemm(length, d, ff),
            (gate, (length * ff).to_string()),
            gemm(length, ff, d),
            ("add-flat", format!("{length}x{d}")),
        ],
        StackProgram::OGemvFfn => vec![
            gemv(d, q),
            ("add", d.to_string()),
            norm(1, d),
            gemv(ff, d),
            gemv(ff, d),
            (gate, ff.to_string()),
            gemv(d, ff),
            ("add", d.to_string()),
        ],
        StackProgram::LmHead => vec![gemv(HEAD_ROWS, d); g.vocab.div_ceil(HEAD_ROWS) as usize],
        StackProgram::LmHeadOfAllRows => {
            let part = ("gemm-direct", format!("{length}x{d}x{HEAD_ROWS}"));
            vec![part; g.vocab.div_ceil(HEAD_ROWS) as usize]
        }
    }
}

/// Kernels for Q, K and V between their projections and attention.
fn heads(g: &Geometry, length: u64) -> Vec<StackKernel> {
    let (q_rows, kv_rows) = (length * g.n_heads, length * g.n_kv_heads);
    let rope = |rows: u64| ("rope", format!("{rows}x{}", g.head_dim));
    let bias = |rows: u64| ("add", (rows * g.head_dim).to_string());
    let mut parts = match g.extra {
        Extra::Plain => Vec::new(),
        Extra::HeadNorm => vec![norm(q_rows, g.head_dim), norm(kv_rows, g.head_dim)],
        Extra::Bias => vec![bias(q_rows), bias(kv_rows), bias(kv_rows)],
    };
    parts.extend([rope(q_rows), rope(kv_rows)]);
    parts
}

fn norm(rows: u64, width: u64) -> StackKernel {
    ("rmsnorm", format!("{rows}x{width}"))
}

fn gemm(m: u64, k: u64, n: u64) -> StackKernel {
    let mapping = if m * k * n >= FUSED_CAST_MACS {
        "gemm-fused-cast"
    } else {
        "gemm-drain"
    };
    (mapping, format!("{m}x{k}x{n}"))
}

fn gemv(m: u64, k: u64) -> StackKernel {
    ("gemv", format!("{m}x{k}"))
}
