//! Opening models by every kind of path, and the answers of a checkpoint about them.

use std::fs;
use std::path::Path;

use millrace_format::gguf::GgufValue;
use millrace_format::{Advice, Checkpoint, Source};
use millrace_quant::DType;
use tempfile::TempDir;

use crate::raw::{Gguf, f32_entry, is_error, safetensors, split_path, write_sharded, write_split};

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    fs::write(dir.join(name), bytes).unwrap();
}

/// A safetensors file of the f32 vector `t` = bytes 0..8.
fn small_safetensors() -> Vec<u8> {
    safetensors(
        &format!("{{{}}}", f32_entry("t", 2, 0)),
        &[0, 1, 2, 3, 4, 5, 6, 7],
    )
}

#[test]
fn a_gguf_file_and_its_folder() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "tiny.gguf", Gguf::valid().bytes());
    let path = dir.path().join("tiny.gguf");
    for opened in [path.as_path(), dir.path()] {
        let model = Checkpoint::open(opened).unwrap();
        assert_eq!(model.source(), Source::Gguf);
        assert_eq!(model.name(), opened.display().to_string());
        assert_eq!(model.files(), [path.as_path()]);
        assert!(model.hf().is_none());
        let metadata = model.gguf().unwrap();
        assert_eq!(
            metadata.get_str("general.architecture").unwrap(),
            Some("llama")
        );
        assert_eq!(model.size_bytes(), 32 + 34);
        model.advise(Advice::WillNeed);
        let a = model.require("a").unwrap();
        model.read_ahead(a.bytes);
        // Of no file of the model: left alone.
        model.read_ahead(&[0; 64]);
        assert_eq!(
            (a.n(), a.k(), a.bytes),
            (2, 4, (0..32).collect::<Vec<u8>>().as_slice())
        );
        assert_eq!(a.as_matrix(2, 4).unwrap(), (DType::F32, a.bytes));
        let names: Vec<_> = model
            .iter()
            .map(|tensor| tensor.info.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert!(model.tensor("c").is_none());
        let error = model.require("c").unwrap_err();
        is_error(&error, "MissingTensor", &["`c`", model.name()]);
        let error = a.as_matrix(4, 2).unwrap_err();
        is_error(
            &error,
            "ShapeMismatch",
            &["tiny.gguf", "`a`", "expected shape [4, 2]", "found [2, 4]"],
        );
    }
}

#[test]
fn threads_may_share_a_checkpoint() {
    fn shared<T: Send + Sync>() {}
    shared::<Checkpoint>();
}

#[test]
fn any_shard_opens_the_split() {
    let dir = TempDir::new().unwrap();
    write_split(dir.path(), 3);
    for opened in (1..=3)
        .map(|i| split_path(dir.path(), i, 3))
        .chain([dir.path().to_owned()])
    {
        let model = Checkpoint::open(&opened).unwrap();
        assert_eq!(model.files().len(), 3);
        assert_eq!(
            model.gguf().unwrap().get("general.architecture"),
            Some(&GgufValue::from("llama"))
        );
        for (i, tensor) in (1..).zip(model.iter()) {
            assert_eq!(tensor.info.name, format!("t{i}"));
            assert_eq!(tensor.bytes, [i as u8; 16]);
            assert_eq!(
                model.files()[tensor.info.file],
                split_path(dir.path(), i, 3)
            );
        }
    }
}

#[test]
fn a_hugging_face_folder() {
    let dir = TempDir::new().unwrap();
    write_sharded(dir.path());
    write(
        dir.path(),
        "config.json",
        r#"{"model_type": "llama", "rope_theta": 10000.0}"#,
    );
    write(
        dir.path(),
        "generation_config.json",
        r#"{"temperature": 0.6}"#,
    );
    write(dir.path(), "tokenizer.json", "{}");
    write(
        dir.path(),
        "tokenizer_config.json",
        r#"{"chat_template": "from config"}"#,
    );
    let by_index = dir.path().join("model.safetensors.index.json");
    let by_shard = dir.path().join("model-00002-of-00002.safetensors");
    for opened in [dir.path(), &by_index, &by_shard] {
        let model = Checkpoint::open(opened).unwrap();
        assert_eq!(model.source(), Source::HuggingFace);
        assert_eq!(model.files().len(), 2);
        assert!(model.gguf().is_none());
        let files = model.hf().unwrap();
        assert_eq!(files.config.as_ref().unwrap()["model_type"], "llama");
        assert_eq!(
            files.generation_config.as_ref().unwrap()["temperature"],
            0.6
        );
        assert_eq!(files.tokenizer_json.as_deref(), Some(b"{}".as_slice()));
        assert_eq!(files.chat_template.as_deref(), Some("from config"));
        assert_eq!(model.require("t2").unwrap().bytes, [2; 8]);
    }
}

#[test]
fn the_chat_template_is_found_where_transformers_puts_it() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "model.safetensors", small_safetensors());
    let template = || {
        Checkpoint::open(dir.path())
            .unwrap()
            .hf()
            .unwrap()
            .chat_template
            .clone()
    };
    assert_eq!(template(), None);
    let list = r#"{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}"#;
    write(dir.path(), "tokenizer_config.json", list);
    assert_eq!(template().as_deref(), Some("d"));
    write(
        dir.path(),
        "chat_template.json",
        r#"{"chat_template": "from json"}"#,
    );
    assert_eq!(template().as_deref(), Some("from json"));
    write(dir.path(), "chat_template.jinja", "{{ messages }}");
    assert_eq!(template().as_deref(), Some("{{ messages }}"));
}

