//! Weights in Q4NX blocks: results equal the references.

use crate::mappings::{build, case, check, run};
use millrace_xdna2::mapping::{self, NamedNumbers};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::Transfer;

#[test]
fn fused_dqp() {
    check("fused-dqp", "64x256", "");
    // Odd numbers of row blocks are stored one by one, columns beyond a block are padding.
    check("fused-dqp", "32x32", "");
    check("fused-dqp", "96x160", "");
    check("fused-dqp", "224x640", "cols=7");
    check("fused-dqp", "512+128+128x1152", "");
    check("fused-dqp", "128+64x2560", "cols=1");
    // Pieces of the vector that are not powers of two.
    check("fused-dqp", "1024x1376", "");
    // A configuration that longer products share: the vector padded to theirs, in pieces that divide both.
    check("fused-dqp", "128+64x640", "cols=3,total=2560,piece=128");
    // Groups of row blocks that the columns share unevenly.
    check("fused-dqp", "320+192x512", "cols=5,total=768,piece=32");
}

/// A norm on one core that gets its scales in the stream of its rows.
#[test]
fn scales_before_rows() {
    let tiling = |cols: u64, tile_rows: u64| {
        NamedNumbers::new(&[
            ("tile_rows", tile_rows),
            ("scales_first", 1),
            ("cols", cols),
            ("rows", 1),
            ("l1_depth", 2),
            ("l2_copies", 0),
        ])
    };
    let machine = Machine::npu2();
    for shape in ["1x1152", "4x256", "7x18"] {
        let (mapping, shape, _) = case("rmsnorm", shape, "");
        let program = build(mapping, &shape, &tiling(1, 1), &machine);
        assert_eq!(run(mapping, &shape, &tiling(1, 1), &program), None);
    }
    for (name, tiling) in [
        ("rmsnorm", tiling(2, 1)),
        ("rmsnorm", tiling(1, 2)),
        ("layernorm", tiling(1, 1)),
        ("rope", tiling(1, 1)),
    ] {
        let (mapping, shape, _) = case(name, "4x256", "");
        let refusal = mapping.build(&shape, &tiling, &machine).unwrap_err();
        assert_eq!(refusal.rule, mapping::Rule::Range, "{name}: {refusal}");
    }
}

#[test]
fn gemm_with_rows_of_a_for_each_row_of_cores() {
    check("gemm-q4nx", "8x64x32", "");
    check(
        "gemm-q4nx",
        "64x640x256+128",
        "tile_m=16,tile_k_l2=128,tile_k_l1=32,cols=2,rows=2,n_over_rows=0,hold_a=0,drain_chunks=2",
    );
    check(
        "gemm-q4nx",
        "96x288x96",
        "tile_m=24,tile_k_l2=96,tile_k_l1=16,cols=3,rows=2,n_over_rows=0,hold_a=1,drain_chunks=1",
    );
    check("gemm-q4nx", "256x512x512", "");
}

#[test]
fn gemm_with_weights_for_each_core() {
    check(
        "gemm-q4nx",
        "32x640x512+256",
        "tile_m=16,tile_k_l2=64,tile_k_l1=64,cols=2,rows=4,n_over_rows=1,hold_a=1,drain_chunks=4",
    );
    check(
        "gemm-q4nx",
        "64x1152x288",
        "tile_m=32,tile_k_l2=128,tile_k_l1=32,cols=3,rows=3,n_over_rows=1,hold_a=0,drain_chunks=1",
    );
}

/// Weights expanded to DDR by a separate launch, then multiplied.
#[test]
fn gemm_of_expanded_weights() {
    check("gemm-q4nx-ddr", "8x64x32", "");
    // Blocks that are side by side, a last block of which half is padding, matrices dealt to the columns unevenly.
    check("gemm-q4nx-ddr", "32x640x576+192", "");
    check("gemm-q4nx-ddr", "16x1152x128", "expand_cols=2");
    // An odd number of row blocks is stored one by one; slices narrower than a scale's columns are whole all the same.
    check("gemm-q4nx-ddr", "8x288x352", "expand_cols=7");
    check("gemm-q4nx-ddr", "256x512x512", "");
    // So wide that a slice is half a block.
    check("gemm-q4nx-ddr", "8x16640x32", "");
}

