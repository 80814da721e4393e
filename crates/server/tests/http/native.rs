//! A model whose own template shows functions, in the syntax of Llama 3: the demo with another template and a renamed
//! token.

use std::path::Path;
use std::sync::Arc;

use millrace_format::Checkpoint;
use millrace_runtime::{CpuEngine, Engine, LoadedModel};
use millrace_server::scheduler::EngineSetup;
use serde_json::{Value, json};

use crate::{Running, engine_options, options, question, with};

const CHAT: &str = "/v1/chat/completions";

const TEMPLATE: &str = "{{ bos_token }}{% if tools %}<|system|>{% for t in tools %}{{ t | tojson }}{% endfor %}<|end|>\
    {% endif %}{% for m in messages %}<|{{ 'user' if m.role == 'tool' else m.role }}|>\
    {{ m.tool_calls | tojson if m.tool_calls else m.content }}<|end|>{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// Replaces a text in the file by one of the same length.
pub(crate) fn patch(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let at = bytes.windows(old.len()).position(|window| window == old);
    let at = at.expect("the demo has it");
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// The demo's file.
pub(crate) fn demo_bytes() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
    std::fs::read(path).unwrap()
}

/// The demo with another template, at most as long as its own.
pub(crate) fn server(template: &str) -> Running {
    let mut bytes = demo_bytes();
    patch(&mut bytes, b"<|reserved_0|>", b"<|python_tag|>");
    set_template(&mut bytes, template);
    serve(&bytes)
}

/// Gives the demo another template, at most as long as its own.
pub(crate) fn set_template(bytes: &mut [u8], template: &str) {
    let start = b"{{ bos_token }}{% for message in messages %}";
    let end = b"{{ '<|assistant|>' }}{% endif %}";
    let from = bytes
        .windows(start.len())
        .position(|window| window == start)
        .unwrap();
    let to = bytes
        .windows(end.len())
        .position(|window| window == end)
        .unwrap()
        + end.len();
    let comment = to - from - template.len() - "{##}".len();
    let template = format!("{template}{{#{}#}}", " ".repeat(comment));
    bytes[from..to].copy_from_slice(template.as_bytes());
}

/// Renames tokens to shorter names. The `filler` token takes up the difference, so that nothing else moves.
pub(crate) fn rename(bytes: &mut Vec<u8>, names: &[(&str, &str)], filler: &str) {
    let entry = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let mut replace = |old: &str, new: &str| {
        let (old, new) = (entry(old), entry(new));
        let at = bytes.windows(old.len()).position(|window| window == old);
        let at = at.expect("the demo has it");
        bytes.splice(at..at + old.len(), new);
    };
    names.iter().for_each(|(old, new)| replace(old, new));
    let n_bytes = |side: fn(&(&str, &str)) -> usize| names.iter().map(side).sum::<usize>();
    let n_more = n_bytes(|(old, _)| old.len()) - n_bytes(|(_, new)| new.len());
    replace(filler, &format!("{filler}{}", "x".repeat(n_more)));
}

/// A server with a model file from memory.
pub(crate) fn serve(bytes: &[u8]) -> Running {
    let checkpoint = Checkpoint::from_static("native", aligned(bytes)).unwrap();
    let model = Arc::new(LoadedModel::from_checkpoint(checkpoint).unwrap());
    let mut options = options();
    options.models[0].open = Arc::new(move || {
        let engine = CpuEngine::new(Arc::clone(&model), engine_options()).unwrap();
        Ok(EngineSetup::from(Box::new(engine) as Box<dyn Engine>))
    });
    Running::start(options)
}

/// Tensors need an alignment of 64 bytes in the file.
fn aligned(bytes: &[u8]) -> &'static [u8] {
    let buffer = vec![0; bytes.len() + 64].leak();
    let offset = buffer.as_ptr().align_offset(64);
    let place = &mut buffer[offset..offset + bytes.len()];
    place.copy_from_slice(bytes);
    place
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "lamp", "description": "Switches.", "parameters": {
        "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
        "additionalProperties": false}}}])
}

