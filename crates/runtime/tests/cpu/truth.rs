//! Every family against Hugging Face transformers: in one pass, in chunks, token by token, and in
//! ragged batches; at every position; from Hugging Face folders and from GGUF.

use std::path::Path;
use std::sync::Arc;

use millrace_format::gguf::{Metadata, Writer};
use millrace_format::{Checkpoint, TensorSpec};
use millrace_graph::{Linear, Op};
use millrace_runtime::{
    BatchItem, CpuEngine, Embedder, Engine, EngineOptions, KvType, Level, LoadedModel, LogitsFor,
    Pooling,
};
use millrace_testkit::compare::{assert_logits_close, assert_top5};
use millrace_testkit::golden::{Golden, GoldenMatrix, context};

fn open(path: &Path) -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(path).unwrap_or_else(|error| panic!("{error}")))
}

/// An engine with exact keys and values: the goldens are float32.
fn engine(model: &Arc<LoadedModel>, level: Option<Level>, max_chunk: usize) -> CpuEngine {
    let options = EngineOptions {
        level,
        n_ctx: context(model.model().config.position_limit()),
        kv_type: KvType::F32,
        max_sequences: 4,
        max_chunk,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::clone(model), options).unwrap_or_else(|error| panic!("{error}"))
}

/// Logits of every token, computed in steps of the given sizes (the last one repeats).
fn logits(engine: &mut CpuEngine, tokens: &[u32], sizes: &[usize]) -> GoldenMatrix {
    let seq = engine.create().unwrap();
    let mut rows = GoldenMatrix {
        width: engine.model().model().config.vocab_size,
        data: Vec::new(),
    };
    let mut rest = tokens;
    let mut sizes = sizes
        .iter()
        .copied()
        .chain(std::iter::repeat(sizes[sizes.len() - 1]));
    while !rest.is_empty() {
        let (now, later) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
        let item = BatchItem::new(seq, now, LogitsFor::All);
        rows.data
            .extend_from_slice(engine.compute(&[item]).unwrap().logits(0));
        rest = later;
    }
    engine.release(seq).unwrap();
    rows
}

#[test]
fn logits_and_hidden_states_are_those_of_transformers() {
    for golden in Golden::all() {
        let expected = golden.expected();
        let model = open(golden.hf());
        for level in Level::supported() {
            let mut engine = engine(&model, Some(level), 512);
            let what = format!("{} at {level}", golden.name);
            let found = logits(&mut engine, &expected.tokens, &[expected.tokens.len()]);
            assert_logits_close(&found, &expected.logits, &what);

            let seq = engine.create().unwrap();
            let tokens = &expected.tokens;
            let item = BatchItem {
                hidden: true,
                ..BatchItem::new(seq, tokens, LogitsFor::None)
            };
            let output = engine.compute(&[item]).unwrap();
            assert_eq!(output.hidden(0).len(), expected.hidden.len());
            for (i, (found, expected)) in output.hidden(0).iter().zip(&expected.hidden).enumerate()
            {
                let found = GoldenMatrix {
                    width: output.d_model(),
                    data: found.clone(),
                };
                assert_logits_close(&found, expected, &format!("{what}, hidden state {i}"));
            }
        }
    }
}

