//! Deliberate failures, for testing the code above a device.

use crate::{Element, Slot};

/// A deliberate failure. Each kind waits for the next event that it can happen to; of two of a kind, the second waits
/// for the event after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injection {
    /// A submission hangs in its first launch, and the device stops waiting for it.
    Timeout,
    /// A submission stops after so many units of work, as the device defines them, with outputs half written. A
    /// submission with fewer units runs normally.
    StopAfter(u64),
    /// The device disappears in the middle of a submission and stays away until it is
    /// [revived](Inject::revive).
    Lose,
    /// An allocation is refused: the memory cannot be pinned.
    NotPinned,
    /// A load is refused.
    RefuseLoad,
    /// One slot's content is wrong in every run of the program, until it is [cleared](Inject::clear). A slot that the
    /// program writes is wrong after each launch that writes it, so that later launches read it so. One that it reads
    /// is wrong from the start of the run. Static content is restored after the run.
    Corrupt {
        /// The program's name.
        program: String,
        /// The slot's name.
        slot: String,
        /// How it is wrong.
        how: Corruption,
    },
}

/// A device that fails on purpose: a virtual one.
pub trait Inject {
    /// Makes an event fail after `n_passed` others of its kind: the fourth submission, the second allocation.
    fn inject_after(&self, n_passed: u64, injection: Injection);

    /// Makes the next event of its kind fail.
    fn inject(&self, injection: Injection) {
        self.inject_after(0, injection);
    }

    /// Takes back every injection that has not happened, and the persistent ones.
    fn clear(&self);

    /// Counts of [`Injection::Corrupt`] since injections were cleared.
    fn corrupted(&self) -> CorruptionCounts;

    /// Brings a lost device back. Its programs and buffers are gone.
    fn revive(&self);
}

/// How a slot's content is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Corruption {
    /// Every 16th element is doubled or halved.
    Some,
    /// Every element is doubled.
    Double,
    /// Every element is zero.
    Zero,
    /// Among every three elements in a row, each takes the place of the next.
    Permute,
    /// Each row has the content of the one before it; the first stays. With a single row, this applies to elements.
    Row,
}

impl Corruption {
    /// The corruptions that touch every element.
    pub const WHOLE: [Corruption; 4] = [
        Corruption::Double,
        Corruption::Zero,
        Corruption::Permute,
        Corruption::Row,
    ];

    /// Whether it can change the content of a slot of that size at all. One or two elements have nothing to permute,
    /// and one has no row before it.
    pub fn applies_to(self, slot: &Slot) -> bool {
        let size = slot.element.size_bytes().max(1);
        let n_elems = slot.size_bytes().unwrap_or(u64::MAX) / size;
        let needed = match self {
            Corruption::Some | Corruption::Double | Corruption::Zero => 1,
            Corruption::Row => 2,
            Corruption::Permute => 3,
        };
        n_elems >= needed
    }

    /// The name used in text.
    pub const fn name(self) -> &'static str {
        match self {
            Corruption::Some => "some",
            Corruption::Double => "double",
            Corruption::Zero => "zero",
            Corruption::Permute => "permute",
            Corruption::Row => "row",
        }
    }

    /// The corruption of that [`name`](Corruption::name).
    pub fn from_name(name: &str) -> Option<Corruption> {
        let [a, b, c, d] = Corruption::WHOLE;
        [Corruption::Some, a, b, c, d]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// Counts of [`Injection::Corrupt`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorruptionCounts {
    /// How often content was made wrong.
    pub n_applied: u64,
    /// How often that changed a byte: twice zero is zero.
    pub n_changed: u64,
}

/// Event that an injection happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectionEvent {
    /// A program is submitted.
    Submission,
    /// A buffer is made.
    Allocation,
    /// A program is loaded.
    Load,
}

impl Injection {
    /// The event that it waits for; `None` where it persists until it is cleared.
    fn event(&self) -> Option<InjectionEvent> {
        match self {
            Injection::Timeout | Injection::StopAfter(_) | Injection::Lose => {
                Some(InjectionEvent::Submission)
            }
            Injection::NotPinned => Some(InjectionEvent::Allocation),
            Injection::RefuseLoad => Some(InjectionEvent::Load),
            Injection::Corrupt { .. } => None,
        }
    }
}

