//! Images on the command line for models that accept any size.
#![allow(clippy::unwrap_used)] // A test may panic.

use crate::run::{BAD_INPUT, OK, USAGE, finish, millrace, shell};
use millrace_format::Checkpoint;
use millrace_testkit::vision::{PLACEHOLDER, VisionGolden, image};
use tempfile::{TempDir, tempdir};

/// A home with the folder `m`: a golden's model with a text part, and its vision encoder as llama.cpp's converter
/// writes it.
fn home(name: &'static str) -> TempDir {
    let home = tempdir().unwrap();
    let golden = VisionGolden::named(name);
    let folder = home.path().join("m");
    std::fs::create_dir(&folder).unwrap();
    golden.copy_with_chat(&folder);
    std::fs::copy(golden.mmproj(), home.path().join("mmproj.gguf")).unwrap();
    home
}

fn numbers(file: &Checkpoint, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).unwrap_or_else(|| panic!("{name}"));
    let (numbers, _) = tensor.bytes.as_chunks::<4>();
    numbers
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

/// Logits and the other tensors that `logits` writes for the model with images.
fn logits(home: &TempDir, model: &str, tokens: &[u32], images: &[&str]) -> Checkpoint {
    let tokens: Vec<String> = tokens.iter().map(u32::to_string).collect();
    let out = home.path().join(format!("{model}.out"));
    let mut command = millrace(home.path());
    command.args(["logits", model, "--all", "--kv-type", "f32", "--tokens"]);
    command.arg(tokens.join(",")).arg("--out").arg(&out);
    for name in images {
        command.arg("--image").arg(image(name));
    }
    finish(&mut command).expect(OK);
    Checkpoint::open(&out).unwrap()
}

fn assert_near(found: &Checkpoint, expected: &Checkpoint, name: &str) {
    let shape = |file: &Checkpoint| file.tensor(name).unwrap().info.shape.clone();
    assert_eq!(shape(found), shape(expected), "{name}");
    let (found, expected) = (numbers(found, name), numbers(expected, name));
    let range = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() <= 1e-4 * range, "{name}");
    }
}

#[test]
fn logits_are_those_of_transformers() {
    for golden in VisionGolden::on_grids() {
        let home = home(golden.name);
        let mut tokens = golden.expected().tokens;
        tokens.dedup_by(|a, b| *a == PLACEHOLDER && *b == PLACEHOLDER);
        let found = logits(&home, "m", &tokens, golden.image_files());
        let expected = Checkpoint::open(&golden.hf().join("expected.safetensors")).unwrap();
        let parts = ["pixel_values", "encoder", "projected"];
        let images = 0..golden.image_files().len();
        let images = images.flat_map(|i| parts.map(|part| format!("image.{i}.{part}")));
        for name in images.chain(["logits".to_owned()]) {
            assert_near(&found, &expected, &name);
        }
    }
}

/// The text model in a GGUF file written here, with its vision encoder in a file of llama.cpp's converter beside it, matches the folder.
#[test]
fn folders_and_gguf_files_with_encoders_agree() {
    for golden in VisionGolden::on_grids() {
        let home = home(golden.name);
        let quantize = ["quantize", "m", "m.gguf", "F32"];
        finish(millrace(home.path()).args(quantize)).expect(OK);
        // Limits as in files of that kind.
        let path = home.path().join("m/preprocessor_config.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        match golden.has_places() {
            true => {
                let size = serde_json::json!({"shortest_edge": 8 * 64, "longest_edge": 4096 * 64});
                config["size"] = size;
            }
            false => _ = config.as_object_mut().unwrap().remove("max_soft_tokens"),
        }
        std::fs::write(&path, config.to_string()).unwrap();
        let tokens = [1, 2, 260, PLACEHOLDER, 261, 260, PLACEHOLDER, 261, 5, 6];
        let [folder, gguf] =
            ["m", "m.gguf"].map(|model| logits(&home, model, &tokens, &["tall.png", "small.png"]));
        for name in ["image.0.encoder", "image.1.projected", "logits"] {
            assert_near(&gguf, &folder, name);
        }
    }
}

