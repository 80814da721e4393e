//! Base64 (RFC 4648), both ways.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Standard base64 with padding.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| chunk.get(i).map_or(0, |byte| u32::from(*byte));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            out.push(match i <= chunk.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * i)) as usize & 63]),
                false => '=',
            });
        }
    }
    out
}

/// Standard or URL-safe base64, with padding or without; white space is skipped.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut n_bits, mut ended) = (0u32, 0, false);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                ended = true;
                continue;
            }
            b'\n' | b'\r' | b' ' => continue,
            _ => return None,
        };
        if ended {
            return None;
        }
        bits = bits << 6 | u32::from(value);
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            out.push((bits >> n_bits) as u8);
            bits &= (1 << n_bits) - 1;
        }
    }
    // Bits beyond a whole number of bytes must be zero.
    (bits == 0 && n_bits < 6).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_are_read() {
        for text in ["AP+/", "AP-_", "AP +/\n"] {
            assert_eq!(decode(text), Some(vec![0, 255, 191]), "{text}");
        }
        assert_eq!(decode("AA=="), Some(vec![0]));
        assert_eq!(decode("AAE"), Some(vec![0, 1]));
        for wrong in ["A", "AB", "A=A=", "AA*A"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn known_answers_are_written() {
        // RFC 4648, section 10.
        let known = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (n, text) in known.iter().enumerate() {
            assert_eq!(encode(&b"foobar"[..n]), *text);
            assert_eq!(decode(text).as_deref(), Some(&b"foobar"[..n]));
        }
        assert_eq!(encode(&[0, 255, 191]), "AP+/");
    }
}
