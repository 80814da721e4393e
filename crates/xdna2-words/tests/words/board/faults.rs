//! Faults that the board refuses, and its messages when nothing moves.

use super::*;
use millrace_xdna2_words::TxnOperation;
use millrace_xdna2_words::register::{self, BlockKind};

/// The copy with one operation changed: the first that `pick` takes.
fn changed(mut pick: impl FnMut(&mut TxnOperation) -> bool) -> TxnStream {
    let mut stream = copy(&Design::default());
    assert!(
        stream
            .operations
            .iter_mut()
            .any(|op| pick(&mut op.operation))
    );
    stream
}

/// The copy without the first operation on a register.
fn without(tile: Tile, kind: BlockKind, number: u32) -> TxnStream {
    let at = tile.address(register::offset(tile.kind(), kind, number).unwrap());
    let mut stream = copy(&Design::default());
    let found = stream.operations.iter().position(|op| match &op.operation {
        TxnOperation::Write { address, .. } => *address == u64::from(at),
        TxnOperation::BlockWrite { address, .. } => *address == at,
        TxnOperation::Patch { register, .. } => *register == u64::from(at) + 4,
        _ => false,
    });
    stream.operations.remove(found.unwrap());
    stream
}

/// A register's value replaced.
fn with(tile: Tile, kind: BlockKind, number: u32, new: u32) -> TxnStream {
    let at = tile.address(register::offset(tile.kind(), kind, number).unwrap());
    changed(|op| match op {
        TxnOperation::Write { address, value } if *address == u64::from(at) => {
            *value = new;
            true
        }
        _ => false,
    })
}

fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{text}\nhas no: {part}");
}

#[test]
fn what_was_not_set_is_not_relied_on() {
    let (shim, memory) = (tile(0, 0), tile(0, 1));
    for (stream, part) in [
        (
            without(memory, BlockKind::Lock, 1),
            "lock 1 of memory (0, 1) is used and was not set",
        ),
        (
            without(memory, BlockKind::Descriptor, 1),
            "descriptor 1 is used and was not set",
        ),
        (
            without(memory, BlockKind::Master, 0),
            "master DMA 0 of memory (0, 1) was not set",
        ),
        (
            without(memory, BlockKind::Control(Direction::S2mm), 0),
            "the channel was not reset",
        ),
        (without(shim, BlockKind::Mux, 0), "the mux was not set"),
        (
            without(shim, BlockKind::Demux, 0),
            "the demux of shim (0, 0) was not set",
        ),
        (
            without(shim, BlockKind::Control(Direction::S2mm), 0),
            "the channel's control was not set",
        ),
    ] {
        assert_contains(&error(&stream).replace("Dma", "DMA"), part);
    }
}

#[test]
fn what_is_not_documented_is_not_run() {
    let memory = tile(0, 1);
    let field = |field, value| {
        copy(&Design {
            out: vec![(field, value)],
            ..Design::default()
        })
    };
    for (stream, part) in [
        (
            field(F::OutOfOrderId, 3),
            "out_of_order_id of 3: not documented",
        ),
        (field(F::Compress, 1), "compress of 1: not documented"),
        (
            field(F::AcquireValue, 1),
            "what waiting for equality leaves: not documented",
        ),
        (
            field(F::D0PadAfter, 1),
            "padding in dimension 0, which has no wrap: not documented",
        ),
        (
            with(memory, BlockKind::Control(Direction::S2mm), 0, 8),
            "receiving out of order: not documented",
        ),
    ] {
        assert_contains(&error(&stream), part);
    }
    let op = TxnOperation::Preempt { level: 1 };
    let mut stream = copy(&Design::default());
    stream.operations.insert(0, op.into());
    assert_contains(
        &error(&stream),
        "operation 0 (preempt level 1): what it does to the array: not documented",
    );
}

#[test]
fn what_the_hardware_would_do_wrong_is_named() {
    let (shim, memory) = (tile(0, 0), tile(0, 1));
    let field = |field, value| {
        copy(&Design {
            out: vec![(field, value)],
            ..Design::default()
        })
    };
    for (stream, part) in [
        (
            field(F::Valid, 0),
            "descriptor 24: the descriptor is not valid",
        ),
        (field(F::ReleaseValue, 63), "it holds 0 to 63"),
        (field(F::ReleaseValue, 127), "would be -1; it holds 0 to 63"),
        (
            field(F::Next, 3),
            "descriptor 3 is none that the channel reaches",
        ),
        (field(F::Base, 0x6_0000), "no memory tile"),
        (
            field(F::D1Step, 5),
            "a word without effect: dimension 1 is never reached",
        ),
        (
            field(F::TlastSuppress, 1),
            "tlast_suppress is set and not used",
        ),
        (
            without(shim, BlockKind::Descriptor, 1),
            "a patch before the descriptor was written",
        ),
        (
            with(shim, BlockKind::Queue(Direction::Mm2s), 0, 1 << 31 | 5),
            "descriptor 5 is used and was not set",
        ),
        (
            with(shim, BlockKind::Demux, 0, 0),
            "leads to no DMA channel",
        ),
        (
            with(shim, BlockKind::Demux, 0, 3 << 4),
            "port2 of 3: not documented",
        ),
        (
            with(memory, BlockKind::Queue(Direction::Mm2s), 1, 1),
            "descriptor 1 is none that the channel reaches",
        ),
    ] {
        assert_contains(&error(&stream), part);
    }
}