/// The head is linear, so of the pooled rows it makes the pooled logits: those of transformers, up to the length
/// that normalising took away.
#[test]
fn embeddings_are_what_the_head_reads() {
    let mut n_checked = 0;
    for golden in Golden::all() {
        let expected = golden.expected();
        let model = open(golden.hf());
        let graph = &model.model().graph;
        let head = graph
            .nodes
            .iter()
            .find(|node| Some(node.output) == graph.logits);
        // A soft bound or a bias on logits is not linear.
        let Op::Linear(Linear { weight, bias: None }) = head.unwrap().op else {
            continue;
        };
        // A projection to the width of the table (OPT 350M) is none of an embedding's steps.
        let mut nodes = graph.nodes.iter();
        let before = nodes.find(|node| Some(node.output) == graph.head_input);
        if matches!(before.unwrap().op, Op::Scale(_)) {
            assert!(Embedder::new(&model).is_err(), "{}", golden.name);
            continue;
        }
        n_checked += 1;
        let head = &graph.weights[weight.0];
        // Not the tensor's, where rows are divided by their lengths.
        let bytes = model.weight_bytes(weight);
        let mut matrix = vec![0.0; head.n * head.k];
        millrace_quant::decode_blocks(head.dtype, bytes, &mut matrix).unwrap();
        let embedder = Embedder::new(&model).unwrap();
        let tokens = &expected.tokens;
        for pooling in [Pooling::Mean, Pooling::First, Pooling::Last] {
            // In uneven parts.
            let mut engine = engine(&model, None, 3);
            let seq = engine.create().unwrap();
            let mut embedding = embedder.begin(pooling);
            for part in tokens.chunks(5) {
                let item = BatchItem::new(seq, part, LogitsFor::None);
                let item = BatchItem {
                    hidden: true,
                    ..item
                };
                let output = engine.compute(&[item]).unwrap();
                embedder.push(&mut embedding, &output.hidden(0)[embedder.state()]);
            }
            assert_eq!(embedding.n_tokens(), tokens.len());
            let vector = embedding.finish().unwrap();
            let length: f32 = vector.iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-5, "{length}");
            let rows = expected.logits.data.chunks_exact(expected.logits.width);
            let pooled: Vec<f64> = match pooling {
                Pooling::First => expected
                    .logits
                    .row(0)
                    .iter()
                    .map(|x| f64::from(*x))
                    .collect(),
                Pooling::Last => rows.last().unwrap().iter().map(|x| f64::from(*x)).collect(),
                Pooling::Mean => {
                    let mut sum = vec![0.0; head.n];
                    rows.for_each(|row| {
                        sum.iter_mut()
                            .zip(row)
                            .for_each(|(sum, x)| *sum += f64::from(*x));
                    });
                    sum
                }
            };
            let dot = |row: &[f32]| -> f64 {
                row.iter()
                    .zip(&vector)
                    .map(|(w, x)| f64::from(*w) * f64::from(*x))
                    .sum()
            };
            let found: Vec<f64> = matrix.chunks_exact(head.k).map(dot).collect();
            let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let cosine = product(&found, &pooled)
                / (product(&found, &found) * product(&pooled, &pooled)).sqrt();
            assert!(cosine > 1.0 - 1e-7, "{} {pooling:?}: {cosine}", golden.name);
        }
    }
    assert!(n_checked >= 16, "{n_checked} checked");
}

#[test]
fn both_spellings_of_a_configuration_and_both_file_formats_agree() {
    for golden in Golden::all() {
        let expected = golden.expected();
        let n = expected.tokens.len();
        let check = |path: &Path, what: &str| {
            let found = logits(&mut engine(&open(path), None, 512), &expected.tokens, &[n]);
            assert_logits_close(&found, &expected.logits, &format!("{} {what}", golden.name));
        };
        if let Some(folder) = golden.hf_v4() {
            check(folder.path(), "in transformers 4's spelling");
        }
        if let Some(gguf) = golden.gguf() {
            check(&gguf, "as llama.cpp converts it");
        }
    }
}

#[test]
fn chunks_single_tokens_and_batches_change_no_bit() {
    for golden in Golden::all() {
        let tokens = golden.expected().tokens;
        let model = open(golden.hf());
        let mut whole = engine(&model, None, 512);
        let expected = logits(&mut whole, &tokens, &[tokens.len()]);
        for sizes in [&[1][..], &[7], &[16], &[64, 1], &[3, 5, 33]] {
            let found = logits(&mut whole, &tokens, sizes);
            assert!(found == expected, "{} in steps of {sizes:?}", golden.name);
        }
        // The engine's own chunking, by a size that divides no prompt.
        let found = logits(&mut engine(&model, None, 13), &tokens, &[tokens.len()]);
        assert!(found == expected, "{} in chunks of 13", golden.name);
        ragged(&golden.name, &mut whole, &tokens, &expected);
    }
}

