//! Images for a prompt: the options, the files, and the progress display.

use crate::exit::CommandResult;
use crate::output::Ui;
use crate::progress::ProgressDisplay;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use millrace::{Event, ImageStyle, OpenOptions, RgbImage, read_image};
use std::path::PathBuf;

/// Options for reading images, wherever they come from.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Images")]
pub(crate) struct VisionArgs {
    /// File with the vision encoder of a GGUF model [default: the mmproj file beside it]
    #[arg(long, value_name = "FILE.gguf", value_hint = clap::ValueHint::FilePath)]
    pub(crate) mmproj: Option<PathBuf>,
    /// Preparation of images: transformers stretches them and puts line ends around them, llama.cpp
    /// centres them on black
    #[arg(long, value_name = "STYLE", default_value = "transformers", value_parser = style_parser())]
    pub(crate) image_style: ImageStyle,
    /// Also read long images in up to four parts
    #[arg(long)]
    pub(crate) pan_and_scan: bool,
}

fn style_parser() -> impl TypedValueParser<Value = ImageStyle> {
    PossibleValuesParser::new(["transformers", "llama.cpp"]).map(|name| match name.as_str() {
        "llama.cpp" => ImageStyle::LlamaCpp,
        _ => ImageStyle::Transformers,
    })
}

impl VisionArgs {
    /// The same options, for the library.
    pub(crate) fn options(&self) -> OpenOptions {
        let options = OpenOptions::new()
            .image_style(self.image_style)
            .pan_and_scan(self.pan_and_scan);
        match &self.mmproj {
            Some(file) => options.mmproj(file),
            None => options,
        }
    }
}

/// Reads and decodes image files.
pub(crate) fn read_images(paths: &[PathBuf]) -> CommandResult<Vec<RgbImage>> {
    let images = paths.iter().map(|path| Ok(read_image(path)?));
    images.collect()
}

/// Progress display while images are read; the next event of another kind removes it.
pub(crate) struct ImageBar {
    ui: Ui,
    bar: Option<ProgressDisplay>,
}

impl ImageBar {
    pub(crate) fn new(ui: Ui) -> ImageBar {
        ImageBar { ui, bar: None }
    }

    /// Shows events about images.
    pub(crate) fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::Detail(text) => self.ui.detail(text),
            Event::Images { done, total } => {
                let bar = self.bar.get_or_insert_with(|| {
                    let bar = ProgressDisplay::steps(self.ui, *total as u64);
                    bar.message("reading images");
                    bar
                });
                bar.set(*done as u64);
            }
            _ => self.bar = None,
        }
    }
}
