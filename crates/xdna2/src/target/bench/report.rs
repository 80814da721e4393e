//! Report on a kernel, for people and for programs.

use super::{KernelCase, KernelResult, Run};
use crate::mapping;
use crate::predict::peak;
use crate::target::ArraySimulator;
use millrace_plan::units::{bytes, duration};
use millrace_plan::{KernelReport, LineSpan, ReportLine, Tone};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::timing::Timing;
use millrace_xdna2_machine::verify::ResourceReport as Resources;
use millrace_xdna2_silicon::WordCounts;
use serde_json::{Value, json};

/// Everything known about one kernel.
pub(super) struct BenchReport<'a> {
    pub(super) case: &'a KernelCase,
    pub(super) resources: &'a Resources,
    pub(super) computed: Option<&'a KernelResult>,
    /// Result of a user's own program.
    pub(super) run: Option<&'a Run>,
    pub(super) timing: &'a Timing,
    /// Counts of the program's words, or why it has none.
    pub(super) words: &'a Result<WordCounts, String>,
}

/// A rate and the roof it cannot pass.
struct Against {
    per_s: f64,
    roof_per_s: f64,
}

impl Against {
    fn percent(&self) -> f64 {
        100.0 * self.per_s / self.roof_per_s
    }
}

impl BenchReport<'_> {
    pub(super) fn made(&self) -> KernelReport {
        let mut lines = Vec::new();
        self.resources(&mut lines);
        self.words(&mut lines);
        self.numbers(&mut lines);
        self.prediction(&mut lines);
        self.launches(&mut lines);
        self.array(&mut lines);
        let (machine, kernel) = (&self.case.machine, &self.case.kernel);
        let on = format!(
            "{} {}×{} at {:.2} GHz",
            machine.name,
            machine.cols,
            machine.rows,
            machine.clock_hz / 1e9
        );
        if let Some(kernel) = kernel {
            lines.insert(0, ReportLine::plain("tiling", kernel.tiling.to_string()));
        }
        KernelReport {
            name: match kernel {
                Some(kernel) => kernel.mapping.name().to_owned(),
                None => self.case.program.name.clone(),
            },
            heading: match kernel {
                Some(kernel) => format!("{}  on {on}", kernel.shape),
                None => format!("on {on}"),
            },
            lines,
            json: self.to_json(),
            trace: None,
            outputs: Vec::new(),
            wrong: self.computed.and_then(|computed| computed.wrong.clone()),
        }
    }

    /// Operations a second, against the array's peak for the kernel's products.
    fn compute(&self) -> Option<Against> {
        let kernel = self.case.kernel.as_ref()?;
        let flops = kernel.mapping.work(&kernel.shape).flops as f64;
        Some(Against {
            per_s: flops / self.timing.total_ns * 1e9,
            roof_per_s: peak(&self.case.machine, &self.case.program).0,
        })
    }

    /// DDR traffic, against the NPU's rate by the profile.
    fn ddr(&self) -> Against {
        Against {
            per_s: self.ddr_bytes() / self.timing.total_ns * 1e9,
            roof_per_s: self.case.profile.ddr.total_gb_per_s * 1e9,
        }
    }

    /// For attention: keys and values read from DDR over the time, against the rate of reads. This is the read
    /// bandwidth utilisation U_mem^rd of the paper *Mapping Gemma3 onto an Edge Dataflow Architecture* (equation 13).
    /// Its numerator 2 B · (1 + L/Lc) · L · CT_count · H is a causal sweep of all keys before and of every chunk of Lc
    /// queries.
    fn u_mem_rd(&self) -> Option<Against> {
        let slots = self.case.kernel.as_ref()?.mapping.keys_and_values();
        let bytes = mapping::moved_bytes(&self.case.program, slots);
        (bytes > 0).then(|| Against {
            per_s: bytes as f64 / self.timing.total_ns * 1e9,
            roof_per_s: self.case.profile.ddr.read_gb_per_s * 1e9,
        })
    }

    fn ddr_bytes(&self) -> f64 {
        let launches = self.timing.launches.iter();
        launches.map(|l| l.ddr_read_bytes + l.ddr_write_bytes).sum()
    }

    fn resources(&self, lines: &mut Vec<ReportLine>) {
        let (used, machine) = (self.resources, &self.case.machine);
        let text = format!(
            "L1 {} of {}, L2 {} of {} a tile, {} of {} memory-tile descriptors, {} locks",
            bytes(used.l1_bytes),
            bytes(machine.core.data_bytes),
            bytes(used.l2_bytes),
            bytes(machine.memory.data_bytes),
            used.memory_bds,
            machine.memory.bds,
            used.locks,
        );
        lines.push(ReportLine::plain("verified", text));
    }

    fn words(&self, lines: &mut Vec<ReportLine>) {
        let text = match self.words {
            Ok(counts) => format!(
                "{} of instructions: {} operations, {} descriptors, {} locks, {} shim tasks",
                bytes(counts.words as u64 * 4),
                counts.operations,
                counts.descriptors,
                counts.locks,
                counts.shim_tasks
            ),
            Err(problem) => format!("none: {problem}"),
        };
        lines.push(ReportLine::plain("words", text));
    }

    fn numbers(&self, lines: &mut Vec<ReportLine>) {
        if let Some(run) = self.run {
            return produced(run, executed(&self.case.simulator), lines);
        }
        let Some(computed) = self.computed else {
            let text = "nothing: only the time was asked for";
            return lines.push(ReportLine::plain("computed", text));
        };
        let verdict = match (&computed.wrong, computed.n_unequal) {
            (Some(what), _) => LineSpan::new(what, Tone::Wrong),
            (None, 0) => LineSpan::new("equal to the reference bit for bit", Tone::Plain),
            (None, n) => {
                let text = format!(
                    "{n} of {} elements differ from the reference, all within {}",
                    computed.n_elements, computed.tolerance
                );
                LineSpan::new(text, Tone::Plain)
            }
        };
        let host = duration(computed.host_s * 1e9);
        let by = executed(&self.case.simulator);
        let before = LineSpan::new(format!("in {host} on this computer{by}: "), Tone::Plain);
        lines.push(ReportLine {
            label: "computed",
            text: vec![before, verdict],
        });
        if let Some(snr) = computed.snr_db {
            let text = format!("SNR {snr:.1} dB against exact products of the same bf16 values");
            lines.push(ReportLine::plain("loss", text));
        }
    }

    fn prediction(&self, lines: &mut Vec<ReportLine>) {
        let dispatch = duration(self.timing.dispatch_ns);
        let rest = format!("  {}, {dispatch} of it dispatch", self.timing.label);
        lines.push(ReportLine {
            label: "predicted",
            text: vec![
                LineSpan::new(duration(self.timing.total_ns), Tone::Strong),
                LineSpan::new(rest, Tone::Plain),
            ],
        });
        if let Some(compute) = self.compute().filter(|compute| compute.per_s > 0.0) {
            let (_, of) = peak(&self.case.machine, &self.case.program);
            let unit = if of == "int8" { "TOP/s" } else { "TFLOP/s" };
            let text = format!(
                "{:.3} {unit}, {:.1} % of the array's {:.1} ({of})",
                compute.per_s / 1e12,
                compute.percent(),
                compute.roof_per_s / 1e12
            );
            lines.push(ReportLine::plain("compute", text));
        }
        let ddr = self.ddr();
        let text = format!(
            "{:.1} GB/s, {:.0} % of the {:.0} it gets; {} moved",
            ddr.per_s / 1e9,
            ddr.percent(),
            ddr.roof_per_s / 1e9,
            bytes(self.ddr_bytes() as u64)
        );
        lines.push(ReportLine::plain("DDR", text));
        if let Some(keys) = self.u_mem_rd() {
            let text = format!(
                "{:.1} GB/s of keys and values, {:.0} % of the {:.0} that reads get",
                keys.per_s / 1e9,
                keys.percent(),
                keys.roof_per_s / 1e9
            );
            lines.push(ReportLine::plain("U_mem^rd", text));
        }
    }

    fn launches(&self, lines: &mut Vec<ReportLine>) {
        for launch in &self.timing.launches {
            let text = format!(
                "{} {}, {} grid points; bound by {}",
                launch.name,
                duration(launch.ns),
                launch.points,
                launch.bottleneck
            );
            lines.push(ReportLine::plain("launch", text));
        }
    }

    fn array(&self, lines: &mut Vec<ReportLine>) {
        let text = "percent of the call that each core computes, by column";
        lines.push(ReportLine::plain("array", text));
        for row in image(&busy(self.timing, &self.case.machine)) {
            lines.push(ReportLine::plain("", row));
        }
    }

    fn to_json(&self) -> Value {
        let against = |a: Against| json!({ "per_s": a.per_s, "roof_per_s": a.roof_per_s, "percent": a.percent() });
        let (used, machine) = (self.resources, &self.case.machine);
        let kernel = self.case.kernel.as_ref();
        json!({
            "kernel": kernel.map(|kernel| kernel.mapping.name()),
            "shape": kernel.map(|kernel| kernel.shape.to_string()),
            "tiling": kernel.map(|kernel| kernel.tiling.to_string()),
            "program": self.case.program.name,
            "machine": { "name": machine.name, "cols": machine.cols, "rows": machine.rows, "clock_hz": machine.clock_hz },
            "profile": self.case.profile.name,
            "resources": {
                "l1_bytes": used.l1_bytes, "l2_bytes": used.l2_bytes, "program_bytes": used.program_bytes,
                "dma_channels": used.dma_channels, "core_bds": used.core_bds, "memory_bds": used.memory_bds,
                "locks": used.locks, "link_streams": used.link_streams,
            },
            "words": match self.words {
                Ok(counts) => json!({
                    "stream_bytes": counts.words * 4, "operations": counts.operations,
                    "descriptors": counts.descriptors, "locks": counts.locks, "shim_tasks": counts.shim_tasks,
                }),
                Err(problem) => json!({ "problem": problem }),
            },
            "computed": match self.run {
                Some(run) => json!(run),
                None => json!(self.computed),
            },
            "predicted": {
                "label": self.timing.label,
                "total_ns": self.timing.total_ns,
                "dispatch_ns": self.timing.dispatch_ns,
                "compute": self.compute().map(against),
                "ddr": against(self.ddr()),
                "u_mem_rd": self.u_mem_rd().map(against),
                "launches": self.timing.launches,
                "busy_percent": busy(self.timing, machine),
            },
        })
    }
}

