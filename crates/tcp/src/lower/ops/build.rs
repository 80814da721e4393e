//! The programs of ops.

use super::{LoweredOp, Op, OpKernel, OpKind, Role};
use crate::Element;
use crate::axes::Mapping;
use crate::lower::attention::Cache;
use crate::lower::builder::{Builder, Lane, ax, inner, list};
use crate::lower::chain::product_cut;
use crate::lower::linear::ResultTile;
use crate::lower::rope::Table;
use crate::lower::rows::{ActivationRows, Width};
use crate::lower::{LowerError, Target};
use crate::program::{Side, View};
use millrace_npu::Role as Slot;

/// Bytes of a slice that one operand of an element-wise op takes at a time: two parts of three operands fit.
const PART_BYTES: u64 = 48 << 10;

pub(super) fn op(op: &Op, name: &str, target: Target<'_>) -> Result<LoweredOp, LowerError> {
    let mut b = Builder::bare(target, name)?;
    for (axis, size) in OpKernel::of(op.kind).axes.iter().zip(&op.sizes) {
        b.axis(axis, *size)?;
    }
    b.axis("s_q", op.size("s_q"))?;
    let cut = match op.kind {
        OpKind::Embed => embed(&mut b)?,
        OpKind::Norm => norm(&mut b, None)?,
        OpKind::LastNorm => norm(&mut b, Some("s_in"))?,
        OpKind::Product(role) => product(&mut b, op, role)?,
        OpKind::RotateQueries => rotate(&mut b, op, &["h_kv", "G"])?,
        OpKind::RotateKeys => rotate(&mut b, op, &["h_kv"])?,
        OpKind::Attend => attend(&mut b, op)?,
        OpKind::Gate => gate(&mut b, op)?,
        OpKind::Add => add(&mut b, op)?,
    };
    Ok(LoweredOp {
        lowered: b.lowered(),
        cut,
    })
}

type OpSplit = Vec<(&'static str, u64)>;

impl Builder<'_> {
    /// An operand or a result in HBM: all tokens' rows of a width.
    fn value(
        &mut self,
        name: &str,
        element: Element,
        role: Slot,
        width: Mapping,
    ) -> Result<usize, LowerError> {
        self.hbm(name, element, role, list([ax("B"), ax("s_q"), width]))
    }

    fn store(&mut self, rows: &ActivationRows, to: usize) {
        self.copy("store", Lane::Others, View::of(rows.tensor), View::of(to));
    }
}

/// Axes of an op as the width of a row.
pub(in crate::lower) fn width_of(op: &Op, axes: &[&str]) -> Width {
    let sizes: Vec<(&str, u64)> = axes.iter().map(|axis| (*axis, op.size(axis))).collect();
    Width::new(&sizes)
}

fn embed(b: &mut Builder<'_>) -> Result<OpSplit, LowerError> {
    let tokens = list([ax("B"), ax("s_q")]);
    let token = b.hbm("token", Element::I32, Slot::Input, tokens)?;
    let table = list([ax("V"), ax("D")]);
    let table = b.hbm("table", Element::Bf16, Slot::Static, table)?;
    let y = b.value("y", Element::Bf16, Slot::Output, ax("D"))?;
    let width = b.width();
    let rows = b.rows("x", Element::Bf16, &width)?;
    let both = (View::of(table), View::of(rows.tensor));
    b.indexed("gather", both, (Side::From, "V", token));
    b.store(&rows, y);
    let expression = "gather(index: [B, s_q], table: [V, D]) → [B, s_q, D]";
    b.note("embedding", expression, "tensor DMA", "");
    Ok(Vec::new())
}

/// A norm of every row, or of the row at an index.
fn norm(b: &mut Builder<'_>, from: Option<&str>) -> Result<OpSplit, LowerError> {
    let width = b.width();
    let rows = match from {
        None => {
            let x = b.value("x", Element::Bf16, Slot::Input, ax("D"))?;
            let rows = b.rows("x", Element::Bf16, &width)?;
            b.load_rows(x, &rows);
            rows
        }
        Some(axis) => {
            let layout = list([ax("B"), ax(axis), ax("D")]);
            let x = b.hbm("x", Element::Bf16, Slot::Input, layout)?;
            let last = b.hbm("last", Element::I32, Slot::Input, ax("B"))?;
            let rows = b.rows("x", Element::Bf16, &width)?;
            let both = (View::of(x), View::of(rows.tensor));
            b.indexed("last", both, (Side::From, axis, last));
            rows
        }
    };
    let weight = b.vector_of("w", ax("D"))?;
    let y = b.value("y", Element::Bf16, Slot::Output, ax("D"))?;
    let normed = b.norm(&rows, weight, Element::Bf16, 1.0)?;
    b.note_norm("norm", &rows);
    b.store(&normed, y);
    Ok(vec![("columns", rows.per)])
}

