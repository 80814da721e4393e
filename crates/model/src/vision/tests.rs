//! Hyperparameters of towers: what folders say, what they leave out, what is refused and by which name.

use serde_json::{Value, json};

use super::{VisionConfig, family, has_places, reads_for};
use crate::Error;
use crate::config::hf::ConfigObject;

fn read(config: &Value) -> Result<Option<VisionConfig>, Error> {
    let map = config.as_object().expect("an object");
    let file = "config.json";
    let found = family::of_hf(&ConfigObject { file, map })?;
    if let Some(config) = &found {
        config.validate(file)?;
    }
    Ok(found)
}

fn of(model_type: &str, tower: Value) -> Value {
    json!({"model_type": model_type, "vision_config": tower})
}

/// transformers leaves out what equals the defaults of its classes.
#[test]
fn what_folders_leave_out_is_transformers_default() {
    let sizes = |model_type: &str| {
        let config = read(&of(model_type, json!({}))).expect("defaults fit");
        let config = config.expect("a tower");
        let grid = config.grid.expect("any size");
        let widths = (config.n_layers, config.d_model, config.d_ff, config.d_text);
        (widths, (config.patch_size, grid.merge), config.deepstack)
    };
    let qwen3 = (27, 1152, 4304, 3584);
    assert_eq!(sizes("qwen3_vl"), (qwen3, (16, 2), vec![8, 16, 24]));
    assert_eq!(sizes("qwen3_vl_moe"), (qwen3, (16, 2), vec![8, 16, 24]));
    assert_eq!(sizes("qwen3_5"), (qwen3, (16, 2), Vec::new()));
    assert_eq!(
        sizes("qwen2_vl"),
        ((32, 1280, 5120, 3584), (14, 2), Vec::new())
    );
    assert_eq!(
        sizes("qwen2_5_vl"),
        ((32, 3584, 3420, 3584), (14, 2), Vec::new())
    );
    let config = read(&of("qwen2_5_vl", json!({})))
        .expect("defaults fit")
        .expect("a tower");
    let windows = config.windows.expect("windows");
    assert_eq!(
        (windows.side, windows.full_layers),
        (112, vec![7, 15, 23, 31])
    );
    assert_eq!(
        read(&json!({"model_type": "qwen3"})).expect("no tower"),
        None
    );
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    let qwen3 = |tower: Value| of("qwen3_vl", tower);
    for (config, words) in [
        (of("llava", json!({})), "a vision tower in a model `llava`"),
        (
            of("qwen3_vl", json!({"model_type": "siglip_vision_model"})),
            "siglip_vision_model",
        ),
        (
            of("qwen2_vl", json!({"hidden_act": "gelu"})),
            "activation `gelu`",
        ),
        (
            of("qwen2_5_vl", json!({"hidden_act": "gelu"})),
            "activation `gelu`",
        ),
        (qwen3(json!({"hidden_act": "silu"})), "activation `silu`"),
        (qwen3(json!({"in_channels": 1})), "1 channels"),
        (qwen3(json!({"temporal_patch_size": 1})), "1 frames"),
        (qwen3(json!({"spatial_merge_size": 0})), "merged"),
        (qwen3(json!({"spatial_merge_size": 1000})), "merged"),
        (qwen3(json!({"num_heads": 192})), "elements of a head"),
        (
            qwen3(json!({"num_heads": 7})),
            "number of the tower's heads",
        ),
        (qwen3(json!({"patch_size": 0})), "patch size"),
        (qwen3(json!({"depth": 0})), "layers"),
        (
            qwen3(json!({"deepstack_visual_indexes": [3, 3]})),
            "ascending numbers below 27",
        ),
        (
            qwen3(json!({"deepstack_visual_indexes": [27]})),
            "ascending numbers below 27",
        ),
        (
            qwen3(json!({"deepstack_visual_indexes": [-1]})),
            "deepstack_visual_indexes",
        ),
        (
            qwen3(json!({"rope_parameters": {"rope_theta": 0}})),
            "rotary",
        ),
        (of("qwen2_5_vl", json!({"window_size": 27})), "window"),
        (
            of("qwen2_5_vl", json!({"window_size": 1u64 << 40})),
            "window",
        ),
        (of("gemma3", json!({"image_size": 0})), "image size"),
        (
            of("gemma3", json!({"image_size": 896, "patch_size": 15})),
            "image size",
        ),
    ] {
        let error = read(&config).expect_err(words).to_string();
        assert!(error.contains(words), "{error} for {words}");
    }
}

#[test]
fn limits_of_pixels_are_a_range_that_a_picture_can_meet() {
    let config = read(&of("qwen3_vl", json!({})))
        .expect("defaults fit")
        .expect("a tower");
    let grid = config.grid.expect("any size");
    for (min, max, fits) in [
        (1, 32 * 32, true),
        (1, 32 * 32 - 1, false),
        (5000, 4999, false),
        (0, 100_000_000, true),
        (0, u64::MAX, false),
    ] {
        let grid = super::PatchGrid {
            min_pixels: min,
            max_pixels: max,
            ..grid
        };
        let checked = config.check_limits("f", &grid);
        assert_eq!(checked.is_ok(), fits, "{min} to {max}");
    }
}

#[test]
fn text_models_and_their_marks_are_known() {
    for family in [
        "gemma3",
        "qwen2vl",
        "qwen3vl",
        "qwen3vlmoe",
        "qwen35",
        "qwen35moe",
    ] {
        assert!(reads_for(family), "{family}");
        crate::arch::by_name(family);
    }
    assert!(!reads_for("qwen3"));
    assert!(has_places("a <|image_pad|>") && has_places("<start_of_image>"));
    assert!(!has_places("an image"));
}
