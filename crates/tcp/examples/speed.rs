//! How long the virtual chip computes for a layer of Llama 3.2 1B: one token, and a prompt of 128. Measured on this
//! machine, with zeros (time does not depend on values).

use millrace_model::synth::ModelGeometry;
use millrace_tcp::lower::{self, Dims, PassSizes, Target, TcpLowerOptions, Weights};
use millrace_tcp::{Machine, simulate};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::rngd();
    let config = ModelGeometry::named("llama-3.2-1b").map(|geometry| geometry.config(None));
    let config = config.ok_or("the geometry is in the table")?;
    let dims = Dims::of(&config, 1)?;
    for n_tokens in [1, 128] {
        let call = PassSizes {
            batch: 1,
            n_tokens,
            n_keys: 128,
            n_cache: 128,
        };
        let target = Target {
            machine: &machine,
            dims: &dims,
            options: TcpLowerOptions::plain(Weights::Bf16),
            call,
        };
        let mut total = 0.0;
        for (lowered, times) in [
            (lower::attention(target)?, config.n_layers),
            (lower::feed_forward(target)?, config.n_layers),
            (lower::head(target)?, 1),
        ] {
            let program = lowered.program;
            let slots = program.slots()?;
            let sizes = slots.iter().map(|slot| slot.size_bytes().unwrap_or(0));
            let mut content: Vec<Vec<u8>> = sizes.map(|size| vec![0; size as usize]).collect();
            let options = simulate::SimulationOptions::default();
            simulate::run(&program, &mut content, &options)?;
            let start = Instant::now();
            simulate::run(&program, &mut content, &options)?;
            let seconds = start.elapsed().as_secs_f64();
            println!("{n_tokens} tokens, {}: {seconds:.3} s", program.name);
            total += seconds * times as f64;
        }
        println!("{n_tokens} tokens, the model: {total:.2} s");
    }
    Ok(())
}
