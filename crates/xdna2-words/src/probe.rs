//! Programs of DMA alone: the first thing that an NPU2 could run from here, as no core has any code.
//!
//! Each moves one argument to another in a way that real programs use, and has its expected output. They need no
//! compiler. Their results answer the questions of [`ASSUMPTIONS`](crate::board::ASSUMPTIONS).

mod draft;

use crate::field::WordField as F;
use crate::port::{Bundle, port};
use crate::tile::{Direction, Tile};
use crate::txn::TxnStream;
use crate::writer::{ChannelAt, WriterError};
use draft::{DescriptorFields, ProbeDraft, north, south};

/// A program with its data.
#[derive(Clone, Debug)]
pub struct ProbeDesign {
    /// Its name.
    pub name: &'static str,
    /// Summary of its work.
    pub summary: &'static str,
    /// The stream for firmware. Argument 0 is read, argument 1 is written.
    pub stream: TxnStream,
    /// Content of argument 0.
    pub input: Vec<u8>,
    /// Expected content of argument 1 at the end.
    pub expected: Vec<u8>,
}

/// Words of a block in L2.
const BLOCK: u64 = 512;
/// The first word of a memory tile's own memory in its descriptors.
const OWN: u64 = 0x20000;
/// The first lock of a memory tile's own in its descriptors.
const LOCKS: u64 = 64;
/// The first descriptor of odd channels.
const ODD: u8 = 24;

/// All programs, the plainest first.
///
/// # Errors
/// A field that is too small for its value; a test rules this out.
pub fn designs() -> Result<Vec<ProbeDesign>, WriterError> {
    Ok(vec![
        copy("copy", "one block through one memory tile", 1, 1)?,
        copy(
            "stream",
            "64 blocks through two of L2, one task a direction",
            1,
            64,
        )?,
        copy("columns-2", "the same in two columns at once", 2, 64)?,
        copy("columns-3", "in three", 3, 64)?,
        copy("columns-4", "in four", 4, 64)?,
        copy("columns-5", "in five", 5, 64)?,
        copy("columns-6", "in six", 6, 64)?,
        copy("columns-7", "in seven", 7, 64)?,
        copy("columns", "in all eight", 8, 64)?,
        copy("more-columns", "twice as many blocks", 8, 128)?,
        sample(
            "reads",
            "eight columns read, and write every eighth block",
            192,
        )?,
        sample("more-reads", "a third more blocks", 256)?,
        transpose()?,
        join()?,
        distribute()?,
        repeat()?,
        through_core()?,
        queue()?,
    ])
}

fn tile(col: u8, row: u8) -> Tile {
    Tile { col, row }
}

fn channel(col: u8, row: u8, direction: Direction, number: u8) -> ChannelAt {
    ChannelAt {
        tile: tile(col, row),
        direction,
        number,
    }
}

/// Words 1, 2, 3, … as bytes.
fn numbers(n: u64) -> Vec<u8> {
    (1..=n as u32).flat_map(u32::to_le_bytes).collect()
}

/// The words of those positions of [`numbers`].
fn picked(positions: impl Iterator<Item = u64>) -> Vec<u8> {
    positions
        .flat_map(|at| (at as u32 + 1).to_le_bytes())
        .collect()
}

/// Acquire and release of so much.
fn locks(acquire: u64, release: u64, amount: u64) -> [(F, u64); 6] {
    [
        (F::Valid, 1),
        (F::AcquireEnable, 1),
        (F::AcquireId, acquire),
        (F::AcquireValue, (128 - amount) & 127),
        (F::ReleaseId, release),
        (F::ReleaseValue, amount),
    ]
}

/// Fills and drains of a stage of two blocks: linear, except for the fields `out` that a drain adds.
fn double(
    draft: &mut ProbeDraft,
    col: u8,
    channels: [ChannelAt; 2],
    out: &DescriptorFields,
) -> Result<(), WriterError> {
    let memory = tile(col, 1);
    draft.writer.lock(memory, 0, 2)?;
    draft.writer.lock(memory, 1, 0)?;
    let block = |copy: u64, way: [(F, u64); 6], more: &DescriptorFields| -> DescriptorFields {
        let head = [(F::Length, BLOCK), (F::Base, OWN + copy * BLOCK)];
        head.into_iter()
            .chain(way)
            .chain(more.iter().copied())
            .collect()
    };
    let fill = locks(LOCKS, LOCKS + 1, 1);
    let drain = locks(LOCKS + 1, LOCKS, 1);
    let none = Vec::new();
    draft.ring(
        channels[0],
        0,
        (0..2).map(|copy| block(copy, fill, &none)).collect(),
    )?;
    draft.ring(
        channels[1],
        ODD,
        (0..2).map(|copy| block(copy, drain, out)).collect(),
    )
}

