//! Input that cannot work: the message says how to fix it, the exit code says whose fault it is,
//! and nothing half-written stays.

use crate::models;
use crate::run::{BAD_INPUT, IO, NOT_FOUND, OK, USAGE, command, finish, home, shell, text};
use millrace_format::{TensorSpec, gguf};
use millrace_quant::DType;
use std::fs;

#[test]
fn a_model_that_is_not_there() {
    let home = home();
    fs::write(home.path().join("story-Q4_0.gguf"), "x").expect("write");
    for (name, mentions) in [
        ("dmeo", vec!["did you mean `demo`"]),
        ("story-Q4_O.gguf", vec!["did you mean `story-Q4_0.gguf`"]),
        ("acme/unheard", vec!["millrace pull acme/unheard"]),
        ("missing.gguf", vec!["no such file"]),
    ] {
        finish(&mut command(&home, &["info", name])).expect_error(NOT_FOUND, &mentions);
    }
    finish(&mut command(
        &home,
        &["info", "hf:acme/unheard", "--offline"],
    ))
    .expect_error(NOT_FOUND, &["not in the cache"]);
}

#[test]
fn files_that_are_no_models() {
    let home = home();
    fs::create_dir(home.path().join("empty")).expect("folder");
    fs::write(home.path().join("empty.gguf"), "").expect("write");
    fs::write(home.path().join("text.gguf"), "This is not a model.").expect("write");
    let gguf = fs::read(models::gguf()).expect("the model");
    fs::write(home.path().join("cut.gguf"), &gguf[..gguf.len() / 2]).expect("write");
    for name in ["empty", "empty.gguf", "text.gguf", "cut.gguf"] {
        for arguments in [vec!["info", name], vec!["run", name, "Hello"]] {
            finish(&mut command(&home, &arguments)).expect_error(BAD_INPUT, &[name]);
        }
    }
}

#[test]
fn an_architecture_that_is_not_supported_is_named() {
    let home = home();
    let mut metadata = gguf::Metadata::new();
    metadata.insert("general.architecture", gguf::GgufValue::Str("rwkv6".into()));
    let specs = [TensorSpec::new("token_embd.weight", DType::F32, &[4, 8])];
    let path = home.path().join("other.gguf");
    let mut writer = gguf::Writer::create(&path, &metadata, &specs).expect("create");
    writer.write("token_embd.weight", &[0; 128]).expect("write");
    writer.commit().expect("commit");
    finish(&mut command(&home, &["run", "other.gguf", "Hello"]))
        .expect_error(BAD_INPUT, &["rwkv6", "llama", "gemma3"]);
    // Inspecting the file works all the same.
    let info = finish(&mut command(&home, &["info", "other.gguf"]))
        .expect(OK)
        .stdout;
    assert!(
        info.contains("rwkv6") && info.contains("runs here"),
        "{info}"
    );
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let home = home();
    let path = home.path().join("secret.gguf");
    fs::write(&path, "GGUF").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("chmod");
    if fs::read(&path).is_ok() {
        println!("skipped: this user may read everything");
        return;
    }
    finish(&mut command(&home, &["info", "secret.gguf"])).expect_error(IO, &["secret.gguf"]);
}

#[test]
fn prompts_that_cannot_be_used() {
    let home = home();
    let model = text(models::gguf());
    finish(&mut command(&home, &["run", model, ""])).expect_error(USAGE, &["empty", "-f FILE"]);
    finish(&mut command(&home, &["run", model, "-f", "none.txt"]))
        .expect_error(NOT_FOUND, &["none.txt"]);
    fs::write(home.path().join("bytes.txt"), [b'a', 0xff]).expect("write");
    finish(&mut command(&home, &["run", model, "-f", "bytes.txt"]))
        .expect_error(BAD_INPUT, &["UTF-8", "offset 1"]);
    let long = "word ".repeat(40);
    finish(&mut command(&home, &["run", model, &long, "-c", "64"]))
        .expect_error(USAGE, &["200", "64", "--ctx"]);
}

#[test]
fn options_out_of_range() {
    let home = home();
    let model = text(models::gguf());
    for (options, mention) in [
        (["--top-p", "1.5"], "top-p"),
        (["--temperature", "nan"], "temperature"),
        (["--logit-bias", "999999=1"], "999999"),
        (["--stop", ""], "--stop"),
        (["--threads", "0"], "thread"),
        (["--ctx", "0"], "ctx"),
    ] {
        let mut run = command(&home, &["run", model, "x"]);
        finish(run.args(options)).expect_error(USAGE, &[mention]);
    }
}

#[test]
fn token_ids_beyond_the_vocabulary() {
    let home = home();
    let out = ["--tokens", "1,99999", "--out", "x.safetensors"];
    let mut logits = command(&home, &["logits", text(models::gguf())]);
    finish(logits.args(out)).expect_error(USAGE, &["99999", "0 to 511"]);
    assert!(!home.path().join("x.safetensors").exists());
}

