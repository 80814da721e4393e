//! The board: designs of DMA alone, written by hand, and faults that it refuses.

mod faults;
mod moves;
mod probe;
mod scratchpad;

use millrace_xdna2_words::WordField as F;
use millrace_xdna2_words::board::{Board, BoardCounters, BoardError, BoardOptions};
use millrace_xdna2_words::port::{Bundle, SwitchPort, port};
use millrace_xdna2_words::tile::Direction;
use millrace_xdna2_words::writer::{ChannelAt, StreamWriter, TaskPush};
use millrace_xdna2_words::{Tile, TxnStream};

fn tile(col: u8, row: u8) -> Tile {
    Tile { col, row }
}

fn at(tile: Tile, direction: Direction, number: u8) -> ChannelAt {
    ChannelAt {
        tile,
        direction,
        number,
    }
}

fn south(index: u8) -> SwitchPort {
    port(Bundle::South, index)
}

fn north(index: u8) -> SwitchPort {
    port(Bundle::North, index)
}

fn dma(index: u8) -> SwitchPort {
    port(Bundle::Dma, index)
}

fn once(descriptor: u8) -> TaskPush {
    TaskPush {
        descriptor,
        executions: 1,
        token: false,
    }
}

fn awaited(descriptor: u8) -> TaskPush {
    TaskPush {
        token: true,
        ..once(descriptor)
    }
}

/// Fields of a memory descriptor between an `empty` and a `full` lock of the same tile.
fn between(acquire: u64, release: u64) -> [(F, u64); 6] {
    [
        (F::Valid, 1),
        (F::AcquireEnable, 1),
        (F::AcquireId, acquire),
        (F::AcquireValue, 127),
        (F::ReleaseId, release),
        (F::ReleaseValue, 1),
    ]
}

/// The first word of a memory tile's own memory, as its descriptors name it.
const OWN: u64 = 0x20000;

/// Parameters that a test may change.
struct Design {
    length: u64,
    copies: u64,
    out: Vec<(F, u64)>,
}

impl Default for Design {
    fn default() -> Design {
        Design {
            length: 64,
            copies: 2,
            out: Vec::new(),
        }
    }
}

/// Argument 0 through a memory tile to argument 1, in `copies` blocks of `length` words.
fn copy(design: &Design) -> TxnStream {
    let mut w = StreamWriter::new(1);
    let (shim, memory) = (tile(0, 0), tile(0, 1));
    w.circuit(shim, south(3), north(0)).unwrap();
    w.circuit(memory, south(0), dma(0)).unwrap();
    w.circuit(memory, dma(1), south(1)).unwrap();
    w.circuit(shim, north(1), south(2)).unwrap();
    w.token_route(0).unwrap();
    w.switches().unwrap();
    let [reads, fills] = [at(shim, Direction::Mm2s, 0), at(memory, Direction::S2mm, 0)];
    let [drains, writes] = [at(memory, Direction::Mm2s, 1), at(shim, Direction::S2mm, 0)];
    for channel in [reads, fills, drains, writes] {
        w.open(channel).unwrap();
    }
    let (length, copies) = (design.length, design.copies);
    w.lock(memory, 0, copies).unwrap();
    w.lock(memory, 1, 0).unwrap();
    // Lock ids of a memory tile's own begin at 64.
    for copy in 0..copies {
        for (first, locks) in [(0, between(64, 65)), (24, between(65, 64))] {
            let mut fields = vec![(F::Length, length), (F::Base, OWN + copy * length)];
            fields.extend(locks);
            fields.extend([(F::UseNext, 1), (F::Next, first + (copy + 1) % copies)]);
            if first == 24 {
                fields.extend(&design.out);
            }
            w.descriptor(memory, (first + copy) as u8, &fields).unwrap();
        }
    }
    w.push(fills, once(0)).unwrap();
    w.push(drains, once(24)).unwrap();
    let shim_fields = [
        (F::Length, length * copies),
        (F::Valid, 1),
        (F::Burst, 3),
        (F::AxCache, 2),
    ];
    for (number, argument) in [(0, 0), (1, 1)] {
        w.descriptor(shim, number, &shim_fields).unwrap();
        w.patch(shim, number, argument, 0).unwrap();
    }
    w.push(writes, awaited(1)).unwrap();
    w.push(reads, awaited(0)).unwrap();
    w.await_token(writes);
    w.await_token(reads);
    w.quieten().unwrap();
    w.finish()
}

fn words(n: u64) -> Vec<u8> {
    (0..n as u32)
        .flat_map(|i| (i * 7 + 1).to_le_bytes())
        .collect()
}

fn run(
    stream: &TxnStream,
    seed: u64,
    arguments: &mut [Vec<u8>],
) -> Result<BoardCounters, BoardError> {
    let options = BoardOptions {
        seed,
        max_rounds: 100_000,
        ..BoardOptions::default()
    };
    Board::new(options).run(&stream.encode(), arguments)
}

/// The error of a stream of two arguments of 128 words.
fn error(stream: &TxnStream) -> String {
    let mut arguments = [words(128), vec![0; 512]];
    run(stream, 1, &mut arguments).unwrap_err().to_string()
}
