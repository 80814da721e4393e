//! Images in prompts: the marks around them, and a place for each of their rows.

use millrace_text::{IMAGE_TOKEN, RenderedPrompt, Tokenizer};

use super::VisionEncoder;
use crate::Error;
use crate::image::PLACEHOLDER;
use millrace_model::vision::{ImageMarks, RowsAt};

/// Convention for putting images into prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageStyle {
    /// transformers' processor: an image that becomes a square is stretched, with two line ends before and after it for Gemma 3.
    #[default]
    Transformers,
    /// llama.cpp: no line ends, and images that become a square are centred on black.
    LlamaCpp,
}

/// A prompt in which images are to have places.
#[derive(Clone, Copy, Debug)]
pub enum ImageText<'a> {
    /// A rendered conversation.
    Chat(&'a RenderedPrompt),
    /// A text to continue, with the tokens that begin every text.
    Plain(&'a str),
}

impl VisionEncoder {
    /// The token that templates write, and that a text may hold, where an image belongs.
    pub fn place_token(&self) -> &'static str {
        self.config().marks().place
    }

    /// Whether a text has places for images.
    pub fn has_places(&self, text: &str) -> bool {
        text.contains(self.place_token()) || text.contains(IMAGE_TOKEN)
    }

    /// Tokens of a prompt with images. `n_rows` has, for each image, the rows of the whole and of each crop. Each
    /// [`place_token`](VisionEncoder::place_token) in the prompt becomes the image's rows as [`PLACEHOLDER`]s with their marks
    /// around them. A conversation cannot write that token, only its template can.
    ///
    /// # Errors
    /// [`Error::BadImage`] if the prompt does not have as many places as images, or the vocabulary
    /// lacks their tokens.
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: ImageText<'_>,
        n_rows: &[Vec<usize>],
        style: ImageStyle,
    ) -> Result<Vec<u32>, Error> {
        let marks = self.config().marks();
        let places = PlaceIds::of(marks, tokenizer)?;
        let with = |i: usize| match n_rows.get(i) {
            Some(rows) => around(marks, rows.len().saturating_sub(1), style),
            None => String::new(),
        };
        let placed = |prompt: &RenderedPrompt| {
            // The mark in contents if a template has no parts.
            let (prompt, _) = prompt.replaced(IMAGE_TOKEN, &|_| marks.alone.to_owned());
            prompt.replaced(marks.place, &with)
        };
        let (tokens, n_found) = match text {
            ImageText::Chat(prompt) => {
                let (prompt, n_found) = placed(prompt);
                (tokenizer.encode_prompt(&prompt), n_found)
            }
            ImageText::Plain(text) => {
                let (prompt, n_found) = placed(&RenderedPrompt::from(text));
                let (tokens, _) = tokenizer.encode_continued(prompt.text(), true);
                (tokens, n_found)
            }
        };
        let (place, n) = (marks.place, n_rows.len());
        if n_found != n {
            return Err(Error::BadImage {
                reason: match text {
                    ImageText::Chat(_) => format!(
                        "the chat template made places for {n_found} of {n} images; it is not one \
                         for images"
                    ),
                    ImageText::Plain(_) => format!(
                        "the prompt has {n_found} places {place} for {n} images; write one for each"
                    ),
                },
            });
        }
        let n_rows: Vec<usize> = n_rows.iter().flatten().copied().collect();
        places.with_rows(&tokens, &n_rows)
    }
}

/// The text in the place of an image and its crops, without their rows.
fn around(marks: &ImageMarks, n_crops: usize, style: ImageStyle) -> String {
    let line_ends = match style {
        ImageStyle::Transformers => marks.around,
        ImageStyle::LlamaCpp => "",
    };
    let (begin, end) = match marks.rows {
        RowsAt::Before(end) => ("", end),
        RowsAt::Place { begin, end } => (begin, end),
    };
    let one = format!("{line_ends}{begin}{}{end}{line_ends}", marks.place);
    if n_crops == 0 {
        return one;
    }
    let crops = vec![one.as_str(); n_crops].join(" ");
    format!(
        "Here is the original image {one} and here are some crops to help you see better {crops}"
    )
}

/// Tokens that tell where rows go.
struct PlaceIds {
    place: u32,
    /// The token after the rows; without one the rows replace the place.
    end: Option<u32>,
}

impl PlaceIds {
    fn of(marks: &ImageMarks, tokenizer: &Tokenizer) -> Result<PlaceIds, Error> {
        let id_of = |token: &str| {
            tokenizer.id_of(token).ok_or_else(|| Error::BadImage {
                reason: format!("the vocabulary has no {token}"),
            })
        };
        Ok(PlaceIds {
            place: id_of(marks.place)?,
            end: match marks.rows {
                RowsAt::Before(end) => Some(id_of(end)?),
                RowsAt::Place { .. } => None,
            },
        })
    }

    /// The tokens with `n_rows[i]` placeholders at the `i`-th place.
    fn with_rows(&self, tokens: &[u32], n_rows: &[usize]) -> Result<Vec<u32>, Error> {
        let mut out = Vec::with_capacity(tokens.len() + n_rows.iter().sum::<usize>());
        let mut left = n_rows.iter();
        for (i, token) in tokens.iter().enumerate() {
            let is_place =
                *token == self.place && self.end.is_none_or(|end| tokens.get(i + 1) == Some(&end));
            if !is_place || self.end.is_some() {
                out.push(*token);
            }
            if is_place {
                let n = left.next().ok_or_else(|| Error::BadImage {
                    reason: format!("the prompt has more than {} places for them", n_rows.len()),
                })?;
                out.resize(out.len() + n, PLACEHOLDER);
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test may panic.
mod tests {
    use super::*;

    #[test]
    fn rows_go_before_the_end_or_in_the_stead_of_the_place() {
        const P: u32 = PLACEHOLDER;
        let between = PlaceIds {
            place: 8,
            end: Some(9),
        };
        // A place without its end is an ordinary token.
        let tokens = [1, 8, 9, 8, 2, 8, 9];
        let found = between.with_rows(&tokens, &[2, 1]).unwrap();
        assert_eq!(found, [1, 8, P, P, 9, 8, 2, 8, P, 9]);
        let instead = PlaceIds {
            place: 8,
            end: None,
        };
        let found = instead.with_rows(&[1, 8, 2, 8], &[2, 1]).unwrap();
        assert_eq!(found, [1, P, P, 2, P]);
        instead.with_rows(&[8, 8], &[1]).unwrap_err();
    }
}
