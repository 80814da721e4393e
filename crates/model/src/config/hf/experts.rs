//! Experts in `config.json`: every family has different keys.

use super::ConfigObject;
use crate::Error;
use crate::arch::Family;
use crate::config::ExpertConfig;
use millrace_graph::RouteGroups;
use serde_json::Value;

/// Keys for the number of experts that transformers treats as equal.
pub(super) const COUNTS: [&str; 4] = [
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
];

/// The keys of a family's `config.json`, with the values that its transformers class takes for absent keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HfExperts {
    /// Number of experts. Where it is absent or 0 the model is dense.
    pub(crate) n_experts: (&'static str, usize),
    /// Experts that a token uses.
    pub(crate) n_used: (&'static str, usize),
    /// Width of an expert.
    pub(crate) d_ff: (&'static str, usize),
    /// Whether weights are normalised; without a key, the family's way.
    pub(crate) normalized: Option<(&'static str, bool)>,
    /// Factor on the weights.
    pub(crate) scale: Option<(&'static str, f32)>,
    /// Groups, and groups that are chosen from.
    pub(crate) groups: Option<[(&'static str, usize); 2]>,
    /// Soft bound of scores; 0 for none.
    pub(crate) softcap: Option<&'static str>,
    /// Whether scores have a bias for the choice.
    pub(crate) choice_bias: bool,
    /// How the shared feed-forward's width is given.
    pub(crate) shared: HfShared,
    /// Whether the shared feed-forward has a gate.
    pub(crate) shared_gate: bool,
    /// Whether the shared feed-forward has biases where dense ones have.
    pub(crate) shared_biases: bool,
    /// Leading dense layers.
    pub(crate) n_dense_layers: Option<(&'static str, usize)>,
    /// Every n-th layer has experts.
    pub(crate) every: Option<(&'static str, usize)>,
    /// A list of dense layers.
    pub(crate) dense_layers: Option<&'static str>,
    /// A list with a word for each layer: `dense` or `sparse`. It takes precedence over the number of dense layers.
    pub(crate) layer_kinds: Option<&'static str>,
    /// Whether routers and experts have biases.
    pub(crate) biases: bool,
}

/// How a family gives the width of its shared feed-forward.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HfShared {
    /// It has none.
    Absent,
    /// The width itself.
    Width(&'static str, usize),
    /// A multiple of an expert's width.
    Count(&'static str, usize),
}

impl HfExperts {
    /// Plain keys, as Qwen 3's; a family states its differences.
    pub(crate) const PLAIN: HfExperts = HfExperts {
        n_experts: ("num_experts", 128),
        n_used: ("num_experts_per_tok", 8),
        d_ff: ("moe_intermediate_size", 768),
        normalized: None,
        scale: None,
        groups: None,
        softcap: None,
        choice_bias: false,
        shared: HfShared::Absent,
        shared_gate: false,
        shared_biases: false,
        n_dense_layers: None,
        every: None,
        dense_layers: None,
        layer_kinds: None,
        biases: false,
    };

    pub(super) fn read(
        &self,
        family: &Family,
        text: &ConfigObject<'_>,
    ) -> Result<Option<ExpertConfig>, Error> {
        let size = |key| size(text, key);
        let optional = |key: Option<(&'static str, usize)>, default| key.map_or(Ok(default), size);
        let mut n_experts = uniform(text, self.n_experts.0)?;
        for key in COUNTS {
            n_experts = n_experts.or(uniform(text, key)?);
        }
        let n_experts = n_experts.unwrap_or(self.n_experts.1);
        if n_experts == 0 {
            return Ok(None);
        }
        let d_ff = size(self.d_ff)?;
        let shared_d_ff = match self.shared {
            HfShared::Absent => 0,
            HfShared::Width(key, default) => size((key, default))?,
            HfShared::Count(key, default) => size((key, default))?.saturating_mul(d_ff),
        };
        let mut experts = ExpertConfig {
            n_experts,
            n_used: size(self.n_used)?,
            d_ff,
            gating: family.experts.gating,
            normalized: self.normalized(family, text)?,
            scale: match self.scale {
                Some((key, default)) => text.f32(key)?.unwrap_or(default),
                None => 1.0,
            },
            groups: self.groups(family, text)?,
            choice_bias: self.choice_bias,
            shared_d_ff,
            shared_gate: self.shared_gate,
            n_dense_layers: optional(self.n_dense_layers, 0)?,
            every: optional(self.every, 1)?,
            dense_layers: self
                .dense_layers
                .map_or(Ok(Vec::new()), |key| layers(text, key))?,
            biases: self.biases,
            softcap: match self.softcap {
                Some(key) => text.f32(key)?.filter(|cap| *cap != 0.0),
                None => None,
            },
            latent_dim: 0,
        };
        if let Some(key) = self.layer_kinds
            && let Some(dense) = dense(text, key)?
        {
            (experts.n_dense_layers, experts.dense_layers) = (0, dense);
            experts.count_leading_dense();
        }
        Ok(Some(experts))
    }

    /// The number added to the sum by which weights are divided, if they are.
    fn normalized(&self, family: &Family, text: &ConfigObject<'_>) -> Result<Option<f32>, Error> {
        let Some((key, default)) = self.normalized else {
            return Ok(family.experts.normalized);
        };
        let is_normalized = text.bool(key)?.unwrap_or(default);
        Ok(is_normalized.then(|| family.experts.normalized.unwrap_or(0.0)))
    }

    /// Groups of experts, where there are several.
    fn groups(
        &self,
        family: &Family,
        text: &ConfigObject<'_>,
    ) -> Result<Option<RouteGroups>, Error> {
        let Some([n_groups, n_used]) = self.groups else {
            return Ok(None);
        };
        let groups = RouteGroups {
            n_groups: size(text, n_groups)?,
            n_used: size(text, n_used)?,
            n_best: family.experts.group_best,
        };
        Ok((groups.n_groups > 1).then_some(groups))
    }

    /// Writes the keys that [`read`](HfExperts::read) reads.
    pub(super) fn write(
        &self,
        (experts, n_layers): (&ExpertConfig, usize),
        set: &mut dyn FnMut(&str, Value),
    ) {
        set(self.n_experts.0, experts.n_experts.into());
        set(self.n_used.0, experts.n_used.into());
        set(self.d_ff.0, experts.d_ff.into());
        if let Some((key, _)) = self.normalized {
            set(key, experts.normalized.is_some().into());
        }
        if let Some((key, _)) = self.scale {
            set(key, experts.scale.into());
        }
        if let Some(key) = self.softcap {
            set(key, experts.softcap.unwrap_or(0.0).into());
        }
        if let Some([n_groups, n_used]) = self.groups {
            let groups = experts.groups.map_or((1, 1), |g| (g.n_groups, g.n_used));
            set(n_groups.0, groups.0.into());
            set(n_used.0, groups.1.into());
        }
        match self.shared {
            HfShared::Absent => {}
            HfShared::Width(key, _) => set(key, experts.shared_d_ff.into()),
            HfShared::Count(key, _) => set(key, (experts.shared_d_ff / experts.d_ff).into()),
        }
        if let Some((key, _)) = self.n_dense_layers {
            set(key, experts.n_dense_layers.into());
        }
        if let Some((key, _)) = self.every {
            set(key, experts.every.into());
        }
        if let Some(key) = self.dense_layers {
            set(key, experts.dense_layers.clone().into());
        }
        if let Some(key) = self.layer_kinds {
            let kind = |layer| if experts.has(layer) { SPARSE } else { DENSE };
            set(key, (0..n_layers).map(kind).collect());
        }
    }
}

/// A [`uniform`] size, or the class's default.
fn size(text: &ConfigObject<'_>, (key, default): (&'static str, usize)) -> Result<usize, Error> {
    Ok(uniform(text, key)?.unwrap_or(default))
}

/// A number that may be given once or for each layer; layers must agree.
fn uniform(text: &ConfigObject<'_>, key: &str) -> Result<Option<usize>, Error> {
    let Some(Value::Array(list)) = text.get(key) else {
        return text.usize(key);
    };
    let number = list.first().and_then(Value::as_u64);
    let number = number.and_then(|number| usize::try_from(number).ok());
    match number.filter(|_| list.iter().all(|other| *other == list[0])) {
        Some(number) => Ok(Some(number)),
        None => {
            let feature = format!("`{key}` that differs by layer");
            Err(text.unsupported(feature, "one number"))
        }
    }
}

/// Words for layers in lists of them.
const DENSE: &str = "dense";
const SPARSE: &str = "sparse";

/// The dense layers of a list with a word for each layer; `None` where there is no list.
fn dense(text: &ConfigObject<'_>, key: &str) -> Result<Option<Vec<usize>>, Error> {
    let Some(kinds) = text.array(key)? else {
        return Ok(None);
    };
    let mut dense = Vec::new();
    for (layer, kind) in kinds.iter().enumerate() {
        match kind.as_str() {
            Some(DENSE) => dense.push(layer),
            Some(SPARSE) => {}
            _ => return Err(text.bad(key, kind, "`dense` or `sparse`")),
        }
    }
    Ok(Some(dense))
}

/// A list of numbers of layers.
fn layers(text: &ConfigObject<'_>, key: &str) -> Result<Vec<usize>, Error> {
    let Some(list) = text.array(key)? else {
        return Ok(Vec::new());
    };
    let layer = |value: &Value| {
        let layer = value.as_u64().and_then(|layer| usize::try_from(layer).ok());
        layer.ok_or_else(|| text.bad(key, value, "numbers of layers"))
    };
    list.iter().map(layer).collect()
}
