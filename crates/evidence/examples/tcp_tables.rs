//! Prints the tables of `docs/tcp.md`: the walk through a decode layer of Llama 3 70B, or one of `fidelity`, `fits`,
//! `times`, `reductions`, `moves`, `scores`, `rules`.

use millrace_evidence::tcp::{fidelity, report};
use millrace_tcp::{Machine, Profile, walk};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    let text = match std::env::args().nth(1).as_deref() {
        None => walk::decode_layer(&machine, &profile, 1024)?,
        Some("fidelity") => fidelity::markdown(&fidelity::rows(&machine, &profile)?),
        Some("fits") => report::fits(&machine, &profile)?,
        Some("times") => report::times(&machine, &profile)?,
        Some("reductions") => report::reductions(&machine, &profile),
        Some("moves") => report::moves(&machine, &profile)?,
        Some("scores") => report::scores(&machine, &profile)?,
        Some("rules") => report::rules(),
        Some(other) => {
            return Err(format!(
                "`{other}`: fidelity, fits, times, reductions, moves, scores or rules"
            )
            .into());
        }
    };
    print!("{text}");
    Ok(())
}
