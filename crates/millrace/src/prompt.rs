//! Prompts, and their tokens.

use crate::{Error, Model, Result};
use millrace_runtime::vision::image::{MAX_FILE_BYTES, RgbImage};
use millrace_runtime::vision::{EncodedImage, ImageText, Pixels, VisionRun};
use millrace_runtime::{Image, image};
use millrace_text::{ChatTemplate, Message, RenderOptions, RenderedPrompt, Tokenizer, Warning};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A prompt: a text to continue, messages to answer, or tokens, optionally with images. A `&str` or `String` is a
/// text to continue.
///
/// ```
/// use millrace::Prompt;
///
/// let story = Prompt::text("Once upon a time");
/// let question = Prompt::user("Who found the ball?").system("Answer in one sentence.");
/// let tokens = Prompt::tokens([1, 15, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct Prompt {
    content: PromptContent,
    images: Vec<RgbImage>,
}

#[derive(Clone, Debug)]
enum PromptContent {
    Text(String),
    Messages(Vec<Message>),
    Tokens(Vec<u32>),
}

impl Prompt {
    /// A text for the model to continue. Spelled-out control tokens in it are read as control tokens. With images,
    /// `<start_of_image>` marks the place of each.
    pub fn text(text: impl Into<String>) -> Prompt {
        Prompt::of(PromptContent::Text(text.into()))
    }

    /// A user's message, put into the model's chat template. Spelled-out control tokens in messages are plain text.
    pub fn user(text: impl Into<String>) -> Prompt {
        Prompt::messages([Message::user(text)])
    }

    /// Messages in the model's chat template; the answer comes next.
    pub fn messages(messages: impl IntoIterator<Item = Message>) -> Prompt {
        Prompt::of(PromptContent::Messages(messages.into_iter().collect()))
    }

    /// Tokens as they are. The token that stands for an image occurs once for each image, or once for each of its
    /// rows.
    pub fn tokens(tokens: impl Into<Vec<u32>>) -> Prompt {
        Prompt::of(PromptContent::Tokens(tokens.into()))
    }

    fn of(content: PromptContent) -> Prompt {
        Prompt {
            content,
            images: Vec::new(),
        }
    }

    /// Instructions for the model to follow, before everything else. They make a text a user's message; tokens are
    /// left unchanged.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Prompt {
        self.content = match self.content {
            PromptContent::Text(user) => {
                PromptContent::Messages(vec![Message::system(text), Message::user(user)])
            }
            PromptContent::Messages(messages) => {
                let system = [Message::system(text)];
                PromptContent::Messages(system.into_iter().chain(messages).collect())
            }
            tokens => tokens,
        };
        self
    }

    /// Adds an image after those before it. With messages, it goes with the last one, before its text.
    #[must_use]
    pub fn image(mut self, image: RgbImage) -> Prompt {
        if let PromptContent::Messages(messages) = &mut self.content
            && let Some(last) = messages.last_mut()
        {
            last.images.push(format!("image {}", self.images.len()));
        }
        self.images.push(image);
        self
    }

    /// An image in a file: PNG, JPEG or WebP.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Image`].
    pub fn image_file(self, path: impl AsRef<Path>) -> Result<Prompt> {
        Ok(self.image(read_image(path.as_ref())?))
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        Prompt::text(text)
    }
}

impl From<&String> for Prompt {
    fn from(text: &String) -> Prompt {
        Prompt::text(text)
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Prompt {
        Prompt::text(text)
    }
}

/// Reads and decodes an image's file: PNG, JPEG or WebP.
///
/// # Errors
/// [`Error::Read`]; [`Error::Image`] for an image that is broken, animated or too large.
pub fn read_image(path: &Path) -> Result<RgbImage> {
    let reading = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(reading)?;
    let mut bytes = Vec::new();
    // Reading one byte beyond the limit detects a file that is too long.
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(reading)?;
    Ok(RgbImage::decode(&path.display().to_string(), &bytes)?)
}

/// A prompt in tokens. Its images are decoded; a [`Session`](crate::Session) encodes them.
#[derive(Debug)]
pub struct PromptTokens {
    pub(crate) tokens: Vec<u32>,
    pub(crate) pixels: Vec<Pixels>,
    pub(crate) read: Option<ImageReading>,
    warning: Option<Warning>,
}

/// Result of encoding a prompt's images.
#[derive(Clone, Debug, Default)]
pub struct ImageReading {
    /// Rows for the text model, in the order of the prompt, crops after their whole image.
    pub images: Vec<Arc<Image>>,
    /// Output of the vision encoder for each of them, `[n_patches, d_model]`.
    pub encoder: Vec<Vec<f32>>,
    /// Measured time.
    pub time: Duration,
    /// Cost on a device, for all images together, if the vision encoder's blocks ran on one.
    pub on_device: Option<VisionRun>,
}

impl ImageReading {
    pub(crate) fn push(&mut self, encoded: EncodedImage) {
        if let Some(run) = encoded.on_device {
            let all = self.on_device.get_or_insert_with(|| VisionRun {
                device_ns: 0,
                n_dispatches: 0,
                ..run.clone()
            });
            all.device_ns += run.device_ns;
            all.n_dispatches += run.n_dispatches;
        }
        self.images.push(encoded.image);
        self.encoder.push(encoded.encoder);
    }
}

impl PromptTokens {
    pub(crate) fn new(model: &Model, prompt: Prompt) -> Result<PromptTokens> {
        let Prompt { content, images } = prompt;
        if images.is_empty() {
            return PromptTokens::without_images(model, content);
        }
        let reader = model.image_reader()?;
        let pixels = images.iter().map(|image| reader.pixels(image));
        let pixels: Vec<Pixels> = pixels.collect::<std::result::Result<_, _>>()?;
        let shown: Vec<&Pixels> = pixels.iter().collect();
        let tokenizer = || model.loaded().tokenizer();
        let mut warning = None;
        let tokens = match &content {
            PromptContent::Text(text) => {
                let tokenizer = tokenizer()?;
                warning = tokenizer.encode_continued(text, true).1;
                reader.tokens(&tokenizer, ImageText::Plain(text), &shown)?
            }
            PromptContent::Messages(messages) => {
                let tokenizer = tokenizer()?;
                let template = model.loaded().chat_template()?;
                let prompt = template.render_prompt(&tokenizer, messages, &answered())?;
                let mut tokens = reader.tokens(&tokenizer, ImageText::Chat(&prompt), &shown)?;
                tokens.extend(opening(&template, &tokenizer, &prompt));
                tokens
            }
            PromptContent::Tokens(tokens) => {
                let n_rows = shown.iter().flat_map(|pixels| reader.n_rows(pixels));
                let n_rows: Vec<usize> = n_rows.collect();
                expand(tokens, reader.encoder().placeholder(), &n_rows)?
            }
        };
        Ok(PromptTokens {
            tokens,
            pixels,
            read: None,
            warning,
        })
    }

