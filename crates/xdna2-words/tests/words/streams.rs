//! Streams: nothing is lost on the way to words and back, and other words are refused.

use millrace_xdna2_words::txn::{
    Hints, NPU1, NPU2, ScratchpadFunction, StreamOperation, decode, words_of_file,
};
use millrace_xdna2_words::{StreamHeader, TxnOperation, TxnStream};
use proptest::prelude::*;

fn operation() -> impl Strategy<Value = TxnOperation> {
    let write = (any::<u64>(), any::<u32>())
        .prop_map(|(address, value)| TxnOperation::Write { address, value });
    let block = (any::<u32>(), prop::collection::vec(any::<u32>(), 1..12))
        .prop_map(|(address, data)| TxnOperation::BlockWrite { address, data });
    let masked = (any::<u64>(), any::<u32>(), any::<u32>(), 0..3u8).prop_map(
        |(address, value, mask, kind)| match kind {
            0 => TxnOperation::MaskWrite {
                address,
                value,
                mask,
            },
            kind => TxnOperation::MaskPoll {
                address,
                value,
                mask,
                busy: kind == 1,
            },
        },
    );
    let sync =
        (0..2u8, any::<[u8; 5]>()).prop_map(|(direction, [col, row, channel, n_cols, n_rows])| {
            TxnOperation::Sync {
                direction,
                col,
                row,
                channel,
                n_cols,
                n_rows,
            }
        });
    let patch =
        (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(register, argument, plus_bytes)| {
            TxnOperation::Patch {
                register,
                argument,
                plus_bytes,
            }
        });
    let raw = (0x82..=0x84u8, prop::collection::vec(any::<u32>(), 0..4))
        .prop_map(|(code, data)| TxnOperation::Raw { code, data });
    prop_oneof![
        write,
        block,
        masked,
        sync,
        patch,
        pdi(),
        of_scratchpad(),
        raw,
        Just(TxnOperation::Noop),
        (0..1u32 << 24).prop_map(|level| TxnOperation::Preempt { level }),
    ]
}

fn pdi() -> impl Strategy<Value = TxnOperation> {
    (0..1u32 << 16, any::<u32>(), any::<u64>()).prop_map(|(id, size_bytes, address)| {
        TxnOperation::LoadPdi {
            id,
            size_bytes,
            address,
        }
    })
}

fn of_scratchpad() -> impl Strategy<Value = TxnOperation> {
    let scratchpad =
        (any::<u8>(), any::<u32>(), any::<u64>()).prop_map(|(usage, size_bytes, address)| {
            TxnOperation::CreateScratchpad {
                usage,
                size_bytes,
                address,
            }
        });
    let update = (any::<u8>(), 0..3usize, any::<u32>(), any::<u32>()).prop_map(
        |(entry, function, number, register)| TxnOperation::UpdateAddress {
            entry,
            function: ScratchpadFunction::ALL[function],
            number,
            register,
        },
    );
    prop_oneof![scratchpad, update]
}

fn hinted() -> impl Strategy<Value = StreamOperation> {
    (operation(), 0..1u32 << 24, any::<u32>(), any::<bool>()).prop_map(
        |(operation, first, second, padded)| {
            let takes = matches!(
                operation,
                TxnOperation::Write { .. }
                    | TxnOperation::BlockWrite { .. }
                    | TxnOperation::MaskWrite { .. }
                    | TxnOperation::MaskPoll { .. }
            );
            let is_masked = matches!(
                operation,
                TxnOperation::MaskWrite { .. } | TxnOperation::MaskPoll { .. }
            );
            let hints = match takes {
                true => Hints {
                    first,
                    second,
                    padded: padded && is_masked,
                },
                false => Hints::default(),
            };
            StreamOperation { operation, hints }
        },
    )
}

fn stream() -> impl Strategy<Value = TxnStream> {
    let header =
        (any::<[u8; 3]>(), any::<bool>()).prop_map(|([rows, memory_rows, columns], new)| {
            StreamHeader {
                rows,
                generation: if new { NPU2 } else { NPU1 },
                memory_rows,
                columns,
            }
        });
    (header, prop::collection::vec(hinted(), 0..12))
        .prop_map(|(header, operations)| TxnStream { header, operations })
}