#[test]
fn bare_files_need_nothing_beside_them() {
    let dir = TempDir::new().unwrap();
    for name in ["weights.safetensors", "bundle.q4nx", "0123abcd"] {
        write(dir.path(), name, small_safetensors());
        let model = Checkpoint::open(&dir.path().join(name)).unwrap();
        assert_eq!(model.source(), Source::HuggingFace);
        assert!(model.hf().unwrap().config.is_none());
        assert_eq!(model.require("t").unwrap().bytes, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
    write(dir.path(), "4567cdef", Gguf::valid().bytes());
    let model = Checkpoint::open(&dir.path().join("4567cdef")).unwrap();
    assert_eq!(model.source(), Source::Gguf);
}

#[test]
fn a_q4nx_bundle_in_a_folder() {
    let dir = TempDir::new().unwrap();
    let header = r#"{"w":{"dtype":"I8","shape":[2,5120],"data_offsets":[0,10240]}}"#;
    write(dir.path(), "model.q4nx", safetensors(header, &[7; 10240]));
    write(dir.path(), "config.json", "{}");
    let model = Checkpoint::open(dir.path()).unwrap();
    assert!(model.hf().unwrap().config.is_some());
    let w = model.require("w").unwrap();
    assert_eq!(w.as_matrix(32, 512).unwrap(), (DType::Q4nx, w.bytes));
    let error = w.as_matrix(32, 256).unwrap_err();
    is_error(
        &error,
        "ShapeMismatch",
        &["model.q4nx", "`w`", "shape [32, 256]", "2 Q4NX blocks"],
    );
}

#[test]
fn plain_integers_are_no_weights() {
    let dir = TempDir::new().unwrap();
    let header = r#"{"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}"#;
    write(
        dir.path(),
        "model.safetensors",
        safetensors(header, &[0; 8]),
    );
    let model = Checkpoint::open(dir.path()).unwrap();
    let error = model.require("ids").unwrap().dtype().unwrap_err();
    is_error(&error, "NotWeights", &["model.safetensors", "`ids`", "i64"]);
}

/// Download caches keep a snapshot of links into a folder of files named by their hash.
#[cfg(unix)]
#[test]
fn snapshots_of_links() {
    use std::os::unix::fs::symlink;
    let cache = TempDir::new().unwrap();
    let (blobs, snapshot) = (cache.path().join("blobs"), cache.path().join("snapshots"));
    fs::create_dir(&blobs).unwrap();
    fs::create_dir(&snapshot).unwrap();
    write_sharded(&blobs);
    write_split(&blobs, 2);
    write(&blobs, "config.json", "{}");
    for (i, entry) in fs::read_dir(&blobs).unwrap().enumerate() {
        let entry = entry.unwrap();
        let blob = blobs.join(format!("blob{i}"));
        fs::rename(entry.path(), &blob).unwrap();
        let target = Path::new("../blobs").join(blob.file_name().unwrap());
        symlink(target, snapshot.join(entry.file_name())).unwrap();
    }
    let model = Checkpoint::open(&snapshot).unwrap();
    assert_eq!(model.tensors().len(), 2);
    assert!(model.hf().unwrap().config.is_some());
    let split = Checkpoint::open(&split_path(&snapshot, 2, 2)).unwrap();
    assert_eq!(split.tensors().len(), 2);
}

#[test]
fn embedded_bytes() {
    #[repr(align(64))]
    struct Aligned([u8; 2048]);
    let bytes = Gguf::valid().bytes();
    let mut aligned = Box::new(Aligned([0; 2048]));
    aligned.0[..bytes.len()].copy_from_slice(&bytes);
    aligned.0[1024 + 8..1024 + 8 + bytes.len()].copy_from_slice(&bytes);
    let aligned: &'static Aligned = Box::leak(aligned);
    assert!(bytes.len() <= 1000, "two copies must fit");

    let model = Checkpoint::from_static("demo", &aligned.0[..bytes.len()]).unwrap();
    assert_eq!((model.name(), model.source()), ("demo", Source::Gguf));
    assert_eq!(model.require("a").unwrap().bytes[31], 31);
    let error = Checkpoint::from_static("demo", &aligned.0[1032..1032 + bytes.len()]).unwrap_err();
    is_error(
        &error,
        "EmbeddedAlignment",
        &["demo", "multiple of 32", "8 past"],
    );
    let error = Checkpoint::from_static("demo", b"GGUF").unwrap_err();
    is_error(&error, "Truncated", &["demo", "truncated"]);
}

/// Pages that were read and released leave memory, and hold the same bytes when they are read again.
#[cfg(target_os = "linux")]
#[test]
fn released_pages_leave_memory_and_come_back() {
    const LEN: usize = 1 << 20;
    let dir = TempDir::new().unwrap();
    let content: Vec<u8> = (0..4 * LEN).map(|i| (i % 251) as u8).collect();
    let header = format!("{{{}}}", f32_entry("t", LEN, 0));
    write(dir.path(), "m.safetensors", safetensors(&header, &content));
    let path = dir.path().join("m.safetensors");
    let model = Checkpoint::open(&path).unwrap();
    let bytes = model.require("t").unwrap().bytes;
    let resident_kib = || -> usize {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = maps.split(path.to_str().unwrap()).nth(1).unwrap();
        let rss = ours.lines().find_map(|l| l.strip_prefix("Rss:")).unwrap();
        rss.trim().trim_end_matches("kB").trim().parse().unwrap()
    };
    assert!(bytes == content);
    assert!(resident_kib() >= 4 * LEN / 1024);
    model.release("t", 2 * LEN..4 * LEN);
    assert!((2 * LEN / 1024..3 * LEN / 1024).contains(&resident_kib()));
    model.release("t", 0..usize::MAX);
    assert!(resident_kib() < LEN / 1024);
    model.release("no such tensor", 0..1);
    assert!(bytes == content);
}
