//! A reference: prompts and their continuations. Its file is JSON.

use crate::exit::{CommandFailure, CommandResult};
use crate::prompt::read_file;
use millrace_runtime::LoadedModel;
use millrace_verify::verification::{Choice, TOP};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// First field of a file: its kind and version.
const FORMAT: &str = "millrace-reference-1";

/// A prompt and its continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PromptCase {
    /// The prompt, for people.
    pub(super) text: String,
    /// Its tokens.
    pub(super) prompt: Vec<u32>,
    /// Choices, one per step.
    pub(super) steps: Vec<Choice>,
}

/// Reference that a device is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DeviceReference {
    /// The model that wrote it.
    pub(super) model: String,
    /// Program that ran it.
    pub(super) source: String,
    /// The prompts.
    pub(super) cases: Vec<PromptCase>,
}

#[derive(Serialize, Deserialize)]
struct ReferenceForm {
    format: String,
    model: String,
    source: String,
    prompts: Vec<PromptCase>,
}

impl DeviceReference {
    /// Writes the reference to a file.
    pub(super) fn write(&self, path: &Path) -> CommandResult {
        let form = ReferenceForm {
            format: FORMAT.to_owned(),
            model: self.model.clone(),
            source: self.source.clone(),
            prompts: self.cases.clone(),
        };
        let io =
            |error| CommandFailure::io(format_args!("cannot write {}", path.display()), &error);
        let text = serde_json::to_string(&form).map_err(|error| io(error.into()))?;
        std::fs::write(path, text + "\n").map_err(io)
    }

    /// Reads a reference, and refuses one that does not fit the model.
    pub(super) fn read(path: &Path, model: &LoadedModel) -> CommandResult<DeviceReference> {
        let text = read_file(path)?;
        DeviceReference::parse(&text, model.model().config.vocab_size)
            .map_err(|problem| CommandFailure::bad_input(format!("{}: {problem}", path.display())))
    }

    fn parse(text: &str, vocab_size: usize) -> Result<DeviceReference, String> {
        let form: ReferenceForm = serde_json::from_str(text)
            .map_err(|error| format!("not a reference of `millrace verify --save`: {error}"))?;
        if form.format != FORMAT {
            return Err(format!(
                "format `{}`; this build reads `{FORMAT}`",
                form.format
            ));
        }
        if form.prompts.is_empty() {
            return Err("it has no prompts, so nothing would be checked".to_owned());
        }
        for (i, case) in form.prompts.iter().enumerate() {
            check(case, vocab_size).map_err(|problem| format!("prompt {i}: {problem}"))?;
        }
        Ok(DeviceReference {
            model: form.model,
            source: form.source,
            cases: form.prompts,
        })
    }
}

fn check(case: &PromptCase, vocab_size: usize) -> Result<(), String> {
    if case.prompt.is_empty() || case.steps.is_empty() {
        return Err("it needs tokens and steps".to_owned());
    }
    let of_steps = case.steps.iter().flat_map(|step| step.top.iter());
    if let Some(id) = case
        .prompt
        .iter()
        .chain(of_steps)
        .find(|id| **id as usize >= vocab_size)
    {
        return Err(format!(
            "token {id} is not in the vocabulary of {vocab_size}"
        ));
    }
    for (i, step) in case.steps.iter().enumerate() {
        if step.top.len() < TOP.min(vocab_size) || step.top.first() != Some(&step.token) {
            return Err(format!(
                "step {i}: `top` must have the {TOP} likeliest tokens, `token` first"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: &str, token: u32, top: &str) -> String {
        format!(
            r#"{{"format":"{format}","model":"m","source":"s","prompts":
               [{{"text":"t","prompt":[1],"steps":[{{"token":{token},"top":{top}}}]}}]}}"#
        )
    }

    #[test]
    fn files_that_check_nothing_are_refused() {
        let good = text(FORMAT, 3, "[3,4,5,6,7]");
        assert!(DeviceReference::parse(&good, 10).is_ok());
        for (bad, mentions) in [
            (text("other", 3, "[3,4,5,6,7]"), "format"),
            (text(FORMAT, 3, "[3,4,5,6,10]"), "vocabulary"),
            (text(FORMAT, 3, "[3,4,5,6]"), "likeliest"),
            (text(FORMAT, 4, "[3,4,5,6,7]"), "first"),
            ("{}".to_owned(), "--save"),
            (good.replace("[1]", "[]"), "needs tokens"),
        ] {
            let problem = DeviceReference::parse(&bad, 10).expect_err(&bad);
            assert!(problem.contains(mentions), "{problem}");
        }
    }
}
