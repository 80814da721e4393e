//! Layers with a selective scan (Mamba-2).

use super::recurrent;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::{BranchScales, MambaConfig, MambaNorm};
use crate::names::WeightRole;
use millrace_graph::{
    Activation, ConcatHeads, DecayForm, Glu, RmsNorm, SsmScan, ValueId, WeightId, WeightSource,
};

/// A selective scan of a normed stream, with its gate, its norm and both projections; `activation` follows its convolution.
pub(in crate::arch) fn scan(
    b: &mut GraphBuilder<'_>,
    mamba: &MambaConfig,
    activation: Activation,
    x: ValueId,
) -> Result<ValueId, Error> {
    let recurrent = b.config().recurrent.as_ref();
    let scales = recurrent.and_then(|recurrent| recurrent.beside_attention);
    let scales = scales.unwrap_or(BranchScales::NONE);
    let x = b.scale("ssm_in_scale", scales.ssm_in, x);
    let projected = project(b, mamba, &scales.ssm, x)?;
    let convolution = (mamba.n_taps, mamba.conv_bias);
    let activation = Some(activation);
    let xbc = recurrent::conv(
        b,
        WeightRole::SsmConv,
        convolution,
        activation,
        projected.xbc,
    )?;
    let n_heads = mamba.n_heads;
    let op = SsmScan {
        state: b.next_state(),
        rate: by_head(b, WeightRole::SsmRate, n_heads)?,
        form: match b.is_gguf() {
            true => DecayForm::Rate,
            false => DecayForm::Logarithm,
        },
        dt: b.bias(WeightRole::SsmDt, &[n_heads])?,
        skip: by_head(b, WeightRole::SsmSkip, n_heads)?,
        dt_limit: mamba.dt_limit,
        n_heads,
        n_groups: mamba.n_groups,
        head_dim: mamba.head_dim,
        d_state: mamba.d_state,
    };
    let width = mamba.d_inner();
    let out = b.push("ssm_scan", op.into(), vec![xbc, projected.dt], width);
    let out = gated(b, mamba, projected.gate, out)?;
    let size = (b.config().d_model, mamba.out_bias);
    let out = b.linear("ssm_out", WeightRole::SsmOut, size, out)?;
    Ok(b.scale("ssm_out_scale", scales.ssm_out, out))
}

/// A number for each head; llama.cpp's files have them as a column.
fn by_head(b: &mut GraphBuilder<'_>, role: WeightRole, n: usize) -> Result<WeightId, Error> {
    by_rows(b, role, [n, 1])
}

/// A vector that llama.cpp's files have as a matrix. There it is a vector, too, after a program has dropped dimensions of
/// one.
fn by_rows(
    b: &mut GraphBuilder<'_>,
    role: WeightRole,
    [n, k]: [usize; 2],
) -> Result<WeightId, Error> {
    let name = b.name_of(role);
    let shape: &[usize] = match b.is_gguf() && b.rank_of(name) != Some(1) {
        true => &[n, k],
        false => &[n * k],
    };
    b.weight_from(name, name, shape, WeightSource::Whole)
}

fn gated(
    b: &mut GraphBuilder<'_>,
    mamba: &MambaConfig,
    gate: ValueId,
    x: ValueId,
) -> Result<ValueId, Error> {
    let width = mamba.d_inner();
    let glu = |b: &mut GraphBuilder<'_>, x| {
        let glu = Glu::new(Activation::Silu);
        b.push("ssm_gated", glu.into(), vec![gate, x], width)
    };
    Ok(match mamba.norm {
        MambaNorm::Absent => glu(b, x),
        MambaNorm::BehindGate => {
            let out = glu(b, x);
            norm(b, mamba, WeightRole::SsmNorm, out)?
        }
        MambaNorm::BeforeGate => {
            let out = norm(b, mamba, WeightRole::SsmPreNorm, x)?;
            glu(b, out)
        }
    })
}

/// A norm of each group of heads; llama.cpp's files have a row of its weight for each.
fn norm(
    b: &mut GraphBuilder<'_>,
    mamba: &MambaConfig,
    role: WeightRole,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (width, n_groups) = (mamba.d_inner(), mamba.n_groups);
    let group = width / n_groups;
    // No layout stores this weight minus 1.
    let norm = RmsNorm {
        weight: by_rows(b, role, [n_groups, group])?,
        eps: b.config().norm_eps,
        offset: 0.0,
        group,
    };
    Ok(b.push("ssm_norm", norm.into(), vec![x], width))
}

/// Inputs of a selective scan.
struct ScanInputs {
    gate: ValueId,
    xbc: ValueId,
    dt: ValueId,
}

/// Rows of the one projection, each part with its factor.
fn project(
    b: &mut GraphBuilder<'_>,
    mamba: &MambaConfig,
    factors: &[f32; 5],
    x: ValueId,
) -> Result<ScanInputs, Error> {
    use WeightRole::{SsmInB, SsmInC, SsmInDt, SsmInGate, SsmInX, SsmInXbc};
    let (inner, keys) = (mamba.d_inner(), mamba.key_width());
    let mut part = |label, role, (first, n): (usize, usize), factor| {
        let (weight, bias) = rows(b, mamba, role, (first, n))?;
        let out = b.product(label, (weight, bias), x);
        Ok::<_, Error>(b.scale("ssm_in_part_scale", factor, out))
    };
    let gate = part("ssm_in_gate", SsmInGate, (0, inner), factors[0])?;
    let first = inner + mamba.xbc_width();
    let dt = part("ssm_in_dt", SsmInDt, (first, mamba.n_heads), factors[4])?;
    let [x_factor, b_factor, c_factor] = [factors[1], factors[2], factors[3]];
    let xbc = match x_factor == b_factor && b_factor == c_factor {
        true => part("ssm_in_xbc", SsmInXbc, (inner, mamba.xbc_width()), x_factor)?,
        false => {
            let values = part("ssm_in_x", SsmInX, (inner, inner), x_factor)?;
            let k = part("ssm_in_b", SsmInB, (2 * inner, keys), b_factor)?;
            let q = part("ssm_in_c", SsmInC, (2 * inner + keys, keys), c_factor)?;
            let xb = beside(b, values, k);
            beside(b, xb, q)
        }
    };
    Ok(ScanInputs { gate, xbc, dt })
}

/// Rows of the one projection, and of its bias if it has one.
fn rows(
    b: &mut GraphBuilder<'_>,
    mamba: &MambaConfig,
    role: WeightRole,
    (first, n): (usize, usize),
) -> Result<(WeightId, Option<WeightId>), Error> {
    let (name, fused) = (b.name_of(role), b.name_of(WeightRole::SsmIn));
    let (n_rows, width) = (mamba.in_width(), b.config().d_model);
    let weight = b.rows_of((name, &[n, width]), (fused, n_rows), first)?;
    let bias = match mamba.in_bias {
        true => Some(b.rows_of((name.bias(), &[n]), (fused.bias(), n_rows), first)?),
        false => None,
    };
    Ok((weight, bias))
}

/// Two values side by side.
fn beside(b: &mut GraphBuilder<'_>, left: ValueId, right: ValueId) -> ValueId {
    let [from_a, from_b] = [left, right].map(|value| 0..b.width(value));
    let width = from_a.len() + from_b.len();
    let op = ConcatHeads {
        n_heads: 1,
        from_a,
        from_b,
    };
    b.push("ssm_in_beside", op.into(), vec![left, right], width)
}
