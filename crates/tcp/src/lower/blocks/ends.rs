//! Programs before and after the layers of a pass, and between chips that share them.

use crate::Element;
use crate::lower::builder::{Builder, Lane, ax, list};
use crate::lower::rows::Width;
use crate::lower::{LowerError, PassSizes, Target, TcpLowering, Weights};
use crate::program::{Side, View};
use millrace_npu::Role;

/// Embedding: `x[B, s_q, D] = table[V = token[B, s_q], D]`. Slots: `token` i32, `table` bf16, `x`.
///
/// # Errors
/// [`LowerError`].
pub fn embed(target: Target<'_>) -> Result<TcpLowering, LowerError> {
    let mut b = Builder::new(target, "embed")?;
    b.axis("V", target.dims.vocab_size)?;
    let tokens = list([ax("B"), ax("s_q")]);
    let token = b.hbm("token", Element::I32, Role::Input, tokens)?;
    let table = list([ax("V"), ax("D")]);
    let table = b.hbm("table", Element::Bf16, Role::Static, table)?;
    let x = b.stream("x", Role::Intermediate)?;
    let width = b.width();
    let rows = b.rows("x", Element::Bf16, &width)?;
    let both = (View::of(table), View::of(rows.tensor));
    b.indexed("gather", both, (Side::From, "V", token));
    b.copy("store", Lane::Others, View::of(rows.tensor), View::of(x));
    b.note(
        "embedding",
        "gather(index: [B, s_q], table: [V, D]) → [B, s_q, D]",
        "tensor DMA",
        "",
    );
    Ok(b.lowered())
}

/// The head, for one token of each sequence: `x` has `call.n_tokens` rows of each, `last` selects one.
/// Slots: `x`, `last` i32 `[B]`, `norm` f32, `w_head` bf16 `[V, D]`, `logits` f32 `[B, V]`.
///
/// # Errors
/// [`LowerError`].
pub fn head(target: Target<'_>) -> Result<TcpLowering, LowerError> {
    let one = PassSizes {
        n_tokens: 1,
        ..target.call
    };
    let mut b = Builder::new(
        Target {
            call: one,
            ..target
        },
        "head",
    )?;
    b.axis("V", target.dims.vocab_size)?;
    b.axis("s_in", target.call.n_tokens)?;
    let layout = list([ax("B"), ax("s_in"), ax("D")]);
    let x = b.hbm("x", Element::Bf16, Role::Intermediate, layout)?;
    let last = b.hbm("last", Element::I32, Role::Input, ax("B"))?;
    let norm = b.vector_of("norm", ax("D"))?;
    let (width, vocab) = (b.width(), Width::new(&[("V", target.dims.vocab_size)]));
    let mut w = b.linear("w_head", Weights::Bf16, (vocab, &width), ax("V"))?;
    w.result = Element::F32;
    let logits = list([ax("B"), ax("V")]);
    let logits = b.hbm("logits", Element::F32, Role::Output, logits)?;
    let rows = b.rows("x", Element::Bf16, &width)?;
    let both = (View::of(x), View::of(rows.tensor));
    b.indexed("last", both, (Side::From, "s_in", last));
    let normed = b.norm(&rows, norm, Element::Bf16, 1.0)?;
    b.note_norm("final norm", &rows);
    let held = b.hold_for(&normed, &w)?;
    let cut = b.cut(&w)?;
    for number in 0..cut.n_tiles {
        for tile in b.tile(&normed, held, &w, &cut, number)? {
            let to = tile.view_of(logits);
            b.copy("store", Lane::Others, View::of(tile.tensor), to);
            b.retire(tile.tensor);
        }
    }
    let levels = b.levels(&w)?;
    b.note_einsum("LM head", &[&["B", "D"], &["D", "V"]], &["B", "V"], &levels);
    b.note("sampling", "token[B] from logits[B, V]", "host", "");
    Ok(b.lowered())
}

/// Sends a chip's part to each of the others that share its layers, and receives as many parts from them. Slots:
/// `partial`, then `inbox_1` and so on. A stand-in for the moves of all chips, for times alone.
///
/// # Errors
/// [`LowerError`].
pub fn exchange(target: Target<'_>) -> Result<TcpLowering, LowerError> {
    let mut b = Builder::new(target, "exchange")?;
    let partial = b.stream("partial", Role::Intermediate)?;
    for chip in 1..target.options.n_shards {
        let inbox = b.stream(&format!("inbox_{chip}"), Role::Intermediate)?;
        b.send(partial, inbox);
    }
    let expression = "[B, s_q, D] to each of the other chips";
    b.note("chip shuffle", expression, "PDMA", "");
    Ok(b.lowered())
}

/// The sum of the parts of a layer on several chips, added to the residual stream. Slots: `x`, `partial_0` and so
/// on, one a chip, `x_out`.
///
/// # Errors
/// [`LowerError`].
pub fn reduce(target: Target<'_>) -> Result<TcpLowering, LowerError> {
    let mut b = Builder::new(target, "reduce")?;
    let x = b.stream("x", Role::Intermediate)?;
    let mut parts = Vec::new();
    for chip in 0..target.options.n_shards {
        parts.push(b.stream(&format!("partial_{chip}"), Role::Intermediate)?);
    }
    let out = b.stream("x_out", Role::Intermediate)?;
    let width = b.width();
    let mut total = b.rows("x", Element::Bf16, &width)?;
    b.load_rows(x, &total);
    for part in parts {
        let rows = b.rows("partial", Element::Bf16, &width)?;
        b.load_rows(part, &rows);
        let sum = b.add_rows(&total, &rows)?;
        b.retire(total.tensor);
        b.retire(rows.tensor);
        total = sum;
    }
    b.copy("store", Lane::Others, View::of(total.tensor), View::of(out));
    Ok(b.lowered())
}
