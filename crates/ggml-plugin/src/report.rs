//! Report of the ops that a device computed, and of those that it left to others and why. Printed at exit with
//! `MILLRACE_GGML_REPORT=1`.

use crate::device::OpRefusal;
use crate::product::HostProduct;
use crate::sys::tensor::HostTensor;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// Counts of all devices.
#[derive(Default)]
pub(crate) struct DeviceReport(Mutex<BTreeMap<&'static str, Counts>>);

#[derive(Default)]
struct Counts {
    /// Products computed, by name and format of the weights.
    taken: BTreeMap<(&'static str, &'static str), WorkCounts>,
    /// Gated activations computed, by kind.
    gates: BTreeMap<&'static str, u64>,
    /// Refused results, by name of the op and reason. Hosts ask many times about the same one.
    refused: BTreeMap<(&'static str, OpRefusal), BTreeSet<String>>,
    /// Runs of an NPU: their number, their total time, and the origin of the times.
    runs: u64,
    run_ns: u64,
    provenance: String,
}

#[derive(Default)]
struct WorkCounts {
    calls: u64,
    /// Bytes of weights that were multiplied with.
    weight_bytes: u64,
    flops: u64,
}

impl DeviceReport {
    fn with(&self, device: &'static str, f: impl FnOnce(&mut Counts)) {
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f(devices.entry(device).or_default());
    }

    /// Notes ops that were computed.
    pub(crate) fn taken<'a>(
        &self,
        device: &'static str,
        ops: impl Iterator<Item = HostTensor<'a>>,
    ) {
        self.with(device, |counts| {
            for op in ops {
                let Ok(product) = HostProduct::of(&op) else {
                    *counts.gates.entry(op.kind()).or_default() += 1;
                    continue;
                };
                let weight = product.weight();
                let work = counts
                    .taken
                    .entry((op.op(), weight.dtype.name()))
                    .or_default();
                work.calls += 1;
                work.weight_bytes += weight.matrix_bytes as u64;
                work.flops += product.flops();
            }
        });
    }

    /// Notes an op that was refused.
    pub(crate) fn refused(&self, device: &'static str, op: &HostTensor<'_>, why: OpRefusal) {
        self.with(device, |counts| {
            let names = counts.refused.entry((op.op(), why)).or_default();
            let weight = op.source(0).map_or(String::new(), |weight| weight.name());
            names.insert(weight);
        });
    }

    /// Notes a run of an NPU.
    pub(crate) fn ran(&self, device: &'static str, duration_ns: u64, provenance: &str) {
        self.with(device, |counts| {
            counts.runs += 1;
            counts.run_ns += duration_ns;
            provenance.clone_into(&mut counts.provenance);
        });
    }

    /// All of it as text.
    pub(crate) fn text(&self) -> String {
        let devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for (device, counts) in devices.iter() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "millrace: device {device}");
            for ((op, dtype), work) in &counts.taken {
                let _ = writeln!(
                    text,
                    "  computed {op} {dtype}: {} calls, {:.3} GB of weights, {:.1} Gop",
                    work.calls,
                    work.weight_bytes as f64 / 1e9,
                    work.flops as f64 / 1e9
                );
            }
            for (op, calls) in &counts.gates {
                let _ = writeln!(text, "  computed {op}: {calls} calls");
            }
            if counts.runs > 0 {
                let (seconds, n) = (counts.run_ns as f64 / 1e9, counts.runs);
                let _ = writeln!(
                    text,
                    "  {n} runs of the NPU: {seconds:.3} s, {}",
                    counts.provenance
                );
            }
            for ((op, why), weights) in &counts.refused {
                if *op == "MUL_MAT" || *op == "MUL_MAT_ID" {
                    let n = weights.len();
                    let _ = writeln!(text, "  left to others {op} ({n} weights): {}", why.0);
                }
            }
            let others: BTreeSet<&str> = counts.refused.keys().map(|(op, _)| *op).collect();
            let others: Vec<&str> = others
                .into_iter()
                .filter(|op| !op.starts_with("MUL_MAT"))
                .collect();
            if !others.is_empty() {
                let _ = writeln!(text, "  left to others, no products: {}", others.join(", "));
            }
        }
        text
    }
}
