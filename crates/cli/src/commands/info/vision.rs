//! Report of `info` about a vision encoder.

use crate::exit::CommandResult;
use crate::output::{Out, printable};
use millrace_format::Checkpoint;
use millrace_model::{VisionConfig, VisionModel};
use serde_json::{Value, json};

/// The vision encoder of a checkpoint.
pub(super) enum Vision {
    None,
    Encoder(Box<VisionConfig>),
    /// An encoder that does not run here, and why.
    Unusable(String),
}

/// Conversion of images to tokens, in words.
fn taken(config: &VisionConfig) -> String {
    let (side, n_tokens) = (config.image_size, config.n_tokens);
    match &config.grid {
        None => format!("images of {side} × {side} pixels become {n_tokens} tokens"),
        Some(grid) => {
            let cell = grid.merge * config.patch_size;
            format!("each {cell} × {cell} pixels of an image become a token, {n_tokens} at most")
        }
    }
}

impl Vision {
    pub(super) fn of(checkpoint: &Checkpoint) -> Vision {
        match VisionModel::of(checkpoint) {
            Ok(None) => Vision::None,
            Ok(Some(encoder)) => Vision::Encoder(Box::new(encoder.config)),
            Err(error) => Vision::Unusable(error.to_string()),
        }
    }

    pub(super) fn print(&self, out: &mut Out) -> CommandResult {
        let line = match self {
            Vision::None => return Ok(()),
            Vision::Encoder(config) => format!(
                "{} layers, width {}, {} heads; {}",
                config.n_layers,
                config.d_model,
                config.n_heads,
                taken(config)
            ),
            Vision::Unusable(why) => format!("does not run here: {}", printable(why)),
        };
        out.line(format!("  {:<14} {line}", "vision"))
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Vision::None => Value::Null,
            Vision::Unusable(why) => json!({ "runs": false, "reason": why }),
            Vision::Encoder(config) => json!({
                "runs": true,
                "n_layers": config.n_layers,
                "d_model": config.d_model,
                "d_ff": config.d_ff,
                "n_heads": config.n_heads,
                "family": config.family,
                "for": config.text_families(),
                "image_size": config.image_size,
                "patch_size": config.patch_size,
                "tokens_per_image": config.n_tokens,
            }),
        }
    }
}
