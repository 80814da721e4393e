//! Whether and how long a model shall think, from requests.

use serde_json::{Map, Value};

use super::error::ApiError;
use super::fields::{Fields, wrong};
use crate::syntax::ThoughtSyntax;

/// Thinking options of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThinkingRequest {
    /// Whether to think; `None` leaves it to the template.
    pub(crate) is_wanted: Option<bool>,
    /// The effort, as a word for templates.
    pub(crate) effort: Option<String>,
    /// Maximum number of thought tokens.
    pub(crate) budget: Option<usize>,
    /// Thoughts are left out of the answer.
    pub(crate) is_hidden: bool,
}

/// Words for the effort.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Names of a budget in vLLM, llama.cpp and others.
const BUDGETS: [&str; 4] = [
    "thinking_budget",
    "thinking_token_budget",
    "reasoning_budget",
    "thinking_budget_tokens",
];

impl ThinkingRequest {
    /// `reasoning_effort`, `reasoning`, `thinking`, `include_reasoning` and budgets, from OpenAI's APIs and their
    /// extensions.
    pub(crate) fn of_openai(fields: &Fields<'_>) -> Result<ThinkingRequest, ApiError> {
        let mut request = ThinkingRequest::default();
        if let Some(effort) = fields.text("reasoning_effort")? {
            request.effort(effort, &fields.path("reasoning_effort"))?;
        }
        if let Some(reasoning) = fields.object("reasoning")? {
            if let Some(effort) = reasoning.text("effort")? {
                request.effort(effort, &reasoning.path("effort"))?;
            }
            if let Some(is_wanted) = reasoning.bool("enabled")? {
                request.is_wanted = Some(is_wanted);
            }
            request.budget = reasoning.limit("max_tokens")?.or(request.budget);
            request.is_hidden |= reasoning.bool("exclude")?.unwrap_or(false);
        }
        if let Some(thinking) = fields.object("thinking")? {
            request.thinking(&thinking)?;
        }
        for name in BUDGETS {
            request.budget = fields.limit(name)?.or(request.budget);
        }
        request.is_hidden |= !fields.bool("include_reasoning")?.unwrap_or(true);
        Ok(request)
    }

    /// `thinking` and `output_config.effort` of Anthropic's API, where a model does not think unless requested.
    pub(crate) fn of_anthropic(fields: &Fields<'_>) -> Result<ThinkingRequest, ApiError> {
        let mut request = ThinkingRequest::default();
        if let Some(config) = fields.object("output_config")?
            && let Some(effort) = config.text("effort")?
        {
            request.effort(effort, &config.path("effort"))?;
        }
        match fields.object("thinking")? {
            Some(thinking) => request.thinking(&thinking)?,
            None => request.is_wanted = Some(false),
        }
        if request.is_wanted == Some(false) {
            request.effort = None;
            // Thoughts of a model that thinks anyway are hidden.
            request.is_hidden = true;
        }
        Ok(request)
    }

    /// `think` of Ollama's API.
    pub(crate) fn of_ollama(fields: &Fields<'_>) -> Result<ThinkingRequest, ApiError> {
        let mut request = ThinkingRequest::default();
        match fields.get("think") {
            None => {}
            Some(Value::Bool(is_wanted)) => request.is_wanted = Some(*is_wanted),
            Some(Value::String(word)) if word == "true" || word == "false" => {
                request.is_wanted = Some(word == "true");
            }
            Some(Value::String(effort)) => request.effort(effort, &fields.path("think"))?,
            Some(other) => return Err(wrong("think", "true, false, low, medium or high", other)),
        }
        Ok(request)
    }

    fn effort(&mut self, effort: &str, path: &str) -> Result<(), ApiError> {
        if !EFFORTS.contains(&effort) {
            let message = format!("expected one of {}, found \"{effort}\"", EFFORTS.join(", "));
            return Err(ApiError::field(path, message));
        }
        self.is_wanted = Some(effort != "none");
        self.effort = (effort != "none").then(|| effort.to_owned());
        Ok(())
    }

    /// An object in Anthropic's form: a type, and optionally a budget.
    fn thinking(&mut self, thinking: &Fields<'_>) -> Result<(), ApiError> {
        let kind = thinking.need("type", thinking.text("type")?)?;
        self.is_wanted = match kind {
            "enabled" | "adaptive" => Some(true),
            "disabled" => Some(false),
            "auto" => None,
            other => {
                let message = format!("expected enabled, adaptive or disabled, found \"{other}\"");
                return Err(ApiError::field(&thinking.path("type"), message));
            }
        };
        self.budget = thinking.limit("budget_tokens")?.or(self.budget);
        Ok(())
    }

