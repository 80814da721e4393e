//! Encoders against Hugging Face transformers: hidden states at every level, in batches, from both formats.

use std::path::Path;
use std::sync::Arc;

use crate::converted::convert;
use millrace_model::convert::OutputContainer;
use millrace_runtime::ranking::Ranker;
use millrace_runtime::{
    BatchItem, CpuEngine, Embedder, Embedding, Engine, EngineOptions, KvType, Level, LoadedModel,
    LogitsFor, Pooling,
};
use millrace_testkit::compare::assert_logits_close;
use millrace_testkit::encoder::EncoderGolden;
use millrace_testkit::golden::GoldenMatrix;

fn engine(path: &Path, level: Option<Level>, n_threads: usize) -> CpuEngine {
    let model = LoadedModel::open(path).unwrap_or_else(|error| panic!("{error}"));
    let options = EngineOptions {
        level,
        n_threads: Some(n_threads),
        // Of a judge, which has a cache.
        kv_type: KvType::F32,
        max_sequences: 4,
        max_chunk: 3,
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::new(model), options).unwrap_or_else(|error| panic!("{error}"))
}

/// Hidden states of each text, all in one step.
fn hidden(engine: &mut CpuEngine, texts: &[&[u32]]) -> Vec<Vec<Vec<f32>>> {
    let seqs: Vec<_> = texts.iter().map(|_| engine.create().unwrap()).collect();
    let items = texts.iter().zip(&seqs).map(|(tokens, seq)| BatchItem {
        hidden: true,
        ..BatchItem::new(*seq, tokens, LogitsFor::None)
    });
    let items: Vec<_> = items.collect();
    let output = engine.compute(&items).unwrap();
    seqs.into_iter()
        .for_each(|seq| engine.release(seq).unwrap());
    (0..texts.len())
        .map(|i| output.hidden(i).to_vec())
        .collect()
}

#[test]
fn hidden_states_are_those_of_transformers() {
    let experts = EncoderGolden::named("nomic-bert-moe");
    for golden in EncoderGolden::all().into_iter().chain([experts]) {
        let (tokens, expected) = golden.expected();
        // Experts are read from GGUF files alone.
        let folder = Some(golden.hf().to_owned()).filter(|_| golden.name != "nomic-bert-moe");
        for path in [folder, golden.gguf()].into_iter().flatten() {
            for level in Level::supported() {
                let mut engine = engine(&path, Some(level), 2);
                let found = hidden(&mut engine, &[&tokens]).remove(0);
                assert_eq!(found.len(), expected.len());
                let width = engine.model().model().config.d_model;
                for (i, (data, expected)) in found.into_iter().zip(&expected).enumerate() {
                    let what = format!("{} at {level}, hidden state {i}", path.display());
                    assert_logits_close(&GoldenMatrix { width, data }, expected, &what);
                }
            }
        }
    }
}

/// To GGUF and back to a folder: in float32 the same states.
#[test]
fn conversions_compute_the_same() {
    for golden in EncoderGolden::all() {
        // A GGUF file has no word for another activation than the family's.
        if golden.name == "bert-tanh" {
            continue;
        }
        let (tokens, expected) = golden.expected();
        let dir = tempfile::tempdir().unwrap();
        let gguf = convert(golden.hf(), dir.path(), OutputContainer::Gguf, "F32");
        let folder = convert(&gguf, dir.path(), OutputContainer::Safetensors, "F32");
        for path in [&gguf, &folder] {
            let mut engine = engine(path, None, 2);
            let found = hidden(&mut engine, &[&tokens]).remove(0);
            let width = engine.model().model().config.d_model;
            let (data, expected) = (found.last().unwrap().clone(), expected.last().unwrap());
            let what = format!("{} as {}", golden.name, path.display());
            assert_logits_close(&GoldenMatrix { width, data }, expected, &what);
        }
    }
}

/// Texts of several lengths, some as short as one token, beside each other and alone.
#[test]
fn company_and_threads_change_no_bit() {
    for golden in EncoderGolden::all() {
        let (tokens, _) = golden.expected();
        let texts = [&tokens[..7], &tokens[..], &tokens[3..4], &tokens[1..16]];
        let mut one = engine(golden.hf(), None, 1);
        let together = hidden(&mut engine(golden.hf(), None, 2), &texts);
        for (text, together) in texts.iter().zip(together) {
            assert_eq!(
                hidden(&mut one, &[text]).remove(0),
                together,
                "{}",
                golden.name
            );
        }
    }
}

