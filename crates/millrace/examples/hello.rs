//! The shortest program: a model, a device, a text.
//!
//! `cargo run -p millrace-llm --example hello`

use millrace::Model;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = Model::open("demo")?.on("cpu")?;
    let story = session.generate("Once upon a time")?;
    println!("Once upon a time{story}");

    if story.text.split_whitespace().count() < 20 {
        return Err("a story of twenty words was expected".into());
    }
    Ok(())
}
