//! The table of layers.

use super::layers::LayerRow;
use super::reference::States;
use crate::exit::CommandResult;
use crate::output::{Align, Out, TextTable};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::NpuModel;
use serde_json::json;

pub(super) fn print(
    as_json: bool,
    model: &LoadedModel,
    npu: &NpuModel,
    expected: &States,
    rows: &[LayerRow],
) -> CommandResult {
    let mut out = Out::new();
    if as_json {
        return out.json(&json!({
            "model": model.name(),
            "device": npu.device_name(),
            "reference": expected.source,
            "reference_token": super::best(expected),
            "states": rows,
        }));
    }
    out.line(format!(
        "{} on {}, beside {}",
        model.name(),
        npu.device_name(),
        expected.source
    ))?;
    let mut table = TextTable::new(&[
        ("state after", Align::Left),
        ("cosine p5", Align::Right),
        ("min", Align::Right),
        ("median", Align::Right),
        ("max difference", Align::Right),
        ("largest element", Align::Right),
    ]);
    for row in rows {
        let cosine = |pick: fn(&super::layers::Cosines) -> f64| {
            let found = row.cosine.as_ref().map(pick);
            found.map_or("the host's".to_owned(), |c| format!("{c:.6}"))
        };
        table.row(vec![
            row.state.clone(),
            cosine(|c| c.p5),
            cosine(|c| c.min),
            cosine(|c| c.median),
            row.max_abs.map_or("–".to_owned(), |x| format!("{x:.4}")),
            format!("{:.3}", row.largest),
        ]);
    }
    table.print(&mut out)?;
    out.line("Cosines are over positions of the prompt. For reading: nothing here is a verdict.")?;
    out.flush()
}
