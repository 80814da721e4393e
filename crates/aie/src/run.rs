//! A design on the board.

mod difference;
mod equality;
mod outputs;
mod shown;
mod slow;
mod stage;
mod tried;

use crate::core::{CoreLog, CoreRun};
use crate::design::Design;
use crate::ring::{Parties, ring};
use crate::syntax::SyntaxError;
use equality::either;
use millrace_xdna2_machine::Profile;
use millrace_xdna2_words::board::{
    Board, BoardCounters, BoardError, BoardEvent, BoardOptions, EqualAcquire, SlowActor,
    UnsetMemory,
};
use millrace_xdna2_words::writer::ChannelAt;
use outputs::{outputs, used};
use stage::{DesignStage, ProgramNotes, stages};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tried::TriedOrders;

/// How a design is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// Orders of the actors that are tried at random.
    pub orders: u64,
    /// Largest number of additional orders in which one party moves only when no other can: the sequence, all cores,
    /// all DMA, each core, each channel.
    pub slow_orders: usize,
    /// Instructions that a core may take.
    pub max_instructions: u64,
    /// Rounds of all actors, at most.
    pub max_rounds: u64,
    /// Whether elements of an argument may be in any order, as after streams that merge.
    pub any_order: bool,
    /// Content of tiles' memories that nothing has set.
    pub unset: UnsetMemory,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            orders: 3,
            slow_orders: 24,
            max_instructions: 1 << 28,
            max_rounds: 1 << 24,
            any_order: false,
            unset: UnsetMemory::Noise,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All waits were met and all that shims write is written, in every order of actors that was tried.
    Pass,
    /// The same, but packet streams went by routes that the text lacks. With another router's arbiters the design may
    /// hang.
    PassOnOwnRoutes,
    /// Nobody could move, and a wait was not met.
    Hang,
    /// The output depends on memory that nothing has set, and on nothing else. No text says whether the host reads that
    /// memory, or which values a load leaves there.
    CannotTell,
    /// Something the hardware or the design does not allow, or bytes that depend on the order.
    Fail,
}

impl Verdict {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::PassOnOwnRoutes => "PASS on routes of ours",
            Verdict::Hang => "HANG",
            Verdict::CannotTell => "CANNOT TELL",
            Verdict::Fail => "FAIL",
        }
    }

    /// Whether nothing went wrong, be it on the text's routes or on ours.
    pub fn is_pass(self) -> bool {
        matches!(self, Verdict::Pass | Verdict::PassOnOwnRoutes)
    }
}

/// An argument that the sequence writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputBytes {
    /// Its number.
    pub argument: usize,
    /// Its name in the text.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Its first elements as text.
    pub shown: String,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// How it ended.
    pub verdict: Verdict,
    /// Description of the fault.
    pub problem: Option<String>,
    /// Orders of actors in which nothing went wrong.
    pub orders: Vec<String>,
    /// Orders that were known and not tried.
    pub n_untried: usize,
    /// The order in which something went wrong.
    pub failing_order: Option<String>,
    /// For a hang: each party that waits, and the party that it waits for, in turn.
    pub ring: Vec<String>,
    /// For a hang: all parties that wait.
    pub waits: Vec<String>,
    /// Parts that were still or unfinished when all waits were met: rings of descriptors, cores that wait on.
    pub left: Vec<String>,
    /// Counters of the last run.
    pub counters: BoardCounters,
    /// Arguments that were written; empty unless it passed.
    pub outputs: Vec<OutputBytes>,
    /// Arguments that the sequence reads.
    pub reads: Vec<usize>,
    /// Kernels that compute nothing here: values that depend on them have no meaning.
    pub unknown_kernels: Vec<String>,
    /// Assumptions about names.
    pub notes: Vec<String>,
}

