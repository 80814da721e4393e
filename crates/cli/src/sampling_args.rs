//! Options for sampling, shared by `run` and `chat`.

use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::sampler_args::MoreSamplers;
use millrace::{GenerateParams, Model, Options};
use serde_json::{Map, Value};

/// Sampling options. An option that is not given comes from the model's files, else from here.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Always take the most likely token (the same as --temperature 0)
    #[arg(long, conflicts_with = "temperature")]
    greedy: bool,
    /// Sampling temperature: higher is more varied, 0 always takes the most likely token [default:
    /// the model's, else 0.8]
    #[arg(long, visible_alias = "temp", value_name = "T")]
    temperature: Option<f32>,
    /// Choose among the K most likely tokens; 0 for all [default: the model's, else 40]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Choose among the most likely tokens with total probability P [default: the model's, else 0.95]
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Leave out tokens less likely than P times the most likely [default: the model's, else 0.05]
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Choose among tokens of typical surprise up to probability P; 1 is off [default: the model's, else 1]
    #[arg(long, value_name = "P")]
    typical_p: Option<f32>,
    /// Make recent tokens less likely; 1 is off [default: the model's, else 1]
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f32>,
    /// Subtract from the logits of recent tokens; 0 is off [default: the model's, else 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Subtract from the logits of recent tokens for each occurrence; 0 is off [default: the model's, else 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// Number of recent tokens that the penalties consider [default: the model's, else 64]
    #[arg(long, value_name = "N")]
    penalty_last_n: Option<usize>,
    /// Add X to the logit of token ID; -inf bans it. May be repeated
    #[arg(long, value_name = "ID=X", value_parser = parse_bias, allow_hyphen_values = true)]
    logit_bias: Vec<(u32, f32)>,
    /// Random seed: the same seed gives the same text [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    more: MoreSamplers,
}

/// Options for the end of generation.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Generation")]
pub(crate) struct LengthArgs {
    /// Maximum tokens to generate; -1 for no limit [default: -1]. A full context ends generation in any case
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(i64).range(-1..))]
    max_tokens: Option<i64>,
    /// Stop when this text appears; it is not printed. May be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Continue past the model's end-of-text tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Print the model's control tokens, including the final one
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
    /// The given options as fields of a request to a server, which knows its model's recommendations.
    pub(crate) fn fields(&self) -> CommandResult<Map<String, Value>> {
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
        set("repeat_last_n", self.penalty_last_n.map(Value::from));
        let bias = self.logit_bias.iter();
        // -100 bans a token in OpenAI's API, as -inf does here.
        let bias: Map<String, Value> = bias
            .map(|(id, bias)| (id.to_string(), number(bias.max(-100.0))))
            .collect();
        set("logit_bias", (!bias.is_empty()).then_some(bias.into()));
        set("seed", self.seed.map(Value::from));
        fields.extend(self.more.fields());
        Ok(fields)
    }

    /// The given options, for the library.
    fn options(&self) -> Options {
        fn set<T>(options: Options, value: Option<T>, with: fn(Options, T) -> Options) -> Options {
            match value {
                Some(value) => with(options, value),
                None => options,
            }
        }
        let temperature = if self.greedy {
            Some(0.0)
        } else {
            self.temperature
        };
        let mut options = Options::new();
        options = set(options, temperature, Options::temperature);
        options = set(options, self.top_k, Options::top_k);
        options = set(options, self.top_p, Options::top_p);
        options = set(options, self.min_p, Options::min_p);
        options = set(options, self.typical_p, Options::typical_p);
        options = set(
            options,
            self.repetition_penalty,
            Options::repetition_penalty,
        );
        options = set(options, self.presence_penalty, Options::presence_penalty);
        options = set(options, self.frequency_penalty, Options::frequency_penalty);
        options = set(options, self.penalty_last_n, Options::penalty_last_n);
        options = set(options, self.seed, Options::seed);
        options = self.more.add_to(options);
        let biases = self.logit_bias.iter();
        biases.fold(options, |options, (token, bias)| {
            options.logit_bias(*token, *bias)
        })
    }
}

/// The number as it was written, not the nearest f64 of an f32.
pub(crate) fn number(value: f32) -> Value {
    let exact = value.to_string().parse::<f64>();
    exact.unwrap_or(f64::from(value)).into()
}