/// Injections that have not happened, as a virtual device keeps them.
#[derive(Debug, Default)]
pub struct Injections {
    /// Each with the number of events of its kind that it lets pass.
    waiting: Vec<(u64, Injection)>,
}

impl Injections {
    /// Adds one, for the event after `n_passed` others of its kind.
    pub fn add(&mut self, n_passed: u64, injection: Injection) {
        self.waiting.push((n_passed, injection));
    }

    /// Takes all of them back.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Takes the injection for the current event.
    pub fn take(&mut self, event: InjectionEvent) -> Option<Injection> {
        let of_kind = |(_, injection): &(u64, Injection)| injection.event() == Some(event);
        let at = self.waiting.iter().position(of_kind)?;
        match &mut self.waiting[at].0 {
            0 => Some(self.waiting.remove(at).1),
            n_passed => {
                *n_passed -= 1;
                None
            }
        }
    }

    /// Slots of the program whose content is to be wrong.
    pub fn corrupted(&self, name: &str, slots: &[Slot]) -> Vec<(usize, Corruption)> {
        let of_program = self
            .waiting
            .iter()
            .filter_map(|(_, injection)| match injection {
                Injection::Corrupt { program, slot, how } if program == name => {
                    let slot = slots.iter().position(|s| s.name == *slot)?;
                    Some((slot, *how))
                }
                _ => None,
            });
        of_program.collect()
    }
}

/// Elements from one that is made wrong to the next.
const STRIDE: usize = 16;

/// Makes a slot's content wrong. Returns whether a byte changed.
pub fn corrupt(how: Corruption, slot: &Slot, bytes: &mut [u8]) -> bool {
    let size = slot.element.size_bytes() as usize;
    let before = bytes.to_vec();
    match how {
        Corruption::Some => some(slot.element, bytes),
        Corruption::Double => bytes
            .chunks_exact_mut(size)
            .for_each(|value| double(slot.element, value)),
        Corruption::Zero => bytes.fill(0),
        Corruption::Permute => bytes
            .chunks_exact_mut(3 * size)
            .for_each(|three| three.rotate_right(size)),
        Corruption::Row => {
            let n_elems = bytes.len() / size.max(1);
            let row = slot.shape.last().map_or(n_elems, |n| *n as usize);
            let row = if row >= n_elems { 1 } else { row } * size;
            let end = bytes.len().saturating_sub(row);
            bytes.copy_within(..end, row.min(bytes.len()));
        }
    }
    bytes != before
}

/// Flips the lowest bit of a float's exponent, so that it stays finite unless it is huge; in integers, the lowest bit.
fn some(element: Element, bytes: &mut [u8]) {
    let (byte, bit) = match element {
        Element::Bf16 => (0, 0x80),
        Element::F32 => (2, 0x80),
        _ => (0, 1),
    };
    let size = element.size_bytes() as usize;
    for value in bytes.chunks_exact_mut(size).step_by(STRIDE) {
        value[byte] ^= bit;
    }
}

