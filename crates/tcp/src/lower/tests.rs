mod int8;
mod parts;
mod reduction;

use super::*;
use millrace_model::synth::ModelGeometry;

fn lower_all(name: &str, call: PassSizes, options: TcpLowerOptions) -> Vec<TcpLowering> {
    let machine = Machine::rngd();
    let config = ModelGeometry::named(name).unwrap().config(None);
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
    let all: Vec<TcpLowering> = all.into_iter().map(|one| one.unwrap()).collect();
    for lowered in &all {
        let name = &lowered.program.name;
        if let Err(refusals) = crate::verify::verify(&lowered.program, &machine) {
            let lines: Vec<String> = refusals.iter().take(5).map(ToString::to_string).collect();
            panic!("{name}: {}", lines.join("\n"));
        }
    }
    all
}

fn call(batch: u64, n_tokens: u64, n_keys: u64) -> PassSizes {
    PassSizes {
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
                let plain = TcpLowerOptions::plain(weights);
                lower_all(name, call(batch, n_tokens, n_keys), plain);
                lower_all(name, call(batch, n_tokens, n_keys), plain.read_ahead());
            }
        }
    }
}

/// Names of axes, sorted; two that make up a head are one.
fn names<'a>(axes: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = axes.filter(|a| *a != "B").map(str::to_owned).collect();
    let has = |all: &[String], name: &str| all.iter().any(|a| a == name);
    if has(&all, "d_k_prime") {
        let other = if has(&all, "f") { "f" } else { "r" };
        all.retain(|a| a != "d_k_prime" && a != other);
        all.push("d_k".to_owned());
    }
    all.sort();
    all
}

type Product = (Vec<Vec<String>>, Vec<String>);

/// Contractions of a program's kernels, from the program itself.
fn contracted(program: &Program) -> Vec<Product> {
    use crate::program::{Command, Stage};
    let named = |shape: &crate::axes::Shape| {
        let own = shape.iter().map(|(axis, _)| program.axes.get(*axis).0);
        names(own)
    };
    let mut all = Vec::new();
    for command in &program.commands {
        let Command::Kernel(kernel) = command else {
            continue;
        };
        let outer = kernel
            .stages
            .iter()
            .position(|s| matches!(s, Stage::Outer { .. }));
        let Some(at) = outer else { continue };
        let Stage::Outer { trf, .. } = kernel.stages[at] else {
            continue;
        };
        let streams = crate::flow::walk(program, kernel).unwrap().streams;
        let stream = streams[at - 1].shape(&program.axes).unwrap();
        let held = program.tensors[trf].shape(&program.axes).unwrap();
        let out = streams.last().unwrap().shape(&program.axes).unwrap();
        let mut operands = vec![named(&stream), named(&held)];
        operands.sort();
        let product = (operands, named(&out));
        if !all.contains(&product) {
            all.push(product);
        }
    }
    all.sort();
    all
}

#[test]
fn expressions_are_those_of_the_kernels() {
    let mut n_products = Vec::new();
    for lowered in lower_all(
        "llama-3.1-8b",
        call(1, 8, 256),
        TcpLowerOptions::plain(Weights::Bf16),
    ) {
        let mut noted = Vec::new();
        for note in &lowered.notes {
            let Ok(einsum) = crate::einsum::Einsum::parse(&note.expression) else {
                continue;
            };
            let own = |list: &Vec<String>| names(list.iter().map(String::as_str));
            let mut operands: Vec<Vec<String>> = einsum.inputs().iter().map(own).collect();
            operands.sort();
            let product = (operands, names(einsum.output().iter().map(String::as_str)));
            if !noted.contains(&product) {
                noted.push(product);
            }
        }
        noted.sort();
        let found = contracted(&lowered.program);
        assert_eq!(found, noted, "{}", lowered.program.name);
        n_products.push(found.len());
    }
    // K and V are one; gate and up are one.
    assert_eq!(n_products, [0, 7, 2, 1]);
}

#[test]
fn long_caches_come_in_chunks() {
    let named = |n_keys| {
        let all = lower_all(
            "llama-3.1-8b",
            call(1, 1, n_keys),
            TcpLowerOptions::plain(Weights::Bf16),
        );
        let commands = all[1].program.commands.iter();
        let adds = commands
            .filter(|c| c.name().starts_with("split_add"))
            .count();
        let note = all[1]
            .notes
            .iter()
            .find(|n| n.op == "weighted sum")
            .unwrap();
        (adds, note.levels.clone())
    };
    assert_eq!(named(4096).0, 0);
    let (adds, levels) = named(32_768);
    assert_eq!(adds, 3);
    assert_eq!(
        levels,
        "reduce: time (128) → slice (ring of 64) → split (4 chunks)"
    );
}

