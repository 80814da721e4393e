//! Predicted times of mappings' programs: the closed forms agree in steady state, counters account for
//! time and bytes, a program that cannot end names the waiting parties.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_xdna2::mapping;
use millrace_xdna2_machine::profile::Cycles;
use millrace_xdna2_machine::program::Flat;
use millrace_xdna2_machine::timing::closed::{self, GemmTile};
use millrace_xdna2_machine::timing::{self, TimingOptions, predict, predict_with};
use millrace_xdna2_machine::{Machine, Profile, Program};

fn setup() -> (Machine, Profile) {
    let profile = Profile::builtin(Profile::DEFAULT).expect("built in");
    (Machine::npu2(), profile)
}

fn program(mapping: &str, shape: &str, tiling: &str) -> Program {
    let machine = Machine::npu2();
    let mapping = mapping::find(mapping).expect("a mapping");
    let shape = mapping.parse_shape(shape).expect("a shape");
    let tiling = mapping
        .default_tiling(&shape, &machine)
        .overridden(tiling)
        .expect("a tiling");
    mapping.build(&shape, &tiling, &machine).expect("legal")
}

fn ns(mapping: &str, shape: &str, tiling: &str) -> f64 {
    let (machine, profile) = setup();
    let program = program(mapping, shape, tiling);
    predict(&program, &machine, &profile)
        .expect("runs")
        .total_ns
}

fn rate(profile: &Profile, kernel: &str) -> Cycles {
    *profile.kernel(kernel).expect("in the profile")
}

fn assert_close(found: f64, expected: f64, percent: f64) {
    let error = (found / expected - 1.0) * 100.0;
    assert!(
        error.abs() <= percent,
        "{found:.1} ns, closed form {expected:.1}: {error:+.2} %"
    );
}

#[test]
fn gemm_panels_agree_with_the_closed_form() {
    let (machine, profile) = setup();
    let rate = rate(&profile, "matmul_bf16_f32.peano").macs_per_cycle;
    for (mapping, m, rows) in [("gemm-f32", 64, 512), ("gemm-drain", 32, 256)] {
        let tiling = format!("tile_m={m},tile_k_l2=256,tile_k_l1=32,tile_n=128");
        let at = |k: u64| ns(mapping, &format!("{rows}x{k}x512"), &tiling);
        let tile = GemmTile {
            cols: 8,
            rows: 4,
            m,
            n: 128,
            k_l2: 256,
        };
        let panel = closed::gemm_panel_ns(&tile, rate, &machine, &profile);
        assert_close((at(8192) - at(4096)) / 16.0, panel, 2.0);
    }
}

/// A product that waits for its weights gains nothing from four times as many cores that share a sum: docs/ceiling.md.
/// If it waits for the cores, they do help.
#[test]
fn a_cascade_is_no_way_round_the_memory() {
    for shape in ["8192x2048", "2048x8192"] {
        let cascade = ns("gemv-cascade", shape, "");
        let plain = ns("gemv", shape, "streamed=1");
        let streams = ns("gemv-stream", shape, "");
        assert!(
            cascade > 0.97 * plain.min(streams),
            "{shape}: {cascade} beside {plain}, {streams}"
        );
        assert!(cascade < 1.3 * plain, "{shape}: {cascade} beside {plain}");
    }
    // A fortieth of the cores' speed.
    let (machine, mut profile) = setup();
    for kernel in [
        "matvec_bf16_f32",
        "matvec_bf16_bf16",
        "matvec_part_bf16_bf16",
    ] {
        let slow = format!("kernel.{kernel}.macs_per_cycle=0.8");
        profile.set(&slow).expect("a constant");
    }
    let at = |mapping: &str, tiling: &str| {
        let program = program(mapping, "8192x2048", tiling);
        predict(&program, &machine, &profile)
            .expect("runs")
            .total_ns
    };
    let (plain, cascade) = (at("gemv", "streamed=1"), at("gemv-cascade", ""));
    assert!(
        cascade < 0.5 * plain,
        "slow cores: {cascade} beside {plain}"
    );
}

#[test]
fn gemv_points_agree_with_the_closed_form() {
    let (machine, profile) = setup();
    let at = |m: u64| ns("gemv", &format!("{m}x2048"), "tile_m=8,m_input=8");
    let rate = rate(&profile, "matvec_bf16_bf16").macs_per_cycle;
    let point = closed::gemv_point_ns((8, 8, 2048), 8, rate, &machine, &profile);
    // The vector, 4 KiB in addition to 256 KiB, is read as well.
    assert_close(
        (at(16384) - at(8192)) / 128.0,
        point * (1.0 + 1.0 / 64.0),
        2.0,
    );
}

