//! Signatures of thoughts: a client must return a thought unchanged, or it is refused.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::{base64, random};

/// Bytes of a block of SHA-256.
const BLOCK_BYTES: usize = 64;

static KEY: OnceLock<Vec<u8>> = OnceLock::new();

/// Sets the key that signs thoughts; only the first call counts. Servers with the same key accept each other's
/// thoughts. Without one, a random key is used, and the next process refuses thoughts signed with it.
pub fn sign_thoughts_with(key: &[u8]) {
    let _ = KEY.set(key.to_vec());
}

fn key() -> &'static [u8] {
    KEY.get_or_init(|| (0..4).flat_map(|_| random().to_le_bytes()).collect())
}

/// The signature of a thought.
pub(crate) fn sign(thought: &str) -> String {
    base64::encode(&hmac(key(), thought.as_bytes()))
}

/// Whether this server, or one with the same key, has signed the thought.
pub(crate) fn is_signed(thought: &str, signature: &str) -> bool {
    let (found, expected) = (signature.as_bytes(), sign(thought));
    // Compares all bytes, even after a difference.
    let differs = found
        .iter()
        .zip(expected.as_bytes())
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    found.len() == expected.len() && differs == 0
}

/// HMAC of RFC 2104 with SHA-256.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK_BYTES];
    match key.len() > BLOCK_BYTES {
        true => block[..32].copy_from_slice(&Sha256::digest(key)),
        false => block[..key.len()].copy_from_slice(key),
    }
    let padded = |pad: u8| block.map(|byte| byte ^ pad);
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(padded(0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_hmac_is_rfc_4231s() {
        for (key, message, expected) in [
            (
                vec![0x0b; 20],
                &b"Hi There"[..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex(&hmac(&key, message)), expected);
        }
    }

    #[test]
    fn another_thought_or_signature_is_refused() {
        let signature = sign("hm");
        assert!(is_signed("hm", &signature));
        let mut other = signature.clone();
        other.replace_range(..1, if other.starts_with('A') { "B" } else { "A" });
        for (thought, signature) in [
            ("hm!", signature.as_str()),
            ("hm", &other),
            ("hm", ""),
            ("hm", &signature[1..]),
        ] {
            assert!(!is_signed(thought, signature), "{thought} {signature}");
        }
    }
}
