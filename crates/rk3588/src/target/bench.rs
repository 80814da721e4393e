//! Products one by one: cut, verified, computed, compared, timed; and predictions beside published rows.

mod compute;

use super::planner::{LENGTHS_FOR_WEIGHTS, named};
use super::settings::machine;
use crate::linear::LayerLinear;
use crate::machine::Machine;
use crate::matmul::MatmulKind;
use crate::profile::Profile;
use crate::program::Program;
use crate::quantise::Rotation;
use crate::tiling::{Grid, Matmul, Order, Price, Tiling, TilingChoice, choose_weights, price};
use crate::verify;
use compute::BoardResult;
use millrace_kernels::Cpu;
use millrace_npu::{Provenance, Slot};
use millrace_plan::workbench::SlotOutput;
use millrace_plan::{
    BenchError, Choice, KernelReport, KernelRequest, KernelSubject, LineSpan, NamedNumbers,
    RankedTiling, ReportLine, Sweep, Tone, Workbench, units,
};
use serde_json::json;

pub(super) struct Rk3588Bench;

/// The product or program under examination.
struct BoardCase {
    machine: Machine,
    profile: Profile,
    program: Program,
    /// Why it is cut so; none for a user's own program.
    reason: Option<String>,
}

fn usage(message: impl Into<String>, hint: impl Into<String>) -> BenchError {
    BenchError::Usage {
        message: message.into(),
        hint: hint.into(),
    }
}

/// Parses `128x2048x8192`: rows, columns, and length of the sums.
fn shape(kind: MatmulKind, text: &str) -> Result<Matmul, BenchError> {
    let dims: Vec<u32> = text.split('x').filter_map(|n| n.parse().ok()).collect();
    match (&dims[..], text.split('x').count()) {
        (&[m, n, k], 3) => Ok(Matmul { kind, m, n, k }),
        _ => Err(usage(
            format!("`{text}` is no shape"),
            "write MxNxK: rows of A, rows of B, elements of both (128x8192x2048)",
        )),
    }
}

fn kind(name: &str) -> Result<MatmulKind, BenchError> {
    let all: Vec<&str> = MatmulKind::ALL.iter().map(|kind| kind.name()).collect();
    MatmulKind::from_name(name).ok_or_else(|| BenchError::NotFound {
        message: format!("no kernel `{name}`"),
        hint: format!("there are {}", all.join(", ")),
    })
}

/// The cut that plans use: weights cut for prompts, by the constants that decide tilings.
fn chosen(shape: Matmul, machine: &Machine) -> Result<TilingChoice, BenchError> {
    let choices = Profile::rocket_200();
    let dims = [LENGTHS_FOR_WEIGHTS, shape.n, shape.k];
    let workers = machine.n_cores;
    LayerLinear::new(shape.kind, dims, workers, Rotation::NONE, machine, &choices)
        .and_then(|linear| linear.choose(shape.m, machine, &choices))
        .map_err(|error| usage(error.to_string(), ""))
}

fn tiling_of(named: &NamedNumbers) -> Tiling {
    let get = |name| u32::try_from(named.get(name).unwrap_or(0)).unwrap_or(u32::MAX);
    Tiling {
        rows: get("rows"),
        cols: get("cols"),
        depth: get("depth"),
        workers: get("workers"),
        order: match get("rows_inner") {
            0 => Order::Columns,
            _ => Order::Rows,
        },
        job_tasks: get("job_tasks"),
    }
}

impl BoardCase {
    fn new(request: &KernelRequest) -> Result<BoardCase, BenchError> {
        let (machine, profile) = machine(&request.settings)?;
        if let Some(numerics) = &request.settings.numerics {
            let message =
                format!("a kernel has its own types, so `--numerics {numerics}` says nothing");
            return Err(usage(
                message,
                "`millrace kernel` lists the kernels by type",
            ));
        }
        let (name, dims, tile) = match &request.subject {
            KernelSubject::Program { text, .. } => {
                let program = parsed(text)?;
                return Ok(BoardCase {
                    machine,
                    profile,
                    program,
                    reason: None,
                });
            }
            KernelSubject::Kernel { name, shape, tile } => (name, shape, tile),
        };
        let shape = shape(kind(name)?, dims)?;
        let chosen = chosen(shape, &machine)?;
        let (tiling, reason) = match tile {
            None => (chosen.tiling, chosen.reason()),
            Some(text) => {
                let named = named(chosen.tiling).overridden(text);
                let named = named.map_err(|e| usage(format!("--tile {text}: {e}"), ""))?;
                (
                    tiling_of(&named),
                    format!("asked for; chosen would be {}", chosen.tiling),
                )
            }
        };
        let name = format!(
            "{}_{}x{}x{}",
            name.replace('-', "_"),
            shape.m,
            shape.n,
            shape.k
        );
        let program = Program::build(&name, shape, tiling, &machine).map_err(|error| {
            let hint = "`--sweep` in place of `--tile` lists the legal tilings";
            usage(error.to_string(), hint)
        })?;
        Ok(BoardCase {
            machine,
            profile,
            program,
            reason: Some(reason),
        })
    }

