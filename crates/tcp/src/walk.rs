//! One decode layer of Llama 3 70B, op by op: the listing in `docs/tcp.md`.

use crate::lower::{
    self, Dims, LowerError, PassSizes, Target, TcpLowerOptions, TcpLowering, Weights,
};
use crate::timing::{self, TimedProgram};
use crate::{Machine, Profile};
use millrace_model::ModelConfig;
use millrace_model::synth::ModelGeometry;
use std::fmt::Write;

/// Llama 3.1 70B.
///
/// # Panics
/// Never: the geometry is in the table.
pub fn llama_3_1_70b() -> ModelConfig {
    let geometry = ModelGeometry::named("llama-3.1-70b").map(|geometry| geometry.config(None));
    geometry.expect("the geometry is in the table")
}

/// The walk for one token behind `n_keys - 1` others, with weights in fp8. It lists the sizes, then each program's ops
/// with their expressions, engines and reduce levels, and its modelled time.
///
/// # Errors
/// [`LowerError`], where a machine changed by hand does not take the model.
pub fn decode_layer(
    machine: &Machine,
    profile: &Profile,
    n_keys: u64,
) -> Result<String, LowerError> {
    let config = llama_3_1_70b();
    let dims = Dims::of(&config, 1)?;
    let n_keys = lower::key_bucket(n_keys);
    let target = Target {
        machine,
        dims: &dims,
        options: TcpLowerOptions::plain(Weights::Fp8),
        call: PassSizes {
            batch: 1,
            n_tokens: 1,
            n_keys,
            n_cache: n_keys,
        },
    };
    let mut text = format!(
        "Llama 3.1 70B, decode, fp8, one of 80 layers\nB = 1, s_q = 1, s_k = {n_keys}, D = {}, F = {}, h_kv = {}, G = {}, d_k = {} = d_k_prime {} × f 2, V = {}\n",
        dims.d_model,
        dims.d_ff,
        dims.n_kv_heads,
        dims.n_groups,
        dims.head_dim,
        dims.head_dim / 2,
        dims.vocab_size,
    );
    let parts: [(&str, TcpLowering); 4] = [
        ("embedding", lower::embed(target)?),
        ("attention", lower::attention(target)?),
        ("feed-forward", lower::feed_forward(target)?),
        ("head", lower::head(target)?),
    ];
    for (name, lowered) in parts {
        let time = TimedProgram::new(&lowered.program, machine, profile).ok();
        let time = time.map(|timed| timing::predict(&timed, machine, profile).total_ns);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\n{name}: {} commands, {:.1} µs, {}",
            lowered.program.commands.len(),
            time.unwrap_or(f64::NAN) * 1e-3,
            profile.provenance()
        );
        for note in &lowered.notes {
            let _ = writeln!(text, "  {}\n    {}", note.op, note.expression);
            let rest = [note.engine, &note.levels]
                .into_iter()
                .filter(|s| !s.is_empty());
            let _ = writeln!(text, "    {}", rest.collect::<Vec<_>>().join("; "));
        }
    }
    Ok(text)
}
