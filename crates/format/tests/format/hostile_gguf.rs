//! Every way a GGUF file can be wrong, and the error it must give.

use std::path::Path;

use millrace_format::gguf::{GgufValue, Header, Writer};

use crate::raw::{
    ARRAY, F32, Gguf, STR, U32, array, entry, entry_u32, is_error, string, tensor, variant,
};

/// Asserts that the bytes are refused with this variant and a message that says all of `parts`.
#[track_caller]
fn refused(bytes: Vec<u8>, variant: &str, parts: &[&str]) {
    let error = Header::parse(&bytes, Path::new("hostile.gguf")).expect_err(variant);
    is_error(&error, variant, &["hostile.gguf"]);
    is_error(&error, variant, parts);
}

/// The valid file, spoilt.
fn spoilt(spoil: impl FnOnce(&mut Gguf)) -> Vec<u8> {
    let mut file = Gguf::valid();
    spoil(&mut file);
    file.bytes()
}

/// The valid file with one metadata entry added.
fn with_entry(key: &str, type_id: u32, value: &[u8]) -> Vec<u8> {
    spoilt(|file| file.entries.push(entry(key, type_id, value)))
}

/// A file of these tensors and this number of data bytes.
fn with_tensors(tensors: Vec<Vec<u8>>, data_bytes: usize) -> Vec<u8> {
    let data = vec![0; data_bytes];
    Gguf {
        tensors,
        data,
        ..Gguf::empty()
    }
    .bytes()
}

/// A file of the tensor `t` and 64 bytes of data.
fn one(dims: &[u64], type_id: u32, offset: u64) -> Vec<u8> {
    with_tensors(vec![tensor("t", dims, type_id, offset)], 64)
}

#[test]
fn the_valid_file_that_the_cases_spoil_is_valid() {
    let header = Header::parse(&Gguf::valid().bytes(), Path::new("valid.gguf")).unwrap();
    assert_eq!(
        header.metadata.get_u32("llama.block_count").unwrap(),
        Some(1)
    );
    let [a, b] = header.tensors.as_slice() else {
        panic!("two tensors: {:?}", header.tensors);
    };
    assert_eq!((a.shape.as_slice(), a.size_bytes), ([2, 4].as_slice(), 32));
    assert_eq!((b.shape.as_slice(), b.size_bytes), ([1, 32].as_slice(), 34));
    assert_eq!(
        (a.offset, b.offset),
        (header.data_offset, header.data_offset + 32)
    );
}

#[test]
fn head() {
    refused(
        vec![],
        "Truncated",
        &["magic", "offset 0", "needs 4 bytes", "found 0"],
    );
    refused(
        b"GG".to_vec(),
        "Truncated",
        &["magic", "needs 4 bytes", "found 2"],
    );
    refused(
        spoilt(|f| f.magic = *b"lmgg"),
        "UnknownFormat",
        &["expected the magic `GGUF`", "`lmgg`"],
    );
    refused(
        spoilt(|f| f.version = 0),
        "Version",
        &["version 0", "expected 2 or 3"],
    );
    refused(
        spoilt(|f| f.version = 1),
        "Version",
        &["version 1", "expected 2 or 3"],
    );
    refused(
        spoilt(|f| f.version = 4),
        "Version",
        &["version 4", "expected 2 or 3"],
    );
    refused(
        spoilt(|f| f.version = 3 << 24),
        "BigEndian",
        &["big-endian", "version 3", "convert"],
    );
    refused(spoilt(|f| f.magic = *b"FUGG"), "BigEndian", &["big-endian"]);
}

#[test]
fn truncated_anywhere() {
    let whole = Gguf::valid().bytes();
    for len in 0..whole.len() {
        let error = Header::parse(&whole[..len], Path::new("short.gguf")).expect_err("too short");
        let variant = variant(&error);
        assert!(
            ["Truncated", "BeyondFile"].contains(&variant.as_str()),
            "{len} bytes: {error:?}"
        );
    }
}

#[test]
fn counts_beyond_the_file() {
    let entries = spoilt(|f| f.n_entries = Some(1 << 60));
    refused(
        entries,
        "Truncated",
        &["offset 24", "the metadata (1152921504606846976 items)"],
    );
    let tensors = spoilt(|f| f.n_tensors = Some(u64::MAX));
    refused(
        tensors,
        "Truncated",
        &["the tensor table (18446744073709551615 items)"],
    );
    let one_more = spoilt(|f| (f.n_tensors, f.data) = (Some(3), vec![]));
    refused(one_more, "Truncated", &["needs", "found"]);
    refused(
        with_tensors(vec![tensor("t", &[1; 5], F32, 0)], 4),
        "Limit",
        &["`t`", "is 5", "limit is 4"],
    );
    let many_dims = [string(b"t"), u32::MAX.to_le_bytes().to_vec(), vec![0; 40]].concat();
    refused(
        with_tensors(vec![many_dims], 4),
        "Limit",
        &["`t`", "is 4294967295", "limit is 4"],
    );
}