#[test]
fn element_wise_kernels_agree_with_the_closed_form() {
    let (machine, profile) = setup();
    for (name, kernel, tile, cores, bytes) in [
        ("silu-mul", "silu_mul_bf16", 4096, 8, (4, 2)),
        ("silu-mul", "silu_mul_bf16", 4096, 1, (4, 2)),
        ("add", "add_bf16", 2048, 8, (4, 2)),
    ] {
        let tiling = format!("cols={cores},rows=1,tile={tile}");
        let at = |n: u64| ns(name, &n.to_string(), &tiling);
        let cost = rate(&profile, kernel).cycles_per_element;
        let expected = closed::elementwise_ns(4 << 20, cores, cost, bytes, &machine, &profile);
        assert_close(at(8 << 20) - at(4 << 20), expected, 2.0);
    }
}

#[test]
fn megatiles_agree_with_the_closed_form() {
    let machine = Machine::npu2();
    let profile = Profile::builtin("paper-kraken").expect("built in");
    let rate = rate(&profile, "matmul_bf16_f32.flm").macs_per_cycle;
    let tiling = "tile_m=16,tile_n=64,e_y=1,e_x=2,cols=8,rows=4";
    let at = |k: u64| {
        let program = program("gemm-megatile", &format!("2048x{k}x2048"), tiling);
        predict(&program, &machine, &profile)
            .expect("runs")
            .total_ns
    };
    let closed = |k| closed::megatile_ns((2048, k, 2048), (128, 512), rate, &machine, &profile);
    assert_close(at(8192) - at(4096), closed(8192) - closed(4096), 2.0);
}

#[test]
fn counters_account_for_time_and_bytes() {
    let (machine, profile) = setup();
    let program = program("gemm-drain", "512x1024x1024", "");
    let timing = predict(&program, &machine, &profile).expect("runs");
    let launch = &timing.launches[0];
    assert_eq!(launch.cores.len(), 32);
    for core in &launch.cores {
        let sum = core.busy_ns + core.stall_in_ns + core.stall_out_ns;
        assert!(
            core.busy_ns > 0.0 && sum <= launch.ns,
            "{core:?} of {}",
            launch.ns
        );
    }
    let point = launch.points as f64;
    let grid = &program.launches[0].grid;
    assert_eq!(point, f64::from(grid.iter().product::<u32>()));
    assert_eq!(launch.points_simulated, launch.points.min(4));
    assert_eq!(launch.ddr_write_bytes, 512.0 * 1024.0 * 2.0);
    let a_and_b =
        2.0 * 512.0 * 1024.0 * f64::from(grid[1]) + 2.0 * 1024.0 * 1024.0 * f64::from(grid[0]);
    assert_eq!(launch.ddr_read_bytes, a_and_b);
    assert!(launch.bottleneck.utilization > 0.3 && launch.bottleneck.utilization <= 1.0);
    assert_eq!(timing.total_ns, timing.dispatch_ns + launch.ns);
    assert!(timing.label.starts_with("modelled(air-strix-2026, ±"));
}

#[test]
fn merged_blocks_move_the_same_bytes() {
    let (machine, profile) = setup();
    let program = program("rope", "65536x64", "");
    let timing = predict(&program, &machine, &profile).expect("runs");
    let launch = &timing.launches[0];
    assert_eq!(launch.ddr_write_bytes, 65536.0 * 64.0 * 2.0);
    assert_eq!(launch.cores.iter().map(|c| c.calls).sum::<u64>(), 65536);
    assert!(!launch.extrapolated);
}

#[test]
fn several_herds_load_their_cores() {
    let (machine, profile) = setup();
    let fused = program("gemm-fused-cast", "512x512x512", "");
    let timing = predict(&fused, &machine, &profile).expect("runs");
    let cores: Vec<usize> = timing.launches.iter().map(|l| l.cores.len()).collect();
    assert_eq!(cores, [32, 8]);
    let dispatch = &profile.dispatch;
    // Zeroing and multiplying on 32 cores, casting on 8.
    let objects: Vec<usize> = timing.launches.iter().map(|l| l.objects).collect();
    assert_eq!(objects, [64, 8]);
    let bytes: Vec<u64> = timing
        .launches
        .iter()
        .map(|l| l.configuration_bytes)
        .collect();
    assert_eq!(bytes, [46_896, 10_480]);
    // The cast's eight cores have less to configure than a launch costs at least.
    let gemm_ns = 46_896.0 * dispatch.configure_byte_ns + 64.0 * dispatch.object_load_ns;
    let loads = gemm_ns + dispatch.launch_ns;
    let loads_ns = timing.dispatch_ns - dispatch.call_ns;
    assert!((loads_ns - loads).abs() < 1e-3, "{loads_ns}");
}

