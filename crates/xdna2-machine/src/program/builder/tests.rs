use super::prelude::*;
use crate::program::{Op, Operand};
use millrace_npu::Element::{Bf16, F32};

#[test]
fn every_problem_is_named() {
    let error = build("bad name", |p| {
        p.input("a", Bf16, [0, 4]);
        p.output("a", Bf16, [4]);
        p.output("big", Bf16, [i64::MAX, i64::MAX]);
        p.launch("l", |l| {
            l.channel("c").dims([-1]).from(core(0, 0)).to(core(1, 0));
            l.channel("d").block(Bf16, [4]).to(shim(0));
            l.read("nothing", "c").pattern(linear(0, 4));
            l.write("d", "a");
            l.stage("s")
                .block(Bf16, [0])
                .fill("missing", [], linear(0, 4));
            l.herd("h", 1, 1, |c| {
                let acc = c.local("acc", F32, [4]);
                c.free(acc);
                let block = c.get("c", []);
                c.put(block);
                c.free(block);
                c.call("k", [-1], [block]);
            });
        });
    })
    .unwrap_err();
    assert_eq!(error.program, "bad name");
    let expected = [
        "slot `a`: [0, 4] is not a shape",
        "launch `l`, channel `c`: `block` is missing",
        "launch `l`, channel `c`: -1 is not a size",
        "launch `l`, channel `d`: `from` is missing",
        "launch `l`, stage `s`: [0] is not the shape of a block",
        "launch `l`, stage `s`: there is no channel `missing`",
        "launch `l`, transfer: there is no slot `nothing`",
        "launch `l`, transfer nothing -> c: reads DDR, but the channel does not come from a shim",
        "launch `l`, transfer d -> a: `pattern` is missing",
        "launch `l`, herd `h`: free: `acc` is a local buffer, not a block",
        "launch `l`, herd `h`: put of a block of channel `c` that `get` gave: use `free`",
        "launch `l`, herd `h`: free: a block of channel `c` is used after it was given back",
        "launch `l`, herd `h`: k: a block of channel `c` is used after it was given back",
        "launch `l`, herd `h`: call of `k`: -1 is not a size",
        "its name is not made of letters, digits and `_`",
        "slot `a` is declared twice",
        "slot `big` has more than 2⁶⁴ bytes",
    ];
    for problem in expected {
        let found = error.problems.iter().any(|p| p == problem);
        assert!(found, "`{problem}` is not among {:#?}", error.problems);
    }
    assert_eq!(error.problems.len(), expected.len(), "{error:#?}");
}

#[test]
fn block_names_are_reused_and_branches_join() {
    let program = build("names", |p| {
        p.input("a", Bf16, [64]);
        p.launch("l", |l| {
            l.channel("in")
                .block(Bf16, [4])
                .from(shim(0))
                .to(core(0, 0));
            l.read("a", "in").pattern(linear(0, 64));
            l.herd("h", 1, 1, |c| {
                let first = c.get("in", []);
                let second = c.get("in", []);
                c.free(first);
                let third = c.get("in", []);
                c.call("k", [1], [second, third]);
                c.if_else(
                    g(0) - g(0),
                    Condition::Zero,
                    |c| c.free(third),
                    |c| c.free(third),
                );
                c.free(second);
            });
        });
    })
    .unwrap();
    let body = &program.launches[0].herds[0].body;
    let Op::Call { operands, .. } = &body[4] else {
        panic!("{body:?}")
    };
    assert_eq!(operands[..], [Operand::Block(1), Operand::Block(0)]);
    let Op::If {
        then, otherwise, ..
    } = &body[5]
    else {
        panic!("{body:?}")
    };
    assert_eq!(then, otherwise);
}

#[test]
fn a_launch_that_does_not_flatten_is_refused() {
    let error = build("flat", |p| {
        p.input("a", Bf16, [64]);
        p.launch("l", |l| {
            l.channel("in")
                .block(Bf16, [4])
                .from(shim(0))
                .to(core(0, 0));
            l.read("a", "in").pattern(linear(0, 64));
        });
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "program `flat` cannot be built: launch `l`, in: no herd has a core at column 0, row 0"
    );
}
