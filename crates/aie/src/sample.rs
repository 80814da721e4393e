//! Data for arguments that were not given any.

use crate::core::{CoreValue, Number};
use crate::design::Design;

impl Design {
    /// Whether the design itself contains an argument's content, so that it need not be given.
    pub(crate) fn is_given(&self, argument: usize) -> bool {
        let argument = self.arguments.get(argument);
        argument.is_some_and(|argument| argument.given.is_some())
    }

    /// The elements 1, 2, 3, … of an argument, as far as its type holds them; zeros for a type that holds none. Empty
    /// if there is no such argument.
    pub fn counting(&self, argument: usize) -> Vec<u8> {
        let Some(argument) = self.arguments.get(argument) else {
            return Vec::new();
        };
        let (of, n_bytes) = (&argument.of, argument.bytes as usize);
        let Some(number) = Number::in_memory(&of.element) else {
            return vec![0; n_bytes];
        };
        let size = of.element_bytes() as usize;
        let element = |i: i64| match number {
            Number::Integer(_) => CoreValue::Integer(number.wrap(i)),
            // A period that every floating-point format holds exactly.
            _ => CoreValue::Float(((i - 1) % 128 + 1) as f64),
        };
        let n = n_bytes / size.max(1);
        let bytes = (1..=n as i64).flat_map(|i| {
            let bytes = number.write(&element(i)).unwrap_or_default();
            bytes.into_iter().take(size)
        });
        bytes.collect()
    }
}
