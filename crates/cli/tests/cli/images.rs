//! Images on the command line: `run`, `chat` and `logits` with vision models, and refused input.
#![allow(clippy::unwrap_used)] // A test may panic.

use crate::run::{BAD_INPUT, NOT_FOUND, OK, USAGE, finish, millrace, shell};
use crate::serve::Server;
use millrace_format::Checkpoint;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

fn vision(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/vision")
        .join(name)
}

fn image(name: &str) -> PathBuf {
    vision("images").join(name)
}

/// A home with a random vision model: the folder `m`, and `g.gguf` with its mmproj file.
fn home() -> TempDir {
    let home = tempdir().unwrap();
    for (out, kind) in [("m", "F32"), ("g.gguf", "F32")] {
        let arguments = ["synth", "gemma-tiny", out, "--type", kind, "--vision"];
        finish(
            millrace(home.path())
                .args(arguments)
                .args(["--layers", "2"]),
        )
        .expect(OK);
    }
    home
}

fn numbers(file: &Checkpoint, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).unwrap_or_else(|| panic!("{name}"));
    let (numbers, _) = tensor.bytes.as_chunks::<4>();
    let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
    numbers.collect()
}

/// An image's rows pass through the device's products, and the result stays near the CPU's, whose own test compares
/// it with transformers. The tolerance covers rounding to bf16, or to 8 bits.
#[test]
fn every_device_sees_images() {
    let home = home();
    let logits = |device: &str| {
        let out = home.path().join("out.safetensors");
        finish(
            millrace(home.path())
                .args(["logits", "m", "--tokens", "2,260,262,261,17,30", "--all"])
                .args(["--device", device, "--image"])
                .arg(image("wide.png"))
                .arg("--out")
                .arg(&out),
        )
        .expect(OK);
        numbers(&Checkpoint::open(&out).unwrap(), "logits")
    };
    let expected = logits("cpu");
    let range = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    for (device, bound) in [("xdna2", 0.03), ("tcp", 0.03), ("rk3588", 0.08)] {
        let found = logits(device);
        assert_eq!(found.len(), expected.len(), "{device}");
        let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let worst = apart.fold(0.0_f32, f32::max) / range;
        assert!(worst > 0.0 && worst < bound, "{worst} on {device}");
    }
}

/// Published files of Gemma 3 have an image token whose id is the vocabulary's size: it has no row in the table, and
/// none is looked up. Logits are bit-identical to those with a token of the vocabulary in its place.
#[test]
fn an_image_token_may_lie_behind_the_vocabulary() {
    let home = home();
    let logits = |token: u32, expected: i32| {
        let out = home.path().join("out.safetensors");
        let tokens = format!("2,260,{token},261,17,30");
        finish(
            millrace(home.path())
                .args(["logits", "m", "--tokens", &tokens, "--all", "--image"])
                .arg(image("wide.png"))
                .arg("--out")
                .arg(&out),
        )
        .expect(expected);
        numbers(&Checkpoint::open(&out).unwrap(), "logits")
    };
    let expected = logits(262, OK);
    let edit = |name: &str, from: &str, to: &str| {
        let path = home.path().join("m").join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
    };
    edit(
        "config.json",
        "\"image_token_index\": 262",
        "\"image_token_index\": 512",
    );
    assert!(logits(512, OK) == expected);
    // The tokenizer's id may be there too.
    let last = "\"added_tokens\": [";
    let token = "\"added_tokens\": [{\"id\": 512, \"content\": \"<behind>\", \"special\": true}, ";
    edit("tokenizer.json", last, token);
    finish(
        millrace(home.path())
            .args(["run", "m", "-n", "1", "What is this?", "--image"])
            .arg(image("wide.png")),
    )
    .expect(OK);
    // Any other id beyond the vocabulary is refused, and so is this one without an image.
    let image = image("wide.png").display().to_string();
    for arguments in [
        &["--tokens", "2,260,513,261", "--image", &image][..],
        &["--tokens", "2,512"],
    ] {
        let mut run = millrace(home.path());
        run.args(["logits", "m", "--out", "x"]).args(arguments);
        let refused = finish(&mut run).expect(USAGE);
        assert!(refused.stderr.contains("not in the vocabulary"));
    }
}

