//! Options that say how text is chosen, shared by `run` and `chat`.

use crate::exit::{Failure, Outcome};
use millrace_runtime::{GenerateParams, LoadedModel, SamplingParams};
use serde_json::{Map, Value};
use std::time::{SystemTime, UNIX_EPOCH};

/// How tokens are drawn. What is not given comes from the model's files, else from here.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Always take the likeliest token (the same as --temperature 0)
    #[arg(long, conflicts_with = "temperature")]
    greedy: bool,
    /// Higher is more varied, 0 always takes the likeliest token [default: the model's, else 0.8]
    #[arg(long, visible_alias = "temp", value_name = "T")]
    temperature: Option<f32>,
    /// Choose among the K likeliest tokens; 0 for all [default: the model's, else 40]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Choose among the likeliest tokens that together have probability P [default: the model's, else 0.95]
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Leave out tokens less likely than P times the likeliest [default: the model's, else 0.05]
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Choose among tokens of typical surprise up to probability P; 1 is off [default: the model's, else 1]
    #[arg(long, value_name = "P")]
    typical_p: Option<f32>,
    /// Make tokens that appeared lately less likely; 1 is off [default: the model's, else 1]
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f32>,
    /// Subtract from the logits of tokens that appeared lately; 0 is off [default: the model's, else 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Subtract from the logits of tokens for each time they appeared lately; 0 is off
    /// [default: the model's, else 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// How many tokens back the penalties look [default: the model's, else 64]
    #[arg(long, value_name = "N")]
    penalty_last_n: Option<usize>,
    /// Add X to the logit of token ID; -inf bans it. May be repeated
    #[arg(long, value_name = "ID=X", value_parser = parse_bias, allow_hyphen_values = true)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws: the same seed gives the same text [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// When generation ends.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Generation")]
pub(crate) struct LengthArgs {
    /// Tokens to write at most; -1 for no limit [default: -1]. A full context ends it in any case
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(i64).range(-1..))]
    max_tokens: Option<i64>,
    /// End when this text appears; it is not printed. May be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on past the model's end-of-text tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Print control tokens that the model writes, the ending one too
    #[arg(long)]
    special: bool,
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let (id, bias) = text.split_once('=').ok_or("write ID=X, as 1234=-inf")?;
    let id = id
        .trim()
        .parse()
        .map_err(|_| format!("`{id}` is not a token id"))?;
    let bias: f32 = bias
        .trim()
        .parse()
        .map_err(|_| format!("`{bias}` is not a number"))?;
    if bias.is_nan() {
        Err("the bias must be a number".into())
    } else {
        Ok((id, bias))
    }
}

impl SamplingArgs {
    /// What was said, as fields of a request to a server, which knows what its model recommends.
    pub(crate) fn fields(&self) -> Outcome<Map<String, Value>> {
        if self.penalty_last_n.is_some() {
            return Err(Failure::usage(
                "--penalty-last-n: the server decides how far its penalties look",
            ));
        }
        let mut fields = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            fields.extend(value.map(|value| (name.to_owned(), value)));
        };
        let temperature = if self.greedy {
            Some(0.0)
        } else {
            self.temperature
        };
        set("temperature", temperature.map(number));
        set("top_k", self.top_k.map(Value::from));
        set("top_p", self.top_p.map(number));
        set("min_p", self.min_p.map(number));
        set("typical_p", self.typical_p.map(number));
        set("repetition_penalty", self.repetition_penalty.map(number));
        set("presence_penalty", self.presence_penalty.map(number));
        set("frequency_penalty", self.frequency_penalty.map(number));
        let bias = self.logit_bias.iter();
        // -100 bans a token in OpenAI's API, as -inf does here.
        let bias: Map<String, Value> = bias
            .map(|(id, bias)| (id.to_string(), number(bias.max(-100.0))))
            .collect();
        set("logit_bias", (!bias.is_empty()).then_some(bias.into()));
        set("seed", self.seed.map(Value::from));
        Ok(fields)
    }

    /// The sampling to use with a model that recommends `recommended`.
    fn resolve(&self, recommended: Option<SamplingParams>) -> SamplingParams {
        let base = recommended.unwrap_or(SamplingParams {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            ..SamplingParams::default()
        });
        let temperature = if self.greedy {
            Some(0.0)
        } else {
            self.temperature
        };
        SamplingParams {
            temperature: temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            typical_p: self.typical_p.unwrap_or(base.typical_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            penalty_last_n: self.penalty_last_n.unwrap_or(base.penalty_last_n),
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.unwrap_or_else(new_seed),
        }
    }
}

