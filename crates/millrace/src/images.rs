//! The images of a conversation: each is decoded and encoded once, however often its message is rendered again.

use crate::{Error, Event, Model, Options, Result, Session};
use millrace_runtime::vision::image::RgbImage;
use millrace_runtime::vision::{ImageText, Pixels};
use millrace_runtime::{Image, image};
use millrace_text::{RenderedPrompt, Tokenizer};
use std::collections::HashMap;
use std::sync::Arc;

/// Images by their names.
#[derive(Debug, Default)]
pub(crate) struct ChatImages(HashMap<String, ChatImage>);

/// An image, and the encoder's output for it and its crops; empty until a prompt uses it.
#[derive(Debug)]
struct ChatImage {
    pixels: Pixels,
    seen: Vec<Arc<Image>>,
}

impl ChatImages {
    /// Adds an image under a name, which must not name another image.
    pub(crate) fn add(&mut self, model: &Model, name: &str, image: &RgbImage) -> Result<()> {
        let pixels = model.image_reader()?.pixels(image)?;
        match self.0.get(name) {
            Some(known) if known.pixels.all() != pixels.all() => Err(Error::OtherImage {
                name: name.to_owned(),
            }),
            Some(_) => Ok(()),
            None => {
                let seen = Vec::new();
                self.0.insert(name.to_owned(), ChatImage { pixels, seen });
                Ok(())
            }
        }
    }

    /// Tokens of a prompt with the images of these names, with placeholders for their rows.
    pub(crate) fn tokens(
        &self,
        model: &Model,
        tokenizer: &Tokenizer,
        prompt: &RenderedPrompt,
        names: &[String],
    ) -> Result<Vec<u32>> {
        if names.is_empty() {
            return Ok(tokenizer.encode_prompt(prompt));
        }
        let pixels: Vec<&Pixels> = names.iter().map(|name| &self.0[name].pixels).collect();
        let reader = model.image_reader()?;
        Ok(reader.tokens(tokenizer, ImageText::Chat(prompt), &pixels)?)
    }

    /// Places the images of these names at their placeholders, running the vision encoder over new ones.
    pub(crate) fn place(
        &mut self,
        session: &Session,
        tokens: &mut [u32],
        names: &[String],
        options: &Options,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<Arc<Image>>> {
        let mut all = Vec::new();
        for name in names {
            let shown = self.0.get_mut(name);
            let shown = shown.expect("an image is added before its name is");
            if shown.seen.is_empty() {
                let reader = session.model().image_reader()?;
                let encoded = session.encode(&reader, &[&shown.pixels], options, on_event)?;
                shown.seen = encoded.into_iter().map(|encoded| encoded.image).collect();
            }
            all.extend(shown.seen.iter().cloned());
        }
        image::place(tokens, &all)?;
        Ok(all)
    }
}
