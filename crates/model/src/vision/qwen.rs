//! Common parts of Qwen's vision encoders: their place in files, the marks of an image in texts, and most of their names.

use super::family::{HfSpelling, ImageMarks, RowsAt};
use super::names::{HfName, RoleName, VisionRole};

/// Common names in Hugging Face files (module names of `modeling_qwen2_vl.py`, `modeling_qwen2_5_vl.py` and
/// `modeling_qwen3_vl.py`).
pub(super) const NAMES: &[RoleName] = {
    use HfName::VisionEncoder;
    use VisionRole::*;
    &[
        RoleName(Patches, VisionEncoder("patch_embed.proj")),
        RoleName(Norm1, VisionEncoder("blocks.{}.norm1")),
        RoleName(AttnQkv, VisionEncoder("blocks.{}.attn.qkv")),
        RoleName(AttnOutput, VisionEncoder("blocks.{}.attn.proj")),
        RoleName(Norm2, VisionEncoder("blocks.{}.norm2")),
    ]
};

/// The merger's names in Qwen 2 VL and 2.5 VL.
pub(super) const MERGER_NAMES: &[RoleName] = {
    use HfName::VisionEncoder;
    use VisionRole::*;
    &[
        RoleName(MergerNorm, VisionEncoder("merger.ln_q")),
        RoleName(MergerUp, VisionEncoder("merger.mlp.0")),
        RoleName(MergerDown, VisionEncoder("merger.mlp.2")),
    ]
};

/// Where transformers and the hub put the vision encoders of Qwen.
pub(super) const PREFIXES: [HfSpelling; 2] = [
    HfSpelling {
        encoder: "model.visual.",
        projector: "model.visual.",
    },
    HfSpelling {
        encoder: "visual.",
        projector: "visual.",
    },
];

/// Marks of an image in texts for models of Qwen.
pub(super) const MARKS: ImageMarks = ImageMarks {
    place: "<|image_pad|>",
    alone: "<|vision_start|><|image_pad|><|vision_end|>",
    rows: RowsAt::Place { begin: "", end: "" },
    around: "",
    placeholder: "<|image_pad|>",
    placeholder_id: 151_655,
};
