//! Every way a GGUF file can be wrong, and the error it must give.

use std::path::Path;

use millrace_format::Error;
use millrace_format::gguf::Header;

use crate::raw::{ARRAY, F32, Gguf, STR, U32, array, entry, entry_u32, is_error, string, tensor};

/// Asserts that the bytes are refused with this variant and a message that says all of `parts`.
#[track_caller]
fn refused(bytes: Vec<u8>, variant: &str, parts: &[&str]) {
    let error = Header::parse(&bytes, Path::new("hostile.gguf")).expect_err(variant);
    is_error(&error, variant, &["hostile.gguf"]);
    is_error(&error, variant, parts);
}

/// A valid file with one metadata entry added.
fn with_entry(entry: Vec<u8>) -> Vec<u8> {
    let mut file = Gguf::valid();
    file.entries.push(entry);
    file.bytes()
}

/// A file of these tensors and so many bytes of data.
fn with_tensors(tensors: Vec<Vec<u8>>, data_bytes: usize) -> Vec<u8> {
    Gguf {
        tensors,
        data: vec![0; data_bytes],
        ..Gguf::empty()
    }
    .bytes()
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
    let valid = Gguf::valid();
    let mut big_endian = Gguf::valid().bytes();
    big_endian[4..8].copy_from_slice(&3u32.to_be_bytes());
    let reversed = Gguf {
        magic: *b"FUGG",
        ..valid.clone()
    };
    let old = Gguf {
        version: 1,
        ..valid.clone()
    };
    let new = Gguf {
        version: 4,
        ..valid.clone()
    };
    let zero = Gguf {
        version: 0,
        ..valid.clone()
    };
    let ggml = Gguf {
        magic: *b"lmgg",
        ..valid.clone()
    };
    refused(
        vec![],
        "Truncated",
        &["magic", "offset 0", "needs 4", "found 0"],
    );
    refused(b"GG".to_vec(), "Truncated", &["needs 4", "found 2"]);
    refused(ggml.bytes(), "UnknownFormat", &["`GGUF`", "`lmgg`"]);
    refused(zero.bytes(), "Version", &["version 0", "2 or 3"]);
    refused(old.bytes(), "Version", &["version 1", "2 or 3"]);
    refused(new.bytes(), "Version", &["version 4", "2 or 3"]);
    refused(big_endian, "BigEndian", &["big-endian", "version 3"]);
    refused(reversed.bytes(), "BigEndian", &["big-endian"]);
}

#[test]
fn truncated_anywhere() {
    let whole = Gguf::valid().bytes();
    for len in 0..whole.len() {
        let error = Header::parse(&whole[..len], Path::new("short.gguf")).expect_err("too short");
        let is_named = matches!(error, Error::Truncated { .. } | Error::BeyondFile { .. });
        assert!(is_named, "cut to {len} bytes: {error:?}");
    }
}

#[test]
fn counts_and_lengths_beyond_the_file() {
    let valid = Gguf::valid();
    let entries = Gguf {
        n_entries: Some(1 << 60),
        ..valid.clone()
    };
    let tensors = Gguf {
        n_tensors: Some(u64::MAX),
        ..valid.clone()
    };
    let one_more = Gguf {
        n_tensors: Some(3),
        data: vec![],
        ..valid.clone()
    };
    let long_key = Gguf {
        entries: vec![[70_000u64.to_le_bytes(), [0; 8]].concat()],
        ..Gguf::empty()
    };
    let key_past_end = Gguf {
        entries: vec![[300u64.to_le_bytes().as_slice(), &[b'k'; 20]].concat()],
        ..Gguf::empty()
    };
    let long_str = with_entry(entry("k", STR, &u64::MAX.to_le_bytes()));
    let long_array = with_entry(entry("k", ARRAY, &array(U32, 1 << 40, &[])));
    let huge_array = with_entry(entry("k", ARRAY, &array(10, u64::MAX, &[])));
    let strings = with_entry(entry("k", ARRAY, &array(STR, 1 << 33, &[])));
    let five_dims = with_tensors(vec![tensor("t", &[1; 5], F32, 0)], 4);
    let many_dims = with_tensors(
        vec![[string(b"t"), u32::MAX.to_le_bytes().to_vec(), vec![0; 40]].concat()],
        4,
    );
    let deep = (0..6).fold(array(U32, 0, &[]), |inner, _| array(ARRAY, 1, &inner));
    refused(
        entries.bytes(),
        "Truncated",
        &["metadata", "1152921504606846976 items", "offset 24"],
    );
    refused(
        tensors.bytes(),
        "Truncated",
        &["tensor table", "18446744073709551615 items"],
    );
    refused(one_more.bytes(), "Truncated", &["found"]);
    refused(
        long_key.bytes(),
        "Limit",
        &["metadata key", "offset 24", "70000", "65535"],
    );
    refused(
        key_past_end.bytes(),
        "Truncated",
        &["metadata key", "offset 32", "300 bytes"],
    );
    refused(
        long_str,
        "Truncated",
        &["k needs", "18446744073709551615 bytes"],
    );
    refused(long_array, "Truncated", &["k (1099511627776 items)"]);
    refused(huge_array, "Truncated", &["items"]);
    refused(strings, "Truncated", &["k (8589934592 items)"]);
    refused(five_dims, "Limit", &["tensor `t`", "is 5", "limit is 4"]);
    refused(many_dims, "Limit", &["tensor `t`"]);
    refused(
        with_entry(entry("k", ARRAY, &deep)),
        "Limit",
        &["nesting", "`k`", "limit is 4"],
    );
}

