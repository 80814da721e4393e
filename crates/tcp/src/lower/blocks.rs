//! The programs of a pass.

mod ends;
mod passes;
mod projections;

pub use ends::{embed, exchange, head, reduce};

use super::attention::Cache;
use super::builder::{Builder, Lane, ax, list};
use super::linear::HbmLinear;
use super::rope::Table;
use super::rows::{ActivationRows, Width};
use super::{ACTIVATION_SCALE, LowerError, Target, TcpLowering, Weights};
use crate::Element;
use crate::axes::Mapping;
use crate::einsum::Einsum;
use crate::program::{Side, View};
use millrace_npu::Role;
use projections::Projections;

impl Builder<'_> {
    pub(super) fn lowered(self) -> TcpLowering {
        TcpLowering {
            program: self.program,
            notes: self.notes,
        }
    }

    pub(super) fn width(&self) -> Width {
        Width::new(&[("D", self.target.dims.d_model)])
    }

    /// A residual stream in HBM: `[B, s_q, D]` bf16.
    fn stream(&mut self, name: &str, role: Role) -> Result<usize, LowerError> {
        let layout = list([ax("B"), ax("s_q"), ax("D")]);
        self.hbm(name, Element::Bf16, role, layout)
    }

    pub(super) fn vector_of(&mut self, name: &str, layout: Mapping) -> Result<usize, LowerError> {
        self.hbm(name, Element::F32, Role::Static, layout)
    }

    /// A weight in HBM, its rows in the order of `rows`.
    pub(super) fn linear(
        &mut self,
        name: &str,
        weights: Weights,
        (n, k): (Width, &Width),
        rows: Mapping,
    ) -> Result<HbmLinear, LowerError> {
        let layout = list([rows.clone(), k.mapping.clone()]);
        let tensor = self.hbm(name, weights.stored(), Role::Static, layout)?;
        let scale = match weights {
            Weights::Bf16 => None,
            Weights::Fp8 | Weights::Int4 | Weights::Int8 => {
                Some(self.vector_of(&format!("{name}_scale"), rows)?)
            }
        };
        Ok(HbmLinear {
            tensor,
            scale,
            of_tokens: None,
            n,
            k: k.clone(),
            weights,
            result: Element::Bf16,
            ring: None,
            part: None,
        })
    }

    /// Element that activations are cast to before a product, and their scale.
    fn factor(&self) -> (Element, f32) {
        let weights = self.target.options.weights;
        match weights {
            Weights::Bf16 => (Element::Bf16, 1.0),
            Weights::Fp8 | Weights::Int4 => (weights.factor(), ACTIVATION_SCALE),
            // Refused before: a norm cannot produce a scale for each token.
            Weights::Int8 => (Element::Bf16, 1.0),
        }
    }

    /// An activation in the form that a product takes.
    pub(super) fn as_factor(&mut self, x: ActivationRows) -> Result<ActivationRows, LowerError> {
        let (element, scale) = self.factor();
        if element == x.element {
            return Ok(x);
        }
        let out = self.rows("factor", element, &x.width)?;
        self.scale_rows(&x, &out, scale);
        self.retire(x.tensor);
        Ok(out)
    }

    pub(super) fn note_einsum(
        &mut self,
        op: &str,
        inputs: &[&[&str]],
        output: &[&str],
        levels: &str,
    ) {
        let text = Einsum::new(inputs, output).map(|einsum| einsum.to_string());
        let text = text.unwrap_or_else(|error| error.to_string());
        self.note(op, &text, "contraction engine", levels);
    }

    /// The residual sum, or the part of one chip of several.
    fn residual(
        &mut self,
        x: &ActivationRows,
        y: &ActivationRows,
        out: usize,
    ) -> Result<(), LowerError> {
        if self.target.options.n_shards > 1 {
            self.copy("store", Lane::Others, View::of(y.tensor), View::of(out));
            let expression = "[B, s_q, D] a chip → [B, s_q, D]";
            self.note(
                "all-reduce",
                expression,
                "DMA and vector engine",
                "reduce: chip (shuffle, interleaved fetch, add)",
            );
            return Ok(());
        }
        let sum = self.add_rows(x, y)?;
        self.copy("store", Lane::Others, View::of(sum.tensor), View::of(out));
        let expression = "x + y over [B, s_q, D]";
        self.note(
            "residual",
            expression,
            "vector engine",
            "1 pass, interleaved fetch",
        );
        Ok(())
    }

    fn out_name(&self) -> &'static str {
        match self.target.options.n_shards {
            1 => "x_out",
            _ => "partial",
        }
    }

    pub(super) fn note_append(&mut self) {
        self.note(
            "KV cache",
            "scatter(index: [B, s_q], [B, h_kv, s_q, d_k]) → [B, h_kv, s_max, d_k]",
            "tensor DMA",
            "row s - 1 of the cache where s tokens are there",
        );
    }

    pub(super) fn note_attention(&mut self) -> Result<(), LowerError> {
        let (scores, sums) = self.attention_levels()?;
        self.note_einsum(
            "scores",
            &[
                &["B", "h_kv", "G", "s_q", "d_k"],
                &["B", "h_kv", "s_k", "d_k"],
            ],
            &["B", "h_kv", "G", "s_q", "s_k"],
            &scores,
        );
        self.note(
            "scale and mask",
            "scores × 1/sqrt(d_k) + mask[B, s_q, s_k]",
            "vector engine",
            "in the pass of the scores; mask in vector registers",
        );
        self.note(
            "softmax",
            "exp(s - max(s)) / sum(exp(s - max(s))) over s_k",
            "vector engine",
            &format!("3 passes: max; exp and sum; exp and division; {sums}"),
        );
        self.note_einsum(
            "weighted sum",
            &[
                &["B", "h_kv", "G", "s_q", "s_k"],
                &["B", "h_kv", "s_k", "d_k"],
            ],
            &["B", "h_kv", "G", "s_q", "d_k"],
            &sums,
        );
        Ok(())
    }

    pub(super) fn note_norm(&mut self, op: &str, x: &ActivationRows) {
        let levels = match self.is_held() {
            true => format!(
                "3 passes; reduce: packet → time → slice (ring of {})",
                x.width.size() / x.per
            ),
            false => {
                "3 passes, the last in parts of 1,024 columns; reduce: packet → time".to_owned()
            }
        };
        let expression = "x / sqrt(mean(x²) + eps) × w over [B, s_q, D]";
        self.note(op, expression, "vector engine", &levels);
    }
}

