//! Saved conversations.

use crate::exit::{CommandFailure, CommandResult};
use crate::prompt::decode;
use millrace_format::output;
use millrace_text::Message;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Serialize, Deserialize)]
struct SavedChat {
    model: String,
    messages: Vec<Message>,
    /// Image files, by the index of their message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    images: BTreeMap<usize, Vec<String>>,
}

/// Writes the messages as JSON, the system prompt first if there is one. A file of another kind is not replaced.
pub(super) fn write(path: &Path, model: &str, messages: Vec<Message>) -> CommandResult {
    if path.exists() && read(path).is_err() {
        let message = format!("{} is a file of another kind", path.display());
        return Err(CommandFailure::usage(message).hint("name a new file"));
    }
    let images = messages.iter().map(|message| message.images.clone());
    let images = images.enumerate().filter(|(_, names)| !names.is_empty());
    let saved = SavedChat {
        model: model.to_owned(),
        images: images.collect(),
        messages,
    };
    let text = serde_json::to_vec_pretty(&saved).expect("text serialises");
    output::write(path, &text).map_err(|error| CommandFailure::writing(&error))
}

/// Reads a file: the system prompt, if there is one, and the messages after it.
pub(super) fn read(path: &Path) -> CommandResult<(Option<String>, Vec<Message>)> {
    // A device or a pipe may have no end, and `-` would take the terminal.
    if path.exists() && !path.is_file() {
        let message = format!("{} is not a regular file", path.display());
        return Err(CommandFailure::usage(message).hint("name a file"));
    }
    let bytes = std::fs::read(path).map_err(|error| CommandFailure::reading_file(path, &error))?;
    let text = decode(&bytes, &path.display().to_string())?;
    let saved: SavedChat = serde_json::from_str(&text).map_err(|error| {
        let what = format!("{} is not a saved conversation: {error}", path.display());
        CommandFailure::bad_input(what)
    })?;
    let mut messages = saved.messages;
    for (i, names) in saved.images {
        if let Some(message) = messages.get_mut(i) {
            message.images = names;
        }
    }
    let is_system = messages
        .first()
        .is_some_and(|message| message.role == "system");
    let system = is_system.then(|| messages.remove(0).content);
    Ok((system, messages))
}