#[test]
fn an_end_token_stands_behind_whole_texts_alone() {
    let mut bytes = demo_bytes();
    // The key, the type number of bool, and the value.
    let entry = |value: u8| [b"tokenizer.ggml.add_eos_token\x07\0\0\0", &[value][..]].concat();
    patch(&mut bytes, &entry(0), &entry(1));
    let server = serve(&bytes);
    let text = "The dog ran.";
    let tokenized = |special: bool| {
        let body = json!({"content": text, "add_special": special});
        server.ask("/tokenize", &body)["count"].as_u64().unwrap()
    };
    // The BOS and EOS tokens.
    let (bare, whole) = (tokenized(false), tokenized(true));
    assert_eq!(whole, bare + 2);
    let prompt = |path: &str, body: Value, pointer: &str| {
        server.ask(path, &body).pointer(pointer).cloned().unwrap()
    };
    for (path, body, pointer, want) in [
        (
            "/v1/completions",
            json!({"model": "demo", "prompt": text, "max_tokens": 1}),
            "/usage/prompt_tokens",
            bare + 1,
        ),
        (
            "/api/generate",
            json!({"model": "demo", "prompt": text, "raw": true, "stream": false, "options": {"num_predict": 1}}),
            "/prompt_eval_count",
            bare + 1,
        ),
        (
            "/v1/embeddings",
            json!({"model": "demo", "input": text}),
            "/usage/prompt_tokens",
            whole,
        ),
        (
            "/api/embed",
            json!({"model": "demo", "input": text}),
            "/prompt_eval_count",
            whole,
        ),
    ] {
        assert_eq!(prompt(path, body, pointer), want, "{path}");
    }
    // A chat begins as its template or its file says, only once, and has no end token.
    let chat = json!({"messages": [{"role": "user", "content": text}]});
    let tokens = server.ask("/apply-template", &chat)["tokens"].clone();
    let tokens: Vec<u32> = serde_json::from_value(tokens).unwrap();
    let tokenizer = crate::engines::model().tokenizer().unwrap();
    let count = |id: Option<u32>| tokens.iter().filter(|token| Some(**token) == id).count();
    assert_eq!(
        (tokens[0], count(tokenizer.bos())),
        (tokenizer.bos().unwrap(), 1)
    );
    assert_ne!(tokens.last().copied(), tokenizer.eos());
}

#[test]
fn its_template_and_its_way_of_writing_are_used() {
    let server = server(TEMPLATE);
    let body = json!({"messages": [{"role": "user", "content": "Light!"}], "tools": tools()});
    let prompt = server.ask("/apply-template", &body)["prompt"].clone();
    let prompt = prompt.as_str().unwrap();
    assert!(
        prompt.contains("<|system|>{\"type\": \"function\""),
        "{prompt}"
    );
    assert!(
        !prompt.contains("<tool_call>"),
        "it was explained in words: {prompt}"
    );

    let ask = with(
        question("Light!"),
        json!({"tools": tools(), "tool_choice": "required", "max_tokens": 100}),
    );
    let answer = server.ask(CHAT, &ask);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let call = choice["message"]["tool_calls"][0].clone();
    assert_eq!(call["function"]["name"], "lamp");

    // Calls reach the template as objects, results as separate messages.
    let body = json!({"messages": [
        {"role": "user", "content": "Light!"}, {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "done"},
    ]});
    let prompt = server.ask("/apply-template", &body)["prompt"].clone();
    let prompt = prompt.as_str().unwrap();
    assert!(prompt.contains("\"arguments\": {\"on\": "), "{prompt}");
    assert!(
        prompt.ends_with("<|user|>done<|end|><|assistant|>"),
        "{prompt}"
    );

    // Answers are unconstrained by default, and a form needs no functions.
    let free = with(
        question("What is 7 plus 5?"),
        json!({"tools": tools(), "max_tokens": 30, "stream": true}),
    );
    let chunks = server.post(CHAT, &free).chunks();
    let reasons: Vec<&str> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str())
        .collect();
    assert_eq!(reasons.len(), 1, "{chunks:?}");
}
