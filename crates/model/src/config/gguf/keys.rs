//! Metadata keys under the name of an architecture.

use millrace_format::gguf::{GgufArray, GgufValue, Metadata};

use crate::Error;
use crate::arch::Family;
use crate::catalog::Catalog;
use crate::config::MAX_LAYERS;
use crate::config::hf::{ACTIVATIONS, HfWindows, activation_named};
use crate::names::TensorName;
use millrace_graph::Activation;

/// The key of an activation, in families whose files name it.
pub(crate) const ACTIVATION_KEY: &str = "hidden_activation";

/// A key under the architecture's name; a key that begins with `!` is taken without it.
pub(super) fn key_of(arch: &str, key: &str) -> String {
    match key.strip_prefix('!') {
        Some(key) => key.to_owned(),
        None => format!("{arch}.{key}"),
    }
}

/// Metadata keys under the architecture's name.
pub(crate) struct Keys<'a> {
    pub(super) file: &'a str,
    pub(super) arch: &'static str,
    pub(super) metadata: &'a Metadata,
    pub(super) catalog: &'a Catalog<'a>,
}

impl<'a> Keys<'a> {
    pub(super) fn key(&self, key: &str) -> String {
        key_of(self.arch, key)
    }

    pub(crate) fn usize(&self, key: &str) -> Result<Option<usize>, Error> {
        Ok(self.metadata.get_usize(&self.key(key))?)
    }

