//! Images of any size in requests of every API, for models that support it.

use std::sync::Arc;

use millrace_runtime::{CpuEngine, Engine, EngineOptions, LoadedModel};
use millrace_server::scheduler::EngineSetup;
use millrace_server::{ModelSpec, ServerOptions};
use millrace_testkit::vision::VisionGolden;
use serde_json::{Value, json};

use crate::images::{base64, image, resized};
use crate::{Running, options, spec};

/// A server with the model of a golden.
fn serve(name: &'static str) -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    VisionGolden::named(name).copy_with_chat(folder.path());
    let path = folder.path().to_owned();
    let engine_options = EngineOptions {
        n_ctx: Some(256),
        ..crate::engine_options()
    };
    let open = move || {
        let model = LoadedModel::open(&path).map_err(|error| error.to_string())?;
        let engine = CpuEngine::new(Arc::new(model), engine_options.clone());
        let engine: Box<dyn Engine> = Box::new(engine.map_err(|error| error.to_string())?);
        Ok(EngineSetup::from(engine))
    };
    let spec = ModelSpec {
        open: Arc::new(open),
        ..spec("seeing", crate::engine_options())
    };
    let options = ServerOptions {
        models: vec![spec],
        ..options()
    };
    (Running::start(options), folder)
}

fn openai(images: &[&str]) -> Value {
    let image = |data: &&str| {
        let url = format!("data:image/png;base64,{data}");
        json!({"type": "image_url", "image_url": {"url": url}})
    };
    let mut content: Vec<Value> = images.iter().map(image).collect();
    content.push(json!({"type": "text", "text": "What?"}));
    json!({"model": "seeing", "temperature": 0, "max_tokens": 6, "logprobs": true,
        "messages": [{"role": "user", "content": content}]})
}

/// The number of an image's rows depends on its size, and is known before it is encoded.
#[test]
fn images_of_any_size_mean_the_same_in_every_api() {
    let chat = "/v1/chat/completions";
    // With the tokens between the lines of an image of Mistral; there are none before an image.
    for (name, n_around, rows) in [
        ("qwen3vl-vision", 2, [15, 6, 12]),
        ("qwen35-vision", 2, [18, 2, 21]),
        ("gemma4-vision", 2, [18, 18, 21]),
        ("gemma4-vision-small", 2, [15, 18, 12]),
        ("mistral3-vision", 1, [27, 7, 23]),
        ("pixtral-vision", 1, [31, 7, 27]),
    ] {
        let (server, _folder) = serve(name);
        let n_prompt = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
        let logprobs = |answer: &Value| answer["choices"][0]["logprobs"].clone();
        let blind = n_prompt(&server.ask(chat, &openai(&[])));
        let data = ["wide.png", "small.png", "tall.png"].map(image);
        let [wide, small, tall] = data.each_ref().map(|data| {
            let seen = server.ask(chat, &openai(&[data]));
            // Again, from the cache.
            assert_eq!(
                logprobs(&server.ask(chat, &openai(&[data]))),
                logprobs(&seen)
            );
            seen
        });
        let found = [&wide, &small, &tall].map(|seen| n_prompt(seen) - blind - n_around);
        assert_eq!(found, rows, "{name}");
        assert_ne!(logprobs(&wide), logprobs(&tall));

        let both = server.ask(chat, &openai(&[&data[0], &data[2]]));
        let found = n_prompt(&both) - blind - 2 * n_around;
        assert_eq!(found, rows[0] + rows[2], "{name}");
        let text = wide["choices"][0]["message"]["content"].clone();
        every_api_agrees(&server, &data[0], (&text, n_prompt(&wide)));
    }
}

fn every_api_agrees(server: &Running, data: &str, (text, n_prompt): (&Value, u64)) {
    let source = json!({"type": "base64", "media_type": "image/png", "data": data});
    let content = json!([{"type": "image", "source": source}, {"type": "text", "text": "What?"}]);
    let body = json!({"model": "seeing", "temperature": 0, "max_tokens": 6,
        "messages": [{"role": "user", "content": content}]});
    let anthropic = server.ask("/v1/messages", &body);
    assert_eq!(&anthropic["content"][0]["text"], text);
    let counted = server.ask("/v1/messages/count_tokens", &body);
    assert_eq!(counted["input_tokens"].as_u64().unwrap(), n_prompt);
    let message = json!({"role": "user", "content": "What?", "images": [data]});
    let body = json!({"model": "seeing", "stream": false, "messages": [message],
        "options": {"temperature": 0, "num_predict": 6}});
    let ollama = server.ask("/api/chat", &body);
    assert_eq!(&ollama["message"]["content"], text);
    let url = format!("data:image/png;base64,{data}");
    let content =
        json!([{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What?"}]);
    let body = json!({"model": "seeing", "temperature": 0, "max_output_tokens": 6,
        "input": [{"role": "user", "content": content}]});
    let response = server.ask("/v1/responses", &body);
    assert_eq!(&response["output"][0]["content"][0]["text"], text);
}

fn refused(server: &Running, data: &str, words: &str) {
    let reply = server.post("/v1/chat/completions", &openai(&[data]));
    assert_eq!(reply.status, 400, "{}", reply.body);
    let reply = reply.json();
    let error = reply["error"]["message"].as_str().unwrap();
    assert!(error.contains(words), "{error}");
}

#[test]
fn images_that_the_encoder_does_not_take_are_refused() {
    let (server, _folder) = serve("qwen3vl-vision");
    let refused = |data: &str, words: &str| refused(&server, data, words);
    // Refused by their headers, before anything is decoded.
    refused(&base64(&resized(300, 1)), "200 times");
    refused(&base64(&resized(1, 201)), "200 times");
    refused(&base64(&resized(8192, 8192)), "24 million");
    refused(&image("broken.png"), "broken PNG");
    refused(&base64(b"GIF89a"), "PNG, JPEG or WebP");
    // The name of an image within a text is plain text.
    let mut body = openai(&[]);
    body["messages"][0]["content"] = "<|vision_start|><|image_pad|><|vision_end|>".into();
    let told = server.ask("/v1/chat/completions", &body);
    assert!(
        told["usage"]["prompt_tokens"].as_u64().unwrap() > 40,
        "{told}"
    );
}

/// An image less than a pixel wide after resizing has no grid.
#[test]
fn lines_are_refused_where_nothing_would_be_left_of_them() {
    let (server, _folder) = serve("mistral3-vision");
    refused(&server, &base64(&resized(300, 1)), "48 times");
    refused(&server, &base64(&resized(1, 300)), "48 times");
    refused(&server, &base64(&resized(8192, 8192)), "24 million");
    // A single line of the maximum number of rows.
    let (server, _folder) = serve("gemma4-vision");
    let seen = server.ask(
        "/v1/chat/completions",
        &openai(&[&base64(&resized(300, 1))]),
    );
    assert!(
        seen["usage"]["prompt_tokens"].as_u64().unwrap() > 24,
        "{seen}"
    );
}
