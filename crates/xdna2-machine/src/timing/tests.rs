use super::ddr::{StreamKind, fair_rates};
use super::*;
use crate::program::text;

/// Programs that mappings print: `millrace kernel gemm-f32 1536x512x2560 --tile tile_m=64,tile_n=128
/// --print`, `kernel gemv 2048x2048`, `kernel flash-attention "1024 2q/1kv d64 causal"`, as it is and
/// with `causal_skip=1`.
fn written(program: &str) -> Program {
    text::parse(program).expect("a program")
}

#[test]
fn shares_of_the_ddr_are_fair() {
    let mut profile = Profile::builtin(Profile::DEFAULT).expect("built in");
    for set in [
        "ddr.read_gb_per_s=40",
        "ddr.total_gb_per_s=50",
        "shim.column_read_gb_per_s=15",
    ] {
        profile.set(set).expect("known");
    }
    let stream = |col: u32, writes: bool, memory_channel: Option<u32>| StreamKind {
        writes,
        col,
        cost: 1.0,
        memory_channel,
        weight: 1.0,
    };
    let rates = |streams: &[StreamKind]| fair_rates(streams, &profile, 10.0);
    assert_eq!(rates(&[stream(0, false, None)]), [10.0]);
    let column = rates(&[stream(0, false, None), stream(0, false, None)]);
    assert_eq!(column, [7.5, 7.5]);
    let reads: Vec<StreamKind> = (0..8).map(|col| stream(col, false, None)).collect();
    assert!(rates(&reads).iter().all(|r| (r - 5.0).abs() < 1e-9));
    // Confined to one of two memory channels, all together get half.
    let confined: Vec<StreamKind> = (0..8).map(|col| stream(col, false, Some(1))).collect();
    assert!(rates(&confined).iter().all(|r| (r - 2.5).abs() < 1e-9));
    // Reads share the part of the total that writes leave.
    let mixed: Vec<StreamKind> = (0..8).map(|col| stream(col, col < 4, None)).collect();
    assert!((rates(&mixed).iter().sum::<f64>() - 50.0).abs() < 1e-9);
}

#[test]
fn read_bandwidth_counts_chunks_up_to_ones_own() {
    let (l, chunk) = (1024.0, 256.0);
    let chunks = 1..=(l / chunk) as u32;
    let positions: f64 = chunks.map(|c| f64::from(c) * chunk).sum();
    // Keys and values, that many positions each, by every tile and head.
    let bytes = 64.0 * positions * 2.0 * 32.0 * 8.0 * 2.0;
    let found = closed::read_bandwidth_of_attention(64.0, l, chunk, 32.0, 8.0, 0.5);
    assert_eq!(found, bytes / 0.5);
}

#[test]
fn points_of_a_gemm_are_issued_two_by_two() {
    let gemm = written(include_str!("tests/gemm.tile"));
    let launch = &gemm.launches[0];
    assert_eq!(launch.grid, [3, 5]);
    let groups = points::groups(launch);
    let found: Vec<(usize, u64)> = groups.iter().map(|g| (g.points.len(), g.count)).collect();
    assert_eq!(found, [(4, 2), (2, 1), (2, 2), (1, 1)]);
    let n: u64 = found.iter().map(|&(n, count)| n as u64 * count).sum();
    assert_eq!(Some(n), launch.n_grid_points());
    assert!(!points::folded(launch));
    let gemv = written(include_str!("tests/gemv.tile"));
    assert!(points::folded(&gemv.launches[0]));
}

#[test]
fn points_that_skip_work_are_simulated_apart() {
    let full = written(include_str!("tests/attention.tile"));
    let groups = points::groups(&full.launches[0]);
    assert_eq!(groups.len(), 1);
    assert_eq!(
        groups[0].points.len(),
        1,
        "attention is issued point by point"
    );
    let n = full.launches[0].n_grid_points().expect("fits");
    assert_eq!(groups[0].count, n);
    let skipping = written(include_str!("tests/attention_skip.tile"));
    let groups = points::groups(&skipping.launches[0]);
    assert!(groups.len() > 1);
    assert_eq!(groups.iter().map(|g| g.count).sum::<u64>(), n);
}
