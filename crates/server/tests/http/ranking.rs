//! Encoders over HTTP: embeddings, and pairs ranked by a classifier, compared with the engine's results.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_runtime::ranking::Ranker;
use millrace_runtime::{
    CpuEngine, Embedder, Embedding, Engine, EngineOptions, LoadedModel, Pooling,
};
use millrace_server::scheduler::EngineSetup;
use millrace_server::{ModelSpec, ServerOptions};
use serde_json::{Value, json};

use crate::{Running, options, spec};

const QUERY: &str = "What runs to the river?";
const TEXTS: [&str; 3] = [
    "A dog ran along.",
    "the fog",
    "A dog ran along, and saw the river.",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/encoders/xlm-roberta-rank")
}

fn engine() -> CpuEngine {
    let options = EngineOptions {
        n_threads: Some(1),
        max_sequences: 2,
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::new(LoadedModel::open(&folder()).unwrap()), options).unwrap()
}

fn server() -> Running {
    let encoder = ModelSpec {
        open: Arc::new(|| Ok(EngineSetup::from(Box::new(engine()) as Box<dyn Engine>))),
        ..spec("ranker", EngineOptions::default())
    };
    Running::start(ServerOptions {
        models: vec![encoder],
        ..options()
    })
}

/// The scores of the texts, from the engine.
fn scores() -> Vec<f32> {
    let mut engine = engine();
    let model = Arc::clone(engine.model());
    let ranker = Ranker::of(&model).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let pairs = TEXTS.map(|text| ranker.prompt(&tokenizer, (QUERY, text), None));
    let mut scores = vec![0.0; TEXTS.len()];
    let mut take = |index: usize, pooled: Embedding| {
        scores[index] = ranker.score(&pooled.row()?);
        Ok(())
    };
    let embedder = Embedder::new(&model).unwrap();
    let pooled = embedder.pool_all(&mut engine, &pairs, ranker.pooling(), &mut take);
    pooled.unwrap();
    scores
}

fn close(found: &Value, expected: f32) {
    let found = found.as_f64().unwrap() as f32;
    assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
}

#[test]
fn every_route_ranks_as_the_engine_does() {
    let running = server();
    let scores = scores();
    let mut order = [0, 1, 2];
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let body =
        json!({"model": "ranker", "query": QUERY, "documents": TEXTS, "return_documents": true});
    let answer = running.client.ask("/v1/rerank", &body);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for (result, index) in results.iter().zip(order) {
        assert_eq!(result["index"], index);
        assert_eq!(result["document"]["text"], TEXTS[index]);
        close(&result["relevance_score"], Ranker::relevance(scores[index]));
    }
    assert!(answer["usage"]["total_tokens"].as_u64().unwrap() > 30);
    // text-embeddings-inference: another field for the texts, a plain list, unscaled numbers.
    let body = json!({"query": QUERY, "texts": TEXTS, "raw_scores": true, "top_n": 1});
    let answer = running.client.ask("/rerank", &body);
    assert_eq!(
        (answer.as_array().unwrap().len(), &answer[0]["index"]),
        (1, &json!(order[0]))
    );
    close(&answer[0]["score"], scores[order[0]]);
    let body = json!({"model": "ranker", "text_1": QUERY, "text_2": TEXTS});
    let answer = running.client.ask("/v1/score", &body);
    for (index, score) in scores.iter().enumerate() {
        close(&answer["data"][index]["score"], Ranker::relevance(*score));
    }
    let uneven = json!({"model": "ranker", "text_1": ["a", "b"], "text_2": ["c"]});
    assert_eq!(running.client.post("/v1/score", &uneven).status, 400);
}

/// More texts than sequences, of different lengths: each is read whole.
#[test]
fn an_encoder_embeds_and_writes_nothing() {
    let running = server();
    let texts: Vec<&str> = TEXTS.iter().cycle().take(7).copied().collect();
    let body = json!({"model": "ranker", "input": texts, "pooling": "cls"});
    let answer = running.client.ask("/v1/embeddings", &body);
    assert_eq!(answer["pooling"], "first");
    let mut engine = engine();
    let model = Arc::clone(engine.model());
    let embedder = Embedder::new(&model).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    for (index, text) in texts.iter().enumerate() {
        let options = millrace_text::EncodeOptions {
            add_special: true,
            parse_special: false,
        };
        let tokens = tokenizer.encode(text, options);
        let expected = embedder
            .embed(&mut engine, &tokens, Pooling::First)
            .unwrap();
        let found: Vec<f32> =
            serde_json::from_value(answer["data"][index]["embedding"].clone()).unwrap();
        assert_eq!(found, expected, "{text}");
    }
    let body = json!({"model": "ranker", "prompt": "A dog"});
    let reply = running.client.post("/v1/completions", &body);
    assert_eq!(reply.status, 400);
    assert!(
        reply.json()["error"]["message"]
            .to_string()
            .contains("encoder")
    );
}