#[test]
fn lengths_beyond_the_file() {
    let key = |len: u64, rest: usize| {
        let entry = [len.to_le_bytes().to_vec(), vec![b'k'; rest]].concat();
        Gguf {
            entries: vec![entry],
            ..Gguf::empty()
        }
        .bytes()
    };
    refused(
        key(70_000, 8),
        "Limit",
        &["a metadata key", "offset 24", "is 70000", "limit is 65535"],
    );
    refused(
        key(300, 20),
        "Truncated",
        &["a metadata key", "offset 32", "needs 300 bytes", "found"],
    );
    refused(
        with_entry("k", STR, &u64::MAX.to_le_bytes()),
        "Truncated",
        &["`k`", "18446744073709551615"],
    );
    let long = |type_id, count| with_entry("k", ARRAY, &array(type_id, count, &[]));
    refused(
        long(U32, 1 << 40),
        "Truncated",
        &["`k` (1099511627776 items)", "needs 4398046511104"],
    );
    refused(
        long(10, u64::MAX),
        "Truncated",
        &["`k` (18446744073709551615 items)"],
    );
    refused(long(STR, 1 << 33), "Truncated", &["`k` (8589934592 items)"]);
    let deep = (0..6).fold(array(U32, 0, &[]), |inner, _| array(ARRAY, 1, &inner));
    refused(
        with_entry("k", ARRAY, &deep),
        "Limit",
        &["the nesting of metadata key `k`", "limit is 4"],
    );
}

#[test]
fn metadata() {
    let twice = with_entry("llama.block_count", U32, &[0; 4]);
    refused(twice, "DuplicateKey", &["`llama.block_count`", "twice"]);
    refused(
        with_entry("k", 13, &[0; 8]),
        "BadField",
        &["the type of", "`k`", "0..=12", "found 13"],
    );
    let items = with_entry("k", ARRAY, &array(99, 0, &[]));
    refused(
        items,
        "BadField",
        &["the type of", "`k`", "0..=12", "found 99"],
    );
    refused(
        with_entry("k", 7, &[2]),
        "BadField",
        &["bool", "`k`", "expected 0 or 1", "found 2"],
    );
    for (alignment, found) in [(0u32, "found 0"), (24, "found 24")] {
        let file = with_entry("general.alignment", U32, &alignment.to_le_bytes());
        refused(
            file,
            "KeyType",
            &["`general.alignment`", "a power of two", found],
        );
    }
    let text = with_entry("general.alignment", STR, &string(b"32"));
    refused(
        text,
        "KeyType",
        &["`general.alignment`", "an integer", "found str \"32\""],
    );
}

/// Texts that are not UTF-8 affect only code that asks for them.
#[test]
fn metadata_that_is_not_utf8() {
    let latin = b"Jos\xE9";
    let texts = [string(b"ok"), string(latin)].concat();
    let mut file = Gguf::valid();
    file.entries.push(
        [
            string(b"k\xC0"),
            U32.to_le_bytes().to_vec(),
            vec![7, 0, 0, 0],
        ]
        .concat(),
    );
    file.entries
        .push(entry("general.author", STR, &string(latin)));
    file.entries
        .push(entry("names", ARRAY, &array(STR, 2, &texts)));
    let header = Header::parse(&file.bytes(), Path::new("latin.gguf")).unwrap();
    let metadata = &header.metadata;
    assert_eq!(
        metadata.get("general.author"),
        Some(&GgufValue::Bytes(latin.to_vec()))
    );
    assert_eq!(metadata.get_u32(r"k\xc0").unwrap(), Some(7));
    let error = metadata.get_str("general.author").unwrap_err();
    is_error(
        &error,
        "KeyType",
        &[
            "latin.gguf",
            "`general.author`",
            "expected a string",
            "not UTF-8 from its byte 3",
            r"Jos\xe9",
        ],
    );
    let error = metadata.get_str_array("names").unwrap_err();
    is_error(
        &error,
        "KeyType",
        &["`names`", "item 1", "not UTF-8 from its byte 3"],
    );
    // The written string has the bytes that were read.
    let sink = std::io::Cursor::new(vec![]);
    let writer = Writer::new(sink, Path::new("out.gguf"), metadata, &[]).unwrap();
    let bytes = writer.finish().unwrap().into_inner();
    let again = Header::parse(&bytes, Path::new("out.gguf")).unwrap();
    assert_eq!(
        again.metadata.get("general.author"),
        metadata.get("general.author")
    );
    assert_eq!(again.metadata.get("names"), metadata.get("names"));
}