#[test]
fn metadata() {
    let not_utf8 = with_entry(entry("k", STR, &string(&[0xFF, 0xFE])));
    let bad_key = Gguf {
        entries: vec![[string(&[0xC0]), vec![0; 8]].concat()],
        ..Gguf::empty()
    };
    let alignment = |value| with_entry(entry_u32("general.alignment", value));
    let text_alignment = with_entry(entry("general.alignment", STR, &string(b"32")));
    refused(
        with_entry(entry_u32("llama.block_count", 2)),
        "DuplicateKey",
        &["`llama.block_count`", "twice"],
    );
    refused(
        with_entry(entry("k", 13, &[0; 8])),
        "BadField",
        &["`k`", "0..=12", "found 13"],
    );
    refused(
        with_entry(entry("k", ARRAY, &array(99, 0, &[]))),
        "BadField",
        &["`k`", "found 99"],
    );
    refused(
        with_entry(entry("k", 7, &[2])),
        "BadField",
        &["bool", "`k`", "0 or 1", "found 2"],
    );
    refused(not_utf8, "NotUtf8", &["k at offset", "UTF-8"]);
    refused(bad_key.bytes(), "NotUtf8", &["offset 24"]);
    refused(
        alignment(0),
        "KeyType",
        &["general.alignment", "power of two", "found 0"],
    );
    refused(
        alignment(24),
        "KeyType",
        &["general.alignment", "power of two", "found 24"],
    );
    refused(
        text_alignment,
        "KeyType",
        &["general.alignment", "integer", "str \"32\""],
    );
}

#[test]
fn tensors() {
    let huge = 1u64 << 62;
    let one =
        |dims: &[u64], type_id, offset| with_tensors(vec![tensor("t", dims, type_id, offset)], 64);
    let two = |first: u64, second: u64, type_id| {
        with_tensors(
            vec![
                tensor("t", &[32], type_id, first),
                tensor("u", &[32], type_id, second),
            ],
            256,
        )
    };
    let twins = with_tensors(
        vec![tensor("t", &[4], F32, 0), tensor("t", &[4], F32, 32)],
        64,
    );
    let not_utf8 = with_tensors(vec![[string(&[0xFF]), vec![0; 24]].concat()], 64);
    refused(twins, "DuplicateTensor", &["`t`", "twice"]);
    refused(not_utf8, "NotUtf8", &["tensor name"]);
    refused(
        one(&[256], 16, 0),
        "UnsupportedType",
        &["`t`", "IQ2_XXS", "16"],
    );
    refused(one(&[256], 34, 0), "UnsupportedType", &["TQ1_0"]);
    refused(one(&[256], 40, 0), "UnsupportedType", &["NVFP4"]);
    refused(one(&[256], 31, 0), "UnsupportedType", &["Q4_0_4_4"]);
    refused(
        one(&[256], 7777, 0),
        "UnsupportedType",
        &["`t`", "number 7777", "unknown"],
    );
    refused(
        one(&[4], F32, 16),
        "Misaligned",
        &["`t`", "offset 16", "multiple of 32"],
    );
    refused(
        one(&[huge, huge], F32, 0),
        "BadShape",
        &["`t`", "4611686018427387904", "2^63"],
    );
    refused(one(&[huge], F32, 0), "BadShape", &["`t`", "2^63"]);
    refused(one(&[0, huge, huge], F32, 0), "BadShape", &["`t`"]);
    refused(
        one(&[33], 8, 0),
        "BadShape",
        &["`t`", "[33]", "blocks of 32"],
    );
    refused(
        one(&[128, 2], 12, 0),
        "BadShape",
        &["[2, 128]", "q4_k", "256"],
    );
    refused(
        one(&[4], F32, 1 << 20),
        "BeyondFile",
        &["`t`", "needs 16 bytes"],
    );
    refused(one(&[4], F32, u64::MAX - 31), "BeyondFile", &["`t`"]);
    refused(
        one(&[32], F32, 0),
        "BeyondFile",
        &["`t`", "needs 128 bytes"],
    );
    refused(two(0, 0, F32), "Overlap", &["overlaps"]);
    refused(
        two(0, 96, F32),
        "Overlap",
        &["`u`", "overlaps `t`", "ends at"],
    );
    refused(two(64, 0, F32), "Overlap", &["`t`", "overlaps `u`"]);
}

/// Odd but sound: what other writers produce must open.
#[test]
fn tolerated() {
    let gap = with_tensors(
        vec![tensor("t", &[4], F32, 64), tensor("u", &[4], F32, 0)],
        80,
    );
    let empty = with_tensors(
        vec![tensor("t", &[0, 7], F32, 0), tensor("u", &[4], F32, 0)],
        16,
    );
    let scalar = with_tensors(vec![tensor("t", &[], F32, 0)], 4);
    let nested = with_entry(entry("k", ARRAY, &array(ARRAY, 1, &array(U32, 1, &[0; 4]))));
    let version_2 = Gguf {
        version: 2,
        ..Gguf::valid()
    }
    .bytes();
    let no_padding = {
        // A file without tensors may end with its metadata.
        let mut bytes = Gguf {
            tensors: vec![],
            data: vec![],
            alignment: 1,
            ..Gguf::valid()
        }
        .bytes();
        assert_ne!(bytes.len() % 32, 0, "the case needs a ragged end");
        bytes.shrink_to_fit();
        bytes
    };
    for (name, bytes) in [
        ("gap", gap),
        ("empty tensor", empty),
        ("scalar", scalar),
        ("nested", nested),
        ("version 2", version_2),
        ("no padding", no_padding),
    ] {
        if let Err(error) = Header::parse(&bytes, Path::new("odd.gguf")) {
            panic!("{name}: {error}");
        }
    }
}
