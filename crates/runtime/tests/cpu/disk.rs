//! Data from disk has the bits that were computed, or is refused by name.

mod pages;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use millrace_runtime::disk::DiskError;
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, Error, KvType, Level, LoadedModel, LogitsFor,
    SeqId,
};
use millrace_testkit::golden::Golden;

/// Full attention; windows; a latent; gated delta nets; short convolutions; selective scans, with experts, beside attention
/// and alone.
const MODELS: [&str; 11] = [
    "llama-llama3",
    "gemma3-256",
    "mistral-window",
    "deepseek-v3",
    "gemma4",
    "qwen35",
    "lfm2",
    "granitehybrid",
    "falcon_h1",
    "mamba",
    "jamba",
];

fn options() -> EngineOptions {
    EngineOptions {
        n_threads: Some(1),
        n_ctx: Some(400),
        max_sequences: 2,
        max_chunk: 48,
        keep_prefixes: true,
        ..EngineOptions::default()
    }
}

fn engine(name: &str, options: EngineOptions) -> CpuEngine {
    let model = LoadedModel::open(Golden::named(name).hf()).unwrap();
    CpuEngine::new(Arc::new(model), options).unwrap()
}

fn text(engine: &CpuEngine, len: usize) -> Vec<u32> {
    let vocab_size = engine.model().model().config.vocab_size;
    (0..len).map(|i| (i * 11 % vocab_size) as u32).collect()
}

fn append(engine: &mut CpuEngine, seq: SeqId, tokens: &[u32]) -> Vec<f32> {
    let item = BatchItem::new(seq, tokens, LogitsFor::All);
    engine.compute(&[item]).unwrap().logits(0).to_vec()
}

/// The logits of the last `n_last` tokens, computed at once.
fn computed(name: &str, options: EngineOptions, tokens: &[u32], n_last: usize) -> Vec<f32> {
    let mut engine = engine(name, options);
    let seq = engine.create().unwrap();
    let all = append(&mut engine, seq, tokens);
    all[(tokens.len() - n_last) * (all.len() / tokens.len())..].to_vec()
}

fn saved(name: &str, options: EngineOptions, n_tokens: usize, path: &Path) {
    let mut engine = engine(name, options);
    let seq = engine.create().unwrap();
    let tokens = text(&engine, n_tokens);
    append(&mut engine, seq, &tokens);
    engine.save_sequence(seq, b"a note", path).unwrap();
}

#[test]
fn a_saved_sequence_goes_on_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    for name in MODELS {
        // Four bits need heads of 32 dimensions.
        let four = ["llama-llama3", "gemma3-256", "mistral-window", "qwen35"].contains(&name);
        let types = [KvType::F16, KvType::F32, KvType::Q8_0];
        for kv_type in types.into_iter().chain(four.then_some(KvType::Q4_0)) {
            let options = EngineOptions {
                kv_type,
                ..options()
            };
            for len in [1, 64, 150] {
                saved(name, options.clone(), len, &path);
                let mut engine = engine(name, options.clone());
                let seq = engine.create().unwrap();
                append(&mut engine, seq, &[5; 70]);
                let note = engine.load_sequence(seq, &path).unwrap();
                assert_eq!(note.as_deref(), Some(&b"a note"[..]));
                let all = text(&engine, len + 20);
                assert_eq!(engine.tokens(seq).unwrap(), &all[..len]);
                let expected = computed(name, options.clone(), &all, 20);
                let case = format!("{name} {kv_type} {len}");
                assert!(append(&mut engine, seq, &all[len..]) == expected, "{case}");
                // The appended tokens can be cut back, as always.
                engine.truncate(seq, len).unwrap();
                assert!(append(&mut engine, seq, &all[len..]) == expected, "{case}");
            }
        }
    }
    // Nothing is left but the file.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_sequence_that_was_cut_is_saved_as_far_as_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    for name in MODELS {
        let mut one = engine(name, options());
        let seq = one.create().unwrap();
        let tokens = text(&one, 150);
        append(&mut one, seq, &tokens);
        one.truncate(seq, 140).unwrap();
        one.save_sequence(seq, b"", &path).unwrap();
        let mut other = engine(name, options());
        let seq = other.create().unwrap();
        other.load_sequence(seq, &path).unwrap().unwrap();
        let held = other.len(seq).unwrap();
        // States exist at the end of a page.
        assert!(held == 140 || held == 128, "{name}: {held}");
        let expected = computed(name, options(), &tokens, tokens.len() - held);
        assert!(
            append(&mut other, seq, &tokens[held..]) == expected,
            "{name}"
        );
    }
}

