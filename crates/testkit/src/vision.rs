//! The fixtures of `testdata/vision`: images, and tiny models with vision encoders
//! (`tools/make_vision_goldens.py`).

use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;
use serde_json::{Map, Value, json};

use crate::golden::{GoldenMatrix, GoldenValues, expected_of, to_rows};

/// Results of transformers for one image.
#[derive(Clone, Debug)]
pub struct ExpectedImage {
    /// Rows and columns of the image.
    pub height: usize,
    /// Pixels a row.
    pub width: usize,
    /// `[height, width, 3]`.
    pub rgb: Vec<u8>,
    /// `[3 · height, width]`, the vision encoder's input.
    pub pixel_values: GoldenMatrix,
    /// Output of the vision encoder: `[n_patches, d_model]`.
    pub encoder: GoldenMatrix,
    /// Input of the text model: `[n_tokens, d_text]`.
    pub projected: GoldenMatrix,
    /// By layer, the rows that the text model adds behind it: `[n_tokens, d_text]`.
    pub deepstack: Vec<GoldenMatrix>,
}

/// One model.
#[derive(Clone, Debug)]
pub struct VisionGolden {
    /// The folder's name.
    pub name: &'static str,
    dir: PathBuf,
}

/// The placeholder of a row in the fixtures' prompts.
pub const PLACEHOLDER: u32 = 262;

/// The token between the lines of an image, in the models that have one.
const BREAK: u32 = 12;

impl VisionGolden {
    /// Models that take squares.
    pub fn all() -> Vec<VisionGolden> {
        ["gemma3-vision", "gemma3-vision-small"]
            .map(VisionGolden::named)
            .to_vec()
    }

    /// Models that take images of any size.
    pub fn on_grids() -> Vec<VisionGolden> {
        let names = [
            "qwen3vl-vision",
            "qwen35-vision",
            "qwen2vl-vision",
            "qwen2_5vl-vision",
            "gemma4-vision",
            "gemma4-vision-small",
            "mistral3-vision",
            "pixtral-vision",
        ];
        names.map(VisionGolden::named).to_vec()
    }

    /// The model of that name.
    pub fn named(name: &'static str) -> VisionGolden {
        VisionGolden {
            name,
            dir: root().join(name),
        }
    }

    /// The Hugging Face folder.
    pub fn hf(&self) -> &Path {
        &self.dir
    }

    /// The vision encoder as llama.cpp's converter writes it.
    pub fn mmproj(&self) -> PathBuf {
        self.dir.join("mmproj.gguf")
    }

    /// Files of the images in a prompt of a model on grids, in order.
    pub fn image_files(&self) -> &'static [&'static str] {
        match self.name {
            "qwen3vl-vision" | "gemma4-vision" | "mistral3-vision" => {
                &["wide.png", "small.png", "tall.png"]
            }
            "qwen35-vision" | "pixtral-vision" => &["tall.png", "as-tall.png"],
            "gemma4-vision-small" => &["tall.png", "square.png"],
            "qwen2vl-vision" => &["square.png", "small.png", "wide.png"],
            "qwen2_5vl-vision" => &["wide.png", "tall.png"],
            _ => &[],
        }
    }

    /// Tokens with placeholders, logits and hidden states. The token between the lines of a Mistral image is one of the image's
    /// rows.
    pub fn expected(&self) -> GoldenValues {
        let mut expected = expected_of(&self.dir);
        if self.names().2.is_some() {
            let tokens = &mut expected.tokens;
            for i in 1..tokens.len().saturating_sub(1) {
                if [tokens[i - 1], tokens[i], tokens[i + 1]] == [PLACEHOLDER, BREAK, PLACEHOLDER] {
                    tokens[i] = PLACEHOLDER;
                }
            }
        }
        expected
    }

    /// Whether rows of its images have positions of rows and columns in the text model.
    pub fn has_places(&self) -> bool {
        self.name.starts_with("qwen")
    }

    /// Names in its vocabulary of the tokens before an image's rows, behind them and between their lines, and of a row.
    fn names(
        &self,
    ) -> (
        &'static str,
        &'static str,
        Option<&'static str>,
        &'static str,
    ) {
        match self.name {
            "gemma4-vision" | "gemma4-vision-small" => ("<|image>", "<image|>", None, "<|image|>"),
            "mistral3-vision" | "pixtral-vision" => {
                ("<|unused2|>", "[IMG_END]", Some("[IMG_BREAK]"), "[IMG]")
            }
            _ => ("<|vision_start|>", "<|vision_end|>", None, "<|image_pad|>"),
        }
    }

    /// The images of the prompt, in order.
    pub fn images(&self) -> Vec<ExpectedImage> {
        let path = self.dir.join("expected.safetensors");
        let file = Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let image = |i: usize| {
            let tensor = |part: &str| file.tensor(&format!("image.{i}.{part}"));
            let rows = |part: &str| to_rows(&tensor(part).expect("a part of every image"));
            let image = tensor("image")?;
            Some(ExpectedImage {
                height: image.info.shape[0],
                width: image.info.shape[1],
                rgb: image.bytes.to_vec(),
                pixel_values: rows("pixel_values"),
                encoder: rows("encoder"),
                projected: rows("projected"),
                deepstack: (0..)
                    .map_while(|k| Some(to_rows(&tensor(&format!("deepstack.{k}"))?)))
                    .collect(),
            })
        };
        let images: Vec<ExpectedImage> = (0..).map_while(image).collect();
        assert!(!images.is_empty(), "{} has no image", path.display());
        images
    }
}

