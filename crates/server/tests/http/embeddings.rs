//! Embeddings over HTTP equal the pooled hidden states of an engine, in the form of every API.

use millrace_runtime::{BatchItem, CpuEngine, Embedder, Engine, EngineOptions, LogitsFor, Pooling};
use serde_json::{Value, json};

use crate::client::Client;
use crate::engines::model;
use crate::{Running, engine_options, options, question, shared, with};

const PATH: &str = "/v1/embeddings";

/// Result of an idle engine, with all tokens in one step.
fn expected(text: &str, pooling: Pooling) -> Vec<f32> {
    let content = json!({"content": text, "add_special": true});
    let tokens = shared().ask("/tokenize", &content)["tokens"].clone();
    let tokens: Vec<u32> = serde_json::from_value(tokens).unwrap();
    let mut engine = CpuEngine::new(model(), engine_options()).unwrap();
    let embedder = Embedder::new(engine.model()).unwrap();
    let seq = engine.create().unwrap();
    let item = BatchItem {
        hidden: true,
        ..BatchItem::new(seq, &tokens, LogitsFor::None)
    };
    let output = engine.compute(&[item]).unwrap();
    let mut embedding = embedder.begin(pooling);
    embedder.push(&mut embedding, &output.hidden(0)[embedder.state()]);
    embedding.finish().unwrap()
}

fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap().iter().enumerate();
    let vector = |(i, one): (usize, &Value)| {
        assert_eq!(one["index"], i);
        serde_json::from_value(one["embedding"].clone()).unwrap()
    };
    data.map(vector).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

const TEXTS: [&str; 3] = [
    "The dog ran to the river.",
    "The dog went to the river.",
    "What is 7 plus 5?",
];

#[test]
fn they_are_the_engines_own_bit_for_bit() {
    let answer = shared().ask(PATH, &json!({"model": "demo", "input": TEXTS}));
    let found = vectors(&answer);
    assert_eq!(answer["pooling"], "mean");
    assert_eq!(
        answer["usage"]["prompt_tokens"],
        answer["usage"]["total_tokens"]
    );
    for (text, found) in TEXTS.iter().zip(&found) {
        assert_eq!(*found, expected(text, Pooling::Mean), "{text}");
        assert!((dot(found, found) - 1.0).abs() < 1e-5);
    }
    assert!(dot(&found[0], &found[1]) > dot(&found[0], &found[2]));
    let last = json!({"model": "demo", "input": TEXTS[0], "pooling": "last"});
    assert_eq!(
        vectors(&shared().ask(PATH, &last)),
        [expected(TEXTS[0], Pooling::Last)]
    );
}

#[test]
fn base64_and_tokens_say_the_same() {
    let input = shared().ask(
        "/tokenize",
        &json!({"content": TEXTS[0], "add_special": true}),
    );
    let body = json!({"model": "demo", "input": input["tokens"], "encoding_format": "base64"});
    let answer = shared().ask(PATH, &body);
    let text = answer["data"][0]["embedding"].as_str().unwrap();
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 0,
    };
    let (mut bits, mut n_bits, mut bytes) = (0u32, 0, Vec::new());
    for c in text.bytes().filter(|c| *c != b'=') {
        bits = bits << 6 | u32::from(digit(c));
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push((bits >> n_bits) as u8);
        }
    }
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    let found: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    assert_eq!(found, expected(TEXTS[0], Pooling::Mean));
}

#[test]
fn company_and_a_small_cache_change_no_bit() {
    let mut options = options();
    // Room for two of the texts: the others are preempted, and computed again from their first token.
    let engine = EngineOptions {
        kv_tokens: Some(320),
        n_ctx: Some(256),
        ..engine_options()
    };
    options.models = vec![crate::spec("demo", engine)];
    let server = Running::start(options);
    let long = |i: usize| format!("{} {i}", "Once upon a time there was a dog. ".repeat(9));
    let texts: Vec<String> = (0..6).map(long).collect();
    let alone = |text: &String| expected(text, Pooling::Mean);
    let expected: Vec<Vec<f32>> = texts.iter().map(alone).collect();
    std::thread::scope(|scope| {
        let client: &Client = &server;
        for _ in 0..3 {
            let talk = with(
                question("Hi"),
                json!({"ignore_eos": true, "max_tokens": 60}),
            );
            scope.spawn(move || client.ask("/v1/chat/completions", &talk));
        }
        for _ in 0..2 {
            let body = json!({"model": "demo", "input": texts});
            let found = vectors(&client.ask(PATH, &body));
            assert_eq!(found, expected);
        }
    });
}

