//! Sampling options, by the names that clients use.

use millrace_runtime::SamplingParams;
use millrace_runtime::sampling::{Mirostat, StageKind};
use millrace_text::EncodeOptions;
use serde_json::Value;

use super::error::ApiError;
use super::fields::{Fields, wrong};
use super::params::{default_sampling, seed, set, texts, top_k};
use crate::scheduler::ModelInfo;

/// Maximum number of texts that break repetitions, and bytes of each.
const MAX_BREAKERS: usize = 64;
const MAX_BREAKER_BYTES: usize = 64;

/// Maximum number of banned texts, and bytes of each.
const MAX_BANNED: usize = 64;
const MAX_BANNED_BYTES: usize = 256;

/// Maximum number of biases, more than any client needs.
const MAX_BIASES: usize = 4096;

/// Sampling by the names of OpenAI's API, and those that other servers add to it.
pub(crate) fn sampling(
    fields: &Fields<'_>,
    loaded: &ModelInfo,
) -> Result<SamplingParams, ApiError> {
    let mut params = default_sampling(loaded);
    for (name, place) in [
        ("presence_penalty", &mut params.presence_penalty),
        ("frequency_penalty", &mut params.frequency_penalty),
    ] {
        set(place, fields.f32_in(name, -2.0, 2.0)?);
    }
    shared(fields, loaded, &mut params)?;
    Ok(params)
}

/// Options of every dialect but Anthropic's: the names of llama.cpp's server, with the synonyms of Ollama and vLLM.
pub(crate) fn shared(
    fields: &Fields<'_>,
    loaded: &ModelInfo,
    params: &mut SamplingParams,
) -> Result<(), ApiError> {
    set(&mut params.top_k, top_k(fields)?);
    let (dynatemp, xtc, dry) = (&mut params.dynatemp, &mut params.xtc, &mut params.dry);
    let repeat: &[&str] = &["repeat_penalty", "repetition_penalty"];
    for (names, least, most, place) in [
        (&["temperature"][..], 0.0, 100.0, &mut params.temperature),
        (&["top_p"], 0.0, 1.0, &mut params.top_p),
        (&["min_p"], 0.0, 1.0, &mut params.min_p),
        (&["typ_p", "typical_p"], 0.0, 1.0, &mut params.typical_p),
        (repeat, 0.01, 100.0, &mut params.repetition_penalty),
        (&["dynatemp_range"], 0.0, 100.0, &mut dynatemp.range),
        (&["dynatemp_exponent"], 0.0, 100.0, &mut dynatemp.exponent),
        (&["xtc_probability"], 0.0, 1.0, &mut xtc.probability),
        (&["xtc_threshold"], 0.0, 1.0, &mut xtc.threshold),
        (&["dry_multiplier"], 0.0, 1000.0, &mut dry.multiplier),
        (&["dry_base"], 1.0, 1000.0, &mut dry.base),
    ] {
        for name in names {
            set(place, fields.f32_in(name, least, most)?);
        }
    }
    // 0 keeps only the likeliest token, as does the smallest positive number.
    params.top_p = params.top_p.max(f32::MIN_POSITIVE);
    params.typical_p = params.typical_p.max(f32::MIN_POSITIVE);
    // -1 keeps all.
    set(
        &mut params.top_n_sigma,
        fields
            .f32_in("top_n_sigma", -1.0, 1000.0)?
            .map(|n| n.max(0.0)),
    );
    repetition(fields, params)?;
    params.mirostat = mirostat(fields)?;
    set(&mut params.order, order(fields)?);
    params.logit_bias = logit_bias(fields, loaded)?;
    params.seed = seed(fields)?;
    absent(fields)
}

/// Reads the range of repetition penalties, the texts that break repetitions, and the banned texts.
fn repetition(fields: &Fields<'_>, params: &mut SamplingParams) -> Result<(), ApiError> {
    for (name, place) in [
        ("repeat_last_n", &mut params.penalty_last_n),
        ("dry_penalty_last_n", &mut params.dry.last_n),
    ] {
        // -1 means the whole context.
        let last_n = fields.i64(name)?;
        set(
            place,
            last_n.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
        );
    }
    set(
        &mut params.dry.allowed_length,
        fields.usize("dry_allowed_length")?,
    );
    if fields.get("dry_sequence_breakers").is_some() {
        let name = "dry_sequence_breakers";
        params.dry.breakers = texts(fields, name, MAX_BREAKERS, MAX_BREAKER_BYTES)?;
    }
    for name in ["banned_strings", "bad_words"] {
        let banned = texts(fields, name, MAX_BANNED, MAX_BANNED_BYTES)?;
        params.banned_texts.extend(banned);
    }
    Ok(())
}

/// Refuses samplers of llama.cpp that this server does not have, unless they are off.
fn absent(fields: &Fields<'_>) -> Result<(), ApiError> {
    let instead = "this server does not have it; leave it out";
    if fields
        .f32("adaptive_target")?
        .is_some_and(|target| target >= 0.0)
    {
        return Err(ApiError::field(&fields.path("adaptive_target"), instead));
    }
    if fields.i64("min_keep")?.is_some_and(|n| n > 1) {
        return Err(ApiError::field(&fields.path("min_keep"), instead));
    }
    Ok(())
}

