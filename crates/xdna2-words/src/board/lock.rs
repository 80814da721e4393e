//! What acquires wait for, and what they leave.

use super::Board;
use super::fault::BoardProblem;

/// What an acquire that waits for a lock to be equal to a value leaves there. No source says, so that a run is sure
/// only of what comes out alike with either.
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

    /// Tries to take a lock, for a value as descriptors and cores have it: a negative one asks for at least that
    /// much and subtracts it, another for a lock that holds just that.
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
