//! When weights are converted to the array's form.

/// When weights are converted to the array's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightMode {
    /// Once, at load: a byte a weight stays in memory.
    AtLoad,
    /// Before every call, from the file's own blocks: only the file's bytes stay.
    PerCall,
}

impl WeightMode {
    /// All modes, the default first.
    pub const ALL: [WeightMode; 2] = [WeightMode::AtLoad, WeightMode::PerCall];

    /// Its name as a value of `--mode`.
    pub const fn name(self) -> &'static str {
        match self {
            WeightMode::AtLoad => "at-load",
            WeightMode::PerCall => "per-call",
        }
    }

    /// Its meaning.
    pub const fn summary(self) -> &'static str {
        match self {
            WeightMode::AtLoad => "weights are unpacked once: a byte each in memory (two of fp16)",
            WeightMode::PerCall => {
                "weights are unpacked before every product: the file's memory, slow"
            }
        }
    }
}
