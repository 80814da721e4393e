use super::*;
use crate::program::builder::prelude::*;
use crate::program::{Affine, Op, Var};
use millrace_npu::Element::Bf16;

/// DDR → memory tiles → a 2 × 2 herd by row broadcast → DDR, with a cascade down each column.
fn sample() -> Program {
    build("sample", |p| {
        p.input("a", Bf16, [4, 64]);
        p.output("y", Bf16, [2, 2, 32]);
        p.launch("main", |l| {
            l.grid([2]);
            l.channel("in")
                .dims([2])
                .block(Bf16, [64])
                .from(shim(i(0)))
                .to(memory(i(0)));
            l.channel("rows")
                .dims([2, 2])
                .block(Bf16, [32])
                .from(memory(i(0)))
                .to(core(0..2, i(1)));
            l.channel("down")
                .dims([2])
                .block(Bf16, [32])
                .link(ChannelLink::Cascade)
                .from(core(i(0), 0))
                .to(core(i(0), 1));
            l.channel("out")
                .dims([2])
                .block(Bf16, [32])
                .from(core(i(0), 1))
                .to(shim(i(0)));
            l.stage("panel")
                .dims([2])
                .col(i(0))
                .block(Bf16, [64])
                .fill("in", [i(0)], linear(0, 64))
                .drain_each(2, "rows", [i(0), e()], linear(e() * 32, 32));
            l.read("a", "in")
                .dims([2])
                .at([i(0)])
                .repeat(2)
                .pattern(linear(g(0) * 128 + i(0) * 64, 64));
            l.write("out", "y")
                .dims([2])
                .at([i(0)])
                .pattern(linear(g(0) * 64 + i(0) * 32, 32));
            l.herd("h", 2, 2, |c| {
                c.for_(2, |c, k| {
                    let block = c.get("rows", [k.clone(), y()]);
                    c.free(block);
                });
                c.if_else(
                    y(),
                    Condition::Zero,
                    |c| {
                        let block = c.new_block("down", [x()]);
                        c.put(block);
                    },
                    |c| {
                        let above = c.get("down", [x()]);
                        let out = c.new_block("out", [x()]);
                        c.call("add_bf16", [32], [above, out]);
                        c.free(above);
                        c.put(out);
                    },
                );
            });
        });
    })
    .unwrap()
}

#[test]
fn bundles_expand_in_order() {
    let program = sample();
    let flat = Flat::new(&program.launches[0]).unwrap();
    assert_eq!(flat.channels.len(), 2 + 4 + 2 + 2);
    assert_eq!(flat.stages.len(), 2);
    assert_eq!(flat.transfers.len(), 4);
    assert_eq!(flat.cores.len(), 4);
    let id = flat.channel_id(1, &[1, 0]).unwrap();
    assert_eq!(id, 4);
    assert_eq!(flat.channel_name(id), "rows[1, 0]");
    let channel = &flat.channels[id];
    assert_eq!(
        channel.from,
        Port::Memory {
            col: 1,
            stage: 1,
            end: 0
        }
    );
    // Row 0 of both columns: cores (0, 0) and (1, 0).
    assert_eq!(channel.to, [Port::Core { core: 0 }, Port::Core { core: 2 }]);
    assert_eq!(flat.stages[1].drains[1].channel, 5);
    assert_eq!(flat.stages[1].drains[1].each, 1);
    assert!(flat.transfers[0].reads && !flat.transfers[2].reads);
    assert_eq!(flat.cores[3].inputs, [3, 5, 7]);
    assert_eq!(flat.cores[3].outputs, [9]);
    assert_eq!(flat.core_name(3), "h(1, 1)");
    assert_eq!(flat.channel_id(1, &[2, 0]), None);
    assert_eq!(flat.channel_id(1, &[-1, 0]), None);
    assert_eq!(flat.channel_id(1, &[0]), None);
    assert_eq!(flat.channel_id(9, &[]), None);
    let env = Env {
        grid: &[1],
        index: &[1],
        ..Env::default()
    };
    let walk = flat.transfers[1].decl.pattern.walk(&env);
    assert_eq!((walk.offset, walk.n_elements()), (192, 64));
}

