//! Kernels one by one: built, verified, computed, compared, timed.

mod report;

use super::{ArraySimulator, machine, simulator};
use crate::mapping::{self, Mapping, Shape, Tiling, Tolerance, compare};
use millrace_kernels::Cpu;
use millrace_npu::{Element, Role, Slot};
use millrace_plan::workbench::{SlotOutput, contents, described};
use millrace_plan::{
    BenchError, Choice, KernelReport, KernelRequest, KernelSubject, RankedTiling, SettingError,
    Sweep, Workbench,
};
use millrace_xdna2_machine::program::text;
use millrace_xdna2_machine::simulate;
use millrace_xdna2_machine::timing::{self, Timing};
use millrace_xdna2_machine::verify::{self, ResourceReport as Resources};
use millrace_xdna2_machine::{Machine, Numerics, Profile, Program};
use millrace_xdna2_silicon::WordCounts;
use millrace_xdna2_silicon::device::{program_words, run_program};
use report::BenchReport;
use serde::Serialize;
use std::time::Instant;

pub(super) struct Xdna2Bench;

/// Result of computing a kernel.
#[derive(Serialize)]
struct KernelResult {
    /// Time on this computer, which is unrelated to the NPU's.
    host_s: f64,
    /// The simulator that executed it.
    simulator: &'static str,
    /// Elements of the outputs.
    n_elements: u64,
    /// How many of them differ from the reference's bytes.
    n_unequal: u64,
    /// `exact`, or the tolerance.
    tolerance: String,
    /// The first element outside the tolerance.
    wrong: Option<String>,
    /// Bytes that crossed between DDR and the array, where tiles were simulated.
    ddr_bytes: Option<u64>,
    /// Words that descriptors moved, where words were executed.
    dma_words: Option<u64>,
    /// Signal to noise of emulated products, against exact ones of the same inputs.
    snr_db: Option<f64>,
}

/// Result of a program without a reference.
#[derive(Serialize)]
struct Run {
    /// Time on this computer, which is unrelated to the NPU's.
    host_s: f64,
    /// The simulator that executed it.
    simulator: &'static str,
    /// Seed of the inputs that no file gave.
    seed: u64,
    outputs: Vec<SlotOutput>,
    #[serde(skip)]
    contents: Vec<Vec<u8>>,
}

/// A kernel of the table with its shape and tiling.
#[derive(Clone)]
struct BenchKernel {
    mapping: &'static dyn Mapping,
    shape: Shape,
    tiling: Tiling,
}

/// A kernel or program, ready to be verified.
struct KernelCase {
    kernel: Option<BenchKernel>,
    program: Program,
    machine: Machine,
    profile: Profile,
    numerics: Numerics,
    simulator: ArraySimulator,
}

/// Traffic of an execution, in the unit of its simulator.
#[derive(Default)]
struct Traffic {
    ddr_bytes: Option<u64>,
    dma_words: Option<u64>,
}

impl Workbench for Xdna2Bench {
    fn kernels(&self) -> Vec<Choice> {
        let rows = mapping::TABLE.iter();
        rows.map(|m| Choice::new(m.name(), m.summary())).collect()
    }

    fn kernel(&self, request: &KernelRequest, cpu: &Cpu) -> Result<KernelReport, BenchError> {
        let case = KernelCase::new(request)?;
        let resources = case.verify()?;
        let timing = case.predict(request.trace_spans)?;
        let (mut computed, mut run) = (None, None);
        match (&case.kernel, request.time_only) {
            (_, true) => {}
            (Some(kernel), false) => computed = Some(case.compute(kernel, request.seed, cpu)?),
            (None, false) => run = Some(case.run(request, cpu)?),
        }
        let report = BenchReport {
            case: &case,
            resources: &resources,
            computed: computed.as_ref(),
            run: run.as_ref(),
            timing: &timing,
            words: &case.words(),
        };
        let mut found = report.made();
        if request.trace_spans > 0 {
            found.trace = Some(timing.to_trace());
        }
        if let (KernelSubject::Program { outputs, .. }, Some(run)) = (&request.subject, run) {
            for name in outputs {
                found.outputs.push(run.contents[case.slot(name)?].clone());
            }
        }
        Ok(found)
    }

