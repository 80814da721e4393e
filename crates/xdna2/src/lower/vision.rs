//! The blocks of a vision encoder: a program for attention, one for the feed-forward network.
//!
//! | program | launches |
//! |---|---|
//! | `vision_attention` | q, k and v of the normed rows; attention without a mask; its projection |
//! | `vision_ffn` | up, GELU, down |
//! | `vision_patches`, `vision_projection` | a product |
//!
//! Products take matrices as `[n, k]` and biases as a column of them ([`millrace_plan::vision`]), in bf16 in every
//! mode, since vision encoders are published in it. d_ff is padded to [`FF_UNIT`], where the padding is `gelu(0)` = 0;
//! rows are padded to [`ROW_UNIT`].

use super::kernel::{DIM_MAX, KernelBuild, Kernels};
use super::{Features, LowerOptions, PassKind, Phase, PlannedProgram};
use crate::mapping::fused::{GEMM_PARTS, shape as fused};
use crate::mapping::{NamedNumbers, Shape, prompt_attention};
use millrace_graph::Graph;
use millrace_npu::Role;
use millrace_plan::{
    Annex, MAX_TOKENS, PlannedLaunch, VisionMatrix, VisionPlan, VisionProgram, VisionShape,
    VisionSlot,
};
use millrace_xdna2_machine::program::{StitchPart, stitch};
use millrace_xdna2_machine::{Machine, Program};
use std::rc::Rc;
use std::sync::Arc;

/// Unit that the width of normed rows is padded to.
const ROW_UNIT: u64 = 64;

/// Unit that the width between up and down is padded to.
const FF_UNIT: u64 = 128;

/// Heads are whole numbers of the matrix unit's edge.
const HEAD_UNIT: u64 = 8;

/// The plan of a vision encoder's blocks.
///
/// # Errors
/// A size that no program takes, in words.
pub fn vision_encoder(
    shape: &VisionShape,
    machine: &Machine,
    features: Features,
) -> Result<VisionPlan, String> {
    check(shape)?;
    let graph = Graph::default();
    let options = LowerOptions::of(features, &PassKind::prefill(shape.n_patches));
    let mut kernels = Kernels::new(&graph, machine, &options, Phase::Prefill);
    let attention = attention_program(shape, features, &mut kernels)?;
    let feed_forward = feed_forward_program(shape, &mut kernels)?;
    let (m, d_model) = (shape.n_patches, shape.d_model);
    let patches = (m, with_bias(shape.patch_elems), d_model);
    let projection = (shape.n_tokens, d_model, shape.d_text);
    Ok(VisionPlan {
        shape: *shape,
        patches: product_program("patches", VisionMatrix::Patches, patches, &mut kernels)?,
        attention,
        feed_forward,
        projection: product_program(
            "projection",
            VisionMatrix::Projection,
            projection,
            &mut kernels,
        )?,
    })
}

/// Refuses sizes that no program takes.
fn check(shape: &VisionShape) -> Result<(), String> {
    let VisionShape {
        n_patches,
        d_model,
        d_ff,
        n_heads,
        head_dim,
        patch_elems,
        n_tokens,
        d_text,
    } = *shape;
    if !(1..=MAX_TOKENS).contains(&n_patches) {
        return Err(format!(
            "{n_patches} patches: 1 to {MAX_TOKENS} are planned for"
        ));
    }
    if n_heads.checked_mul(head_dim) != Some(d_model) || d_model == 0 || d_ff == 0 {
        let found = format!("{n_heads} heads of {head_dim} in rows of {d_model}, d_ff {d_ff}");
        return Err(format!("{found}: heads fill a row"));
    }
    if !head_dim.is_multiple_of(HEAD_UNIT) {
        return Err(format!(
            "heads of {head_dim}: a core's matrix unit takes {HEAD_UNIT} elements at a time, so heads are a multiple of that"
        ));
    }
    let widths = [d_model, d_ff, patch_elems, n_tokens, d_text];
    if widths.into_iter().any(|width| width > DIM_MAX) {
        return Err(format!("mappings take sizes up to {DIM_MAX}"));
    }
    Ok(())
}

/// Columns of a matrix of `width` columns and its bias, filled up to whole units.
fn with_bias(width: u64) -> u64 {
    (width + 1).next_multiple_of(ROW_UNIT)
}

