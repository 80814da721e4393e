//! Edits of a valid file that an input describes: they reach places that a fuzzer's own mutations of large files seldom
//! reach.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Value, json};

/// Numbers at which readers err: ends of integer types, sizes beyond any file, and small ones.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    3,
    7,
    32,
    255,
    256,
    65_535,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 63,
    u64::MAX,
];

/// Changes up to four places of `bytes`, most of the time among the first `within`.
pub fn edit_bytes(bytes: &mut Vec<u8>, within: usize, input: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..input.int_in_range(0..=4)? {
        let end = match input.ratio(7, 8)? {
            true => within.min(bytes.len()),
            false => bytes.len(),
        };
        if end == 0 {
            return Ok(());
        }
        let at = input.int_in_range(0..=end - 1)?;
        match input.int_in_range(0..=4u8)? {
            0 => bytes[at] = input.arbitrary()?,
            1 => bytes[at] ^= 1 << input.int_in_range(0..=7)?,
            2 => {
                let number = *input.choose(&NUMBERS)?;
                let width = *input.choose(&[1usize, 2, 4, 8])?;
                let end = (at + width).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            3 => bytes.truncate(at),
            _ => {
                let n = input.int_in_range(0..=16)?;
                bytes.splice(at..at, input.bytes(n)?.iter().copied());
            }
        }
    }
    Ok(())
}

/// Replaces up to three values in a JSON document, or leaves their keys out.
pub fn edit_json(document: &mut Value, input: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..input.int_in_range(0..=3)? {
        edit_one(document, input)?;
    }
    Ok(())
}

fn edit_one(value: &mut Value, input: &mut Unstructured<'_>) -> Result<()> {
    match value {
        Value::Object(map) if !map.is_empty() => {
            let at = input.int_in_range(0..=map.len() - 1)?;
            let key = map.keys().nth(at).cloned().unwrap_or_default();
            match input.int_in_range(0..=9u8)? {
                0 => {
                    map.remove(&key);
                }
                1 => {
                    let other = map.values().nth(at / 2).cloned().unwrap_or_default();
                    map.insert(key, other);
                }
                _ => edit_one(&mut map[&key], input)?,
            }
        }
        Value::Array(list) if !list.is_empty() && input.ratio(3, 4)? => {
            let at = input.int_in_range(0..=list.len() - 1)?;
            edit_one(&mut list[at], input)?;
        }
        other => *other = odd_value(input)?,
    }
    Ok(())
}

fn odd_value(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match input.int_in_range(0..=8u8)? {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => input.arbitrary::<bool>()?.into(),
        4 => input.arbitrary::<&str>()?.into(),
        5 => json!(input.arbitrary::<f64>()?),
        6 => json!([input.arbitrary::<i32>()?, "x", null]),
        7 => input.arbitrary::<i16>()?.into(),
        _ => (*input.choose(&NUMBERS)?).into(),
    })
}
