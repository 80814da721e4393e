//! A vision encoder and how it is used: from decoded images to the images of a prompt.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use millrace_image::{Fit, PanAndScan, PixelValues, RgbImage};
use millrace_kernels::Cpu;
use millrace_text::Tokenizer;

use super::{EncodedImage, ImageStyle, ImageText, VisionDevice, VisionEncoder, not_taken};
use crate::{Engine, Error, LoadedModel};

/// How images are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Convention for preparing images and putting them into prompts.
    pub style: ImageStyle,
    /// Also read parts of long images, up to four.
    pub pan_and_scan: bool,
}

/// A vision encoder that reads images one way.
pub struct ImageReader {
    encoder: VisionEncoder,
    options: ReadOptions,
}

/// An image's pixel values: the whole and its crops.
#[derive(Clone, Debug)]
pub struct Pixels(Vec<PixelValues>);

impl Pixels {
    /// The whole, then the crops.
    pub fn all(&self) -> &[PixelValues] {
        &self.0
    }
}

impl ImageReader {
    /// Opens the model's vision encoder: among its own weights, in `mmproj`, or in the mmproj file beside it.
    ///
    /// # Errors
    /// As [`VisionEncoder::open`].
    pub fn open(
        model: &Arc<LoadedModel>,
        mmproj: Option<&Path>,
        options: ReadOptions,
    ) -> Result<ImageReader, Error> {
        let encoder = VisionEncoder::open(model, mmproj)?;
        if options.pan_and_scan && encoder.config().grid.is_some() {
            return Err(Error::BadOption {
                option: "pan-and-scan",
                found: format!("given for a {} vision encoder", encoder.config().family),
                expected: "left out: this vision encoder takes images of any size whole",
            });
        }
        Ok(ImageReader { encoder, options })
    }

    /// The vision encoder.
    pub fn encoder(&self) -> &VisionEncoder {
        &self.encoder
    }

    /// The vision encoder's pixels of an image.
    ///
    /// # Errors
    /// [`Error::BadImage`] for an image that the vision encoder does not support.
    pub fn pixels(&self, image: &RgbImage) -> Result<Pixels, Error> {
        let mut preprocess = self.encoder.preprocess().clone();
        if self.options.style == ImageStyle::LlamaCpp && preprocess.fit == Fit::Stretch {
            preprocess.fit = Fit::Letterbox;
        }
        preprocess.pan_and_scan = self.options.pan_and_scan.then(PanAndScan::default);
        Ok(Pixels(preprocess.apply(image).map_err(not_taken)?))
    }

    /// Rows that the whole and each crop of an image become.
    pub fn n_rows(&self, pixels: &Pixels) -> Vec<usize> {
        let rows = |pixels: &PixelValues| self.encoder.n_rows(pixels.width, pixels.height);
        pixels.all().iter().map(rows).collect()
    }

    /// Tokens of a prompt with these images, placeholders for their rows.
    ///
    /// # Errors
    /// As [`VisionEncoder::tokens`].
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: ImageText<'_>,
        pixels: &[&Pixels],
    ) -> Result<Vec<u32>, Error> {
        let n_rows: Vec<Vec<usize>> = pixels.iter().map(|pixels| self.n_rows(pixels)).collect();
        self.encoder
            .tokens(tokenizer, text, &n_rows, self.options.style)
    }

    /// Where the vision encoder's blocks run with this engine: on its device if that supports them. To be called once for each engine,
    /// because plans are made for it.
    pub fn on(&self, engine: &dyn Engine) -> VisionDevice {
        VisionDevice::of(&self.encoder, engine.device_model())
    }

    /// Runs the vision encoder over images where [`on`](ImageReader::on) says: for each the whole, then the crops. `watch` gets the number
    /// of blocks done and in all, and can stop the work: then there is no result.
    ///
    /// # Errors
    /// As [`VisionEncoder::encode`], and the errors of a device.
    pub fn encode(
        &self,
        on: &VisionDevice,
        cpu: &Cpu,
        pixels: &[&Pixels],
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<Vec<EncodedImage>>, Error> {
        let all: Vec<&PixelValues> = pixels.iter().flat_map(|pixels| pixels.all()).collect();
        let n_layers = self.encoder.config().n_layers;
        let total = all.len() * n_layers;
        let mut encoded = Vec::with_capacity(all.len());
        for (i, pixels) in all.iter().enumerate() {
            let mut watch = |layer, _| watch(i * n_layers + layer, total);
            let done = self.encoder.encode_where(on, cpu, pixels, &mut watch)?;
            match done {
                Some(done) => encoded.push(done),
                None => return Ok(None),
            }
        }
        Ok(Some(encoded))
    }
}