/// `m` rows of `k` columns times matrices of `n` rows each.
fn product_shape(m: u64, k: u64, n: &[u64]) -> Shape {
    fused(&[("m", m), ("k", k)], GEMM_PARTS, n)
}

/// q, k and v of the normed rows; attention without a mask; its projection.
fn attention_program(
    shape: &VisionShape,
    features: Features,
    kernels: &mut Kernels<'_>,
) -> Result<VisionProgram, String> {
    let (m, d_model) = (shape.n_patches, shape.d_model);
    let attention = NamedNumbers::new(&[
        ("n_queries", m),
        ("n_keys", m),
        ("max_tokens", m),
        ("n_heads", shape.n_heads),
        ("n_kv_heads", shape.n_heads),
        ("head_dim", shape.head_dim),
        ("window", 0),
    ]);
    let attention = prompt_attention::without_mask(&attention);
    // If none fits, the last one's reason is given.
    let prompts = features.prompts();
    let machine = kernels.machine;
    let fits = prompts.iter().find(|p| (p.fits)(&attention, machine));
    let prompt = fits.unwrap_or(&prompts[prompts.len() - 1]);
    let width = with_bias(d_model);
    let launches = [
        VisionLaunch::product(
            "attn_q_attn_k_attn_v",
            product_shape(m, width, &[d_model; 3]),
            &["rows", "w_q", "w_k", "w_v", "q", "k", "v"],
        ),
        VisionLaunch {
            label: "attn",
            mapping: prompt.mapping,
            shape: attention,
            slots: &["q", "k", "v", "at", "y"],
        },
        VisionLaunch::product(
            "attn_output",
            product_shape(m, d_model, &[d_model]),
            &["y", "w_out", "sum"],
        ),
    ];
    let of_rows = |of| matrix(of, d_model, width, true);
    let slots = [
        ("rows", VisionSlot::Rows { width, bias: true }),
        ("w_q", of_rows(VisionMatrix::Q)),
        ("w_k", of_rows(VisionMatrix::K)),
        ("w_v", of_rows(VisionMatrix::V)),
        ("at", VisionSlot::Position),
        ("q", VisionSlot::Scratch),
        ("k", VisionSlot::Scratch),
        ("v", VisionSlot::Scratch),
        ("y", VisionSlot::Scratch),
        ("w_out", matrix(VisionMatrix::Out, d_model, d_model, false)),
        ("sum", VisionSlot::Sum),
    ];
    program("vision_attention", &launches, &slots, d_model, kernels)
}

/// Up, GELU, down.
fn feed_forward_program(
    shape: &VisionShape,
    kernels: &mut Kernels<'_>,
) -> Result<VisionProgram, String> {
    let (m, d_model) = (shape.n_patches, shape.d_model);
    let width = with_bias(d_model);
    let d_ff = shape.d_ff.next_multiple_of(FF_UNIT);
    let launches = [
        VisionLaunch::product(
            "ffn_up",
            product_shape(m, width, &[d_ff]),
            &["rows", "w_up", "up"],
        ),
        VisionLaunch {
            label: "ffn_gelu",
            mapping: "gelu",
            shape: NamedNumbers::new(&[("n", m * d_ff)]),
            slots: &["up", "act"],
        },
        VisionLaunch::product(
            "ffn_down",
            product_shape(m, d_ff, &[d_model]),
            &["act", "w_down", "sum"],
        ),
    ];
    let slots = [
        ("rows", VisionSlot::Rows { width, bias: true }),
        ("w_up", matrix(VisionMatrix::Up, d_ff, width, true)),
        ("up", VisionSlot::Scratch),
        ("act", VisionSlot::Scratch),
        ("w_down", matrix(VisionMatrix::Down, d_model, d_ff, false)),
        ("sum", VisionSlot::Sum),
    ];
    program("vision_ffn", &launches, &slots, d_model, kernels)
}

/// One product; that of patches has a bias.
fn product_program(
    label: &'static str,
    of: VisionMatrix,
    (m, k, n): (u64, u64, u64),
    kernels: &mut Kernels<'_>,
) -> Result<VisionProgram, String> {
    let bias = of == VisionMatrix::Patches;
    let launches = [VisionLaunch::product(
        label,
        product_shape(m, k, &[n]),
        &["rows", "w", "sum"],
    )];
    let slots = [
        ("rows", VisionSlot::Rows { width: k, bias }),
        ("w", matrix(of, n, k, bias)),
        ("sum", VisionSlot::Sum),
    ];
    program(&format!("vision_{label}"), &launches, &slots, n, kernels)
}