/// Runs a design with bytes of its arguments, in several orders of its actors.
///
/// # Errors
/// A part that cannot be lowered, arguments that do not fit, or a design without a sequence, with its place.
pub fn run(
    design: &Design,
    arguments: &[Vec<u8>],
    options: RunOptions,
) -> Result<RunReport, SyntaxError> {
    check_arguments(design, arguments)?;
    let (stages, notes) = stages(design)?;
    let mut tried = TriedOrders::new(design, &stages, &notes);
    for seed in 0..options.orders.max(1) {
        let run = SeededRun {
            arguments,
            seed,
            starved: SlowActor::Nobody,
            equal: EqualAcquire::Subtracts,
            options,
            profile: None,
        };
        let name = format!("at random, seed {seed}");
        if let Some(report) = tried.one(run, name)? {
            return Ok(report);
        }
    }
    let (slow, n_untried) = slow::orders(&stages, tried.words(), options.slow_orders);
    for starved in slow {
        let run = SeededRun {
            arguments,
            seed: options.orders,
            starved,
            equal: EqualAcquire::Subtracts,
            options,
            profile: None,
        };
        if let Some(report) = tried.one(run, starved.name())? {
            return Ok(report);
        }
    }
    tried.passed(n_untried)
}

/// There is something to run, and the bytes are those of the arguments.
fn check_arguments(design: &Design, arguments: &[Vec<u8>]) -> Result<(), SyntaxError> {
    let fail = |problem: String| Err(SyntaxError::new(Default::default(), problem));
    if design.sequence.is_empty() && design.stages.is_empty() {
        return fail("the design has no sequence, so there is nothing to run".to_owned());
    }
    for (i, (name, of, bytes)) in design.arguments().enumerate() {
        let given = arguments.get(i).map_or(0, Vec::len) as u64;
        if given != bytes {
            return fail(format!(
                "argument {i} (%{name}: {of}) has {bytes} bytes, {given} were given"
            ));
        }
    }
    Ok(())
}

/// Events that are kept of a run.
const MOST_EVENTS: usize = 1 << 23;

/// Runs a design in one order of its actors. Returns the events of a run that passes, for the profile's cycles.
///
/// # Errors
/// As [`run`]; more events than are kept.
pub(crate) fn recorded(
    design: &Design,
    arguments: &[Vec<u8>],
    options: RunOptions,
    profile: &Rc<Profile>,
) -> Result<(RunReport, Option<Vec<BoardEvent>>), SyntaxError> {
    check_arguments(design, arguments)?;
    let (stages, notes) = stages(design)?;
    let run = SeededRun {
        arguments,
        seed: 0,
        starved: SlowActor::Nobody,
        equal: EqualAcquire::Subtracts,
        options,
        profile: Some(profile),
    };
    let (mut report, _, events) = either(design, &stages, &notes, run)?;
    if report.verdict != Verdict::Pass {
        return Ok((report, None));
    }
    report.orders.push("at random, seed 0".to_owned());
    if design.has_packets_on_own_routes() {
        report.verdict = Verdict::PassOnOwnRoutes;
    }
    let events = events.ok_or_else(|| {
        let problem = format!("the run has more than {MOST_EVENTS} events, too many for a time");
        SyntaxError::new(Default::default(), problem)
    })?;
    Ok((report, Some(events)))
}

/// A run in the order of a seed.
#[derive(Clone, Copy)]
struct SeededRun<'a> {
    arguments: &'a [Vec<u8>],
    seed: u64,
    starved: SlowActor,
    /// Value that acquires by equality leave.
    equal: EqualAcquire,
    options: RunOptions,
    /// Profile with the cycles of cores, if events are wanted.
    profile: Option<&'a Rc<Profile>>,
}

/// The report, the arguments after the run, and its events, if wanted.
type RunOutcome = (RunReport, Vec<Vec<u8>>, Option<Vec<BoardEvent>>);