/// The problem that one change to the sample causes.
fn broken(change: impl FnOnce(&mut Launch)) -> FlatDefect {
    let mut program = sample();
    change(&mut program.launches[0]);
    program.flatten().unwrap_err().problem
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    assert_eq!(
        broken(|l| l.channels[1].name = "in".into()),
        FlatDefect::Twice
    );
    assert_eq!(broken(|l| l.args[1] = 2), FlatDefect::NoSuch("slot", 2, 2));
    assert_eq!(
        broken(|l| l.transfers[0].arg = 5),
        FlatDefect::NoSuch("argument", 5, 2)
    );
    assert_eq!(
        broken(|l| l.transfers[0].channel = 7),
        FlatDefect::NoSuch("channel", 7, 4)
    );
    assert!(matches!(
        broken(|l| l.transfers[0].dims = vec![3]),
        FlatDefect::Index { index, .. } if index == [2]
    ));
    assert!(matches!(
        broken(|l| l.transfers[0].index.clear()),
        FlatDefect::Index { .. }
    ));
    assert_eq!(
        broken(|l| l.stages[0].col = Affine::of(Var::X, 1)),
        FlatDefect::Variable(Var::X)
    );
    assert_eq!(
        broken(|l| l.grid = vec![2, 0]),
        FlatDefect::Empty(vec![2, 0])
    );
    assert!(matches!(
        broken(|l| l.channels[0].dims = vec![u32::MAX, u32::MAX]),
        FlatDefect::Copies(..)
    ));
    assert!(matches!(
        broken(|l| l.herds[0].cols = u32::MAX),
        FlatDefect::Copies(..)
    ));
    assert_eq!(
        broken(|l| l.stages[0].col = Affine::new(-1)),
        FlatDefect::Place(-1)
    );
    assert!(matches!(
        broken(|l| l.stages[0].col = Affine::new(0)),
        FlatDefect::Column { .. }
    ));
    assert!(matches!(
        broken(|l| l.herds[0].rows = 1),
        FlatDefect::NoCore { row: 1, .. }
    ));
    assert!(matches!(
        broken(|l| {
            let mut twin = l.herds[0].clone();
            twin.name = "twin".into();
            l.herds.push(twin);
        }),
        FlatDefect::CoreTaken { col: 0, row: 0, .. }
    ));
    assert_eq!(
        broken(|l| {
            l.transfers.pop();
        }),
        FlatDefect::Unused {
            user: "transfer",
            sink: true
        }
    );
    assert!(matches!(
        broken(|l| {
            let fill = l.stages[0].fills[0].clone();
            l.stages[0].fills.push(fill);
        }),
        FlatDefect::Shared(_)
    ));
    assert!(matches!(
        broken(|l| l.transfers[1].channel = 2),
        FlatDefect::NotAtShim(_)
    ));
    assert!(matches!(
        broken(|l| l.channels[3].from = memory(i(0))),
        FlatDefect::Unused { user: "stage", .. }
    ));
    assert_eq!(
        broken(|l| l.channels[3].from = core(0..2, 0)),
        FlatDefect::Sources(2)
    );
}

#[test]
fn core_programs_are_checked_against_their_channels() {
    // The last row's program takes from another column.
    let problem = broken(|l| {
        let Op::If { otherwise, .. } = &mut l.herds[0].body[1] else {
            unreachable!()
        };
        let Op::Get { index, .. } = &mut otherwise[0] else {
            unreachable!()
        };
        *index = vec![Affine::new(1)];
    });
    assert!(matches!(
        problem,
        FlatDefect::NotAtCore {
            x: 0,
            sends: false,
            ..
        }
    ));
    let problem = broken(|l| {
        l.herds[0].body.remove(0);
    });
    assert!(matches!(problem, FlatDefect::Ignored { sends: false, .. }));
    let problem = broken(|l| {
        let Op::If { then, .. } = &mut l.herds[0].body[1] else {
            unreachable!()
        };
        let Op::New { index, .. } = &mut then[0] else {
            unreachable!()
        };
        *index = vec![Affine::new(2)];
    });
    assert!(matches!(problem, FlatDefect::Index { .. }));
    // A loop that may run not at all and an index that depends on it decide nothing.
    let mut program = sample();
    let Op::Loop { count, .. } = &mut program.launches[0].herds[0].body[0] else {
        unreachable!()
    };
    *count = Affine::of(Var::Grid(0), 2);
    assert!(program.flatten().is_ok());
}