/// A layer's attention. Slots, in order: `x`, `norm` f32, `w_q`, `w_k`, `w_v`, `w_o` (each with its `_scale` where
/// weights have one), `rope` bf16 `[s_max, d_k_prime, f, r]`, `position` i32, `mask` f32 `[B, s_q, s_k]`, `k_cache`
/// `[B, h_kv, s_max, r, d_k_prime]`, `v_cache` `[B, h_kv, s_max, d_k]`, then `x_out`, or `partial` where several chips
/// share the layer.
///
/// # Errors
/// [`LowerError`].
pub fn attention(target: Target<'_>) -> Result<TcpLowering, LowerError> {
    takes(target.options.weights)?;
    let mut b = Builder::new(target, "attention")?;
    let (dims, call) = (target.dims, target.call);
    for (name, size) in [
        ("h_kv", dims.n_kv_heads),
        ("G", dims.n_groups),
        ("d_k_prime", dims.head_dim / 2),
        ("f", 2),
        ("r", 2),
        ("d_k", dims.head_dim),
        ("s_k", call.n_keys),
        ("s_max", call.n_cache),
    ] {
        b.axis(name, size)?;
    }
    let x = b.stream("x", Role::Intermediate)?;
    let norm = b.vector_of("norm", ax("D"))?;
    let width = b.width();
    let q_heads = Width::new(&[("h_kv", dims.n_kv_heads), ("G", dims.n_groups)]);
    let k_heads = Width::new(&[("h_kv", dims.n_kv_heads)]);
    let projections = Projections::declare(&mut b, &q_heads, &k_heads)?;
    let (table, position) = rope_table(&mut b)?;
    let cache = cache(&mut b)?;
    let out = b.stream(b.out_name(), Role::Intermediate)?;
    let rows = b.rows("x", Element::Bf16, &width)?;
    b.load_rows(x, &rows);
    let (element, scale) = b.factor();
    let normed = b.norm(&rows, norm, element, scale)?;
    b.note_norm("input norm", &rows);
    let (q, k, v) = project(&mut b, &normed, &projections)?;
    let rotated_q = b.rotate("q_rope", &q, &q_heads, &table)?;
    b.retire(q.tensor);
    let rotated_k = b.rotate("k_rope", &k, &k_heads, &table)?;
    b.retire(k.tensor);
    note_rope(&mut b);
    store(&mut b, (&rotated_k, &v), cache, position);
    let y = b.attend(&rotated_q, cache)?;
    b.retire(rotated_q.tensor);
    b.note_attention()?;
    let y = b.as_factor(y)?;
    let w_o = &projections.o;
    let held = b.hold_for(&y, w_o)?;
    let y = b.product("attn_out", &y, held, w_o)?;
    let levels = b.levels(w_o)?;
    b.note_einsum(
        "output projection",
        &[
            &["B", "s_q", "h_kv", "G", "d_k"],
            &["h_kv", "G", "d_k", "D"],
        ],
        &["B", "s_q", "D"],
        &levels,
    );
    b.residual(&rows, &y, out)?;
    Ok(b.lowered())
}

