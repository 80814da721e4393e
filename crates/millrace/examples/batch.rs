//! Many prompts at once: every pass over the weights serves all of them, and the order is kept.
//!
//! `cargo run -p millrace-llm --example batch`

use millrace::{Device, Model, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::named("cpu").context(256).sequences(3);
    let session = Model::open("demo")?.on(device)?;
    let prompts = [
        "Once upon a time",
        "The dog",
        "Mia has a red ball. One day she",
        "It was a sunny day, and",
        "Tom",
    ];
    let options = Options::greedy().max_tokens(20);
    let together = session.batch(prompts, &options)?;

    // Neither the other prompts nor the order change a text: batches are exact.
    for (prompt, generation) in prompts.iter().zip(&together) {
        println!("{prompt}{generation}");
        let alone = session.generate_with(*prompt, &options)?;
        if alone.tokens != generation.tokens {
            return Err(format!("{prompt}: alone it is {:?}", alone.text).into());
        }
    }

    // Texts as vectors: texts of similar meaning have vectors close to each other.
    let embeddings =
        ["a big dog", "a large dog", "seven plus five"].map(|text| session.embed(text));
    let [big, large, sum] = embeddings.map(|embedding| embedding.unwrap_or_default());
    let cosine = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    println!("{:.3} {:.3}", cosine(&big, &large), cosine(&big, &sum));
    if cosine(&big, &large) <= cosine(&big, &sum) {
        return Err("two dogs were expected to be nearer than a dog and a sum".into());
    }
    Ok(())
}
