//! Any bytes as an image in a message: an answer within the deadline, or a refusal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::server::server;
use millrace_server::base64;
use serde_json::json;

fuzz_target!(init: millrace_fuzz::trial::install(), |bytes: &[u8]| {
    let url = format!("data:image/png;base64,{}", base64(bytes));
    let part = json!({"type": "image_url", "image_url": {"url": url}});
    let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]});
    server().post("/v1/chat/completions", body.to_string().as_bytes());
});