proptest! {
    #[test]
    fn streams_are_read_as_they_were_written(stream in stream()) {
        let words = stream.encode();
        let again = decode(&words);
        prop_assert_eq!(again, Ok(stream));
    }

    /// A changed word is refused, or the stream that is read writes it again.
    #[test]
    fn nothing_that_is_read_is_lost(stream in stream(), at in any::<prop::sample::Index>(), bit in 0..32u32, cut in any::<prop::sample::Index>()) {
        let mut words = stream.encode();
        let at = at.index(words.len());
        words[at] ^= 1 << bit;
        if let Ok(read) = decode(&words) {
            prop_assert_eq!(read.encode(), &words[..]);
        }
        words[at] ^= 1 << bit;
        words.truncate(cut.index(words.len()));
        prop_assert!(decode(&words).is_err());
    }
}

fn refusal(words: &[u32]) -> String {
    decode(words).unwrap_err().to_string()
}

#[test]
fn what_is_no_stream_is_refused_with_the_word() {
    assert_eq!(refusal(&[1]), "word 1: a header has four words, this has 1");
    let header = [0x0604_0100, 0x108, 0, 16];
    assert!(decode(&header).is_ok());
    let with = |at: usize, word: u32, more: &[u32]| {
        let mut words = header.to_vec();
        words[at] = word;
        words.extend(more);
        if at != 3 {
            words[3] = words.len() as u32 * 4;
        }
        words
    };
    for (words, expected) in [
        (
            with(0, 0x0604_0001, &[]),
            "word 0: format 1.0; this reads 0.1 (word 0 of NPU2: 06040100)",
        ),
        (
            with(0, 0x0609_0100, &[]),
            "word 0: generation 9; 3 is NPU1, 4 is NPU2",
        ),
        (
            with(1, 0x1_0108, &[]),
            "word 1: bits 31:16 of 00010108 are undefined",
        ),
        (
            with(3, 20, &[]),
            "word 3: the header says 20 bytes, there are 16: it is cut off, so write or copy it again",
        ),
        (
            with(2, 7, &[]),
            "word 2: the header says 7 operations, there are 0",
        ),
        (
            with(2, 1, &[0, 0, 4, 0]),
            "word 4: a write has 6 words, 4 are left",
        ),
        (
            with(2, 1, &[0, 0, 4, 0, 1, 20]),
            "word 9: a write of 20 bytes; it has 24",
        ),
        (
            with(2, 1, &[1, 0, 4, 16]),
            "word 7: a block write of 16 bytes; its head alone has 16",
        ),
        (
            with(2, 1, &[1, 0, 4, 24, 1]),
            "word 4: a block write has 6 words, 5 are left",
        ),
        (
            with(2, 1, &[3, 0, 4, 0, 1, 1, 24]),
            "word 10: a masked operation of 24 bytes; it has 28 or 32",
        ),
        (
            with(2, 1, &[0x80, 16, 2, 0]),
            "word 6: 00000002 00000000 is no wait for tokens",
        ),
        (
            with(2, 1, &[0x81, 48, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            "word 8: 00000001; only 0 is known here",
        ),
        (
            with(2, 1, &[2]),
            "word 4: operation 2 (block set): its words are not documented",
        ),
        (
            with(2, 1, &[0x1000A, 4, 0, 0]),
            "word 4: bits 31:16 of 0001000A are undefined",
        ),
        (
            with(2, 1, &[0x3_000C, 4, 0]),
            "word 4: 0003000C names no function of a scratchpad",
        ),
        (with(2, 1, &[0x55]), "word 4: 00000055 begins no operation"),
        (with(2, 1, &[0x105]), "word 4: 00000105 begins no operation"),
    ] {
        assert_eq!(refusal(&words), expected);
    }
}

#[test]
fn files_are_words_or_their_text() {
    let text = "# an empty stream\n06040100 0x00000101\n00000000 00000010 # bytes\n";
    let words = words_of_file(text.as_bytes()).unwrap();
    assert_eq!(words, [0x0604_0100, 0x101, 0, 16]);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(words_of_file(&bytes).unwrap(), words);
    let refusal = |bytes: &[u8]| words_of_file(bytes).unwrap_err();
    assert_eq!(
        refusal(&[0, 1, 2]),
        "3 bytes are no whole number of 4-byte words"
    );
    assert_eq!(
        refusal(b""),
        "it is empty; a stream has a header of four words at least"
    );
    assert_eq!(
        refusal(b"00000000\n0xABC"),
        "line 2: `0xABC` is no hexadecimal word of eight digits"
    );
    assert_eq!(refusal(b"# nothing\n"), "no words in this text");
}