/// Lengths of prompts, in the megatiles that are estimated to be fastest and in others.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn megatiles_of_expanded_weights() {
    for m in [64, 192, 320] {
        check("gemm-q4nx-ddr", &format!("{m}x1152x512+128+128"), "");
        check("gemm-q4nx-ddr", &format!("{m}x384x1152"), "");
    }
    for (shape, tiling) in [
        // Several tiles of a core down and across, several blocks of k.
        (
            "128x640x256+128",
            "tile_m=16,tile_n=16,e_y=2,e_x=2,cols=4,rows=4,tile_k_l2=128,tile_k_l1=64",
        ),
        // Rows beyond whole megatiles, on fewer columns.
        (
            "112x384x192+96+96",
            "tile_m=8,tile_n=8,e_y=2,e_x=3,cols=4,rows=4,tile_k_l2=192,tile_k_l1=48",
        ),
        // The least megatile: one column.
        (
            "16x256x128",
            "tile_m=16,tile_n=32,e_y=1,e_x=1,cols=1,rows=4,tile_k_l2=256,tile_k_l1=32,l1_depth=1,l2_copies=1",
        ),
    ] {
        check("gemm-q4nx-ddr", shape, tiling);
    }
}

/// Panels `[n / 8][k][8]` are between the launches, and DDR takes and gives them in long runs.
#[test]
fn expanded_weights_are_panels() {
    let machine = Machine::npu2();
    let (mapping, shape, tiling) = case("gemm-q4nx-ddr", "64x1152x256+128", "");
    let program = build(mapping, &shape, &tiling, &machine);
    let panels: Vec<&[u64]> = program.slots[3..5].iter().map(|s| &s.shape[..]).collect();
    assert_eq!(panels, [[32, 1152, 8], [16, 1152, 8]]);
    let mut runs = Vec::new();
    for launch in &program.launches {
        let of_panels = |t: &&Transfer| [3, 4].contains(&launch.args[t.arg]);
        let transfers = launch.transfers.iter().filter(of_panels);
        let run = |t: &Transfer| match t.pattern.dims.last() {
            Some((n, 1)) => n.eval(|_| 0),
            _ => 0,
        };
        runs.push(transfers.map(run).min().unwrap());
    }
    // Runs of a slice of 128 columns, and of a block of k.
    let of_block = 8 * tiling["tile_k_l2"] as i64;
    assert_eq!(runs, [8 * 128, of_block]);
    assert!(of_block >= 8 * 128);
}

/// The product reads the output of the launch before it, and that is the content of the blocks. A product of other
/// expanded weights, or from other blocks, is wrong, and so is one without the launch before it.
#[test]
fn expanded_weights_are_those_of_the_blocks() {
    let machine = Machine::npu2();
    let (mapping, shape, tiling) = case("gemm-q4nx-ddr", "16x256x128+128", "");
    let honest = build(mapping, &shape, &tiling, &machine);
    assert_eq!(run(mapping, &shape, &tiling, &honest), None);
    let [expand, product] = &honest.launches[..] else {
        panic!("{} launches", honest.launches.len());
    };
    // Slots: a, w0, w1, b0, b1, c0, c1.
    assert_eq!(
        (&expand.args[..], &product.args[..]),
        (&[1, 2, 3, 4][..], &[0, 3, 4, 5, 6][..])
    );
    for (launch, args) in [
        (0, vec![2, 1, 3, 4]),
        (0, vec![1, 1, 3, 4]),
        (0, vec![1, 2, 4, 3]),
        (1, vec![0, 4, 3, 5, 6]),
    ] {
        let mut wrong = honest.clone();
        wrong.launches[launch].args = args;
        assert!(run(mapping, &shape, &tiling, &wrong).is_some());
    }
    let mut alone = honest.clone();
    alone.launches.remove(0);
    assert!(run(mapping, &shape, &tiling, &alone).is_some());
}
