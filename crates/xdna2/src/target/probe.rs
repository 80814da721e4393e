//! The probe: programs of DMA alone, on the board.

use super::NAME;
use millrace_plan::{
    Choice, ProbeFigure, ProbeOf, ProbeReport, ProbeStatus, ProbeStep, Prober, SettingError,
    Settings,
};
use millrace_xdna2_words::board::{Board, BoardCounters, BoardOptions};
use millrace_xdna2_words::probe::{ProbeDesign, designs};
use millrace_xdna2_words::register::{self, BlockKind};
use millrace_xdna2_words::tile::{Tile, TileKind};
use millrace_xdna2_words::{TxnOperation, TxnStream};

/// Tries the array with programs that need no code on any core.
pub(super) struct Xdna2Probe;

/// What can be made to go wrong: name, what happens, how a stream is changed for it.
struct ProbeFault(&'static str, &'static str, fn(&mut TxnStream));

const FAULTS: [ProbeFault; 4] = [
    ProbeFault("lock", "a lock begins too low: nothing moves", |stream| {
        change(stream, BlockKind::Lock, 0, |_| 0);
    }),
    ProbeFault("token", "tokens are not routed to the firmware", |stream| {
        change(stream, BlockKind::Slot, 0, |_| 0);
    }),
    ProbeFault(
        "queue",
        "a fifth task is pushed to a full queue",
        |stream| {
            let is_wait = |op: &millrace_xdna2_words::txn::StreamOperation| {
                matches!(op.operation, TxnOperation::Sync { .. })
            };
            if let Some(first) = stream.operations.iter().position(is_wait) {
                let push = stream.operations[..first].last().cloned();
                let pushes = std::iter::repeat_n(push, 4).flatten();
                stream.operations.splice(first..first, pushes);
            }
        },
    ),
    ProbeFault("address", "the result goes elsewhere", |stream| {
        for op in &mut stream.operations {
            if let TxnOperation::Patch {
                argument: 1,
                plus_bytes,
                ..
            } = &mut op.operation
            {
                *plus_bytes ^= 64;
            }
        }
    }),
];

/// Changes the words written to a register of any tile.
fn change(stream: &mut TxnStream, kind: BlockKind, number: u32, new: impl Fn(u32) -> u32) {
    let is_it = |address: u64| {
        let found = u32::try_from(address).ok().and_then(Tile::of_address);
        found.is_some_and(|(tile, offset)| {
            register::offset(tile.kind(), kind, number) == Some(offset)
                && (kind != BlockKind::Slot || tile.kind() == TileKind::Shim)
        })
    };
    for op in &mut stream.operations {
        match &mut op.operation {
            TxnOperation::Write { address, value } if is_it(*address) => *value = new(*value),
            TxnOperation::BlockWrite { address, data } if is_it((*address).into()) => {
                data[0] = new(data[0]);
            }
            _ => {}
        }
    }
}

impl Prober for Xdna2Probe {
    fn faults(&self) -> Vec<Choice> {
        let choice = |fault: &ProbeFault| Choice::new(fault.0, fault.1);
        FAULTS.iter().map(choice).collect()
    }

    fn probe(&self, settings: &Settings, of: &ProbeOf) -> Result<ProbeReport, SettingError> {
        super::machine(settings)?;
        let fault = match of {
            ProbeOf::Hardware => return Ok(no_driver()),
            ProbeOf::Virtual(None) => None,
            ProbeOf::Virtual(Some(name)) => {
                let known = FAULTS.iter().find(|fault| fault.0 == name);
                let unknown = || SettingError::unknown(NAME, "fault", name, &self.faults());
                Some(known.ok_or_else(unknown)?)
            }
        };
        Ok(on_board(fault))
    }
}

fn step(name: &str, status: ProbeStatus, detail: String, advice: Option<&str>) -> ProbeStep {
    ProbeStep {
        name: name.to_owned(),
        status,
        detail,
        advice: advice.map(str::to_owned),
    }
}

/// What this computer's device would be asked, and cannot be yet.
fn no_driver() -> ProbeReport {
    let detail = "this program has no driver for amdxdna yet, so no NPU is asked".to_owned();
    let advice = "`--virtual` runs the same words on the board";
    ProbeReport {
        place: "this computer".to_owned(),
        provenance: None,
        steps: vec![step("open", ProbeStatus::Failed, detail, Some(advice))],
        figures: Vec::new(),
    }
}

/// A step that failed, with where to look.
fn failed(name: &str, problem: String) -> ProbeStep {
    let advice =
        "`millrace npu words` lists a stream; docs/silicon.md says what each refusal means";
    step(name, ProbeStatus::Failed, problem, Some(advice))
}

/// Orders of actors that each program is run in.
const SEEDS: u64 = 2;

fn on_board(fault: Option<&ProbeFault>) -> ProbeReport {
    let mut report = ProbeReport {
        place: "the board, a register-level model of an NPU2; never run on hardware".to_owned(),
        provenance: None,
        steps: Vec::new(),
        figures: Vec::new(),
    };
    let all = match designs() {
        Ok(all) => all,
        Err(error) => {
            report.steps.push(failed("write", error.to_string()));
            return report;
        }
    };
    let (mut words, mut moved) = (0, 0);
    let mut has_failed = false;
    for mut design in all {
        if has_failed {
            let detail = "a step before it failed".to_owned();
            report
                .steps
                .push(step(design.name, ProbeStatus::Skipped, detail, None));
            continue;
        }
        if let Some(fault) = fault {
            (fault.2)(&mut design.stream);
        }
        let n_words = design.stream.encode().len();
        let ended = run(&design);
        has_failed = ended.is_err();
        match ended {
            Ok(counters) => {
                words += n_words;
                moved += counters.words;
                let detail = format!(
                    "{}: {} bytes as they should be, {n_words} words, {} tasks",
                    design.summary,
                    design.expected.len(),
                    counters.pushes
                );
                report
                    .steps
                    .push(step(design.name, ProbeStatus::Ok, detail, None));
            }
            Err(problem) => report.steps.push(failed(design.name, problem)),
        }
    }
    let figure = |name, value| ProbeFigure { name, value };
    report.figures = vec![
        figure("stream_words", words as f64),
        figure("moved_words", moved as f64),
    ];
    report
}

/// Runs a program in several orders; what is wrong, if anything.
fn run(design: &ProbeDesign) -> Result<BoardCounters, String> {
    let mut counters = BoardCounters::default();
    for seed in 0..SEEDS {
        let mut arguments = [design.input.clone(), vec![0; design.expected.len()]];
        let options = BoardOptions {
            seed,
            max_rounds: 1 << 20,
            ..BoardOptions::default()
        };
        let mut board = Board::new(options);
        let ran = board.run_stream(&design.stream, &mut arguments);
        counters = ran.map_err(|error| error.to_string())?;
        let differs = arguments[1]
            .iter()
            .zip(&design.expected)
            .position(|(a, b)| a != b);
        if let Some(at) = differs {
            let n = design.expected.len();
            return Err(format!("{}: byte {at} of {n} is wrong", design.summary));
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_passes_and_every_fault_is_found() {
        let report = on_board(None);
        assert!(report.failure().is_none(), "{:?}", report.failure());
        assert!(report.steps.len() >= 9);
        for fault in &FAULTS {
            let report = on_board(Some(fault));
            let failure = report.failure();
            assert!(
                failure.is_some_and(|step| step.advice.is_some()),
                "{}",
                fault.0
            );
            assert!(
                report
                    .steps
                    .iter()
                    .any(|s| s.status == ProbeStatus::Skipped),
                "{}",
                fault.0
            );
        }
    }
}
