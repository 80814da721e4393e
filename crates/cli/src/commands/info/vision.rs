//! What `info` says of a vision tower.

use crate::exit::CommandResult;
use crate::output::{Out, printable};
use millrace_format::Checkpoint;
use millrace_model::{VisionConfig, VisionModel};
use serde_json::{Value, json};

/// The tower of a checkpoint.
pub(super) enum Vision {
    None,
    Tower(VisionConfig),
    /// One that does not run here, and why.
    Unusable(String),
}

impl Vision {
    pub(super) fn of(checkpoint: &Checkpoint) -> Vision {
        match VisionModel::of(checkpoint) {
            Ok(None) => Vision::None,
            Ok(Some(tower)) => Vision::Tower(tower.config),
            Err(error) => Vision::Unusable(error.to_string()),
        }
    }

    pub(super) fn print(&self, out: &mut Out) -> CommandResult {
        let line = match self {
            Vision::None => return Ok(()),
            Vision::Tower(config) => format!(
                "{} layers, width {}, {} heads; images of {} × {} pixels become {} tokens",
                config.n_layers,
                config.d_model,
                config.n_heads,
                config.image_size,
                config.image_size,
                config.n_tokens
            ),
            Vision::Unusable(why) => format!("does not run here: {}", printable(why)),
        };
        out.line(format!("  {:<14} {line}", "vision"))
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Vision::None => Value::Null,
            Vision::Unusable(why) => json!({ "runs": false, "reason": why }),
            Vision::Tower(config) => json!({
                "runs": true,
                "n_layers": config.n_layers,
                "d_model": config.d_model,
                "d_ff": config.d_ff,
                "n_heads": config.n_heads,
                "image_size": config.image_size,
                "patch_size": config.patch_size,
                "tokens_per_image": config.n_tokens,
            }),
        }
    }
}
