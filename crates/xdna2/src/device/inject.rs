//! Failures to be had on purpose, for testing what is above a device.

use millrace_npu::{Element, Slot};

/// A failure to be had on purpose. Each kind waits for the next event that it can happen to; of two
/// of a kind, the second waits for the event after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injection {
    /// A submission hangs in its first launch, and the device stops waiting for it.
    Timeout,
    /// A submission stops after so many units of work
    /// ([`Options::stop_after`](crate::functional::Options::stop_after)), with outputs half
    /// written. One that ends before runs as ever.
    StopAfter(u64),
    /// The device disappears in the middle of a submission and stays away until it is
    /// [revived](super::VirtualDevice::revive).
    Lose,
    /// An allocation is refused: the memory cannot be pinned.
    NotPinned,
    /// A load is refused.
    RefuseLoad,
    /// After each run of the program that ends well, one slot's content is wrong: every 16th
    /// element is doubled or halved. Until it is [cleared](super::VirtualDevice::clear_injections).
    Corrupt {
        /// The program's name.
        program: String,
        /// The slot's name.
        slot: String,
    },
}

/// What an injection happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Submission,
    Allocation,
    Load,
}

impl Injection {
    /// What it waits for; `None` where it stands until it is cleared.
    fn event(&self) -> Option<Event> {
        match self {
            Injection::Timeout | Injection::StopAfter(_) | Injection::Lose => {
                Some(Event::Submission)
            }
            Injection::NotPinned => Some(Event::Allocation),
            Injection::RefuseLoad => Some(Event::Load),
            Injection::Corrupt { .. } => None,
        }
    }
}

/// Injections that have not happened.
#[derive(Debug, Default)]
pub(super) struct Injections {
    /// With the events of its kind that each lets pass.
    waiting: Vec<(u64, Injection)>,
}

impl Injections {
    pub(super) fn add(&mut self, n_passed: u64, injection: Injection) {
        self.waiting.push((n_passed, injection));
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// What happens to the event at hand.
    pub(super) fn take(&mut self, event: Event) -> Option<Injection> {
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
    pub(super) fn corrupted<'a>(
        &'a self,
        name: &'a str,
        slots: &'a [Slot],
    ) -> impl Iterator<Item = usize> + 'a {
        self.waiting
            .iter()
            .filter_map(move |(_, injection)| match injection {
                Injection::Corrupt { program, slot } if program == name => {
                    slots.iter().position(|s| s.name == *slot)
                }
                _ => None,
            })
    }
}

/// Elements from one that is made wrong to the next.
const STRIDE: usize = 16;

/// Makes content wrong: of floats, the lowest bit of the exponent is flipped, so that they stay
/// finite unless they are huge; of integers, the lowest bit.
pub(super) fn corrupt(element: Element, bytes: &mut [u8]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_for_its_own_kind_of_event() {
        let mut injections = Injections::default();
        injections.add(1, Injection::StopAfter(5));
        injections.add(0, Injection::NotPinned);
        injections.add(0, Injection::Timeout);
        assert_eq!(injections.take(Event::Load), None);
        assert_eq!(injections.take(Event::Submission), None);
        assert_eq!(
            injections.take(Event::Allocation),
            Some(Injection::NotPinned)
        );
        assert_eq!(injections.take(Event::Allocation), None);
        assert_eq!(
            injections.take(Event::Submission),
            Some(Injection::StopAfter(5))
        );
        assert_eq!(injections.take(Event::Submission), Some(Injection::Timeout));
        assert_eq!(injections.take(Event::Submission), None);
    }

    #[test]
    fn corrupted_floats_are_doubled_or_halved() {
        let mut bytes: Vec<u8> = [1.0_f32; 32].iter().flat_map(|x| x.to_le_bytes()).collect();
        corrupt(Element::F32, &mut bytes);
        let found: Vec<f32> = (bytes.chunks_exact(4))
            .map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]))
            .collect();
        assert!((found[0] == 0.5 || found[0] == 2.0) && found[16] == found[0]);
        assert!(found[1..16].iter().all(|x| *x == 1.0));
    }
}
