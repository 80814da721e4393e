use super::*;
use crate::Profile;
use crate::layout::tests::any_grid;
use crate::matmul::MatmulKind;
use crate::tiling::{Order, choose_weights};
use proptest::prelude::*;

fn program(kind: MatmulKind, m: u32, n: u32, k: u32) -> Program {
    let machine = Machine::rk3588();
    let shape = Matmul { kind, m, n, k };
    let (_, chosen) = choose_weights(shape, 3, &machine, &Profile::rocket_200()).unwrap();
    Program::build("ffn_up", shape, chosen.tiling, &machine).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn programs_round_trip(grid in any_grid()) {
        let machine = Machine::rk3588();
        let program = Program::build("p q", grid.shape, grid.tiling, &machine).unwrap();
        let decoded = Program::decode("p q", &program.encode()).unwrap();
        prop_assert_eq!(&decoded, &program);
        let parsed = Program::from_text(&program.to_text()).unwrap();
        prop_assert_eq!(&parsed, &program);
        prop_assert_eq!(program.n_tasks(), grid.n_tasks());
    }

    #[test]
    fn any_bytes_are_refused_or_come_back(cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bits in 1u8..) {
        let good = program(MatmulKind::Int8Int32, 4, 64, 64).encode();
        let at = at.index(good.len());
        let mut bytes = good.clone();
        bytes[at] ^= bits;
        if let Ok(program) = Program::decode("x", &bytes) {
            prop_assert_eq!(program.encode(), bytes);
        }
        prop_assert!(Program::decode("x", &good[..cut.index(good.len())]).is_err());
    }
}

#[test]
fn errors_name_byte_or_line() {
    let good = program(MatmulKind::Int8Int32, 4, 64, 64);
    let mut bytes = good.encode();
    bytes.push(0);
    let error = Program::decode("x", &bytes).unwrap_err();
    assert!(matches!(error, ProgramError::Trailing { count: 1, .. }));
    bytes.pop();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x40;
    let error = Program::decode("x", &bytes).unwrap_err().to_string();
    assert!(
        error.contains("job 1, task 0") || error.contains("job 0, task 0"),
        "{error}"
    );
    assert!(error.contains("no block is reached"), "{error}");
    let text = good.to_text();
    let wrong = [
        (
            text.replace("matmul int8-int32", "matmul int8"),
            2,
            "no kind is named",
        ),
        (text.replace("rows=4", "rows=four"), 3, "expected `rows=`"),
        (
            text.replace("order=columns", "order=diagonal"),
            3,
            "`columns` or `rows`",
        ),
        (text.replacen("task\n", "", 1), 5, "expected `task`"),
        (
            text.replacen("cna.CONV_CON1", "cna.CONV_CON7", 1),
            8,
            "no register",
        ),
        (String::new(), 1, "expected `program …`"),
    ];
    for (text, line, words) in wrong {
        let error = Program::from_text(&text).unwrap_err();
        assert!(error.problem.contains(words), "{error}");
        assert_eq!(error.line, line, "{error}");
    }
}

#[test]
fn reuse_is_claimed_where_the_tile_is_the_one_before() {
    let machine = Machine::rk3588();
    let shape = Matmul {
        kind: MatmulKind::Int8Int32,
        m: 16,
        n: 128,
        k: 128,
    };
    let tiling = Tiling {
        rows: 8,
        cols: 64,
        depth: 64,
        workers: 1,
        order: Order::Columns,
        job_tasks: 3,
    };
    let reuse = |order| {
        let grid = Grid::new(shape, Tiling { order, ..tiling }, &machine).unwrap();
        let tasks = tasks(&grid, 0, tiling.job_tasks, &machine);
        let bits = tasks.iter().map(|t| (t.data_reuse, t.weight_reuse));
        bits.collect::<Vec<_>>()
    };
    let (none, data, weight) = ((false, false), (true, false), (false, true));
    // Two parts, two row tiles, two column tiles; a job ends after three tasks.
    assert_eq!(
        reuse(Order::Columns),
        [none, data, none, none, none, data, none, data]
    );
    assert_eq!(
        reuse(Order::Rows),
        [none, weight, none, none, none, weight, none, weight]
    );
}

#[test]
fn names_that_no_text_carries_are_refused() {
    let good = program(MatmulKind::Int8Int32, 4, 64, 64);
    for name in ["", " x", "a\nb", "a#b"] {
        let built = Program::build(name, good.shape, good.tiling, &Machine::rk3588());
        assert!(matches!(built, Err(BuildError::Name(_))), "{name:?}");
    }
}
