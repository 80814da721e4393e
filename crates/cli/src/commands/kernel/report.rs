//! What `millrace kernel` prints.

use super::compute::Computed;
use super::file::Produced;
use super::picture;
use crate::exit::Outcome;
use crate::output::{Out, Paint, bytes};
use millrace_xdna2::mapping::{Mapping, Shape, Tiling};
use millrace_xdna2::timing::Timing;
use millrace_xdna2::verify::Report as Resources;
use millrace_xdna2::{Machine, Profile, Program};
use serde_json::{Value, json};

/// Everything known about one kernel.
pub(super) struct Report<'a> {
    /// The mapping it was built by; none for a program from a file.
    pub(super) kernel: Option<(&'a dyn Mapping, &'a Shape, &'a Tiling)>,
    pub(super) program: &'a Program,
    pub(super) machine: &'a Machine,
    pub(super) profile: &'a Profile,
    pub(super) resources: &'a Resources,
    pub(super) computed: Option<&'a Computed>,
    /// What a program from a file computed.
    pub(super) produced: Option<&'a Produced>,
    pub(super) timing: &'a Timing,
}

/// A rate beside the roof it cannot pass.
struct Against {
    per_s: f64,
    roof_per_s: f64,
}

impl Against {
    fn percent(&self) -> f64 {
        100.0 * self.per_s / self.roof_per_s
    }
}

