//! GPT-2's byte alphabet: each byte as one printable character.
//!
//! Byte-level vocabularies are written as text in which each character represents a byte. Printable
//! ASCII and most of Latin-1 represent themselves. The other 68 bytes have the characters from
//! U+0100 on, in order (`bytes_to_unicode` of OpenAI's GPT-2 encoder).

/// The character of each byte.
pub(crate) const CHAR_OF_BYTE: [char; 256] = build();

/// One past the last character of the alphabet: 68 bytes have the characters from U+0100 on.
const END: usize = 0x100 + 68;

const NOT_A_BYTE: u16 = u16::MAX;

/// The byte of each character below [`END`].
const BYTE_OF_CHAR: [u16; END] = invert();

const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn build() -> [char; 256] {
    let mut table = ['\0'; 256];
    let (mut byte, mut next) = (0usize, 0x100u32);
    while byte < 256 {
        let code = if stands_for_itself(byte as u8) {
            byte as u32
        } else {
            next += 1;
            next - 1
        };
        table[byte] = match char::from_u32(code) {
            Some(c) => c,
            None => panic!("the alphabet lies below U+0144"),
        };
        byte += 1;
    }
    table
}

const fn invert() -> [u16; END] {
    let mut table = [NOT_A_BYTE; END];
    let mut byte = 0;
    while byte < 256 {
        table[CHAR_OF_BYTE[byte] as usize] = byte as u16;
        byte += 1;
    }
    table
}

/// Appends the bytes that a text represents; `false`, with `out` unchanged, if a character is outside the alphabet.
pub(crate) fn decode_into(text: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    for c in text.chars() {
        match BYTE_OF_CHAR.get(c as usize) {
            Some(&byte) if byte != NOT_A_BYTE => out.push(byte as u8),
            _ => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_characters() {
        assert_eq!(CHAR_OF_BYTE[b'a' as usize], 'a');
        assert_eq!(CHAR_OF_BYTE[b' ' as usize], 'Ġ');
        assert_eq!(CHAR_OF_BYTE[b'\n' as usize], 'Ċ');
        assert_eq!(CHAR_OF_BYTE[0xAD], 'Ń');
        assert_eq!(CHAR_OF_BYTE[0], 'Ā');
    }

    #[test]
    fn every_byte_comes_back() {
        let all: String = CHAR_OF_BYTE.iter().collect();
        let mut bytes = Vec::new();
        assert!(decode_into(&all, &mut bytes));
        assert_eq!(bytes, (0..=255u8).collect::<Vec<_>>());
    }

    #[test]
    fn characters_outside_are_refused_whole() {
        for text in ["a b", "▁", "aŅ", "\u{AD}"] {
            let mut bytes = vec![1];
            assert!(!decode_into(text, &mut bytes), "{text:?}");
            assert_eq!(bytes, [1]);
        }
    }
}
