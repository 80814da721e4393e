//! Encoders against Hugging Face transformers: hidden states at every level, in batches, from both formats.

use std::path::Path;
use std::sync::Arc;

use crate::converted::convert;
use millrace_format::Checkpoint;
use millrace_model::convert::OutputContainer;
use millrace_runtime::ranking::Ranker;
use millrace_runtime::{
    BatchItem, CpuEngine, Embedder, Embedding, EmbeddingPrompts, Engine, EngineOptions, KvType,
    Level, LoadedModel, LogitsFor, Pooling,
};
use millrace_testkit::compare::assert_logits_close;
use millrace_testkit::encoder::EncoderGolden;
use millrace_testkit::golden::GoldenMatrix;

fn engine(path: &Path, level: Option<Level>, n_threads: usize) -> CpuEngine {
    let model = LoadedModel::open(path).unwrap_or_else(|error| panic!("{error}"));
    let options = EngineOptions {
        level,
        n_threads: Some(n_threads),
        // For a judge, which has a cache.
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
    for golden in EncoderGolden::all() {
        let (tokens, expected) = golden.expected();
        for path in golden.models() {
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
        // A GGUF file has no word for another activation than the family's, and no folder is written of experts.
        if ["bert-tanh", "nomic-bert-moe"].contains(&golden.name) {
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

/// Texts of several lengths, some as short as one token, in company and alone.
#[test]
fn company_and_threads_change_no_bit() {
    for golden in EncoderGolden::all() {
        let (tokens, _) = golden.expected();
        let texts = [&tokens[..7], &tokens[..], &tokens[3..4], &tokens[1..16]];
        let mut one = engine(&golden.model(), None, 1);
        let together = hidden(&mut engine(&golden.model(), None, 2), &texts);
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
        let mut engine = engine(&golden.model(), None, 2);
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

/// The score of a pair whose tokens are given.
fn score(path: &Path, tokens: &[u32]) -> f32 {
    let mut engine = engine(path, None, 2);
    let model = Arc::clone(engine.model());
    let ranker = Ranker::of(&model).unwrap_or_else(|error| panic!("{error}"));
    let embedder = Embedder::new(&model).unwrap();
    let mut score = f32::NAN;
    let mut take = |_: usize, pooled: Embedding| {
        score = ranker.score(&pooled.row()?);
        Ok(())
    };
    let texts = [tokens.to_vec()];
    let pooled = embedder.pool_all(&mut engine, &texts, ranker.pooling(), &mut take);
    pooled.unwrap();
    score
}

/// From folders, from files of llama.cpp, from files converted here, and from folders made from those.
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
        let expected = expected[0].row(0)[0];
        let dir = tempfile::tempdir().unwrap();
        let own = convert(golden.hf(), dir.path(), OutputContainer::Gguf, "F32");
        // A file of llama.cpp lacks a layer of BERT's; the vocabulary of ModernBERT's has no texts.
        let theirs = golden.gguf().filter(|_| name != "bert-rank");
        let back = convert(&own, dir.path(), OutputContainer::Safetensors, "F32");
        let files = [
            Some(golden.hf().to_owned()),
            Some(own),
            theirs,
            Some(back.clone()),
        ];
        for path in files.into_iter().flatten() {
            let found = score(&path, &tokens);
            let what = path.display();
            assert!(
                (found - expected).abs() < 1e-4,
                "{what}: {found}, not {expected}"
            );
            // A folder made from a file has no tokenizer of the other kinds.
            let lacks_tokenizer = path == back && !["bert-rank", "qwen3-rank"].contains(&name);
            if lacks_tokenizer || name == "modern-bert-rank" && path.starts_with(golden.hf()) {
                continue;
            }
            let model = LoadedModel::open(&path).unwrap();
            let prompt =
                Ranker::of(&model)
                    .unwrap()
                    .prompt(&model.tokenizer().unwrap(), PAIR, None);
            assert_eq!(prompt, tokens, "{what}");
        }
    }
}

/// Names as the class in `config.json` has them: transformers initialises a module at random if it does not find its weights.
#[test]
fn a_folder_of_a_file_has_the_names_of_its_class() {
    for (name, class, weights) in [
        (
            "bert",
            "BertModel",
            &["embeddings.word_embeddings.weight"][..],
        ),
        (
            "xlm-roberta-rank",
            "BertForSequenceClassification",
            &[
                "bert.embeddings.LayerNorm.bias",
                "bert.pooler.dense.weight",
                "classifier.bias",
            ],
        ),
        (
            "modern-bert-rank",
            "ModernBertForSequenceClassification",
            &[
                "model.final_norm.weight",
                "head.dense.bias",
                "head.norm.weight",
                "classifier.weight",
            ],
        ),
        ("nomic-bert", "NomicBertModel", &["emb_ln.bias"]),
        ("jina-bert-v3", "JinaEmbeddingsV3Model", &["emb_ln.bias"]),
    ] {
        let golden = EncoderGolden::named(name);
        let dir = tempfile::tempdir().unwrap();
        let gguf = convert(golden.hf(), dir.path(), OutputContainer::Gguf, "F32");
        let folder = convert(&gguf, dir.path(), OutputContainer::Safetensors, "F32");
        let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(config["architectures"][0], class, "{name}");
        let has_labels = config.get("id2label").is_some();
        assert_eq!(has_labels, class.ends_with("Classification"), "{name}");
        let checkpoint = Checkpoint::open(&folder).unwrap();
        for weight in weights {
            assert!(checkpoint.info(weight).is_some(), "{name}: {weight}");
        }
    }
}

/// The layer that llama.cpp's converter drops is missed, not gone without.
#[test]
fn a_classifier_without_its_layer_is_refused() {
    let file = EncoderGolden::named("bert-rank").gguf().unwrap();
    let error = Ranker::of(&LoadedModel::open(&file).unwrap()).unwrap_err();
    assert!(error.to_string().contains("pooler.dense"), "{error}");
}

/// A Qwen 3 for chats has the same weights as a judge, and no mark.
#[test]
fn a_judge_is_marked() {
    let golden = EncoderGolden::named("qwen3-rank");
    let dir = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        for file in [
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ] {
            std::fs::copy(golden.hf().join(file), folder.join(file)).unwrap();
        }
        let config = std::fs::read_to_string(golden.hf().join("config.json")).unwrap();
        let config = config.replace("\"is_original_qwen3_reranker\": true,", "");
        std::fs::write(folder.join("config.json"), config).unwrap();
        folder
    };
    let refused = |path: &Path| {
        let error = Ranker::of(&LoadedModel::open(path).unwrap()).unwrap_err();
        assert!(error.to_string().contains("nothing marks"), "{error}");
    };
    let plain = copy("chat");
    refused(&plain);
    let gguf = convert(&plain, dir.path(), OutputContainer::Gguf, "F32");
    refused(&gguf);
    // Its heading, its name.
    std::fs::write(plain.join("README.md"), "---\n---\n# Qwen3-Reranker-0.6B\n").unwrap();
    assert!(Ranker::of(&LoadedModel::open(&plain).unwrap()).is_ok());
    let named = copy("My-Reranker");
    assert!(Ranker::of(&LoadedModel::open(&named).unwrap()).is_ok());
}

/// A judge's file keeps its mark on the way to a file and back. One of llama.cpp has no head, and its folder does not rank.
#[test]
fn a_judge_stays_one() {
    let golden = EncoderGolden::named("qwen3-rank");
    let (tokens, expected) = golden.expected();
    let dir = tempfile::tempdir().unwrap();
    let gguf = convert(golden.hf(), dir.path(), OutputContainer::Gguf, "F32");
    let model = LoadedModel::open(&gguf).unwrap();
    assert_eq!(Pooling::of(&model).unwrap(), Some(Pooling::Last));
    let back = convert(&gguf, dir.path(), OutputContainer::Safetensors, "F32");
    assert!((score(&back, &tokens) - expected[0].row(0)[0]).abs() < 1e-4);
    let theirs = tempfile::tempdir().unwrap();
    let file = golden.gguf().unwrap();
    let folder = convert(&file, theirs.path(), OutputContainer::Safetensors, "F32");
    let error = Ranker::of(&LoadedModel::open(&folder).unwrap()).unwrap_err();
    assert!(error.to_string().contains("nothing marks"), "{error}");
}

/// The vector of a text, pooled as the files say.
fn vector(path: &Path, tokens: &[u32]) -> Vec<f32> {
    let mut engine = engine(path, None, 2);
    let model = Arc::clone(engine.model());
    let pooling = Pooling::of(&model).unwrap().expect("the files say");
    let embedder = Embedder::new(&model).unwrap();
    let vector = embedder.embed(&mut engine, tokens, pooling).unwrap();
    assert_eq!(vector.len(), embedder.width());
    vector
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() < 2e-6,
            "{what}: {found}, not {expected}"
        );
    }
}

/// Vectors equal those of sentence-transformers: from its folder, from a GGUF file of it, from a folder of that, and from copies.
#[test]
fn vectors_are_those_of_sentence_transformers() {
    for name in ["bert-dense", "gemma-embedding-dense"] {
        let golden = EncoderGolden::named(name);
        let (tokens, _) = golden.expected();
        let expected = golden.embedding();
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let gguf = convert(golden.hf(), dirs[0].path(), OutputContainer::Gguf, "F32");
        let again = convert(&gguf, dirs[1].path(), OutputContainer::Gguf, "F32");
        let folder = convert(&again, dirs[1].path(), OutputContainer::Safetensors, "F32");
        let copied = convert(
            golden.hf(),
            dirs[2].path(),
            OutputContainer::Safetensors,
            "F32",
        );
        let prompts = EmbeddingPrompts::of(&LoadedModel::open(golden.hf()).unwrap()).unwrap();
        assert_eq!(
            prompts.named("query").unwrap(),
            "task: search result | query: "
        );
        for path in [golden.hf(), &gguf, &again, &folder, &copied] {
            let what = path.display().to_string();
            assert_close(&vector(path, &tokens), &expected, &what);
            let model = LoadedModel::open(path).unwrap();
            assert_eq!(EmbeddingPrompts::of(&model).unwrap(), prompts, "{what}");
        }
        for path in [&folder, &copied] {
            let files = millrace_format::hf::Files::read(path).unwrap();
            let source = millrace_format::hf::Files::read(golden.hf()).unwrap();
            assert_eq!(files.modules, source.modules, "{}", path.display());
            assert_eq!(files.pooling, source.pooling, "{}", path.display());
        }
    }
}

/// Qwen3-Embedding is a decoder that takes the last token's row, quantised or not.
#[test]
fn a_decoder_keeps_its_pooling() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("1_Pooling")).unwrap();
    let judge = EncoderGolden::named("qwen3-rank");
    for file in ["model.safetensors", "tokenizer.json", "config.json"] {
        std::fs::copy(judge.hf().join(file), source.join(file)).unwrap();
    }
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let config = config.replace("\"is_original_qwen3_reranker\": true,", "");
    std::fs::write(source.join("config.json"), config).unwrap();
    let pooling = r#"{"word_embedding_dimension": 40, "pooling_mode_lasttoken": true}"#;
    std::fs::write(source.join("1_Pooling/config.json"), pooling).unwrap();
    let tokens: Vec<u32> = (20..50).collect();
    let expected = vector(&source, &tokens);
    let gguf = convert(&source, dir.path(), OutputContainer::Gguf, "F32");
    let folder = convert(&gguf, dir.path(), OutputContainer::Safetensors, "F32");
    for path in [&gguf, &folder] {
        let what = path.display().to_string();
        assert_close(&vector(path, &tokens), &expected, &what);
    }
    let quantised = tempfile::tempdir().unwrap();
    let file = convert(&source, quantised.path(), OutputContainer::Gguf, "Q8_0");
    let model = LoadedModel::open(&file).unwrap();
    assert_eq!(Pooling::of(&model).unwrap(), Some(Pooling::Last));
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

/// Llama Embed's configuration says how rows become one.
#[test]
fn a_configuration_may_give_the_pooling() {
    let golden = EncoderGolden::named("llama-embed");
    let model = LoadedModel::open(golden.hf()).unwrap();
    assert_eq!(Pooling::of(&model).unwrap(), Some(Pooling::Mean));
}