#[test]
fn embeddings_are_pooled_rows_of_the_last_state() {
    for golden in EncoderGolden::all() {
        let (tokens, _) = golden.expected();
        let last = golden.last();
        let mut engine = engine(golden.hf(), None, 2);
        let embedder = Embedder::new(engine.model()).unwrap();
        let pool = |pooling: Pooling, column: usize| -> f64 {
            let at = |row: usize| f64::from(last.row(row)[column]);
            match pooling {
                Pooling::Mean => (0..last.n()).map(at).sum::<f64>() / last.n() as f64,
                Pooling::First => at(0),
                Pooling::Last => at(last.n() - 1),
            }
        };
        for pooling in [Pooling::Mean, Pooling::First, Pooling::Last] {
            let expected: Vec<f64> = (0..last.width)
                .map(|column| pool(pooling, column))
                .collect();
            let length = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
            let alone = embedder.embed(&mut engine, &tokens, pooling).unwrap();
            for (found, expected) in alone.iter().zip(&expected) {
                assert!(
                    (f64::from(*found) - expected / length).abs() < 1e-5,
                    "{pooling:?}"
                );
            }
            // Many at once, the same bits.
            let texts = [tokens[..5].to_vec(), tokens.clone(), tokens[..1].to_vec()];
            let mut all = vec![Vec::new(); texts.len()];
            let mut keep = |index: usize, vector| {
                all[index] = vector;
                Ok(())
            };
            let done = embedder.embed_all(&mut engine, &texts, pooling, &mut keep);
            done.unwrap();
            for (text, found) in texts.iter().zip(all) {
                assert_eq!(found, embedder.embed(&mut engine, text, pooling).unwrap());
            }
        }
    }
}

/// The pair of the fixtures.
const PAIR: (&str, &str) = (
    "What runs to the river?",
    "A dog ran along, and saw the river.",
);

#[test]
fn pairs_have_the_scores_of_transformers() {
    for name in [
        "bert-rank",
        "modern-bert-rank",
        "qwen3-rank",
        "xlm-roberta-rank",
    ] {
        let golden = EncoderGolden::named(name);
        let (tokens, expected) = golden.expected();
        let mut engine = engine(golden.hf(), None, 2);
        let model = Arc::clone(engine.model());
        let ranker = Ranker::of(&model).unwrap();
        let tokenizer = model.tokenizer().unwrap();
        let prompt = ranker.prompt(&tokenizer, PAIR, None);
        assert_eq!(prompt, tokens, "{name}");
        let embedder = Embedder::new(&model).unwrap();
        let mut score = f32::NAN;
        let mut take = |_: usize, pooled: Embedding| {
            score = ranker.score(&pooled.row()?);
            Ok(())
        };
        let pooled = embedder.pool_all(&mut engine, &[prompt], ranker.pooling(), &mut take);
        pooled.unwrap();
        let expected = expected[0].row(0)[0];
        assert!(
            (score - expected).abs() < 1e-4,
            "{name}: {score}, not {expected}"
        );
    }
}

/// The head of a file of llama.cpp, which has no vocabulary of texts here.
#[test]
fn a_file_of_llama_cpp_has_the_head_too() {
    let golden = EncoderGolden::named("modern-bert-rank");
    let (tokens, expected) = golden.expected();
    let mut engine = engine(&golden.gguf().unwrap(), None, 2);
    let model = Arc::clone(engine.model());
    let ranker = Ranker::of(&model).unwrap();
    assert_eq!(ranker.pooling(), Pooling::Mean);
    let mut score = f32::NAN;
    let mut take = |_: usize, pooled: Embedding| {
        score = ranker.score(&pooled.row()?);
        Ok(())
    };
    let embedder = Embedder::new(&model).unwrap();
    let pooled = embedder.pool_all(&mut engine, &[tokens], ranker.pooling(), &mut take);
    pooled.unwrap();
    assert!((score - expected[0].row(0)[0]).abs() < 1e-4, "{score}");
}

#[test]
fn a_model_without_a_classifier_ranks_nothing() {
    for name in ["bert", "nomic-bert"] {
        let model = LoadedModel::open(EncoderGolden::named(name).hf()).unwrap();
        let error = Ranker::of(&model).unwrap_err().to_string();
        assert!(error.contains("classifier"), "{error}");
    }
}

#[test]
fn an_encoder_writes_nothing_and_reads_a_text_at_once() {
    let golden = EncoderGolden::named("bert");
    let mut engine = engine(golden.hf(), None, 1);
    let seq = engine.create().unwrap();
    let text = [5u32; 9];
    let error = engine.compute(&[BatchItem::last(seq, &text)]).unwrap_err();
    assert!(error.to_string().contains("encoder"), "{error}");
    let item = BatchItem::new(seq, &text, LogitsFor::None);
    engine.compute(&[item]).unwrap();
    let error = engine.compute(&[item]).unwrap_err();
    assert!(error.to_string().contains("one whole text"), "{error}");
    engine.truncate(seq, 0).unwrap();
    // Positions beyond the table of 70.
    let long = vec![5u32; 71];
    let error = engine.compute(&[BatchItem::new(seq, &long, LogitsFor::None)]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("70"), "{error}");
}
