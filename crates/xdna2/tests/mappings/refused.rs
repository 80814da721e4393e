//! Refusals and their names, listed tilings, other machines.

use crate::mappings::{build, find, refused, run};
use millrace_xdna2::mapping::{Rule, TABLE};
use millrace_xdna2_machine::Machine;

#[test]
fn what_the_array_cannot_hold_is_refused_by_name() {
    let square = "2048x2048x2048";
    for (name, shape, overrides, rule) in [
        // N is not a whole number of 4 · tile_n: silently wrong in the published builder.
        ("gemm-f32", square, "tile_n=96", Rule::Divides),
        ("gemm-f32", "2047x2048x2048", "", Rule::Divides),
        ("gemm-f32", square, "tile_n=256", Rule::L1),
        ("gemm-drain", square, "tile_m=64", Rule::L1),
        ("gemm-f32", square, "tile_k_l2=1024", Rule::L2),
        ("gemm-f32", "2048x2560x10240", "tile_k_l2=256", Rule::Stride),
        ("gemm-f32", square, "cols=9", Rule::Herd),
        ("gemm-f32", square, "drain_chunks=2", Rule::Range),
        ("gemm-megatile", square, "e_x=4", Rule::L1),
        ("gemm-q4nx-ddr", "64x256x512", "expand_cols=9", Rule::Herd),
        ("gemm-q4nx-ddr", "64x256x64", "expand_cols=2", Rule::Divides),
        ("gemm-q4nx-ddr", "64x256x80", "expand_cols=1", Rule::Divides),
        ("gemm-q4nx-ddr", "64x256x512", "tile_n=24", Rule::Divides),
        ("gemv", "2048x2048", "tile_m=16,m_input=8", Rule::L2),
        ("gemv", "2048x2048", "tile_m=1,m_input=1", Rule::Granularity),
        (
            "gemv",
            "151936x1024",
            "tile_m=16,m_input=16,cols=8",
            Rule::Repeat,
        ),
        ("gemv", "2048x100", "", Rule::Divides),
        ("gemv-cascade", "2048x2048", "rows=1", Rule::Range),
        ("gemv-cascade", "2048x128", "rows=4", Rule::Divides),
        (
            "gemv",
            "2048x8192",
            "tile_m=2,m_input=2,l1_depth=2",
            Rule::L1,
        ),
        ("add", "4194304", "cols=8,rows=2,tile=2048", Rule::Streams),
        (
            "silu-mul",
            "4194304",
            "cols=4,rows=4,tile=2048",
            Rule::Streams,
        ),
        ("rope", "65536x64", "cols=8,rows=2", Rule::Streams),
        ("gelu", "4194304", "cols=8,rows=4,tile=2048", Rule::Streams),
        ("add", "4194304", "tile=8192", Rule::L1),
        ("add", "4194304", "rows=4,tile=512,l2_copies=3", Rule::Range),
        ("add", "4194304", "rows=4,tile=8192,l2_copies=2", Rule::L1),
        (
            "add",
            "4194240",
            "rows=4,tile=2048,l2_copies=2",
            Rule::Divides,
        ),
        ("rope", "65536x64", "rows=4,l2_copies=2", Rule::Range),
        (
            "rmsnorm",
            "2048x2048",
            "rows=4,tile_rows=3,l2_copies=2",
            Rule::Divides,
        ),
        ("add", "4095", "", Rule::Granularity),
        ("rope", "64x24", "", Rule::Divides),
        ("rmsnorm", "64x21", "", Rule::Granularity),
        // Half a vector of columns; heads and blocks that do not divide; cores whose channels a memory tile has not.
        ("delta-net", "16x128x120", "", Rule::Divides),
        ("delta-net", "16x128x128", "cols=7", Rule::Divides),
        ("delta-net", "16x128x128", "blocks=3", Rule::Divides),
        ("delta-net", "16x128x128", "rows=4,blocks=1", Rule::Streams),
        ("delta-net", "16x128x128", "blocks=4", Rule::L1),
        ("delta-net", "16x128x128", "cols=16", Rule::Herd),
        ("delta-net", "16x128x128", "l1_depth=3", Rule::Range),
        ("delta-net", "8x2048x16", "", Rule::L1),
    ] {
        assert_eq!(
            refused(name, shape, overrides),
            rule,
            "{name} {shape} {overrides}"
        );
    }
}

#[test]
fn attention_that_does_not_fit_is_refused_by_name() {
    for (shape, overrides, rule) in [
        ("2048 32q/8kv d64 causal", "stages=8", Rule::Herd),
        (
            "2048 32q/8kv d64 causal",
            "q_tiles=2,unroll=2,tile_kv=128",
            Rule::L1,
        ),
        ("2048 32q/8kv d128 causal", "tile_dv=128", Rule::L1),
        ("1024x2048 2q/2kv d64 causal", "", Rule::Range),
        (
            "2048 3q/3kv d64 causal",
            "unroll=2,q_tiles=4",
            Rule::Divides,
        ),
        ("2000 2q/2kv d64 causal", "tile_kv=64", Rule::Divides),
        (
            "2048 6q/2kv d64 causal",
            "unroll=1,q_tiles=2,heads=2",
            Rule::Divides,
        ),
        (
            "2048 4q/1kv d64 causal",
            "unroll=2,q_tiles=1,heads=4",
            Rule::Divides,
        ),
        (
            "2048 4q/1kv d64 causal",
            "unroll=1,q_tiles=4,heads=4",
            Rule::Herd,
        ),
    ] {
        let found = refused("flash-attention", shape, overrides);
        assert_eq!(found, rule, "{shape} {overrides}");
    }
}