/// The table of rotations, and the positions by which its rows are looked up.
fn rope_table(b: &mut Builder<'_>) -> Result<(Table, usize), LowerError> {
    let rows = list([ax("s_max"), ax("d_k_prime"), ax("f"), ax("r")]);
    let tensor = b.hbm("rope", Element::Bf16, Role::Static, rows)?;
    let tokens = list([ax("B"), ax("s_q")]);
    let position = b.hbm("position", Element::I32, Role::Input, tokens)?;
    let table = Table {
        tensor,
        position: Some(position),
    };
    Ok((table, position))
}

fn cache(b: &mut Builder<'_>) -> Result<Cache, LowerError> {
    let mask = list([ax("B"), ax("s_q"), ax("s_k")]);
    let heads = [ax("B"), ax("h_kv"), ax("s_max")];
    let k_rows = list([list(heads.clone()), ax("r"), ax("d_k_prime")]);
    let v_rows = list([list(heads), ax("d_k")]);
    Ok(Cache {
        mask: b.hbm("mask", Element::F32, Role::Input, mask)?,
        keys: b.hbm("k_cache", Element::Bf16, Role::Intermediate, k_rows)?,
        values: b.hbm("v_cache", Element::Bf16, Role::Intermediate, v_rows)?,
    })
}

/// Whether norms of these blocks can produce the operands of products with such weights.
fn takes(weights: Weights) -> Result<(), LowerError> {
    match weights {
        Weights::Bf16 | Weights::Fp8 | Weights::Int4 => Ok(()),
        Weights::Int8 => Err(LowerError::Unsupported(
            "layers that several chips share are not lowered in int8; take bf16, fp8 or int4"
                .to_owned(),
        )),
    }
}

/// Queries, keys and values of normed tokens.
fn project(
    b: &mut Builder<'_>,
    normed: &ActivationRows,
    projections: &Projections,
) -> Result<(ActivationRows, ActivationRows, ActivationRows), LowerError> {
    let (w_q, w_k, w_v) = (&projections.q, &projections.k, &projections.v);
    let held = b.hold_for(normed, w_q)?;
    let q = b.product("q", normed, held, w_q)?;
    let k = b.product("k", normed, held, w_k)?;
    let v = b.product("v", normed, held, w_v)?;
    b.retire(normed.tensor);
    for (op, linear, heads) in [
        ("Q projection", w_q, &["h_kv", "G", "d_k"][..]),
        ("K projection", w_k, &["h_kv", "d_k"][..]),
        ("V projection", w_v, &["h_kv", "d_k"][..]),
    ] {
        let levels = b.levels(linear)?;
        let weight = [&["D"], heads].concat();
        let output = [&["B", "s_q"], heads].concat();
        b.note_einsum(op, &[&["B", "s_q", "D"], &weight], &output, &levels);
    }
    Ok((q, k, v))
}