    fn slots(&self, text: &str) -> Result<Vec<Slot>, BenchError> {
        Ok(parsed(text)?.slots)
    }

    fn program_text(&self, request: &KernelRequest) -> Result<String, BenchError> {
        Ok(text::print(&KernelCase::new(request)?.program))
    }

    fn sweep(
        &self,
        request: &KernelRequest,
        progress: &mut dyn FnMut(usize, usize, &str),
    ) -> Result<Sweep, BenchError> {
        let (machine, profile) = machine(&request.settings)?;
        let KernelSubject::Kernel { name, shape, .. } = &request.subject else {
            return Err(BenchError::Input("only kernels have tilings".to_owned()));
        };
        let mapping = find(name)?;
        let shape = parse_shape(mapping, shape)?;
        let tilings = mapping.tilings(&shape, &machine);
        let default = mapping.default_tiling(&shape, &machine);
        let (n, mut n_refused) = (tilings.len(), 0);
        let mut ranked = Vec::new();
        for (i, tiling) in tilings.into_iter().enumerate() {
            progress(i, n, &tiling.to_string());
            match predict(mapping, &shape, &tiling, (&machine, &profile)) {
                Some((ns, bottleneck)) => ranked.push(RankedTiling {
                    tflop_per_s: mapping.work(&shape).flops as f64 / ns / 1e3,
                    is_default: tiling == default,
                    ns,
                    tiling: tiling.to_string(),
                    bottleneck,
                }),
                None => n_refused += 1,
            }
        }
        if ranked.is_empty() {
            let why = match mapping.build(&shape, &default, &machine) {
                Err(error) => error.to_string(),
                Ok(_) => format!("the verifier refuses all {n_refused} of them"),
            };
            let message = format!("no tiling of this shape is legal: {why}");
            return Err(usage(message, String::new()));
        }
        ranked.sort_by(|a, b| a.ns.total_cmp(&b.ns));
        Ok(Sweep {
            kernel: mapping.name().to_owned(),
            shape: shape.to_string(),
            profile: profile.name,
            tilings: ranked,
            n_refused,
        })
    }
}

fn usage(message: impl Into<String>, hint: impl Into<String>) -> BenchError {
    BenchError::Usage {
        message: message.into(),
        hint: hint.into(),
    }
}

fn find(name: &str) -> Result<&'static dyn Mapping, BenchError> {
    mapping::find(name).ok_or_else(|| BenchError::NotFound {
        message: format!("no kernel `{name}`"),
        hint: String::new(),
    })
}

fn parsed(text: &str) -> Result<Program, BenchError> {
    text::parse(text).map_err(|error| BenchError::Input(error.to_string()))
}

fn parse_shape(mapping: &dyn Mapping, text: &str) -> Result<Shape, BenchError> {
    let shape = mapping.parse_shape(text);
    shape.map_err(|error| usage(error.to_string(), String::new()))
}

/// Time and bottleneck of the longest launch; `None` where the verifier refuses.
fn predict(
    mapping: &dyn Mapping,
    shape: &Shape,
    tiling: &Tiling,
    (machine, profile): (&Machine, &Profile),
) -> Option<(f64, String)> {
    let program = mapping.build(shape, tiling, machine).ok()?;
    verify::verify(&program, machine).ok()?;
    let timing = timing::predict(&program, machine, profile).ok()?;
    let launches = timing.launches.iter();
    let longest = launches.max_by(|a, b| a.ns.total_cmp(&b.ns))?;
    Some((timing.total_ns, longest.bottleneck.resource.clone()))
}

/// Grid points of a program beyond which its words are not counted: each point has separate tasks, so that streams have
/// hundreds of MiB.
const MAX_POINTS: u64 = 1 << 14;