/// Channels of a column whose data goes through one stage: read, fill, drain, write.
fn four(col: u8) -> [ChannelAt; 4] {
    [
        channel(col, 0, Direction::Mm2s, 0),
        channel(col, 1, Direction::S2mm, 0),
        channel(col, 1, Direction::Mm2s, 1),
        channel(col, 0, Direction::S2mm, 0),
    ]
}

fn copy(
    name: &'static str,
    summary: &'static str,
    columns: u8,
    blocks: u64,
) -> Result<ProbeDesign, WriterError> {
    let mut draft = ProbeDraft::new(columns);
    let share = blocks * BLOCK;
    for col in 0..columns {
        draft.down(col, 0, 0)?;
        draft.up(col, 1, 0)?;
    }
    let channels: Vec<ChannelAt> = (0..columns).flat_map(four).collect();
    draft.configure(columns, &channels)?;
    for col in 0..columns {
        let [_, fill, drain, _] = four(col);
        double(&mut draft, col, [fill, drain], &Vec::new())?;
    }
    for col in 0..columns {
        let [read, _, _, write] = four(col);
        let at_byte = u64::from(col) * share * 4;
        draft.task(write, 0, (1, at_byte), share)?;
        draft.task(read, 1, (0, at_byte), share)?;
    }
    let data = numbers(share * u64::from(columns));
    draft.finish(name, summary, data.clone(), data)
}

/// Eight columns read so many blocks each, of which every eighth leaves L2: nearly all of DDR's work is reading.
fn sample(
    name: &'static str,
    summary: &'static str,
    blocks: u64,
) -> Result<ProbeDesign, WriterError> {
    const COLUMNS: u8 = 8;
    const OF: u64 = 8;
    let mut draft = ProbeDraft::new(COLUMNS);
    for col in 0..COLUMNS {
        draft.down(col, 0, 0)?;
        draft.up(col, 1, 0)?;
    }
    let channels: Vec<ChannelAt> = (0..COLUMNS).flat_map(four).collect();
    draft.configure(COLUMNS, &channels)?;
    let at = |block: u64| vec![(F::Length, BLOCK), (F::Base, OWN + block * BLOCK)];
    let locked = |way: [(F, u64); 6]| [at(0), way.to_vec()].concat();
    for col in 0..COLUMNS {
        let [_, fill, drain, _] = four(col);
        draft.writer.lock(tile(col, 1), 0, 1)?;
        draft.writer.lock(tile(col, 1), 1, 0)?;
        // Unwanted blocks are overwritten by the next.
        let mut fills = vec![[at(1), vec![(F::Valid, 1)]].concat(); OF as usize - 1];
        fills.push(locked(locks(LOCKS, LOCKS + 1, 1)));
        draft.ring(fill, 0, fills)?;
        draft.ring(drain, ODD, vec![locked(locks(LOCKS + 1, LOCKS, 1))])?;
    }
    let (read_words, written_words) = (blocks * BLOCK, blocks / OF * BLOCK);
    for col in 0..COLUMNS {
        let [read, _, _, write] = four(col);
        let column = u64::from(col);
        draft.task(write, 0, (1, column * written_words * 4), written_words)?;
        draft.task(read, 1, (0, column * read_words * 4), read_words)?;
    }
    let n_written = written_words * u64::from(COLUMNS);
    let kept = (0..n_written).map(|i| (i / BLOCK * OF + OF - 1) * BLOCK + i % BLOCK);
    let input = numbers(read_words * u64::from(COLUMNS));
    draft.finish(name, summary, input, picked(kept))
}

fn transpose() -> Result<ProbeDesign, WriterError> {
    let mut draft = ProbeDraft::new(1);
    draft.down(0, 0, 0)?;
    draft.up(0, 1, 0)?;
    let [read, fill, drain, write] = four(0);
    draft.configure(1, &four(0))?;
    // 16 rows of 32 words, by columns.
    let out = vec![(F::D0Wrap, 16), (F::D0Step, 31), (F::D1Step, 0)];
    double(&mut draft, 0, [fill, drain], &out)?;
    draft.task(write, 0, (1, 0), 2 * BLOCK)?;
    draft.task(read, 1, (0, 0), 2 * BLOCK)?;
    let at = (0..2 * BLOCK).map(|i| i / BLOCK * BLOCK + i % 16 * 32 + i % BLOCK / 16);
    let summary = "blocks of 16 rows of 32 words leave L2 by columns";
    draft.finish("transpose", summary, numbers(2 * BLOCK), picked(at))
}

