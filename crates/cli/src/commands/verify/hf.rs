//! `--reference hf`: the tokens that transformers chooses, through the script in `tools/`.

use super::prompts::VerifyPrompt;
use super::reference::{DeviceReference, PromptCase};
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::Ui;
use crate::progress::ProgressDisplay;
use millrace_runtime::LoadedModel;
use std::path::Path;
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("reference_hf.py");

/// Environment variable that names another Python.
const VARIABLE: &str = "MILLRACE_PYTHON";

/// Runs the model's files through transformers in bf16.
pub(super) fn run(
    model: &LoadedModel,
    path: &Path,
    prompts: Vec<VerifyPrompt>,
    n_tokens: usize,
    ui: Ui,
) -> CommandResult<DeviceReference> {
    if !path.exists() {
        return Err(
            CommandFailure::usage("`--reference hf` reads the model's own files")
                .hint("name a Hugging Face folder or a GGUF file as the model"),
        );
    }
    let python = std::env::var(VARIABLE).unwrap_or_else(|_| "python3".to_owned());
    check_python(&python)?;
    let io = |error| CommandFailure::io("cannot make a temporary folder", &error);
    let folder = tempfile::tempdir().map_err(io)?;
    let file = |name: &str| folder.path().join(name);
    let (script, asked, answer) = (file("hf.py"), file("prompts.json"), file("reference.json"));
    std::fs::write(&script, SCRIPT).map_err(io)?;
    let case = |prompt: VerifyPrompt| PromptCase {
        text: prompt.text,
        prompt: prompt.tokens,
        steps: Vec::new(),
    };
    let asked_for = DeviceReference {
        model: model.name().to_owned(),
        source: String::new(),
        cases: prompts.into_iter().map(case).collect(),
    };
    asked_for.write(&asked)?;
    let progress = ProgressDisplay::spinner(ui, "running transformers");
    let done = Command::new(&python)
        .arg(&script)
        .arg(path)
        .arg("--prompts")
        .arg(&asked)
        .arg("--out")
        .arg(&answer)
        .args(["--tokens", &n_tokens.to_string(), "--name", model.name()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| CommandFailure::io(format_args!("cannot run {python}"), &error))?;
    drop(progress);
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let message = format!(
            "transformers gave no reference: {}",
            last.unwrap_or("no word")
        );
        return Err(CommandFailure::new(Exit::Failed, message));
    }
    DeviceReference::read(&answer, model)
}

/// Checks for a Python with the packages that the script needs.
fn check_python(python: &str) -> CommandResult {
    let found = Command::new(python)
        .args(["-c", "import torch, transformers"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let message =
        format!("`--reference hf` needs torch and transformers, and {python} has not both");
    Err(CommandFailure::not_found(message).hint(format!(
        "`python3 -m venv hf && hf/bin/pip install torch transformers accelerate gguf`, \
         then {VARIABLE}=hf/bin/python"
    )))
}
