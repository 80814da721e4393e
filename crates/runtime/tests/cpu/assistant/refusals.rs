//! Assistants, targets and rows that are refused.

use std::path::Path;
use std::sync::Arc;

use millrace_format::gguf::{GgufValue, Metadata, Writer};
use millrace_format::{Checkpoint, TensorSpec};
use millrace_runtime::{
    Assistant, CpuEngine, Engine, EngineOptions, Error, KvType, LoadedModel, Speculator, StepOutput,
};
use millrace_testkit::assistant::AssistantGolden;
use millrace_testkit::golden::Golden;

use super::{engine, open, open_draft, read};

#[test]
fn an_assistant_alone_is_refused() {
    for path in AssistantGolden::named("gemma4").files() {
        let told = LoadedModel::open(&path).err().unwrap().to_string();
        assert!(
            told.contains("an assistant") && told.contains("--draft"),
            "{told}"
        );
        let draft = Arc::new(open_draft(&path));
        let made = CpuEngine::new(draft, EngineOptions::default());
        assert_eq!(made.err().unwrap().to_string(), told);
    }
}

#[test]
fn rows_that_make_no_sense_are_refused() {
    let golden = AssistantGolden::named("gemma4");
    let (model, other) = (open(golden.target().hf()), open(golden.target().hf()));
    let draft = open_draft(&golden.files()[0]);
    let mut engine = engine(&model, (None, KvType::F16));
    let mut output = StepOutput::default();
    let mut assistant = Assistant::new(&draft, &model).unwrap();
    let seq = engine.create().unwrap();
    let state = [0.5; 40];
    let empty = engine.assist(&mut assistant, seq, (1, &state), &mut output);
    assert!(!empty.unwrap(), "an empty sequence has nothing to see");
    read(&mut engine, seq, &[1, 2, 3]);
    for (token, width) in [(263, 40), (1, 39), (1, 80)] {
        let given = (token, &[0.0; 80][..width]);
        let told = engine
            .assist(&mut assistant, seq, given, &mut output)
            .unwrap_err();
        let is_bad = matches!(told, Error::BadToken { .. } | Error::BadOption { .. });
        assert!(is_bad, "{told}");
    }
    let mut of_other = Assistant::new(&draft, &other).unwrap();
    let told = engine.assist(&mut of_other, seq, (1, &state), &mut output);
    assert!(
        told.unwrap_err()
            .to_string()
            .contains("assistant of this model")
    );
    engine.release(seq).unwrap();
    let told = engine.assist(&mut assistant, seq, (1, &state), &mut output);
    assert!(matches!(told, Err(Error::NoSequence(_))));
}

#[test]
fn other_targets_are_refused_with_what_differs() {
    let own = AssistantGolden::named("gemma4");
    let told = |draft: &LoadedModel, target: &Path| {
        let engine = engine(&open(target), (None, KvType::F16));
        Speculator::assistant(draft, &engine)
            .err()
            .unwrap()
            .to_string()
    };
    let draft = open_draft(&own.files()[0]);
    for (target, words) in [
        ("gemma4-keys", "`key/value heads of layer 0` is 1; in"),
        ("llama-mha", "`width of the target` is 40; in"),
        ("gemma3-pattern", "`window of layer 0` is 9; in"),
    ] {
        let told = told(&draft, Golden::named(target).hf());
        assert!(
            told.contains(words) && told.contains("does not draft for"),
            "{told}"
        );
    }
    let no_assistant = open_draft(own.target().hf());
    let told_of = told(&no_assistant, own.target().hf());
    assert!(told_of.contains("an assistant"), "{told_of}");
    // The same with one key of the file changed.
    let dir = tempfile::tempdir().unwrap();
    let arch = "gemma4-assistant";
    for (key, value, words) in [
        (
            "attention.sliding_window",
            GgufValue::U32(8),
            "`window of layer 0` is 8; in",
        ),
        (
            "rope.freq_base",
            GgufValue::F32(5e5),
            "`RoPE frequency 1 of layer 3` is",
        ),
        ("rope.freq_base_swa", GgufValue::F32(5e3), "of layer 0` is"),
    ] {
        let draft = changed(dir.path(), |metadata| {
            metadata.insert(format!("{arch}.{key}"), value.clone());
        });
        let told = told(&draft.unwrap(), own.target().hf());
        assert!(told.contains(words), "{key}: {told}");
    }
}

