//! The typed getters of GGUF metadata.

use std::path::Path;

use millrace_format::gguf::{GgufValue, Header, Metadata};

use crate::raw::{Gguf, is_error};

/// The metadata of the file `tiny.gguf`, and a key of many types.
fn metadata() -> Metadata {
    let header = Header::parse(&Gguf::valid().bytes(), Path::new("tiny.gguf")).unwrap();
    let mut metadata = header.metadata;
    metadata.insert("small", 7u8);
    metadata.insert("negative", -1i64);
    metadata.insert("double", 0.5f64);
    metadata.insert("flag", true);
    metadata.insert("flags", vec![true, false]);
    metadata.insert("ids", vec![1i32, 2]);
    metadata.insert("mixed", vec![1i32, -2]);
    metadata.insert("halves", vec![0.5f64]);
    metadata.insert("bytes", vec![1u8, 255]);
    metadata.insert("signed", vec![1i8, -1]);
    metadata.insert("words", vec!["a".to_owned()]);
    metadata
}

#[test]
fn any_width_that_fits_will_do() {
    let metadata = metadata();
    assert_eq!(metadata.get_u32("small").unwrap(), Some(7));
    assert_eq!(metadata.get_u64("small").unwrap(), Some(7));
    assert_eq!(metadata.get_usize("small").unwrap(), Some(7));
    assert_eq!(metadata.get_i32("negative").unwrap(), Some(-1));
    assert_eq!(metadata.get_f32("double").unwrap(), Some(0.5));
    assert_eq!(metadata.get_bool("flag").unwrap(), Some(true));
    assert_eq!(
        metadata.get_str("general.architecture").unwrap(),
        Some("llama")
    );
    assert_eq!(metadata.get_u32_array("ids").unwrap(), Some(vec![1, 2]));
    assert_eq!(metadata.get_i32_array("mixed").unwrap(), Some(vec![1, -2]));
    assert_eq!(metadata.get_f32_array("halves").unwrap(), Some(vec![0.5]));
    assert_eq!(
        metadata.get_bool_array("flags").unwrap(),
        Some([true, false].as_slice())
    );
    for key in ["bytes", "signed"] {
        assert_eq!(metadata.get_byte_array(key).unwrap(), Some(vec![1, 255]));
    }
    assert_eq!(metadata.get_byte_array("absent").unwrap(), None);
    let words = ["a".to_owned()];
    assert_eq!(
        metadata.get_str_array("words").unwrap(),
        Some(words.as_slice())
    );
    let ids = metadata.get_array("ids").unwrap().unwrap();
    assert_eq!(
        (ids.len(), ids.get(1), ids.get(2)),
        (2, Some(GgufValue::I32(2)), None)
    );
    assert_eq!(metadata.get_u32("absent").unwrap(), None);
}

#[test]
fn errors_name_key_expected_and_found() {
    let m = metadata();
    let rows = [
        (
            m.get_u32("negative").unwrap_err(),
            ["`negative`", "0..2^32", "i64 -1"],
        ),
        (
            m.get_u64("negative").unwrap_err(),
            ["`negative`", "0..2^64", "i64 -1"],
        ),
        (
            m.get_usize("negative").unwrap_err(),
            ["`negative`", "a size", "i64 -1"],
        ),
        (
            m.get_i32("double").unwrap_err(),
            ["`double`", "an integer", "f64 0.5"],
        ),
        (
            m.get_str("small").unwrap_err(),
            ["`small`", "a string", "u8 7"],
        ),
        (
            m.get_f32("small").unwrap_err(),
            ["`small`", "a float", "u8 7"],
        ),
        (
            m.get_bool("double").unwrap_err(),
            ["`double`", "a bool", "f64 0.5"],
        ),
    ];
    for (error, parts) in rows {
        is_error(&error, "KeyType", &["tiny.gguf"]);
        is_error(&error, "KeyType", &parts);
    }
    let error = m.required::<u32>("absent", None).unwrap_err();
    is_error(&error, "MissingKey", &["tiny.gguf", "`absent`", "missing"]);
    assert_eq!(m.required("small", Some(7)).unwrap(), 7);
}

#[test]
fn errors_of_arrays_say_what_they_hold() {
    let m = metadata();
    let rows = [
        (
            m.get_u32_array("mixed").unwrap_err(),
            ["`mixed`", "0..2^32", "i32 (2 items)"],
        ),
        (
            m.get_i32_array("small").unwrap_err(),
            ["`small`", "an array", "u8 7"],
        ),
        (
            m.get_f32_array("words").unwrap_err(),
            ["`words`", "floats", "array of str"],
        ),
        (
            m.get_byte_array("ids").unwrap_err(),
            ["`ids`", "bytes", "array of i32"],
        ),
        (
            m.get_bool_array("ids").unwrap_err(),
            ["`ids`", "bools", "array of i32"],
        ),
        (
            m.get_str_array("ids").unwrap_err(),
            ["`ids`", "strings", "array of i32"],
        ),
        (
            m.get_array("flag").unwrap_err(),
            ["`flag`", "an array", "bool true"],
        ),
    ];
    for (error, parts) in rows {
        is_error(&error, "KeyType", &["tiny.gguf"]);
        is_error(&error, "KeyType", &parts);
    }
}

#[test]
fn keys_keep_their_place() {
    let mut metadata = metadata();
    let n = metadata.len();
    assert_eq!(metadata.insert("small", 8u8), Some(GgufValue::U8(7)));
    assert_eq!(metadata.len(), n);
    metadata.retain(|key| key != "general.architecture");
    assert_eq!(metadata.get("general.architecture"), None);
    assert_eq!(metadata.get_u32("small").unwrap(), Some(8));
    assert_eq!(metadata.iter().next().unwrap().0, "llama.block_count");
}
