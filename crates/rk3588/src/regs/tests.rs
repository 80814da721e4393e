use super::*;

#[test]
fn the_table_is_sorted_and_its_fields_are_apart() {
    for block in Block::ALL {
        let registers = block.registers();
        assert!(registers.is_sorted_by(|a, b| a.reg.offset < b.reg.offset));
        for register in registers {
            assert_eq!(register.reg.block, block);
            let mut seen = 0;
            for field in register.fields {
                assert!(field.low <= field.high && field.high < 32, "{field:?}");
                assert_eq!(seen & field.mask(), 0, "{} overlaps", field.name);
                seen |= field.mask();
            }
        }
    }
}

#[test]
fn enable_bits_follow_from_the_targets() {
    // Bit = log2(target) - 9 (GLOBAL.OPERATION_ENABLE lists the same).
    for block in Block::ALL {
        let expected = (block.id().ilog2()).checked_sub(9).map(|bit| 1 << bit);
        assert_eq!(block.enable_bit(), expected, "{block:?}");
        assert_eq!(Block::from_write_target(block.id() | 1), Some(block));
        assert_eq!(Block::from_name(block.name()), Some(block));
    }
}

#[test]
fn fields_pack_and_unpack() {
    let field = cna::DATA_SIZE0::DATAIN_WIDTH;
    assert_eq!((field.max(), field.mask()), (0x7ff, 0x07ff_0000));
    assert_eq!(field.get(field.put(77)), 77);
    let whole = cna::WEIGHT_SIZE0::WEIGHT_BYTES;
    assert_eq!(whole.max(), u32::MAX);
    assert_eq!(whole.get(whole.put(u32::MAX)), u32::MAX);
}

/// A list of fields beside the workspace has the same registers, where it exists.
#[test]
fn the_table_is_that_of_the_field_list() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/research/rk3588_regfields.txt"
    );
    let Ok(text) = std::fs::read_to_string(path) else {
        eprintln!("skipped: the field list is not beside the workspace");
        return;
    };
    let mut block = None;
    let mut n = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if first == "DOMAIN" {
            let name = words.next().unwrap().to_lowercase();
            block = Block::from_name(&name);
            continue;
        }
        let (Some(block), Some(offset)) = (block, first.strip_prefix("0x")) else {
            continue;
        };
        let offset = u16::from_str_radix(offset, 16).unwrap();
        let register = block.register(offset).unwrap();
        assert_eq!(Some(register.name), words.next());
        let fields: Vec<String> = register
            .fields
            .iter()
            .map(|f| match f.high == f.low {
                true => format!("{}[{}]", f.name, f.low),
                false => format!("{}[{}:{}]", f.name, f.high, f.low),
            })
            .collect();
        let expected: Vec<&str> = words.collect();
        assert_eq!(fields, expected);
        n += 1;
    }
    assert!(n > 150, "{n} registers");
}
