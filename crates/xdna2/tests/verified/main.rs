//! Every mapping's program on the machine: the verifier accepts all offered tilings, results do not depend on threads,
//! block floating point changes only the products.
#![allow(clippy::unwrap_used)] // A test may panic.

mod mutated;

use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2::mapping;
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::verify::{Refusal, verify};
use millrace_xdna2_machine::{Machine, Numerics, Program};

fn words(refusals: &[Refusal]) -> String {
    refusals.iter().map(|r| format!("\n  {r}")).collect()
}

fn cpu(n_threads: usize) -> Cpu {
    Cpu::new(CpuOptions {
        n_threads: Some(n_threads),
        ..CpuOptions::default()
    })
    .unwrap()
}

/// Shapes of Llama-3.2-1B and Gemma-3-4B by mapping, and a small one first.
const SHAPES: &[(&str, &[&str])] = &[
    ("gemm-f32", &["512x256x512", "2048x2048x8192"]),
    (
        "gemm-fused-cast",
        &["512x256x512", "2048x2048x8192", "2048x2560x10240"],
    ),
    ("gemm-drain", &["256x256x512", "2048x2048x512"]),
    ("gemm-direct", &["512x256x512", "2048x2048x2048"]),
    ("gemm-direct-f32", &["512x256x512"]),
    ("gemm-drain-bt", &["256x256x512", "2048x2048x512"]),
    ("gemm-direct-bt", &["512x256x512", "2048x8192x2048"]),
    (
        "gemm-stream",
        &[
            "64x256x512+128",
            "2048x2048x8192+8192",
            "256x8192x2048",
            "512x2560x10240+10240",
        ],
    ),
    (
        "gemm-stream-bt",
        &[
            "64x256x512+128",
            "2048x2048x2048+512+512",
            "2048x8192x2048",
            "2048x2560x2048+1024+1024",
            "2048x10240x2560",
        ],
    ),
    (
        "gemm-i8",
        &[
            "64x256x512+128",
            "512x2048x2048",
            "512x640x262144",
            "8x8192x2048",
            "4224x4224x4608",
        ],
    ),
    ("gemv-i8", &["512x256", "2048x8192", "128256x2048"]),
    (
        "gemm-megatile",
        &["64x64x256", "2048x2048x2048", "2048x2560x10240"],
    ),
    ("gemv", &["2048x2048", "8192x2048", "2048x8192"]),
    ("gemv-cascade", &["2048x2048", "8192x2048", "2048x8192"]),
    (
        "gemv-stream",
        &["2048+512+512x2048", "2048x8192", "16384+16384x2048"],
    ),
    (
        "fused-dqp",
        &[
            "64x256",
            "2048+512+512x2048",
            "6912+6912x1152",
            "2560x10240",
            "128512x2048",
        ],
    ),
    (
        "token-attention",
        &[
            "1x640 4q/2kv d64",
            "1x1600 32q/8kv d64 of 4480",
            "1x1560 8q/4kv d256 of 2560 window 1024",
            "1x1600 4q/1kv d256",
        ],
    ),
    (
        "gemm-q4nx",
        &[
            "64x256x64",
            "128x1152x1024+256+256",
            "1024x1152x6912+6912",
            "128x6912x1152",
            "2048x2560x10240+10240",
            "2048x8192x2048",
        ],
    ),
    (
        "gemm-q4nx-ddr",
        &[
            "64x256x64",
            "128x1152x1024+256+256",
            "1024x1152x6912+6912",
            "128x6912x1152",
            "2048x2560x10240+10240",
            "2048x8192x2048",
        ],
    ),
    ("rmsnorm", &["8x2048", "2048x2048"]),
    ("layernorm", &["8x2048"]),
    ("rope", &["256x64", "65536x64"]),
    ("silu-mul", &["16384", "16777216"]),
    ("gelu-mul", &["16384"]),
    ("gelu", &["16384"]),
    ("add", &["16384", "4194304"]),
    ("add-2d", &["8x2048", "2048x2048"]),
    ("add-flat", &["2048x2048"]),
    (
        "flash-attention",
        &["512 2q/1kv d64 causal", "2048 32q/8kv d64 causal"],
    ),
    (
        "cached-attention",
        &[
            "1x512 2q/1kv d64",
            "1x2048 32q/8kv d64 of 131072",
            "64x4096 8q/4kv d256 of 32768 window 1024",
        ],
    ),
    (
        "prompt-attention",
        &[
            "64x160 4q/2kv d64 window 40",
            "2048x4096 8q/4kv d256 of 32768",
            "2048x2048 4q/1kv d256 window 512 own",
            "512x512 8q/4kv d256 image",
            "4096x4096 16q/16kv d72 full",
        ],
    ),
    (
        "flow-kv",
        &[
            "1x512 2q/1kv d64",
            "1x2048 32q/8kv d64 of 131072",
            "1x1056 8q/4kv d256 window 1024",
        ],
    ),
    (
        "delta-net",
        &["2x32x32", "16x128x128", "48x128x128", "32x256x256"],
    ),
    (
        "flow-qkv",
        &[
            "128x256 4q/2kv d64 window 40",
            "2048x4096 8q/4kv d256 of 32768",
            "2048x2048 4q/1kv d256 window 512 own",
            "512x512 8q/4kv d256 image",
            "4096x4096 16q/16kv d72 full",
        ],
    ),
];

