//! A virtual NPU2 that executes words: each launch of a program is lowered to a stream, which the driver hands to the
//! kernel in software, whose array is the board. Times are those of the model, as everywhere.

use crate::amdxdna::{AmdxdnaDriver, AmdxdnaNode, DriverFault, FakeFaults, FakeKernel};
use crate::lower::{LaunchWords, WordsError, lower};
use crate::run::board_of;
use millrace_kernels::Cpu;
use millrace_npu::simulated::{RunStop, SimulatedDevice, Simulator, SimulatorJob};
use millrace_npu::{Completion, Container, DeviceInfo, ErrorPlace};
use millrace_xdna2_machine::device::{AcceptedProgram, Array};
use millrace_xdna2_machine::program::Flat;
use millrace_xdna2_machine::simulate::written_slots;
use millrace_xdna2_machine::{Machine, Profile, Program};
use millrace_xdna2_words::board::{BoardCounters, BoardError, BoardOptions};

/// A virtual NPU2 that executes words.
pub type WordsDevice = SimulatedDevice<WordsArray>;

/// The array of an NPU2 behind the driver.
pub struct WordsArray {
    array: Array,
}

/// A verified program, with its words.
pub struct WordsProgram {
    accepted: AcceptedProgram,
    /// Its launches' words, or why the lowering has none.
    launches: Result<Vec<LaunchWords>, String>,
}

/// A device of that machine that executes words, timed by that profile, computing on that CPU.
pub fn words_device(machine: Machine, profile: Profile, cpu: Cpu) -> WordsDevice {
    SimulatedDevice::new(WordsArray {
        array: Array::new(machine, profile, cpu),
    })
}

/// The words of a program's launches.
///
/// # Errors
/// As [`lower`].
pub fn program_words(program: &Program, machine: &Machine) -> Result<Vec<LaunchWords>, WordsError> {
    let lowered = lower(program, machine)?;
    Ok(lowered.into_iter().map(|launch| launch.words).collect())
}

/// Executes all launches of a program as words. The driver gives each to the kernel in software, whose array is the
/// board. Returns the board's counters.
///
/// # Errors
/// A program that has no words, or the fault that stopped a launch, with its name. Slots that are written are undefined then.
pub fn run_program(
    program: &Program,
    machine: &Machine,
    content: &mut [Vec<u8>],
    cpu: &Cpu,
) -> Result<BoardCounters, String> {
    let lowered = lower(program, machine).map_err(|error| error.to_string())?;
    let mut counters = BoardCounters::default();
    for launch in &lowered {
        let max_rounds = BoardOptions::default().max_rounds;
        let ran = run_launch((&launch.flat, &launch.words), content, cpu, max_rounds);
        let name = &launch.flat.launch.name;
        counters.add(ran.map_err(|reason| format!("launch `{name}`: {reason}"))?);
    }
    Ok(counters)
}

/// Runs a launch's words, and returns the board's counters.
fn run_launch(
    (flat, words): (&Flat<'_>, &LaunchWords),
    content: &mut [Vec<u8>],
    cpu: &Cpu,
    max_rounds: u64,
) -> Result<BoardCounters, String> {
    let options = BoardOptions {
        max_rounds,
        ..BoardOptions::default()
    };
    let board = board_of(flat, &words.cores, cpu, options);
    let board = board.map_err(|error: BoardError| error.to_string())?;
    let kernel = FakeKernel::new(board, FakeFaults::default());
    let said = |fault: DriverFault| fault.to_string();
    let mut driver = AmdxdnaDriver::open(kernel).map_err(said)?;
    let ran = driver.run(&words.stream, content);
    ran.map_err(|fault| match driver.node().explanation() {
        Some(explanation) => format!("{fault}: {explanation}"),
        None => fault.to_string(),
    })?;
    let counters = driver.node().counters();
    driver.close().map_err(said)?;
    Ok(counters)
}

impl Simulator for WordsArray {
    type Program = WordsProgram;

    fn info(&self) -> DeviceInfo {
        let info = self.array.info();
        DeviceInfo {
            name: format!("{}, words on the board", info.name),
            ..info
        }
    }

    fn timeout_ns(&self) -> u64 {
        self.array.timeout_ns()
    }

    fn accept(&self, container: &Container) -> Result<WordsProgram, String> {
        let accepted = self.array.accept(container)?;
        let launches = match program_words(accepted.program(), self.array.machine()) {
            Ok(launches) => Ok(launches),
            // The simulator of tiles runs it, and reports this reason as the cause of the substitution.
            Err(error @ WordsError::Unsupported { .. }) => Err(error.to_string()),
            Err(WordsError::Refused(reason)) => return Err(reason),
        };
        Ok(WordsProgram { accepted, launches })
    }

    fn substitute(&self, program: &WordsProgram) -> Option<String> {
        let reason = program.launches.as_ref().err()?;
        Some(format!("no words, so tiles are simulated: {reason}"))
    }

    fn run(
        &self,
        program: &WordsProgram,
        content: &mut [Vec<u8>],
        job: &SimulatorJob<'_>,
    ) -> Result<Completion, RunStop> {
        let Ok(launches) = &program.launches else {
            return self.array.run(&program.accepted, content, job);
        };
        let tiles = program.accepted.program();
        let stop = |launch: Option<&str>, reason: String| RunStop {
            place: ErrorPlace {
                launch: launch.map(str::to_owned),
                ..ErrorPlace::of(&tiles.name)
            },
            reason,
        };
        let flats = tiles.flatten();
        let flats = flats.map_err(|error| stop(None, error.to_string()))?;
        let mut rounds_left = job.stop_after();
        for (flat, words) in flats.iter().zip(launches) {
            let max_rounds = rounds_left.unwrap_or(BoardOptions::default().max_rounds);
            let ran = run_launch((flat, words), content, self.array.cpu(), max_rounds);
            let counters = ran.map_err(|reason| stop(Some(&flat.launch.name), reason))?;
            rounds_left = rounds_left.map(|left| left.saturating_sub(counters.rounds));
            let is_written = written_slots(flat, content.len());
            let written: Vec<usize> = (0..content.len()).filter(|&at| is_written[at]).collect();
            job.wrote(&written, content);
        }
        Ok(self.array.completion(&program.accepted))
    }
}
