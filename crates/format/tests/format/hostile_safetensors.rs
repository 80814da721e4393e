//! Every way a safetensors file or index can be wrong, and the error it must give.

use std::path::Path;

use millrace_format::safetensors::{Header, Index};
use millrace_format::{Error, PlainType, TensorType};

use crate::raw::{f32_entry, safetensors, says};

type IsExpected = fn(&Error) -> bool;

/// Name, header, bytes of data, check, what the message says.
type Case = (
    &'static str,
    String,
    usize,
    IsExpected,
    &'static [&'static str],
);

fn check(cases: Vec<Case>) {
    for (name, header, data_bytes, is_expected, parts) in cases {
        let bytes = safetensors(&header, &vec![0; data_bytes]);
        let error = Header::parse(&bytes, Path::new("hostile.safetensors")).expect_err(name);
        assert!(is_expected(&error), "{name}: got {error:?}");
        says(name, &error, &["hostile.safetensors"]);
        says(name, &error, parts);
    }
}

fn one(dtype: &str, shape: &str, begin: &str, end: &str) -> String {
    format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}}}"#)
}

#[test]
fn the_length_of_the_header() {
    let parse = |bytes: &[u8]| Header::parse(bytes, Path::new("hostile.safetensors"));
    let error = parse(&[1, 0, 0]).unwrap_err();
    is_error(&error, "Truncated", &[]);
    let error = parse(&[&u64::MAX.to_le_bytes(), b"{}".as_slice()].concat()).unwrap_err();
    is_error(&error, "Limit", &[]);
    let error = parse(&[&9u64.to_le_bytes(), b"{}".as_slice()].concat()).unwrap_err();
    is_error(
        &error,
        "Truncated",
        &[
            "hostile.safetensors",
            "header",
            "offset 8",
            "9 bytes",
            "found 2",
        ],
    );
    let whole = safetensors(&format!("{{{}}}", f32_entry("t", 4, 0)), &[0; 16]);
    parse(&whole).unwrap();
    for len in 0..whole.len() {
        let error = parse(&whole[..len]).expect_err("too short");
        assert!(
            matches!(error, Error::Truncated { .. } | Error::BeyondFile { .. }),
            "{len}: {error:?}"
        );
    }
}

