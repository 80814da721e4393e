//! Every way a safetensors file or index can be wrong, and the error it must give.

use std::path::Path;

use millrace_format::safetensors::{Header, Index};
use millrace_format::{Error, PlainType, TensorType};

use crate::raw::{f32_entry, is_error, safetensors, variant};

fn parse(bytes: &[u8]) -> Result<Header, Error> {
    Header::parse(bytes, Path::new("hostile.safetensors"))
}

/// Asserts that a header, with this number of data bytes, is refused with this variant and a
/// message that contains all of `parts`.
#[track_caller]
fn refused(header: &str, data_bytes: usize, variant: &str, parts: &[&str]) {
    let error = parse(&safetensors(header, &vec![0; data_bytes])).expect_err(variant);
    is_error(&error, variant, &["hostile.safetensors"]);
    is_error(&error, variant, parts);
}

/// A header of the tensor `t`.
fn one(dtype: &str, shape: &str, begin: &str, end: &str) -> String {
    format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}}}"#)
}

/// A header of the f32 vectors `t` and `name`.
fn two(t: (usize, usize), name: &str, other: (usize, usize)) -> String {
    format!(
        "{{{},{}}}",
        f32_entry("t", t.0, t.1),
        f32_entry(name, other.0, other.1)
    )
}

#[test]
fn the_length_of_the_header() {
    let error = parse(&[1, 0, 0]).unwrap_err();
    is_error(
        &error,
        "Truncated",
        &["header's length", "offset 0", "needs 8 bytes", "found 3"],
    );
    let error = parse(&[&u64::MAX.to_le_bytes(), b"{}".as_slice()].concat()).unwrap_err();
    is_error(
        &error,
        "Limit",
        &[
            "header's length",
            "18446744073709551615",
            "limit is 100000000",
        ],
    );
    let error = parse(&[&9u64.to_le_bytes(), b"{}".as_slice()].concat()).unwrap_err();
    is_error(
        &error,
        "Truncated",
        &["the header", "offset 8", "needs 9 bytes", "found 2"],
    );

    let whole = safetensors(&format!("{{{}}}", f32_entry("t", 4, 0)), &[0; 16]);
    parse(&whole).unwrap();
    for len in 0..whole.len() {
        let error = parse(&whole[..len]).expect_err("too short");
        let variant = variant(&error);
        assert!(
            ["Truncated", "BeyondFile"].contains(&variant.as_str()),
            "{len} bytes: {error:?}"
        );
    }
}