/// The error with which a file is refused.
fn refusal(engine: &mut CpuEngine, path: &Path) -> DiskError {
    let seq = engine.create().unwrap();
    let error = engine.load_sequence(seq, path).unwrap_err();
    engine.release(seq).unwrap();
    match error {
        Error::Disk(error) => *error,
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine("llama-llama3", options());
    let devices: &[&str] = if cfg!(unix) { &["/dev/null"] } else { &[] };
    for path in devices.iter().map(Path::new).chain([folder.path()]) {
        let error = refusal(&mut engine, path);
        assert!(matches!(error, DiskError::NotRegular { .. }), "{error}");
    }
}

#[test]
fn a_file_of_another_model_or_setting_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    saved("llama-llama3", options(), 100, &path);
    let what = |name: &str, options: EngineOptions| {
        let error = refusal(&mut engine(name, options), &path);
        match error {
            DiskError::Other { what, .. } => what.to_owned(),
            other => other.to_string(),
        }
    };
    assert_eq!(what("qwen3", options()), "model");
    let kv_type = EngineOptions {
        kv_type: KvType::F32,
        ..options()
    };
    assert_eq!(what("llama-llama3", kv_type), "kv-type");
    let level = EngineOptions {
        level: Some(Level::Scalar),
        ..options()
    };
    assert_eq!(what("llama-llama3", level), "level");
    let short = EngineOptions {
        n_ctx: Some(99),
        ..options()
    };
    let found = what("llama-llama3", short);
    assert!(
        found.contains("it holds 100 tokens, and the context has 99"),
        "{found}"
    );

    // A form that is yet to come, and a file of another kind.
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    fs::write(&path, &bytes).unwrap();
    let found = what("llama-llama3", options());
    assert!(
        found.contains("version 9, and this build reads version 1"),
        "{found}"
    );
    fs::write(&path, "GGUF and more than sixteen bytes").unwrap();
    let found = what("llama-llama3", options());
    assert!(found.contains("not a file of cached keys"), "{found}");
    // A missing file is not an error.
    let mut engine = engine("llama-llama3", options());
    let seq = engine.create().unwrap();
    let absent = folder.path().join("absent");
    assert!(engine.load_sequence(seq, &absent).unwrap().is_none());
}

#[test]
fn every_flip_and_every_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    saved("lfm2", options(), 70, &path);
    let whole = fs::read(&path).unwrap();
    let mut engine = engine("lfm2", options());
    let header = 16 + u32::from_le_bytes([12, 13, 14, 15].map(|i| whole[i])) as usize + 4;
    // Every byte of the header, and some bytes of every part of the contents.
    let places: Vec<usize> = (0..header)
        .chain((header..whole.len()).step_by(97))
        .collect();
    for &at in &places {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        refusal(&mut engine, &path);
        fs::write(&path, &whole[..at]).unwrap();
        refusal(&mut engine, &path);
    }
    for extra in [1, 4, 1000] {
        fs::write(&path, [&whole[..], &vec![0; extra]].concat()).unwrap();
        refusal(&mut engine, &path);
    }
    // Refused files have left nothing behind.
    assert_eq!(engine.kv_usage().used_bytes, 0);
    fs::write(&path, &whole).unwrap();
    let seq = engine.create().unwrap();
    engine.load_sequence(seq, &path).unwrap().unwrap();
    let all = text(&engine, 90);
    assert!(append(&mut engine, seq, &all[70..]) == computed("lfm2", options(), &all, 20));
}

/// Headers with valid checksums but false contents.
#[test]
fn lengths_that_no_file_has_are_refused_before_room_is_made_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    saved("mistral-window", options(), 70, &path);
    let whole = fs::read(&path).unwrap();
    let end = 16 + u32::from_le_bytes([12, 13, 14, 15].map(|i| whole[i])) as usize;
    let header = String::from_utf8(whole[16..end].to_vec()).unwrap();
    let mut engine = engine("mistral-window", options());
    let forge = |forged: &str| {
        let mut bytes = whole[..12].to_vec();
        bytes.extend((forged.len() as u32).to_le_bytes());
        bytes.extend(forged.as_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend(&whole[end + 4..]);
        fs::write(&path, bytes).unwrap();
    };
    for (from, to) in [
        ("\"n_tokens\":70", "\"n_tokens\":399"),
        ("\"n_tokens\":70", "\"n_tokens\":18446744073709551615"),
        ("\"n_tokens\":70", "\"n_tokens\":7"),
        ("\"note_bytes\":6", "\"note_bytes\":18446744073709551615"),
        ("\"note_bytes\":6", "\"note_bytes\":2"),
        ("\"n_pages\":2", "\"n_pages\":18446744073709551615"),
        ("\"n_pages\":2", "\"n_pages\":1"),
        ("\"first\":0", "\"first\":1"),
        ("\"first\":0", "\"first\":18446744073709551615"),
        ("\"kind\":\"sequence\"", "\"kind\":\"other\""),
    ] {
        assert!(header.contains(from), "{header}");
        forge(&header.replacen(from, to, 1));
        refusal(&mut engine, &path);
    }
    // Files of another engine are refused by the name of the property that differs.
    for (key, what) in [
        ("build", "build"),
        ("layers", "layers"),
        ("page_tokens", "tokens a page of"),
    ] {
        let from = format!("\"{key}\":");
        let (before, behind) = header.split_once(&from).unwrap();
        // The first digit or letter of the value is another.
        let (quote, value) = match behind.strip_prefix('"') {
            Some(value) => ("\"", value),
            None => ("", behind),
        };
        let other = if value.starts_with('1') { '2' } else { '1' };
        forge(&format!("{before}{from}{quote}{other}{}", &value[1..]));
        match refusal(&mut engine, &path) {
            DiskError::Other { what: found, .. } => assert_eq!(found, what),
            other => panic!("{key}: {other}"),
        }
    }
    assert_eq!(engine.kv_usage().used_bytes, 0);
}