    pub(crate) fn required(&self, key: &str) -> Result<usize, Error> {
        self.usize(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn required_f32(&self, key: &str) -> Result<f32, Error> {
        self.f32(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn required_uniform(&self, key: &str) -> Result<usize, Error> {
        self.uniform(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn missing(&self, key: &str) -> Error {
        Error::MissingKey {
            file: self.file.into(),
            key: self.key(key),
        }
    }

    pub(crate) fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        Ok(self.metadata.get_f32(&self.key(key))?)
    }

    pub(crate) fn str(&self, key: &str) -> Result<Option<&'a str>, Error> {
        Ok(self.metadata.get_str(&self.key(key))?)
    }

    /// The activation that a file names, in families whose files do.
    pub(crate) fn activation(&self) -> Result<Option<Activation>, Error> {
        let Some(name) = self.str(ACTIVATION_KEY)? else {
            return Ok(None);
        };
        match activation_named(name) {
            Some(activation) => Ok(Some(activation)),
            None => {
                let key = self.key(ACTIVATION_KEY);
                Err(self.unsupported(format!("activation `{name}` (`{key}`)"), ACTIVATIONS))
            }
        }
    }

    /// A size that may be given once or once a layer; layers must agree.
    pub(crate) fn uniform(&self, key: &str) -> Result<Option<usize>, Error> {
        let name = self.key(key);
        if !matches!(self.metadata.get(&name), Some(GgufValue::Array(_))) {
            return self.usize(key);
        }
        let sizes = self.metadata.get_u32_array(&name)?.unwrap_or_default();
        match sizes.split_first() {
            Some((first, rest)) if rest.iter().all(|size| size == first) => {
                Ok(Some(*first as usize))
            }
            _ => Err(self.unsupported(format!("`{name}` that differs by layer"), "one value")),
        }
    }

    /// A size that may be given for each layer; `None` where it is given once, or not at all.
    pub(crate) fn by_layer(&self, key: &str) -> Result<Option<Vec<usize>>, Error> {
        let name = self.key(key);
        if !matches!(self.metadata.get(&name), Some(GgufValue::Array(_))) {
            return Ok(None);
        }
        let sizes = self.metadata.get_u32_array(&name)?.unwrap_or_default();
        Ok(Some(sizes.into_iter().map(|size| size as usize).collect()))
    }

    /// A size of all layers. In families whose layers may differ, that of the first layer that has it. In families with recurrent
    /// layers, that of the layers that have it; their hooks sort these out.
    pub(super) fn leading(&self, family: &Family, key: &str) -> Result<Option<usize>, Error> {
        if matches!(
            family.hf_windows,
            HfWindows::Recurrent | HfWindows::BesideRecurrent(_)
        ) {
            return self.uniform_but_zeros(key);
        }
        match self.by_layer(key)? {
            Some(sizes) if family.sizes_by_layer => {
                let first = sizes.iter().find(|size| **size > 0);
                Ok(first.or(sizes.first()).copied())
            }
            _ => self.uniform(key),
        }
    }

    /// As [`uniform`](Keys::uniform), zeros left out.
    fn uniform_but_zeros(&self, key: &str) -> Result<Option<usize>, Error> {
        let name = self.key(key);
        if !matches!(self.metadata.get(&name), Some(GgufValue::Array(_))) {
            return self.usize(key);
        }
        let sizes = self.metadata.get_u32_array(&name)?.unwrap_or_default();
        let mut sizes = sizes.into_iter().filter(|size| *size > 0);
        match sizes.next() {
            None => Ok(None),
            Some(first) if sizes.all(|size| size == first) => Ok(Some(first as usize)),
            _ => {
                Err(self.unsupported(format!("`{name}` that differs by layer"), "one value, or 0"))
            }
        }
    }

    /// A size that may be given once or for each layer.
    pub(crate) fn per_layer(&self, key: &str, n_layers: usize) -> Result<Vec<usize>, Error> {
        let name = self.key(key);
        match self.metadata.get(&name) {
            Some(GgufValue::Array(_)) => {
                let sizes = self.metadata.get_u32_array(&name)?.unwrap_or_default();
                Ok(sizes.into_iter().map(|size| size as usize).collect())
            }
            _ => Ok(vec![self.required(key)?; n_layers]),
        }
    }

    /// Flags, each a boolean or a number; a single value does not count.
    pub(crate) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, Error> {
        let name = self.key(key);
        Ok(match self.metadata.get(&name) {
            Some(GgufValue::Array(GgufArray::Bool(flags))) => Some(flags.clone()),
            Some(GgufValue::Array(_)) => {
                let flags = self.metadata.get_i32_array(&name)?.unwrap_or_default();
                Some(flags.into_iter().map(|flag| flag != 0).collect())
            }
            _ => None,
        })
    }

    /// Whether the file has that weight.
    pub(crate) fn has(&self, name: TensorName) -> bool {
        self.catalog.has(&name.gguf())
    }

    /// The dimensions of that weight in the file, slowest first; `None` where it has none.
    pub(crate) fn shape(&self, name: TensorName) -> Option<&'a [usize]> {
        self.catalog.shape(&name.gguf())
    }

    pub(crate) fn u32_array(&self, key: &str) -> Result<Option<Vec<u32>>, Error> {
        Ok(self.metadata.get_u32_array(&self.key(key))?)
    }

    pub(crate) fn f32_array(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        Ok(self.metadata.get_f32_array(&self.key(key))?)
    }

    /// A number of each layer, given once or for each layer.
    pub(crate) fn f32_of_layers(&self, key: &str, n_layers: usize) -> Result<Vec<f32>, Error> {
        let name = self.key(key);
        if !matches!(self.metadata.get(&name), Some(GgufValue::Array(_))) {
            // `validate` refuses more layers after this.
            return Ok(vec![self.required_f32(key)?; n_layers.min(MAX_LAYERS)]);
        }
        let numbers = self.f32_array(key)?.unwrap_or_default();
        match numbers.len() == n_layers {
            true => Ok(numbers),
            false => Err(Error::BadValue {
                file: self.file.into(),
                key: name,
                found: format!("{} numbers", numbers.len()),
                expected: format!("one for each of the {n_layers} layers"),
            }),
        }
    }

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        Ok(self.metadata.get_bool(&self.key(key))?)
    }

    pub(crate) fn unsupported(&self, feature: String, supported: &str) -> Error {
        Error::Unsupported {
            file: self.file.into(),
            feature,
            supported: supported.into(),
        }
    }
}