#[test]
fn logits_are_those_of_transformers() {
    let home = tempdir().unwrap();
    let golden = millrace_testkit::vision::VisionGolden::all().remove(0);
    let expected = golden.expected();
    let placeholder = millrace_testkit::vision::PLACEHOLDER;
    // One placeholder per image, as users write it.
    let mut tokens = expected.tokens.clone();
    tokens.dedup_by(|a, b| *a == placeholder && *b == placeholder);
    let tokens: Vec<String> = tokens.iter().map(u32::to_string).collect();
    let out = home.path().join("out.safetensors");
    finish(
        millrace(home.path())
            .arg("logits")
            .arg(golden.hf())
            .args(["--tokens", &tokens.join(","), "--all", "--kv-type", "f32"])
            .arg("--image")
            .arg(image("wide.png"))
            .arg("--image")
            .arg(image("tall.png"))
            .arg("--out")
            .arg(&out),
    )
    .expect(OK);
    let file = Checkpoint::open(&out).unwrap();
    let reference = Checkpoint::open(&golden.hf().join("expected.safetensors")).unwrap();
    let parts = ["pixel_values", "encoder", "projected"];
    let images = (0..2).flat_map(|i| parts.map(|part| format!("image.{i}.{part}")));
    for name in images.chain(["logits".to_owned()]) {
        let (found, expected) = (numbers(&file, &name), numbers(&reference, &name));
        assert_eq!(found.len(), expected.len(), "{name}");
        let shape = |file: &Checkpoint| file.tensor(&name).unwrap().info.shape.clone();
        assert_eq!(shape(&file), shape(&reference), "{name}");
        let range = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() <= 1e-4 * range, "{name}");
        }
    }
}

#[test]
fn models_are_asked_about_images() {
    let home = home();
    let run = |model: &str, more: &[&str]| {
        let image = image("wide.png").display().to_string();
        let arguments = [
            "run",
            model,
            "What is this?",
            "--image",
            &image,
            "-n",
            "4",
            "--json",
        ];
        finish(
            millrace(home.path())
                .args(arguments)
                .arg("--greedy")
                .args(more),
        )
        .expect(OK)
        .json()
    };
    let folder = run("m", &[]);
    // A row for each placeholder, and the tokens around them.
    let n_prompt = folder["timings"]["prompt_tokens"].as_u64();
    assert!(n_prompt.is_none_or(|n| n > 16), "{folder}");
    assert!(folder["image_ms"].as_f64().unwrap() > 0.0, "{folder}");
    // The file has other weights. The vision encoder beside it is found, and is the same when named.
    let beside = run("g.gguf", &[]);
    let named = run("g.gguf", &["--mmproj", "mmproj-g.gguf"]);
    assert_eq!(beside["tokens"], named["tokens"]);
    let info = |model: &str| {
        finish(millrace(home.path()).args(["info", model]))
            .expect(OK)
            .stdout
    };
    assert!(info("m").contains("images of 112 × 112 pixels become 16 tokens"));
    assert!(info("mmproj-g.gguf").contains("--mmproj FILE"));
    for more in [
        &["--image-style", "llama.cpp"][..],
        &["--pan-and-scan"],
        &["--system", "Be brief."],
    ] {
        run("m", more);
    }
    // A text with a place for the image is continued.
    let plain = |text: &str| {
        let image = image("wide.png");
        let mut command = millrace(home.path());
        command
            .args(["run", "m", text, "-n", "2", "--greedy", "--image"])
            .arg(image);
        finish(&mut command)
    };
    plain("A <start_of_image> is").expect(OK);
    plain("<start_of_image><start_of_image>").expect_error(USAGE, &["2 places", "1 images"]);
}

#[test]
fn conversations_show_images() {
    let home = home();
    let (wide, tall) = (image("wide.png"), image("tall.png"));
    let script = format!(
        "printf '/image {}\\nWhat is it?\\n/image {}\\nAnd this?\\nWhy?\\n/save talk.json\\n/clear\\n/load talk.json\\nMore?\\n' \
         | $MILLRACE chat m --greedy -n 3",
        wide.display(),
        tall.display()
    );
    let done = finish(&mut shell(home.path(), &script)).expect(OK);
    assert!(done.stderr.contains("160 × 90 pixels"), "{}", done.stderr);
    assert!(done.stderr.contains("6 messages loaded"), "{}", done.stderr);
    // The conversation stays cached: the third message costs neither image again.
    let saved = std::fs::read_to_string(home.path().join("talk.json")).unwrap();
    assert!(
        saved.contains("wide.png") && saved.contains("tall.png"),
        "{saved}"
    );
    // A mistyped file name does not end a conversation.
    let script = "printf '/image nowhere.png\\nHello\\n' | $MILLRACE chat m --greedy -n 2";
    let done = finish(&mut shell(home.path(), script)).expect(OK);
    assert!(done.stderr.contains("nowhere.png"), "{}", done.stderr);
}

