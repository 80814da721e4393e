//! Encoders: models that make something of a whole text, and write none.

use super::MAX_WIDTH;
use crate::Error;
use serde_json::Value;

/// How the rows of a text's tokens become one, as a file says it.
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
    /// The one way that a `1_Pooling/config.json` of sentence-transformers switches on; the words of what is another one.
    ///
    /// # Errors
    /// No way, several, or one that is none of these.
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

/// What an encoder has beside a decoder's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncoderConfig {
    /// Whether each position has a learned embedding.
    pub learned_positions: bool,
    /// Rows of that table before the first position's, in Hugging Face files.
    pub first_position: usize,
    /// Rows of the table of kinds of text; 0 for none.
    pub n_token_types: usize,
    /// The token that ends a text of several, where there are several kinds.
    pub separator: Option<u32>,
    /// What the file says of pooling.
    pub pooling: Option<EncoderPooling>,
}

impl EncoderConfig {
    /// Positions that a table of so many rows has.
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
