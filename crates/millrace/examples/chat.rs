//! A conversation: each answer costs only the new message.
//!
//! `cargo run -p millrace-llm --example chat`

use millrace::{Model, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = Model::open("demo")?.on("cpu")?;
    let options = Options::greedy().max_tokens(40);
    let mut chat = session.chat()?.options(&options);

    for message in ["What is 7 plus 5?", "What is 3 plus 4?"] {
        println!("> {message}");
        let answer = chat.say_with(message, |piece| print!("{piece}"))?;
        println!();
        if answer.text.trim().is_empty() {
            return Err("an answer was expected".into());
        }
        // The second question finds the first, and its answer, in the cache.
        let is_first = chat.messages().len() == 2;
        if is_first != (answer.timings.n_cached == 0) {
            return Err("the cache holds what was said, and nothing else".into());
        }
    }
    Ok(())
}
