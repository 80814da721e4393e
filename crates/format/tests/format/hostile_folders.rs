//! Splits, sharded models and folders that do not add up, and the errors they must give.

use std::fs;
use std::path::Path;

use millrace_format::{Checkpoint, Error};
use tempfile::TempDir;

use crate::raw::{
    F32, Gguf, SHARDED_MAP, STR, entry, f32_entry, safetensors, says, split_path, string, tensor,
    write_index, write_sharded, write_split,
};

#[track_caller]
fn refused(path: &Path, is_expected: fn(&Error) -> bool, parts: &[&str]) {
    let error = Checkpoint::open(path).expect_err("must be refused");
    assert!(is_expected(&error), "got {error:?}");
    says(&path.display().to_string(), &error, parts);
}

fn shard_with(number: u16, count: u16, total: i32, name: &str) -> Gguf {
    Gguf {
        tensors: vec![tensor(name, &[4], F32, 0)],
        data: vec![0; 16],
        ..Gguf::empty()
    }
    .shard(number, count, total)
}

#[test]
fn splits() {
    type Spoil = fn(&Path);
    type Case = (Spoil, fn(&Error) -> bool, &'static [&'static str]);
    let cases: &[Case] = &[
        (
            |dir| fs::remove_file(split_path(dir, 2, 3)).unwrap(),
            |e| matches!(e, Error::MissingShard { .. }),
            &["m-00002-of-00003.gguf", "missing", "m-00001-of-00003.gguf"],
        ),
        (
            |dir| {
                fs::copy(split_path(dir, 2, 3), split_path(dir, 3, 3)).unwrap();
            },
            |e| {
                matches!(
                    e,
                    Error::DuplicateShard {
                        expected: 3,
                        found: 2,
                        ..
                    }
                )
            },
            &["m-00003-of-00003.gguf", "shard 2", "expected 3"],
        ),
        (
            |dir| fs::write(split_path(dir, 3, 3), shard_with(3, 4, 3, "t3").bytes()).unwrap(),
            |e| matches!(e, Error::ShardCount { expected: 3, .. }),
            &["m-00003-of-00003.gguf", "expected 3", "split.count = 4"],
        ),
        (
            |dir| fs::write(split_path(dir, 3, 3), shard_with(3, 3, 9, "t3").bytes()).unwrap(),
            |e| matches!(e, Error::MixedShards { .. }),
            &[
                "m-00003-of-00003.gguf",
                "m-00001-of-00003.gguf",
                "split.tensors.count",
                "9",
                "expected i32 3",
            ],
        ),
        (
            |dir| {
                let mut shard = shard_with(3, 3, 3, "t3");
                shard
                    .entries
                    .push(entry("general.architecture", STR, &string(b"gemma3")));
                fs::write(split_path(dir, 3, 3), shard.bytes()).unwrap();
            },
            |e| matches!(e, Error::MixedShards { .. }),
            &["general.architecture", "gemma3", "llama"],
        ),
        (
            |dir| {
                let mut shard = shard_with(3, 3, 3, "t3");
                shard.tensors.clear();
                fs::write(split_path(dir, 3, 3), shard.bytes()).unwrap();
            },
            |e| matches!(e, Error::MixedShards { .. }),
            &["hold 2 tensors", "expected 3"],
        ),
        (
            |dir| fs::write(split_path(dir, 3, 3), shard_with(3, 3, 3, "t1").bytes()).unwrap(),
            |e| matches!(e, Error::DuplicateTensor { first: Some(_), .. }),
            &["m-00003-of-00003.gguf", "`t1`", "m-00001-of-00003.gguf"],
        ),
        (
            |dir| fs::write(split_path(dir, 3, 3), Gguf::valid().bytes()).unwrap(),
            |e| matches!(e, Error::ShardCount { .. }),
            &["m-00003-of-00003.gguf", "expected 3", "none"],
        ),
        (
            |dir| fs::write(split_path(dir, 2, 3), b"GGUF").unwrap(),
            |e| matches!(e, Error::Truncated { .. }),
            &["m-00002-of-00003.gguf"],
        ),
    ];
    for (spoil, is_expected, parts) in cases {
        let dir = TempDir::new().unwrap();
        write_split(dir.path(), 3);
        Checkpoint::open(&split_path(dir.path(), 2, 3)).unwrap();
        spoil(dir.path());
        refused(&split_path(dir.path(), 1, 3), *is_expected, parts);
    }
}

#[test]
fn a_shard_under_another_name() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("renamed.gguf");
    fs::write(&path, shard_with(1, 3, 3, "t1").bytes()).unwrap();
    refused(
        &path,
        |e| matches!(e, Error::ShardName { count: 3, .. }),
        &["renamed.gguf", "3 shards", "-XXXXX-of-00003.gguf"],
    );
}

