//! A configuration under the keys of its transformers class: published files of some families have others, and leave out values
//! that the class computes from the rest.

use serde_json::{Map, Value, json};

use super::ConfigObject;
use crate::Error;
use crate::config::MAX_LAYERS;

/// A JSON object of hyperparameters.
pub(crate) type HfObject = Map<String, Value>;

/// Types of layers in `layer_types`.
pub(crate) const FULL: &str = "full_attention";
pub(crate) const SLIDING: &str = "sliding_attention";

/// A configuration whose keys are being replaced.
pub(crate) struct Spelling<'a> {
    text: &'a ConfigObject<'a>,
    map: HfObject,
}

impl<'a> Spelling<'a> {
    pub(crate) fn of(text: &'a ConfigObject<'a>) -> Spelling<'a> {
        Spelling {
            text,
            map: text.map.clone(),
        }
    }

    /// The result.
    pub(crate) fn done(self) -> Result<Option<HfObject>, Error> {
        Ok(Some(self.map))
    }

    /// Number of layers, within the bound for lists of them.
    ///
    /// # Errors
    /// [`Error::BadValue`] beyond it.
    pub(crate) fn n_layers(&self, key: &str, default: usize) -> Result<usize, Error> {
        let n_layers = self.text.usize(key)?.unwrap_or(default);
        match n_layers <= MAX_LAYERS {
            true => Ok(n_layers),
            false => Err(self
                .text
                .bad(key, &json!(n_layers), &format!("at most {MAX_LAYERS}"))),
        }
    }

    /// Whether the key has a value other than `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.map.insert(key.into(), value);
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    /// Takes the value of another key where this one has none.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if !self.has(to)
            && let Some(value) = self.map.remove(from)
        {
            self.map.insert(to.into(), value);
        }
    }

    /// Takes this value where the key has none, or `null`.
    pub(crate) fn default(&mut self, key: &str, value: impl FnOnce() -> Value) {
        if !self.has(key) {
            self.map.insert(key.into(), value());
        }
    }

    /// Cuts a list of layers that goes on behind the last one.
    pub(crate) fn cut(&mut self, key: &str, n_layers: usize) {
        if let Some(Value::Array(list)) = self.map.get_mut(key) {
            list.truncate(n_layers);
        }
    }
}

/// A list of words for layers: the first where `is_first`.
pub(crate) fn words_of(
    n_layers: usize,
    [first, other]: [&str; 2],
    is_first: impl Fn(usize) -> bool,
) -> Value {
    let word = |layer| if is_first(layer) { first } else { other };
    (0..n_layers).map(word).collect()
}
