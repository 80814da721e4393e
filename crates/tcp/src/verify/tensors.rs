//! Tensors in their memories: mappings, spatial sizes, capacities, alignment.

use super::{Findings, MemoryReport, Rule};
use crate::Machine;
use crate::axes::AxesError;
use crate::program::{Place, Program, Tensor, TensorSharding};

pub(super) fn check(program: &Program, machine: &Machine, found: &mut Findings) -> MemoryReport {
    let mut report = MemoryReport::default();
    for tensor in &program.tensors {
        let place = format!("tensor `{}`", tensor.name);
        if let Err(error) = tensor.shape(&program.axes) {
            let rule = match error {
                AxesError::Overlap(_) | AxesError::Hole { .. } => Rule::Factors,
                _ => Rule::Mapping,
            };
            found.add(rule, &place, error.to_string());
            continue;
        }
        let Ok(bytes) = tensor.unit_bytes(&program.axes) else {
            continue;
        };
        if let Some(spread) = tensor.spread() {
            spatial(program, machine, spread, &place, found);
        }
        capacity(program, machine, tensor, bytes, &mut report, found);
    }
    report
}

fn spatial(
    program: &Program,
    machine: &Machine,
    spread: &TensorSharding,
    place: &str,
    found: &mut Findings,
) {
    let size = |mapping: &crate::axes::Mapping| mapping.size(&program.axes).unwrap_or(0);
    let (clusters, slices) = (size(&spread.cluster), size(&spread.slice));
    if clusters == 0 || clusters > machine.clusters {
        let message = format!("{clusters} clusters; 1 to {} are there", machine.clusters);
        found.add(Rule::Spatial, place, message);
    }
    let quarter = machine.slices / 4;
    if ![quarter, 2 * quarter, 4 * quarter].contains(&slices) {
        let sizes = format!("{quarter}, {} or {}", 2 * quarter, 4 * quarter);
        let message = format!("{slices} slices of a cluster; expected {sizes}");
        found.add(Rule::Spatial, place, message);
    }
}

fn capacity(
    program: &Program,
    machine: &Machine,
    tensor: &Tensor,
    bytes: u64,
    report: &mut MemoryReport,
    found: &mut Findings,
) {
    let place = format!("tensor `{}`", tensor.name);
    let over = |address: u64, limit: u64, unit: &str| {
        let end = address.saturating_add(bytes);
        let message = format!(
            "it ends at byte {end} of {unit}, which has {limit}: {} too many",
            end.saturating_sub(limit)
        );
        (end > limit).then_some(message)
    };
    match &tensor.place {
        Place::Hbm { .. } => report.hbm_bytes += bytes,
        Place::Dm { address, .. } => {
            report.dm_bytes = report.dm_bytes.max(address.saturating_add(bytes));
            if let Some(message) = over(*address, machine.dm_bytes, "a slice's data memory") {
                found.add(Rule::DataMemory, &place, message);
            }
            if !address.is_multiple_of(machine.dm_align_bytes) {
                let message = format!(
                    "it begins at byte {address}, no multiple of {}",
                    machine.dm_align_bytes
                );
                found.add(Rule::Alignment, &place, message);
            }
            if !bytes.is_multiple_of(machine.dma_element_bytes) {
                let message = format!(
                    "{bytes} bytes in a slice, not in whole units of {}; pad the innermost factor",
                    machine.dma_element_bytes
                );
                found.add(Rule::Units, &place, message);
            }
        }
        Place::Trf { lane, address, .. } => {
            report.trf_lane_bytes = report.trf_lane_bytes.max(address.saturating_add(bytes));
            if let Some(message) = over(*address, machine.trf_lane_bytes, "a lane's registers") {
                found.add(Rule::TensorRegisters, &place, message);
            }
            let lanes = lane.size(&program.axes).unwrap_or(0);
            if !lanes.is_power_of_two() || lanes > machine.lanes {
                let message = format!("{lanes} lanes; expected 1, 2, 4 or {}", machine.lanes);
                found.add(Rule::Spatial, &place, message);
            }
        }
        Place::Vrf { address, .. } => {
            report.vrf_bytes = report.vrf_bytes.max(address.saturating_add(bytes));
            if let Some(message) = over(*address, machine.vrf_bytes, "a slice's vector registers") {
                found.add(Rule::VectorRegisters, &place, message);
            }
        }
    }
}