impl Role {
    /// The axes that a product contracts, and those that it gives.
    pub(crate) fn axes(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Role::Queries => (&["D"], &["h_kv", "G", "d_k"]),
            Role::Keys => (&["D"], &["h_kv", "d_k"]),
            Role::Output => (&["h_kv", "G", "d_k"], &["D"]),
            Role::Up => (&["D"], &["F"]),
            Role::Down => (&["F"], &["D"]),
            Role::Head => (&["D"], &["V"]),
            Role::Other => (&["K"], &["N"]),
        }
    }
}

fn product(b: &mut Builder<'_>, op: &Op, role: Role) -> Result<OpSplit, LowerError> {
    let (from, to) = role.axes();
    let (k, n) = (width_of(op, from), width_of(op, to));
    let x = b.value("x", Element::Bf16, Slot::Input, k.mapping.clone())?;
    let rows = n.mapping.clone();
    let mut w = b.linear("w", op.weights, (n.clone(), &k), rows)?;
    if role == Role::Head {
        w.result = Element::F32;
    }
    let y = b.value("y", w.result, Slot::Output, n.mapping.clone())?;
    let rows = b.rows("x", Element::Bf16, &k)?;
    b.load_rows(x, &rows);
    let factor = b.factor_of(&rows, op.weights)?;
    w.of_tokens = factor.of_tokens;
    let rows = factor.rows;
    let held = b.hold_for(&rows, &w)?;
    let cut = b.cut(&w)?;
    for number in 0..cut.n_tiles {
        for tile in b.tile(&rows, held, &w, &cut, number)? {
            let part = tile.view_of(y);
            b.copy("store", Lane::Others, View::of(tile.tensor), part);
            b.retire(tile.tensor);
        }
    }
    let levels = b.levels(&w)?;
    let input = [&["B", "s_q"], from].concat();
    let weight = [from, to].concat();
    let output = [&["B", "s_q"], to].concat();
    let kernel = OpKernel::of(op.kind).name;
    b.note_einsum(kernel, &[&input, &weight], &output, &levels);
    Ok(product_cut(op, cut.r, cut.n_tiles))
}

fn rotate(b: &mut Builder<'_>, op: &Op, heads: &[&str]) -> Result<OpSplit, LowerError> {
    b.axis("f", 2)?;
    b.axis("r", 2)?;
    let (pairs, heads) = (op.size("d_k_prime"), width_of(op, heads));
    // Values have the first elements of all pairs, then the second ones.
    let halves = |axis: &str| list([heads.mapping.clone(), ax(axis), ax("d_k_prime")]);
    let x = b.value("x", Element::Bf16, Slot::Input, halves("f"))?;
    let matrices = list([ax("d_k_prime"), ax("f"), ax("r")]);
    let table = b.value("t", Element::Bf16, Slot::Input, matrices)?;
    let y = b.value("y", Element::Bf16, Slot::Output, halves("r"))?;
    let mut axes: Vec<(&str, u64)> = heads.axes.iter().map(|(n, s)| (&**n, *s)).collect();
    axes.extend([("d_k_prime", pairs), ("f", 2)]);
    let width = Width::new(&axes);
    let rows = b.rows("x", Element::Bf16, &width)?;
    b.load_rows(x, &rows);
    let table = Table {
        tensor: table,
        position: None,
    };
    let turned = b.rotate("turned", &rows, &heads, &table)?;
    b.store(&turned, y);
    let names: Vec<&str> = heads.axes.iter().map(|(name, _)| &**name).collect();
    let x = [&["B", "s_q"], &names[..], &["d_k_prime", "f"]].concat();
    let output = [&["B", "s_q"], &names[..], &["d_k_prime", "r"]].concat();
    let table: &[&str] = &["B", "s_q", "d_k_prime", "f", "r"];
    b.note_einsum("RoPE", &[&x, table], &output, "reduce: packet (2)");
    Ok(Vec::new())
}

