//! Images of requests: from base64 to rows for the text model.
//!
//! The vision encoder runs on its own threads, beside the engine's: a request with an image waits for it, while
//! others continue. Images of one request at a time are encoded. Recent ones are cached, since clients send a
//! conversation's images with every turn.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_runtime::npu::NpuModel;
use millrace_runtime::vision::image::{Limits, RgbImage};
use millrace_runtime::vision::{ImageStyle, ImageText, VisionDevice};
use millrace_runtime::{Cpu, Image, LoadedModel, VisionEncoder, image};
use millrace_text::{RenderedPrompt, Tokenizer};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::base64;

/// Maximum number of image rows cached: 64 images of Gemma 3, 2.5 MiB each with the 4B model.
const MAX_KEPT_ROWS: usize = 64 * 256;

/// Maximum number of images of a request.
pub(crate) const MAX_IMAGES: usize = 32;

/// Limit for decoding and resizing an image: 24 million pixels, 382 MiB. An image that claims more is refused before
/// any memory is taken.
const LIMITS: Limits = Limits::of_pixels(24_000_000);

/// Maximum memory for images of a model served with contexts of `n_ctx` tokens, in bytes. It excludes the vision
/// encoder's weights and the requests. It includes one decoded image, the values of the encoder's pass over it, and
/// the rows of a request's images and of the cache.
pub fn image_memory_bytes(encoder: &VisionEncoder, n_ctx: usize) -> u64 {
    let config = encoder.config();
    let n_sums = 1 + config.deepstack.len() as u64;
    let row_bytes = config.d_text as u64 * size_of::<f32>() as u64 * n_sums;
    // A longer prompt is refused before its images are encoded.
    let n_request = n_ctx.min(MAX_IMAGES.saturating_mul(config.n_tokens));
    let n_rows = n_request.saturating_add(MAX_KEPT_ROWS) as u64;
    let kept_bytes = n_rows.saturating_mul(row_bytes);
    LIMITS.bytes + encoder.work_bytes(n_ctx).saturating_add(kept_bytes)
}

/// Hash that identifies an image within a scope.
type Hash = [u8; 32];

/// The scope of an encoded image, and its hash.
type ImageKey = (u64, Hash);

/// The vision encoder of a served model.
pub(crate) struct Vision {
    encoder: VisionEncoder,
    on: VisionDevice,
    cpu: Cpu,
    kept: Mutex<RecentImages>,
    /// Serialises requests: images of one at a time are encoded.
    turn: Arc<Semaphore>,
}

/// A prompt's image as received, before decoding.
pub(crate) struct UnreadImage {
    hash: Hash,
    bytes: Vec<u8>,
}

impl UnreadImage {
    /// An image given as base64, or as a data URL.
    ///
    /// # Errors
    /// A description of the fault.
    pub(crate) fn new(data: &str) -> Result<UnreadImage, String> {
        let bytes = bytes_of(data)?;
        Ok(UnreadImage {
            hash: Sha256::digest(&bytes).into(),
            bytes,
        })
    }
}

/// Reason why images were not encoded.
#[derive(Debug)]
pub(crate) enum ImageError {
    /// The data is not an image, or too large a one.
    Unreadable(String),
    /// The vision encoder failed.
    VisionEncoder(String),
    /// No client waits any more.
    Gone,
}

/// Name of a request's image in messages.
fn image_name(index: usize) -> String {
    format!("image {}", index + 1)
}

impl Vision {
    /// Opens a model's vision encoder, in `mmproj` or where [`VisionEncoder::open`] finds it. It runs on as many
    /// threads as the engine, at the engine's level, or with its blocks on the engine's device.
    ///
    /// # Errors
    /// The reason why the model reads no images.
    pub(crate) fn open(
        model: &Arc<LoadedModel>,
        mmproj: Option<&Path>,
        options: millrace_runtime::CpuOptions,
        npu: Option<&Arc<NpuModel>>,
    ) -> Result<Vision, String> {
        let encoder = VisionEncoder::open(model, mmproj).map_err(|error| error.to_string())?;
        let cpu = Cpu::new(options).map_err(|error| error.to_string())?;
        Ok(Vision {
            on: VisionDevice::of(&encoder, npu),
            encoder,
            cpu,
            kept: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        })
    }

    /// The placeholder token for an image's row in lists of tokens.
    pub(crate) fn placeholder(&self) -> u32 {
        self.encoder.placeholder()
    }

