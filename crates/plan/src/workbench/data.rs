//! Data for users' own programs: slots without a file are random, and results are summed up.

use super::BenchError;
use millrace_npu::{Element, Role, Slot};
use serde::Serialize;

/// Summary of a slot's content after a program without a reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlotOutput {
    /// The slot.
    pub slot: String,
    /// Its element type.
    pub element: &'static str,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The least of its numbers.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
    /// Their mean.
    pub mean: f64,
    /// Elements that are NaN or infinite; they are left out of the figures above.
    pub n_not_finite: u64,
}

impl SlotOutput {
    /// Summary of a slot's content.
    pub fn of(slot: &Slot, bytes: &[u8]) -> SlotOutput {
        let mut found = SlotOutput {
            slot: slot.name.clone(),
            element: slot.element.name(),
            shape: slot.shape.clone(),
            least: f64::INFINITY,
            greatest: f64::NEG_INFINITY,
            mean: 0.0,
            n_not_finite: 0,
        };
        let (mut sum, mut n) = (0.0, 0_u64);
        for element in bytes.chunks_exact(slot.element.size_bytes() as usize) {
            match slot.element.number(element).filter(|x| x.is_finite()) {
                Some(value) => {
                    found.least = found.least.min(value);
                    found.greatest = found.greatest.max(value);
                    (sum, n) = (sum + value, n + 1);
                }
                None => found.n_not_finite += 1,
            }
        }
        found.mean = sum / n as f64;
        found
    }
}

/// `x: input, bf16 [64, 32], 4096 bytes`
pub fn described(slot: &Slot) -> String {
    format!(
        "{}: {}, {} {:?}, {} bytes",
        slot.name,
        slot.role.name(),
        slot.element,
        slot.shape,
        slot.size_bytes().unwrap_or(u64::MAX)
    )
}

/// Contents of a program's slots before a run: as given by name; otherwise random where the host writes them, and zeros
/// where the program does.
///
/// # Errors
/// A slot too large for memory, or given bytes of another size.
pub fn contents(
    slots: &[Slot],
    given: &[(String, Vec<u8>)],
    seed: u64,
) -> Result<Vec<Vec<u8>>, BenchError> {
    let mut random = Random(seed);
    let content = |slot: &Slot| {
        let n_bytes = slot.size_bytes().and_then(|n| usize::try_from(n).ok());
        let too_large = || BenchError::Usage {
            message: format!("slot {} is too large", described(slot)),
            hint: String::new(),
        };
        let n_bytes = n_bytes.ok_or_else(too_large)?;
        if let Some((_, bytes)) = given.iter().find(|(name, _)| *name == slot.name) {
            return match bytes.len() == n_bytes {
                true => Ok(bytes.clone()),
                false => Err(BenchError::Input(format!(
                    "{} bytes are given for slot {}",
                    bytes.len(),
                    described(slot)
                ))),
            };
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(n_bytes).map_err(|_| too_large())?;
        match slot.role {
            Role::Static | Role::Input => {
                while bytes.len() < n_bytes {
                    random.push(slot.element, &mut bytes);
                }
            }
            Role::Intermediate | Role::Output => bytes.resize(n_bytes, 0),
        }
        Ok(bytes)
    };
    slots.iter().map(content).collect()
}

/// Steele, Lea and Flood's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Appends an element: numbers in −1 … 1, bytes of any value, small counts for wider integers,
    /// which are lengths and positions as a rule.
    fn push(&mut self, element: Element, bytes: &mut Vec<u8>) {
        let bits = self.next() >> 40;
        let uniform = bits as f32 * (1.0 / (1 << 23) as f32) - 1.0;
        match element {
            Element::U8 | Element::I8 | Element::I4 => bytes.push(bits as u8),
            // Exponents below the bias: smaller than one.
            Element::F8E4m3 => bytes.push(bits as u8 & 0xbf),
            Element::I16 => bytes.extend_from_slice(&((bits & 0x7f) as i16).to_le_bytes()),
            Element::I32 => bytes.extend_from_slice(&((bits & 0x7f) as i32).to_le_bytes()),
            // Truncated to its upper half, which is a number too.
            Element::Bf16 => bytes.extend_from_slice(&uniform.to_le_bytes()[2..]),
            Element::F16 => {
                bytes.extend_from_slice(&half::f16::from_f32(uniform).to_le_bytes());
            }
            Element::F32 => bytes.extend_from_slice(&uniform.to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(element: Element, role: Role) -> Slot {
        Slot {
            name: "x".to_owned(),
            element,
            shape: vec![10, 10],
            role,
        }
    }

    #[test]
    fn random_numbers_are_of_their_type() {
        for element in Element::ALL {
            let slots = [slot(element, Role::Input)];
            let bytes = contents(&slots, &[], 1).unwrap().remove(0);
            let found = SlotOutput::of(&slots[0], &bytes);
            assert_eq!(
                bytes.len() as u64,
                slots[0].size_bytes().unwrap(),
                "{element}"
            );
            assert!(found.least < found.greatest, "{element}");
            let is_float = element.precision().is_some();
            assert!(!is_float || found.least >= -2.0 && found.greatest <= 2.0);
            assert_eq!(found.n_not_finite, 0, "{element}");
        }
    }

    #[test]
    fn given_bytes_must_fit() {
        let slots = [slot(Element::U8, Role::Input)];
        let given = |n: usize| [("x".to_owned(), vec![7_u8; n])];
        assert_eq!(contents(&slots, &given(100), 0).unwrap(), [vec![7; 100]]);
        let refused = contents(&slots, &given(99), 0).unwrap_err();
        assert!(refused.to_string().contains("99 bytes"), "{refused}");
    }
}
