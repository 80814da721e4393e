//! A tower and how it is used: from decoded pictures to the images of a prompt.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use millrace_kernels::Cpu;
use millrace_picture::{Fit, PanAndScan, Picture, PixelValues};
use millrace_text::Tokenizer;

use super::{ImageStyle, ImageText, PictureRows, TowerOn, VisionTower, not_taken};
use crate::{Engine, Error, LoadedModel};

/// How pictures are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whose way of preparing pictures and of putting them into prompts.
    pub style: ImageStyle,
    /// Look at long pictures in parts too, up to four.
    pub pan_and_scan: bool,
}

/// A tower that reads pictures one way.
pub struct ImageReader {
    tower: VisionTower,
    options: ReadOptions,
}

/// A picture's pixel values: the whole and its crops.
#[derive(Clone, Debug)]
pub struct Pixels(Vec<PixelValues>);

impl Pixels {
    /// The whole, then the crops.
    pub fn all(&self) -> &[PixelValues] {
        &self.0
    }
}

impl ImageReader {
    /// Opens the model's tower, which is among its own weights, in `mmproj`, or in the mmproj file beside it.
    ///
    /// # Errors
    /// As [`VisionTower::open`].
    pub fn open(
        model: &Arc<LoadedModel>,
        mmproj: Option<&Path>,
        options: ReadOptions,
    ) -> Result<ImageReader, Error> {
        let tower = VisionTower::open(model, mmproj)?;
        if options.pan_and_scan && tower.config().grid.is_some() {
            return Err(Error::BadOption {
                option: "pan-and-scan",
                found: format!("given for a {} tower", tower.config().family),
                expected: "left out: this tower takes pictures of any size whole",
            });
        }
        Ok(ImageReader { tower, options })
    }

    /// The tower.
    pub fn tower(&self) -> &VisionTower {
        &self.tower
    }

    /// What the tower takes of a picture.
    ///
    /// # Errors
    /// [`Error::BadImage`] for a picture that the tower does not take.
    pub fn pixels(&self, picture: &Picture) -> Result<Pixels, Error> {
        let mut preprocess = self.tower.preprocess().clone();
        if self.options.style == ImageStyle::LlamaCpp && preprocess.fit == Fit::Stretch {
            preprocess.fit = Fit::Letterbox;
        }
        preprocess.pan_and_scan = self.options.pan_and_scan.then(PanAndScan::default);
        Ok(Pixels(preprocess.apply(picture).map_err(not_taken)?))
    }

    /// Rows that the whole and each crop of a picture become.
    pub fn n_rows(&self, pixels: &Pixels) -> Vec<usize> {
        let rows = |pixels: &PixelValues| self.tower.n_rows(pixels.width, pixels.height);
        pixels.all().iter().map(rows).collect()
    }

    /// Tokens of a prompt with these pictures, placeholders for their rows.
    ///
    /// # Errors
    /// As [`VisionTower::tokens`].
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: ImageText<'_>,
        pixels: &[&Pixels],
    ) -> Result<Vec<u32>, Error> {
        let n_rows: Vec<Vec<usize>> = pixels.iter().map(|pixels| self.n_rows(pixels)).collect();
        self.tower
            .tokens(tokenizer, text, &n_rows, self.options.style)
    }

    /// Where the tower's blocks run beside this engine: on its device where that takes them. To be asked once an engine: plans are
    /// made for it.
    pub fn on(&self, engine: &dyn Engine) -> TowerOn {
        TowerOn::of(&self.tower, engine.device_model())
    }

    /// Runs the tower over pictures where [`on`](ImageReader::on) says: of each the whole, then the crops. `watch` is told of blocks done and in all, and can stop the work: then there is no result.
    ///
    /// # Errors
    /// As [`VisionTower::encode`], and those of a device.
    pub fn encode(
        &self,
        on: &TowerOn,
        cpu: &Cpu,
        pixels: &[&Pixels],
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<Vec<PictureRows>>, Error> {
        let all: Vec<&PixelValues> = pixels.iter().flat_map(|pixels| pixels.all()).collect();
        let n_layers = self.tower.config().n_layers;
        let total = all.len() * n_layers;
        let mut encoded = Vec::with_capacity(all.len());
        for (i, pixels) in all.iter().enumerate() {
            let mut watch = |layer, _| watch(i * n_layers + layer, total);
            let done = self.tower.encode_where(on, cpu, pixels, &mut watch)?;
            match done {
                Some(done) => encoded.push(done),
                None => return Ok(None),
            }
        }
        Ok(Some(encoded))
    }
}