/// An image file of the fixtures.
pub fn image(name: &str) -> PathBuf {
    root().join("images").join(name)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vision")
}

impl VisionGolden {
    /// A copy of the folder of a model on grids, with the parts that frontends need besides: a tokenizer of bytes and a
    /// chat template.
    pub fn copy_with_chat(&self, to: &Path) {
        for name in [
            "config.json",
            "model.safetensors",
            "preprocessor_config.json",
        ] {
            std::fs::copy(self.dir.join(name), to.join(name)).unwrap_or_else(|e| panic!("{e}"));
        }
        let write = |name: &str, text: &str| {
            std::fs::write(to.join(name), text).unwrap_or_else(|e| panic!("{e}"));
        };
        let (begin, end, _, row) = self.names();
        // Templates of Gemma 4 and Mistral write only an image's name, and it becomes all three.
        let place = match self.has_places() {
            true => format!("{begin}{row}{end}"),
            false => row.to_owned(),
        };
        write("tokenizer.json", &self.tokenizer().to_string());
        write(
            "chat_template.jinja",
            &CHAT_TEMPLATE.replace("IMAGE", &place),
        );
    }
}

/// Contents are lists of parts, as with the published models.
const CHAT_TEMPLATE: &str = "\
{%- for message in messages -%}
    {{- '<|im_start|>' ~ message.role ~ '\\n' -}}
    {%- if message.content is string -%}
        {{- message.content -}}
    {%- else -%}
        {%- for part in message.content -%}
            {{- 'IMAGE' if part.type == 'image' else part.text -}}
        {%- endfor -%}
    {%- endif -%}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
";

impl VisionGolden {
    /// The first id is that of byte 0; names for turns and images behind all bytes, where the models have them.
    fn tokenizer(&self) -> Value {
        // Bytes that are printed as themselves; the others take letters from 256 on (GPT-2, `bytes_to_unicode`).
        let is_plain = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..);
        let (begin, end, between, row) = self.names();
        let mut vocabulary = Map::new();
        let mut n_other = 0;
        for byte in 0..=u8::MAX {
            let letter = match is_plain(byte) {
                true => char::from(byte),
                false => {
                    n_other += 1;
                    char::from_u32(255 + n_other).unwrap_or_default()
                }
            };
            // The token between lines does not represent a byte.
            if between.is_none() || u32::from(byte) != BREAK {
                vocabulary.insert(letter.to_string(), byte.into());
            }
        }
        let names = [
            "<|endoftext|>",
            "<|im_start|>",
            "<|im_end|>",
            "<|unused|>",
            begin,
            end,
            row,
        ];
        let between = between.map(|name| (BREAK, name));
        let added = (256..).zip(names).chain(between);
        let added = added.map(|(id, name)| json!({"id": id, "content": name, "special": true}));
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true});
        json!({
            "version": "1.0",
            "added_tokens": added.collect::<Vec<_>>(),
            "pre_tokenizer": bytes,
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        })
    }
}
