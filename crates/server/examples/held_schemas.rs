//! Tests which JSON a grammar allows, for `tools/schema_suite.py`. Each line of standard input is `{"schema": …,
//! "texts": […]}` or `{"gbnf": …, "texts": […]}`. The answer to each is a line `{"accepted": [true, …]}`, or
//! `{"refused": why}`.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use millrace_runtime::LoadedModel;
use millrace_server::grammar::{Grammar, GrammarFactory, gbnf};
use millrace_server::whole_schema;
use millrace_text::Tokenizer;
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
    let model = LoadedModel::open(&path)?;
    let tokenizer = model.tokenizer()?;
    let vocab_size = model.model().config.vocab_size;
    let factory = GrammarFactory::new(Arc::clone(&tokenizer), vocab_size);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = match accepted(&request, &factory, &tokenizer, vocab_size) {
            Ok(accepted) => json!({"accepted": accepted}),
            Err(refused) => json!({"refused": refused}),
        };
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

fn accepted(
    request: &Value,
    factory: &GrammarFactory,
    tokenizer: &Tokenizer,
    vocab_size: usize,
) -> Result<Vec<bool>, String> {
    let grammar = match request.get("gbnf").and_then(Value::as_str) {
        Some(source) => Grammar::Lark(gbnf::to_lark(source).map_err(|error| error.to_string())?),
        None => Grammar::JsonSchema(whole_schema(&request["schema"])?),
    };
    let texts = request["texts"].as_array().cloned().unwrap_or_default();
    let accepts = |text: &Value| -> Result<bool, String> {
        let mut constraint = factory
            .compile(&grammar)
            .map_err(|error| error.to_string())?;
        let allowed = |constraint: &mut millrace_server::grammar::Constraint, token: u32| {
            let mut logits = vec![0.0; vocab_size];
            constraint.mask(&mut logits).is_ok() && logits[token as usize] == 0.0
        };
        for token in tokenizer.encode(text.as_str().unwrap_or_default(), Default::default()) {
            if !allowed(&mut constraint, token) || constraint.accept(token).is_err() {
                return Ok(false);
            }
        }
        Ok(allowed(&mut constraint, tokenizer.end_of_generation()[0]))
    };
    texts.iter().map(accepts).collect()
}