fn mirostat(fields: &Fields<'_>) -> Result<Option<Mirostat>, ApiError> {
    let mut mirostat = Mirostat::default();
    for (name, place) in [
        ("mirostat_tau", &mut mirostat.tau),
        ("mirostat_eta", &mut mirostat.eta),
    ] {
        set(place, fields.f32_in(name, 0.0, 100.0)?);
    }
    let path = fields.path("mirostat");
    match fields.i64("mirostat")? {
        None | Some(0) => Ok(None),
        Some(2) => Ok(Some(mirostat)),
        Some(other) => {
            let message = format!("expected 0 (off) or 2, found {other}");
            Err(ApiError::field(&path, message))
        }
    }
}

/// Names, a list of them, or one letter for each sampler.
fn order(fields: &Fields<'_>) -> Result<Option<Vec<StageKind>>, ApiError> {
    let path = fields.path("samplers");
    let expected = "a list of samplers' names, or a letter a sampler";
    let order = match fields.get("samplers") {
        None => return Ok(None),
        Some(Value::String(text)) => StageKind::order(text),
        Some(Value::Array(list)) => {
            let names: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            let names = names.ok_or_else(|| wrong(&path, expected, &list.clone().into()))?;
            names.iter().map(|name| name.parse()).collect()
        }
        Some(other) => return Err(wrong(&path, expected, other)),
    };
    let order = order.map_err(|unknown| ApiError::field(&path, unknown))?;
    let twice = (1..order.len()).find(|i| order[..*i].contains(&order[*i]));
    match twice {
        Some(i) => Err(ApiError::field(
            &path,
            format!("{} stands there twice", order[i].name()),
        )),
        None => Ok(Some(order)),
    }
}

/// Biases by token, as an object or as a list of pairs. A text that is not a number stands for each of its tokens,
/// and `false` bans a token, as in llama.cpp's server.
fn logit_bias(fields: &Fields<'_>, loaded: &ModelInfo) -> Result<Vec<(u32, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let mut out = Vec::new();
    match fields.get(NAME) {
        None => {}
        Some(Value::Array(list)) => {
            for (i, pair) in list.iter().enumerate() {
                let path = format!("{}[{i}]", fields.path(NAME));
                let Some([token, bias]) = pair.as_array().map(Vec::as_slice) else {
                    return Err(wrong(&path, "a token and its bias", pair));
                };
                let tokens = match token {
                    Value::String(text) => text_tokens(text, &path, loaded)?,
                    id => vec![token_id(id.as_u64(), &path, loaded)?],
                };
                let bias = bias_of(bias, &path)?;
                out.extend(tokens.into_iter().map(|token| (token, bias)));
            }
        }
        Some(_) => {
            let object = fields.object(NAME)?;
            for (name, bias) in object.iter().flat_map(|object| object.entries()) {
                let path = format!("{}.{name}", fields.path(NAME));
                let digits = name.strip_prefix('-').unwrap_or(name);
                let is_id = digits.bytes().all(|byte| byte.is_ascii_digit());
                let tokens = match is_id {
                    true => vec![token_id(name.parse().ok(), &path, loaded)?],
                    false => text_tokens(name, &path, loaded)?,
                };
                let bias = bias_of(bias, &path)?;
                out.extend(tokens.into_iter().map(|token| (token, bias)));
            }
        }
    }
    if out.len() > MAX_BIASES {
        let message = format!("at most {MAX_BIASES} tokens are accepted");
        return Err(ApiError::field(&fields.path(NAME), message));
    }
    Ok(out)
}

fn token_id(id: Option<u64>, path: &str, loaded: &ModelInfo) -> Result<u32, ApiError> {
    let vocab_size = loaded.model.model().config.vocab_size;
    let id = id.and_then(|id| u32::try_from(id).ok());
    id.filter(|id| (*id as usize) < vocab_size).ok_or_else(|| {
        let message = format!("expected the id of a token, below {vocab_size}");
        ApiError::field(path, message)
    })
}

fn text_tokens(text: &str, path: &str, loaded: &ModelInfo) -> Result<Vec<u32>, ApiError> {
    if text.is_empty() || text.len() > MAX_BANNED_BYTES {
        let message = format!("expected a text of 1 to {MAX_BANNED_BYTES} bytes");
        return Err(ApiError::field(path, message));
    }
    Ok(loaded.tokenizer.encode(text, EncodeOptions::default()))
}

fn bias_of(value: &Value, path: &str) -> Result<f32, ApiError> {
    let number = match value {
        Value::Bool(false) => Some(-100.0),
        other => other.as_f64(),
    };
    let bias = number.filter(|bias| (-100.0..=100.0).contains(bias));
    // By OpenAI's documentation, the two bounds ban a token and force it.
    match bias.ok_or_else(|| wrong(path, "a number from -100 to 100", value))? {
        -100.0 => Ok(f32::MIN),
        bias => Ok(bias as f32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bias_at_its_bound_bans() {
        for (value, bias) in [
            (json!(false), f32::MIN),
            (json!(-100), f32::MIN),
            (json!(-99.5), -99.5),
            (json!(100), 100.0),
        ] {
            let found = bias_of(&value, "logit_bias.7").ok();
            assert_eq!(found, Some(bias), "{value}");
        }
        for value in [json!(true), json!(-101), json!("x"), json!(null)] {
            assert!(bias_of(&value, "logit_bias.7").is_err(), "{value}");
        }
    }
}
