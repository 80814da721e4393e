//! Encoders: models that compute vectors or scores of a whole text, and write no text.

use super::{MAX_WIDTH, ModelConfig};
use crate::Error;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, activation_name, activation_of};
use millrace_graph::Activation;
use serde_json::Value;

/// How the rows of a text's tokens become one, as a file gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderPooling {
    /// Their mean.
    Mean,
    /// The first token's.
    First,
    /// The last token's.
    Last,
}

impl EncoderPooling {
    /// The one pooling mode that a `1_Pooling/config.json` of sentence-transformers switches on.
    ///
    /// # Errors
    /// The words of the file for no mode, several, or one that is none of these.
    pub fn of_folder(config: &Value) -> Result<EncoderPooling, String> {
        let modes = config.as_object().into_iter().flatten();
        let mut on = modes
            .filter(|(key, value)| key.starts_with("pooling_mode") && **value == Value::Bool(true))
            .map(|(key, _)| key.as_str());
        let found = match (on.next(), on.next()) {
            (Some(only), None) => only,
            (None, _) => config["pooling_mode"].as_str().unwrap_or("none"),
            (Some(first), Some(second)) => return Err(format!("{first} and {second}")),
        };
        match found {
            "pooling_mode_mean_tokens" | "mean" => Ok(EncoderPooling::Mean),
            "pooling_mode_cls_token" | "cls" => Ok(EncoderPooling::First),
            "pooling_mode_lasttoken" | "lasttoken" => Ok(EncoderPooling::Last),
            other => Err(other.to_owned()),
        }
    }
}

/// How a classifier behind an encoder turns rows into scores, where it differs from BERT's. BERT's takes the first token's
/// row, and has tanh behind the layer before the scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassifierConfig {
    /// Pooling before its first layer; `None` if each token is scored and the scores are pooled.
    pub pooling: Option<EncoderPooling>,
    /// Behind that layer.
    pub activation: Activation,
}

/// Numbers that an encoder has in addition to a decoder's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncoderConfig {
    /// Whether each position has a learned embedding.
    pub learned_positions: bool,
    /// Rows of the position table before the first position's, in Hugging Face files.
    pub first_position: usize,
    /// Rows of the table of kinds of text; 0 for none.
    pub n_token_types: usize,
    /// The token that ends a text in an input of several, where there are several kinds.
    pub separator: Option<u32>,
    /// Pooling that the file asks for.
    pub pooling: Option<EncoderPooling>,
    /// The classifier behind it, in families whose models describe it.
    pub classifier: Option<ClassifierConfig>,
}

/// transformers' keys of a classifier.
const POOLING: &str = "classifier_pooling";
const ACTIVATION: &str = "classifier_activation";

impl ClassifierConfig {
    /// Reads `config.json`; `usual` is the class's pooling where the file gives none.
    pub(crate) fn of_hf(text: &ConfigObject<'_>, usual: &str) -> Result<ClassifierConfig, Error> {
        let pooling = match text.str(POOLING)?.unwrap_or(usual) {
            "cls" | "bos" => Some(EncoderPooling::First),
            "mean" => Some(EncoderPooling::Mean),
            "late" => None,
            other => {
                let feature = format!("pooling `{other}` (`{POOLING}`)");
                return Err(text.unsupported(feature, "cls, bos, mean, late"));
            }
        };
        Ok(ClassifierConfig {
            pooling,
            activation: activation_of(text, ACTIVATION)?.unwrap_or(Activation::Gelu),
        })
    }

    /// Reads a GGUF file. llama.cpp takes the mean where it gives no pooling.
    pub(crate) fn of_gguf(keys: &Keys<'_>) -> Result<ClassifierConfig, Error> {
        let pooling = match keys.usize("classifier.pooling_type")? {
            None | Some(1) => EncoderPooling::Mean,
            Some(2) => EncoderPooling::First,
            Some(other) => {
                let feature = format!("`classifier.pooling_type` = {other}");
                return Err(keys.unsupported(feature, "1 (mean), 2 (first token)"));
            }
        };
        Ok(ClassifierConfig {
            pooling: Some(pooling),
            activation: Activation::Gelu,
        })
    }
}

/// Writes the keys that [`ClassifierConfig::of_hf`] reads. `first` is the class's word for the first token.
pub(crate) fn write_classifier(config: &ModelConfig, first: &str, out: &mut Value) {
    let Some(classifier) = config.encoder.as_ref().and_then(|e| e.classifier) else {
        return;
    };
    out[POOLING] = match classifier.pooling {
        Some(EncoderPooling::Mean) => "mean".into(),
        Some(_) => first.into(),
        None => "late".into(),
    };
    out[ACTIVATION] = activation_name(classifier.activation).into();
}

impl EncoderConfig {
    /// Refuses sizes that are absurd.
    pub(super) fn validate(&self, file: &str) -> Result<(), Error> {
        let sizes = [
            ("rows before the first position", self.first_position),
            ("kinds of text", self.n_token_types),
        ];
        for (key, found) in sizes {
            if found > MAX_WIDTH {
                return Err(Error::BadValue {
                    file: file.into(),
                    key: key.into(),
                    found: found.to_string(),
                    expected: format!("at most {MAX_WIDTH}"),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::EncoderPooling;
    use serde_json::json;

    #[test]
    fn one_way_of_pooling_is_on() {
        let read = |on: &[&str]| {
            let mut config = json!({"word_embedding_dimension": 8});
            for key in ["cls_token", "mean_tokens", "max_tokens", "lasttoken"] {
                config[format!("pooling_mode_{key}")] = json!(on.contains(&key));
            }
            EncoderPooling::of_folder(&config)
        };
        assert_eq!(read(&["mean_tokens"]), Ok(EncoderPooling::Mean));
        assert_eq!(read(&["cls_token"]), Ok(EncoderPooling::First));
        assert_eq!(read(&["lasttoken"]), Ok(EncoderPooling::Last));
        for wrong in [&[][..], &["max_tokens"], &["mean_tokens", "cls_token"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        let newer = json!({"pooling_mode": "cls"});
        assert_eq!(EncoderPooling::of_folder(&newer), Ok(EncoderPooling::First));
    }
}
