//! Images of requests: from base64 to what the text model takes.
//!
//! The tower runs on threads of its own, beside the engine's: a request with an image waits for it, others go
//! on with their answers meanwhile. One image at a time is read; those read lately are kept, since clients
//! send a conversation's images with every turn.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_runtime::vision::picture::{Picture, PixelValues};
use millrace_runtime::vision::{ImageStyle, ImageText};
use millrace_runtime::{Cpu, Image, LoadedModel, VisionTower, image};
use millrace_text::{Prompt, Tokenizer};
use sha2::{Digest, Sha256};

/// Images kept at most: of Gemma 3 4B each takes 2.5 MiB.
const MAX_KEPT: usize = 64;

/// What tells images apart.
type Key = [u8; 32];

/// The tower of a served model.
pub(crate) struct Vision {
    tower: VisionTower,
    cpu: Cpu,
    /// Lately read ones, the latest last. Held while the tower runs, so that one image is read at a time.
    kept: Mutex<VecDeque<(Key, Arc<Image>)>>,
}

/// A prompt's image before the tower has seen it.
pub(crate) struct Pending {
    key: Key,
    pixels: PixelValues,
}

impl Vision {
    /// Opens a model's tower, to run on as many threads as the engine has and at its level.
    ///
    /// # Errors
    /// Why the model reads no images, in words.
    pub(crate) fn open(
        model: &Arc<LoadedModel>,
        options: millrace_runtime::CpuOptions,
    ) -> Result<Vision, String> {
        let tower = VisionTower::open(model, None).map_err(|error| error.to_string())?;
        let cpu = Cpu::new(options).map_err(|error| error.to_string())?;
        Ok(Vision {
            tower,
            cpu,
            kept: Mutex::default(),
        })
    }

    /// The token that holds a row's place in lists of tokens.
    pub(crate) fn placeholder(&self) -> u32 {
        self.tower.placeholder()
    }

    /// Decodes an image given as base64, or as a data URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn pending(&self, data: &str) -> Result<Pending, String> {
        let bytes = bytes_of(data)?;
        let picture = Picture::decode("the image", &bytes).map_err(|error| error.to_string())?;
        let mut pixels = self.tower.preprocess().apply(&picture);
        Ok(Pending {
            key: Sha256::digest(&bytes).into(),
            pixels: pixels.swap_remove(0),
        })
    }

    /// Tokens of a prompt with so many images, placeholders for their rows.
    ///
    /// # Errors
    /// A template or vocabulary without places for images.
    pub(crate) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        prompt: &Prompt,
        n_images: usize,
    ) -> Result<Vec<u32>, String> {
        let (text, style) = (ImageText::Chat(prompt), ImageStyle::Transformers);
        let tokens = self
            .tower
            .tokens(tokenizer, text, &vec![0; n_images], style);
        tokens.map_err(|error| error.to_string())
    }

    /// Runs the tower over images that it has not seen lately, and puts all into their places. `gone` gives
    /// up: then there is no result.
    ///
    /// # Errors
    /// What the kernels refuse, in words.
    pub(crate) fn see(
        &self,
        pending: &[Pending],
        tokens: &mut [u32],
        gone: &AtomicBool,
    ) -> Result<Option<Vec<Arc<Image>>>, String> {
        let mut images = Vec::with_capacity(pending.len());
        for pending in pending {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = kept.iter().position(|(key, _)| *key == pending.key) {
                let known = kept.remove(at);
                images.extend(known.iter().map(|(_, image)| Arc::clone(image)));
                kept.extend(known);
                continue;
            }
            let watch = &mut |_, _| match gone.load(Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let encoded = self.tower.encode(&self.cpu, &pending.pixels, watch);
            let Some(encoded) = encoded.map_err(|error| error.to_string())? else {
                return Ok(None);
            };
            images.push(Arc::clone(&encoded.image));
            kept.push_back((pending.key, encoded.image));
            if kept.len() > MAX_KEPT {
                kept.pop_front();
            }
        }
        image::place(tokens, &images).map_err(|error| error.to_string())?;
        Ok(Some(images))
    }
}

/// The bytes of a data URL, or of plain base64.
fn bytes_of(data: &str) -> Result<Vec<u8>, String> {
    let base64 = match data.split_once(',') {
        Some((head, rest)) if head.starts_with("data:") && head.ends_with(";base64") => rest,
        _ if data.starts_with("http://") || data.starts_with("https://") => {
            return Err("this server opens no connections; send the image as a data URL".into());
        }
        _ => data,
    };
    decode_base64(base64).ok_or_else(|| "the image is neither base64 nor a data URL of it".into())
}

/// Standard or URL-safe base64, with padding or without; blanks are passed over.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut n_bits, mut ended) = (0u32, 0, false);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                ended = true;
                continue;
            }
            b'\n' | b'\r' | b' ' => continue,
            _ => return None,
        };
        if ended {
            return None;
        }
        bits = bits << 6 | u32::from(value);
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            out.push((bits >> n_bits) as u8);
            bits &= (1 << n_bits) - 1;
        }
    }
    // What is left over of a whole number of bytes is zero.
    (bits == 0 && n_bits < 6).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_in_all_its_spellings() {
        for text in ["AP+/", "AP-_", "AP +/\n"] {
            assert_eq!(decode_base64(text), Some(vec![0, 255, 191]), "{text}");
        }
        assert_eq!(decode_base64("AA=="), Some(vec![0]));
        assert_eq!(decode_base64("AAE"), Some(vec![0, 1]));
        for wrong in ["A", "AB", "A=A=", "AA*A"] {
            assert_eq!(decode_base64(wrong), None, "{wrong}");
        }
        assert_eq!(bytes_of("data:image/png;base64,AAE="), Ok(vec![0, 1]));
        bytes_of("https://example.org/a.png").unwrap_err();
        bytes_of("data:text/plain,hello").unwrap_err();
    }
}