#[test]
fn served_models_see() {
    let home = home();
    let file = |name: &str| home.path().join(name).display().to_string();
    std::fs::rename(file("mmproj-g.gguf"), file("eyes.gguf")).unwrap();
    let bytes = std::fs::read(image("wide.png")).unwrap();
    let data = millrace_server::base64(&bytes);
    let body = serde_json::json!({"model": "eyes", "temperature": 0, "max_tokens": 4, "messages": [{
        "role": "user", "content": [
            {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}},
            {"type": "text", "text": "What is this?"}]}]});
    let (model, encoder) = (format!("eyes={}", file("g.gguf")), file("eyes.gguf"));
    let ask = |arguments: &[&str]| {
        let server = Server::start(home.path(), arguments);
        server.ask("POST", "/v1/chat/completions", "", &body.to_string())
    };
    let named = format!("eyes={encoder}");
    for mmproj in [&encoder, &named] {
        let answer = ask(&[&model, "--mmproj", mmproj, "-c", "256"]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // Both the vision encoder and the text model run on a device.
    let answer = ask(&[
        &model, "--mmproj", &encoder, "-c", "256", "--device", "xdna2",
    ]);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let blind = ask(&[&model, "-c", "256"]);
    assert!(
        blind.starts_with("HTTP/1.1 400") && blind.contains("--mmproj FILE"),
        "{blind}"
    );
    // A fault in a vision encoder is reported before anyone sends an image.
    let refused = |arguments: &[&str], words: &[&str]| {
        let mut command = millrace(home.path());
        command
            .args(["serve", "--port", "0", "--mmproj"])
            .args(arguments);
        finish(&mut command).expect_error(USAGE, words);
    };
    refused(&[&file("g.gguf"), &model], &["no vision encoder"]);
    refused(
        &[&encoder, &model, "demo"],
        &["which of eyes, demo", "--mmproj eyes="],
    );
    let mut missing = millrace(home.path());
    missing.args(["serve", &model, "--mmproj", "nowhere.gguf"]);
    finish(&mut missing).expect_error(NOT_FOUND, &["nowhere.gguf"]);
}

#[test]
fn what_cannot_be_shown_is_refused_before_any_work() {
    let home = home();
    let run = |model: &str, image: &Path, more: &[&str]| {
        let mut command = millrace(home.path());
        command
            .args(["run", model, "What?", "-n", "2", "--image"])
            .arg(image)
            .args(more);
        finish(&mut command)
    };
    let wide = image("wide.png");
    run("m", &image("broken.png"), &[]).expect_error(BAD_INPUT, &["broken.png is a broken PNG"]);
    run("m", &image("animated.webp"), &[]).expect_error(BAD_INPUT, &["animated WebP"]);
    run("m", &image("still.gif"), &[]).expect_error(BAD_INPUT, &["PNG, JPEG or WebP"]);
    run("m", Path::new("nowhere.png"), &[]).expect_error(NOT_FOUND, &["nowhere.png"]);
    run("demo", &wide, &[]).expect_error(USAGE, &["no vision encoder", "--mmproj"]);
    run("m", &wide, &["--ctx", "20"]).expect_error(USAGE, &["do not fit the context"]);
    run("m", &wide, &["--mmproj", "g.gguf"]).expect_error(USAGE, &["no vision encoder"]);
    std::fs::remove_file(home.path().join("mmproj-g.gguf")).unwrap();
    run("g.gguf", &wide, &[]).expect_error(USAGE, &["--mmproj FILE"]);
    let tokens = [
        "logits",
        "m",
        "--tokens",
        "1,2,262,262,3",
        "--out",
        "o",
        "--image",
    ];
    finish(millrace(home.path()).args(tokens).arg(&wide))
        .expect_error(USAGE, &["2 placeholders (262) for 1 images"]);
}
