//! Counters of a run.

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoardCounters {
    /// Rounds of all actors.
    pub rounds: u64,
    /// Tasks that were pushed.
    pub pushes: u64,
    /// Executions of descriptors.
    pub executions: u64,
    /// Words that descriptors moved.
    pub words: u64,
    /// Completion tokens.
    pub tokens: u64,
}

impl BoardCounters {
    /// Adds the counters of another run.
    pub fn add(&mut self, other: BoardCounters) {
        self.rounds += other.rounds;
        self.pushes += other.pushes;
        self.executions += other.executions;
        self.words += other.words;
        self.tokens += other.tokens;
    }
}
