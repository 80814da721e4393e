//! Images in requests of every API, on a random model with vision.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_model::recipe::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_runtime::{CpuEngine, Engine, EngineOptions, LoadedModel};
use millrace_server::scheduler::EngineSetup;
use millrace_server::{ModelSpec, ServerOptions};
use serde_json::{Value, json};

use crate::{Running, options, shared, spec};

/// Standard base64.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| char::from(DIGITS[bits as usize & 63]);
    bytes
        .chunks(3)
        .flat_map(|chunk| {
            let at = |i: usize| chunk.get(i).map_or(0, |byte| u32::from(*byte));
            let bits = at(0) << 16 | at(1) << 8 | at(2);
            let padded = |i: usize, shift: u32| match i <= chunk.len() {
                true => digit(bits >> shift),
                false => '=',
            };
            [
                digit(bits >> 18),
                digit(bits >> 12),
                padded(2, 6),
                padded(3, 0),
            ]
        })
        .collect()
}

pub(crate) fn image(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vision/images");
    base64(&std::fs::read(folder.join(name)).unwrap())
}

/// The header of a PNG with this number of pixels; nothing after it may be read.
pub(crate) fn resized(width: u32, height: u32) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vision/images");
    let mut bytes = std::fs::read(folder.join("wide.png")).unwrap();
    let (start, end) = (12, 29);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    // The CRC of ISO 3309, as used in PNG, over the chunk's type and data.
    let crc = bytes[start..end].iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    });
    bytes[end..end + 4].copy_from_slice(&(!crc).to_be_bytes());
    bytes
}

/// A server with a random model that uses 16 tokens for an image, in a folder with its vision encoder.
fn server() -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (serve(&path, &path, None), folder)
}

/// A server with a random model written to `out`, based on `model`, with the vision encoder in `mmproj`.
fn serve(out: &Path, model: &Path, mmproj: Option<PathBuf>) -> Running {
    let options_of = SynthOptions {
        recipe: Recipe::parse("F32").unwrap(),
        vocab: None,
        vision: true,
        n_layers: Some(2),
        seed: 1,
        n_threads: Some(1),
    };
    let geometry = ModelGeometry::named("gemma-tiny").unwrap();
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let written = synth::write(geometry, out, &options_of, go_on).unwrap();
    if let (Some(to), Some(from)) = (&mmproj, written.mmproj) {
        std::fs::rename(from, to).unwrap();
    }
    let path = model.to_owned();
    let engine_options = EngineOptions {
        n_ctx: Some(256),
        ..crate::engine_options()
    };
    let open = move || {
        let model = LoadedModel::open(&path).map_err(|error| error.to_string())?;
        let engine = CpuEngine::new(Arc::new(model), engine_options.clone());
        let engine: Box<dyn Engine> = Box::new(engine.map_err(|error| error.to_string())?);
        Ok(EngineSetup {
            mmproj: mmproj.clone(),
            ..EngineSetup::from(engine)
        })
    };
    let spec = ModelSpec {
        open: Arc::new(open),
        ..spec("seeing", crate::engine_options())
    };
    let options = ServerOptions {
        models: vec![spec],
        ..options()
    };
    Running::start(options)
}

fn openai(images: &[&str]) -> Value {
    let image = |name: &&str| {
        let url = format!("data:image/png;base64,{}", image(name));
        json!({"type": "image_url", "image_url": {"url": url}})
    };
    let mut content: Vec<Value> = images.iter().map(image).collect();
    content.push(json!({"type": "text", "text": "What is this?"}));
    json!({"model": "seeing", "temperature": 0, "max_tokens": 6, "logprobs": true,
        "messages": [{"role": "user", "content": content}]})
}

