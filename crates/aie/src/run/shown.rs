//! Bytes as numbers.

/// The first elements of bytes.
pub(super) fn first(element: &crate::syntax::Type, bytes: &[u8]) -> String {
    const SHOWN: usize = 8;
    let (Some(number), Some(size)) = (
        crate::core::Number::in_memory(element),
        element.size_bytes(),
    ) else {
        return String::new();
    };
    let is_unsigned = matches!(
        element,
        crate::syntax::Type::Integer {
            is_unsigned: true,
            ..
        }
    );
    let text = |chunk: &[u8]| match number.read(chunk) {
        crate::core::CoreValue::Integer(value) if is_unsigned => number.unsigned(value).to_string(),
        crate::core::CoreValue::Integer(value) => value.to_string(),
        crate::core::CoreValue::Float(value) => format!("{value}"),
        _ => String::new(),
    };
    let chunks = bytes.chunks_exact(size as usize);
    let more = if chunks.len() > SHOWN { " …" } else { "" };
    let words: Vec<String> = chunks.take(SHOWN).map(text).collect();
    words.join(" ") + more
}