/// The tokens in uneven steps, sharing every step with two other sequences.
fn ragged(name: &str, engine: &mut CpuEngine, tokens: &[u32], expected: &GoldenMatrix) {
    let [seq, other, third] = [0; 3].map(|_| engine.create().unwrap());
    let mut found = GoldenMatrix {
        width: expected.width,
        data: Vec::new(),
    };
    let n_vocab = expected.width as u32;
    let noise: Vec<u32> = (0..200u32).map(|i| (i * 37 + 5) % n_vocab).collect();
    let mut at = 0;
    for (i, size) in [2, 9, 1, 40, 1, 1, 17].into_iter().cycle().enumerate() {
        let size = size.min(tokens.len() - at);
        if size == 0 {
            break;
        }
        let n_noise = 1 + i * 5 % 11;
        let batch = [
            BatchItem::new(other, &noise[..n_noise], LogitsFor::Last),
            BatchItem::new(seq, &tokens[at..at + size], LogitsFor::All),
            BatchItem::new(third, &noise[n_noise..n_noise + 3], LogitsFor::None),
        ];
        found
            .data
            .extend_from_slice(engine.compute(&batch).unwrap().logits(1));
        at += size;
    }
    for seq in [seq, other, third] {
        engine.release(seq).unwrap();
    }
    assert!(found == *expected, "{name} in a ragged batch");
}

#[test]
fn threads_change_no_bit() {
    for golden in Golden::all() {
        let tokens = golden.expected().tokens;
        let model = open(golden.hf());
        let with_threads = |n_threads| {
            let options = EngineOptions {
                n_ctx: context(model.model().config.position_limit()),
                n_threads: Some(n_threads),
                kv_type: KvType::F16,
                ..EngineOptions::default()
            };
            let mut engine = CpuEngine::new(Arc::clone(&model), options).unwrap();
            logits(&mut engine, &tokens, &[tokens.len()])
        };
        let one = with_threads(1);
        assert!(one == with_threads(2), "{}", golden.name);
        assert!(one == with_threads(3), "{}", golden.name);
    }
}

#[test]
fn smaller_cache_types_pass_the_top_five_gate() {
    for golden in Golden::all() {
        let expected = golden.expected();
        let model = open(golden.hf());
        for kv_type in [KvType::F16, KvType::BF16, KvType::Q8_0] {
            let options = EngineOptions {
                kv_type,
                n_ctx: context(model.model().config.position_limit()),
                ..EngineOptions::default()
            };
            let mut engine = CpuEngine::new(Arc::clone(&model), options).unwrap();
            let found = logits(&mut engine, &expected.tokens, &[32]);
            let what = format!("{} with a {kv_type} cache", golden.name);
            assert_top5(&found, &expected.logits, &what);
        }
    }
}

/// Allowed loss of logits with caches of few bits: the normalised mean square error, of models that were not trained to tolerate it.
#[test]
fn caches_of_few_bits_lose_little_or_are_refused_by_name() {
    let (mut n_held, mut n_refused) = (0, 0);
    for golden in Golden::all() {
        let expected = golden.expected();
        let model = open(golden.hf());
        for (kv_type, most) in [
            (KvType::Q6_0, 0.03),
            (KvType::Q5_0, 0.06),
            (KvType::Q4_0, 0.2),
        ] {
            let options = EngineOptions {
                kv_type,
                n_ctx: context(model.model().config.position_limit()),
                ..EngineOptions::default()
            };
            let what = format!("{} with a {kv_type} cache", golden.name);
            let mut engine = match CpuEngine::new(Arc::clone(&model), options) {
                Ok(engine) => engine,
                Err(error) => {
                    let error = error.to_string();
                    for words in ["head_dim", "a multiple of 32", kv_type.name()] {
                        assert!(error.contains(words), "{what}: {error}");
                    }
                    n_refused += 1;
                    continue;
                }
            };
            n_held += 1;
            let found = logits(&mut engine, &expected.tokens, &[expected.tokens.len()]);
            // However the prompt is cut, and whatever part of it the cache already holds.
            assert!(
                found == logits(&mut engine, &expected.tokens, &[32]),
                "{what}"
            );
            let pairs = found.data.iter().zip(&expected.logits.data);
            let error: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let all: f64 = expected
                .logits
                .data
                .iter()
                .map(|b| f64::from(*b).powi(2))
                .sum();
            assert!(error <= most * all, "{what}: {}", error / all);
        }
    }
    assert!(
        n_held > 30 && n_refused > 100,
        "{n_held} held, {n_refused} refused"
    );
}