#[test]
fn json() {
    refused(
        "hello",
        0,
        "Json",
        &["the safetensors header is not valid", "line 1 column 1"],
    );
    refused("[]", 0, "Json", &["expected an object of tensors"]);
    refused("{} x", 0, "Json", &["trailing characters"]);
    // Deep nesting must end in an error too, not in a full stack.
    let deep = format!("{}1{}", "[".repeat(1 << 17), "]".repeat(1 << 17));
    refused(
        &format!(r#"{{"t":{deep}}}"#),
        0,
        "Json",
        &["the safetensors header is not valid"],
    );
    let unknown = format!(r#"{{"t":{{"x":{deep}}}}}"#);
    refused(&unknown, 0, "Json", &["missing field `dtype`"]);
    refused(
        r#"{"t":{"shape":[],"data_offsets":[0,0]}}"#,
        0,
        "Json",
        &["missing field `dtype`"],
    );
    refused(
        &one("F32", "[-1]", "0", "4"),
        4,
        "Json",
        &["integer `-1`", "expected u64"],
    );
    refused(
        &one("F32", "[1.5]", "0", "4"),
        4,
        "Json",
        &["1.5", "expected u64"],
    );
    refused(
        &one("F32", "[18446744073709551616]", "0", "4"),
        4,
        "Json",
        &["expected u64"],
    );
    refused(
        &one("F32", "[1]", "0", "4,8"),
        8,
        "Json",
        &["the safetensors header is not valid"],
    );
    let twice = r#"{"__metadata__":{},"__metadata__":{}}"#;
    refused(twice, 0, "Json", &["duplicate field `__metadata__`"]);
    refused(
        r#"{"__metadata__":{"a":1}}"#,
        0,
        "Json",
        &["expected a string"],
    );
}

#[test]
fn types_and_shapes() {
    // Listed, not decoded: type, bytes of four elements, whether the format says how many.
    for (dtype, size_bytes, shown) in [
        ("F8_E4M3", 4, "F8_E4M3"),
        ("F8_E8M0", 4, "F8_E8M0"),
        ("F6_E2M3", 3, "F6_E2M3"),
        ("F4", 2, "F4"),
        ("C64", 32, "C64"),
        ("Q9", 5, "\"Q9\", unknown to this program"),
    ] {
        let header = one(dtype, "[4]", "0", &size_bytes.to_string());
        let parsed = parse(&safetensors(&header, &vec![0; size_bytes])).unwrap();
        assert_eq!(parsed.tensors[0].tensor_type.to_string(), shown);
        assert_eq!(parsed.tensors[0].size_bytes, size_bytes, "{dtype}");
    }
    let short = one("F8_E4M3", "[4]", "0", "3");
    refused(
        &short,
        3,
        "SizeMismatch",
        &["`t`", "need 4 bytes", "found 3"],
    );
    refused(
        &one("F4", "[3]", "0", "2"),
        2,
        "BadShape",
        &["`t`", "blocks of 2"],
    );
    let nine = one("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4");
    refused(
        &nine,
        4,
        "Limit",
        &["dimensions of tensor `t`", "is 9", "limit is 8"],
    );
    let huge = one("F32", "[4294967296,4294967296]", "0", "4");
    refused(
        &huge,
        4,
        "BadShape",
        &["tensor `t`", "[4294967296, 4294967296]", "2^63 bytes"],
    );
}

#[test]
fn places() {
    refused(
        &two((1, 0), "t", (1, 4)),
        8,
        "DuplicateTensor",
        &["tensor `t`", "twice"],
    );
    refused(
        &one("F32", "[3]", "0", "16"),
        16,
        "SizeMismatch",
        &["`t`", "need 12 bytes", "found 16"],
    );
    refused(
        &one("F32", "[1]", "4", "0"),
        4,
        "BadField",
        &["data_offsets of tensor `t`", "[4, 0]"],
    );
    let short = &[
        "tensor `t`",
        "needs 16 bytes",
        "has 75 bytes",
        "truncated download",
    ];
    refused(&one("F32", "[4]", "0", "16"), 12, "BeyondFile", short);
    let overflow = one("F32", "[1]", "18446744073709551611", "18446744073709551615");
    refused(&overflow, 4, "BeyondFile", &["tensor `t`", "needs 4 bytes"]);
    refused(
        &two((2, 0), "u", (2, 4)),
        12,
        "Overlap",
        &["`u` at offset", "overlaps `t`"],
    );
    refused(
        &two((1, 0), "u", (1, 8)),
        12,
        "Hole",
        &["belong to no tensor"],
    );
    refused(
        &one("F32", "[1]", "4", "8"),
        8,
        "Hole",
        &["bytes 62..66 belong to no tensor"],
    );
    refused(
        &one("F32", "[1]", "0", "4"),
        9,
        "Hole",
        &["bytes 66..71 belong to no tensor"],
    );
}

/// A file of the tensor `w`, of 10240 bytes.
fn blocks(dtype: &str, shape: &str, metadata: &str, name: &str) -> Result<Header, Error> {
    let header = format!(
        r#"{{"__metadata__":{{{metadata}}},"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,10240]}}}}"#
    );
    Header::parse(&safetensors(&header, &[0; 10240]), Path::new(name))
}

#[test]
fn spellings_of_q4nx() {
    let header = blocks("I8", "[2,5120]", "", "model.q4nx").unwrap();
    let w = &header.tensors[0];
    let seen = (w.tensor_type.name(), w.nominal_shape, w.shape.as_slice());
    assert_eq!(seen, ("q4nx", true, [64, 256].as_slice()));
    for (matrix, fits) in [
        ([32, 512], true),
        ([64, 256], true),
        ([16, 1024], false),
        ([96, 256], false),
    ] {
        assert_eq!(w.has_shape(&matrix), fits, "{matrix:?}");
    }
    assert!(!w.has_shape(&[2, 32, 256]), "a matrix has two dimensions");

    let note = r#""millrace.shape.w":"32,512""#;
    let header = blocks("I8", "[2,5120]", note, "a.safetensors").unwrap();
    let w = &header.tensors[0];
    let seen = (w.tensor_type.name(), w.nominal_shape, w.shape.as_slice());
    assert_eq!(seen, ("q4nx", false, [32, 512].as_slice()));

    let header = blocks("Q4NX", "[64,256]", "", "a.safetensors").unwrap();
    assert_eq!(header.tensors[0].tensor_type.name(), "q4nx_sub");
    let header = blocks("I8", "[2,5120]", "", "a.safetensors").unwrap();
    let plain = TensorType::Plain(PlainType::I8);
    assert_eq!(
        header.tensors[0].tensor_type, plain,
        "only bundles hold blocks"
    );
}

#[test]
fn q4nx_shapes() {
    for shape in [
        "32,256",
        "16,1024",
        "64,256,1",
        "x,y",
        "",
        "18446744073709551615,256",
    ] {
        let note = format!(r#""millrace.shape.w":"{shape}""#);
        let error = blocks("I8", "[2,5120]", &note, "model.q4nx").expect_err(shape);
        is_error(
            &error,
            "BadField",
            &["model.q4nx", "`w` (2 Q4NX blocks)", "`n,k`", shape],
        );
    }
    let error = blocks("Q4NX", "[64,250]", "", "model.q4nx").unwrap_err();
    is_error(
        &error,
        "BadShape",
        &["model.q4nx", "`w`", "[64, 250]", "blocks of [32, 256]"],
    );
    let error = blocks("I8", "[576460752303423488,5120]", "", "model.q4nx").unwrap_err();
    is_error(&error, "BadShape", &["model.q4nx", "`w`"]);
    let error = blocks("I8", "[3,5120]", "", "model.q4nx").unwrap_err();
    is_error(
        &error,
        "SizeMismatch",
        &["`w`", "need 15360 bytes", "found 10240"],
    );
}

fn index(weight_map: &str) -> Result<Index, Error> {
    let json = format!(r#"{{"weight_map":{{{weight_map}}}}}"#);
    Index::parse(json.as_bytes(), Path::new("m.index.json"))
}

#[test]
fn an_index_reads_what_it_writes() {
    let read = index(r#""a":"x.safetensors","b":"y.safetensors","c":"x.safetensors""#).unwrap();
    assert_eq!(read.shards(), ["x.safetensors", "y.safetensors"]);
    let again = Index::parse(read.to_json(12).as_bytes(), Path::new("again.json")).unwrap();
    assert_eq!(again, read);
}

#[test]
fn indices() {
    let outside = [
        "../x.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..",
        ".",
        "",
        "./x",
        "x/",
    ];
    for shard in outside.iter().chain(&["a\\\\b", "x\\u0000y"]) {
        let error = index(&format!(r#""a":"{shard}""#)).expect_err(shard);
        is_error(
            &error,
            "UnsafeShardName",
            &["m.index.json", "tensor `a`", "a plain file name"],
        );
    }
    for shard in ["model.safetensors.index.json", "other.JSON"] {
        let error = index(&format!(r#""a":"{shard}""#)).expect_err(shard);
        is_error(
            &error,
            "CyclicIndex",
            &["m.index.json", "cyclic", shard, "tensor `a`"],
        );
    }
    let error = index(r#""a":"x","a":"y""#).unwrap_err();
    is_error(
        &error,
        "DuplicateTensor",
        &["m.index.json", "tensor `a`", "twice"],
    );
    let error = index("").unwrap_err();
    is_error(
        &error,
        "BadField",
        &["m.index.json", "weight_map", "at least one tensor", "none"],
    );
    let not_objects = [
        "",
        "{}",
        "[]",
        r#"{"weight_map":[]}"#,
        r#"{"weight_map":{"a":1}}"#,
        "{\"weight_map\":{",
    ];
    for json in not_objects {
        let error = Index::parse(json.as_bytes(), Path::new("m.index.json")).expect_err(json);
        is_error(
            &error,
            "Json",
            &["m.index.json", "the safetensors index is not valid"],
        );
    }
}
