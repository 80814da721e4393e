use super::*;
use crate::program::builder::prelude::*;
use millrace_npu::Element::{self, Bf16, F32};

/// A program of one core that reads its first slots and writes its last.
fn op(name: &str, element: Element, slots: &[(&str, &[i64], Role)]) -> Program {
    build(name, |p| {
        for (name, shape, role) in slots {
            p.slot(name, element, shape.iter().copied(), *role);
        }
        p.launch(name, |l| {
            for (slot, shape, role) in slots {
                let n = shape.iter().product();
                let channel = l.channel(slot).block(element, [n]);
                match role {
                    Role::Output | Role::Intermediate => channel.from(core(0, 0)).to(shim(0)),
                    _ => channel.from(shim(0)).to(core(0, 0)),
                };
                match role {
                    Role::Output | Role::Intermediate => l.write(slot, slot),
                    _ => l.read(slot, slot),
                }
                .pattern(linear(0, n));
            }
            l.herd(name, 1, 1, |c| {
                for (slot, _, role) in slots {
                    if matches!(role, Role::Output | Role::Intermediate) {
                        let block = c.new_block(slot, []);
                        c.put(block);
                    } else {
                        let block = c.get(slot, []);
                        c.free(block);
                    }
                }
            });
        });
    })
    .unwrap()
}

fn gemm() -> Program {
    op(
        "gemm",
        Bf16,
        &[
            ("x", &[4, 8], Role::Input),
            ("w", &[8, 8], Role::Static),
            ("y", &[4, 8], Role::Output),
        ],
    )
}

fn add() -> Program {
    op(
        "add",
        Bf16,
        &[
            ("a", &[32], Role::Input),
            ("b", &[32], Role::Input),
            ("y", &[32], Role::Output),
        ],
    )
}