fn matrix(of: VisionMatrix, n: u64, k: u64, bias: bool) -> VisionSlot {
    VisionSlot::Matrix { of, n, k, bias }
}

/// A launch of a vision encoder's program, with the program's slots in its mapping's order.
struct VisionLaunch {
    label: &'static str,
    mapping: &'static str,
    shape: Shape,
    slots: &'static [&'static str],
}

impl VisionLaunch {
    fn product(label: &'static str, shape: Shape, slots: &'static [&'static str]) -> VisionLaunch {
        VisionLaunch {
            label,
            mapping: "gemm-stream-bt",
            shape,
            slots,
        }
    }

    fn built(&self, kernels: &mut Kernels<'_>) -> Result<Rc<KernelBuild>, String> {
        let built = kernels.built(self.mapping, &self.shape, None);
        built.map_err(|problem| format!("{}: {problem}", self.label))
    }

    /// Slots that it writes: one a product.
    fn n_results(&self) -> usize {
        let is_part = |(name, _): &(&str, u64)| GEMM_PARTS.contains(name);
        self.shape.iter().filter(is_part).count().max(1)
    }
}

fn program(
    name: &str,
    launches: &[VisionLaunch],
    slots: &[(&str, VisionSlot)],
    d_model: u64,
    kernels: &mut Kernels<'_>,
) -> Result<VisionProgram, String> {
    let mut built = Vec::new();
    for launched in launches {
        built.push(launched.built(kernels)?);
    }
    let programs: Vec<Program> = built.iter().map(|built| in_rows(built, d_model)).collect();
    let parts: Vec<StitchPart<'_>> = (programs.iter().zip(launches))
        .map(|(program, launched)| StitchPart {
            program,
            prefix: launched.label,
            arg_map: launched.slots,
        })
        .collect();
    let mut stitched = stitch(name, &parts, &[]).map_err(|error| error.to_string())?;
    let mut held = Vec::new();
    for slot in &mut stitched.slots {
        let of = slots.iter().find(|(name, _)| *name == slot.name);
        let (_, of) = of.ok_or_else(|| format!("{name}: nothing is said of `{}`", slot.name))?;
        slot.role = match of {
            VisionSlot::Rows { .. } => Role::Input,
            VisionSlot::Matrix { .. } | VisionSlot::Position => Role::Static,
            VisionSlot::Scratch => Role::Intermediate,
            VisionSlot::Sum => Role::Output,
        };
        held.push(*of);
    }
    if let Err(refusals) = kernels.verifier.verify(&stitched) {
        let refusal = refusals.first().map(ToString::to_string);
        return Err(format!("{name}: {}", refusal.unwrap_or_default()));
    }
    let position = |wanted: &&str| stitched.slots.iter().position(|slot| slot.name == **wanted);
    let mut first = 0;
    let mut planned = Vec::new();
    for (launched, built) in launches.iter().zip(&built) {
        let last = first + built.program.launches.len();
        planned.push(PlannedLaunch {
            name: launched.label.to_owned(),
            kernel: launched.mapping.to_owned(),
            shape: built.shape.clone(),
            tiling: built.tiling.clone(),
            slots: launched.slots.iter().filter_map(position).collect(),
            n_results: launched.n_results(),
            physical: first..last,
        });
        first = last;
    }
    let container = stitched.to_container().map_err(|error| error.to_string())?;
    Ok(VisionProgram {
        program: PlannedProgram {
            container: Arc::new(container),
            launches: planned,
            annex: Annex::new(stitched),
        },
        slots: held,
    })
}

/// The program with heads as pieces of a row, as products have them.
fn in_rows(built: &KernelBuild, d_model: u64) -> Program {
    let mut program = built.program.clone();
    let of_heads = program
        .slots
        .iter_mut()
        .filter(|slot| slot.shape.len() == 3);
    of_heads.for_each(|slot| slot.shape = vec![slot.shape[0], d_model]);
    program
}