#[test]
fn a_fork_continues_as_its_parent_would() {
    let golden = Golden::named("llama-llama3");
    let tokens = golden.expected().tokens;
    let model = open(golden.hf());
    let mut engine = engine(&model, None, 512);
    let expected = logits(&mut engine, &tokens, &[tokens.len()]);
    let (head, tail) = tokens.split_at(70);
    let parent = engine.create().unwrap();
    engine.compute(&[BatchItem::last(parent, head)]).unwrap();
    let fork = engine.fork(parent).unwrap();
    // The parent goes another way first.
    engine
        .compute(&[BatchItem::last(parent, &[1, 2, 3])])
        .unwrap();
    let item = BatchItem::new(fork, tail, LogitsFor::All);
    let found = engine.compute(&[item]).unwrap().logits(0).to_vec();
    assert!(found == expected.data[70 * expected.width..]);
    // And comes back.
    engine.truncate(parent, 70).unwrap();
    let item = BatchItem::new(parent, tail, LogitsFor::All);
    assert!(engine.compute(&[item]).unwrap().logits(0) == found);
}

/// A GGUF file of a golden under the name of another family.
fn renamed(golden: &Golden, architecture: &str, dir: &Path) -> std::path::PathBuf {
    let source = Checkpoint::open(&golden.gguf().unwrap()).unwrap();
    let metadata = source.gguf().unwrap();
    let old = metadata.get_str("general.architecture").unwrap().unwrap();
    let mut other = Metadata::new();
    other.insert("general.architecture", architecture);
    for (key, value) in metadata.iter() {
        let (name, rest) = key.split_once('.').unwrap();
        match (name == old, key == "general.architecture") {
            (true, _) => other.insert(format!("{architecture}.{rest}"), value.clone()),
            (_, true) => continue,
            _ => other.insert(key, value.clone()),
        };
    }
    let path = dir.join(format!("{architecture}.gguf"));
    let specs: Vec<TensorSpec> = source.tensors().iter().map(TensorSpec::from).collect();
    let mut writer = Writer::create(&path, &other, &specs).unwrap();
    for tensor in source.iter() {
        writer.write(&tensor.info.name, tensor.bytes).unwrap();
    }
    writer.commit().unwrap();
    path
}

/// GGUF files of InternLM 2 and XVERSE compute the same as a Llama's, as llama.cpp's graphs of them show.
#[test]
fn some_gguf_files_are_a_cousin_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Golden::named("llama-llama3");
    let expected = golden.expected();
    for architecture in ["internlm2", "xverse"] {
        let model = open(&renamed(&golden, architecture, dir.path()));
        assert_eq!(model.model().config.family, architecture);
        let n = expected.tokens.len();
        let found = logits(&mut engine(&model, None, 512), &expected.tokens, &[n]);
        assert_logits_close(&found, &expected.logits, architecture);
    }
    // A family that transformers has no class for has no folder.
    let golden = Golden::named("nemotron_h-experts");
    let model = open(&golden.gguf().unwrap());
    let folder = millrace_model::config::hf::write(&model.model().config);
    let error = folder.unwrap_err().to_string();
    for word in ["nemotron_h_moe", "no class"] {
        assert!(error.contains(word), "{error}");
    }
}
