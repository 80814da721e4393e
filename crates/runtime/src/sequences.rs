//! Names of sequences, and their slots.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// Names a sequence of an [`crate::Engine`].
///
/// Every name is given out once in the life of the process, by whichever engine. A name that was
/// released, or that belongs to another engine, never reaches a later sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId {
    serial: u64,
    slot: u32,
}

impl SeqId {
    /// The name as a number.
    pub(crate) fn serial(self) -> u64 {
        self.serial
    }

    /// Its slot, below the number of sequences that its engine has.
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }
}

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.serial)
    }
}

/// Serial of the next sequence of any engine. At a million sequences a second it lasts half a
/// million years.
static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// An engine's data of each of its sequences, found by name in constant time.
#[derive(Debug)]
pub(crate) struct Sequences<T> {
    slots: Vec<Option<(u64, T)>>,
    n_alive: usize,
    max_sequences: usize,
}

impl<T> Sequences<T> {
    /// Room for `max_sequences`.
    pub(crate) fn new(max_sequences: usize) -> Sequences<T> {
        Sequences {
            slots: Vec::new(),
            n_alive: 0,
            max_sequences,
        }
    }

    /// Sequences that can still be made.
    pub(crate) fn n_free(&self) -> usize {
        self.max_sequences - self.n_alive
    }

    /// Refuses one more sequence than there is room for.
    pub(crate) fn check_free(&self) -> Result<(), Error> {
        if self.n_free() == 0 {
            let max_sequences = self.max_sequences;
            return Err(Error::TooManySequences { max_sequences });
        }
        Ok(())
    }

    /// Takes a slot under a new name.
    pub(crate) fn insert(&mut self, value: T) -> Result<SeqId, Error> {
        self.check_free()?;
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let serial = NEXT_SERIAL.fetch_add(1, Ordering::Relaxed);
        self.slots[slot] = Some((serial, value));
        self.n_alive += 1;
        Ok(SeqId {
            serial,
            slot: slot as u32,
        })
    }

    /// The data under the name.
    pub(crate) fn get(&self, seq: SeqId) -> Result<&T, Error> {
        match self.slots.get(seq.slot as usize) {
            Some(Some((serial, value))) if *serial == seq.serial => Ok(value),
            _ => Err(Error::NoSequence(seq)),
        }
    }

    /// As [`Sequences::get`], to change it.
    pub(crate) fn get_mut(&mut self, seq: SeqId) -> Result<&mut T, Error> {
        match self.slots.get_mut(seq.slot as usize) {
            Some(Some((serial, value))) if *serial == seq.serial => Ok(value),
            _ => Err(Error::NoSequence(seq)),
        }
    }

    /// Frees the slot; the name is spent.
    pub(crate) fn remove(&mut self, seq: SeqId) -> Result<T, Error> {
        self.get(seq)?;
        let taken = self.slots[seq.slot as usize].take();
        self.n_alive -= 1;
        taken.map(|(_, value)| value).ok_or(Error::NoSequence(seq))
    }

    /// All that are alive.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_name_reaches_nothing_though_its_slot_is_taken_again() {
        let mut sequences = Sequences::new(2);
        let a = sequences.insert('a').unwrap();
        let b = sequences.insert('b').unwrap();
        assert!(matches!(
            sequences.insert('c'),
            Err(Error::TooManySequences { max_sequences: 2 })
        ));
        assert_eq!(sequences.remove(a).unwrap(), 'a');
        let c = sequences.insert('c').unwrap();
        assert_eq!(a.slot, c.slot);
        for gone in [
            sequences.get(a).map(|_| ()),
            sequences.get_mut(a).map(|_| ()),
            sequences.remove(a).map(|_| ()),
        ] {
            assert!(matches!(gone, Err(Error::NoSequence(id)) if id == a));
        }
        assert_eq!(
            (sequences.get(b).unwrap(), sequences.get(c).unwrap()),
            (&'b', &'c')
        );
        assert_eq!(sequences.n_free(), 0);
    }

    #[test]
    fn names_of_another_engine_reach_nothing() {
        let (mut one, mut other) = (Sequences::new(1), Sequences::new(1));
        let mine = one.insert(1).unwrap();
        other.insert(2).unwrap();
        assert!(other.get(mine).is_err());
    }
}
