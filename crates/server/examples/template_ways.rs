//! Examines chat templates, for `tools/check_templates.py`. Each line of standard input is `{"source": …, "bos": …,
//! "eos": …, "conversations": […], "vocabulary": […]}`. The answer to each is a line in the form of
//! [`template_ways`](millrace_server::template_ways), or `{"error": why}`.

use std::io::{BufRead, Write};
use std::path::Path;

use millrace_runtime::LoadedModel;
use millrace_server::template_ways;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The vocabulary matters for templates that name no marks; the demo has none of those tokens.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
    let tokenizer = LoadedModel::open(&path)?.tokenizer()?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let text = |name: &str| request[name].as_str().unwrap_or_default();
        let conversations = request["conversations"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let tokens = (text("bos"), text("eos"));
        let vocabulary = request["vocabulary"].as_array().into_iter().flatten();
        let vocabulary: Vec<&str> = vocabulary.filter_map(Value::as_str).collect();
        let source = text("source");
        let answer = template_ways(source, tokens, &conversations, &vocabulary, &tokenizer);
        let answer = answer.unwrap_or_else(|error| json!({"error": error}));
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
