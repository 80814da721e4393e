//! Names of buffers and locks in a DMA program: they are local to it.

use crate::syntax::{Op, Region};
use std::collections::BTreeSet;

/// A device's ops. Buffers and locks of DMA programs are renamed if others have the same names.
pub(super) fn apart(device: &Region) -> Vec<Op> {
    let mut all: Vec<Op> = device.ops().cloned().collect();
    let mut seen: BTreeSet<String> = device
        .ops()
        .flat_map(|op| op.results.iter().cloned())
        .collect();
    for (i, op) in all.iter_mut().enumerate() {
        let is_program = matches!(
            op.name.as_str(),
            "aie.mem" | "aie.memtile_dma" | "aie.shim_dma"
        );
        if !is_program {
            continue;
        }
        let inner = op.regions.iter().flat_map(Region::ops);
        let declared = inner.filter(|op| matches!(op.name.as_str(), "aie.buffer" | "aie.lock"));
        let names: BTreeSet<String> = declared.flat_map(|op| op.results.iter().cloned()).collect();
        let twice: BTreeSet<String> = names.intersection(&seen).cloned().collect();
        seen.extend(names);
        if twice.is_empty() {
            continue;
        }
        for op in op
            .regions
            .iter_mut()
            .flat_map(|region| &mut region.blocks)
            .flat_map(|block| &mut block.ops)
        {
            op.rename(&|name| match twice.contains(name) {
                true => format!("{name}@{i}"),
                false => name.to_owned(),
            });
        }
    }
    all
}