#[test]
fn json() {
    let deep = format!(r#"{{"t":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
    let is_json: IsExpected = |error| matches!(error, Error::Json { .. });
    let twice = r#"{"__metadata__":{},"__metadata__":{}}"#;
    check(vec![
        ("no JSON", "hello".into(), 0, is_json, &["header", "line 1"]),
        ("an array", "[]".into(), 0, is_json, &["object of tensors"]),
        ("trailing text", "{} x".into(), 0, is_json, &["trailing"]),
        ("deep nesting", deep, 0, is_json, &["header"]),
        (
            "no dtype",
            r#"{"t":{"shape":[],"data_offsets":[0,0]}}"#.into(),
            0,
            is_json,
            &["dtype"],
        ),
        (
            "negative dimension",
            one("F32", "[-1]", "0", "4"),
            4,
            is_json,
            &["-1"],
        ),
        (
            "fraction",
            one("F32", "[1.5]", "0", "4"),
            4,
            is_json,
            &["1.5"],
        ),
        (
            "dimension of 2^64",
            one("F32", "[18446744073709551616]", "0", "4"),
            4,
            is_json,
            &["u64"],
        ),
        (
            "three offsets",
            one("F32", "[1]", "0", "4,8"),
            8,
            is_json,
            &["header"],
        ),
        (
            "metadata twice",
            twice.into(),
            0,
            is_json,
            &["duplicate", "__metadata__"],
        ),
        (
            "metadata of numbers",
            r#"{"__metadata__":{"a":1}}"#.into(),
            0,
            is_json,
            &["string"],
        ),
    ]);
}

#[test]
fn tensors() {
    let both = |a: String, b: String| format!("{{{a},{b}}}");
    let twins = both(f32_entry("t", 1, 0), f32_entry("t", 1, 4));
    let overlap = both(f32_entry("t", 2, 0), f32_entry("u", 2, 4));
    let hole = both(f32_entry("t", 1, 0), f32_entry("u", 1, 8));
    let late = format!("{{{}}}", f32_entry("t", 1, 4));
    let overflow = one("F32", "[1]", "18446744073709551611", "18446744073709551615");
    let unread: IsExpected = |error| matches!(error, Error::UnsupportedType { .. });
    let beyond: IsExpected = |error| matches!(error, Error::BeyondFile { .. });
    let bad_shape: IsExpected = |error| matches!(error, Error::BadShape { .. });
    let size: IsExpected = |error| matches!(error, Error::SizeMismatch { .. });
    let is_hole: IsExpected = |error| matches!(error, Error::Hole { .. });
    check(vec![
        (
            "duplicate name",
            twins,
            8,
            |e| matches!(e, Error::DuplicateTensor { .. }),
            &["`t`", "twice"],
        ),
        (
            "float8",
            one("F8_E4M3", "[4]", "0", "4"),
            4,
            unread,
            &["`t`", "F8_E4M3", "convert"],
        ),
        (
            "unknown type",
            one("Q9", "[4]", "0", "4"),
            4,
            unread,
            &["`t`", "\"Q9\"", "unknown"],
        ),
        (
            "too many dimensions",
            one("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4"),
            4,
            |e| {
                matches!(
                    e,
                    Error::Limit {
                        found: 9,
                        limit: 8,
                        ..
                    }
                )
            },
            &["`t`", "is 9", "limit is 8"],
        ),
        (
            "dimensions overflow",
            one("F32", "[4294967296,4294967296]", "0", "4"),
            4,
            bad_shape,
            &["`t`", "4294967296", "2^63"],
        ),
        (
            "bytes for another shape",
            one("F32", "[3]", "0", "16"),
            16,
            size,
            &["`t`", "need 12 bytes", "found 16"],
        ),
        (
            "offsets reversed",
            one("F32", "[1]", "4", "0"),
            4,
            |e| matches!(e, Error::BadField { .. }),
            &["`t`", "[4, 0]"],
        ),
        (
            "beyond the file",
            one("F32", "[4]", "0", "16"),
            12,
            beyond,
            &["`t`", "needs 16 bytes", "truncated download"],
        ),
        ("offset overflows", overflow, 4, beyond, &["`t`"]),
        (
            "overlap",
            overlap,
            12,
            |e| matches!(e, Error::Overlap { .. }),
            &["`u`", "overlaps `t`"],
        ),
        ("hole between", hole, 12, is_hole, &["belong to no tensor"]),
        ("hole before", late, 8, is_hole, &["belong to no tensor"]),
        (
            "hole behind",
            one("F32", "[1]", "0", "4"),
            9,
            is_hole,
            &["belong to no tensor"],
        ),
    ]);
}

fn blocks(dtype: &str, shape: &str, metadata: &str) -> String {
    format!(
        r#"{{"__metadata__":{{{metadata}}},"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,10240]}}}}"#
    )
}

#[test]
fn q4nx_shapes() {
    let data = vec![0; 10240];
    let parse =
        |header: &str, name: &str| Header::parse(&safetensors(header, &data), Path::new(name));
    let header = parse(&blocks("I8", "[2,5120]", ""), "model.q4nx").unwrap();
    let w = &header.tensors[0];
    assert_eq!(
        (w.tensor_type.name(), w.nominal_shape, w.shape.as_slice()),
        ("q4nx", true, [64, 256].as_slice())
    );
    for (matrix, fits) in [
        ([32, 512], true),
        ([64, 256], true),
        ([16, 1024], false),
        ([96, 256], false),
    ] {
        assert_eq!(w.has_shape(&matrix), fits, "{matrix:?}");
    }
    assert!(!w.has_shape(&[2, 32, 256]), "a matrix has two dimensions");
    let header = parse(
        &blocks("I8", "[2,5120]", r#""millrace.shape.w":"32,512""#),
        "a.safetensors",
    )
    .unwrap();
    let w = &header.tensors[0];
    assert_eq!(
        (w.tensor_type.name(), w.nominal_shape, w.shape.as_slice()),
        ("q4nx", false, [32, 512].as_slice())
    );
    let header = parse(&blocks("Q4NX", "[64,256]", ""), "a.safetensors").unwrap();
    assert_eq!(header.tensors[0].tensor_type.name(), "q4nx_sub");
    let header = parse(&blocks("I8", "[2,5120]", ""), "a.safetensors").unwrap();
    let plain = TensorType::Plain(PlainType::I8);
    assert_eq!(
        header.tensors[0].tensor_type, plain,
        "only bundles hold blocks"
    );

    for shape in [
        "32,256",
        "16,1024",
        "64,256,1",
        "x,y",
        "",
        "18446744073709551615,256",
    ] {
        let notes = format!(r#""millrace.shape.w":"{shape}""#);
        let error = parse(&blocks("I8", "[2,5120]", &notes), "model.q4nx").expect_err(shape);
        assert!(
            matches!(error, Error::BadField { .. }),
            "{shape}: {error:?}"
        );
        says(
            shape,
            &error,
            &["model.q4nx", "`w`", "2 Q4NX blocks", "n,k"],
        );
    }
    let error = parse(&blocks("Q4NX", "[64,250]", ""), "model.q4nx").unwrap_err();
    is_error(&error, "BadShape", &["`w`", "[64, 250]", "[32, 256]"]);
    let error = parse(&blocks("I8", "[576460752303423488,5120]", ""), "model.q4nx").unwrap_err();
    is_error(&error, "BadShape", &[]);
}

#[test]
fn index() {
    let parse = |json: &str| Index::parse(json.as_bytes(), Path::new("m.index.json"));
    let map = |entries: &str| format!(r#"{{"weight_map":{{{entries}}}}}"#);
    let index = parse(&map(
        r#""a":"x.safetensors","b":"y.safetensors","c":"x.safetensors""#,
    ))
    .unwrap();
    assert_eq!(index.shards(), ["x.safetensors", "y.safetensors"]);
    let again = parse(&index.to_json(12)).unwrap();
    assert_eq!(again, index);

    for shard in [
        "../x.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..",
        ".",
        "",
        "./x",
        "x/",
        "a\\\\b",
        "x\\u0000y",
    ] {
        let error = parse(&map(&format!(r#""a":"{shard}""#))).expect_err(shard);
        assert!(
            matches!(error, Error::UnsafeShardName { .. }),
            "{shard}: {error:?}"
        );
        says(shard, &error, &["m.index.json", "`a`", "plain file name"]);
    }
    for shard in ["model.safetensors.index.json", "other.JSON"] {
        let error = parse(&map(&format!(r#""a":"{shard}""#))).expect_err(shard);
        assert!(
            matches!(error, Error::CyclicIndex { .. }),
            "{shard}: {error:?}"
        );
        says(shard, &error, &["m.index.json", "`a`", "cyclic", shard]);
    }
    let error = parse(&map(r#""a":"x","a":"y""#)).unwrap_err();
    is_error(&error, "DuplicateTensor", &[]);
    for json in [
        "",
        "{}",
        "[]",
        r#"{"weight_map":[]}"#,
        r#"{"weight_map":{"a":1}}"#,
        "{\"weight_map\":{\"a\":\"x\"}",
    ] {
        let error = parse(json).expect_err(json);
        assert!(matches!(error, Error::Json { .. }), "{json}: {error:?}");
        says(json, &error, &["m.index.json", "index"]);
    }
    let error = parse(&map("")).unwrap_err();
    is_error(
        &error,
        "BadField",
        &["m.index.json", "weight_map", "at least one"],
    );
}
