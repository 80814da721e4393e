//! Chat templates in the manner of well-known models, against the output of Hugging Face transformers.
//!
//! `tools/make_chat_fixtures.py` renders them; `constructs.jinja` collects constructs on which engines often disagree.

use millrace_text::{ChatTemplate, Error, RenderOptions};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(Deserialize)]
struct Case {
    conversation: String,
    tools: bool,
    add_generation_prompt: bool,
    variables: Map<String, Value>,
    /// `None` if rendering fails.
    prompt: Option<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chat")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).expect("the fixture is there")
}

fn check(name: &str) {
    let template = ChatTemplate::new(
        "test",
        &read(&format!("{name}.jinja")),
        Some("<s>"),
        Some("</s>"),
    );
    let template = template.expect("the template parses");
    let conversations: Value =
        serde_json::from_str(&read("conversations.json")).expect("the fixture is JSON");
    let cases: Vec<Case> =
        serde_json::from_str(&read(&format!("{name}.json"))).expect("the fixture fits");
    assert!(cases.len() >= 20);
    for case in cases {
        let options = RenderOptions {
            add_generation_prompt: case.add_generation_prompt,
            tools: case.tools.then(|| conversations["tools"].clone()),
            variables: case.variables,
            // 2024-07-26 12:34:56
            now: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_721_997_296)),
            ..RenderOptions::default()
        };
        let messages = &conversations["messages"][&case.conversation];
        let got = template.render_json(messages, &options);
        match (case.prompt, got) {
            (Some(want), Ok(got)) => compare(name, &case.conversation, &got, &want),
            (None, Err(Error::Refused(_) | Error::Render { .. })) => {}
            (want, got) => panic!("{name}, {}: {got:?}, expected {want:?}", case.conversation),
        }
    }
}

/// Line by line, so that a difference is found at once.
fn compare(name: &str, conversation: &str, got: &str, want: &str) {
    for (i, (got, want)) in got.split('\n').zip(want.split('\n')).enumerate() {
        assert_eq!(got, want, "{name}, {conversation}, line {}", i + 1);
    }
    assert_eq!(got, want, "{name}, {conversation}");
}

#[test]
fn llama() {
    check("llama31");
}

#[test]
fn qwen() {
    check("qwen25");
    check("qwen3");
}

#[test]
fn gemma() {
    check("gemma3");
}

#[test]
fn mistral() {
    check("mistral");
}

#[test]
fn smollm() {
    check("smollm2");
    check("smollm3");
}

#[test]
fn constructs() {
    check("constructs");
}
