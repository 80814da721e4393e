//! Conditions of acquires, and the values that they leave.

use super::Board;
use super::fault::BoardProblem;

/// The value that an acquire leaves in a lock after waiting for equality. No source says, so a run is certain only of
/// results that are alike with either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EqualAcquire {
    /// Such an acquire is refused.
    #[default]
    Refused,
    /// The value is subtracted, as an acquire of at least that much subtracts it.
    Subtracts,
    /// The lock stays as it is.
    Keeps,
}

impl Board<'_> {
    /// Whether the last run came to an acquire by equality.
    pub fn met_equal_acquire(&self) -> bool {
        self.met_equal
    }

    /// Tries to take a lock, for a value as descriptors and cores have it. A negative value asks for at least that much
    /// and subtracts it; any other asks for a lock that holds exactly that.
    pub(super) fn acquire(
        &mut self,
        tile: usize,
        lock: u8,
        value: i32,
    ) -> Result<bool, BoardProblem> {
        if value < 0 {
            return self.tiles[tile].acquire(lock, -value);
        }
        let at = self.tiles[tile].tile;
        self.met_equal = true;
        let held = self.tiles[tile].lock(lock)?;
        let is_equal = i32::from(*held) == value;
        match self.options.equal {
            EqualAcquire::Refused => Err(BoardProblem::Undefined(format!(
                "lock {lock} of {at} acquired with {value}: what waiting for equality leaves"
            ))),
            EqualAcquire::Subtracts if is_equal => {
                *held = 0;
                Ok(true)
            }
            EqualAcquire::Keeps if is_equal => Ok(true),
            EqualAcquire::Subtracts | EqualAcquire::Keeps => Ok(false),
        }
    }
}
