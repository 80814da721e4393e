use super::*;
use crate::Profile;

/// (n, k) of every product of the models that the project must run.
const MODELS: &[(&str, &[(u32, u32)])] = &[
    (
        "Llama-3.2-1B",
        &[
            (2048, 2048),
            (512, 2048),
            (8192, 2048),
            (2048, 8192),
            (128_256, 2048),
        ],
    ),
    (
        "Qwen2.5-1.5B",
        &[
            (1536, 1536),
            (256, 1536),
            (8960, 1536),
            (1536, 8960),
            (151_936, 1536),
        ],
    ),
    (
        "Gemma-3-1B",
        &[
            (1024, 1152),
            (256, 1152),
            (1152, 1024),
            (6912, 1152),
            (1152, 6912),
            (262_144, 1152),
        ],
    ),
    (
        "Llama-3-8B",
        &[(4096, 14_336), (14_336, 4096), (128_256, 4096)],
    ),
];

fn shape(kind: MatmulKind, m: u32, n: u32, k: u32) -> Matmul {
    Matmul { kind, m, n, k }
}

#[test]
fn every_product_of_the_models_is_cut() {
    let (machine, profile) = (Machine::rk3588(), Profile::rocket_200());
    for (model, products) in MODELS {
        for &(n, k) in *products {
            for kind in [
                MatmulKind::Int8Int32,
                MatmulKind::Fp16F32,
                MatmulKind::Bf16F32,
            ] {
                let most = shape(kind, 128, n, k);
                let (split, _) = choose_weights(most, 3, &machine, &profile)
                    .unwrap_or_else(|e| panic!("{model} {most}: {e}"));
                let mut b_bytes = None;
                for m in [1, 2, 7, 88, 128, 512] {
                    let shape = shape(kind, m, n, k);
                    let chosen = choose(shape, split, &machine, &profile)
                        .unwrap_or_else(|e| panic!("{model} {shape}: {e}"));
                    let grid = Grid::new(shape, chosen.tiling, &machine).unwrap();
                    // One packed copy of the weights serves every m.
                    assert_eq!(*b_bytes.get_or_insert(grid.b_bytes()), grid.b_bytes());
                    assert!(
                        chosen.reason().contains("cheapest of"),
                        "{}",
                        chosen.reason()
                    );
                }
            }
        }
    }
}

#[test]
fn long_k_is_taken_in_parts_that_fit() {
    let (machine, profile) = (Machine::rk3588(), Profile::rocket_200());
    let long = shape(MatmulKind::Int8Int32, 128, 4096, 14_336);
    let (split, chosen) = choose_weights(long, 3, &machine, &profile).unwrap();
    assert!(split.depth <= 3072 || split.depth >= 4096);
    assert!(rows_max(split.depth, long.kind, &machine) >= chosen.tiling.rows);
    let parts = Grid::new(long, chosen.tiling, &machine)
        .unwrap()
        .parts
        .len();
    assert!(parts >= 4, "{parts} parts of {}", split.depth);
}

#[test]
fn a_choice_is_the_cheapest_of_what_was_looked_at() {
    let (machine, profile) = (Machine::rk3588(), Profile::rocket_200());
    let product = shape(MatmulKind::Int8Int32, 512, 4096, 3840);
    let (_, chosen) = choose_weights(product, 3, &machine, &profile).unwrap();
    assert!(chosen.candidates.len() > 4);
    for candidate in &chosen.candidates {
        if let Ok(price) = &candidate.price {
            assert!(price.total_ns() >= chosen.price.total_ns());
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let machine = Machine::rk3588();
    let good = Tiling {
        rows: 64,
        cols: 512,
        depth: 4096,
        workers: 3,
        order: Order::Columns,
        job_tasks: 4,
    };
    let product = shape(MatmulKind::Int8Int32, 64, 4096, 4096);
    assert_eq!(good.check(&product, &machine), Ok(()));
    let refused = [
        (Tiling { rows: 68, ..good }, "at most 64 rows"),
        (Tiling { rows: 3, ..good }, "multiple of 4"),
        (Tiling { cols: 500, ..good }, "multiple of 32"),
        (Tiling { cols: 8224, ..good }, "up to 8192"),
        (Tiling { depth: 100, ..good }, "multiple of 32"),
        (Tiling { workers: 0, ..good }, "1 to 64"),
        (
            Tiling {
                job_tasks: 0,
                ..good
            },
            "at least 1",
        ),
    ];
    for (tiling, words) in refused {
        let error = tiling.check(&product, &machine).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let half = shape(MatmulKind::Fp16Fp16, 4, 64, 4096);
    let error = Tiling {
        depth: 2048,
        rows: 4,
        ..good
    }
    .check(&half, &machine);
    assert!(matches!(error, Err(TilingError::Parts { .. })));
    let zero = shape(MatmulKind::Int8Int32, 0, 1, 1);
    assert!(matches!(
        good.check(&zero, &machine),
        Err(TilingError::Shape { .. })
    ));
    let huge = shape(MatmulKind::Int8Int32, 4, DIM_MAX, DIM_MAX);
    let error = Grid::new(huge, Tiling { rows: 4, ..good }, &machine);
    assert!(matches!(error, Err(TilingError::Buffer { .. })));
}