impl Report<'_> {
    pub(super) fn print(&self, as_json: bool) -> Outcome {
        let mut out = Out::new();
        if as_json {
            out.json(&self.to_json())?;
        } else {
            self.heading(&mut out)?;
            self.resources(&mut out)?;
            self.numbers(&mut out)?;
            self.prediction(&mut out)?;
            self.launches(&mut out)?;
            self.array(&mut out)?;
        }
        out.flush()
    }

    /// Floating-point operations a second beside the array's bf16 peak.
    fn compute(&self) -> Option<Against> {
        let (mapping, shape, _) = self.kernel?;
        let flops = mapping.work(shape).flops as f64;
        Some(Against {
            per_s: flops / self.timing.total_ns * 1e9,
            roof_per_s: self.machine.bf16_flops_per_s(),
        })
    }

    /// DDR traffic beside what the profile says the NPU gets.
    fn ddr(&self) -> Against {
        Against {
            per_s: self.ddr_bytes() / self.timing.total_ns * 1e9,
            roof_per_s: self.profile.ddr.total_gb_per_s * 1e9,
        }
    }

    fn ddr_bytes(&self) -> f64 {
        let launches = self.timing.launches.iter();
        launches.map(|l| l.ddr_read_bytes + l.ddr_write_bytes).sum()
    }

    fn heading(&self, out: &mut Out) -> Outcome {
        let clock = self.machine.clock_hz / 1e9;
        let on = format!(
            "{} {}×{} at {clock:.2} GHz",
            self.machine.name, self.machine.cols, self.machine.rows
        );
        match self.kernel {
            Some((mapping, shape, tiling)) => {
                let name = Paint::Bold.stdout(mapping.name());
                out.line(format!("{name}  {shape}  on {on}"))?;
                out.line(format!("  tiling      {tiling}"))
            }
            None => {
                let name = Paint::Bold.stdout(&self.program.name);
                out.line(format!("{name}  on {on}"))
            }
        }
    }

    fn resources(&self, out: &mut Out) -> Outcome {
        let (used, machine) = (self.resources, self.machine);
        out.line(format!(
            "  verified    L1 {} of {}, L2 {} of {} a tile, {} of {} memory-tile descriptors, {} locks",
            bytes(used.l1_bytes),
            bytes(machine.core.data_bytes),
            bytes(used.l2_bytes),
            bytes(machine.memory.data_bytes),
            used.memory_bds,
            machine.memory.bds,
            used.locks,
        ))
    }

    fn numbers(&self, out: &mut Out) -> Outcome {
        if let Some(produced) = self.produced {
            return Self::produced(produced, out);
        }
        let Some(computed) = self.computed else {
            return out.line("  computed    nothing: only the time was asked for");
        };
        let verdict = match (&computed.wrong, computed.n_unequal) {
            (Some(what), _) => Paint::Error.stdout(what),
            (None, 0) => "equal to the reference bit for bit".to_owned(),
            (None, n) => format!(
                "{n} of {} elements differ from the reference, all within {}",
                computed.n_elements, computed.tolerance
            ),
        };
        let host = duration(computed.host_s * 1e9);
        out.line(format!(
            "  computed    in {host} on this computer: {verdict}"
        ))?;
        match computed.snr_db {
            Some(snr) => out.line(format!(
                "  loss        SNR {snr:.1} dB against exact products of the same bf16 values"
            )),
            None => Ok(()),
        }
    }

    fn produced(produced: &Produced, out: &mut Out) -> Outcome {
        out.line(format!(
            "  computed    in {} on this computer, inputs without a file from seed {}; there is no \
             reference to compare with",
            duration(produced.host_s * 1e9),
            produced.seed
        ))?;
        for output in &produced.outputs {
            let broken = match output.n_not_finite {
                0 => String::new(),
                n => format!(", {n} NaN or infinite"),
            };
            let file = match &output.file {
                Some(path) => format!(", in {}", path.display()),
                None => String::new(),
            };
            out.line(format!(
                "  output      {} {} {:?}: {:.4} to {:.4}, mean {:.4}{broken}{file}",
                output.slot,
                output.element,
                output.shape,
                output.least,
                output.greatest,
                output.mean
            ))?;
        }
        Ok(())
    }

    fn prediction(&self, out: &mut Out) -> Outcome {
        let total = duration(self.timing.total_ns);
        let label = &self.timing.label;
        let dispatch = duration(self.timing.dispatch_ns);
        out.line(format!(
            "  predicted   {}  {label}, {dispatch} of it dispatch",
            Paint::Bold.stdout(&total)
        ))?;
        if let Some(compute) = self.compute().filter(|compute| compute.per_s > 0.0) {
            out.line(format!(
                "  compute     {:.3} TFLOP/s, {:.1} % of the array's {:.1} (bf16)",
                compute.per_s / 1e12,
                compute.percent(),
                compute.roof_per_s / 1e12
            ))?;
        }
        let ddr = self.ddr();
        out.line(format!(
            "  DDR         {:.1} GB/s, {:.0} % of the {:.0} it gets; {} moved",
            ddr.per_s / 1e9,
            ddr.percent(),
            ddr.roof_per_s / 1e9,
            bytes(self.ddr_bytes() as u64)
        ))
    }

    fn launches(&self, out: &mut Out) -> Outcome {
        for launch in &self.timing.launches {
            out.line(format!(
                "  launch      {} {}, {} grid points; bound by {}",
                launch.name,
                duration(launch.ns),
                launch.points,
                launch.bottleneck
            ))?;
        }
        Ok(())
    }

    fn array(&self, out: &mut Out) -> Outcome {
        out.line("  array       percent of the call that each core computes, by column")?;
        for line in picture::lines(&picture::busy(self.timing, self.machine)) {
            out.line(format!("              {line}"))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let against = |a: Against| json!({ "per_s": a.per_s, "roof_per_s": a.roof_per_s, "percent": a.percent() });
        let (used, machine) = (self.resources, self.machine);
        json!({
            "kernel": self.kernel.map(|(mapping, ..)| mapping.name()),
            "shape": self.kernel.map(|(_, shape, _)| shape.to_string()),
            "tiling": self.kernel.map(|(_, _, tiling)| tiling.to_string()),
            "program": self.program.name,
            "machine": { "name": machine.name, "cols": machine.cols, "rows": machine.rows, "clock_hz": machine.clock_hz },
            "profile": self.profile.name,
            "resources": {
                "l1_bytes": used.l1_bytes, "l2_bytes": used.l2_bytes, "program_bytes": used.program_bytes,
                "dma_channels": used.dma_channels, "core_bds": used.core_bds, "memory_bds": used.memory_bds,
                "locks": used.locks, "link_streams": used.link_streams,
            },
            "computed": match self.produced {
                Some(produced) => json!(produced),
                None => json!(self.computed),
            },
            "predicted": {
                "label": self.timing.label,
                "total_ns": self.timing.total_ns,
                "dispatch_ns": self.timing.dispatch_ns,
                "compute": self.compute().map(against),
                "ddr": against(self.ddr()),
                "launches": self.timing.launches,
                "busy_percent": picture::busy(self.timing, machine),
            },
        })
    }
}

/// A time with three significant digits: `80.0 µs`, `9.97 ms`.
pub(super) fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "µs"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    match value {
        v if v >= 99.95 => format!("{v:.0} {unit}"),
        v if v >= 9.995 => format!("{v:.1} {unit}"),
        v => format!("{v:.2} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (1.0, "1.00 ns"),
            (80_000.0, "80.0 µs"),
            (9_970_000.0, "9.97 ms"),
            (999_600.0, "1.00 ms"),
            (1.27e9, "1.27 s"),
            (123e9, "123 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