/// Two pairs of locks for one copy of either half of a block.
fn pairs(draft: &mut ProbeDraft) -> Result<(), WriterError> {
    (0..4u8).try_for_each(|lock| draft.writer.lock(tile(0, 1), lock, u64::from(1 - lock % 2)))
}

/// Two streams fill the halves of a block, one sends it.
fn join() -> Result<ProbeDesign, WriterError> {
    let mut draft = ProbeDraft::new(1);
    let half = BLOCK / 2;
    draft.down(0, 0, 0)?;
    draft.down(0, 1, 2)?;
    draft.up(0, 1, 0)?;
    let fills = [0, 2].map(|number| channel(0, 1, Direction::S2mm, number));
    let reads = [0, 1].map(|number| channel(0, 0, Direction::Mm2s, number));
    let [_, _, drain, write] = four(0);
    draft.configure(1, &[fills[0], fills[1], reads[0], reads[1], drain, write])?;
    pairs(&mut draft)?;
    let mut out = Vec::new();
    for (part, fill) in (0..2u8).zip(fills) {
        let [empty, full] = [2 * part, 2 * part + 1];
        let [empty, full] = [empty, full].map(|lock| LOCKS + u64::from(lock));
        let head = [(F::Length, half), (F::Base, OWN + u64::from(part) * half)];
        let with = |way: [(F, u64); 6]| head.into_iter().chain(way).collect::<DescriptorFields>();
        draft.ring(fill, part, vec![with(locks(empty, full, 1))])?;
        out.push(with(locks(full, empty, 1)));
    }
    draft.ring(drain, ODD, out)?;
    draft.task(write, 0, (1, 0), 2 * BLOCK)?;
    for (part, read) in (0..2u8).zip(reads) {
        draft.task(read, part + 1, (0, u64::from(part) * BLOCK * 4), BLOCK)?;
    }
    let at = (0..2 * BLOCK).map(|i| i % BLOCK / half * BLOCK + i / BLOCK * half + i % half);
    draft.finish(
        "join",
        "two streams meet in the halves of a block",
        numbers(2 * BLOCK),
        picked(at),
    )
}

/// One stream fills a block, two send its halves.
fn distribute() -> Result<ProbeDesign, WriterError> {
    let mut draft = ProbeDraft::new(1);
    let half = BLOCK / 2;
    draft.down(0, 0, 0)?;
    draft.up(0, 1, 0)?;
    draft.up(0, 3, 1)?;
    let drains = [1, 3].map(|number| channel(0, 1, Direction::Mm2s, number));
    let writes = [0, 1].map(|number| channel(0, 0, Direction::S2mm, number));
    let [read, fill, _, _] = four(0);
    draft.configure(1, &[read, fill, drains[0], drains[1], writes[0], writes[1]])?;
    pairs(&mut draft)?;
    let mut into = Vec::new();
    for (part, drain) in (0..2u8).zip(drains) {
        let [empty, full] = [2 * part, 2 * part + 1];
        let [empty, full] = [empty, full].map(|lock| LOCKS + u64::from(lock));
        let head = [(F::Length, half), (F::Base, OWN + u64::from(part) * half)];
        let with = |way: [(F, u64); 6]| head.into_iter().chain(way).collect::<DescriptorFields>();
        into.push(with(locks(empty, full, 1)));
        draft.ring(drain, ODD + part, vec![with(locks(full, empty, 1))])?;
    }
    draft.ring(fill, 0, into)?;
    for (part, write) in (0..2u8).zip(writes) {
        draft.task(write, part, (1, u64::from(part) * BLOCK * 4), BLOCK)?;
    }
    draft.task(read, 2, (0, 0), 2 * BLOCK)?;
    let at = (0..2 * BLOCK).map(|i| i % BLOCK / half * BLOCK + i / BLOCK * half + i % half);
    draft.finish(
        "distribute",
        "the halves of a block leave by two streams",
        numbers(2 * BLOCK),
        picked(at),
    )
}

