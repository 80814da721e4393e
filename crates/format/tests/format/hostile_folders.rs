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

/// Asserts what opening the split gives with its third file replaced.
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

    let swapped = format!(r#""t1": "{SHARD_2}", "t2": "{SHARD_1}""#);
    let dir = sharded(|dir| write_index(dir, &swapped));
    refused(
        dir.path(),
        "TensorNotInShard",
        &[INDEX, "`t1` in", SHARD_2, "but it is in", SHARD_1],
    );

    let one_more = format!(r#"{SHARDED_MAP}, "t3": "{SHARD_1}""#);
    let dir = sharded(|dir| write_index(dir, &one_more));
    refused(
        dir.path(),
        "TensorNotInShard",
        &[INDEX, "`t3` in", SHARD_1, "does not hold it"],
    );

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
    fs::write(dir.path().join("adapter_model.safetensors"), "x").unwrap();
    refused(
        dir.path(),
        "NoWeights",
        &["found adapter_model.safetensors", "name the file"],
    );

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
    refused(
        &file("empty.gguf", b""),
        "UnknownFormat",
        &["empty.gguf", "an empty file"],
    );
    refused(
        &file("page.gguf", b"<!DOCTYPE html>"),
        "UnknownFormat",
        &["`GGUF`", "`<!DO`"],
    );
    let parts = [
        "notes.txt",
        "expected GGUF, safetensors",
        "begins with `hello`",
    ];
    refused(&file("notes.txt", b"hello"), "UnknownFormat", &parts);
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    let parts = ["a Git LFS pointer", "did not fetch"];
    refused(&file("model.safetensors", pointer), "UnknownFormat", &parts);
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
    refused(&dangling, "Io", &["dangling.gguf: cannot open"]);
    refused(
        Path::new("/dev/zero"),
        "NotAFile",
        &["/dev/zero: not a regular file"],
    );

    let dir = sharded(|dir| {
        fs::remove_file(dir.join(SHARD_2)).unwrap();
        symlink(dir.join(SHARD_2), dir.join(SHARD_2)).unwrap();
    });
    refused(dir.path(), "MissingShard", &[SHARD_2]);
}
