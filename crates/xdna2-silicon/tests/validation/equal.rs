//! Mappings whose words leave the simulator's bytes.

use super::*;
use millrace_testkit::sample;
use millrace_xdna2_machine::{Profile, timing};

/// Validates with one order of actors, or with `MILLRACE_TEST_ALL=1` with several.
fn equal(cases: &[(&str, &str, &str)]) {
    let seeds: &[u64] = sample::whole_or(&[1, 2, 3], &[1]);
    for &(name, shape, overrides) in cases {
        match validate(name, shape, overrides, seeds) {
            Ok(counters) => assert!(counters.iter().all(|c| c.words > 0), "{name} {shape}"),
            Err(problem) => panic!("{name} {shape} {overrides}: {problem}"),
        }
    }
}

#[test]
fn gemms() {
    equal(&[
        ("gemm-stream", "64x64x64", ""),
        ("gemm-stream-bt", "128x96x128+64", ""),
        ("gemm-i8", "64x64x64", ""),
        ("gemm-f32", "128x96x128", "tile_k_l2=32"),
        ("gemm-fused-cast", "128x96x128", "tile_k_l2=32"),
        ("gemm-drain", "128x96x128", "tile_k_l2=32"),
        ("gemm-direct", "128x96x128", "tile_k_l2=32"),
        ("gemm-direct-f32", "128x96x128", "tile_k_l2=32"),
        ("gemm-drain-bt", "128x96x128", "tile_k_l2=32"),
        ("gemm-direct-bt", "128x96x128", "tile_k_l2=32"),
        (
            "gemm-megatile",
            "128x64x64",
            "tile_m=8,tile_n=16,tile_k_l2=32,e_x=1,e_y=2",
        ),
        ("gemm-q4nx", "64x256x64", ""),
        ("gemm-q4nx-ddr", "64x256x64", ""),
    ]);
}

#[test]
fn products_of_a_matrix_and_a_vector() {
    equal(&[
        ("gemv", "64x128", ""),
        ("gemv", "256x192", "tile_m=8,m_input=4"),
        ("gemv", "256x192", "tile_m=8,m_input=4,streamed=1"),
        ("gemv-stream", "64+64x256", ""),
        ("gemv-i8", "64+64x256", ""),
        ("fused-dqp", "64+64x256", ""),
    ]);
}

#[test]
fn by_row_and_by_element() {
    equal(&[
        ("rmsnorm", "16x64", ""),
        ("layernorm", "16x64", ""),
        ("rope", "16x64", ""),
        ("silu-mul", "4096", ""),
        ("gelu-mul", "4096", ""),
        ("gelu", "4096", ""),
        ("add", "4096", ""),
        ("add-2d", "16x64", ""),
        ("add-flat", "16x64", ""),
        ("delta-net", "4x32x64", ""),
    ]);
}

#[test]
fn attention() {
    equal(&[
        ("prompt-attention", "64x64 8q/2kv d64", ""),
        ("flow-qkv", "64x64 8q/4kv d64 own", ""),
        ("flash-attention", "256 2q/1kv d64 causal", ""),
        ("flow-kv", "1x64 8q/4kv d64", ""),
        (
            "token-attention",
            "1x640 4q/2kv d64 of 700",
            "cols=4,keys=160",
        ),
        ("cached-attention", "1x512 4q/2kv d64", ""),
    ]);
}

#[test]
fn what_goes_by_the_cascade() {
    equal(&[
        ("gemv-cascade", "64x256", ""),
        (
            "gemv-cascade",
            "48x128",
            "cols=3,rows=2,tile_m=4,l2_copies=1",
        ),
    ]);
}

/// Counts that the clock may take from here: words, tasks, descriptors.
#[test]
fn a_launch_says_what_it_takes() {
    let (program, _) = case("gemm-stream", "128x96x128", "");
    let lowered = lower(&program, &Machine::npu2()).unwrap();
    let counts = lowered[0].words.counts;
    assert_eq!(counts.words, lowered[0].words.stream.encode().len());
    assert_eq!(counts.operations, lowered[0].words.stream.operations.len());
    assert!(counts.shim_tasks > 0 && counts.descriptors > 0 && counts.locks > 0);
    // The same words every time.
    let again = lower(&program, &Machine::npu2()).unwrap();
    assert_eq!(
        again[0].words.stream.encode(),
        lowered[0].words.stream.encode()
    );
}

