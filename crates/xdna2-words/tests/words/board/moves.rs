//! Correct designs that move bytes.

use super::*;

#[test]
fn a_copy_gives_the_same_bytes_in_every_order() {
    for design in [
        Design::default(),
        Design {
            length: 1,
            copies: 3,
            ..Design::default()
        },
        Design {
            length: 500,
            copies: 1,
            ..Design::default()
        },
    ] {
        let n = design.length * design.copies;
        let stream = copy(&design);
        for seed in 0..20 {
            let mut arguments = [words(n), vec![0; n as usize * 4]];
            let counters = run(&stream, seed, &mut arguments).unwrap();
            assert_eq!(arguments[1], words(n), "seed {seed}");
            assert_eq!(
                (counters.words, counters.tokens, counters.pushes),
                (4 * n, 2, 4)
            );
        }
    }
}

#[test]
fn a_stream_relies_on_nothing_of_the_one_before() {
    let design = Design::default();
    let stream = copy(&design).encode();
    let mut board = Board::new(BoardOptions::default());
    for _ in 0..3 {
        let mut arguments = [words(128), vec![0; 512]];
        board.run(&stream, &mut arguments).unwrap();
        assert_eq!(arguments[1], words(128));
    }
}

#[test]
fn dimensions_of_a_memory_tile_transpose() {
    // 64 words as 8 × 8, sent by columns.
    let out = vec![
        (F::D0Wrap, 8),
        (F::D0Step, 7),
        (F::D1Wrap, 8),
        (F::D1Step, 0),
    ];
    let stream = copy(&Design {
        out,
        ..Design::default()
    });
    let mut arguments = [words(128), vec![0; 512]];
    run(&stream, 3, &mut arguments).unwrap();
    let word = |i: u32| i * 7 + 1;
    let expected = (0..128u32).map(|i| word(i / 64 * 64 + i % 8 * 8 + i % 64 / 8));
    let expected: Vec<u8> = expected.flat_map(u32::to_le_bytes).collect();
    assert_eq!(arguments[1], expected);
}

#[test]
fn an_iteration_moves_on_with_every_execution() {
    let mut w = StreamWriter::new(1);
    let (shim, memory) = (tile(0, 0), tile(0, 1));
    let [reads, fills] = [at(shim, Direction::Mm2s, 1), at(memory, Direction::S2mm, 2)];
    let [drains, writes] = [at(memory, Direction::Mm2s, 0), at(shim, Direction::S2mm, 1)];
    w.circuit(shim, south(7), north(5)).unwrap();
    w.circuit(memory, south(5), dma(2)).unwrap();
    w.circuit(memory, dma(0), south(2)).unwrap();
    w.circuit(shim, north(2), south(3)).unwrap();
    w.token_route(0).unwrap();
    w.switches().unwrap();
    for channel in [reads, fills, drains, writes] {
        w.open(channel).unwrap();
    }
    w.lock(memory, 0, 0).unwrap();
    // Four blocks of 8 words, 16 apart in DDR, gathered in L2, sent at once.
    let step = [(F::IterationWrap, 3), (F::IterationStep, 7)];
    let mut fill = vec![
        (F::Length, 8),
        (F::Base, OWN),
        (F::Valid, 1),
        (F::ReleaseId, 64),
        (F::ReleaseValue, 1),
    ];
    fill.extend(step);
    w.descriptor(memory, 0, &fill).unwrap();
    let drain = [
        (F::Length, 32),
        (F::Base, OWN),
        (F::Valid, 1),
        (F::AcquireEnable, 1),
        (F::AcquireId, 64),
        (F::AcquireValue, 128 - 4),
    ];
    w.descriptor(memory, 1, &drain).unwrap();
    w.push(
        fills,
        TaskPush {
            executions: 4,
            ..once(0)
        },
    )
    .unwrap();
    w.push(drains, once(1)).unwrap();
    let read = [
        (F::Length, 8),
        (F::Valid, 1),
        (F::IterationWrap, 3),
        (F::IterationStep, 15),
    ];
    w.descriptor(shim, 0, &read).unwrap();
    w.patch(shim, 0, 0, 64).unwrap();
    w.descriptor(shim, 1, &[(F::Length, 32), (F::Valid, 1)])
        .unwrap();
    w.patch(shim, 1, 1, 0).unwrap();
    w.push(writes, awaited(1)).unwrap();
    w.push(
        reads,
        TaskPush {
            executions: 4,
            ..awaited(0)
        },
    )
    .unwrap();
    w.await_token(reads);
    w.await_token(writes);
    w.quieten().unwrap();
    let mut arguments = [words(80), vec![0; 128]];
    run(&w.finish(), 5, &mut arguments).unwrap();
    let expected = (0..32u32).map(|i| (16 + i / 8 * 16 + i % 8) * 7 + 1);
    assert_eq!(
        arguments[1],
        expected.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
    );
}

