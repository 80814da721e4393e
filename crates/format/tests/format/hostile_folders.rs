//! Splits, sharded models and folders that do not add up, and the errors they must give.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;
use tempfile::TempDir;

use crate::raw::{
    F32, Gguf, SHARDED_MAP, STR, entry, f32_entry, is_error, safetensors, split_path, string,
    tensor, write_index, write_sharded, write_split,
};

#[track_caller]
fn refused(path: &Path, variant: &str, parts: &[&str]) {
    is_error(&Checkpoint::open(path).expect_err(variant), variant, parts);
}

/// A folder that is removed when dropped, with a sound split of three in it.
fn split_of_three() -> TempDir {
    let dir = TempDir::new().unwrap();
    write_split(dir.path(), 3);
    let sound = Checkpoint::open(&split_path(dir.path(), 2, 3)).unwrap();
    assert_eq!(sound.tensors().len(), 3);
    dir
}

/// Asserts the refusal of the split with its third file replaced.
#[track_caller]
fn third_refused(third: &[u8], variant: &str, parts: &[&str]) {
    let dir = split_of_three();
    let path = split_path(dir.path(), 3, 3);
    fs::remove_file(&path).unwrap();
    fs::write(&path, third).unwrap();
    for opened in [1, 3] {
        refused(&split_path(dir.path(), opened, 3), variant, parts);
    }
}

/// A shard with one f32 tensor.
fn shard(number: u16, count: u16, total: i32, name: &str) -> Gguf {
    Gguf {
        tensors: vec![tensor(name, &[4], F32, 0)],
        data: vec![0; 16],
        ..Gguf::empty()
    }
    .shard(number, count, total)
}

const THIRD: &str = "m-00003-of-00003.gguf";

#[test]
fn missing_and_duplicate_shards() {
    let dir = split_of_three();
    fs::remove_file(split_path(dir.path(), 2, 3)).unwrap();
    let parts = [
        "m-00002-of-00003.gguf: shard is missing",
        "m-00001-of-00003.gguf",
    ];
    refused(&split_path(dir.path(), 1, 3), "MissingShard", &parts);
    let parts = [THIRD, "calls itself shard 2", "expected 3"];
    third_refused(&shard(2, 3, 3, "t3").bytes(), "DuplicateShard", &parts);
    let parts = [THIRD, "tensor `t1` appears twice", "m-00001-of-00003.gguf"];
    third_refused(&shard(3, 3, 3, "t1").bytes(), "DuplicateTensor", &parts);
}

#[test]
fn wrong_counts_and_mixed_shards() {
    let parts = [THIRD, "expected 3 shards", "split.count = 4"];
    third_refused(&shard(3, 4, 3, "t3").bytes(), "ShardCount", &parts);
    let parts = [THIRD, "expected 3 shards", "split.count = none"];
    third_refused(&Gguf::valid().bytes(), "ShardCount", &parts);
    third_refused(b"GGUF", "Truncated", &[THIRD]);
    let mut no_number = shard(3, 3, 3, "t3");
    no_number.entries.remove(0);
    third_refused(&no_number.bytes(), "MissingKey", &[THIRD, "`split.no`"]);
    let mut other_family = shard(3, 3, 3, "t3");
    other_family
        .entries
        .push(entry("general.architecture", STR, &string(b"gemma3")));
    let parts = [
        THIRD,
        "general.architecture is str \"gemma3\"",
        "expected str \"llama\"",
    ];
    third_refused(&other_family.bytes(), "MixedShards", &parts);
    let parts = [THIRD, "split.tensors.count is i32 9", "expected i32 3"];
    third_refused(&shard(3, 3, 9, "t3").bytes(), "MixedShards", &parts);
    let mut empty = shard(3, 3, 3, "t3");
    empty.tensors.clear();
    third_refused(
        &empty.bytes(),
        "MixedShards",
        &["hold 2 tensors", "expected 3"],
    );
}

