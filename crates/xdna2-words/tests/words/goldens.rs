//! Words that mlir-aie's own tests expect, rebuilt from the descriptions in those tests. They are read from the folder
//! of collected goldens where there is one. `fixtures/` has streams of our own for everyone.

use millrace_xdna2_words::descriptor::{CORE, MEMORY, SHIM};
use millrace_xdna2_words::txn::{Hints, NPU1, StreamOperation, decode};
use millrace_xdna2_words::{Record, StreamHeader, Tile, TxnOperation, TxnStream, WordField};
use std::path::Path;

/// The part of a golden after `[expected]`, or `None` with a printed reason.
fn expected(name: &str) -> Option<String> {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/research/npu2_golden"
    ));
    match std::fs::read_to_string(folder.join(name)) {
        Ok(text) => {
            let part = text.split("[expected]").nth(1).unwrap();
            Some(part.split("[notes]").next().unwrap().to_owned())
        }
        Err(error) => {
            println!("skipped: {name} is not here ({error})");
            None
        }
    }
}

/// Hexadecimal words of eight digits in a text.
fn words(text: &str) -> Vec<u32> {
    let words = text.split_whitespace().filter(|word| word.len() == 8);
    words
        .filter_map(|word| u32::from_str_radix(word, 16).ok())
        .collect()
}

fn tile(col: u32, row: u32) -> Tile {
    Tile::new(col, row).unwrap()
}

fn write(address: u64, value: u32) -> StreamOperation {
    TxnOperation::Write { address, value }.into()
}

fn sync() -> StreamOperation {
    let operation = TxnOperation::Sync {
        direction: 1,
        col: 3,
        row: 4,
        channel: 5,
        n_cols: 1,
        n_rows: 2,
    };
    operation.into()
}

fn compare(stream: &TxnStream, golden: &[u32]) {
    assert_eq!(stream.encode(), golden);
    assert_eq!(decode(golden).as_ref(), Ok(stream));
}

#[test]
fn an_empty_stream_of_one_column() {
    if let Some(golden) = expected("txn_empty_npu2_1col.txt") {
        compare(&TxnStream::new(StreamHeader::npu2(1)), &words(&golden));
    }
}

#[test]
fn each_basic_operation() {
    let Some(golden) = expected("txn_basic_ops_npu2.txt") else {
        return;
    };
    let data: Vec<u32> = (100..108).collect();
    let address = |col, row, offset| tile(col, row).address(offset);
    let block = |address, data| TxnOperation::BlockWrite { address, data };
    let at_tile = StreamOperation {
        operation: block(address(1, 1, 100), data.clone()),
        hints: Hints {
            second: 0x101,
            ..Hints::default()
        },
    };
    let masked = TxnOperation::MaskWrite {
        address: address(2, 3, 0x567A).into(),
        value: 0x1001,
        mask: 0xF00F_F00F,
    };
    let operations = vec![
        write(address(3, 4, 0xABC0_0DEF).into(), 0x42),
        write(0xABC0_0DEF, 0x314),
        block(0x1234_5679, data).into(),
        at_tile,
        masked.into(),
        sync(),
        TxnOperation::Preempt { level: 3 }.into(),
    ];
    compare(
        &TxnStream {
            header: StreamHeader::npu2(8),
            operations,
        },
        &words(&golden),
    );
}

fn record(layout: &'static millrace_xdna2_words::Layout, fields: &[(WordField, u64)]) -> Record {
    Record::new(layout).with(fields).unwrap()
}