/// The clock counts the bytes that configure the array without words. They equal those of the lowering. Takes every
/// eighth shape of the mappings' own tests, all with `MILLRACE_TEST_ALL=1`.
#[test]
fn the_clock_counts_the_bytes_that_are_written() {
    let machine = Machine::npu2();
    let rows = include_str!("shapes.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let (mut n_launches, mut wrong) = (0, Vec::new());
    let mut counting = std::time::Duration::ZERO;
    for (number, row) in rows.enumerate() {
        let [name, shape, tiling] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        if !sample::takes(number, 8, 2) {
            continue;
        }
        let (program, _) = case(name, shape, tiling);
        // Another test names the programs without words.
        let Ok(lowered) = lower(&program, &machine) else {
            continue;
        };
        for launch in &lowered {
            let start = std::time::Instant::now();
            let counted = timing::configuration_bytes(&launch.flat, &machine);
            counting += start.elapsed();
            let written = launch.words.counts.configuration_bytes() as u64;
            n_launches += 1;
            if counted != written {
                let name = &launch.flat.launch.name;
                wrong.push(format!("{row}, {name}: {counted}, written {written}"));
            }
        }
    }
    println!("{n_launches} launches, counted in {counting:?}");
    assert!(wrong.is_empty(), "of {n_launches}:\n{}", wrong.join("\n"));
    assert!(n_launches > 20, "{n_launches}");
}

/// The clock issues as many tasks of shims as the words have, of every mapping: none is estimated.
#[test]
fn the_clock_issues_the_tasks_that_are_written() {
    let machine = Machine::npu2();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    let rows = include_str!("shapes.txt").lines();
    let rows = rows.filter(|line| !line.starts_with('#'));
    let (mut n_launches, mut wrong) = (0, Vec::new());
    for (number, row) in rows.enumerate() {
        let [name, shape, tiling] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        if !sample::takes(number, 8, 5) {
            continue;
        }
        let (program, _) = case(name, shape, tiling);
        let Ok(lowered) = lower(&program, &machine) else {
            continue;
        };
        for launch in &lowered {
            n_launches += 1;
            let issued = timing::shim_tasks(&launch.flat, &machine, &profile);
            let written = launch.words.counts.shim_tasks as u64;
            if issued.as_ref() != Ok(&written) {
                let name = &launch.flat.launch.name;
                wrong.push(format!("{row}, {name}: {issued:?}, written {written}"));
            }
        }
    }
    println!("{n_launches} launches");
    assert!(wrong.is_empty(), "of {n_launches}:\n{}", wrong.join("\n"));
    assert!(n_launches > 20, "{n_launches}");
}

/// A shim's task in the stream: a descriptor, its address, a push, a wait; and the number of tasks of a GEMM.
#[test]
fn a_task_of_a_shim_takes_136_bytes() {
    let counts = |shape: &str| {
        let (program, _) = case("gemm-drain", shape, "");
        let lowered = lower(&program, &Machine::npu2()).unwrap();
        let n_points = program.launches[0].n_grid_points().unwrap() as usize;
        let counts = lowered[0].words.counts;
        // As the profile's note counts them.
        assert_eq!(counts.shim_tasks, 20 * n_points, "{shape}");
        counts
    };
    let (few, many) = (counts("512x256x1024"), counts("512x256x4096"));
    let n_tasks = many.shim_tasks - few.shim_tasks;
    assert_eq!((many.words - few.words) * 4, n_tasks * 136);
    assert_eq!(few.descriptors, many.descriptors);
}

/// Each shape of the mappings' own tests with `MILLRACE_TEST_ALL=1`, else a few of them.
#[test]
fn shapes_of_the_mappings_tests() {
    let rows = include_str!("shapes.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let mut wrong = Vec::new();
    for (number, row) in rows.enumerate() {
        let [name, shape, tiling] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        if !sample::takes(number, 48, 5) {
            continue;
        }
        let start = std::time::Instant::now();
        if let Err(problem) = validate(name, shape, tiling, &[number as u64]) {
            wrong.push(format!("{row}: {problem}"));
        }
        println!("{row}: {:?}", start.elapsed());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A mapping without a shape would never be validated.
#[test]
fn every_mapping_has_shapes() {
    let machine = Machine::npu2();
    let rows = include_str!("shapes.txt").lines();
    let (mut names, mut wrong) = (std::collections::BTreeSet::new(), Vec::new());
    for row in rows.filter(|line| !line.starts_with('#')) {
        let [name, shape, tiling] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        names.insert(name);
        let Some(mapping) = mapping::find(name) else {
            panic!("{name} is no mapping");
        };
        let shape = mapping.parse_shape(shape).unwrap();
        let usual = mapping.default_tiling(&shape, &machine);
        let built = usual
            .overridden(tiling)
            .map_err(|error| error.to_string())
            .and_then(|tiling| {
                let program = mapping.build(&shape, &tiling, &machine);
                program.map(|_| ()).map_err(|error| error.to_string())
            });
        if let Err(problem) = built {
            wrong.push(format!("{row}: {problem}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for mapping in mapping::TABLE {
        assert!(names.contains(mapping.name()), "{}", mapping.name());
    }
}