    fn verify(&self) -> Result<Grid, BenchError> {
        let verified = verify::program(&self.program, &self.machine).map_err(|refusals| {
            let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            let (machine, name) = (&self.machine.name, &self.program.name);
            let all = refusals.join("\n");
            BenchError::Failed(format!("{machine} would refuse `{name}`:\n{all}"))
        })?;
        Ok(verified.grid)
    }

    fn report(&self, grid: &Grid, computed: Option<&BoardResult>) -> KernelReport {
        let (program, shape) = (&self.program, self.program.shape);
        let cost = price(grid, program.tiling.job_tasks, &self.machine, &self.profile);
        let label = Provenance::Modelled {
            profile: self.profile.name.clone(),
            error: self.profile.error,
        };
        let ops = 2.0 * f64::from(shape.m) * f64::from(shape.n) * f64::from(shape.k);
        let mut lines = vec![
            ReportLine::plain("tiling", named(program.tiling).to_string()),
            ReportLine::plain("", self.reason.clone().unwrap_or_default()),
            ReportLine::plain("verified", verified_text(program, grid, &self.machine)),
        ];
        lines.retain(|line| line.text.iter().any(|span| !span.text.is_empty()));
        lines.extend(computed.map(BoardResult::line));
        lines.push(ReportLine {
            label: "predicted",
            text: vec![
                LineSpan::new(units::duration(cost.total_ns()), Tone::Strong),
                LineSpan::new(
                    format!(
                        ": {} on the NPU ({} of it the array), {} of the host; {:.1} GOP/s; {label}",
                        units::duration(cost.device_ns),
                        units::duration(cost.mac_ns),
                        units::duration(cost.host_ns),
                        ops / cost.total_ns()
                    ),
                    Tone::Plain,
                ),
            ],
        });
        KernelReport {
            name: shape.kind.name().to_owned(),
            heading: format!(
                "{}x{}x{} (m, n, k) on {}",
                shape.m, shape.n, shape.k, self.machine.name
            ),
            lines,
            json: json!({
                "kernel": shape.kind.name(), "m": shape.m, "n": shape.n, "k": shape.k,
                "machine": self.machine.name, "tiling": named(program.tiling),
                "reason": self.reason, "n_jobs": program.jobs.len(), "n_tasks": program.n_tasks(),
                "computed": computed.map(BoardResult::json),
                "predicted": {
                    "label": label.to_string(), "total_ns": cost.total_ns(),
                    "device_ns": cost.device_ns, "array_ns": cost.mac_ns, "host_ns": cost.host_ns,
                    "dma_bytes": cost.dma_bytes,
                },
            }),
            wrong: computed.and_then(|c| c.wrong.clone()),
            ..KernelReport::default()
        }
    }
}

fn verified_text(program: &Program, grid: &Grid, machine: &Machine) -> String {
    let (kind, tiling) = (program.shape.kind, program.tiling);
    let data = crate::matmul::data_banks(tiling.rows, tiling.depth, kind, machine);
    format!(
        "no rule broken: {} tasks in {} jobs; {} parts of k; A takes {data} of {} banks; a, b, c: {}, {}, {}",
        program.n_tasks(),
        program.jobs.len(),
        grid.parts.len(),
        machine.cbuf_banks,
        units::bytes(grid.a_bytes()),
        units::bytes(grid.b_bytes()),
        units::bytes(grid.c_bytes())
    )
}

fn parsed(text: &str) -> Result<Program, BenchError> {
    Program::from_text(text).map_err(|error| BenchError::Input(error.to_string()))
}

/// The resource that limits a way to cut.
fn bound(price: &Price) -> &'static str {
    if price.mac_ns >= 0.7 * price.device_ns {
        "array"
    } else if price.host_ns > price.device_ns {
        "host"
    } else {
        "memory and tasks"
    }
}