/// Keys and values into the cache, at their tokens' positions.
fn store(
    b: &mut Builder<'_>,
    (k, v): (&ActivationRows, &ActivationRows),
    cache: Cache,
    position: usize,
) {
    for (rows, to) in [(k, cache.keys), (v, cache.values)] {
        let both = (View::of(rows.tensor), View::of(to));
        b.indexed("append", both, (Side::To, "s_max", position));
        b.retire(rows.tensor);
    }
    b.note_append();
}

fn note_rope(b: &mut Builder<'_>) {
    b.note(
        "RoPE table",
        "gather(index: [B, s_q], table: [s_max, d_k_prime, f, 2]) → [B, s_q, d_k_prime, f, 2]",
        "tensor DMA",
        "position of the token, from 0",
    );
    for (op, heads) in [
        ("RoPE of Q", &["h_kv", "G"][..]),
        ("RoPE of K", &["h_kv"][..]),
    ] {
        let x = [&["B", "s_q"], heads, &["d_k_prime", "f"]].concat();
        let output = [&["B"], heads, &["s_q", "d_k_prime", "r"]].concat();
        let table: &[&str] = &["B", "s_q", "d_k_prime", "f", "r"];
        b.note_einsum(op, &[&x, table], &output, "reduce: packet (2)");
    }
}

/// A layer's feed-forward. Slots, in order: `x`, `norm` f32, `w_gate`, `w_up`, `w_down` (each with its
/// `_scale` where weights have one), then `x_out`, or `partial`.
///
/// # Errors
/// [`LowerError`].
pub fn feed_forward(target: Target<'_>) -> Result<TcpLowering, LowerError> {
    takes(target.options.weights)?;
    let mut b = Builder::new(target, "feed_forward")?;
    b.axis("F", target.dims.d_ff)?;
    let x = b.stream("x", Role::Intermediate)?;
    let norm = b.vector_of("norm", ax("D"))?;
    let (width, hidden) = (b.width(), Width::new(&[("F", target.dims.d_ff)]));
    let weights = target.options.weights;
    let w_gate = b.linear("w_gate", weights, (hidden.clone(), &width), ax("F"))?;
    let w_up = b.linear("w_up", weights, (hidden.clone(), &width), ax("F"))?;
    let w_down = b.linear("w_down", weights, (width.clone(), &hidden), ax("D"))?;
    let out = b.stream(b.out_name(), Role::Intermediate)?;
    let rows = b.rows("x", Element::Bf16, &width)?;
    b.load_rows(x, &rows);
    let (element, scale) = b.factor();
    let normed = b.norm(&rows, norm, element, scale)?;
    b.note_norm("post-attention norm", &rows);
    let held = b.hold_for(&normed, &w_gate)?;
    let active = b.rows("active", element, &hidden)?;
    let cut = b.cut(&w_gate)?;
    for number in 0..cut.n_tiles {
        let gates = b.tile(&normed, held, &w_gate, &cut, number)?;
        let ups = b.tile(&normed, held, &w_up, &cut, number)?;
        for (gate, up) in gates.iter().zip(&ups) {
            let tile = b.silu(gate, up.tensor, element, scale)?;
            let to = gate.view_of(active.tensor);
            b.copy("rest", Lane::Others, View::of(tile), to);
            b.retire(gate.tensor);
            b.retire(up.tensor);
            b.retire(tile);
        }
    }
    b.retire(normed.tensor);
    let levels = b.levels(&w_gate)?;
    for op in ["gate projection", "up projection"] {
        let inputs: [&[&str]; 2] = [&["B", "s_q", "D"], &["D", "F"]];
        b.note_einsum(op, &inputs, &["B", "s_q", "F"], &levels);
    }
    b.note(
        "SiLU × up",
        "gate × sigmoid(gate) × up over [B, s_q, F]",
        "vector engine",
        "1 pass, interleaved fetch, where the products lie",
    );
    let held = b.hold_for(&active, &w_down)?;
    let y = b.product("ffn_out", &active, held, &w_down)?;
    let levels = b.levels(&w_down)?;
    let inputs: [&[&str]; 2] = [&["B", "s_q", "F"], &["F", "D"]];
    b.note_einsum("down projection", &inputs, &["B", "s_q", "D"], &levels);
    b.residual(&rows, &y, out)?;
    Ok(b.lowered())
}
