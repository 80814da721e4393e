use super::*;

/// Counts that `tools/make_webp_fixtures.py` found, and image-webp's memory for each.
#[test]
fn codes_are_counted_as_another_reader_counts_them() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/webp");
    let rows = std::fs::read_to_string(format!("{root}/codes.txt")).expect("codes.txt");
    let mut n_rows = 0;
    for row in rows.lines() {
        let (name, numbers) = row.split_once(' ').expect("a name");
        let numbers: Vec<u64> = numbers
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        let [groups, tables, entries, nodes] = numbers[..] else {
            panic!("{row}");
        };
        let file = std::fs::read(format!("{root}/{name}")).expect("an image");
        let mut decoder = image_webp::WebPDecoder::new(Cursor::new(&file)).expect("a head");
        let kind = (decoder.is_lossy(), decoder.has_alpha());
        let (width, height) = decoder.dimensions();
        let found = code_bytes(&file, width, height, kind).expect("codes");
        // Places of five codes in a list that grows, two blocks for each table, entries of 4 bytes and nodes of 16.
        let expected = groups * 3 * 5 * 56 + tables * 2 * 24 + entries * 4 + nodes * 16;
        assert_eq!(found, expected, "{name}");
        n_rows += 1;
    }
    assert_eq!(n_rows, 6);
}

/// Every cut within the codes is an error; one in the pixels is left to the decoder.
#[test]
fn a_file_that_ends_within_its_codes_is_broken() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/webp");
    let file = std::fs::read(format!("{root}/palette.webp")).expect("an image");
    let counted = |n: usize| code_bytes(&file[..n], 160, 128, (false, false));
    let whole = counted(file.len()).expect("codes");
    let first = (20..file.len()).find(|n| counted(*n).is_ok());
    let first = first.expect("a part that has all codes");
    assert!((100..2000).contains(&first), "{first}");
    for n in 0..file.len() {
        match counted(n) {
            Ok(bytes) => assert!(n >= first && bytes == whole, "{n}: {bytes}"),
            Err(ImageFault::Broken(reason)) => assert!(n < first, "{n}: {reason}"),
            Err(other) => panic!("{n}: {other:?}"),
        }
    }
}

#[test]
fn a_head_that_differs_from_the_files_is_broken() {
    let reason = |data: &[u8], width| match lossless::code_bytes(data, width, 2, true) {
        Err(ImageFault::Broken(reason)) => reason,
        other => panic!("{other:?}"),
    };
    // 3 × 2 pixels: 14 bits of 2, 14 of 1, then transparency and version.
    let head = |version: u32| {
        let bits: u32 = 2 | 1 << 14 | version << 29;
        [&[0x2f][..], &bits.to_le_bytes()].concat()
    };
    let short = reason(&head(0), 3);
    assert!(short.starts_with("its lossless data of 5 bytes"), "{short}");
    let other = reason(&head(0), 4);
    assert!(
        other.contains("3 × 2 pixels, and its head 4 × 2"),
        "{other}"
    );
    let version = reason(&head(1), 3);
    assert!(version.contains("version 1"), "{version}");
    let none = reason(&[0x2e, 0, 0, 0, 0], 3);
    assert!(none.contains("0x2f"), "{none}");
}