#[test]
fn outputs_that_cannot_be_written_leave_nothing() {
    let home = home();
    fs::create_dir(home.path().join("folder")).expect("folder");
    let (gguf, folder) = (text(models::gguf()), text(models::folder()));
    for arguments in [
        vec![
            "logits",
            gguf,
            "--tokens",
            "1",
            "--out",
            "no/such/x.safetensors",
        ],
        vec!["synth", "llama-tiny", "no/such/x.gguf"],
        vec!["quantize", folder, "no/such/x.gguf", "Q4_0"],
    ] {
        finish(&mut command(&home, &arguments)).expect_error(IO, &["no/such"]);
    }
    finish(&mut command(&home, &["man", "/dev/null/x"])).expect(IO);
    let left: Vec<_> = fs::read_dir(home.path())
        .expect("folder")
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// A file size limit stands in for a full disk: the write fails in the same place.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let home = home();
    let model = text(models::folder());
    for work in [
        "synth llama-tiny out.gguf --type F16".to_owned(),
        format!("quantize {model} out.gguf F16"),
        format!("quantize {model} out F16"),
        format!("logits {model} --tokens 1,2,3,4 --all --hidden-states --out out.safetensors"),
    ] {
        let script = format!("trap '' XFSZ; ulimit -f 8; exec \"$MILLRACE\" {work}");
        finish(&mut shell(home.path(), &script)).expect_error(IO, &["out"]);
        let left: Vec<_> = fs::read_dir(home.path())
            .expect("folder")
            .flatten()
            .collect();
        assert!(
            left.iter().all(|entry| entry.path().is_dir()),
            "{work}: {left:?}"
        );
    }
}

#[test]
fn a_file_that_is_there_survives_a_failed_write() {
    let home = home();
    let kept = home.path().join("kept.gguf");
    fs::write(&kept, "precious").expect("write");
    let missing = ["quantize", "missing.gguf", "kept.gguf", "Q4_0"];
    finish(&mut command(&home, &missing)).expect(NOT_FOUND);
    assert_eq!(fs::read(&kept).expect("still there"), b"precious");
}

#[test]
fn conversions_that_make_no_sense() {
    let home = home();
    let folder = text(models::folder());
    finish(&mut command(&home, &["quantize", folder, "out", "Q4_K_M"]))
        .expect_error(USAGE, &["safetensors"]);
    let unknown =
        finish(&mut command(&home, &["quantize", folder, "x.gguf", "Q9_Z"])).expect(USAGE);
    assert!(unknown.stderr.contains("Q4_K_M"), "{}", unknown.stderr);
    finish(&mut command(&home, &["synth", "llama-huge", "x.gguf"])).expect(USAGE);
}

/// Outputs by the name of an input, and by another name of its file.
#[test]
fn inputs_are_not_replaced() {
    let home = home();
    fs::copy(models::plain_gguf(), home.path().join("m.gguf")).expect("copied");
    std::os::unix::fs::symlink("m.gguf", home.path().join("link")).expect("a link");
    fs::write(home.path().join("t.txt"), "some text\n".repeat(30)).expect("written");
    let before = fs::read(home.path().join("m.gguf")).expect("read");
    for arguments in [
        &["logits", "m.gguf", "--tokens", "1", "--out", "m.gguf"][..],
        &["logits", "m.gguf", "--tokens", "1", "--out", "./link"],
        &["embed", "m.gguf", "t.txt", "--out", "t.txt"],
        &["embed", "m.gguf", "t.txt", "--out", "m.gguf"],
        &[
            "imatrix", "m.gguf", "-f", "t.txt", "-c", "16", "-o", "m.gguf",
        ],
        &[
            "imatrix", "m.gguf", "-f", "t.txt", "-c", "16", "-o", "t.txt",
        ],
        &["quantize", "m.gguf", "link", "Q4_0"],
    ] {
        finish(&mut command(&home, arguments))
            .expect_error(USAGE, &["is an input of this command"]);
    }
    // A plan writes nothing.
    let plan = ["quantize", "m.gguf", "./m.gguf", "Q4_0", "--dry-run"];
    finish(&mut command(&home, &plan)).expect(0);
    assert_eq!(fs::read(home.path().join("m.gguf")).expect("read"), before);
    let folder = text(models::plain_folder());
    finish(&mut command(&home, &["quantize", folder, folder, "F16"]))
        .expect_error(USAGE, &["is an input of this command"]);
}

/// A norm so large that what follows overflows: no statistics are given of numbers that are none.
#[test]
fn models_that_overflow_have_no_statistics() {
    let home = home();
    let folder = home.path().join("overflows");
    fs::create_dir(&folder).expect("a folder");
    for file in fs::read_dir(models::plain_folder()).expect("a folder") {
        let file = file.expect("a file");
        fs::copy(file.path(), folder.join(file.file_name())).expect("copied");
    }
    let path = folder.join("model.safetensors");
    let mut bytes = fs::read(&path).expect("read");
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..start]).expect("JSON");
    let range = &header["model.layers.0.input_layernorm.weight"]["data_offsets"];
    let [first, end] = [0, 1].map(|i| start + range[i].as_u64().expect("an offset") as usize);
    // 3.4e38, as F32 and as BF16.
    bytes[first..end].fill(0x7f);
    fs::write(&path, &bytes).expect("written");
    fs::write(home.path().join("t.txt"), "some text\n".repeat(30)).expect("written");
    let perplexity = ["perplexity", "overflows", "t.txt", "-c", "16"];
    finish(&mut command(&home, &perplexity))
        .expect_error(BAD_INPUT, &["NaN or infinite logits at position"]);
    let imatrix = [
        "imatrix",
        "overflows",
        "-f",
        "t.txt",
        "-c",
        "16",
        "-o",
        "x.gguf",
    ];
    finish(&mut command(&home, &imatrix)).expect_error(BAD_INPUT, &["blk.0.", "NaN or infinite"]);
    assert!(!home.path().join("x.gguf").exists());
}

#[test]
fn a_text_too_short_for_perplexity() {
    let home = home();
    fs::write(home.path().join("short.txt"), "Too short.").expect("write");
    let arguments = ["perplexity", text(models::gguf()), "short.txt"];
    finish(&mut command(&home, &arguments)).expect_error(USAGE, &["10 tokens", "512"]);
    finish(&mut command(&home, &["info", text(models::gguf())])).expect(OK);
}
