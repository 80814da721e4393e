//! A program's launches on the board, one after the other.

use crate::core::{CoreImage, CoreRun};
use crate::lower::LoweredLaunch;
use millrace_kernels::Cpu;
use millrace_xdna2_machine::program::Flat;
use millrace_xdna2_machine::simulate::code::HerdCode;
use millrace_xdna2_words::board::{Board, BoardCounters, BoardError, BoardOptions};
use std::sync::Arc;

/// Why a launch did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("launch `{launch}`: {error}")]
pub struct RunError {
    /// The launch.
    pub launch: String,
    /// The error that stopped it.
    pub error: BoardError,
}

/// Executes the words of all launches on the slots' contents.
///
/// # Errors
/// The error that stopped the board; slots that are written are undefined then.
pub fn run(
    launches: &[LoweredLaunch<'_>],
    slots: &mut [Vec<u8>],
    cpu: &Cpu,
    options: BoardOptions,
) -> Result<Vec<BoardCounters>, RunError> {
    let run = |launch| run_words(launch, &launch.words.stream.encode(), slots, cpu, options);
    launches.iter().map(run).collect()
}

/// Executes words in place of a launch's own: with its cores' programs.
///
/// # Errors
/// As [`run`].
pub fn run_words(
    launch: &LoweredLaunch<'_>,
    words: &[u32],
    slots: &mut [Vec<u8>],
    cpu: &Cpu,
    options: BoardOptions,
) -> Result<BoardCounters, RunError> {
    let board = board_of(&launch.flat, &launch.words.cores, cpu, options);
    let ran = board.and_then(|mut board| board.run(words, slots));
    ran.map_err(|error| RunError {
        launch: launch.flat.launch.name.clone(),
        error,
    })
}

/// A board with the programs of a launch's cores.
///
/// # Errors
/// A core program that makes no sense.
pub fn board_of<'p>(
    flat: &'p Flat<'p>,
    cores: &'p [CoreImage],
    cpu: &'p Cpu,
    options: BoardOptions,
) -> Result<Board<'p>, BoardError> {
    let mut board = Board::new(options);
    let mut codes = Vec::new();
    for herd in &flat.launch.herds {
        let code = HerdCode::new(herd).map_err(|problem| {
            let place = herd.name.clone();
            BoardError::Fault { place, problem }
        })?;
        codes.push(Arc::new(code));
    }
    for (core, image) in cores.iter().enumerate() {
        let code = Arc::clone(&codes[flat.cores[core].herd]);
        let run = CoreRun::new(flat, core, image, code, cpu);
        board.install(image.tile, Box::new(run));
    }
    Ok(board)
}