#[test]
fn what_is_not_llama_is_refused() {
    let dims = |name: &str, n| {
        let config = ModelGeometry::named(name).unwrap().config(None);
        Dims::of(&config, n).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(
        dims("gemma-3-1b", 1),
        "this target lowers Llama and Mistral, not gemma3"
    );
    assert!(dims("llama-3.2-1b", 16).contains("is 8; expected a multiple of the 16 chips"));
    let machine = Machine::rngd();
    let config = ModelGeometry::named("llama-3.1-8b").unwrap().config(None);
    let dims = Dims::of(&config, 1).unwrap();
    let target = Target {
        machine: &machine,
        dims: &dims,
        options: TcpLowerOptions::plain(Weights::Bf16),
        call: call(1, 1 << 16, 1 << 16),
    };
    let error = attention(target).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("take fewer tokens a pass"), "{error}");
}

#[test]
fn lowering_is_pure() {
    let text = || {
        let all = lower_all(
            "llama-3.2-1b",
            call(1, 4, 64),
            TcpLowerOptions::plain(Weights::Fp8),
        );
        let texts = all.iter().map(|l| crate::program::print(&l.program));
        texts.collect::<String>()
    };
    let first = text();
    assert_eq!(first, text());
    // The container gives back the same program.
    let all = lower_all(
        "llama-3.2-1b",
        call(1, 4, 64),
        TcpLowerOptions::plain(Weights::Fp8),
    );
    for lowered in all {
        let container = lowered.program.to_container().unwrap();
        assert_eq!(
            Program::from_container(&container).unwrap(),
            lowered.program
        );
    }
}

fn attention_op(s_q: u64, heads: [u64; 3], n_keys: u64) -> ops::Op {
    let [n_kv_heads, n_groups, head_dim] = heads;
    ops::Op {
        kind: ops::OpKind::Attend,
        sizes: vec![s_q, n_kv_heads, n_groups, head_dim, n_keys, n_keys],
        norm_eps: 1e-5,
        attention_scale: 0.125,
        weights: Weights::Bf16,
    }
}

/// Behind many keys fewer queries are held at a time, so that whole rows of scores stay in data memory.
#[test]
fn long_contexts_fit() {
    let machine = Machine::rngd();
    let options = TcpLowerOptions::plain(Weights::Bf16);
    for (s_q, n_keys, queries) in [(64, 16_384, 16), (64, 32_768, 8), (32, 131_072, 2)] {
        let op = attention_op(s_q, [8, 4, 128], n_keys);
        let lowered = op.lower("attend", &machine, options).unwrap();
        assert!(
            lowered.cut.contains(&("queries", queries)),
            "{n_keys}: {:?}",
            lowered.cut
        );
        crate::verify(&lowered.lowered.program, &machine).unwrap();
    }
    // Where one query's scores do not fit, keys come in parts.
    for (n_keys, parts) in [(1 << 18, 1), (1 << 19, 2), (1 << 20, 4)] {
        let op = attention_op(1, [8, 4, 128], n_keys);
        let lowered = op.lower("attend", &machine, options).unwrap();
        assert!(lowered.cut.contains(&("parts", parts)), "{:?}", lowered.cut);
        crate::verify(&lowered.lowered.program, &machine).unwrap();
    }
}

/// The number of queries held at a time changes no bit of the result.
#[test]
fn queries_at_a_time_change_nothing() {
    let op = attention_op(16, [2, 2, 64], 1024);
    let attended = |dm_bytes: u64, queries: u64| {
        let machine = Machine {
            dm_bytes,
            ..Machine::rngd()
        };
        let lowered = op
            .lower("attend", &machine, TcpLowerOptions::plain(Weights::Bf16))
            .unwrap();
        assert!(
            lowered.cut.contains(&("queries", queries)),
            "{:?}",
            lowered.cut
        );
        let program = lowered.lowered.program;
        crate::verify(&program, &machine).unwrap();
        let mut state = 7u32;
        let slots = program.slots().unwrap();
        let mut content: Vec<Vec<u8>> = Vec::new();
        for slot in &slots {
            let n = slot.size_bytes().unwrap() as usize;
            let value = |_: usize| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let value = (state >> 16) as f32 / 32_768.0 - 1.0;
                half::bf16::from_f32(value).to_le_bytes()
            };
            content.push(match slot.name.as_str() {
                "mask" => vec![0; n],
                _ => (0..n / 2).flat_map(value).collect(),
            });
        }
        crate::simulate::run(
            &program,
            &mut content,
            &crate::simulate::SimulationOptions::default(),
        )
        .unwrap();
        content.pop().unwrap()
    };
    let all = attended(Machine::rngd().dm_bytes, 16);
    assert!(all.iter().any(|byte| *byte != 0));
    assert!(all == attended(64 << 10, 8), "eight at a time differ");
    assert!(all == attended(44 << 10, 4), "four at a time differ");
}
