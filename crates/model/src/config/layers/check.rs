//! Sizes and numbers of layers that no model has.

use crate::Error;
use crate::config::{HeadSizes, MAX_HEAD_DIM, MAX_LAYERS, MAX_WIDTH, ModelConfig};

/// Largest parameter of xIELU that is accepted.
const XIELU_MAX: f32 = 600.0;

/// The least bound of an activated gate: SiLU never goes below -0.2785, so a bound of magnitude leaves negative gates alone.
const GLU_BOUND_MIN: f32 = 0.28;

impl ModelConfig {
    /// Refuses sizes of layers that are zero, absurd or do not fit each other.
    pub(in crate::config) fn validate_layers(&self, file: &str) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: String| Error::BadValue {
            file: file.into(),
            key: key.into(),
            found,
            expected,
        };
        if let Some(heads) = self.layers.sliding_heads {
            self.check_heads(heads)
                .map_err(|(key, found, expected)| bad(key, found, expected))?;
        }
        self.check_heads_by_layer()
            .map_err(|(key, found, expected)| bad(&key, found, expected))?;
        self.check_values_and_bounds()
            .and_then(|()| self.check_table())
            .map_err(|(key, found, expected)| bad(key, found, expected))?;
        let networks = &self.layers.networks;
        if !networks.is_empty() && networks.len() != self.n_layers {
            let expected = format!("one for each of the {} layers", self.n_layers);
            let found = networks.len().to_string();
            return Err(bad("number of layer types", found, expected));
        }
        for (layer, xielu) in self.layers.xielu.iter().enumerate() {
            // Beyond it the softplus does not fit f32.
            let is_sane = |number: &f32| number.abs() <= XIELU_MAX;
            if let Some(found) = xielu.numbers().iter().find(|number| !is_sane(number)) {
                let key = format!("xIELU's numbers in layer {layer}");
                let expected = format!("between -{XIELU_MAX} and {XIELU_MAX}");
                return Err(bad(&key, found.to_string(), expected));
            }
        }
        let widths = &self.layers.d_ff;
        if !widths.is_empty() && widths.len() != self.n_layers {
            let expected = format!("one for each of the {} layers", self.n_layers);
            let found = widths.len().to_string();
            return Err(bad("number of feed-forward sizes", found, expected));
        }
        let least = usize::from(self.layers.n_heads.is_empty());
        if let Some(width) = widths.iter().find(|n| !(least..=MAX_WIDTH).contains(*n)) {
            let expected = format!("between {least} and {MAX_WIDTH}");
            return Err(bad("feed-forward size", width.to_string(), expected));
        }
        let n_shared = self.layers.n_shared_kv;
        let first = self.n_layers.saturating_sub(n_shared);
        if (first..self.n_layers).any(|layer| self.kv_layer_of(layer) >= first) {
            let expected = "a layer of each kind before the layers that share".to_owned();
            let key = "layers that share keys and values";
            return Err(bad(key, n_shared.to_string(), expected));
        }
        let embedding_dim = self.layers.embedding_dim;
        if embedding_dim.saturating_mul(self.n_layers.min(MAX_LAYERS)) > MAX_WIDTH {
            let expected = format!("at most {MAX_WIDTH} for all layers together");
            let found = embedding_dim.to_string();
            return Err(bad("size of a layer's embedding", found, expected));
        }
        match &self.layers.streams {
            Some(streams) => streams.validate(file, self),
            None => Ok(()),
        }
    }

    /// Refuses heads of values that are no part of a head of keys, and bounds that are absurd.
    fn check_values_and_bounds(&self) -> Result<(), (&'static str, String, String)> {
        let largest = (0..self.n_layers)
            .map(|layer| self.heads_of(layer).head_dim)
            .min();
        let largest = largest.unwrap_or(self.head_dim);
        if let Some(v_dim) = self.layers.v_dim
            && !(1..=largest).contains(&v_dim)
        {
            let expected = format!("between 1 and the head size {largest}");
            return Err(("size of value heads", v_dim.to_string(), expected));
        }
        if let Some(scale) = self.layers.value_scale
            && !(scale.is_finite() && scale != 0.0)
        {
            let expected = "a number other than 0".into();
            return Err(("factor on values", scale.to_string(), expected));
        }
        let bounds = &self.layers.glu_bounds;
        if !bounds.is_empty() && bounds.len() != self.n_layers {
            let expected = format!("one for each of the {} layers", self.n_layers);
            let found = bounds.len().to_string();
            return Err(("number of bounds of gated networks", found, expected));
        }
        let mut all = bounds.iter().flat_map(|of| [of.experts, of.network]);
        match all.find(|bound| *bound != 0.0 && !(GLU_BOUND_MIN..f32::INFINITY).contains(bound)) {
            Some(found) => {
                let expected = format!("0 for none, or at least {GLU_BOUND_MIN}");
                Err(("bound of a gated network", found.to_string(), expected))
            }
            None => Ok(()),
        }
    }

    fn check_table(&self) -> Result<(), (&'static str, String, String)> {
        match self.layers.table_dim {
            Some(width) if !(1..=MAX_WIDTH).contains(&width) => {
                let expected = format!("between 1 and {MAX_WIDTH}");
                Err(("width of the embedding table", width.to_string(), expected))
            }
            _ => Ok(()),
        }
    }

    fn check_heads(&self, heads: HeadSizes) -> Result<(), (&'static str, String, String)> {
        let HeadSizes {
            n_kv_heads,
            head_dim,
            n_rot,
        } = heads;
        let sizes = [
            ("number of key/value heads", n_kv_heads, MAX_WIDTH),
            ("head size of sliding layers", head_dim, MAX_HEAD_DIM),
            (
                "size of all heads",
                self.n_heads.saturating_mul(head_dim),
                MAX_WIDTH,
            ),
        ];
        for (key, found, max) in sizes {
            if found == 0 || found > max {
                return Err((key, found.to_string(), format!("between 1 and {max}")));
            }
        }
        if !self.n_heads.is_multiple_of(n_kv_heads) {
            let expected = format!("a divisor of the {} query heads", self.n_heads);
            return Err((sizes[0].0, n_kv_heads.to_string(), expected));
        }
        if !n_rot.is_multiple_of(2) || n_rot > head_dim {
            let expected = format!("even, and at most the head size {head_dim}");
            return Err(("elements that RoPE rotates", n_rot.to_string(), expected));
        }
        Ok(())
    }
}