impl LengthArgs {
    /// The options as fields of a request to a server; `n_ctx` where there is no limit of tokens.
    ///
    /// # Errors
    /// An option that servers do not know.
    pub(crate) fn fields(&self, n_ctx: Option<u64>) -> CommandResult<Map<String, Value>> {
        if self.special {
            return Err(CommandFailure::usage(
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

/// Checked generation settings for a model: the given options, and their combination with the model's
/// recommendations. Both have the same seed.
pub(crate) fn generate_params(
    model: &Model,
    sampling: &SamplingArgs,
    length: &LengthArgs,
) -> CommandResult<(Options, GenerateParams)> {
    let mut options = sampling
        .options()
        .ignore_end(length.ignore_eos)
        .show_special(length.special)
        .cancel(interrupt::cancel());
    // -1 does not convert to `usize`.
    if let Some(n) = length.max_tokens.and_then(|n| usize::try_from(n).ok()) {
        options = options.max_tokens(n);
    }
    for text in &length.stop {
        options = options.stop(text);
    }
    let params = options.params(model)?;
    Ok((options.seed(params.sampling.seed), params))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use millrace::engine::SamplingParams;
    use millrace::sampling::{Dry, DynamicTemperature, Mirostat, StageKind, Xtc};

    #[derive(Parser)]
    struct SamplingLine {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn args(line: &str) -> SamplingArgs {
        SamplingLine::parse_from(std::iter::once("x").chain(line.split_whitespace())).sampling
    }

    /// Each option reaches the field of its name.
    #[test]
    fn options_are_what_was_said() {
        let model = Model::open("demo").expect("built in");
        let params = |line: &str| args(line).options().params(&model).expect(line).sampling;
        let said = params(
            "--temp 0.3 --top-k 7 --top-p 0.9 --min-p 0.1 --typical-p 0.8 --repetition-penalty 1.2 \
             --presence-penalty 0.25 --frequency-penalty 0.5 --penalty-last-n 9 --logit-bias 5=1.5 --seed 7",
        );
        let expected = SamplingParams {
            temperature: 0.3,
            top_k: 7,
            top_p: 0.9,
            min_p: 0.1,
            typical_p: 0.8,
            repetition_penalty: 1.2,
            presence_penalty: 0.25,
            frequency_penalty: 0.5,
            penalty_last_n: 9,
            logit_bias: vec![(5, 1.5)],
            seed: 7,
            ..SamplingParams::default()
        };
        assert_eq!(said, expected);
        assert_eq!(params("--greedy").temperature, 0.0);
        let more = params(
            "--temp 1 --top-k 0 --top-p 1 --min-p 0 --seed 7 --top-n-sigma 1.5 --xtc-probability 0.5 \
             --xtc-threshold 0.2 --dynatemp-range 0.4 --dynatemp-exponent 2 --dry-multiplier 0.8 --dry-base 2 \
             --dry-allowed-length 3 --dry-last-n 99 --dry-sequence-breaker x --mirostat --mirostat-tau 4 \
             --mirostat-eta 0.2 --ban foo --ban bar --samplers top_k;temperature",
        );
        let expected = SamplingParams {
            temperature: 1.0,
            top_n_sigma: 1.5,
            xtc: Xtc {
                probability: 0.5,
                threshold: 0.2,
            },
            dynatemp: DynamicTemperature {
                range: 0.4,
                exponent: 2.0,
            },
            dry: Dry {
                multiplier: 0.8,
                base: 2.0,
                allowed_length: 3,
                last_n: 99,
                breakers: vec!["x".to_owned()],
            },
            mirostat: Some(Mirostat { tau: 4.0, eta: 0.2 }),
            banned_texts: ["foo", "bar"].map(str::to_owned).to_vec(),
            order: StageKind::order("kt").expect("letters"),
            seed: 7,
            ..SamplingParams::default()
        };
        assert_eq!(more, expected);
    }

    /// A server gets each option under the server's own name for it.
    #[test]
    fn a_server_is_told_what_was_said() {
        let fields = args(
            "--penalty-last-n 9 --top-n-sigma 1.5 --xtc-probability 0.5 --dry-multiplier 0.8 --dry-last-n 99 \
             --dry-sequence-breaker x --mirostat --mirostat-tau 4 --ban foo --samplers dry,temp --dynatemp-range 0.4",
        )
        .fields()
        .expect("all are known");
        let expected = serde_json::json!({
            "repeat_last_n": 9, "top_n_sigma": 1.5, "xtc_probability": 0.5, "dry_multiplier": 0.8,
            "dry_penalty_last_n": 99, "dry_sequence_breakers": ["x"], "mirostat": 2, "mirostat_tau": 4.0,
            "banned_strings": ["foo"], "samplers": ["dry", "temperature"], "dynatemp_range": 0.4,
        });
        assert_eq!(Value::Object(fields), expected);
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
