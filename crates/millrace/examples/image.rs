//! A question about an image, to a model with vision. None is built in, so this example makes one with random
//! weights. It tells red from blue, and has nothing sensible to say.
//!
//! `cargo run -p millrace-llm --example image`

use millrace::{Model, Options, Prompt, RgbImage, Session};
use millrace_model::recipe::Recipe;
use millrace_model::synth::{ModelGeometry, SynthOptions, write};
use std::ops::ControlFlow;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("gemma");
    make_model(&file)?;

    let session = Model::open(&file.display().to_string())?.on("cpu")?;
    let options = Options::greedy().max_tokens(8);
    let red = session.generate_with(about([255, 0, 0]), &options)?;
    println!("{red}");
    if red.tokens.len() != 8 {
        return Err("eight tokens were expected".into());
    }

    // Logits of the last token, after the image.
    let row = |rgb| last_row(&session, rgb);
    let (first, again, other) = (row([255, 0, 0])?, row([255, 0, 0])?, row([0, 0, 255])?);
    if first != again || first == other {
        return Err("equal images were expected to give equal logits, others not".into());
    }
    println!("the model tells red from blue");
    Ok(())
}

/// A question about an image of one colour. `image_file` reads one from a file.
fn about(rgb: [u8; 3]) -> Prompt {
    let image = RgbImage::new(32, 24, rgb.repeat(32 * 24));
    Prompt::user("What is this?").image(image)
}

fn last_row(session: &Session, rgb: [u8; 3]) -> Result<Vec<f32>, millrace::Error> {
    let logits = session.logits(about(rgb))?;
    Ok(logits.rows().next_back().unwrap_or_default().to_vec())
}

fn make_model(file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let geometry = ModelGeometry::named("gemma-tiny").ok_or("a geometry of that name")?;
    let options = SynthOptions {
        recipe: Recipe::parse("F32").ok_or("a format of that name")?,
        vocab: None,
        vision: true,
        n_layers: Some(2),
        seed: 1,
        n_threads: None,
    };
    write(geometry, file, &options, &mut |_, _| {
        ControlFlow::Continue(())
    })?;
    Ok(())
}
