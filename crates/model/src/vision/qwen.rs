//! What the towers of Qwen share: where files have them, what stands for a picture in texts, and most of their names.

use super::family::{HfSpelling, ImageMarks, RowsAt};
use super::names::{HfName, RoleName, VisionRole};

/// Names in Hugging Face files that all have (module names of `modeling_qwen2_vl.py`, `modeling_qwen2_5_vl.py` and
/// `modeling_qwen3_vl.py`).
pub(super) const NAMES: &[RoleName] = {
    use HfName::Tower;
    use VisionRole::*;
    &[
        RoleName(Patches, Tower("patch_embed.proj")),
        RoleName(Norm1, Tower("blocks.{}.norm1")),
        RoleName(AttnQkv, Tower("blocks.{}.attn.qkv")),
        RoleName(AttnOutput, Tower("blocks.{}.attn.proj")),
        RoleName(Norm2, Tower("blocks.{}.norm2")),
    ]
};

/// The merger's names in Qwen 2 VL and 2.5 VL.
pub(super) const MERGER_NAMES: &[RoleName] = {
    use HfName::Tower;
    use VisionRole::*;
    &[
        RoleName(MergerNorm, Tower("merger.ln_q")),
        RoleName(MergerUp, Tower("merger.mlp.0")),
        RoleName(MergerDown, Tower("merger.mlp.2")),
    ]
};

/// Where transformers and the hub put the towers of Qwen.
pub(super) const PREFIXES: [HfSpelling; 2] = [
    HfSpelling {
        tower: "model.visual.",
        projector: "model.visual.",
    },
    HfSpelling {
        tower: "visual.",
        projector: "visual.",
    },
];

/// What stands for a picture in texts for models of Qwen.
pub(super) const MARKS: ImageMarks = ImageMarks {
    place: "<|image_pad|>",
    alone: "<|vision_start|><|image_pad|><|vision_end|>",
    rows: RowsAt::Place { begin: "", end: "" },
    around: "",
    placeholder: "<|image_pad|>",
    placeholder_id: 151_655,
};