#[test]
fn every_listed_tiling_is_legal_and_unique() {
    let machine = Machine::npu2();
    for (name, shape) in [
        ("gemm-f32", "512x512x512"),
        ("gemm-drain", "256x512x512"),
        ("gemm-megatile", "512x512x512"),
        ("gemv", "512x2048"),
        ("gemv-cascade", "512x2048"),
        ("rmsnorm", "64x256"),
        ("rope", "64x64"),
        ("silu-mul", "65536"),
        ("add-2d", "64x256"),
        ("delta-net", "16x128x128"),
        ("flash-attention", "256 4q/2kv d64 causal"),
    ] {
        let mapping = find(name);
        let shape = mapping.parse_shape(shape).unwrap();
        let tilings = mapping.tilings(&shape, &machine);
        assert!(tilings.len() > 3, "{name}: {} tilings", tilings.len());
        let default = mapping.default_tiling(&shape, &machine);
        assert!(tilings.contains(&default), "{name}: {default}");
        for (i, tiling) in tilings.iter().enumerate() {
            assert!(!tilings[..i].contains(tiling), "{name}: {tiling} twice");
            mapping.build(&shape, tiling, &machine).unwrap();
        }
        // A spread of them passes the verifier too.
        for tiling in tilings.iter().step_by(tilings.len() / 8 + 1) {
            build(mapping, &shape, tiling, &machine);
        }
    }
}

#[test]
fn shapes_and_tilings_that_cannot_be_read_are_errors() {
    let bad = [
        "",
        "x",
        "0",
        "1x",
        "axb",
        "-1x2",
        "99999999999999999999x1",
        "1x2x3x4",
    ];
    for mapping in TABLE {
        for text in bad {
            assert!(
                mapping.parse_shape(text).is_err(),
                "{} `{text}`",
                mapping.name()
            );
        }
        assert!(!mapping.summary().is_empty());
        assert_eq!(find(mapping.name()).summary(), mapping.summary());
    }
    let attention = find("flash-attention");
    for text in [
        "2048 32/8 d64 causal",
        "2048 32q/8kv 64 causal",
        "2048 32q/8kv d64 maybe",
    ] {
        assert!(attention.parse_shape(text).is_err(), "{text}");
    }
    let shape = attention.parse_shape("64 2q/2kv d16 full").unwrap();
    let tiling = attention.default_tiling(&shape, &Machine::npu2());
    for text in ["tile", "tile_kv=x", "nothing=1"] {
        assert!(tiling.clone().overridden(text).is_err(), "{text}");
    }
}

/// Absurd numbers are refused, not computed with.
#[test]
fn absurd_tilings_are_refused() {
    let machine = Machine::npu2();
    for mapping in TABLE {
        let attention = mapping.name() == "flash-attention";
        let text = if attention {
            "64 2q/2kv d16 full"
        } else {
            "64x64x64"
        };
        let over_cache = match mapping.name() {
            "token-attention" | "flow-kv" => "1x640 4q/2kv d64",
            _ => "64x512 4q/2kv d16",
        };
        let shape = ["4096", "64x128", text, over_cache]
            .iter()
            .find_map(|text| mapping.parse_shape(text).ok())
            .unwrap();
        let tiling = mapping.default_tiling(&shape, &machine);
        build(*mapping, &shape, &tiling, &machine);
        for (name, _) in tiling.iter() {
            for value in [0, u64::MAX / 3, u64::MAX] {
                let wrong = tiling.clone().with(name, value);
                let built = mapping.build(&shape, &wrong, &machine);
                // One flag treats any number except 1 as "no"; others are 0 or 1.
                let flag = [
                    "n_over_cols",
                    "n_over_rows",
                    "hold_a",
                    "streamed",
                    "top_first",
                ]
                .contains(&name)
                    && value == 0;
                let flag = flag || (name == "l2_copies" && tiling[name] == value);
                assert!(
                    built.is_err() || flag || name == "causal_skip",
                    "{} {wrong}",
                    mapping.name()
                );
            }
        }
    }
}

/// A narrower array takes the same kernels.
#[test]
fn four_columns_are_enough() {
    let mut machine = Machine::npu2();
    machine.cols = 4;
    for (name, shape) in [
        ("gemm-fused-cast", "256x64x128"),
        ("gemm-megatile", "128x64x128"),
        ("gemv", "64x128"),
        ("rmsnorm", "32x64"),
        ("silu-mul", "4096"),
        ("delta-net", "8x32x32"),
        ("flash-attention", "64 2q/2kv d16 causal"),
    ] {
        let mapping = find(name);
        let shape = mapping.parse_shape(shape).unwrap();
        let tiling = mapping.default_tiling(&shape, &machine);
        let program = build(mapping, &shape, &tiling, &machine);
        let herds = program.launches.iter().flat_map(|l| &l.herds);
        assert!(herds.into_iter().all(|h| h.col + h.cols <= 4));
        assert_eq!(run(mapping, &shape, &tiling, &program), None, "{name}");
    }
}
