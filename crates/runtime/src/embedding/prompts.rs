//! Prompts put before texts to embed, as folders of sentence-transformers name them.

use crate::{Error, LoadedModel};
use millrace_model::sentence;
use serde_json::Value;
use std::collections::BTreeMap;

/// The prompts of a model, such as `query` and `document`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbeddingPrompts {
    by_name: BTreeMap<String, String>,
    usual: String,
}

impl EmbeddingPrompts {
    /// Prompts of its folder, or of a GGUF file that was converted from one here.
    ///
    /// # Errors
    /// As [`sentence::config_of`].
    pub fn of(model: &LoadedModel) -> Result<EmbeddingPrompts, Error> {
        let config = sentence::config_of(model.checkpoint())?;
        Ok(config
            .as_ref()
            .map(EmbeddingPrompts::read)
            .unwrap_or_default())
    }

    /// `prompts` and `default_prompt_name` of a `config_sentence_transformers.json`.
    fn read(config: &Value) -> EmbeddingPrompts {
        let prompts = config["prompts"].as_object().into_iter().flatten();
        let by_name: BTreeMap<String, String> = prompts
            .filter_map(|(name, prompt)| Some((name.clone(), prompt.as_str()?.to_owned())))
            .collect();
        let usual = config["default_prompt_name"].as_str();
        let usual = usual.and_then(|name| by_name.get(name)).cloned();
        EmbeddingPrompts {
            by_name,
            usual: usual.unwrap_or_default(),
        }
    }

    /// The prompt if no name is given: empty, unless the folder names a default.
    pub fn usual(&self) -> &str {
        &self.usual
    }

    /// The prompt of that name.
    ///
    /// # Errors
    /// A message with the existing names, if this one does not exist.
    pub fn named(&self, name: &str) -> Result<&str, String> {
        self.by_name.get(name).map(String::as_str).ok_or_else(|| {
            let names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
            match names.is_empty() {
                true => format!("the model names no prompts, found \"{name}\""),
                false => format!("expected one of {}, found \"{name}\"", names.join(", ")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::EmbeddingPrompts;
    use serde_json::json;

    #[test]
    fn a_folder_names_prompts_and_the_usual_one() {
        let mut config = json!({"prompts": {"query": "query: ", "document": ""}});
        let prompts = EmbeddingPrompts::read(&config);
        assert_eq!(prompts.named("query"), Ok("query: "));
        assert_eq!(prompts.named("document"), Ok(""));
        assert_eq!(prompts.usual(), "");
        let error = prompts.named("passage").unwrap_err();
        assert!(error.contains("document, query"), "{error}");
        config["default_prompt_name"] = json!("query");
        assert_eq!(EmbeddingPrompts::read(&config).usual(), "query: ");
        let none = EmbeddingPrompts::default();
        assert!(none.named("query").unwrap_err().contains("no prompts"));
    }
}
