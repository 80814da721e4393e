//! What files say of how pictures are prepared for a tower.

use millrace_format::Checkpoint;
use millrace_model::vision::PatchGrid;
use millrace_model::{Error as ModelError, VisionConfig};
use millrace_picture::{AspectResize, Filter, Fit, Preprocess};
use serde_json::Value;

use crate::Error;

/// Mean and deviation of each channel where no file says them, of towers that take any size (transformers,
/// `OPENAI_CLIP_MEAN` and `OPENAI_CLIP_STD`).
const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

/// What the files say of preprocessing, on top of what such towers usually want. Limits of pixels go into the configuration too.
pub(super) fn preprocess(
    checkpoint: &Checkpoint,
    config: &mut VisionConfig,
) -> Result<Preprocess, Error> {
    let mut preprocess = usual(config);
    let file = checkpoint.name();
    if let Some(metadata) = checkpoint.gguf() {
        for (key, channels) in [
            ("clip.vision.image_mean", &mut preprocess.mean),
            ("clip.vision.image_std", &mut preprocess.std),
        ] {
            if let Some(values) = metadata.get_f32_array(key)? {
                *channels = three(file, key, &values)?;
            }
        }
    }
    let files = checkpoint.hf();
    if let Some(read) = files.and_then(|files| files.preprocessor_config.as_ref()) {
        read_config(file, read, &mut preprocess)?;
        match &mut config.grid {
            None => check_square(file, read, preprocess.size)?,
            Some(grid) => read_grid(file, read, grid, config.patch_size)?,
        }
    }
    if let Some(grid) = config.grid {
        config.check_limits(file, &grid)?;
        config.n_tokens = grid.max_tokens(config.patch_size);
        preprocess.fit = Fit::Aspect(AspectResize {
            unit: grid.merge * config.patch_size,
            min_pixels: grid.min_pixels,
            max_pixels: grid.max_pixels,
        });
    }
    if preprocess.std.contains(&0.0) {
        return Err(bad(file, "image_std", "0", "another number than 0").into());
    }
    Ok(preprocess)
}

/// What towers of such a kind want where files say nothing.
fn usual(config: &VisionConfig) -> Preprocess {
    let siglip = Preprocess::siglip(config.image_size);
    match config.grid {
        None => siglip,
        Some(_) => Preprocess {
            filter: Filter::Bicubic,
            mean: CLIP_MEAN,
            std: CLIP_STD,
            ..siglip
        },
    }
}

/// Refuses a `preprocessor_config.json` for squares of another size.
fn check_square(file: &str, config: &Value, expected: usize) -> Result<(), Error> {
    for side in ["height", "width"] {
        if let Some(found) = config["size"][side].as_u64()
            && found != expected as u64
        {
            let expected = format!("the tower's {expected}");
            return Err(bad(file, "size", &found.to_string(), &expected).into());
        }
    }
    Ok(())
}

/// Reads the limits of a `preprocessor_config.json` for pictures of any size, and refuses one for other patches.
fn read_grid(
    file: &str,
    config: &Value,
    grid: &mut PatchGrid,
    patch_size: usize,
) -> Result<(), Error> {
    let sizes = [
        ("patch_size", patch_size),
        ("merge_size", grid.merge),
        ("temporal_patch_size", 2),
    ];
    for (key, expected) in sizes {
        if let Some(found) = config[key].as_u64()
            && found != expected as u64
        {
            let expected = format!("the tower's {expected}");
            return Err(bad(file, key, &found.to_string(), &expected).into());
        }
    }
    let size = &config["size"];
    for (limit, inner, outer) in [
        (&mut grid.min_pixels, "shortest_edge", "min_pixels"),
        (&mut grid.max_pixels, "longest_edge", "max_pixels"),
    ] {
        // The outer one is older and overrides.
        if let Some(pixels) = config[outer].as_u64().or_else(|| size[inner].as_u64()) {
            *limit = pixels;
        }
    }
    Ok(())
}

/// Reads what a `preprocessor_config.json` says of resizing and of values.
fn read_config(file: &str, config: &Value, preprocess: &mut Preprocess) -> Result<(), Error> {
    for key in ["do_resize", "do_rescale", "do_normalize"] {
        if config[key] == Value::Bool(false) {
            return Err(bad(file, key, "false", "true").into());
        }
    }
    match config["resample"].as_u64() {
        None | Some(2) => {}
        Some(3) => preprocess.filter = Filter::Bicubic,
        Some(other) => {
            let expected = "2 (bilinear) or 3 (bicubic)";
            return Err(bad(file, "resample", &other.to_string(), expected).into());
        }
    }
    if let Some(factor) = config["rescale_factor"].as_f64() {
        preprocess.rescale = factor as f32;
    }
    for (key, channels) in [
        ("image_mean", &mut preprocess.mean),
        ("image_std", &mut preprocess.std),
    ] {
        if let Some(list) = config[key].as_array() {
            let values: Vec<f32> = list
                .iter()
                .filter_map(|value| value.as_f64().map(|value| value as f32))
                .collect();
            *channels = three(file, key, &values)?;
        }
    }
    Ok(())
}

fn three(file: &str, key: &str, values: &[f32]) -> Result<[f32; 3], Error> {
    let finite = values.iter().all(|value| value.is_finite());
    let values: Option<[f32; 3]> = values.try_into().ok().filter(|_| finite);
    values.ok_or_else(|| bad(file, key, "something else", "three numbers").into())
}

fn bad(file: &str, key: &str, found: &str, expected: &str) -> ModelError {
    ModelError::BadValue {
        file: file.into(),
        key: key.into(),
        found: found.into(),
        expected: expected.into(),
    }
}