fn programs(shapes: impl Fn(&[&'static str]) -> Vec<&'static str>) -> Vec<(String, Program)> {
    let machine = Machine::npu2();
    let mut programs = Vec::new();
    for mapping in mapping::TABLE {
        let listed = SHAPES.iter().find(|(name, _)| *name == mapping.name());
        for text in shapes(listed.map_or(&[][..], |(_, shapes)| shapes)) {
            let name = format!("{} {text}", mapping.name());
            let shape = mapping
                .parse_shape(text)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let tiling = mapping.default_tiling(&shape, &machine);
            let program = mapping.build(&shape, &tiling, &machine);
            programs.push((
                name.clone(),
                program.unwrap_or_else(|e| panic!("{name}: {e}")),
            ));
        }
    }
    programs
}

#[test]
fn every_mapping_is_accepted() {
    let mut wrong = String::new();
    for (name, program) in programs(|all| all.to_vec()) {
        if let Err(refusals) = verify(&program, &Machine::npu2()) {
            wrong += &format!("\n{name}:{}", words(&refusals));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Joins and splits on memory tiles: silicon has descriptors and locks for every tiling that a mapping offers.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn offered_tilings_are_accepted() {
    let machine = Machine::npu2();
    let mut n_tried = 0;
    for (name, shapes) in [
        ("gemm-drain", ["256x256x512", "512x1024x1024"]),
        ("gemm-megatile", ["64x64x256", "1024x2048x2048"]),
        ("gemm-stream", ["256x256x512+128", "1024x2048x2048+512+512"]),
        ("gemm-stream-bt", ["64x64x1920", "512x2048x8192"]),
        ("gemm-i8", ["64x64x1920", "512x2048x8192"]),
        ("gemv-i8", ["1920+128x1152", "128256x2048"]),
        ("fused-dqp", ["1920+128x1152", "128512x2048"]),
        (
            "token-attention",
            ["1x640 4q/2kv d64", "1x1560 8q/4kv d256 of 2560"],
        ),
        ("gemm-q4nx", ["128x1152x1920+128", "512x2048x8192"]),
        ("gemm-q4nx-ddr", ["128x1152x1920+128", "512x2048x8192"]),
        (
            "cached-attention",
            ["1x512 2q/1kv d64", "4x1024 32q/8kv d64"],
        ),
        (
            "prompt-attention",
            ["64x160 4q/2kv d64 window 40", "128x1024 8q/4kv d256"],
        ),
        (
            "flow-kv",
            ["1x512 4q/2kv d64", "1x1056 8q/4kv d256 window 1024"],
        ),
        (
            "flow-qkv",
            ["128x256 4q/2kv d64 window 40", "128x128 8q/4kv d256 own"],
        ),
        ("delta-net", ["6x64x96", "16x128x128"]),
    ] {
        let mapping = mapping::find(name).unwrap();
        for text in shapes {
            let shape = mapping.parse_shape(text).unwrap();
            let tilings = mapping.tilings(&shape, &machine);
            let step = tilings.len().div_ceil(40);
            for tiling in tilings.iter().step_by(step.max(1)) {
                let program = mapping.build(&shape, tiling, &machine).unwrap();
                let refused = verify(&program, &machine).err();
                let refused = refused.map(|e| words(&e));
                assert_eq!(refused, None, "{name} {text}: {tiling}");
                n_tried += 1;
            }
        }
    }
    assert!(n_tried > 100, "{n_tried}");
}

#[test]
fn results_do_not_depend_on_threads() {
    let machine = Machine::npu2();
    for (name, shape) in [
        ("gemm-fused-cast", "512x128x512"),
        ("flash-attention", "256 4q/2kv d64 causal"),
        ("gemv", "512x512"),
        ("gemm-i8", "256x128x512"),
        ("delta-net", "16x32x64"),
    ] {
        let mapping = mapping::find(name).unwrap();
        let shape = mapping.parse_shape(shape).unwrap();
        let tiling = mapping.default_tiling(&shape, &machine);
        let program = mapping.build(&shape, &tiling, &machine).unwrap();
        let inputs = mapping.inputs(&shape, 3);
        let mut results = [1, 2, 3].map(|n_threads| {
            let mut slots = inputs.clone();
            let cpu = cpu(n_threads);
            let counters =
                simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
            (slots, counters)
        });
        assert!(results[0].0 != inputs, "{name} wrote nothing");
        let (first, others) = results.split_first_mut().unwrap();
        for other in others {
            assert!(other == first, "{name}");
        }
    }
}

#[test]
fn programs_without_products_stay_as_they_are() {
    let machine = Machine::npu2();
    for (name, shape, changes) in [
        ("gemm-drain", "64x64x64", true),
        ("flash-attention", "64 2q/1kv d16 causal", true),
        ("gemv", "64x64", false),
        ("add", "64", false),
        ("gemm-i8", "64x64x64", false),
        ("delta-net", "2x16x16", false),
    ] {
        let mapping = mapping::find(name).expect("in the table");
        let shape = mapping.parse_shape(shape).expect("a shape");
        let tiling = mapping.default_tiling(&shape, &machine);
        let plain = mapping.build(&shape, &tiling, &machine).expect("builds");
        let mut program = plain.clone();
        Numerics::Bf16.apply(&mut program);
        assert_eq!(program, plain);
        Numerics::Bfp16.apply(&mut program);
        assert_eq!(program != plain, changes, "{name}");
    }
    assert_eq!("bfp16".parse(), Ok(Numerics::Bfp16));
    assert!("fp8".parse::<Numerics>().is_err());
}
