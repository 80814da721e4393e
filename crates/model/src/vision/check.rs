//! Checks of vision encoders' hyperparameters: sizes that are zero, absurd or do not fit each other are refused.

use super::config::{PatchGrid, VisionConfig};
use crate::Error;

const MAX_WIDTH: usize = 1 << 20;
const MAX_SIDE: usize = 1 << 14;
const MAX_MERGE: usize = 16;
/// Bound of an image's pixels at the vision encoder's size: the decoder's bound.
const MAX_PIXELS: u64 = 100_000_000;
/// Bound of attention's kernels.
const MAX_HEAD_DIM: usize = 1024;

impl VisionConfig {
    /// Refuses sizes that are zero, absurd or do not fit each other.
    pub(crate) fn validate(&self, file: &str) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: String| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found,
                expected,
            })
        };
        let sizes = [
            (
                "number of the vision encoder's layers",
                self.n_layers,
                VisionConfig::MAX_LAYERS,
            ),
            ("width of the vision encoder", self.d_model, MAX_WIDTH),
            ("width of its feed-forward", self.d_ff, MAX_WIDTH),
            ("number of its heads", self.n_heads, MAX_WIDTH),
            ("patch size", self.patch_size, MAX_SIDE),
            ("width of the text model", self.d_text, 1 << 22),
        ];
        for (key, found, max) in sizes {
            if found == 0 || found > max {
                return bad(key, found.to_string(), format!("between 1 and {max}"));
            }
        }
        if !self.d_model.is_multiple_of(self.n_heads) {
            let expected = format!("a divisor of the vision encoder's width, {}", self.d_model);
            return bad(
                "number of the vision encoder's heads",
                self.n_heads.to_string(),
                expected,
            );
        }
        if self.head_dim() > MAX_HEAD_DIM {
            let (found, width) = (self.head_dim(), self.d_model);
            return bad(
                "elements of a head in the vision encoder",
                format!("{found} ({} heads in a width of {width})", self.n_heads),
                format!("{MAX_HEAD_DIM} at most"),
            );
        }
        for eps in [self.norm_eps, self.merger_eps.unwrap_or(1.0)] {
            if !(eps.is_finite() && eps > 0.0) {
                let (key, expected) =
                    ("epsilon of the vision encoder's norms", "a positive number");
                return bad(key, eps.to_string(), expected.into());
            }
        }
        match &self.grid {
            Some(grid) => self.validate_grid(file, grid),
            None => self.validate_square(file),
        }
    }

    /// Sizes of a vision encoder that takes squares.
    fn validate_square(&self, file: &str) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: String| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found,
                expected,
            })
        };
        for (key, found) in [
            ("image size", self.image_size),
            ("tokens of an image", self.n_tokens),
        ] {
            if found == 0 || found > MAX_SIDE {
                return bad(key, found.to_string(), format!("between 1 and {MAX_SIDE}"));
            }
        }
        if !self.image_size.is_multiple_of(self.patch_size) {
            let expected = format!("a multiple of the patch size {}", self.patch_size);
            return bad("image size", self.image_size.to_string(), expected);
        }
        let side = self.tokens_per_side();
        if side * side != self.n_tokens || !self.patches_per_side().is_multiple_of(side) {
            let n = self.patches_per_side();
            let expected = format!("the square of a divisor of {n} patches a side");
            return bad("tokens of an image", self.n_tokens.to_string(), expected);
        }
        Ok(())
    }

    /// Sizes of a vision encoder that takes any.
    fn validate_grid(&self, file: &str, grid: &PatchGrid) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: &str| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found,
                expected: expected.into(),
            })
        };
        let merge = grid.merge;
        if merge == 0 || merge > MAX_MERGE {
            let expected = format!("between 1 and {MAX_MERGE}");
            return bad(
                "patches of a side that are merged",
                merge.to_string(),
                &expected,
            );
        }
        if !self.head_dim().is_multiple_of(4) {
            let found = self.head_dim().to_string();
            let expected = "a multiple of 4, for rows and columns rotate half of it each";
            return bad("elements of a head in the vision encoder", found, expected);
        }
        if !(grid.rope_theta.is_finite() && grid.rope_theta > 0.0) {
            let found = grid.rope_theta.to_string();
            return bad(
                "base of the vision encoder's rotary positions",
                found,
                "a positive number",
            );
        }
        if self.image_size > MAX_SIDE || !self.image_size.is_multiple_of(self.patch_size) {
            let expected = format!("a multiple of the patch size, {MAX_SIDE} at most");
            return bad("image size", self.image_size.to_string(), &expected);
        }
        self.check_limits(file, grid)?;
        let last = self.deepstack.last().copied().unwrap_or(0);
        if !self.deepstack.is_sorted_by(|a, b| a < b) || last >= self.n_layers {
            let found = format!("{:?}", self.deepstack);
            let expected = format!("ascending numbers below {}", self.n_layers);
            return bad("blocks for the text model's first layers", found, &expected);
        }
        let cell = merge * self.patch_size;
        match &self.windows {
            Some(windows) if windows.side < cell || windows.side > MAX_SIDE => bad(
                "pixels of a window's side",
                windows.side.to_string(),
                &format!("between {cell} and {MAX_SIDE}"),
            ),
            _ => Ok(()),
        }
    }

    /// Refuses limits of an image's pixels that no image meets, or that are absurd. They may come from another file than the
    /// rest.
    ///
    /// # Errors
    /// [`Error::BadValue`], which names the file `file`.
    pub fn check_limits(&self, file: &str, grid: &PatchGrid) -> Result<(), Error> {
        let (min, max) = (grid.min_pixels, grid.max_pixels);
        let side = (grid.merge * self.patch_size) as u64;
        if max < side * side || min > max || max > MAX_PIXELS {
            return Err(Error::BadValue {
                file: file.into(),
                key: "pixels of an image".into(),
                found: format!("{min} to {max}"),
                expected: format!("a range that ends between {} and {MAX_PIXELS}", side * side),
            });
        }
        let n_patches = grid.max_tokens(self.patch_size).saturating_mul(grid.merge);
        if self.axis_positions > 0 && n_patches > self.axis_positions {
            return Err(Error::BadValue {
                file: file.into(),
                key: "patches of an image's side".into(),
                found: format!("{n_patches} at most"),
                expected: format!("the {} that have positions, at most", self.axis_positions),
            });
        }
        Ok(())
    }
}
