//! A wrong stride must show.

use crate::mappings::{build, case, run};
use millrace_xdna2_machine::program::Var;
use millrace_xdna2_machine::verify::verify;
use millrace_xdna2_machine::{Machine, Program};

/// A changed stride or offset anywhere: a refusal, a fault or a wrong result.
#[test]
fn a_wrong_stride_is_caught() {
    let machine = Machine::npu2();
    for (name, shape, overrides) in [
        (
            "gemm-f32",
            "64x64x64",
            "tile_m=16,tile_n=16,cols=2,rows=2,tile_k_l2=16,tile_k_l1=8",
        ),
        (
            "gemm-drain",
            "64x64x64",
            "tile_m=16,tile_n=16,cols=2,rows=2,tile_k_l2=32,drain_chunks=2",
        ),
        (
            "gemm-megatile",
            "64x64x64+64",
            "tile_m=8,tile_n=8,cols=2,rows=2,tile_k_l2=16,tile_k_l1=8,e_x=2,e_y=2",
        ),
        (
            "gemm-q4nx-ddr",
            "48x320x256+256",
            "tile_m=8,tile_n=16,e_y=1,e_x=2,cols=4,rows=4,tile_k_l2=64,tile_k_l1=32,expand_cols=2",
        ),
        ("gemv", "64x128", "cols=4,tile_m=4,m_input=2"),
        ("rope", "64x64", "cols=4"),
        ("rmsnorm", "16x64", "cols=4"),
        ("add-2d", "16x64", "cols=4,tile=32"),
        (
            "flash-attention",
            "64 4q/2kv d16 causal",
            "tile_kv=8,tile_q=8,q_tiles=2,stages=2,tile_dv=8",
        ),
        (
            "token-attention",
            "1x640 4q/2kv d64 of 700",
            "cols=4,keys=160",
        ),
        (
            "cached-attention",
            "8x64 16q/2kv d16",
            "tile_tokens=4,tile_kv=8,heads=2,spread=2,rows=2",
        ),
        (
            "prompt-attention",
            "64x128 4q/2kv d16",
            "tile_tokens=8,tile_kv=8,y_rows=8,heads=1,spread=2,rows=2",
        ),
        (
            "prompt-attention",
            "64x64 4q/2kv d16 own",
            "tile_tokens=8,tile_kv=8,y_rows=8,heads=1,spread=2,rows=2",
        ),
        (
            "prompt-attention",
            "64x64 4q/2kv d16 full",
            "tile_tokens=8,tile_kv=8,y_rows=8,heads=1,spread=2,rows=2",
        ),
        (
            "prompt-attention",
            "64x64 4q/2kv d16 image",
            "tile_tokens=8,tile_kv=8,y_rows=8,heads=1,spread=2,rows=2",
        ),
        (
            "flow-qkv",
            "64x128 8q/4kv d16",
            "tile_tokens=4,tile_kv=8,y_rows=8,chunks=4,heads=2,col_heads=2,keys_l2=16",
        ),
        (
            "flow-qkv",
            "64x64 8q/4kv d16 own",
            "tile_tokens=4,tile_kv=8,y_rows=8,chunks=2,heads=4,col_heads=2,keys_l2=16",
        ),
        (
            "flow-qkv",
            "64x64 4q/2kv d16 full",
            "tile_tokens=4,tile_kv=8,y_rows=8,chunks=2,heads=1,col_heads=1,keys_l2=16",
        ),
        (
            "flow-qkv",
            "128x128 8q/4kv d16 window 9 own",
            "tile_tokens=4,tile_kv=8,y_rows=8,chunks=2,heads=4,col_heads=2,keys_l2=16",
        ),
        (
            "prompt-attention",
            "128x128 4q/2kv d16 window 9 own",
            "tile_tokens=8,tile_kv=8,y_rows=8,heads=1,spread=2,rows=2",
        ),
        (
            "flow-kv",
            "1x64 8q/4kv d16 of 100",
            "tile_kv=16,heads=2,col_heads=2",
        ),
    ] {
        let (mapping, shape, tiling) = case(name, shape, overrides);
        let program = build(mapping, &shape, &tiling, &machine);
        let changed = with_wrong_strides(&program);
        assert!(changed.len() >= 4, "{name}: {} strides", changed.len());
        for (place, wrong) in changed {
            if verify(&wrong, &machine).is_ok() {
                let seen = run(mapping, &shape, &tiling, &wrong);
                assert!(seen.is_some(), "{name}: a wrong {place} goes unnoticed");
            }
        }
    }
}

/// Every program with one stride of one dimension, or one offset's factor, greater by 8 elements.
fn with_wrong_strides(program: &Program) -> Vec<(String, Program)> {
    let mut wrong = Vec::new();
    let mut add = |place: String, change: &dyn Fn(&mut Program)| {
        let mut program = program.clone();
        change(&mut program);
        wrong.push((place, program));
    };
    for (l, launch) in program.launches.iter().enumerate() {
        for (t, transfer) in launch.transfers.iter().enumerate() {
            for d in 0..transfer.pattern.dims.len() {
                add(format!("stride {d} of transfer {t}"), &|p| {
                    p.launches[l].transfers[t].pattern.dims[d].1 += 8;
                });
            }
            for (f, &(var, _)) in transfer.pattern.offset.terms.iter().enumerate() {
                // A variable with one value only has a factor of no effect.
                let values = match var {
                    Var::Index(d) => transfer.dims[usize::from(d)],
                    Var::Grid(d) => launch.grid[usize::from(d)],
                    _ => 2,
                };
                if values > 1 {
                    add(format!("factor of {var:?} of transfer {t}"), &|p| {
                        p.launches[l].transfers[t].pattern.offset.terms[f].1 += 8;
                    });
                }
            }
        }
        for (s, stage) in launch.stages.iter().enumerate() {
            for (e, end) in stage.drains.iter().enumerate() {
                for d in 0..end.pattern.dims.len() {
                    add(format!("stride {d} of drain {e} of stage {s}"), &|p| {
                        p.launches[l].stages[s].drains[e].pattern.dims[d].1 += 8;
                    });
                }
            }
            for (e, end) in stage.fills.iter().enumerate() {
                for d in 0..end.pattern.dims.len() {
                    add(format!("stride {d} of fill {e} of stage {s}"), &|p| {
                        p.launches[l].stages[s].fills[e].pattern.dims[d].1 += 8;
                    });
                }
            }
        }
    }
    wrong
}
