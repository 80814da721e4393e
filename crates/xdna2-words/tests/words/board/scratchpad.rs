//! Words of a host's scratchpad, added to addresses.

use super::*;
use millrace_xdna2_words::TxnOperation;
use millrace_xdna2_words::board::UnsetMemory;
use millrace_xdna2_words::register::{BlockKind, offset};
use millrace_xdna2_words::txn::ScratchpadFunction;

/// An update of two words of a memory tile.
fn update(entry: u8, function: ScratchpadFunction, number: u32) -> TxnOperation {
    TxnOperation::UpdateAddress {
        entry,
        function,
        number,
        register: tile(0, 1).address(0),
    }
}

/// A scratchpad of so many bytes.
fn create(size_bytes: u32) -> TxnOperation {
    TxnOperation::CreateScratchpad {
        usage: 0,
        size_bytes,
        address: 0,
    }
}

/// Runs operations, and checks that they leave two words as wanted. The error is the board's.
fn leaves(
    before: [u32; 2],
    host: &[u32],
    operations: &[TxnOperation],
    wanted: [u32; 2],
) -> Result<(), String> {
    let first = tile(0, 1).address(0);
    let mut stream = StreamWriter::new(1).finish();
    stream.push(TxnOperation::BlockWrite {
        address: first,
        data: before.to_vec(),
    });
    for operation in operations {
        stream.push(operation.clone());
    }
    // A poll of another value waits for ever.
    for (i, value) in wanted.into_iter().enumerate() {
        stream.push(TxnOperation::MaskPoll {
            address: u64::from(first) + 4 * i as u64,
            value,
            mask: u32::MAX,
            busy: false,
        });
    }
    let mut board = Board::new(BoardOptions {
        strict: false,
        max_rounds: 1000,
        ..BoardOptions::default()
    });
    board.give_scratchpad(host.to_vec());
    let ran = board.run(&stream.encode(), &mut []);
    ran.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn an_update_adds_to_48_bits_and_keeps_the_rest() {
    use ScratchpadFunction::{Add, Multiply, Subtract};
    let host = [5, 0xFFFF_FFF0, 12];
    for (before, operation, wanted) in [
        ([0, 0], update(0, Multiply, 4), [20, 0]),
        ([3, 0xABCD_0000], update(0, Add, 3), [8, 0xABCD_0000]),
        ([16, 7], update(1, Add, 0), [0, 8]),
        ([16, 0xFFFF_FFFF], update(1, Add, 0), [0, 0xFFFF_0000]),
        ([100, 0], update(2, Subtract, 4), [108, 0]),
    ] {
        let operations = [create(12), operation.clone()];
        let found = leaves(before, &host, &operations, wanted);
        assert_eq!(found, Ok(()), "{operation:?}");
    }
}

#[test]
fn what_no_source_says_of_a_scratchpad_is_refused() {
    use ScratchpadFunction::{Add, Multiply, Subtract};
    let host = [5, 0xFFFF_FFF0];
    let of_usage = TxnOperation::CreateScratchpad {
        usage: 1,
        size_bytes: 8,
        address: 0,
    };
    let plain = update(0, Add, 0);
    for (operations, problem) in [
        (vec![plain.clone()], "there is no scratchpad yet"),
        (vec![of_usage], "a scratchpad of usage 1"),
        (
            vec![create(6)],
            "a scratchpad of 6 bytes; it has whole words",
        ),
        (vec![create(132)], "a scratchpad of 132 bytes"),
        (vec![create(0)], "a scratchpad of 0 bytes"),
        (vec![create(12)], "3 words; the host's scratchpad has 2"),
        (vec![create(8), create(8)], "a second scratchpad"),
        (
            vec![create(4), update(1, Add, 0)],
            "word 1 of a scratchpad of 1 words",
        ),
        (
            vec![create(8), update(1, Multiply, 4)],
            "32 bits do not hold",
        ),
        (vec![create(8), update(1, Add, 16)], "32 bits do not hold"),
        (
            vec![create(8), update(0, Subtract, 6)],
            "32 bits do not hold",
        ),
    ] {
        let error = leaves([0, 0], &host, &operations, [0, 0]).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

/// A shim's descriptor takes its block from an address that a word of the host moves beyond the patched one.
#[test]
fn a_shims_address_moves_by_a_word_of_the_host() {
    let move_by = |word: u32| {
        let mut stream = copy(&Design {
            length: 16,
            ..Design::default()
        });
        let place = offset(tile(0, 0).kind(), BlockKind::Descriptor, 0).unwrap();
        let register = tile(0, 0).address(place) + 4;
        let is_patch =
            |operation: &TxnOperation| matches!(operation, TxnOperation::Patch { argument: 0, .. });
        let patch = stream
            .operations
            .iter()
            .position(|of| is_patch(&of.operation));
        let update = TxnOperation::UpdateAddress {
            entry: 0,
            function: ScratchpadFunction::Multiply,
            number: 4,
            register,
        };
        stream.operations.insert(patch.unwrap() + 1, update.into());
        stream.operations.insert(0, create(4).into());
        let mut board = Board::new(BoardOptions {
            unset: UnsetMemory::Zeros,
            ..BoardOptions::default()
        });
        board.give_scratchpad(vec![word]);
        let mut arguments = [words(128), vec![0; 512]];
        let ran = board.run(&stream.encode(), &mut arguments);
        ran.map(|_| arguments[1][..128].to_vec())
            .map_err(|error| error.to_string())
    };
    assert_eq!(move_by(0).unwrap(), words(128)[..128]);
    assert_eq!(move_by(8).unwrap(), words(128)[32..160]);
    // Beyond the argument nothing is read.
    assert!(move_by(1 << 20).is_err());
}