#[test]
fn a_core_descriptor() {
    use WordField::*;
    let Some(golden) = expected("bd_core_writebd.txt") else {
        return;
    };
    let hexadecimal = golden.split("hex    :").nth(1).unwrap();
    let fields = [
        (Length, 837),
        (Base, 291 / 4),
        (PacketEnable, 1),
        (PacketId, 7),
        (PacketType, 5),
        (OutOfOrderId, 21),
        (D0Step, 564),
        (D0Wrap, 62),
        (D1Step, 1110),
        (D1Wrap, 127),
        (D2Step, 801),
        (IterationCurrent, 42),
        (IterationStep, 499),
        (IterationWrap, 28),
        (AcquireEnable, 1),
        (AcquireId, 12),
        (AcquireValue, 42),
        (ReleaseId, 11),
        (ReleaseValue, 85),
        (Next, 10),
        (UseNext, 1),
        (Valid, 1),
    ];
    let record = record(&CORE, &fields);
    assert_eq!(record.words(), words(hexadecimal));
    assert_eq!(Record::read(&CORE, &words(hexadecimal)), Ok(record.clone()));
    // The golden has the address with its tile's number.
    assert!(golden.contains("0x21D0C0"));
    assert_eq!(tile(0, 2).address(0x1D0C0), 0x21_D0C0);
    // With compression the notes have 0xD53D0000 for the second word.
    assert_eq!(
        record.with(&[(Compress, 1)]).unwrap().words()[1],
        0xD53D_0000
    );
}

#[test]
fn a_memory_descriptor_in_a_stream() {
    use WordField::*;
    let Some(golden) = expected("bd_memtile_writebd.txt") else {
        return;
    };
    let fields = [
        (Length, 1),
        (Base, 2),
        (D0Step, 5),
        (D0Wrap, 6),
        (D1Step, 7),
        (D1Wrap, 8),
        (D2Step, 9),
        (IterationCurrent, 11),
        (IterationStep, 12),
        (IterationWrap, 13),
        (AcquireEnable, 1),
        (AcquireId, 1),
        (AcquireValue, 2),
        (ReleaseId, 3),
        (ReleaseValue, 4),
        (Next, 5),
        (UseNext, 1),
        (Valid, 1),
    ];
    let data = record(&MEMORY, &fields).words();
    let operations = vec![
        TxnOperation::BlockWrite {
            address: tile(3, 1).address(0xA00C0),
            data,
        }
        .into(),
        write(tile(3, 4).address(0xABC0_0DEF).into(), 0x42),
        sync(),
    ];
    let header = StreamHeader {
        generation: NPU1,
        columns: 4,
        ..StreamHeader::npu2(4)
    };
    compare(&TxnStream { header, operations }, &words(&golden));
}

#[test]
fn a_shim_descriptor() {
    use WordField::*;
    let Some(golden) = expected("shim_memcpy_nd_3d.txt") else {
        return;
    };
    let golden = words(&golden);
    // Sizes 32, 32, 2 with strides 1, 64, 2048.
    let fields = [
        (Length, 2048),
        (D0Wrap, 32),
        (D0Step, 0),
        (D1Wrap, 32),
        (D1Step, 63),
        (D2Step, 2047),
        (Burst, 2),
        (Valid, 1),
    ];
    let old = record(&SHIM, &fields);
    let new = old.clone().with(&[(AxCache, 2)]).unwrap();
    assert_eq!([new.words(), old.words()].concat(), golden);
}

#[test]
fn iteration_words() {
    let Some(golden) = expected("bd_iteration_words_npu2.txt") else {
        return;
    };
    let steps = |size: u64, step_words: u64, current: u64| {
        [
            (WordField::IterationWrap, size - 1),
            (WordField::IterationStep, step_words - 1),
            (WordField::IterationCurrent, current),
        ]
    };
    let memory = |size, step, current| record(&MEMORY, &steps(size, step, current)).words()[6];
    let off = record(&MEMORY, &[]).words()[6];
    let rebuilt = [
        memory(4, 16, 0),
        off,
        memory(4, 16, 0),
        memory(4, 16, 2),
        memory(4, 8, 0),
        memory(64, 16, 0),
        memory(4, 131_072, 0),
        off,
        record(&CORE, &steps(4, 16, 0)).words()[4],
        record(&SHIM, &steps(4, 200_000, 0)).words()[6],
    ];
    let golden: Vec<u32> = golden
        .lines()
        .filter_map(|line| line.rsplit(':').next())
        .flat_map(words)
        .collect();
    assert_eq!(rebuilt[..], golden);
}