/// As it was written, and not as the nearest f64 of an f32.
fn number(value: f32) -> Value {
    let exact = value.to_string().parse::<f64>();
    exact.unwrap_or(f64::from(value)).into()
}

impl LengthArgs {
    /// As fields of a request to a server; `n_ctx` where there is no limit of tokens.
    ///
    /// # Errors
    /// An option that servers do not know.
    pub(crate) fn fields(&self, n_ctx: Option<u64>) -> Outcome<Map<String, Value>> {
        if self.special {
            return Err(Failure::usage(
                "--special: a server's texts leave control tokens out",
            ));
        }
        let mut fields = Map::new();
        let asked = self.max_tokens.and_then(|n| u64::try_from(n).ok());
        let limit = asked.or(n_ctx).map(Value::from);
        fields.extend(limit.map(|limit| ("max_tokens".to_owned(), limit)));
        if !self.stop.is_empty() {
            fields.insert("stop".to_owned(), self.stop.clone().into());
        }
        if self.ignore_eos {
            fields.insert("ignore_eos".to_owned(), true.into());
        }
        Ok(fields)
    }
}

/// A seed nobody chose. Short, so that people can repeat it.
fn new_seed() -> u64 {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mixed = since_1970.as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32
}

/// Everything [`millrace_runtime::generate`] needs to know, checked.
pub(crate) fn generate_params(
    model: &LoadedModel,
    sampling: &SamplingArgs,
    length: &LengthArgs,
) -> Outcome<GenerateParams> {
    let sampling = sampling.resolve(model.recommended_sampling()?);
    sampling.check()?;
    let vocab_size = model.model().config.vocab_size;
    if let Some((id, _)) = sampling
        .logit_bias
        .iter()
        .find(|(id, _)| *id as usize >= vocab_size)
    {
        let message = format!("--logit-bias: token {id} is not in the vocabulary of {vocab_size}");
        return Err(Failure::usage(message));
    }
    if length.stop.iter().any(String::is_empty) {
        return Err(Failure::usage(
            "--stop: the text is empty, so it would stop at once",
        ));
    }
    Ok(GenerateParams {
        sampling,
        // -1 is no `usize`.
        max_tokens: length.max_tokens.and_then(|n| usize::try_from(n).ok()),
        stop: length.stop.clone(),
        stop_tokens: Vec::new(),
        ignore_end: length.ignore_eos,
        show_special: length.special,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn args(line: &str) -> SamplingArgs {
        Line::parse_from(std::iter::once("x").chain(line.split_whitespace())).sampling
    }

    #[test]
    fn given_beats_recommended_beats_default() {
        let recommended = SamplingParams {
            temperature: 0.6,
            top_k: 20,
            typical_p: 0.5,
            repetition_penalty: 1.1,
            presence_penalty: 0.25,
            frequency_penalty: 0.75,
            penalty_last_n: 128,
            ..Default::default()
        };
        let penalties = |line: &str| {
            let p = args(line).resolve(Some(recommended.clone()));
            let numbers = [
                p.typical_p,
                p.repetition_penalty,
                p.presence_penalty,
                p.frequency_penalty,
            ];
            (numbers, p.penalty_last_n)
        };
        assert_eq!(penalties(""), ([0.5, 1.1, 0.25, 0.75], 128));
        let off = "--typical-p 1 --repetition-penalty 1 --presence-penalty 0 --frequency-penalty 0";
        assert_eq!(
            penalties(&format!("{off} --penalty-last-n 64")),
            ([1.0, 1.0, 0.0, 0.0], 64)
        );
        let resolved = args("--temp 0.3").resolve(Some(recommended.clone()));
        assert_eq!((resolved.temperature, resolved.top_k), (0.3, 20));
        assert_eq!(args("--greedy").resolve(Some(recommended)).temperature, 0.0);
        let default = args("--seed 7").resolve(None);
        assert_eq!(
            (default.temperature, default.top_k, default.seed),
            (0.8, 40, 7)
        );
    }

    #[test]
    fn biases_are_id_and_number() {
        assert_eq!(
            args("--logit-bias 5=-inf --logit-bias 7=1.5").logit_bias,
            [(5, f32::NEG_INFINITY), (7, 1.5)]
        );
        for bad in ["5", "x=1", "5=y", "5=nan", "-1=2"] {
            assert!(parse_bias(bad).is_err(), "{bad}");
        }
    }
}
