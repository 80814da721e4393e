//! Every way a GGUF file can be wrong, and the error it must give.

use std::path::Path;

use millrace_format::gguf::Header;

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

/// A file of these tensors and so many bytes of data.
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
    refused(
        with_entry("k", STR, &string(&[0xFF])),
        "NotUtf8",
        &["`k`", "at offset", "UTF-8"],
    );
    let bad_key = [string(&[0xC0]), vec![0; 8]].concat();
    let bad_key = Gguf {
        entries: vec![bad_key],
        ..Gguf::empty()
    }
    .bytes();
    refused(bad_key, "NotUtf8", &["a metadata key at offset 24"]);
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

#[test]
fn tensor_types() {
    for (type_id, name) in [
        (16, "IQ2_XXS"),
        (34, "TQ1_0"),
        (40, "NVFP4"),
        (31, "Q4_0_4_4"),
    ] {
        let found = format!("{name} (ggml type {type_id})");
        refused(
            one(&[256], type_id, 0),
            "UnsupportedType",
            &["tensor `t`", &found, "requantise"],
        );
    }
    refused(
        one(&[256], 7777, 0),
        "UnsupportedType",
        &["tensor `t`", "number 7777, unknown"],
    );
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
    let not_utf8 = [string(&[0xFF]), vec![0; 24]].concat();
    refused(
        with_tensors(vec![not_utf8], 64),
        "NotUtf8",
        &["a tensor name at offset 24"],
    );
}

/// Odd but sound: what other writers produce must open.
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
