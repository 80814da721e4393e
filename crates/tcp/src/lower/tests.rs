use super::*;
use millrace_model::synth::Geometry;

fn lower_all(name: &str, call: Call, options: Options) -> Vec<Lowered> {
    let machine = Machine::rngd();
    let config = Geometry::named(name).unwrap().config(None);
    let dims = Dims::of(&config, options.n_shards).unwrap();
    let target = Target {
        machine: &machine,
        dims: &dims,
        options,
        call,
    };
    let mut all = vec![
        embed(target),
        attention(target),
        feed_forward(target),
        head(target),
    ];
    if options.n_shards > 1 {
        all.push(reduce(target));
    }
    let all: Vec<Lowered> = all.into_iter().map(|one| one.unwrap()).collect();
    for lowered in &all {
        let name = &lowered.program.name;
        if let Err(refusals) = crate::verify::verify(&lowered.program, &machine) {
            let lines: Vec<String> = refusals.iter().take(5).map(ToString::to_string).collect();
            panic!("{name}: {}", lines.join("\n"));
        }
    }
    all
}

fn call(batch: u64, n_tokens: u64, n_keys: u64) -> Call {
    Call {
        batch,
        n_tokens,
        n_keys,
        n_cache: n_keys,
    }
}

#[test]
fn programs_of_real_geometries_are_accepted() {
    for name in ["llama-tiny", "llama-3.2-1b", "llama-3.1-8b"] {
        for weights in [Weights::Bf16, Weights::Fp8, Weights::Int4] {
            for (batch, n_tokens, n_keys) in [
                (1, 1, 64),
                (1, 1, 2048),
                (1, 8, 256),
                (4, 1, 1024),
                (1, 128, 128),
            ] {
                let plain = Options::plain(weights);
                lower_all(name, call(batch, n_tokens, n_keys), plain);
                lower_all(name, call(batch, n_tokens, n_keys), plain.read_ahead());
            }
        }
    }
}
