//! Any text as a chat template over a conversation with functions: an error, or a prompt.
//!
//! Memory is bounded by the process that renders templates, not here: run it with `-rss_limit_mb=2048 -ignore_ooms=1 -fork=1`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_text::{ChatTemplate, RenderOptions};
use serde_json::json;

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::new("fuzz", source, Some("<s>"), Some("</s>")) else {
        return;
    };
    let function = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}});
    let call = json!({"type": "function", "id": "1", "function": {"name": "f", "arguments": {"a": [1, 2.5, null, "é"]}}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "image"}]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "7", "tool_call_id": "1"},
    ]);
    let options = RenderOptions {
        tools: Some(json!([function])),
        ..RenderOptions::default()
    };
    if let Err(error) = template.render_json(&messages, &options) {
        assert!(!error.to_string().is_empty());
    }
});