/// Two shims send packets, each with its own id, to one channel of a core, which sends them on.
#[test]
fn packets_of_two_sources_share_a_port() {
    let mut w = StreamWriter::new(1);
    let (shim, memory, core) = (tile(0, 0), tile(0, 1), tile(0, 2));
    let fills = at(core, Direction::S2mm, 0);
    let sends = at(core, Direction::Mm2s, 0);
    let [first, second] = [0, 1].map(|number| at(shim, Direction::Mm2s, number));
    let writes = at(shim, Direction::S2mm, 0);
    // Both enter the same arbiter of the shim and leave to the north.
    w.packets(shim, (south(3), north(0)), 1, 2).unwrap();
    w.packets_also(shim, (south(7), north(0)), 2, 2).unwrap();
    w.circuit(memory, south(0), north(0)).unwrap();
    w.circuit(core, south(0), dma(0)).unwrap();
    w.circuit(core, dma(0), south(1)).unwrap();
    w.circuit(memory, north(1), south(1)).unwrap();
    w.circuit(shim, north(1), south(2)).unwrap();
    w.token_route(0).unwrap();
    w.switches().unwrap();
    for channel in [fills, sends, first, second, writes] {
        w.open(channel).unwrap();
    }
    w.lock(core, 3, 0).unwrap();
    // Four packets of a header and 4 words.
    w.descriptor(
        core,
        0,
        &[
            (F::Length, 20),
            (F::Base, 256),
            (F::Valid, 1),
            (F::ReleaseId, 3),
            (F::ReleaseValue, 1),
        ],
    )
    .unwrap();
    w.descriptor(
        core,
        1,
        &[
            (F::Length, 20),
            (F::Base, 256),
            (F::Valid, 1),
            (F::AcquireEnable, 1),
            (F::AcquireId, 3),
            (F::AcquireValue, 127),
        ],
    )
    .unwrap();
    w.push(fills, once(0)).unwrap();
    w.push(sends, once(1)).unwrap();
    w.descriptor(shim, 2, &[(F::Length, 20), (F::Valid, 1)])
        .unwrap();
    w.patch(shim, 2, 1, 0).unwrap();
    w.push(writes, awaited(2)).unwrap();
    for (channel, id) in [(first, 1), (second, 2)] {
        let fields = [
            (F::Length, 4),
            (F::Valid, 1),
            (F::PacketEnable, 1),
            (F::PacketId, id),
            (F::IterationWrap, 1),
            (F::IterationStep, 3),
        ];
        w.descriptor(shim, id as u8 + 3, &fields).unwrap();
        w.patch(shim, id as u8 + 3, 0, (id - 1) * 32).unwrap();
        w.push(
            channel,
            TaskPush {
                executions: 2,
                ..awaited(id as u8 + 3)
            },
        )
        .unwrap();
    }
    for channel in [writes, first, second] {
        w.await_token(channel);
    }
    w.quieten().unwrap();
    let stream = w.finish();
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let mut arguments = [words(16), vec![0; 80]];
        run(&stream, seed, &mut arguments).unwrap();
        let found: Vec<u32> = arguments[1]
            .chunks(4)
            .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let mut ids = Vec::new();
        let mut next = [0, 8];
        for packet in found.chunks(5) {
            let id = packet[0] & 31;
            assert_eq!(packet[0] & 0x7FFF_FFFF, id, "row and column 0");
            assert_eq!(packet[0].count_ones() % 2, 1);
            let source = id as usize - 1;
            let expected: Vec<u32> = (0..4).map(|i| (next[source] + i) * 7 + 1).collect();
            assert_eq!(packet[1..], expected, "a packet is never cut");
            next[source] += 4;
            ids.push(id);
        }
        orders.insert(ids);
    }
    assert!(orders.len() > 1, "the order is the arbiter's: {orders:?}");
}
