use super::*;
use proptest::prelude::*;

#[test]
fn the_cbuf_rule_predicts_what_silicon_refused() {
    // rocket-userspace lists these (m, k / 32) as failing under the rule of whole bytes, and only
    // these among its neighbours (gregordinary/rocket-userspace).
    let machine = Machine::rk3588();
    let failing: [(u32, &[u32]); 3] = [
        (144, &[7, 21, 35]),
        (192, &[5, 21, 37]),
        (240, &[17, 21, 25, 29]),
    ];
    for (m, failing) in failing {
        let short: Vec<u32> = (1..40)
            .filter(|&groups| {
                let k = groups * 32;
                let plain = (u64::from(m) * u64::from(k)).div_ceil(machine.cbuf_bank_bytes);
                u64::from(data_banks(m, k, MatmulKind::Int8Int32, &machine)) > plain && plain < 12
            })
            .collect();
        for k in failing {
            assert!(short.contains(k), "m {m}: {k} is not among {short:?}");
        }
        // Full rows (k a multiple of 64) never lack anything.
        assert!(short.iter().all(|groups| groups % 2 == 1));
    }
}

#[test]
fn published_limits_of_rows_follow() {
    // happyme531/rknpu2_matmul_open: rows that fit by k.
    let machine = Machine::rk3588();
    for (k, rows) in [(4096, 64), (6144, 32), (8192, 16)] {
        let most = rows_max(k, MatmulKind::Int8Int32, &machine);
        assert!(most >= rows && most < rows + 32, "k {k}: {most}");
    }
    assert_eq!(rows_max(2048, MatmulKind::Int8Int32, &machine), 160);
    // The vendor's limit on k is 10,240.
    assert!(rows_max(10_240, MatmulKind::Int8Int32, &machine) >= 4);
    assert_eq!(rows_max(16_384, MatmulKind::Fp16F32, &machine), 0);
    // Types of equal bytes a kernel group have equal limits.
    assert_eq!(
        kernel_group_banks(4096, MatmulKind::Int8Int32, &machine),
        kernel_group_banks(4096, MatmulKind::Fp16F32, &machine)
    );
}

#[test]
fn kinds_have_names_and_the_geometry_of_the_drivers() {
    for kind in MatmulKind::ALL {
        assert_eq!(MatmulKind::from_name(kind.name()), Some(kind));
        assert_eq!(MatmulKind::of(kind.input(), kind.output()), Some(kind));
    }
    // Size - 1 of the drivers: 7, 3, 1 (mtx512), 7 for 4-bit (rocket-userspace).
    let surfaces = [
        (MatmulKind::Int8Int32, 8),
        (MatmulKind::Int8F32, 8),
        (MatmulKind::Fp16F32, 4),
        (MatmulKind::Fp16Fp16, 2),
        (MatmulKind::Bf16F32, 4),
        (MatmulKind::Int4Int16, 8),
    ];
    for (kind, expected) in surfaces {
        assert_eq!(kind.surfaces(), expected, "{kind}");
    }
}

proptest! {
    #[test]
    fn a_division_fits_or_there_is_none(m in 1u32..2048, k_groups in 1u32..512, kind in 0..MatmulKind::ALL.len()) {
        let (machine, kind, k) = (Machine::rk3588(), MatmulKind::ALL[kind], k_groups * 32);
        let banks = Banks::of(m, k, kind, &machine);
        prop_assert_eq!(banks.is_some(), m <= rows_max(k, kind, &machine));
        if let Some(banks) = banks {
            prop_assert_eq!(banks.data + banks.weight, machine.cbuf_banks);
        }
    }
}
