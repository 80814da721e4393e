//! Pictures in prompts: what stands around them, and a place for each of their rows.

use millrace_text::{RenderedPrompt, Tokenizer};

use super::VisionTower;
use crate::Error;
use crate::image::PLACEHOLDER;

/// The token before the rows of a picture. It alone is what templates write, and what a prompt may
/// hold, where a picture belongs.
pub const IMAGE_TOKEN: &str = millrace_text::IMAGE_TOKEN;

/// The token after them.
const END: &str = "<end_of_image>";

/// Whose way of putting pictures into prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageStyle {
    /// transformers' processor: two line ends before and after each picture, which is stretched.
    #[default]
    Transformers,
    /// llama.cpp: no line ends, and pictures that are no square are centred on black.
    LlamaCpp,
}

/// A prompt in which pictures are to have places.
#[derive(Clone, Copy, Debug)]
pub enum ImageText<'a> {
    /// A rendered conversation.
    Chat(&'a RenderedPrompt),
    /// A text to continue, with the tokens that begin every text.
    Plain(&'a str),
}

impl VisionTower {
    /// Tokens of a prompt with `n_crops.len()` pictures, each with so many crops besides: where the
    /// prompt has `<start_of_image>`, the picture's rows as [`PLACEHOLDER`]s with what belongs around
    /// them. A conversation cannot write that token, only its template.
    ///
    /// # Errors
    /// [`Error::BadImage`] if the prompt has not as many places as there are pictures, or the
    /// vocabulary no tokens for them.
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: ImageText<'_>,
        n_crops: &[usize],
        style: ImageStyle,
    ) -> Result<Vec<u32>, Error> {
        let (Some(begin), Some(end)) = (tokenizer.id_of(IMAGE_TOKEN), tokenizer.id_of(END)) else {
            let reason = format!("the vocabulary has no {IMAGE_TOKEN} and {END}");
            return Err(Error::BadImage { reason });
        };
        let with = |i: usize| n_crops.get(i).map_or(String::new(), |n| around(*n, style));
        let (tokens, n_found) = match text {
            ImageText::Chat(prompt) => {
                let (prompt, n_found) = prompt.replaced(IMAGE_TOKEN, &with);
                (tokenizer.encode_prompt(&prompt), n_found)
            }
            ImageText::Plain(text) => {
                let (prompt, n_found) = RenderedPrompt::from(text).replaced(IMAGE_TOKEN, &with);
                let (tokens, _) = tokenizer.encode_continued(prompt.text(), true);
                (tokens, n_found)
            }
        };
        if n_found != n_crops.len() {
            let n = n_crops.len();
            return Err(Error::BadImage {
                reason: match text {
                    ImageText::Chat(_) => format!(
                        "the chat template made places for {n_found} of {n} images; it is not one \
                         for images"
                    ),
                    ImageText::Plain(_) => format!(
                        "the prompt has {n_found} places {IMAGE_TOKEN} for {n} images; write one for each"
                    ),
                },
            });
        }
        Ok(with_rows(&tokens, begin, end, self.config().n_tokens))
    }
}

/// The text in the place of a picture and its crops, without their rows.
fn around(n_crops: usize, style: ImageStyle) -> String {
    let one = match style {
        ImageStyle::Transformers => format!("\n\n{IMAGE_TOKEN}{END}\n\n"),
        ImageStyle::LlamaCpp => format!("{IMAGE_TOKEN}{END}"),
    };
    if n_crops == 0 {
        return one;
    }
    let crops = vec![one.as_str(); n_crops].join(" ");
    format!(
        "Here is the original image {one} and here are some crops to help you see better {crops}"
    )
}

/// Placeholders between each beginning and its end.
fn with_rows(tokens: &[u32], begin: u32, end: u32, n_rows: usize) -> Vec<u32> {
    let mut out = Vec::with_capacity(tokens.len());
    for (i, token) in tokens.iter().enumerate() {
        out.push(*token);
        if *token == begin && tokens.get(i + 1) == Some(&end) {
            out.resize(out.len() + n_rows, PLACEHOLDER);
        }
    }
    out
}