#[test]
fn every_api_takes_images_and_means_the_same() {
    let (server, _folder) = server();
    let chat = "/v1/chat/completions";
    let wide = server.ask(chat, &openai(&["wide.png"]));
    let n_prompt = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    let logprobs = |answer: &Value| answer["choices"][0]["logprobs"].clone();
    // The image is encoded and its rows are cached: the same bits.
    assert_eq!(
        logprobs(&server.ask(chat, &openai(&["wide.png"]))),
        logprobs(&wide)
    );
    let tall = server.ask(chat, &openai(&["tall.png"]));
    assert_eq!(n_prompt(&tall), n_prompt(&wide));
    assert_ne!(logprobs(&tall), logprobs(&wide));
    let both = server.ask(chat, &openai(&["wide.png", "tall.png"]));
    assert!(n_prompt(&both) > n_prompt(&wide) + 16);

    let data = image("wide.png");
    let source = json!({"type": "base64", "media_type": "image/png", "data": data});
    let content =
        json!([{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]);
    let body = json!({"model": "seeing", "temperature": 0, "max_tokens": 6,
        "messages": [{"role": "user", "content": content}]});
    let anthropic = server.ask("/v1/messages", &body);
    assert_eq!(anthropic["content"][0]["text"], text(&wide));
    let counted = server.ask("/v1/messages/count_tokens", &body);
    assert_eq!(counted["input_tokens"].as_u64().unwrap(), n_prompt(&wide));

    let message = json!({"role": "user", "content": "What is this?", "images": [data]});
    let body = json!({"model": "seeing", "stream": false, "messages": [message],
        "options": {"temperature": 0, "num_predict": 6}});
    assert_eq!(
        server.ask("/api/chat", &body)["message"]["content"],
        text(&wide)
    );
    let url = format!("data:image/png;base64,{data}");
    let content = json!([{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What is this?"}]);
    let body = json!({"model": "seeing", "temperature": 0, "max_output_tokens": 6,
        "input": [{"role": "user", "content": content}]});
    let response = server.ask("/v1/responses", &body);
    assert_eq!(response["output"][0]["content"][0]["text"], text(&wide));
}

#[test]
fn a_encoder_in_a_file_of_its_own_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (model, encoder) = (folder.path().join("m.gguf"), folder.path().join("eyes.bin"));
    let chat = "/v1/chat/completions";
    let show = |server: &Running| {
        server.ask("/api/show", &json!({"model": "seeing"}))["capabilities"].clone()
    };
    let server = serve(&model, &model, Some(encoder));
    let seen = server.ask(chat, &openai(&["wide.png"]));
    assert!(
        seen["usage"]["prompt_tokens"].as_u64().unwrap() > 16,
        "{seen}"
    );
    assert!(show(&server).as_array().unwrap().contains(&json!("vision")));
    drop(server);
    // The same model without vision: no file of the usual name is beside it.
    let server = serve(&folder.path().join("other.gguf"), &model, None);
    std::fs::remove_file(folder.path().join("mmproj-other.gguf")).unwrap();
    let reply = server.post(chat, &openai(&["wide.png"]));
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("no vision encoder"), "{}", reply.body);
    assert!(!show(&server).as_array().unwrap().contains(&json!("vision")));
}

#[test]
fn images_that_cannot_be_read_are_refused() {
    let (server, _folder) = server();
    let chat = "/v1/chat/completions";
    let refused = |body: &Value, words: &str| {
        let reply = server.post(chat, body);
        assert_eq!(reply.status, 400);
        let error = reply.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(error.contains(words), "{error}");
    };
    refused(&openai(&["broken.png"]), "broken PNG");
    refused(&openai(&["animated.webp"]), "animated");
    refused(&openai(&["wide.png"; 20]), "fewer images");
    refused(&openai(&["wide.png"; 33]), "found 33");
    let mut body = openai(&["wide.png"]);
    let url = format!("data:image/png;base64,{}", base64(&resized(8192, 8192)));
    body["messages"][0]["content"][0]["image_url"]["url"] = url.into();
    refused(&body, "24 million");
    let mut body = openai(&["wide.png"]);
    let url = &mut body["messages"][0]["content"][0]["image_url"]["url"];
    *url = "https://example.org/a.png".into();
    refused(&body, "opens no connections");
    // A text model reports that it has no vision.
    let mut body = openai(&["wide.png"]);
    body["model"] = "demo".into();
    let reply = shared().post(chat, &body);
    assert_eq!(reply.status, 400);
    assert!(reply.json().to_string().contains("no vision encoder"));
}

/// Images in results of calls become the user's, in every API.
#[test]
fn results_of_calls_have_images() {
    let (server, _folder) = server();
    let data = image("wide.png");
    let url = format!("data:image/png;base64,{data}");
    let source = json!({"type": "base64", "media_type": "image/png", "data": data});
    let call =
        json!({"id": "c", "type": "function", "function": {"name": "Read", "arguments": "{}"}});
    let chat = |parts: Value| {
        json!({"model": "seeing", "temperature": 0, "max_tokens": 6, "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": parts},
        ]})
    };
    let path = "/v1/chat/completions";
    let seen = server.ask(path, &chat(json!([{"type": "text", "text": "here"}, {"type": "image_url", "image_url": {"url": url}}])));
    let blind = server.ask(path, &chat(json!([{"type": "text", "text": "here"}])));
    let n_prompt = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(n_prompt(&seen) >= n_prompt(&blind) + 16, "{seen} {blind}");
    let text = seen["choices"][0]["message"]["content"].clone();
    // In the form of a string, too.
    let same = server.ask(
        path,
        &chat(json!([{"type": "text", "text": "here"}, {"type": "image_url", "image_url": url}])),
    );
    assert_eq!(same["choices"], seen["choices"]);

    let result = json!({"type": "tool_result", "tool_use_id": "c",
                        "content": [{"type": "text", "text": "here"}, {"type": "image", "source": source}]});
    let body = json!({"model": "seeing", "temperature": 0, "max_tokens": 6, "messages": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "Read", "input": {}}]},
        {"role": "user", "content": [result]},
    ]});
    assert_eq!(
        server.ask("/v1/messages", &body)["content"][0]["text"],
        text
    );
    let counted = server.ask("/v1/messages/count_tokens", &body);
    assert_eq!(counted["input_tokens"].as_u64().unwrap(), n_prompt(&seen));

    let output =
        json!([{"type": "input_text", "text": "here"}, {"type": "input_image", "image_url": url}]);
    let items = json!([{"role": "user", "content": "look"},
                       {"type": "function_call", "call_id": "c", "name": "Read", "arguments": "{}"},
                       {"type": "function_call_output", "call_id": "c", "output": output}]);
    let body = json!({"model": "seeing", "temperature": 0, "max_output_tokens": 6, "input": items});
    assert_eq!(
        server.ask("/v1/responses", &body)["output"][0]["content"][0]["text"],
        text
    );

    let call = json!({"function": {"name": "Read", "arguments": {}}});
    let body = json!({"model": "seeing", "stream": false, "options": {"temperature": 0, "num_predict": 6}, "messages": [
        {"role": "user", "content": "look"}, {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "here", "images": [data]},
    ]});
    assert_eq!(server.ask("/api/chat", &body)["message"]["content"], text);
}