/// Doubles a value; in a float the exponent grows by one.
fn double(element: Element, value: &mut [u8]) {
    match (element, &mut *value) {
        (Element::Bf16, [a, b]) => {
            let twice = 2.0 * f32::from_le_bytes([0, 0, *a, *b]);
            [_, _, *a, *b] = twice.to_le_bytes();
        }
        (Element::F32, [a, b, c, d]) => {
            let twice = 2.0 * f32::from_le_bytes([*a, *b, *c, *d]);
            [*a, *b, *c, *d] = twice.to_le_bytes();
        }
        _ => {
            let mut carry = 0;
            for byte in value {
                (*byte, carry) = (*byte << 1 | carry, *byte >> 7);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_for_its_own_kind_of_event() {
        let mut injections = Injections::default();
        injections.add(1, Injection::StopAfter(5));
        injections.add(0, Injection::NotPinned);
        injections.add(0, Injection::Timeout);
        assert_eq!(injections.take(InjectionEvent::Load), None);
        assert_eq!(injections.take(InjectionEvent::Submission), None);
        assert_eq!(
            injections.take(InjectionEvent::Allocation),
            Some(Injection::NotPinned)
        );
        assert_eq!(injections.take(InjectionEvent::Allocation), None);
        assert_eq!(
            injections.take(InjectionEvent::Submission),
            Some(Injection::StopAfter(5))
        );
        assert_eq!(
            injections.take(InjectionEvent::Submission),
            Some(Injection::Timeout)
        );
        assert_eq!(injections.take(InjectionEvent::Submission), None);
    }

    fn slot(element: Element, shape: &[u64]) -> Slot {
        Slot {
            name: "x".to_owned(),
            element,
            shape: shape.to_vec(),
            role: crate::Role::Input,
        }
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        let of = |x: &[u8]| f32::from_le_bytes([x[0], x[1], x[2], x[3]]);
        bytes.chunks_exact(4).map(of).collect()
    }

    #[test]
    fn corrupted_floats_are_doubled_or_halved() {
        let mut bytes: Vec<u8> = [1.0_f32; 32].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert!(corrupt(
            Corruption::Some,
            &slot(Element::F32, &[32]),
            &mut bytes
        ));
        let found = floats(&bytes);
        assert!((found[0] == 0.5 || found[0] == 2.0) && found[16] == found[0]);
        assert!(found[1..16].iter().all(|x| *x == 1.0));
    }

    /// A corruption that does not apply to a slot never changes it; one that does changes distinct numbers.
    #[test]
    fn corruptions_apply_where_they_can_change_something() {
        let kinds = Corruption::WHOLE.into_iter().chain([Corruption::Some]);
        for how in kinds {
            for shape in [&[1_u64][..], &[2], &[1, 2], &[3], &[2, 2], &[1, 1, 4]] {
                let slot = slot(Element::F32, shape);
                let n = slot.n_elements().unwrap() as usize;
                let numbers = (1..=n).flat_map(|i| (i as f32).to_le_bytes());
                let mut bytes: Vec<u8> = numbers.collect();
                let changed = corrupt(how, &slot, &mut bytes);
                assert_eq!(changed, how.applies_to(&slot), "{how:?} {shape:?}");
            }
        }
        assert!(!Corruption::Zero.applies_to(&slot(Element::F32, &[0])));
    }

    /// Each kind, on two rows of three and on one row, and where it changes nothing.
    #[test]
    fn whole_slots_are_wrong_in_four_ways() {
        let x = [1.0_f32, -2.0, 3.5, 4.0, 0.0, 6.0];
        let (two, one) = (&[2_u64, 3][..], &[6_u64][..]);
        for (how, shape, expected) in [
            (Corruption::Double, two, [2.0, -4.0, 7.0, 8.0, 0.0, 12.0]),
            (Corruption::Zero, two, [0.0; 6]),
            (Corruption::Permute, two, [3.5, 1.0, -2.0, 6.0, 4.0, 0.0]),
            (Corruption::Row, two, [1.0, -2.0, 3.5, 1.0, -2.0, 3.5]),
            (Corruption::Row, one, [1.0, 1.0, -2.0, 3.5, 4.0, 0.0]),
        ] {
            let mut bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert!(corrupt(how, &slot(Element::F32, shape), &mut bytes));
            assert_eq!(floats(&bytes), expected, "{how:?}");
            let mut zeros = vec![0; 24];
            assert!(!corrupt(how, &slot(Element::F32, shape), &mut zeros));
            assert_eq!(Corruption::from_name(how.name()), Some(how));
        }
        let mut bytes = [300_i32, -5].map(i32::to_le_bytes).concat();
        corrupt(Corruption::Double, &slot(Element::I32, &[2]), &mut bytes);
        assert_eq!(bytes, [600_i32, -10].map(i32::to_le_bytes).concat());
        let mut bytes = vec![0x40, 0x40];
        corrupt(Corruption::Double, &slot(Element::Bf16, &[1]), &mut bytes);
        assert_eq!(bytes, [0xc0, 0x40], "3 in bf16 becomes 6");
    }
}