impl Workbench for Rk3588Bench {
    fn kernels(&self) -> Vec<Choice> {
        let words = |kind: &MatmulKind| {
            let what = match kind {
                MatmulKind::Int8Int32 => "8-bit integers, exact sums in 32 bits",
                MatmulKind::Int8F32 => "8-bit integers, sums as binary32",
                MatmulKind::Fp16F32 => "binary16, sums in binary32",
                MatmulKind::Fp16Fp16 => "binary16, sums rounded to binary16",
                MatmulKind::Bf16F32 => "bf16, sums in binary32 (nobody has shown it on silicon)",
                MatmulKind::Int4Int16 => {
                    "4-bit integers, sums in 16 bits (nobody has shown it on silicon)"
                }
            };
            Choice::new(kind.name(), &format!("C = A·Bᵀ of {what}; MxNxK"))
        };
        MatmulKind::ALL.iter().map(words).collect()
    }

    fn kernel(&self, request: &KernelRequest, cpu: &Cpu) -> Result<KernelReport, BenchError> {
        let case = BoardCase::new(request)?;
        let grid = case.verify()?;
        let own = match &request.subject {
            KernelSubject::Program {
                inputs, outputs, ..
            } => Some((inputs, outputs)),
            KernelSubject::Kernel { .. } => None,
        };
        if request.time_only {
            return Ok(case.report(&grid, None));
        }
        let board = compute::BoardBench::new(&case)?;
        let Some((inputs, outputs)) = own else {
            let computed = board.compare(&grid, request.seed, cpu)?;
            return Ok(case.report(&grid, Some(&computed)));
        };
        let ran = board.run(inputs, request.seed)?;
        let mut report = case.report(&grid, None);
        let produced = SlotOutput::of(
            &ran.slots[crate::program::C],
            &ran.contents[crate::program::C],
        );
        report
            .lines
            .insert(2, ReportLine::plain("computed", ran.words(&produced)));
        report.json["computed"] = json!({ "outputs": [produced], "seed": request.seed });
        for name in outputs {
            let at = ran.slots.iter().position(|slot| slot.name == *name);
            let at = at.ok_or_else(|| usage(format!("no slot `{name}`"), "its slots: a, b, c"))?;
            report.outputs.push(ran.contents[at].clone());
        }
        Ok(report)
    }

    fn slots(&self, text: &str) -> Result<Vec<Slot>, BenchError> {
        let slots = parsed(text)?.slots(&Machine::rk3588());
        slots.map_err(|error| BenchError::Input(error.to_string()))
    }

    fn program_text(&self, request: &KernelRequest) -> Result<String, BenchError> {
        Ok(BoardCase::new(request)?.program.to_text())
    }

    fn sweep(
        &self,
        request: &KernelRequest,
        progress: &mut dyn FnMut(usize, usize, &str),
    ) -> Result<Sweep, BenchError> {
        let (machine, profile) = machine(&request.settings)?;
        let KernelSubject::Kernel {
            name, shape: dims, ..
        } = &request.subject
        else {
            return Err(BenchError::Input("only kernels have tilings".to_owned()));
        };
        let shape = shape(kind(name)?, dims)?;
        let default = chosen(shape, &machine)?.tiling;
        let ops = 2.0 * f64::from(shape.m) * f64::from(shape.n) * f64::from(shape.k);
        let (mut tilings, mut n_refused) = (Vec::new(), 0);
        let n_workers = machine.n_cores as usize;
        for workers in 1..=machine.n_cores {
            progress(
                workers as usize - 1,
                n_workers,
                &format!("{workers} workers"),
            );
            let found = choose_weights(shape, workers, &machine, &profile);
            let (_, found) = found.map_err(|error| usage(error.to_string(), ""))?;
            for candidate in found.candidates {
                match candidate.price {
                    Ok(price) => tilings.push(RankedTiling {
                        tiling: named(candidate.tiling).to_string(),
                        ns: price.total_ns(),
                        tflop_per_s: ops / price.total_ns() / 1e3,
                        bottleneck: bound(&price).to_owned(),
                        is_default: candidate.tiling == default,
                    }),
                    Err(_) => n_refused += 1,
                }
            }
        }
        tilings.sort_by(|a, b| a.ns.total_cmp(&b.ns));
        Ok(Sweep {
            kernel: name.clone(),
            shape: dims.clone(),
            profile: profile.name,
            tilings,
            n_refused,
        })
    }
}
