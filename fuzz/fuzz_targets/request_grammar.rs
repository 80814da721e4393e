//! Schemas, grammars and patterns that answers are held to: an answer within the deadline, or a refusal.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use millrace_fuzz::schema;
use millrace_fuzz::server::server;
use serde_json::{Value, json};

fn form(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match input.int_in_range(0..=2u8)? {
        0 => json!({"grammar": schema::lark(input)?}),
        1 => json!({"regex": schema::pattern(input)?}),
        _ => json!({"json": schema::schema(input)?}),
    })
}

fuzz_target!(init: millrace_fuzz::trial::install(), |bytes: &[u8]| {
    let Ok(form) = form(&mut Unstructured::new(bytes)) else {
        return;
    };
    let body = json!({
        "model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}], "structured_outputs": form,
    });
    server().post("/v1/chat/completions", body.to_string().as_bytes());
});