#[test]
fn a_shard_under_another_name() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("renamed.gguf");
    fs::write(&path, shard(1, 3, 3, "t1").bytes()).unwrap();
    refused(
        &path,
        "ShardName",
        &["renamed.gguf", "one of 3 shards", "-XXXXX-of-00003.gguf"],
    );
}

const SHARD_1: &str = "model-00001-of-00002.safetensors";
const SHARD_2: &str = "model-00002-of-00002.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A folder with a sound model of two shards, which `spoil` then spoils.
fn sharded(spoil: impl FnOnce(&Path)) -> TempDir {
    let dir = TempDir::new().unwrap();
    write_sharded(dir.path());
    assert_eq!(Checkpoint::open(dir.path()).unwrap().tensors().len(), 2);
    spoil(dir.path());
    dir
}

#[test]
fn indices_and_shards_that_disagree() {
    let dir = sharded(|dir| fs::remove_file(dir.join(SHARD_2)).unwrap());
    let missing = format!("{SHARD_2}: shard is missing");
    refused(dir.path(), "MissingShard", &[&missing, INDEX]);

    // Entries only say which files to open: errors in them do no harm.
    let swapped = format!(r#""t1": "{SHARD_2}", "t2": "{SHARD_1}""#);
    let one_more = format!(r#"{SHARDED_MAP}, "t3": "{SHARD_1}""#);
    let one_less = format!(r#""t1": "{SHARD_2}", "x": "{SHARD_1}""#);
    for map in [swapped, one_more, one_less] {
        let dir = sharded(|dir| write_index(dir, &map));
        let model = Checkpoint::open(dir.path()).unwrap();
        assert!(model.tensor("t1").is_some() && model.tensor("t2").is_some());
        assert_eq!(model.tensors().len(), 2);
    }
    // The one whole file comes first; a link without a target does not count.
    let whole = safetensors(&format!("{{{}}}", f32_entry("whole", 2, 0)), &[0; 8]);
    let dir = sharded(|dir| {
        fs::write(dir.join("model.safetensors"), &whole).unwrap();
        fs::remove_file(dir.join(SHARD_1)).unwrap();
    });
    assert!(
        Checkpoint::open(dir.path())
            .unwrap()
            .tensor("whole")
            .is_some()
    );
    #[cfg(unix)]
    {
        let dir = sharded(|dir| {
            std::os::unix::fs::symlink("gone", dir.join("model.safetensors")).unwrap();
        });
        assert_eq!(Checkpoint::open(dir.path()).unwrap().tensors().len(), 2);
    }

    let twin = safetensors(&format!("{{{}}}", f32_entry("t1", 2, 0)), &[0; 8]);
    let dir = sharded(|dir| fs::write(dir.join(SHARD_2), twin).unwrap());
    refused(
        dir.path(),
        "DuplicateTensor",
        &[SHARD_2, "`t1` appears twice", SHARD_1],
    );

    let dir = sharded(|dir| write_index(dir, r#""t1": "../model.safetensors""#));
    refused(
        dir.path(),
        "UnsafeShardName",
        &[INDEX, "`t1`", "../model.safetensors"],
    );

    let dir = sharded(|dir| write_index(dir, &format!(r#""t1": "{INDEX}""#)));
    refused(dir.path(), "CyclicIndex", &[INDEX, "cyclic", "`t1`"]);

    let dir = sharded(|dir| fs::remove_file(dir.join(INDEX)).unwrap());
    for opened in [dir.path(), &dir.path().join(SHARD_1)] {
        refused(
            opened,
            "MissingIndex",
            &[SHARD_1, "one of several shards", INDEX, "is missing"],
        );
    }
}

#[test]
fn folders_without_a_model() {
    let dir = TempDir::new().unwrap();
    let looked_for = [
        "no model weights",
        INDEX,
        "model.safetensors",
        ".q4nx",
        ".gguf",
    ];
    refused(dir.path(), "NoWeights", &looked_for);
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    refused(dir.path(), "NoWeights", &looked_for);
    fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    refused(
        dir.path(),
        "NoWeights",
        &["found pytorch_model.bin", "convert"],
    );
    fs::write(dir.path().join("other.safetensors"), "x").unwrap();
    refused(
        dir.path(),
        "NoWeights",
        &["found other.safetensors", "name the file"],
    );
    fs::write(dir.path().join("adapter_model.safetensors"), "x").unwrap();
    refused(
        dir.path(),
        "NotAModel",
        &["a LoRA adapter", "merge it into its base model ("],
    );
    let adapter = r#"{"peft_type": "LORA", "base_model_name_or_path": "me/base"}"#;
    fs::write(dir.path().join("adapter_config.json"), adapter).unwrap();
    refused(
        dir.path(),
        "NotAModel",
        &["a LoRA adapter", "merge it into its base model me/base"],
    );
    for (name, what) in [
        ("model.onnx", "its model.onnx is an ONNX model"),
        ("m.gguf.part1of2", "one part of a file that was cut"),
        ("m.safetensors.incomplete", "an unfinished download"),
        ("flax_model.msgpack", "a Flax checkpoint"),
        ("model_index.json", "a diffusers pipeline"),
    ] {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join(name), "x").unwrap();
        refused(dir.path(), "NotAModel", &[what]);
    }

    let dir = TempDir::new().unwrap();
    for name in ["a.gguf", "b.gguf"] {
        fs::write(dir.path().join(name), Gguf::valid().bytes()).unwrap();
    }
    refused(dir.path(), "SeveralModels", &["name one of a.gguf, b.gguf"]);
}

#[test]
fn paths_that_are_no_model() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let absent = dir.path().join("absent.gguf");
    refused(&absent, "Io", &["absent.gguf: cannot open", "No such file"]);
    for (name, bytes, parts) in [
        (
            "empty.gguf",
            b"".as_slice(),
            ["empty.gguf: this is an empty file", "fetch"],
        ),
        (
            "page.gguf",
            b"<!DOCTYPE html>",
            ["page.gguf: this is a web page", "download"],
        ),
        (
            "notes.txt",
            b"hello",
            ["a text that begins with \"hello\"", "read it"],
        ),
        (
            "refused.gguf",
            b"Entry not found",
            ["a text", "servers send"],
        ),
        (
            "m.gguf.part2",
            b"\x01\x02\xff",
            ["one part of a file that was cut", "cat"],
        ),
        (
            "m-split-b",
            b"\x01\x02\xff",
            ["one part of a file that was cut", "cat"],
        ),
        (
            "m.gguf.part1",
            b"GGUF\x03",
            ["one part of a file that was cut", "cat"],
        ),
        (
            "m.gguf.incomplete",
            b"GGUF\x03",
            ["an unfinished download", "fetch"],
        ),
    ] {
        refused(&file(name, bytes), "NotAModel", &parts);
    }
    let parts = ["expected GGUF, safetensors", r"begins with `\x01\x02\xff`"];
    refused(&file("m.dat", b"\x01\x02\xff"), "UnknownFormat", &parts);
}

/// One recogniser for every reader: a pointer is recognised in place of any file.
#[test]
fn a_pointer_in_the_place_of_any_file() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    let said = |path: &Path, name: &str| {
        refused(
            path,
            "NotAModel",
            &[name, "a Git LFS pointer", "git lfs pull"],
        );
    };
    let one = || {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("model.safetensors"), safetensors("{}", &[])).unwrap();
        Checkpoint::open(dir.path()).unwrap();
        dir
    };
    for name in [
        "model.safetensors",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        let dir = one();
        fs::write(dir.path().join(name), pointer).unwrap();
        said(dir.path(), name);
        said(&dir.path().join("model.safetensors"), name);
    }
    for name in [SHARD_1, SHARD_2, INDEX] {
        let dir = sharded(|dir| fs::write(dir.join(name), pointer).unwrap());
        said(dir.path(), name);
    }
    third_refused(pointer, "NotAModel", &[THIRD, "a Git LFS pointer"]);
    let dir = TempDir::new().unwrap();
    for name in ["m.gguf", "m.q4nx", "m"] {
        let path = dir.path().join(name);
        fs::write(&path, pointer).unwrap();
        said(&path, name);
    }
}

#[test]
fn shards_that_were_joined() {
    let dir = split_of_three();
    let mut joined = Vec::new();
    for number in 1..=3 {
        joined.extend(fs::read(split_path(dir.path(), number, 3)).unwrap());
    }
    let path = dir.path().join("cat.gguf");
    fs::write(&path, &joined).unwrap();
    refused(
        &path,
        "NotAModel",
        &["several shards", "do not join them", "--merge"],
    );
    let dir = sharded(|dir| {
        let mut both = fs::read(dir.join(SHARD_1)).unwrap();
        both.extend(fs::read(dir.join(SHARD_2)).unwrap());
        fs::write(dir.join("model.safetensors"), both).unwrap();
    });
    refused(
        dir.path(),
        "NotAModel",
        &["several safetensors files", "do not join"],
    );
}

#[test]
fn files_beside_the_weights() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("model.safetensors"), safetensors("{}", &[])).unwrap();
    Checkpoint::open(dir.path()).unwrap();
    let config = dir.path().join("config.json");
    fs::write(&config, "{").unwrap();
    refused(
        dir.path(),
        "Json",
        &["config.json: not valid JSON", "line 1"],
    );
    fs::remove_file(&config).unwrap();
    let template = dir.path().join("chat_template.jinja");
    fs::write(&template, [b'x', 0xFF]).unwrap();
    refused(
        dir.path(),
        "NotUtf8",
        &["chat_template.jinja: the template at offset 1"],
    );
    fs::remove_file(&template).unwrap();
    fs::create_dir(&config).unwrap();
    refused(dir.path(), "NotAFile", &["config.json: not a regular file"]);
    fs::remove_dir(&config).unwrap();
    let sparse = fs::File::create(&config).unwrap();
    sparse.set_len(20 << 20).unwrap();
    refused(
        dir.path(),
        "Limit",
        &[
            "config.json: the file's length",
            "20971520",
            "limit is 16777216",
        ],
    );
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_and_devices() {
    use std::os::unix::fs::symlink;
    let dir = TempDir::new().unwrap();
    let circle = dir.path().join("circle.gguf");
    symlink(&circle, &circle).unwrap();
    refused(&circle, "Io", &["circle.gguf: cannot open"]);
    let dangling = dir.path().join("dangling.gguf");
    symlink(dir.path().join("absent"), &dangling).unwrap();
    let parts = ["dangling.gguf: a link to", "absent, which does not exist"];
    refused(&dangling, "DanglingLink", &parts);
    for name in ["model.safetensors", "config.json", "tokenizer.json", INDEX] {
        let dir = TempDir::new().unwrap();
        if name != INDEX {
            fs::write(dir.path().join("model.safetensors"), safetensors("{}", &[])).unwrap();
            let _ = fs::remove_file(dir.path().join(name));
        }
        symlink("../blobs/gone", dir.path().join(name)).unwrap();
        refused(
            dir.path(),
            "DanglingLink",
            &[name, "a link to ../blobs/gone"],
        );
    }
    refused(
        Path::new("/dev/zero"),
        "NotAFile",
        &["/dev/zero: not a regular file"],
    );

    let dir = sharded(|dir| {
        fs::remove_file(dir.join(SHARD_2)).unwrap();
        symlink(dir.join(SHARD_2), dir.join(SHARD_2)).unwrap();
    });
    refused(dir.path(), "Io", &[SHARD_2]);
    let dir = sharded(|dir| {
        fs::remove_file(dir.join(SHARD_2)).unwrap();
        symlink("gone", dir.join(SHARD_2)).unwrap();
    });
    refused(dir.path(), "DanglingLink", &[SHARD_2, "a link to gone"]);
}