fn part<'a>(program: &'a Program, prefix: &'a str, arg_map: &'a [&'a str]) -> StitchPart<'a> {
    StitchPart {
        program,
        prefix,
        arg_map,
    }
}

fn roles(program: &Program) -> Vec<(&str, Role)> {
    let slots = program.slots.iter();
    slots.map(|slot| (slot.name.as_str(), slot.role)).collect()
}

#[test]
fn slots_are_wired_and_roles_merged() {
    let (gemm, add) = (gemm(), add());
    let program = stitch(
        "q_k_add",
        &[
            part(&gemm, "q", &["x", "wq", "q"]),
            part(&gemm, "k", &["x", "wk", "k"]),
            part(&add, "sum", &["q", "k", "sum"]),
        ],
        &["k"],
    )
    .unwrap();
    assert_eq!(
        roles(&program),
        [
            ("x", Role::Input),
            ("wq", Role::Static),
            ("q", Role::Intermediate),
            ("wk", Role::Static),
            ("k", Role::Output),
            ("sum", Role::Output),
        ]
    );
    assert_eq!(
        program.slots[2].shape,
        [4, 8],
        "the matrix, not its flattening"
    );
    let launches: Vec<_> = program
        .launches
        .iter()
        .map(|l| (l.name.as_str(), l.args.clone()))
        .collect();
    assert_eq!(
        launches,
        [
            ("q_gemm", vec![0, 1, 2]),
            ("k_gemm", vec![0, 3, 4]),
            ("sum_add", vec![2, 4, 5]),
        ]
    );
    assert!(program.flatten().is_ok());
    assert_eq!(
        program.launches[2].arg_uses(),
        [(true, false), (true, false), (false, true)]
    );
    // A stitched program is a program: it can be stitched again.
    let map = ["x", "wq", "q", "wk", "k", "sum"];
    let twice = stitch("twice", &[part(&program, "", &map)], &[]).unwrap();
    assert_eq!(roles(&twice), roles(&program));
    assert_eq!(twice.launches, program.launches);
}

#[test]
fn role_rules() {
    let (gemm, add) = (gemm(), add());
    // One part's weights are another's activations: written before each call.
    let square = op(
        "square",
        Bf16,
        &[("w", &[8, 8], Role::Input), ("y", &[8, 8], Role::Output)],
    );
    let parts = [
        part(&gemm, "a", &["x", "w", "y"]),
        part(&square, "b", &["w", "z"]),
    ];
    let program = stitch("both", &parts, &[]).unwrap();
    assert_eq!(program.slots[1].role, Role::Input);
    // A buffer that is reused after its content was read gets the role of its last write.
    let parts = [
        part(&gemm, "a", &["x", "w", "t"]),
        part(&gemm, "b", &["t", "w2", "u"]),
        part(&gemm, "c", &["u", "w3", "t"]),
    ];
    let program = stitch("reuse", &parts, &[]).unwrap();
    assert_eq!(program.slots[2].role, Role::Output);
    assert_eq!(program.slots[4].role, Role::Intermediate);
    // The same input twice is fine where neither is written.
    let program = stitch("double", &[part(&add, "", &["x", "x", "y"])], &[]).unwrap();
    assert_eq!(program.launches[0].args, [0, 0, 1]);
    let scratch = op("scratch", Bf16, &[("s", &[32], Role::Intermediate)]);
    let program = stitch("s", &[part(&scratch, "", &["s"])], &[]).unwrap();
    assert_eq!(program.slots[0].role, Role::Intermediate);
    let program = stitch("s", &[part(&scratch, "", &["s"])], &["s"]).unwrap();
    assert_eq!(program.slots[0].role, Role::Output);
}

#[test]
fn conflicts_are_refused_by_name() {
    let (gemm, add) = (gemm(), add());
    let error = |parts: &[StitchPart<'_>], outputs: &[&str]| {
        stitch("p", parts, outputs).unwrap_err().to_string()
    };
    assert_eq!(
        error(&[part(&gemm, "", &["x", "w"])], &[]),
        "part 0: `gemm` has 3 slots, its arg_map names 2"
    );
    assert_eq!(
        error(&[part(&gemm, "", &["x", "x", "y"])], &[]),
        "slot `x` is bf16[4, 8] in part 0 and bf16[8, 8] in part 0"
    );
    let short = op("short", Bf16, &[("x", &[31], Role::Input)]);
    assert_eq!(
        error(
            &[
                part(&gemm, "a", &["x", "w", "y"]),
                part(&short, "b", &["y"])
            ],
            &[]
        ),
        "slot `y` is bf16[4, 8] in part 0 and bf16[31] in part 1"
    );
    let wide = op("wide", F32, &[("x", &[4, 8], Role::Input)]);
    assert_eq!(
        error(
            &[part(&gemm, "a", &["x", "w", "y"]), part(&wide, "b", &["y"])],
            &[]
        ),
        "slot `y` is bf16[4, 8] in part 0 and f32[4, 8] in part 1"
    );
    assert_eq!(
        error(&[part(&add, "", &["x", "y", "x"])], &[]),
        "part 0: `a` and `y` of `add` are both wired to `x`, and it is written"
    );
    assert_eq!(
        error(
            &[
                part(&gemm, "a", &["x", "w", "y"]),
                part(&gemm, "b", &["y", "v", "x"])
            ],
            &[]
        ),
        "slot `x` is read as input by part 0 and overwritten by part 1: give the result a slot \
         of its own"
    );
    let once = [part(&gemm, "", &["x", "w", "y"])];
    assert_eq!(
        error(&once, &["w"]),
        "`w` is asked for as an output, but no part writes it"
    );
    assert_eq!(
        error(&once, &["q"]),
        "`q` is asked for as an output, but no part writes it"
    );
    let twice = [once[0], part(&gemm, "", &["x", "w", "z"])];
    assert_eq!(
        error(&twice, &[]),
        "two launches are named `gemm`: give the parts different prefixes"
    );
    let mut dangling = gemm.clone();
    dangling.launches[0].args[1] = 9;
    assert_eq!(
        error(&[part(&dangling, "", &["x", "w", "y"])], &[]),
        "part 0: launch `gemm` names slot 9, its program has 3"
    );
}