/// A copy of a fixture's GGUF file with other metadata.
fn changed(dir: &Path, change: impl Fn(&mut Metadata)) -> Result<LoadedModel, Error> {
    changed_tensors(dir, change, Some)
}

/// The same, whose tensors `spec` renames, reshapes or leaves out.
fn changed_tensors(
    dir: &Path,
    change: impl Fn(&mut Metadata),
    spec: impl Fn(TensorSpec) -> Option<TensorSpec>,
) -> Result<LoadedModel, Error> {
    let [_, file] = AssistantGolden::named("gemma4").files();
    let source = Checkpoint::open(&file).unwrap();
    let mut metadata = source.gguf().unwrap().clone();
    change(&mut metadata);
    let kept = source.iter().filter_map(|tensor| {
        let spec = spec(TensorSpec::from(tensor.info))?;
        let size = spec.tensor_type.size_bytes(&spec.shape).unwrap();
        Some((spec, tensor.bytes[..size].to_vec()))
    });
    let kept: Vec<(TensorSpec, Vec<u8>)> = kept.collect();
    let specs: Vec<TensorSpec> = kept.iter().map(|(spec, _)| spec.clone()).collect();
    let path = dir.join("changed.gguf");
    let mut writer = Writer::create(&path, &metadata, &specs).unwrap();
    for (spec, bytes) in &kept {
        writer.write(&spec.name, bytes).unwrap();
    }
    writer.commit().unwrap();
    LoadedModel::open_draft(&path)
}

#[test]
fn files_that_lack_a_part_of_an_assistant_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let as_is = |_: &mut Metadata| {};
    for name in [
        "nextn.pre_projection.weight",
        "nextn.post_projection.weight",
        "blk.3.attn_q.weight",
        "blk.0.post_ffw_norm.weight",
        "output_norm.weight",
    ] {
        let without = |spec: TensorSpec| Some(spec).filter(|spec| spec.name != name);
        let told = changed_tensors(dir.path(), as_is, without).err().unwrap();
        let told = told.to_string();
        assert!(told.contains(&format!("`{name}` of shape")), "{told}");
    }
    let narrow = |spec: TensorSpec| match spec.name == "nextn.pre_projection.weight" {
        true => Some(TensorSpec {
            shape: vec![24, 40],
            ..spec
        }),
        false => Some(spec),
    };
    let told = changed_tensors(dir.path(), as_is, narrow)
        .err()
        .unwrap()
        .to_string();
    assert!(
        told.contains("[24, 40]") && told.contains("[24, 80]"),
        "{told}"
    );
    let key = "gemma4-assistant.embedding_length_out";
    for value in [None, Some(0), Some(1 << 30)] {
        let told = changed(dir.path(), |metadata| match value {
            None => metadata.retain(|other| other != key),
            Some(value) => drop(metadata.insert(key, GgufValue::U32(value))),
        });
        let told = told.err().unwrap().to_string();
        assert!(told.contains(key), "{told}");
    }
    let own_keys = |spec: TensorSpec| {
        let name = spec.name.replace("blk.0.attn_q_norm", "blk.0.attn_gate");
        Some(TensorSpec { name, ..spec })
    };
    let told = changed_tensors(dir.path(), as_is, own_keys).err().unwrap();
    assert!(
        told.to_string().contains("blk.0.attn_q_norm.weight"),
        "{told}"
    );
}
