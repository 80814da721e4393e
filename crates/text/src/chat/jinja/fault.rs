//! Failures of a rendering, and its bounds.

use std::cell::Cell;

/// Kind of a failure. Some filters catch some of them, as Python's catch exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// `TypeError`
    Type,
    /// `ValueError`
    Value,
    /// `IndexError` and `KeyError`
    Lookup,
    /// `ZeroDivisionError` and `OverflowError`
    Arithmetic,
    /// An operation on an undefined value, or on one that templates may not use.
    Undefined,
    /// Jinja2's own errors.
    Template,
    /// `raise_exception` was called.
    Refused,
    /// A bound was met.
    Limit,
}

/// A failure with the line it happened in.
#[derive(Clone, Debug)]
pub(crate) struct TemplateFault {
    pub(crate) kind: FaultKind,
    pub(crate) message: String,
    /// From 1; 0 until a node of the template has been left.
    pub(crate) line: u32,
}

/// Result of nearly every function here.
pub(crate) type Res<T> = Result<T, TemplateFault>;

impl TemplateFault {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> TemplateFault {
        TemplateFault {
            kind,
            message: message.into(),
            line: 0,
        }
    }

    pub(crate) fn type_error(message: impl Into<String>) -> TemplateFault {
        TemplateFault::new(FaultKind::Type, message)
    }

    pub(crate) fn value_error(message: impl Into<String>) -> TemplateFault {
        TemplateFault::new(FaultKind::Value, message)
    }

    pub(crate) fn limit(message: impl Into<String>) -> TemplateFault {
        TemplateFault::new(FaultKind::Limit, message)
    }

    /// The failure with a line, unless a node further inside has given it one.
    pub(crate) fn at(mut self, line: u32) -> TemplateFault {
        if self.line == 0 {
            self.line = line;
        }
        self
    }

    /// Whether Python code would catch it as `TypeError` or `ValueError`.
    pub(crate) fn is_type_or_value(&self) -> bool {
        matches!(self.kind, FaultKind::Type | FaultKind::Value)
    }
}

/// Steps that one rendering may take: a second or two. A conversation of a thousand messages needs
/// about a hundredth of it.
pub(crate) const STEPS: u64 = 10_000_000;

/// Bytes that one text may have, the output among them.
pub(crate) const TEXT_BYTES: usize = 64 << 20;

/// Values that one list or dictionary may have.
pub(crate) const ITEMS: usize = 1 << 20;

/// Levels of lists in lists.
pub(crate) const NESTING: u32 = 500;

/// Bytes of text that may be made for one step.
const BYTES_PER_STEP: usize = 64;

thread_local! {
    /// Remaining steps. Comparisons and hashes spend some where no failure can be returned, so the
    /// count belongs to the thread.
    static LEFT: Cell<u64> = const { Cell::new(STEPS) };
    static ALLOWED: Cell<u64> = const { Cell::new(STEPS) };
}

/// Starts a rendering with this number of steps.
pub(crate) fn start(steps: u64) {
    LEFT.set(steps);
    ALLOWED.set(steps);
}

/// Spends steps without an error; whether enough were left.
pub(crate) fn spend_quietly(steps: u64) -> bool {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(steps));
    left > steps
}

/// Spends steps.
pub(crate) fn spend(steps: usize) -> Res<()> {
    match spend_quietly(steps as u64) {
        true => Ok(()),
        false => Err(TemplateFault::limit(format!(
            "it does not come to an end within {} steps",
            ALLOWED.get()
        ))),
    }
}

/// Checks the bound of a text, before it is made.
pub(crate) fn text(n_bytes: usize) -> Res<()> {
    if n_bytes > TEXT_BYTES {
        return Err(TemplateFault::limit(format!(
            "it makes a text of {n_bytes} bytes, and at most {TEXT_BYTES} are allowed"
        )));
    }
    spend(n_bytes / BYTES_PER_STEP)
}

/// Checks the bound of a list, before it is made.
pub(crate) fn items(n: usize) -> Res<()> {
    if n > ITEMS {
        return Err(TemplateFault::limit(format!(
            "it makes a list of {n} values, and at most {ITEMS} are allowed"
        )));
    }
    spend(n / 4)
}

/// Checks the bound of a width that padding or indenting fills.
pub(crate) fn width(n: i128) -> Res<usize> {
    match usize::try_from(n.max(0)) {
        Ok(n) if n <= TEXT_BYTES => {
            text(n)?;
            Ok(n)
        }
        _ => Err(TemplateFault::limit(format!(
            "it asks for {n} characters, and at most {TEXT_BYTES} are allowed"
        ))),
    }
}
