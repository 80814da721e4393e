//! Samplers beyond the usual ones, shared by `run` and `chat`.

use crate::sampling_args::number;
use millrace::Options;
use millrace::sampling::{Dry, DynamicTemperature, Mirostat, StageKind, Xtc};
use serde_json::Value;

/// Each sampler is off unless it is given.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "More samplers")]
pub(crate) struct MoreSamplers {
    /// Choose among tokens whose logits are within N standard deviations of the largest; 0 is off
    #[arg(long, visible_alias = "top-nsigma", value_name = "N")]
    top_n_sigma: Option<f32>,
    /// Exclude the likeliest tokens with probability P; 0 is off
    #[arg(long, value_name = "P")]
    xtc_probability: Option<f32>,
    /// Probability that a token must have to be excluded [default: 0.1]
    #[arg(long, value_name = "P")]
    xtc_threshold: Option<f32>,
    /// Let the temperature vary with the entropy by up to T up and down; 0 is off
    #[arg(long, value_name = "T")]
    dynatemp_range: Option<f32>,
    /// How the entropy maps to the temperature [default: 1]
    #[arg(long, visible_alias = "dynatemp-exp", value_name = "X")]
    dynatemp_exponent: Option<f32>,
    /// Penalise tokens that continue a repetition, by X * BASE ^ (its length - ALLOWED); 0 is off
    #[arg(long, value_name = "X")]
    dry_multiplier: Option<f32>,
    /// Base of the --dry-multiplier penalty [default: 1.75]
    #[arg(long, value_name = "BASE")]
    dry_base: Option<f32>,
    /// Length of a repetition that is allowed, in tokens [default: 2]
    #[arg(long, value_name = "ALLOWED")]
    dry_allowed_length: Option<usize>,
    /// How many tokens back to look for repetitions [default: all]
    #[arg(long, visible_alias = "dry-penalty-last-n", value_name = "N")]
    dry_last_n: Option<usize>,
    /// Text that ends a repetition; may be repeated [default: line break, colon, quote, star]
    #[arg(long, value_name = "TEXT")]
    dry_sequence_breaker: Vec<String>,
    /// Keep the surprise of the text near a target (Mirostat 2); disables top-k and similar samplers
    #[arg(long, num_args = 0..=1, default_missing_value = "2", value_name = "2", value_parser = clap::value_parser!(u8).range(2..=2))]
    mirostat: Option<u8>,
    /// Target surprise for --mirostat, in bits [default: 5]
    #[arg(
        long,
        visible_alias = "mirostat-ent",
        value_name = "BITS",
        requires = "mirostat"
    )]
    mirostat_tau: Option<f32>,
    /// Learning rate of --mirostat [default: 0.1]
    #[arg(
        long,
        visible_alias = "mirostat-lr",
        value_name = "X",
        requires = "mirostat"
    )]
    mirostat_eta: Option<f32>,
    /// Never write this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    ban: Vec<String>,
    /// Samplers to use, in this order [default:
    /// penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES", value_parser = SamplerOrder::parse)]
    samplers: Option<SamplerOrder>,
}

/// A newtype keeps the list one value: for a plain list, clap would take each name as an argument of its own.
#[derive(Clone, Debug)]
struct SamplerOrder(Vec<StageKind>);

impl SamplerOrder {
    fn parse(names: &str) -> Result<SamplerOrder, String> {
        let order = StageKind::order(names).map_err(|error| error.to_string())?;
        Ok(SamplerOrder(order))
    }
}

impl MoreSamplers {
    /// These options as fields of a request to a server.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (String, Value)> {
        let names = |order: &SamplerOrder| order.0.iter().map(|kind| kind.name()).collect();
        let texts = |texts: &[String]| (!texts.is_empty()).then(|| texts.to_vec().into());
        let fields: [(&str, Option<Value>); 15] = [
            ("top_n_sigma", self.top_n_sigma.map(number)),
            ("xtc_probability", self.xtc_probability.map(number)),
            ("xtc_threshold", self.xtc_threshold.map(number)),
            ("dynatemp_range", self.dynatemp_range.map(number)),
            ("dynatemp_exponent", self.dynatemp_exponent.map(number)),
            ("dry_multiplier", self.dry_multiplier.map(number)),
            ("dry_base", self.dry_base.map(number)),
            (
                "dry_allowed_length",
                self.dry_allowed_length.map(Value::from),
            ),
            ("dry_penalty_last_n", self.dry_last_n.map(Value::from)),
            ("dry_sequence_breakers", texts(&self.dry_sequence_breaker)),
            ("mirostat", self.mirostat.map(Value::from)),
            ("mirostat_tau", self.mirostat_tau.map(number)),
            ("mirostat_eta", self.mirostat_eta.map(number)),
            ("banned_strings", texts(&self.ban)),
            ("samplers", self.samplers.as_ref().map(names)),
        ];
        let given = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect::<Vec<_>>().into_iter()
    }

    /// Adds these options to the library's.
    pub(crate) fn add_to(&self, options: Options) -> Options {
        let (xtc, dynatemp, dry) = (
            Xtc::default(),
            DynamicTemperature::default(),
            Dry::default(),
        );
        let breakers = match self.dry_sequence_breaker.is_empty() {
            true => dry.breakers,
            false => self.dry_sequence_breaker.clone(),
        };
        let mut options = options
            .top_n_sigma(self.top_n_sigma.unwrap_or(0.0))
            .xtc(Xtc {
                probability: self.xtc_probability.unwrap_or(xtc.probability),
                threshold: self.xtc_threshold.unwrap_or(xtc.threshold),
            })
            .dynamic_temperature(DynamicTemperature {
                range: self.dynatemp_range.unwrap_or(dynatemp.range),
                exponent: self.dynatemp_exponent.unwrap_or(dynatemp.exponent),
            })
            .dry(Dry {
                multiplier: self.dry_multiplier.unwrap_or(dry.multiplier),
                base: self.dry_base.unwrap_or(dry.base),
                allowed_length: self.dry_allowed_length.unwrap_or(dry.allowed_length),
                last_n: self.dry_last_n.unwrap_or(dry.last_n),
                breakers,
            });
        if self.mirostat.is_some() {
            let usual = Mirostat::default();
            options = options.mirostat(Mirostat {
                tau: self.mirostat_tau.unwrap_or(usual.tau),
                eta: self.mirostat_eta.unwrap_or(usual.eta),
            });
        }
        if let Some(order) = &self.samplers {
            options = options.order(&order.0);
        }
        self.ban
            .iter()
            .fold(options, |options, text| options.ban(text))
    }
}