#[test]
fn models_are_asked_and_tell_what_they_take() {
    let home = home("qwen3vl-vision");
    let image = |name: &str| image(name).display().to_string();
    let run = |text: &str, name: &str, more: &[&str]| {
        let mut command = millrace(home.path());
        let image = image(name);
        command.args(["run", "m", text, "--image", &image, "-n", "3", "--greedy"]);
        finish(command.args(more))
    };
    let told = |name: &str| {
        let done = run("What?", name, &["-v"]).expect(OK);
        done.stderr
    };
    assert!(told("wide.png").contains("15 tokens"));
    assert!(told("small.png").contains("6 tokens"));
    // A text with a place for the image is continued.
    for text in [
        "A <|vision_start|><|image_pad|><|vision_end|> is",
        "A <start_of_image> is",
    ] {
        run(text, "wide.png", &[]).expect(OK);
    }
    let twice = "<|image_pad|><|image_pad|>";
    run(twice, "wide.png", &[]).expect_error(USAGE, &["2 places <|image_pad|>", "1 images"]);
    run("?", "wide.png", &["--pan-and-scan"]).expect_error(USAGE, &["pan-and-scan", "qwen3vl"]);
    for device in ["xdna2", "tcp", "rk3588"] {
        let refused = run("?", "wide.png", &["--device", device]);
        refused.expect_error(USAGE, &["images"]);
    }
    let info = |model: &str| {
        finish(millrace(home.path()).args(["info", model]))
            .expect(OK)
            .stdout
    };
    let taken = "each 8 × 8 pixels of an image become a token";
    assert!(info("m").contains(taken));
    assert!(
        info("mmproj.gguf").contains(taken),
        "{}",
        info("mmproj.gguf")
    );
}

/// The tokens around an image and between its lines are added, in messages and in texts.
#[test]
fn names_around_images_are_written_for_them() {
    for (name, place, n_rows, n_pixels) in [
        ("gemma4-vision", "<|image|>", 18, 12),
        ("mistral3-vision", "[IMG]", 27, 8),
    ] {
        let home = home(name);
        let run = |text: &str, more: &[&str]| {
            let image = image("wide.png").display().to_string();
            let mut command = millrace(home.path());
            command.args(["run", "m", text, "--image", &image, "-n", "3", "--greedy"]);
            finish(command.args(more))
        };
        let done = run("What?", &["-v"]).expect(OK);
        let told = format!("{n_rows} tokens");
        assert!(done.stderr.contains(&told), "{}", done.stderr);
        // Another family's name is plain text.
        run("A <|image_pad|> is", &[]).expect(OK);
        for text in [
            format!("A {place} is"),
            format!("A {place}"),
            "A <start_of_image> is".into(),
        ] {
            run(&text, &[]).expect(OK);
        }
        let twice = format!("{place}{place}");
        run(&twice, &[]).expect_error(USAGE, &["2 places", place, "1 images"]);
        run("?", &["--pan-and-scan"]).expect_error(USAGE, &["pan-and-scan"]);
        for device in ["xdna2", "tcp", "rk3588"] {
            run("?", &["--device", device]).expect_error(USAGE, &["images"]);
        }
        let info = finish(millrace(home.path()).args(["info", "mmproj.gguf"])).expect(OK);
        let taken = format!("each {n_pixels} × {n_pixels} pixels of an image become a token");
        assert!(info.stdout.contains(&taken), "{}", info.stdout);
    }
}

#[test]
fn conversations_show_images_of_any_size() {
    for name in ["qwen35-vision", "gemma4-vision", "mistral3-vision"] {
        let home = home(name);
        let script = format!(
            "printf '/image {}\\nWhat?\\n/image {}\\nAnd this?\\nWhy?\\n' | $MILLRACE chat m --greedy -n 3",
            image("wide.png").display(),
            image("tall.png").display()
        );
        let done = finish(&mut shell(home.path(), &script)).expect(OK);
        assert!(done.stderr.contains("61 × 143 pixels"), "{}", done.stderr);
    }
}

#[test]
fn another_models_encoder_is_refused_by_name() {
    let home = home("qwen3vl-vision");
    let others = [
        "qwen2vl-vision",
        "qwen2_5vl-vision",
        "gemma3-vision",
        "gemma4-vision",
        "pixtral-vision",
    ];
    for other in others {
        let encoder = VisionGolden::named(other).mmproj().display().to_string();
        let image = image("wide.png").display().to_string();
        let mut command = millrace(home.path());
        command.args([
            "run", "m", "?", "-n", "1", "--image", &image, "--mmproj", &encoder,
        ]);
        finish(&mut command).expect_error(BAD_INPUT, &["another model's", "qwen3vl"]);
    }
}