    /// A permit to encode images. Decoded images are large, so only those of one request at a time are in memory. The
    /// others wait here, where giving up costs nothing.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    /// Tokens of a prompt with these images, with placeholders for their rows.
    ///
    /// # Errors
    /// A template or vocabulary without places for images; an image without a size that the vision encoder accepts.
    pub(crate) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        prompt: &RenderedPrompt,
        images: &[UnreadImage],
    ) -> Result<Vec<u32>, String> {
        let n_rows = images.iter().enumerate().map(|(i, image)| {
            if self.encoder.config().grid.is_none() {
                return Ok(vec![self.encoder.config().n_tokens]);
            }
            // The size in its header; the image is decoded when its turn comes.
            let size = RgbImage::size_within(&image_name(i), &image.bytes, LIMITS);
            let (width, height) = size.map_err(|error| error.to_string())?;
            let n_rows = self.encoder.rows_of_image(width, height);
            n_rows.map(|n| vec![n]).map_err(|error| error.to_string())
        });
        let n_rows: Vec<Vec<usize>> = n_rows.collect::<Result<_, String>>()?;
        let (text, style) = (ImageText::Chat(prompt), ImageStyle::Transformers);
        let tokens = self.encoder.tokens(tokenizer, text, &n_rows, style);
        tokens.map_err(|error| error.to_string())
    }

    /// Decodes the images that are not cached for this scope, runs the vision encoder over them, and puts all rows
    /// into their places.
    ///
    /// # Errors
    /// [`ImageError`]; [`ImageError::Gone`] once `gone` is set.
    pub(crate) fn see(
        &self,
        scope: u64,
        pending: &[UnreadImage],
        tokens: &mut [u32],
        gone: &AtomicBool,
    ) -> Result<Vec<Arc<Image>>, ImageError> {
        let mut images = Vec::with_capacity(pending.len());
        for (i, pending) in pending.iter().enumerate() {
            if gone.load(Relaxed) {
                return Err(ImageError::Gone);
            }
            let key = (scope, pending.hash);
            let known = self.kept().known(&key);
            let image = match known {
                Some(image) => image,
                None => {
                    let image = self.read(&image_name(i), &pending.bytes, gone)?;
                    self.kept().keep(key, Arc::clone(&image));
                    image
                }
            };
            images.push(image);
        }
        let placed = image::place(tokens, &images);
        placed.map_err(|error| ImageError::VisionEncoder(error.to_string()))?;
        Ok(images)
    }

    fn read(&self, name: &str, bytes: &[u8], gone: &AtomicBool) -> Result<Arc<Image>, ImageError> {
        let image = RgbImage::decode_within(name, bytes, LIMITS);
        let image = image.map_err(|error| ImageError::Unreadable(error.to_string()))?;
        let pixels = self.encoder.preprocess().apply(&image);
        let pixels = pixels.map_err(|error| ImageError::Unreadable(error.to_string()))?;
        let pixels = pixels.into_iter().next().ok_or(ImageError::Gone)?;
        drop(image);
        let watch = &mut |_, _| match gone.load(Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let encoded = self
            .encoder
            .encode_where(&self.on, &self.cpu, &pixels, watch);
        let encoded = encoded.map_err(|error| ImageError::VisionEncoder(error.to_string()))?;
        encoded.map(|encoded| encoded.image).ok_or(ImageError::Gone)
    }

    fn kept(&self) -> MutexGuard<'_, RecentImages> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Recently encoded images, the latest last.
#[derive(Default)]
struct RecentImages(VecDeque<(ImageKey, Arc<Image>)>);

impl RecentImages {
    /// A cached image, which becomes the latest.
    fn known(&mut self, key: &ImageKey) -> Option<Arc<Image>> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        let (key, image) = self.0.remove(at)?;
        self.0.push_back((key, Arc::clone(&image)));
        Some(image)
    }

    fn keep(&mut self, key: ImageKey, image: Arc<Image>) {
        self.0.push_back((key, image));
        let n_rows = |kept: &Self| {
            kept.0
                .iter()
                .map(|(_, image)| image.n_rows())
                .sum::<usize>()
        };
        while n_rows(self) > MAX_KEPT_ROWS {
            self.0.pop_front();
        }
    }
}

/// The bytes of a data URL, or of plain base64.
fn bytes_of(data: &str) -> Result<Vec<u8>, String> {
    let text = match data.split_once(',') {
        Some((head, rest)) if head.starts_with("data:") && head.ends_with(";base64") => rest,
        _ if data.starts_with("http://") || data.starts_with("https://") => {
            return Err("this server opens no connections; send the image as a data URL".into());
        }
        _ => data,
    };
    base64::decode(text).ok_or_else(|| "the image is neither base64 nor a data URL of it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_images_go_first_and_as_many_as_must() {
        let image = |n: usize| Image::new(1, vec![0.0; n]).expect("rows");
        let key = |i: u8| (0, [i; 32]);
        let mut kept = RecentImages::default();
        for i in 0..4 {
            kept.keep(key(i), image(MAX_KEPT_ROWS / 4));
        }
        kept.known(&key(0)).expect("all have room");
        kept.keep(key(4), image(MAX_KEPT_ROWS / 2));
        let has: Vec<bool> = (0..5).map(|i| kept.known(&key(i)).is_some()).collect();
        assert_eq!(has, [true, false, false, true, true]);
        // An image larger than the cache is not kept.
        kept.keep(key(5), image(MAX_KEPT_ROWS + 1));
        assert!(kept.known(&key(5)).is_none());
    }

    #[test]
    fn images_are_data_and_no_addresses() {
        assert_eq!(bytes_of("data:image/png;base64,AAE="), Ok(vec![0, 1]));
        assert_eq!(bytes_of("AAE"), Ok(vec![0, 1]));
        bytes_of("https://example.org/a.png").unwrap_err();
        bytes_of("file:///etc/passwd").unwrap_err();
        bytes_of("data:text/plain,hello").unwrap_err();
    }
}