#[test]
fn a_fifth_task_is_refused() {
    let memory = tile(0, 1);
    let fills = at(memory, Direction::S2mm, 0);
    let mut w = StreamWriter::new(1);
    w.open(fills).unwrap();
    w.lock(memory, 0, 0).unwrap();
    let waits = [(F::Length, 1), (F::Base, OWN)]
        .into_iter()
        .chain(between(64, 64));
    w.descriptor(memory, 0, &waits.collect::<Vec<_>>()).unwrap();
    for _ in 0..5 {
        w.push(fills, once(0)).unwrap();
    }
    assert_contains(
        &error(&w.finish()),
        "the queue holds 4 tasks, a further one is lost",
    );
}

#[test]
fn who_waits_for_what_is_told() {
    let memory = tile(0, 1);
    // The lock of empty blocks begins at 1: the second fill is never allowed.
    let text = error(&with(memory, BlockKind::Lock, 0, 0));
    assert_contains(&text, "nothing moves: firmware waits at operation");
    assert_contains(
        &text,
        "sync a token of S2MM 0 of columns 0 to 0, rows 0 to 0",
    );
    assert_contains(
        &text,
        "memory (0, 1) S2MM 0, descriptor 0 waits for 1 of lock 0 of memory (0, 1), which is 0",
    );
    assert_contains(
        &text,
        "shim (0, 0) MM2S 0, descriptor 0 waits for room at memory (0, 1) S2MM 0 (8 of 128 words sent)",
    );
    assert_contains(
        &text,
        "shim (0, 0) S2MM 0, descriptor 1 waits for words (0 of 128 came)",
    );
}

#[test]
fn locks_that_keep_nobody_apart_are_a_race() {
    let memory = tile(0, 1);
    // Fills may be a block ahead of the free ones.
    let stream = with(memory, BlockKind::Lock, 0, 3);
    let mut n_races = 0;
    for seed in 0..20 {
        let mut arguments = [words(128), vec![0; 512]];
        // Two blocks are all there is, so nothing happens here; the next has three.
        run(&stream, seed, &mut arguments).unwrap();
    }
    let design = Design {
        length: 40,
        copies: 1,
        ..Design::default()
    };
    let mut stream = copy(&design);
    for op in &mut stream.operations {
        match &mut op.operation {
            TxnOperation::Write { address, value }
                if *address == u64::from(memory.address(0xC0000)) =>
            {
                *value = 2
            }
            // Both shim tasks move two blocks.
            TxnOperation::BlockWrite { address, data }
                if *address >> 20 == 0 && data.len() == 8 =>
            {
                data[0] = 80
            }
            _ => {}
        }
    }
    for seed in 0..20 {
        let mut arguments = [words(80), vec![0; 320]];
        match run(&stream, seed, &mut arguments) {
            Err(BoardError::Race { place, problem }) => {
                n_races += 1;
                assert_contains(&place, "memory (0, 1)");
                assert_contains(&problem, "touches word");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => {}
        }
    }
    assert!(n_races > 10, "{n_races} of 20");
}

#[test]
fn a_stream_must_leave_the_array_quiet() {
    let mut stream = copy(&Design::default());
    while !matches!(
        stream.operations.pop().unwrap().operation,
        TxnOperation::Sync { .. }
    ) {}
    let text = error(&stream);
    assert_contains(&text, "the stream has ended, and");
    assert_contains(&text, "memory (0, 1) S2MM 0 has work");
    let reads = "tokens of shim (0, 0) MM2S 0 were not awaited";
    assert!(
        text.contains(reads) || text.contains("shim (0, 0) MM2S 0 has work"),
        "{text}"
    );
    // State that is written while it is in use.
    let memory = tile(0, 1);
    for (kind, number, value, part) in [
        (
            BlockKind::Lock,
            0,
            1,
            "a lock is written while the tile is at work",
        ),
        (
            BlockKind::Descriptor,
            1,
            1,
            "it is written while a channel is to execute it",
        ),
        (
            BlockKind::Control(Direction::Mm2s),
            1,
            0,
            "the control of a channel at work is written",
        ),
        (
            BlockKind::Status(Direction::Mm2s),
            1,
            0,
            "what writing it does: not documented",
        ),
        (BlockKind::CoreControl, 0, 1, ""),
    ] {
        let mut stream = copy(&Design::default());
        let sync = stream
            .operations
            .iter()
            .position(|op| matches!(op.operation, TxnOperation::Sync { .. }));
        let tile = if part.is_empty() { tile(0, 2) } else { memory };
        let address = tile
            .address(register::offset(tile.kind(), kind, number).unwrap())
            .into();
        let part = if part.is_empty() {
            "the core is started and was not reset"
        } else {
            part
        };
        stream
            .operations
            .insert(sync.unwrap(), TxnOperation::Write { address, value }.into());
        assert_contains(&error(&stream), part);
    }
}
