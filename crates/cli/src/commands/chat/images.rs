//! The images of a conversation: each is decoded once and seen once, however often its message is
//! rendered again.

use crate::exit::{Failure, Outcome};
use crate::image_args::{Pixels, Vision, VisionArgs, read_picture};
use crate::output::Ui;
use millrace_runtime::vision::ImageText;
use millrace_runtime::{Engine, Image};
use millrace_text::{Prompt, Tokenizer};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Images by the names of their files.
pub(super) struct Images {
    args: VisionArgs,
    /// Opened with the first image.
    vision: Option<Vision>,
    known: HashMap<String, Known>,
}

/// An image, and what the tower made of it and its crops; nothing yet if it was not asked about.
struct Known {
    pixels: Pixels,
    seen: Vec<Arc<Image>>,
}

impl Images {
    pub(super) fn new(args: &VisionArgs) -> Images {
        Images {
            args: args.clone(),
            vision: None,
            known: HashMap::new(),
        }
    }

    /// Reads an image's file; returns its name and its size in words.
    pub(super) fn read(&mut self, engine: &dyn Engine, path: &Path) -> Outcome<(String, String)> {
        let picture = read_picture(path)?;
        let vision = match self.vision.take() {
            Some(vision) => vision,
            None => Vision::open(engine.model(), &self.args)?,
        };
        let pixels = self.vision.insert(vision).pixels(&picture);
        let name = path.display().to_string();
        match self.known.get(&name) {
            Some(known) if known.pixels.all() != pixels.all() => {
                let what = format!("{name} is another image than the one shown under that name");
                return Err(Failure::usage(what).hint("give the new one a name of its own"));
            }
            Some(_) => {}
            None => {
                let seen = Vec::new();
                self.known.insert(name.clone(), Known { pixels, seen });
            }
        }
        let size = format!("{} × {} pixels", picture.width(), picture.height());
        Ok((name, size))
    }

    /// Tokens of a prompt with the images of these names in it, placeholders for their rows.
    pub(super) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        prompt: &Prompt,
        names: &[String],
    ) -> Outcome<Vec<u32>> {
        match &self.vision {
            Some(vision) if !names.is_empty() => {
                let n_crops = names.iter().map(|name| self.known[name].pixels.n_crops());
                let n_crops: Vec<usize> = n_crops.collect();
                vision.tokens(tokenizer, ImageText::Chat(prompt), &n_crops)
            }
            _ => Ok(tokenizer.encode_prompt(prompt)),
        }
    }

    /// Puts the images of these names into the places for them, running the tower over new ones.
    pub(super) fn place(
        &mut self,
        engine: &dyn Engine,
        tokens: &mut [u32],
        names: &[String],
        ui: Ui,
    ) -> Outcome<Vec<Arc<Image>>> {
        let mut all = Vec::new();
        for name in names {
            let known = self.known.get_mut(name);
            let known = known.expect("an image is read when it is named");
            if let (Some(vision), true) = (&self.vision, known.seen.is_empty()) {
                let encoded = vision.encode(engine, &[&known.pixels], ui)?;
                known.seen = encoded.into_iter().map(|encoded| encoded.image).collect();
            }
            all.extend(known.seen.iter().cloned());
        }
        millrace_runtime::image::place(tokens, &all)?;
        Ok(all)
    }
}