    fn without_images(model: &Model, content: PromptContent) -> Result<PromptTokens> {
        let tokenizer = || model.loaded().tokenizer();
        let (tokens, warning) = match content {
            PromptContent::Text(text) => tokenizer()?.encode_continued(&text, true),
            PromptContent::Messages(messages) => {
                let tokenizer = tokenizer()?;
                let template = model.loaded().chat_template()?;
                let prompt = template.render_prompt(&tokenizer, &messages, &answered())?;
                let mut tokens = tokenizer.encode_prompt(&prompt);
                tokens.extend(opening(&template, &tokenizer, &prompt));
                (tokens, None)
            }
            PromptContent::Tokens(tokens) => (tokens, None),
        };
        Ok(PromptTokens {
            tokens,
            pixels: Vec::new(),
            read: None,
            warning,
        })
    }

    /// The tokens. Placeholders stand for an image's rows until it is encoded.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The vision encoder's input for each image.
    pub fn pixels(&self) -> &[Pixels] {
        &self.pixels
    }

    /// Result of encoding the images; `None` before that, and without images.
    pub fn images_read(&self) -> Option<&ImageReading> {
        self.read.as_ref()
    }

    /// A warning about the text for the caller.
    pub fn warning(&self) -> Option<&Warning> {
        self.warning.as_ref()
    }
}

/// Options for a prompt that ends where the model's answer begins.
pub(crate) fn answered() -> RenderOptions {
    RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    }
}

/// The tokens to append to a prompt before an answer that is a text. No function is offered here, so every answer is
/// a text.
pub(crate) fn opening(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    prompt: &RenderedPrompt,
) -> Vec<u32> {
    let opening = template.text_opening(tokenizer, prompt.text());
    opening.map_or_else(Vec::new, |opening| opening.tokens)
}

/// Replaces the model's own placeholder, one for each image, by one placeholder for each row; `n_rows` has the number
/// of rows of each image. Tokens that already have one for each row keep their number.
fn expand(tokens: &[u32], placeholder: u32, n_rows: &[usize]) -> Result<Vec<u32>> {
    let n_found = tokens.iter().filter(|token| **token == placeholder).count();
    let (n_images, n_all) = (n_rows.len(), n_rows.iter().sum());
    if n_found != n_images && n_found != n_all {
        return Err(Error::Placeholders {
            n_found,
            placeholder,
            n_images,
            n_rows: n_all,
        });
    }
    let is_short = n_found == n_images;
    let mut left = n_rows.iter().copied();
    let mut out = Vec::with_capacity(tokens.len() + n_all);
    for token in tokens {
        match *token == placeholder {
            true => {
                let n = left.next().filter(|_| is_short).unwrap_or(1);
                out.resize(out.len() + n, image::PLACEHOLDER);
            }
            false => out.push(*token),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_stand_for_images_or_for_their_rows() {
        const P: u32 = image::PLACEHOLDER;
        for (tokens, expected) in [
            (&[1, 9, 2, 9][..], &[1, P, P, 2, P, P, P][..]),
            (&[9, 9, 9, 9, 9], &[P, P, P, P, P]),
        ] {
            assert_eq!(expand(tokens, 9, &[2, 3]).expect("as many"), expected);
        }
        for tokens in [&[1, 2][..], &[9], &[9, 9, 9]] {
            let error = expand(tokens, 9, &[2, 3]).expect_err("other numbers");
            assert!(matches!(error, Error::Placeholders { n_images: 2, .. }));
        }
    }
}