#[test]
fn ollama_has_them_too() {
    let body = json!({"model": "demo:latest", "input": [TEXTS[0], TEXTS[2]]});
    let answer = shared().ask("/api/embed", &body);
    let found: Vec<Vec<f32>> = serde_json::from_value(answer["embeddings"].clone()).unwrap();
    assert_eq!(found[1], expected(TEXTS[2], Pooling::Mean));
    assert!(answer["prompt_eval_count"].as_u64().unwrap() > 10);
    let old = shared().ask(
        "/api/embeddings",
        &json!({"model": "demo", "prompt": TEXTS[0]}),
    );
    assert_eq!(old["embedding"], answer["embeddings"][0]);
    // A text that is too long is cut, unless the request forbids it.
    let long = "dog ".repeat(3000);
    let cut = json!({"model": "demo", "input": long});
    shared().ask("/api/embed", &cut);
    let reply = shared().post("/api/embed", &with(cut, json!({"truncate": false})));
    assert_eq!(reply.status, 400);
    let show = shared().ask("/api/show", &json!({"model": "demo"}));
    assert!(show["capabilities"].to_string().contains("embedding"));
}

#[test]
fn fewer_dimensions_are_the_first_at_length_1() {
    let input = json!({"model": "demo", "input": TEXTS[0], "dimensions": 5});
    let cut = vectors(&shared().ask(PATH, &input)).remove(0);
    let whole = expected(TEXTS[0], Pooling::Mean);
    assert_eq!(cut.len(), 5);
    assert!((dot(&cut, &cut) - 1.0).abs() < 1e-5);
    let length = dot(&whole[..5], &whole[..5]).sqrt();
    for (cut, whole) in cut.iter().zip(&whole) {
        assert!((cut * length - whole).abs() < 1e-5);
    }
}

#[test]
fn a_model_without_a_head_for_it_ranks_nothing() {
    let body = json!({"model": "demo", "query": "Who ran?", "documents": ["A dog.", "A cat."]});
    for (path, body) in [
        ("/v1/rerank", body.clone()),
        ("/rerank", json!({"query": "Who ran?", "texts": ["A dog."]})),
        (
            "/v1/score",
            json!({"model": "demo", "text_1": "Who ran?", "text_2": ["A dog."]}),
        ),
    ] {
        let reply = shared().post(path, &body);
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, &error["param"]),
            (400, &json!("model")),
            "{path}"
        );
        assert!(
            error["message"].to_string().contains("reranker"),
            "{path}: {error}"
        );
    }
    for (fields, param) in [
        (json!({"documents": []}), "documents"),
        (json!({"documents": "A dog."}), "documents"),
        (json!({"documents": [3]}), "documents"),
        (json!({"query": null}), "query"),
    ] {
        let reply = shared().post("/v1/rerank", &with(body.clone(), fields));
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param))
        );
    }
}

#[test]
fn wrong_requests_are_told_which_field() {
    let body = json!({"model": "demo", "input": "Hi"});
    for (fields, param, words) in [
        (json!({"input": null}), "input", "required"),
        (json!({"input": []}), "input", "1 to 2048"),
        (json!({"input": [1.5]}), "input", "token ids"),
        (json!({"dimensions": 0}), "dimensions", "elements"),
        (json!({"prompt_name": "query"}), "prompt_name", "no prompts"),
        (json!({"dimensions": 100_000}), "dimensions", "elements"),
        (
            json!({"encoding_format": "int8"}),
            "encoding_format",
            "base64",
        ),
        (json!({"pooling": "max"}), "pooling", "mean, first or last"),
    ] {
        let reply = shared().post(PATH, &with(body.clone(), fields));
        assert_eq!(reply.status, 400, "{}", reply.body);
        let error = &reply.json()["error"];
        assert_eq!(error["param"], param);
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{error}"
        );
    }
    let long = with(body, json!({"input": "dog ".repeat(3000)}));
    let reply = shared().post(PATH, &long);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
}