/// Sizes of streams that MLIR-AIR's compiler wrote for a transformer's layer of 4096 rows
/// (`transformer_layer/probe_backend_preset_hardware.py` of an mlir-air tree): a GEMM of 4096 x 768 x 768 with its points
/// issued one by one, and attention of twelve heads. Headers have 16 bytes, tasks 120; a task of an output has a token
/// and a wait, 44 bytes more.
#[test]
fn tasks_are_those_of_published_streams() {
    let (machine, profile) = setup();
    let bytes = |mapping: &str, shape: &str, tiling: &str, n_points: u64| {
        let program = program(mapping, shape, tiling);
        let flat = Flat::new(&program.launches[0]).expect("legal");
        assert_eq!(flat.launch.n_grid_points(), Some(n_points));
        let n_tasks = timing::shim_tasks(&flat, &machine, &profile).expect("runs");
        // Eight columns write an output each.
        16 + 120 * n_tasks + 44 * 8 * n_points
    };
    assert_eq!(bytes("gemm-drain", "4096x768x768", "tile_m=32", 32), 88_080);
    let heads = "4096 12q/12kv d64 full";
    assert_eq!(bytes("flash-attention", heads, "", 96), 402_448);
}

#[test]
fn a_trace_is_bounded_and_in_the_launch() {
    let (machine, profile) = setup();
    let program = program("gemm-f32", "512x512x512", "");
    let options = TimingOptions {
        trace_spans: 100,
        ..TimingOptions::default()
    };
    let timing = predict_with(&program, &machine, &profile, &options).expect("runs");
    assert_eq!(timing.trace.len(), 100);
    for span in &timing.trace {
        assert!(span.start_ns <= span.end_ns && span.end_ns <= timing.launches[0].ns);
    }
    let quiet = predict(&program, &machine, &profile).expect("runs");
    assert!(quiet.trace.is_empty());
    assert_eq!(quiet.total_ns, timing.total_ns);
}

#[test]
fn what_cannot_end_says_who_waits() {
    let (machine, profile) = setup();
    let mut program = program("gemm-f32", "512x512x512", "");
    let b = &mut program.launches[0].transfers[1].pattern;
    assert!(b.dims.len() >= 2);
    b.dims[0].0 = millrace_xdna2_machine::program::Affine::new(1);
    let error = predict(&program, &machine, &profile).expect_err("half of B is missing");
    let text = error.to_string();
    assert!(
        text.contains("is stuck") && text.contains("waits for b["),
        "{text}"
    );
}

#[test]
fn an_unknown_kernel_object_is_named() {
    let (machine, mut profile) = setup();
    profile.kernels.remove("add_bf16");
    let program = program("add", "65536", "");
    let error = predict(&program, &machine, &profile)
        .expect_err("no cycles")
        .to_string();
    assert!(error.contains("no cycles for `add_bf16`"), "{error}");
}

#[test]
fn an_early_stop_extrapolates_from_bytes() {
    let (machine, profile) = setup();
    let program = program("silu-mul", "1048576", "");
    let options = TimingOptions {
        max_events: 400,
        ..TimingOptions::default()
    };
    let whole = predict(&program, &machine, &profile)
        .expect("runs")
        .launches[0]
        .ns;
    let timing = predict_with(&program, &machine, &profile, &options).expect("runs");
    assert!(timing.launches[0].extrapolated);
    assert_close(timing.launches[0].ns, whole, 20.0);
}

#[test]
fn issuing_tasks_costs_every_point_of_a_gemm_and_one_of_a_gemv() {
    let (machine, mut profile) = setup();
    let gemm = program("gemm-f32", "512x256x1024", "tile_m=64,tile_n=128");
    let gemv = program("gemv", "4096x2048", "");
    let both = |profile: &Profile| {
        [&gemm, &gemv].map(|p| predict(p, &machine, profile).expect("runs").total_ns)
    };
    let with = both(&profile);
    profile.set("dispatch.issue_ns=0").expect("known");
    let without = both(&profile);
    let issue_ns = setup().1.dispatch.issue_ns;
    // Two points of 8 x 4 cores: eight tasks to write C come before those that read.
    assert!(
        with[0] - without[0] > 8.0 * issue_ns,
        "{with:?} {without:?}"
    );
    assert!(
        with[1] - without[1] < 20.0 * issue_ns,
        "{with:?} {without:?}"
    );
}