fn attend(b: &mut Builder<'_>, op: &Op) -> Result<OpSplit, LowerError> {
    b.axis("d_k_prime", op.size("d_k") / 2)?;
    b.axis("r", 2)?;
    let halves = [ax("h_kv"), ax("G"), ax("r"), ax("d_k_prime")];
    let q = b.value("q", Element::Bf16, Slot::Input, list(halves))?;
    let heads = || list([ax("B"), ax("h_kv"), ax("s_max")]);
    let k_rows = list([heads(), ax("r"), ax("d_k_prime")]);
    let v_rows = list([heads(), ax("d_k")]);
    let cache = Cache {
        keys: b.hbm("k_cache", Element::Bf16, Slot::Static, k_rows)?,
        values: b.hbm("v_cache", Element::Bf16, Slot::Static, v_rows)?,
        mask: b.value("mask", Element::F32, Slot::Input, ax("s_k"))?,
    };
    let attended = list([ax("h_kv"), ax("G"), ax("d_k")]);
    let y = b.value("y", Element::Bf16, Slot::Output, attended)?;
    let mut width = width_of(op, &["h_kv", "G"]);
    width = Width::new(&[
        ("h_kv", width.axes[0].1),
        ("G", width.axes[1].1),
        ("r", 2),
        ("d_k_prime", op.size("d_k") / 2),
    ]);
    let rows = b.rows("q", Element::Bf16, &width)?;
    b.load_rows(q, &rows);
    let out = b.attend(&rows, cache)?;
    b.store(&out, y);
    b.note_attention()?;
    b.attention_sizes()
}

/// Parts of a row that an element-wise op takes: first column, and the part as a width.
fn parts(b: &Builder<'_>, name: &str, n: u64) -> Vec<(u64, Width)> {
    let tokens = b.n_tokens().div_ceil(b.target.machine.slices);
    let own = tokens.next_power_of_two();
    let fits = |part: &u64| {
        n.is_multiple_of(*part) && part.is_multiple_of(8) && own * part * 2 <= PART_BYTES
    };
    let part = match b.is_held() {
        true => n,
        false => (1..=n)
            .filter(|&i| n.is_multiple_of(i))
            .map(|i| n / i)
            .find(fits)
            .unwrap_or(n),
    };
    let width = Width {
        mapping: match part == n {
            true => ax(name),
            false => ax(name).resize(part),
        },
        axes: vec![(name.to_owned(), part)],
    };
    let firsts = (0..n).step_by(part as usize);
    firsts.map(|first| (first, width.clone())).collect()
}

/// Two operands and a result, part by part.
fn by_parts(
    b: &mut Builder<'_>,
    op: &Op,
    (axis, operands): (&str, [&str; 2]),
    each: &dyn Fn(&mut Builder<'_>, &ActivationRows, &ActivationRows) -> Result<usize, LowerError>,
) -> Result<OpSplit, LowerError> {
    let x = b.value(operands[0], Element::Bf16, Slot::Input, ax(axis))?;
    let z = b.value(operands[1], Element::Bf16, Slot::Input, ax(axis))?;
    let y = b.value("y", Element::Bf16, Slot::Output, ax(axis))?;
    let parts = parts(b, axis, op.size(axis));
    let n_parts = parts.len() as u64;
    for (first, width) in parts {
        let mut load = |from: usize| -> Result<ActivationRows, LowerError> {
            let rows = b.rows("part", Element::Bf16, &width)?;
            let from = View::of(from).from(axis, first);
            b.copy("load", Lane::Others, from, View::of(rows.tensor));
            Ok(rows)
        };
        let (left, right) = (load(x)?, load(z)?);
        let out = each(b, &left, &right)?;
        let to = View::of(y).from(axis, first);
        b.copy("store", Lane::Others, View::of(out), to);
        for tensor in [left.tensor, right.tensor, out] {
            b.retire(tensor);
        }
    }
    Ok(vec![("parts", n_parts)])
}

fn gate(b: &mut Builder<'_>, op: &Op) -> Result<OpSplit, LowerError> {
    let cut = by_parts(b, op, ("F", ["gate", "up"]), &|b, gate, up| {
        let (time, packet) = b.eights(gate);
        let width = &gate.width;
        let part = inner(&width.mapping, width.size(), gate.per);
        let tile = ResultTile {
            tensor: gate.tensor,
            spread: gate.spread.clone(),
            layout: list([b.own_tokens(), part]),
            time,
            packet,
            start: Vec::new(),
        };
        b.silu(&tile, up.tensor, Element::Bf16, 1.0)
    })?;
    let expression = "gate × sigmoid(gate) × up over [B, s_q, F]";
    let levels = "1 pass, interleaved fetch";
    b.note("SiLU × up", expression, "vector engine", levels);
    Ok(cut)
}

fn add(b: &mut Builder<'_>, op: &Op) -> Result<OpSplit, LowerError> {
    let cut = by_parts(b, op, ("D", ["a", "b"]), &|b, left, right| {
        Ok(b.add_rows(left, right)?.tensor)
    })?;
    let expression = "x + y over [B, s_q, D]";
    let levels = "1 pass, interleaved fetch";
    b.note("residual", expression, "vector engine", levels);
    Ok(cut)
}