/// Tensors of types without arithmetic: listed with their sizes, not decoded.
#[test]
fn tensor_types() {
    // Number, name, bytes of 512 elements; `None`: the format does not say, 544 bytes are there.
    let rows = [
        (5, "Q4_3 (ggml type 5)", None),
        (31, "Q4_0_4_4 (ggml type 31)", None),
        (38, "IQ4_NL_8_8 (ggml type 38)", None),
        (132, "number 132, unknown to this program", None),
        (139, "number 139, a type of ik_llama.cpp", None),
        (344, "number 344, a type of ik_llama.cpp", None),
        (7777, "number 7777, unknown to this program", None),
    ];
    for (type_id, name, size_bytes) in rows {
        let tensors = vec![
            tensor("t", &[256, 2], type_id, 0),
            tensor("after", &[4], F32, 544),
        ];
        let header = Header::parse(&with_tensors(tensors, 560), Path::new("odd.gguf")).unwrap();
        let t = &header.tensors[0];
        assert_eq!(t.tensor_type.to_string(), name);
        assert_eq!(t.tensor_type.size_bytes(&t.shape), size_bytes, "{name}");
        assert_eq!(t.size_bytes, size_bytes.unwrap_or(544), "{name}");
        // Truncation is noticed all the same.
        let cut = with_tensors(vec![tensor("t", &[256, 2], type_id, 512)], 511);
        refused(cut, "BeyondFile", &["`t`", "truncated download"]);
    }
    // A fraction of a block.
    refused(one(&[255], 23, 0), "BadShape", &["`t`", "blocks of 256"]);
}

#[test]
fn tensor_shapes() {
    let huge = 1u64 << 62;
    refused(
        one(&[huge, huge], F32, 0),
        "BadShape",
        &["`t`", "4611686018427387904", "2^63 bytes"],
    );
    refused(
        one(&[huge], F32, 0),
        "BadShape",
        &["`t`", "[4611686018427387904]", "2^63 bytes"],
    );
    refused(
        one(&[0, huge, huge], F32, 0),
        "BadShape",
        &["`t`", "2^63 bytes"],
    );
    refused(
        one(&[33], 8, 0),
        "BadShape",
        &["`t`", "[33]", "whole q8_0 blocks of 32"],
    );
    refused(
        one(&[128, 2], 12, 0),
        "BadShape",
        &["`t`", "[2, 128]", "whole q4_k blocks of 256"],
    );
}

#[test]
fn tensor_places() {
    refused(
        one(&[4], F32, 16),
        "Misaligned",
        &["`t`", "offset 16", "a multiple of 32"],
    );
    // The table ends at byte 57, so the data starts at 64; with two rows at 90, so at 96.
    refused(
        one(&[4], F32, 1 << 20),
        "BeyondFile",
        &["`t` at offset 1048640", "needs 16", "has 128"],
    );
    refused(
        one(&[4], F32, u64::MAX - 31),
        "BeyondFile",
        &["`t`", "needs 16 bytes", "has 128"],
    );
    refused(
        one(&[32], F32, 0),
        "BeyondFile",
        &["`t` at offset 64", "needs 128", "has 128"],
    );
    let two = |first: u64, second: u64| {
        let row = |name, offset| tensor(name, &[32], F32, offset);
        with_tensors(vec![row("t", first), row("u", second)], 256)
    };
    Header::parse(&two(0, 128), Path::new("sound.gguf")).unwrap();
    refused(two(0, 0), "Overlap", &["overlaps"]);
    refused(
        two(0, 96),
        "Overlap",
        &["`u` at offset 192", "overlaps `t`", "ends at 224"],
    );
    refused(
        two(64, 0),
        "Overlap",
        &["`t` at offset 160", "overlaps `u`", "ends at 224"],
    );
}

#[test]
fn tensor_names() {
    let twins = vec![tensor("t", &[4], F32, 0), tensor("t", &[4], F32, 32)];
    refused(
        with_tensors(twins, 64),
        "DuplicateTensor",
        &["`t`", "twice"],
    );
    // No one can need a tensor whose name is not UTF-8.
    let mut not_utf8 = tensor("?", &[4], F32, 0);
    not_utf8[8] = 0xFF;
    let bytes = with_tensors(vec![not_utf8], 64);
    let header = Header::parse(&bytes, Path::new("odd.gguf")).unwrap();
    assert_eq!(header.tensors[0].name, r"\xff");
}

/// Odd but sound files of other writers must open.
#[test]
fn tolerated() {
    let reversed = vec![tensor("t", &[4], F32, 64), tensor("u", &[4], F32, 0)];
    let empty = vec![tensor("t", &[0, 7], F32, 0), tensor("u", &[4], F32, 0)];
    let nested = array(ARRAY, 1, &array(U32, 1, &[0; 4]));
    // A file without tensors may end with its metadata.
    let unpadded = spoilt(|f| (f.tensors, f.data, f.alignment) = (vec![], vec![], 1));
    assert_ne!(unpadded.len() % 32, 0, "the case needs a ragged end");
    for (name, bytes) in [
        (
            "a gap, and tensors out of order",
            with_tensors(reversed, 80),
        ),
        ("an empty tensor", with_tensors(empty, 16)),
        ("a scalar", one(&[], F32, 0)),
        ("a nested array", with_entry("k", ARRAY, &nested)),
        ("version 2", spoilt(|f| f.version = 2)),
        ("no padding", unpadded),
        (
            "an alignment",
            spoilt(|f| f.entries.push(entry_u32("general.alignment", 8))),
        ),
    ] {
        if let Err(error) = Header::parse(&bytes, Path::new("odd.gguf")) {
            panic!("{name}: {error}");
        }
    }
}