/// A block stays and is sent three times.
fn repeat() -> Result<ProbeDesign, WriterError> {
    const TIMES: u64 = 3;
    let mut draft = ProbeDraft::new(1);
    draft.down(0, 0, 0)?;
    draft.up(0, 1, 0)?;
    let [read, fill, drain, write] = four(0);
    draft.configure(1, &four(0))?;
    draft.writer.lock(tile(0, 1), 0, TIMES)?;
    draft.writer.lock(tile(0, 1), 1, 0)?;
    let head = [(F::Length, BLOCK), (F::Base, OWN)];
    let with = |way: [(F, u64); 6]| head.into_iter().chain(way).collect::<DescriptorFields>();
    draft.ring(fill, 0, vec![with(locks(LOCKS, LOCKS + 1, TIMES))])?;
    draft.ring(drain, ODD, vec![with(locks(LOCKS + 1, LOCKS, 1))])?;
    draft.task(write, 0, (1, 0), 2 * TIMES * BLOCK)?;
    draft.task(read, 1, (0, 0), 2 * BLOCK)?;
    let at = (0..2 * TIMES * BLOCK).map(|i| i / (TIMES * BLOCK) * BLOCK + i % BLOCK);
    draft.finish(
        "repeat",
        "a block that stays is sent three times",
        numbers(2 * BLOCK),
        picked(at),
    )
}

/// Through the memory of a core that never runs.
fn through_core() -> Result<ProbeDesign, WriterError> {
    let mut draft = ProbeDraft::new(1);
    let [shim, memory, core] = [0, 1, 2].map(|row| tile(0, row));
    draft.writer.circuit(shim, south(3), north(0))?;
    draft.writer.circuit(memory, south(0), north(0))?;
    draft.writer.circuit(core, south(0), port(Bundle::Dma, 0))?;
    draft.writer.circuit(core, port(Bundle::Dma, 0), south(1))?;
    draft.writer.circuit(memory, north(1), south(1))?;
    draft.writer.circuit(shim, north(1), south(2))?;
    let [read, _, _, write] = four(0);
    let fill = channel(0, 2, Direction::S2mm, 0);
    let drain = channel(0, 2, Direction::Mm2s, 0);
    draft.configure(1, &[read, fill, drain, write])?;
    draft.writer.lock(core, 0, 2)?;
    draft.writer.lock(core, 1, 0)?;
    let block = |copy: u64, way: [(F, u64); 6]| -> DescriptorFields {
        let head = [(F::Length, BLOCK), (F::Base, 1024 + copy * BLOCK)];
        head.into_iter().chain(way).collect()
    };
    draft.ring(
        fill,
        0,
        (0..2).map(|copy| block(copy, locks(0, 1, 1))).collect(),
    )?;
    draft.ring(
        drain,
        2,
        (0..2).map(|copy| block(copy, locks(1, 0, 1))).collect(),
    )?;
    draft.task(write, 0, (1, 0), 8 * BLOCK)?;
    draft.task(read, 1, (0, 0), 8 * BLOCK)?;
    let data = numbers(8 * BLOCK);
    let summary = "through the L1 of a core that never runs";
    draft.finish("core", summary, data.clone(), data)
}

/// Many tasks a direction: queues full, tokens awaited, descriptors rewritten.
fn queue() -> Result<ProbeDesign, WriterError> {
    const TASKS: u64 = 48;
    let mut draft = ProbeDraft::new(1);
    draft.down(0, 0, 0)?;
    draft.up(0, 1, 0)?;
    let [read, fill, drain, write] = four(0);
    draft.configure(1, &four(0))?;
    double(&mut draft, 0, [fill, drain], &Vec::new())?;
    for task in 0..TASKS {
        // The oldest task of each channel is awaited before a fifth.
        if task >= 4 {
            for channel in [write, read] {
                draft.writer.await_token(channel);
            }
        }
        let number = (task % 4) as u8;
        // Blocks change places on their way.
        draft.task(write, number, (1, (TASKS - 1 - task) * BLOCK * 4), BLOCK)?;
        draft.task(read, 4 + number, (0, task * BLOCK * 4), BLOCK)?;
    }
    draft.awaited.truncate(8);
    let at = (0..TASKS * BLOCK).map(|i| (TASKS - 1 - i / BLOCK) * BLOCK + i % BLOCK);
    let summary = "48 tasks a direction, four in a queue at a time";
    draft.finish("queue", summary, numbers(TASKS * BLOCK), picked(at))
}