/// One order of actors with one reading of acquires by equality; also returns whether it came to any.
fn once(
    design: &Design,
    stages: &[DesignStage<'_>],
    notes: &ProgramNotes,
    run: SeededRun<'_>,
) -> Result<(RunOutcome, bool), SyntaxError> {
    let mut after = run.arguments.to_vec();
    let mut report = RunReport {
        verdict: Verdict::Pass,
        problem: None,
        orders: Vec::new(),
        n_untried: 0,
        failing_order: None,
        ring: Vec::new(),
        waits: Vec::new(),
        left: Vec::new(),
        counters: BoardCounters::default(),
        outputs: Vec::new(),
        reads: used(stages, |lowered| &lowered.reads)
            .into_iter()
            .filter(|&argument| !design.is_given(argument))
            .collect(),
        unknown_kernels: notes.unknown.clone(),
        notes: notes.notes.clone(),
    };
    let (mut events, mut met) = (None, false);
    let mut before: Option<Board<'_>> = None;
    for stage in stages {
        let mut board = Board::new(BoardOptions {
            seed: run.seed,
            strict: false,
            max_rounds: run.options.max_rounds,
            starved: run.starved,
            settle: stage.lowered.settle,
            equal: run.equal,
            unset: run.options.unset,
            end: Some(stage.lowered.end),
        });
        board.give_scratchpad(stage.design.scratchpad_words());
        if let Some(before) = &before {
            board.keep_memories_of(before);
        }
        of_stage(stage, &mut board, (run, &mut after[..]), &mut report)?;
        met |= board.met_equal_acquire();
        if report.verdict != Verdict::Pass {
            break;
        }
        events = run.profile.and_then(|_| board.take_events());
        before = Some(board);
    }
    if report.verdict == Verdict::Pass {
        report.outputs = outputs(design, stages, &after);
    }
    Ok(((report, after, events), met))
}

/// Runs a configuration on a board.
fn of_stage<'b>(
    stage: &DesignStage<'_>,
    board: &mut Board<'b>,
    (run, arguments): (SeededRun<'_>, &mut [Vec<u8>]),
    report: &mut RunReport,
) -> Result<(), SyntaxError> {
    if run.profile.is_some() {
        board.record(MOST_EVENTS);
    }
    let mut logs = BTreeMap::new();
    for (tile, code) in &stage.codes {
        let log = Rc::new(RefCell::new(CoreLog::default()));
        logs.insert(*tile, Rc::clone(&log));
        let mut core = CoreRun::new(Rc::clone(code), log, run.options.max_instructions);
        if let Some(profile) = run.profile {
            core.spend_cycles_of(Rc::clone(profile));
        }
        board.install(*tile, Box::new(core));
    }
    let mut own = stage.arguments(arguments);
    let ended = board.run_stream(&stage.lowered.stream, &mut own);
    stage.put(&own, arguments);
    report.counters.add(board.counters());
    let late = stage.late(board);
    for note in unaddressed(board) {
        if !report.notes.contains(&note) {
            report.notes.push(note);
        }
    }
    match ended {
        Ok(_) | Err(BoardError::Unfinished { .. }) if late.is_some() => {
            report.verdict = Verdict::Fail;
            report.problem = late;
        }
        Ok(_) => {}
        // All waits were met; rings of descriptors and loops of cores go on for ever.
        Err(BoardError::Unfinished { left }) => report.left = left,
        Err(BoardError::Standstill { .. }) => {
            report.verdict = Verdict::Hang;
            let mut problem = "nobody can move, and the sequence waits".to_owned();
            if stage.design.has_packets_on_own_routes() {
                problem += "; packet streams go by routes that the text does not give, and may share arbiters here that they do not share there";
            }
            report.problem = Some(problem);
            let codes = stage.codes.iter().map(|(tile, code)| (*tile, &**code));
            let logs = logs.iter().map(|(tile, log)| (*tile, log.borrow().clone()));
            let parties = Parties {
                design: stage.design,
                places: &stage.lowered.places,
                codes: codes.collect(),
                logs: logs.collect(),
            };
            (report.ring, report.waits) = ring(&parties, &board.waits());
        }
        Err(error) => {
            if let Some(refusal) = stage.refusal(&error) {
                return Err(refusal);
            }
            report.verdict = Verdict::Fail;
            report.problem = Some(stage.failure(&error, board.raced()));
        }
    }
    Ok(())
}

/// A channel for traces may have an address that nobody patches: nothing comes here, so nothing is written there.
fn unaddressed(board: &Board<'_>) -> Vec<String> {
    let note = |(at, descriptor, address): (ChannelAt, u8, u64)| {
        let (tile, number) = (at.tile, at.number);
        format!(
            "{tile} S2MM {number}, descriptor {descriptor}: its address {address:#x} lies in no argument; no word came, and hardware would write traces there"
        )
    };
    board.unaddressed().into_iter().map(note).collect()
}