#[test]
fn sharded_safetensors() {
    let shard_1 = "model-00001-of-00002.safetensors";
    let shard_2 = "model-00002-of-00002.safetensors";
    let write_t = |path: &Path, name: &str| {
        fs::write(
            path,
            safetensors(&format!("{{{}}}", f32_entry(name, 2, 0)), &[0; 8]),
        )
        .unwrap();
    };
    let fresh = || {
        let dir = TempDir::new().unwrap();
        write_sharded(dir.path());
        let whole = Checkpoint::open(dir.path()).unwrap();
        assert_eq!(whole.tensors().len(), 2);
        dir
    };

    let dir = fresh();
    fs::remove_file(dir.path().join(shard_2)).unwrap();
    refused(
        dir.path(),
        |e| matches!(e, Error::MissingShard { .. }),
        &[shard_2, "missing", "model.safetensors.index.json"],
    );

    let dir = fresh();
    write_index(
        dir.path(),
        &format!(r#""t1": "{shard_2}", "t2": "{shard_1}""#),
    );
    refused(
        dir.path(),
        |e| {
            matches!(
                e,
                Error::TensorNotInShard {
                    found_in: Some(_),
                    ..
                }
            )
        },
        &["index.json", "`t1`", shard_2, "it is in", shard_1],
    );

    let dir = fresh();
    write_index(dir.path(), &format!(r#"{SHARDED_MAP}, "t3": "{shard_1}""#));
    refused(
        dir.path(),
        |e| matches!(e, Error::TensorNotInShard { found_in: None, .. }),
        &["`t3`", shard_1, "does not hold it"],
    );

    let dir = fresh();
    write_t(&dir.path().join(shard_2), "t1");
    refused(
        dir.path(),
        |e| matches!(e, Error::DuplicateTensor { first: Some(_), .. }),
        &[shard_2, "`t1`", shard_1],
    );

    let dir = fresh();
    write_index(dir.path(), r#""t1": "../model.safetensors""#);
    refused(
        dir.path(),
        |e| matches!(e, Error::UnsafeShardName { .. }),
        &["`t1`", "../model.safetensors"],
    );

    let dir = fresh();
    write_index(dir.path(), r#""t1": "model.safetensors.index.json""#);
    refused(
        dir.path(),
        |e| matches!(e, Error::CyclicIndex { .. }),
        &["cyclic", "`t1`"],
    );

    let dir = fresh();
    fs::remove_file(dir.path().join("model.safetensors.index.json")).unwrap();
    let missing_index: fn(&Error) -> bool = |e| matches!(e, Error::MissingIndex { .. });
    refused(
        &dir.path().join(shard_1),
        missing_index,
        &[shard_1, "index", "missing"],
    );
    refused(dir.path(), missing_index, &[shard_1, "index", "missing"]);
}

#[test]
fn folders_without_a_model() {
    let none: fn(&Error) -> bool = |e| matches!(e, Error::NoWeights { .. });
    let dir = TempDir::new().unwrap();
    refused(
        dir.path(),
        none,
        &["no model weights", "model.safetensors", ".q4nx", ".gguf"],
    );
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    refused(dir.path(), none, &["no model weights"]);
    fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    refused(dir.path(), none, &["pytorch_model.bin", "convert"]);
    fs::write(dir.path().join("adapter_model.safetensors"), "x").unwrap();
    refused(
        dir.path(),
        none,
        &["adapter_model.safetensors", "name the file"],
    );

    let dir = TempDir::new().unwrap();
    for name in ["a.gguf", "b.gguf"] {
        fs::write(dir.path().join(name), Gguf::valid().bytes()).unwrap();
    }
    refused(
        dir.path(),
        |e| matches!(e, Error::SeveralModels { .. }),
        &["a.gguf, b.gguf", "name one"],
    );
}

#[test]
fn paths_that_are_no_model() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let io: fn(&Error) -> bool = |e| matches!(e, Error::Io { .. });
    let unknown: fn(&Error) -> bool = |e| matches!(e, Error::UnknownFormat { .. });
    refused(
        &dir.path().join("absent.gguf"),
        io,
        &["absent.gguf", "cannot open", "No such file"],
    );
    refused(
        &file("empty.gguf", b""),
        unknown,
        &["empty.gguf", "an empty file"],
    );
    refused(
        &file("page.gguf", b"<!DOCTYPE html>"),
        unknown,
        &["`GGUF`", "`<!DO`"],
    );
    refused(
        &file("notes.txt", b"hello"),
        unknown,
        &["notes.txt", "GGUF, safetensors", "`hello`"],
    );
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    refused(
        &file("model.safetensors", pointer),
        unknown,
        &["Git LFS pointer"],
    );

    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    fs::write(dir.path().join("model.safetensors"), safetensors("{}", &[])).unwrap();
    fs::write(dir.path().join("config.json"), "{").unwrap();
    refused(
        dir.path(),
        |e| matches!(e, Error::Json { .. }),
        &["config.json", "line 1"],
    );
    fs::remove_file(dir.path().join("config.json")).unwrap();
    fs::write(dir.path().join("chat_template.jinja"), [0xFF]).unwrap();
    refused(
        dir.path(),
        |e| matches!(e, Error::NotUtf8 { .. }),
        &["chat_template.jinja"],
    );
    fs::remove_file(dir.path().join("chat_template.jinja")).unwrap();
    fs::create_dir(dir.path().join("config.json")).unwrap();
    refused(
        dir.path(),
        |e| matches!(e, Error::NotAFile { .. }),
        &["config.json", "not a regular file"],
    );
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_and_devices() {
    use std::os::unix::fs::symlink;
    let dir = TempDir::new().unwrap();
    let io: fn(&Error) -> bool = |e| matches!(e, Error::Io { .. });
    let circle = dir.path().join("circle.gguf");
    symlink(&circle, &circle).unwrap();
    refused(&circle, io, &["circle.gguf", "cannot open"]);
    let dangling = dir.path().join("dangling.gguf");
    symlink(dir.path().join("absent"), &dangling).unwrap();
    refused(&dangling, io, &["dangling.gguf", "cannot open"]);
    let device: fn(&Error) -> bool = |e| matches!(e, Error::NotAFile { .. });
    refused(
        Path::new("/dev/zero"),
        device,
        &["/dev/zero", "not a regular file"],
    );

    let sharded = TempDir::new().unwrap();
    write_sharded(sharded.path());
    let shard = sharded.path().join("model-00002-of-00002.safetensors");
    fs::remove_file(&shard).unwrap();
    symlink(&shard, &shard).unwrap();
    refused(
        sharded.path(),
        |e| matches!(e, Error::MissingShard { .. }),
        &["model-00002-of-00002"],
    );
}
