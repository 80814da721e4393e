//! Names with numbers: dimensions of a problem, tile sizes of a kernel.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::ops::Index;

/// Ordered names with numbers: a problem's dimensions, or the tile sizes of a kernel.
///
/// `named["m"]` is the number of a name that is known to exist. An unknown name is a mistake of the calling code, and
/// panics as any other index does. Use [`get`](NamedNumbers::get) for names from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedNumbers(Vec<(Cow<'static, str>, u64)>);

/// Dimensions of a problem.
pub type Shape = NamedNumbers;

/// Tile sizes and herd of a kernel.
pub type Tiling = NamedNumbers;

impl NamedNumbers {
    /// From names and numbers, in order.
    pub fn new(pairs: &[(&'static str, u64)]) -> NamedNumbers {
        let owned = |&(name, value): &(&'static str, u64)| (Cow::Borrowed(name), value);
        NamedNumbers(pairs.iter().map(owned).collect())
    }

    /// The number of that name.
    pub fn get(&self, name: &str) -> Option<u64> {
        let pair = self.0.iter().find(|(n, _)| n == name);
        pair.map(|&(_, value)| value)
    }

    /// The same with one number replaced; unknown names change nothing.
    #[must_use]
    pub fn with(mut self, name: &str, value: u64) -> NamedNumbers {
        if let Some(pair) = self.0.iter_mut().find(|(n, _)| n == name) {
            pair.1 = value;
        }
        self
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// The same with numbers replaced by those of `name=number` pairs, separated by commas.
    ///
    /// # Errors
    /// Names the pair that is malformed, has no number or an unknown name, and lists the known names.
    pub fn overridden(mut self, text: &str) -> Result<NamedNumbers, ShapeError> {
        for pair in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                ShapeError::new(
                    pair,
                    "a tiling is a list of name=number, separated by commas",
                )
            })?;
            let value = value.trim().parse().map_err(|_| {
                ShapeError::new(pair, "the value is no whole number from 0 to 2^64 - 1")
            })?;
            let known: Vec<&str> = self.0.iter().map(|(n, _)| n.as_ref()).collect();
            let known = known.join(", ");
            match self.0.iter_mut().find(|(n, _)| n == name.trim()) {
                Some(at) => at.1 = value,
                None => return Err(ShapeError::new(pair, &format!("the names are {known}"))),
            }
        }
        Ok(self)
    }
}

impl Index<&str> for NamedNumbers {
    type Output = u64;

    fn index(&self, name: &str) -> &u64 {
        match self.0.iter().find(|(n, _)| n == name) {
            Some((_, value)) => value,
            None => panic!("no `{name}` in {self}"),
        }
    }
}

impl fmt::Display for NamedNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

impl Serialize for NamedNumbers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for NamedNumbers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<NamedNumbers, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = NamedNumbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedNumbers, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, u64>()? {
                    pairs.push((Cow::Owned(name), value));
                }
                Ok(NamedNumbers(pairs))
            }
        }
        from.deserialize_map(Pairs)
    }
}

/// A shape or a tiling that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read `{text}`: {expected}")]
pub struct ShapeError {
    /// The text that was given.
    pub text: String,
    /// The expected form.
    pub expected: String,
}

impl ShapeError {
    /// An error from the given text and the expected form.
    pub fn new(text: &str, expected: &str) -> ShapeError {
        ShapeError {
            text: text.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_replaced_and_written() {
        let named = NamedNumbers::new(&[("m", 3), ("k", 4)]);
        assert_eq!((named["k"], named.get("n")), (4, None));
        assert_eq!(named.clone().with("m", 7).to_string(), "m=7,k=4");
        assert_eq!(
            named.clone().overridden(" k = 9 ,").unwrap().to_string(),
            "m=3,k=9"
        );
        assert!(named.clone().overridden("n=1").is_err());
        let json = serde_json::to_string(&named).unwrap();
        assert_eq!(json, r#"{"m":3,"k":4}"#);
        assert_eq!(serde_json::from_str::<NamedNumbers>(&json).unwrap(), named);
    }

    #[test]
    #[should_panic(expected = "no `n` in m=3")]
    fn a_name_that_is_not_there_is_no_zero() {
        let _ = NamedNumbers::new(&[("m", 3)])["n"];
    }
}