/// The simulator that executed a program, if that is not the default.
fn executed(simulator: &ArraySimulator) -> &'static str {
    match simulator {
        ArraySimulator::Tiles => "",
        ArraySimulator::Words => ", as words on the board behind the driver",
    }
}

fn produced(run: &Run, by: &str, lines: &mut Vec<ReportLine>) {
    let text = format!(
        "in {} on this computer{by}, inputs without a file from seed {}; there is no reference to compare with",
        duration(run.host_s * 1e9),
        run.seed
    );
    lines.push(ReportLine::plain("computed", text));
    for output in &run.outputs {
        let broken = match output.n_not_finite {
            0 => String::new(),
            n => format!(", {n} NaN or infinite"),
        };
        let text = format!(
            "{} {} {:?}: {:.4} to {:.4}, mean {:.4}{broken}",
            output.slot, output.element, output.shape, output.least, output.greatest, output.mean
        );
        lines.push(ReportLine::plain("output", text));
    }
}

/// Share of the whole call that each core computes, in percent, by row and column; `None` for
/// cores that no launch uses.
fn busy(timing: &Timing, machine: &Machine) -> Vec<Vec<Option<f64>>> {
    let mut busy = vec![vec![None; machine.cols as usize]; machine.rows as usize];
    for core in timing.launches.iter().flat_map(|launch| &launch.cores) {
        let row = busy.get_mut(core.row as usize);
        if let Some(cell) = row.and_then(|row| row.get_mut(core.col as usize)) {
            *cell = Some(cell.unwrap_or(0.0) + 100.0 * core.busy_ns / timing.total_ns);
        }
    }
    busy
}

/// The image: rows from the far end of the array down to the memory tiles.
fn image(busy: &[Vec<Option<f64>>]) -> Vec<String> {
    let cell = |cell: &Option<f64>| match cell {
        Some(percent) => format!("{percent:5.0}"),
        None => "    ·".to_owned(),
    };
    let rows = busy.iter().enumerate().rev();
    rows.map(|(row, cells)| format!("row {row} {}", cells.iter().map(cell).collect::<String>()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_row_is_on_top_and_idle_cores_are_dots() {
        let image = image(&[vec![Some(99.6), None], vec![None, Some(3.2)]]);
        assert_eq!(image, ["row 1     ·    3", "row 0   100    ·"]);
    }
}
