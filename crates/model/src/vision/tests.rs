//! Hyperparameters of vision encoders: the values in folders, the values they leave out, and refusals by name.

use serde_json::{Value, json};

use super::names::VisionRole;
use super::{AxialTurns, GridResize, PatchGrid, VisionConfig, family, reads_for};
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

fn of(model_type: &str, encoder: Value) -> Value {
    json!({"model_type": model_type, "vision_config": encoder})
}

/// transformers leaves out values that equal the defaults of its classes.
#[test]
fn what_folders_leave_out_is_transformers_default() {
    let sizes = |model_type: &str| {
        let config = read(&of(model_type, json!({}))).expect("defaults fit");
        let config = config.expect("a vision encoder");
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
    assert_eq!(
        sizes("gemma4"),
        ((16, 768, 3072, 2304), (16, 3), Vec::new())
    );
    let mistral = (24, 1024, 4096, 5120);
    assert_eq!(sizes("mistral3"), (mistral, (14, 2), Vec::new()));
    let config = read(&of("qwen2_5_vl", json!({})))
        .expect("defaults fit")
        .expect("a vision encoder");
    let windows = config.windows.expect("windows");
    assert_eq!(
        (windows.side, windows.full_layers),
        (112, vec![7, 15, 23, 31])
    );
    assert_eq!(
        read(&json!({"model_type": "qwen3"})).expect("no vision encoder"),
        None
    );
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    let [qwen3, gemma4, mistral, llava] = ["qwen3_vl", "gemma4", "mistral3", "llava"]
        .map(|model| move |encoder: Value| of(model, encoder));
    let mistral_with = |key: &str, value: Value| {
        let mut config = mistral(json!({}));
        config[key] = value;
        config
    };
    for (config, words) in [
        (
            of("idefics3", json!({})),
            "a vision encoder in a model `idefics3`",
        ),
        (
            llava(json!({"model_type": "clip_vision_model"})),
            "a vision encoder `clip_vision_model` in `llava`",
        ),
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
            "number of the vision encoder's heads",
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
        (gemma4(json!({"num_key_value_heads": 1})), "1 for keys"),
        (gemma4(json!({"head_dim": 128})), "heads of 128"),
        (gemma4(json!({"num_attention_heads": 0})), "heads"),
        (
            gemma4(json!({"hidden_activation": "relu"})),
            "activation `relu`",
        ),
        (gemma4(json!({"pooling_kernel_size": 0})), "merged"),
        (
            gemma4(json!({"position_embedding_size": 2})),
            "pixels of an image",
        ),
        (gemma4(json!({"rms_norm_eps": 0.0})), "epsilon"),
        (mistral(json!({"hidden_act": "relu"})), "activation `relu`"),
        (mistral(json!({"num_channels": 4})), "4 channels"),
        (mistral(json!({"image_size": 0})), "pixels of an image"),
        (mistral(json!({"image_size": 1u64 << 40})), "pixels of an"),
        (mistral(json!({"image_size": u64::MAX})), "pixels of an"),
        (mistral(json!({"patch_size": 0})), "patch size"),
        (mistral_with("spatial_merge_size", json!(0)), "merged"),
        (mistral_with("projector_hidden_act", json!("silu")), "silu"),
        (mistral_with("vision_feature_layer", json!(-2)), "-2"),
        (
            mistral_with("vision_feature_select_strategy", json!("default")),
            "default",
        ),
        (llava(json!({"model_type": "pixtral"})), "-2"),
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
fn limits_of_pixels_are_a_range_that_a_image_can_meet() {
    let config = read(&of("qwen3_vl", json!({})))
        .expect("defaults fit")
        .expect("a vision encoder");
    let grid = config.grid.expect("any size");
    for (min, max, fits) in [
        (1, 32 * 32, true),
        (1, 32 * 32 - 1, false),
        (5000, 4999, false),
        (0, 100_000_000, true),
        (0, u64::MAX, false),
    ] {
        let grid = PatchGrid {
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
        "gemma4",
        "llama",
        "mistral",
        "mistral3",
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
}

#[test]
fn grids_say_how_many_rows_a_image_becomes() {
    let grid = PatchGrid::of_transformers(3, 100.0).filled(280, 16);
    assert_eq!(grid.resize, GridResize::Fill);
    assert_eq!((grid.max_pixels, grid.max_tokens(16)), (280 * 48 * 48, 280));
    // Under limits of pixels each side has at least a square, so a line may have more than the limit.
    let few = PatchGrid {
        max_pixels: 2 * 48 * 48,
        resize: GridResize::Limits,
        ..grid
    };
    assert_eq!(few.max_tokens(16), 21);
    assert_eq!(grid.n_rows((14, 20)), 280);
    // No image has patches without a position.
    let config = read(&of("gemma4", json!({"position_embedding_size": 839})));
    let config = config.expect("fits").expect("a vision encoder");
    assert_eq!(config.n_tokens, 279);
    let error = config.check_limits("f", &grid).expect_err("840 of a side");
    assert!(error.to_string().contains("840 at most"), "{error}");
    // 1,540 pixels are 55 squares of 28; a token separates two lines.
    let config = read(&of("mistral3", json!({})))
        .expect("defaults fit")
        .expect("a vision encoder");
    let grid = config.grid.expect("any size");
    let mut pixtral = of("llava", json!({}));
    pixtral["vision_feature_layer"] = json!(-1);
    pixtral["vision_feature_select_strategy"] = json!("full");
    let pixtral = read(&pixtral).expect("fits").expect("a vision encoder");
    assert_eq!((pixtral.patch_size, pixtral.n_tokens), (16, 64 * 64 + 63));
    assert_eq!(grid.turns, AxialTurns::Alternating { neighbours: false });
    assert_eq!(config.n_tokens, 55 * 55 + 54);
    assert_eq!([grid.n_rows((55, 55)), grid.n_rows((1, 4))], [3079, 4]);
    // A size that is not a whole number of squares has room for one more.
    assert_eq!(
        grid.with_longer_side(1541, 14).max_pixels,
        (56 * 28u64).pow(2)
    );
    for n in [0, usize::MAX] {
        let grid = grid.filled(n, 14);
        assert!(config.check_limits("f", &grid).is_err(), "{n} rows");
    }
}

/// Lists that families share name no weight twice.
#[test]
fn each_weight_has_one_name_in_a_family() {
    for family in family::all() {
        let roles: Vec<VisionRole> = family
            .names
            .iter()
            .copied()
            .flatten()
            .map(|n| n.0)
            .collect();
        for (i, role) in roles.iter().enumerate() {
            assert!(!roles[..i].contains(role), "{role:?} in {}", family.name);
        }
    }
}