impl KernelCase {
    /// Counts of the program's words, or why they are not known.
    fn words(&self) -> Result<WordCounts, String> {
        let points = self.program.launches.iter();
        let points: Option<u64> = points.map(|launch| launch.n_grid_points()).sum();
        if points.is_none_or(|n| n > MAX_POINTS) {
            return Err(format!("more than {MAX_POINTS} grid points, not counted"));
        }
        let launches = program_words(&self.program, &self.machine);
        let launches = launches.map_err(|error| error.to_string())?;
        Ok(WordCounts::of(&launches))
    }

    fn new(request: &KernelRequest) -> Result<KernelCase, BenchError> {
        let (machine, profile) = machine(&request.settings)?;
        let simulator = simulator(&request.settings)?;
        let numerics = match &request.settings.numerics {
            None => Numerics::Bf16,
            Some(name) => name.parse().map_err(|_| unknown_numerics(name))?,
        };
        let case = |kernel, program| KernelCase {
            kernel,
            program,
            machine,
            profile,
            numerics,
            simulator,
        };
        let (name, shape, tile) = match &request.subject {
            KernelSubject::Program { text, .. } => return Ok(case(None, parsed(text)?)),
            KernelSubject::Kernel { name, shape, tile } => (name, shape, tile),
        };
        let mapping = find(name)?;
        let given = shape;
        let shape = parse_shape(mapping, shape)?;
        let tiling = mapping.default_tiling(&shape, &case_machine(request)?);
        let tiling = match tile {
            Some(text) => (tiling.overridden(text))
                .map_err(|error| usage(format!("--tile {text}: {error}"), String::new()))?,
            None => tiling,
        };
        let built = mapping.build(&shape, &tiling, &case_machine(request)?);
        let mut program = built.map_err(|error| {
            let hint = format!("`millrace kernel {name} {given} --sweep` lists the legal tilings");
            usage(error.to_string(), hint)
        })?;
        numerics.apply(&mut program);
        let kernel = BenchKernel {
            mapping,
            shape,
            tiling,
        };
        Ok(case(Some(kernel), program))
    }

    /// Index of a slot of that name.
    fn slot(&self, name: &str) -> Result<usize, BenchError> {
        let found = self.program.slots.iter().position(|slot| slot.name == name);
        found.ok_or_else(|| {
            let known: Vec<String> = self.program.slots.iter().map(described).collect();
            let message = format!("`{}` has no slot `{name}`", self.program.name);
            usage(message, format!("its slots: {}", known.join("; ")))
        })
    }

    /// Every rule the program breaks, as one failure.
    fn verify(&self) -> Result<Resources, BenchError> {
        verify::verify(&self.program, &self.machine).map_err(|refusals| {
            let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            BenchError::Failed(format!(
                "{} would refuse `{}`:\n{}",
                self.machine.name,
                self.program.name,
                refusals.join("\n")
            ))
        })
    }

    fn predict(&self, trace_spans: usize) -> Result<Timing, BenchError> {
        let options = timing::TimingOptions {
            trace_spans,
            ..timing::TimingOptions::default()
        };
        let timing = timing::predict_with(&self.program, &self.machine, &self.profile, &options);
        timing.map_err(|error| BenchError::Failed(error.to_string()))
    }

    /// Executes the program on its slots' contents, by tiles or by words.
    fn execute(&self, slots: &mut [Vec<u8>], cpu: &Cpu) -> Result<Traffic, BenchError> {
        if self.simulator == ArraySimulator::Words {
            let ran = run_program(&self.program, &self.machine, slots, cpu);
            let counters = ran.map_err(BenchError::Failed)?;
            return Ok(Traffic {
                dma_words: Some(counters.words),
                ..Traffic::default()
            });
        }
        let options = simulate::SimulateOptions::new(cpu);
        let counters = simulate::run(&self.program, slots, &options);
        let total = counters
            .map_err(|fault| BenchError::Failed(fault.to_string()))?
            .total();
        Ok(Traffic {
            ddr_bytes: Some(total.ddr_read_bytes + total.ddr_written_bytes),
            ..Traffic::default()
        })
    }

