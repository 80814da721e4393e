//! RoPE parameters in GGUF metadata, and beside them in tensors of divisors.

use millrace_format::gguf::GgufValue;

use super::Keys;
use crate::Error;
use crate::arch::Family;
use crate::config::{LongScaling, RopeConfig, RopeScaling, YarnScaling};

/// The tensors of divisors that a file has, one element a pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct RopeTables {
    /// `rope_freqs.weight`.
    pub(crate) factors: Option<Vec<f32>>,
    /// `rope_factors_short.weight`.
    pub(crate) short: Option<Vec<f32>>,
    /// `rope_factors_long.weight`.
    pub(crate) long: Option<Vec<f32>>,
}

/// RoPE of global layers and, where the family distinguishes them, of sliding layers.
pub(super) fn read(
    family: &Family,
    keys: &Keys<'_>,
    windowed: bool,
    tables: RopeTables,
) -> Result<(RopeConfig, Option<RopeConfig>), Error> {
    let scaling = scaling(family, keys, tables)?;
    let attention_factor = keys.f32("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let takes_factor = matches!(scaling, RopeScaling::Yarn(_) | RopeScaling::Long(_));
    // 0 means absent.
    if attention_factor != 1.0 && attention_factor != 0.0 && !takes_factor {
        let key = keys.key("rope.scaling.attn_factor");
        let feature = format!("a RoPE attention factor (`{key}` = {attention_factor})");
        return Err(keys.unsupported(feature, "one with YaRN or LongRoPE"));
    }
    let theta = keys.f32("rope.freq_base")?.unwrap_or(10_000.0);
    let default = match family.unscaled_local_rope {
        true => Some(theta),
        false => family.local_rope_theta,
    };
    let local = match default {
        Some(default) if windowed => Some(RopeConfig::plain(
            keys.f32("rope.freq_base_swa")?.unwrap_or(default),
        )),
        _ => None,
    };
    Ok((RopeConfig { theta, scaling }, local))
}

fn scaling(family: &Family, keys: &Keys<'_>, tables: RopeTables) -> Result<RopeScaling, Error> {
    let factor = match keys.f32("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.f32("rope.scale_linear")?,
    };
    // 0 means unscaled (llama.cpp, `load_hparams`).
    let factor = factor.filter(|factor| *factor != 0.0);
    let key = "rope.scaling.type";
    let kind = keys.str(key)?;
    if let (Some(short), Some(long)) = (tables.short, tables.long) {
        return match kind {
            None | Some("none" | "longrope") => long_rope(keys, short, long),
            Some(other) => {
                let feature = format!("`rope_factors_long.weight` with RoPE scaling `{other}`");
                Err(keys.unsupported(feature, "longrope"))
            }
        };
    }
    // Without a type the factor is linear: files before `rope.scaling.type` have only the factor.
    let linear = match kind {
        None | Some("linear") => factor,
        Some("none") => None,
        Some("yarn") if tables.factors.is_none() => {
            return yarn(family, keys, factor.unwrap_or(1.0));
        }
        Some(other) => {
            let feature = format!("RoPE scaling `{other}` (`{}`)", keys.key(key));
            let known = "none, linear, rope_freqs.weight (llama3), yarn without that tensor, \
                         longrope with rope_factors_short.weight and rope_factors_long.weight";
            return Err(keys.unsupported(feature, known));
        }
    };
    Ok(match (linear, tables.factors) {
        (None | Some(1.0), None) => RopeScaling::None,
        (Some(factor), None) => RopeScaling::Linear { factor },
        (None, Some(factors)) => RopeScaling::Factors(factors),
        (Some(linear), Some(factors)) => {
            RopeScaling::Factors(factors.into_iter().map(|factor| factor * linear).collect())
        }
    })
}

/// The context before scaling.
fn original_context(keys: &Keys<'_>) -> Result<usize, Error> {
    match keys.usize("rope.scaling.original_context_length")? {
        Some(original) => Ok(original),
        None => keys.required("context_length"),
    }
}

fn long_rope(keys: &Keys<'_>, short: Vec<f32>, long: Vec<f32>) -> Result<RopeScaling, Error> {
    let factor = keys.f32("rope.scaling.attn_factor")?;
    Ok(RopeScaling::Long(LongScaling {
        short,
        long,
        original_context: original_context(keys)?,
        attention_factor: factor.filter(|factor| *factor != 0.0).unwrap_or(1.0),
        uses_long: false,
    }))
}

fn yarn(family: &Family, keys: &Keys<'_>, factor: f32) -> Result<RopeScaling, Error> {
    // 0 means absent, -1 too.
    let number = |key: &str| {
        let number = keys.f32(&format!("rope.scaling.{key}"))?;
        Ok::<_, Error>(number.filter(|number| *number > 0.0))
    };
    let share = keys.f32("rope.scaling.yarn_ext_factor")?;
    if let Some(share) = share.filter(|share| *share >= 0.0 && *share != 1.0) {
        let key = keys.key("rope.scaling.yarn_ext_factor");
        let feature = format!("another mix of frequencies than YaRN's (`{key}` = {share})");
        return Err(keys.unsupported(feature, "1"));
    }
    let multiplier = number(LOG_MULTIPLIER)?;
    let implied = implied_attention_factor(family, factor, multiplier);
    let attention_factor = number("yarn_attn_factor")?.unwrap_or(implied);
    Ok(RopeScaling::Yarn(YarnScaling {
        factor,
        original_context: original_context(keys)?,
        beta_fast: number("yarn_beta_fast")?.unwrap_or(32.0),
        beta_slow: number("yarn_beta_slow")?.unwrap_or(1.0),
        attention_factor: attention_factor * number("attn_factor")?.unwrap_or(1.0),
        score_mscale: multiplier
            .filter(|_| family.yarn_scales_scores)
            .map(|multiplier| (decimal(multiplier) / SCORE_MULTIPLIER) as f32),
        truncates: keys.bool(YARN_TRUNCATE)?.unwrap_or(TRUNCATES),
    }))
}

/// A key of this program: other readers take whole pairs.
pub(crate) const YARN_TRUNCATE: &str = "rope.scaling.yarn_truncate";

/// Whether YaRN mixes between whole pairs, where a file does not say.
const TRUNCATES: bool = true;

/// Below `rope.scaling`: `mscale_all_dim`, times [`SCORE_MULTIPLIER`] in families that scale scores by it.
const LOG_MULTIPLIER: &str = "yarn_log_multiplier";

/// Factor by which llama.cpp's converter multiplies `mscale_all_dim` in DeepSeek's families; its reader divides by it.
const SCORE_MULTIPLIER: f64 = 0.1;

/// The factor on cosines and sines that a file with this multiplier implies (llama.cpp, `llama_context`). It
/// takes `mscale` as 1 and, in families that scale scores, as equal to that of all elements.
fn implied_attention_factor(family: &Family, factor: f32, multiplier: Option<f32>) -> f32 {
    let recommended = |mscale| YarnScaling::recommended_attention_factor(factor, mscale);
    match multiplier {
        None => recommended(1.0),
        Some(_) if family.yarn_scales_scores => 1.0,
        Some(all) => recommended(1.0) / recommended(all),
    }
}

/// The double that prints as the number does, for products that must come back exactly.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// The keys of a scaling.
pub(super) fn write(family: &Family, rope: &RopeConfig, set: &mut dyn FnMut(&str, GgufValue)) {
    let kind = |kind: &str| GgufValue::Str(kind.into());
    let size = |size: usize| GgufValue::U32(u32::try_from(size).unwrap_or(u32::MAX));
    match &rope.scaling {
        RopeScaling::Linear { factor } => {
            set("rope.scaling.type", kind("linear"));
            set("rope.scaling.factor", GgufValue::F32(*factor));
        }
        RopeScaling::Yarn(yarn) => write_yarn(family, yarn, set),
        RopeScaling::Long(long) => {
            set("rope.scaling.type", kind("longrope"));
            set(
                "rope.scaling.original_context_length",
                size(long.original_context),
            );
            set(
                "rope.scaling.attn_factor",
                GgufValue::F32(long.attention_factor),
            );
        }
        RopeScaling::None
        | RopeScaling::Llama3 { .. }
        | RopeScaling::Dynamic { .. }
        | RopeScaling::Proportional { .. }
        | RopeScaling::Factors(_) => {}
    }
}

fn write_yarn(family: &Family, yarn: &YarnScaling, set: &mut dyn FnMut(&str, GgufValue)) {
    set("rope.scaling.type", GgufValue::Str("yarn".into()));
    set("rope.scaling.factor", GgufValue::F32(yarn.factor));
    set(
        "rope.scaling.original_context_length",
        GgufValue::U32(u32::try_from(yarn.original_context).unwrap_or(u32::MAX)),
    );
    set(
        "rope.scaling.yarn_beta_fast",
        GgufValue::F32(yarn.beta_fast),
    );
    set(
        "rope.scaling.yarn_beta_slow",
        GgufValue::F32(yarn.beta_slow),
    );
    let multiplier = match yarn.score_mscale {
        Some(mscale) => Some((decimal(mscale) * SCORE_MULTIPLIER) as f32),
        // The scaling leaves cosines and sines alone: `mscale` and `mscale_all_dim` are both 1.
        None if yarn.attention_factor == 1.0 && yarn.factor > 1.0 && !family.yarn_scales_scores => {
            Some(1.0)
        }
        None => None,
    };
    if let Some(multiplier) = multiplier {
        set(
            &format!("rope.scaling.{LOG_MULTIPLIER}"),
            GgufValue::F32(multiplier),
        );
    }
    let implied = implied_attention_factor(family, yarn.factor, multiplier);
    if yarn.attention_factor != implied {
        let factor = GgufValue::F32(yarn.attention_factor);
        set("rope.scaling.yarn_attn_factor", factor);
    }
    if yarn.truncates != TRUNCATES {
        set(YARN_TRUNCATE, GgufValue::Bool(yarn.truncates));
    }
}
