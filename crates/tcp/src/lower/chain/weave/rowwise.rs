//! Ops that work row by row, and attention.

use super::{ChainSplit, Weaver};
use crate::Element;
use crate::lower::LowerError;
use crate::lower::attention::Cache;
use crate::lower::builder::{ax, inner, list};
use crate::lower::linear::ResultTile;
use crate::lower::ops::{OpKind, width_of};
use crate::lower::rope::Table;
use crate::lower::rows::{ActivationRows, Width};
use crate::program::{Side, View};
use millrace_npu::Role as Slot;

/// Operands of attention over a cache that has the pass's rows: queries, keys, values, mask. Where it lacks them, the
/// rows themselves and their positions follow.
const OVER_CACHE: usize = 4;

/// Bytes of keys up to which a token brings them beside its weights. Keys wait for the token's own row, and in the
/// weights' queue the weights behind them would wait, too. The two engines that move activations carry them at half of
/// the rate, so more keys are faster with the weights. For Llama 3.1 8B these are 8,192 and
/// more in fp8, as modelled.
const APART_BYTES: u64 = 8 << 20;

impl Weaver<'_> {
    pub(super) fn embed(&mut self, i: usize) -> Result<ChainSplit, LowerError> {
        let tokens = list([ax("B"), ax("s_q")]);
        let token = self.own((i, 0), "token", (Element::I32, Slot::Input), tokens)?;
        let table = list([ax("V"), ax("D")]);
        let table = self.own((i, 1), "table", (Element::Bf16, Slot::Static), table)?;
        let width = width_of(self.op(i), &["D"]);
        let rows = self.b.rows("x", Element::Bf16, &width)?;
        let both = (View::of(table), View::of(rows.tensor));
        self.b.indexed("gather", both, (Side::From, "V", token));
        let expression = "gather(index: [B, s_q], table: [V, D]) → [B, s_q, D]";
        self.b.note("embedding", expression, "tensor DMA", "");
        self.give(i, rows)?;
        Ok(Vec::new())
    }

    /// A norm of every row, or of the one of a prompt that an index names.
    pub(super) fn norm(&mut self, i: usize) -> Result<ChainSplit, LowerError> {
        let width = width_of(self.op(i), &["D"]);
        let value = self.taken_value(i, 0)?;
        let is_last = self.op(i).kind == OpKind::LastNorm;
        let rows = match is_last {
            false => self.value(value, &width, ax("D"))?,
            true => {
                let layout = list([ax("B"), ax("s_in"), ax("D")]);
                let x = self.own((i, 0), "x", (Element::Bf16, Slot::Input), layout)?;
                let last = self.own((i, 1), "last", (Element::I32, Slot::Input), ax("B"))?;
                let rows = self.b.rows("x", Element::Bf16, &width)?;
                let both = (View::of(x), View::of(rows.tensor));
                self.b.indexed("last", both, (Side::From, "s_in", last));
                rows
            }
        };
        let weight = (Element::F32, Slot::Static);
        let weight = self.own((i, 1 + usize::from(is_last)), "w", weight, ax("D"))?;
        let normed = self.b.norm(&rows, weight, Element::Bf16, 1.0)?;
        self.b.note_norm("norm", &rows);
        if is_last {
            self.b.retire(rows.tensor);
        }
        self.give(i, normed)?;
        Ok(vec![("columns", rows.per)])
    }

    pub(super) fn rotated_axes(&mut self, pairs: u64) -> Result<(), LowerError> {
        self.b.axis("d_k_prime", pairs)?;
        self.b.axis("f", 2)?;
        self.b.axis("r", 2)
    }

    pub(super) fn rotate(&mut self, i: usize, heads: &[&str]) -> Result<ChainSplit, LowerError> {
        let op = self.op(i);
        let (pairs, heads) = (op.size("d_k_prime"), width_of(op, heads));
        self.rotated_axes(pairs)?;
        let value = self.taken_value(i, 0)?;
        let form = list([heads.mapping.clone(), ax("f"), ax("d_k_prime")]);
        let rows = self.value(value, &halves(&heads, pairs), form)?;
        let matrices = list([ax("d_k_prime"), ax("f"), ax("r")]);
        let matrices = list([ax("B"), ax("s_q"), matrices]);
        let table = Table {
            tensor: self.own((i, 1), "t", (Element::Bf16, Slot::Input), matrices)?,
            position: None,
        };
        let turned = self.b.rotate("turned", &rows, &heads, &table)?;
        // Matrices take the place of tokens.
        self.held = None;
        let names: Vec<&str> = heads.axes.iter().map(|(name, _)| &**name).collect();
        let x = [&["B", "s_q"], &names[..], &["d_k_prime", "f"]].concat();
        let output = [&["B", "s_q"], &names[..], &["d_k_prime", "r"]].concat();
        let table: &[&str] = &["B", "s_q", "d_k_prime", "f", "r"];
        self.b
            .note_einsum("RoPE", &[&x, table], &output, "reduce: packet (2)");
        self.give(i, turned)?;
        Ok(Vec::new())
    }

    pub(super) fn attend(&mut self, i: usize) -> Result<ChainSplit, LowerError> {
        let op = self.op(i);
        let pairs = op.size("d_k") / 2;
        self.rotated_axes(pairs)?;
        let heads = width_of(op, &["h_kv", "G"]);
        let mut axes = heads.axes.clone();
        axes.extend([("r".to_owned(), 2), ("d_k_prime".to_owned(), pairs)]);
        let axes: Vec<(&str, u64)> = axes.iter().map(|(n, s)| (n.as_str(), *s)).collect();
        let width = Width::new(&axes);
        let value = self.taken_value(i, 0)?;
        let q = self.value(value, &width, width.mapping.clone())?;
        let heads = || list([ax("B"), ax("h_kv"), ax("s_max")]);
        let k_rows = list([heads(), ax("r"), ax("d_k_prime")]);
        let v_rows = list([heads(), ax("d_k")]);
        let mask = list([ax("B"), ax("s_q"), ax("s_k")]);
        let appends = self.chain.links[i].takes.len() > OVER_CACHE;
        let kept = match appends {
            true => (Element::Bf16, Slot::Intermediate),
            false => (Element::Bf16, Slot::Static),
        };
        let cache = Cache {
            keys: self.own((i, 1), "k_cache", kept, k_rows)?,
            values: self.own((i, 2), "v_cache", kept, v_rows)?,
            mask: self.own((i, 3), "mask", (Element::F32, Slot::Input), mask)?,
        };
        if appends {
            self.append(i, cache)?;
        }
        let key_bytes = Element::Bf16.bytes(op.size("s_k") * op.size("h_kv") * op.size("d_k"));
        self.b.is_apart = appends && self.b.is_held() && key_bytes <= APART_BYTES;
        let out = self.b.attend(&q, cache)?;
        self.held = None;
        self.b.note_attention()?;
        self.give(i, out)?;
        self.b.attention_sizes()
    }

    /// The pass's keys and values into the cache, at their tokens' positions.
    fn append(&mut self, i: usize, cache: Cache) -> Result<(), LowerError> {
        let op = self.op(i);
        let tokens = list([ax("B"), ax("s_q")]);
        let kind = (Element::I32, Slot::Input);
        let position = self.own((i, OVER_CACHE + 2), "position", kind, tokens)?;
        let sizes = [
            ("h_kv", op.size("h_kv")),
            ("r", 2),
            ("d_k_prime", op.size("d_k") / 2),
        ];
        let widths = [Width::new(&sizes), width_of(op, &["h_kv", "d_k"])];
        let to = [cache.keys, cache.values];
        for (number, (width, to)) in widths.iter().zip(to).enumerate() {
            let value = self.taken_value(i, OVER_CACHE + number)?;
            let rows = self.value(value, width, width.mapping.clone())?;
            let both = (View::of(rows.tensor), View::of(to));
            self.b
                .indexed("append", both, (Side::To, "s_max", position));
        }
        self.b.note_append();
        Ok(())
    }

    /// The activation by itself.
    pub(super) fn gate(&mut self, i: usize) -> Result<ChainSplit, LowerError> {
        let width = width_of(self.op(i), &["F"]);
        let mut both = Vec::new();
        for number in 0..2 {
            let value = self.taken_value(i, number)?;
            both.push(self.value(value, &width, ax("F"))?);
        }
        let (gate, up) = (&both[0], &both[1]);
        let (time, packet) = self.b.eights(gate);
        let part = inner(&width.mapping, width.size(), gate.per);
        let tile = ResultTile {
            tensor: gate.tensor,
            spread: gate.spread.clone(),
            layout: list([self.b.own_tokens(), part]),
            time,
            packet,
            start: Vec::new(),
        };
        let tensor = self.b.silu(&tile, up.tensor, Element::Bf16, 1.0)?;
        let expression = "gate × sigmoid(gate) × up over [B, s_q, F]";
        let levels = "1 pass, interleaved fetch";
        self.b
            .note("SiLU × up", expression, "vector engine", levels);
        let rows = ActivationRows {
            tensor,
            ..gate.clone()
        };
        self.give(i, rows)?;
        Ok(Vec::new())
    }

    pub(super) fn add(&mut self, i: usize) -> Result<ChainSplit, LowerError> {
        let width = width_of(self.op(i), &["D"]);
        let mut both = Vec::new();
        for number in 0..2 {
            let value = self.taken_value(i, number)?;
            both.push(self.value(value, &width, ax("D"))?);
        }
        let sum = self.b.add_rows(&both[0], &both[1])?;
        let expression = "x + y over [B, s_q, D]";
        let levels = "1 pass, interleaved fetch";
        self.b.note("residual", expression, "vector engine", levels);
        self.give(i, sum)?;
        Ok(Vec::new())
    }
}

/// Heads as pairs that rotate together.
pub(super) fn halves(heads: &Width, pairs: u64) -> Width {
    let heads = heads.axes.iter().map(|(name, size)| (&**name, *size));
    let axes: Vec<(&str, u64)> = heads.chain([("d_k_prime", pairs), ("f", 2)]).collect();
    Width::new(&axes)
}
