//! Preprocessing of images for a vision encoder, as the files describe it.

use millrace_format::Checkpoint;
use millrace_image::{AspectResize, FillResize, Filter, Fit, LongerSideResize, Preprocess};
use millrace_model::vision::{GridResize, PatchColumns, PatchGrid};
use millrace_model::{Error as ModelError, VisionConfig};
use serde_json::Value;

use crate::Error;

/// Default mean and deviation of each channel for vision encoders that accept any size (transformers,
/// `OPENAI_CLIP_MEAN` and `OPENAI_CLIP_STD`).
const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

/// Preprocessing from the files, over the usual defaults of such vision encoders. Limits of pixels go into the configuration too.
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
        read_config(file, read, is_centred_by_model(config), &mut preprocess)?;
        match &mut config.grid {
            None => check_square(file, read, preprocess.size)?,
            Some(grid) => read_grid(file, read, grid, config.patch_size)?,
        }
    }
    if let Some(grid) = config.grid {
        config.check_limits(file, &grid)?;
        config.n_tokens = grid.max_tokens(config.patch_size);
        preprocess.fit = fit_of(&grid, config.patch_size);
    }
    if is_centred_by_model(config) {
        // Then `2 · (x - 0.5)`.
        for (mean, std) in preprocess.mean.iter_mut().zip(&mut preprocess.std) {
            *std *= 0.5;
            *mean += *std;
        }
    }
    if preprocess.std.contains(&0.0) {
        return Err(bad(file, "image_std", "0", "another number than 0").into());
    }
    Ok(preprocess)
}

/// How images become a size of the grid, with patches of that size.
fn fit_of(grid: &PatchGrid, patch_size: usize) -> Fit {
    let unit = grid.merge * patch_size;
    match grid.resize {
        GridResize::Limits => Fit::Aspect(AspectResize {
            unit,
            min_pixels: grid.min_pixels,
            max_pixels: grid.max_pixels,
        }),
        GridResize::Fill => Fit::Fill(FillResize {
            unit,
            max_units: grid.max_tokens(patch_size),
        }),
        GridResize::LongerSide(longer_side) => {
            Fit::LongerSide(LongerSideResize { unit, longer_side })
        }
    }
}

/// Whether the model itself centres pixel values around zero, after the files' preprocessing (Gemma 4).
fn is_centred_by_model(config: &VisionConfig) -> bool {
    config.patches == PatchColumns::ChannelsLast
}

/// Default preprocessing of this kind of vision encoder.
fn usual(config: &VisionConfig) -> Preprocess {
    let siglip = Preprocess::siglip(config.image_size);
    let (mean, std) = match config.grid {
        None => return siglip,
        Some(_) if is_centred_by_model(config) => ([0.0; 3], [1.0; 3]),
        Some(_) => (CLIP_MEAN, CLIP_STD),
    };
    Preprocess {
        filter: Filter::Bicubic,
        mean,
        std,
        ..siglip
    }
}

/// Refuses a `preprocessor_config.json` for squares of another size.
fn check_square(file: &str, config: &Value, expected: usize) -> Result<(), Error> {
    for side in ["height", "width"] {
        if let Some(found) = config["size"][side].as_u64()
            && found != expected as u64
        {
            let expected = format!("the vision encoder's {expected}");
            return Err(bad(file, "size", &found.to_string(), &expected).into());
        }
    }
    Ok(())
}

/// Reads the limits of a `preprocessor_config.json` for images of any size, and refuses one for other patches.
fn read_grid(
    file: &str,
    config: &Value,
    grid: &mut PatchGrid,
    patch_size: usize,
) -> Result<(), Error> {
    let sizes = [
        ("patch_size", patch_size),
        ("merge_size", grid.merge),
        ("pooling_kernel_size", grid.merge),
        ("temporal_patch_size", 2),
    ];
    // If a longer side counts, the processor takes the patch sizes from elsewhere, whatever these keys say.
    let is_told = !matches!(grid.resize, GridResize::LongerSide(_));
    for (key, expected) in sizes.into_iter().filter(|_| is_told) {
        if let Some(found) = config[key].as_u64()
            && found != expected as u64
        {
            let expected = format!("the vision encoder's {expected}");
            return Err(bad(file, key, &found.to_string(), &expected).into());
        }
    }
    let whole = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    match grid.resize {
        GridResize::Limits => read_pixels(config, grid),
        GridResize::Fill => {
            if let Some(n_tokens) = whole(&config["max_soft_tokens"]) {
                *grid = grid.filled(n_tokens, patch_size);
            }
        }
        GridResize::LongerSide(_) => {
            let size = &config["size"];
            let sides = ["longest_edge", "height", "width"].map(|key| whole(&size[key]));
            match sides {
                [Some(side), ..] => *grid = grid.with_longer_side(side, patch_size),
                [None, Some(height), Some(width)] if height == width => {
                    *grid = grid.with_longer_side(height, patch_size);
                }
                [None, None, None] => {}
                _ => return Err(bad(file, "size", &size.to_string(), "`longest_edge`").into()),
            }
        }
    }
    Ok(())
}

fn read_pixels(config: &Value, grid: &mut PatchGrid) {
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
}

/// Reads resizing and value scaling from a `preprocessor_config.json`. It may leave values alone if the model centres them.
fn read_config(
    file: &str,
    config: &Value,
    is_centred: bool,
    preprocess: &mut Preprocess,
) -> Result<(), Error> {
    let normalizes = config["do_normalize"] != Value::Bool(false);
    let keys = ["do_resize", "do_rescale", "do_normalize"];
    for key in &keys[..if is_centred { 2 } else { 3 }] {
        if config[*key] == Value::Bool(false) {
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
        if let Some(list) = config[key].as_array().filter(|_| normalizes) {
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