    /// Maximum number of thought tokens. A thought that begins although none is wanted is ended at once.
    pub(crate) fn most_tokens(&self) -> Option<usize> {
        match self.is_wanted {
            Some(false) if !self.is_hidden => Some(0),
            _ => self.budget,
        }
    }

    /// The template variables for these options.
    pub(crate) fn variables(&self, syntax: Option<&ThoughtSyntax>) -> Map<String, Value> {
        let mut variables = Map::new();
        let mut set = |name: &str, value: Value| variables.insert(name.to_owned(), value);
        if let Some(is_wanted) = self.is_wanted {
            set("enable_thinking", is_wanted.into());
            set("thinking", is_wanted.into());
        }
        if let Some(is_wanted) = self.is_wanted {
            // MiniMax M3's name for it.
            let mode = if is_wanted { "enabled" } else { "disabled" };
            set("thinking_mode", mode.into());
        }
        let effort = self.effort.as_deref();
        let effort = match syntax {
            Some(syntax) => syntax.effort_word(effort, self.is_wanted),
            None => effort,
        };
        if let Some(effort) = effort {
            set("reasoning_effort", effort.into());
        }
        if let Some(budget) = self.budget {
            set("thinking_budget", budget.into());
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type ReadRequest = fn(&Fields<'_>) -> Result<ThinkingRequest, ApiError>;
    const OPENAI: ReadRequest = ThinkingRequest::of_openai;
    const ANTHROPIC: ReadRequest = ThinkingRequest::of_anthropic;
    const OLLAMA: ReadRequest = ThinkingRequest::of_ollama;

    /// A request, whether thoughts are wanted, the effort, and the maximum number of tokens.
    type ThinkingCase = (Value, Option<bool>, Option<&'static str>, Option<usize>);

    fn assert_read(read: ReadRequest, requests: impl IntoIterator<Item = ThinkingCase>) {
        for (body, is_wanted, effort, most) in requests {
            let request = read(&Fields::of(&body).unwrap()).unwrap();
            assert_eq!(request.is_wanted, is_wanted, "{body}");
            assert_eq!(request.effort.as_deref(), effort, "{body}");
            assert_eq!(request.most_tokens(), most, "{body}");
        }
    }

    #[test]
    fn openai_has_several_words_for_it() {
        let requests = [
            (json!({}), None, None, None),
            (
                json!({"reasoning_effort": "none"}),
                Some(false),
                None,
                Some(0),
            ),
            (
                json!({"reasoning_effort": "low"}),
                Some(true),
                Some("low"),
                None,
            ),
            (
                json!({"reasoning": {"effort": "high", "max_tokens": 9}}),
                Some(true),
                Some("high"),
                Some(9),
            ),
            (
                json!({"thinking": {"type": "enabled", "budget_tokens": 7}}),
                Some(true),
                None,
                Some(7),
            ),
            (
                json!({"thinking": {"type": "disabled"}}),
                Some(false),
                None,
                Some(0),
            ),
            (json!({"thinking_budget": 5}), None, None, Some(5)),
            (json!({"reasoning_budget": -1}), None, None, None),
        ];
        assert_read(OPENAI, requests);
    }

    #[test]
    fn anthropic_has_a_budget_or_an_effort() {
        let requests = [
            (json!({}), Some(false), None, None),
            (
                json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
                Some(true),
                Some("max"),
                None,
            ),
            (
                json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}),
                Some(true),
                None,
                Some(1024),
            ),
        ];
        assert_read(ANTHROPIC, requests);
    }

    #[test]
    fn ollama_has_a_switch_or_an_effort() {
        let requests = [
            (json!({"think": true}), Some(true), None, None),
            (json!({"think": false}), Some(false), None, Some(0)),
            (json!({"think": "low"}), Some(true), Some("low"), None),
        ];
        assert_read(OLLAMA, requests);
    }

    #[test]
    fn what_no_api_says_is_refused() {
        for (read, body) in [
            (OPENAI, json!({"reasoning_effort": "extreme"})),
            (OPENAI, json!({"reasoning_effort": 3})),
            (ANTHROPIC, json!({"thinking": {"type": "hard"}})),
            (ANTHROPIC, json!({"thinking": {}})),
            (OLLAMA, json!({"think": 3})),
            (OLLAMA, json!({"think": "much"})),
        ] {
            assert!(read(&Fields::of(&body).unwrap()).is_err(), "{body}");
        }
    }
}