    /// Runs the program on random data and compares every output with the reference.
    fn compute(
        &self,
        kernel: &BenchKernel,
        seed: u64,
        cpu: &Cpu,
    ) -> Result<KernelResult, BenchError> {
        let (mapping, shape, tiling) = (kernel.mapping, &kernel.shape, &kernel.tiling);
        let mut slots = mapping.inputs(shape, seed);
        let expected = mapping.reference_in(self.numerics, shape, tiling, &slots);
        let exact = match self.numerics {
            Numerics::Bf16 => None,
            Numerics::Bfp16 => Some(mapping.reference(shape, tiling, &slots)),
        };
        let start = Instant::now();
        let moved = self.execute(&mut slots, cpu)?;
        let host_s = start.elapsed().as_secs_f64();
        let tolerance = mapping.tolerance();
        let mut computed = KernelResult {
            host_s,
            simulator: self.simulator.name(),
            n_elements: 0,
            n_unequal: 0,
            tolerance: words(tolerance),
            wrong: None,
            ddr_bytes: moved.ddr_bytes,
            dma_words: moved.dma_words,
            snr_db: exact.and_then(|exact| snr_db(&self.program, &exact, &slots)),
        };
        for (slot, expected) in &expected {
            let spec = &self.program.slots[*slot];
            let comparison = compare(spec.element, &slots[*slot], expected, tolerance);
            computed.n_elements += comparison.n_elements;
            computed.n_unequal += comparison.n_unequal;
            if let (None, Some(difference)) = (&computed.wrong, comparison.outside) {
                computed.wrong = Some(format!("slot `{}`: {difference}", spec.name));
            }
        }
        Ok(computed)
    }

    /// Runs a user's own program.
    fn run(&self, request: &KernelRequest, cpu: &Cpu) -> Result<Run, BenchError> {
        let KernelSubject::Program {
            inputs, outputs, ..
        } = &request.subject
        else {
            return Err(BenchError::Input("no program is given".to_owned()));
        };
        let named = inputs.iter().map(|(name, _)| name).chain(outputs);
        for name in named {
            self.slot(name)?;
        }
        let program = &self.program;
        let mut contents = contents(&program.slots, inputs, request.seed)?;
        let start = Instant::now();
        self.execute(&mut contents, cpu)?;
        let host_s = start.elapsed().as_secs_f64();
        let shown = |slot: &Slot| slot.role == Role::Output || outputs.contains(&slot.name);
        let slots = program.slots.iter().zip(&contents);
        let slots = slots.filter(|(slot, _)| shown(slot));
        Ok(Run {
            host_s,
            simulator: self.simulator.name(),
            seed: request.seed,
            outputs: slots
                .map(|(slot, bytes)| SlotOutput::of(slot, bytes))
                .collect(),
            contents,
        })
    }
}

fn case_machine(request: &KernelRequest) -> Result<Machine, BenchError> {
    Ok(machine(&request.settings)?.0)
}

fn unknown_numerics(name: &str) -> SettingError {
    let choices = Numerics::ALL.map(|numerics| Choice::new(numerics.name(), numerics.summary()));
    SettingError::unknown(super::NAME, "numerics", name, &choices)
}

/// Signal to noise in decibels of all outputs together; none where nothing differs.
fn snr_db(program: &Program, exact: &[(usize, Vec<u8>)], found: &[Vec<u8>]) -> Option<f64> {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (slot, exact) in exact {
        let element = program.slots[*slot].element;
        for (exact, found) in numbers(element, exact).zip(numbers(element, &found[*slot])) {
            signal += exact * exact;
            noise += (exact - found) * (exact - found);
        }
    }
    (noise > 0.0).then(|| 10.0 * f64::log10(signal / noise))
}

fn numbers(element: Element, bytes: &[u8]) -> impl Iterator<Item = f64> {
    let each = bytes.chunks_exact(element.size_bytes() as usize);
    each.map(move |bytes| element.number(bytes).unwrap_or(f64::NAN))
}

fn words(tolerance: Tolerance) -> String {
    match tolerance {
        Tolerance::Exact => "exact".to_owned(),
        Tolerance::Close { ulps, absolute } => format!("{ulps} ULP or {absolute:e}"),
    }
}
