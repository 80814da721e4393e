use super::text::{parse, print};
use super::*;
use crate::regs::{cna, dpu};
use proptest::prelude::*;

/// Any command that the table allows.
pub(crate) fn any_command() -> impl Strategy<Value = Command> {
    let write = (
        0..Block::ALL.len(),
        any::<prop::sample::Index>(),
        any::<u32>(),
    )
        .prop_map(|(block, register, bits)| {
            let row = register.get(Block::ALL[block].registers());
            let value = bits & row.mask();
            Command::Write {
                reg: row.reg,
                value,
            }
        });
    prop_oneof![
        8 => write,
        1 => Just(Command::Marker),
        1 => Just(Command::Filler),
        1 => any::<u32>().prop_map(|bits| Command::Enable { mask: bits & all_blocks() }),
    ]
}

proptest! {
    #[test]
    fn words_and_text_round_trip(commands in prop::collection::vec(any_command(), 0..40)) {
        prop_assert_eq!(decode(&encode(&commands)).unwrap(), commands.clone());
        prop_assert_eq!(parse(&print(&commands)).unwrap(), commands);
    }

    #[test]
    fn any_word_is_refused_or_comes_back(word in any::<u64>()) {
        if let Ok(command) = Command::decode(word) {
            prop_assert_eq!(command.encode(), word);
        }
    }

    #[test]
    fn any_text_is_refused_or_means_the_same_again(text in "\\PC{0,60}") {
        if let Ok(commands) = parse(&text) {
            prop_assert_eq!(parse(&print(&commands)).unwrap(), commands);
        }
    }
}

#[test]
fn errors_name_position_and_what_is_wrong() {
    let good = Command::write(cna::CBUF_CON1::REG, &[(cna::CBUF_CON1::DATA_ENTRIES, 3)]).encode();
    let of = |word: u64| decode(&[good, word]).unwrap_err();
    let bad = [
        (
            0x0401_0000_0000_1000,
            "no block is reached by target 0x0401",
        ),
        // The target without its write bit.
        (
            0x0200_0000_0000_1040,
            "no block is reached by target 0x0200",
        ),
        (
            0x0201_0000_0000_1ffc,
            "block `cna` has no register at 0x1ffc",
        ),
        // A register of another block.
        (
            0x0201_0000_0000_4010,
            "block `cna` has no register at 0x4010",
        ),
        (0x0201_0001_0000_1044, "bits 0x10000 are reserved"),
        (0x0801_0000_0001_3030, "bits 0x1 are reserved"),
        (0x0041_0000_0001_0000, "a marker has value 0"),
        (
            0x0081_0000_000d_000c,
            "an enable command writes register 0x0008",
        ),
        (0x0081_0000_0002_0008, "bits of blocks"),
    ];
    for (word, words) in bad {
        let error = of(word);
        assert_eq!(error.position, 1);
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("word 1"), "{text}");
    }
}

#[test]
fn the_text_reads_as_the_table_names_things() {
    let command = Command::write(
        dpu::DATA_FORMAT::REG,
        &[
            (dpu::DATA_FORMAT::OUT_PRECISION, 5),
            (dpu::DATA_FORMAT::EW_TRUNCATE_NEG, 0x20),
        ],
    );
    let text = text::line(command);
    assert_eq!(text, "dpu.DATA_FORMAT OUT_PRECISION=5 EW_TRUNCATE_NEG=0x20");
    let wrong = [
        ("cna.DATA_SIZE9", "has no register"),
        ("sdma.X", "no block is named"),
        ("cna.DATA_SIZE0 HEIGHT=1", "has no field"),
        ("cna.DATA_SIZE0 DATAIN_HEIGHT=0x800", "holds at most 0x7ff"),
        (
            "cna.DATA_SIZE0 DATAIN_HEIGHT=1 DATAIN_HEIGHT=1",
            "set twice",
        ),
        ("cna.DATA_SIZE0 DATAIN_HEIGHT=+1", "is no number"),
        ("cna.DATA_SIZE0 DATAIN_HEIGHT", "expected `FIELD=value`"),
        ("enable pc", "no block that can be enabled"),
        ("marker 1", "takes nothing"),
        ("nonsense", "expected `marker`"),
    ];
    for (line, words) in wrong {
        let error = parse(&format!("# comment\n\n{line}\n")).unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.to_string().contains(words), "{error}");
    }
}
