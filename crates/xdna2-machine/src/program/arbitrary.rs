//! Programs that are well typed and otherwise arbitrary, for property tests.

use super::*;
use millrace_npu::{Element, Role};
use proptest::collection::vec;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[a-z][a-z0-9_]{0,5}",
        1 => "b[0-9]{1,2}",
        1 => Just("for".to_owned()),
        1 => Just("x".to_owned()),
        1 => "\\PC{0,4}",
        1 => any::<String>().prop_map(|s| s.chars().take(5).collect()),
    ]
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -5000i64..5000, 1 => any::<i64>()]
}

fn size() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..600, 1 => any::<u32>()]
}

fn affine() -> impl Strategy<Value = Affine> {
    let var = prop_oneof![
        any::<u8>().prop_map(Var::Grid),
        any::<u8>().prop_map(Var::Index),
        any::<u8>().prop_map(Var::Loop),
        Just(Var::Each),
        Just(Var::X),
        Just(Var::Y),
    ];
    (number(), vec((var, number()), 0..4)).prop_map(|(constant, terms)| {
        terms
            .into_iter()
            .fold(Affine::new(constant), |a, (v, f)| a.plus(v, f))
    })
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (affine(), vec((affine(), number()), 0..4)).prop_map(|(offset, dims)| Pattern { offset, dims })
}

fn element() -> impl Strategy<Value = Element> {
    prop::sample::select(Element::ALL.to_vec())
}

fn span() -> impl Strategy<Value = IndexRange> {
    prop_oneof![
        affine().prop_map(IndexRange::At),
        (size(), size()).prop_map(|(start, len)| IndexRange::Range { start, len }),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        affine().prop_map(Place::Shim),
        affine().prop_map(Place::Memory),
        (span(), span()).prop_map(|(col, row)| Place::Core { col, row }),
    ]
}

fn channel() -> impl Strategy<Value = Channel> {
    let link = prop::sample::select(vec![
        ChannelLink::Stream,
        ChannelLink::Cascade,
        ChannelLink::Neighbour,
    ]);
    let patterns = (prop::option::of(pattern()), prop::option::of(pattern()));
    let block = (element(), vec(size(), 0..3));
    (
        name(),
        vec(size(), 0..3),
        block,
        (place(), place()),
        size(),
        link,
        patterns,
    )
        .prop_map(
            |(
                name,
                dims,
                (element, block),
                (from, to),
                depth,
                link,
                (from_pattern, to_pattern),
            )| {
                Channel {
                    name,
                    dims,
                    element,
                    block,
                    from,
                    to,
                    depth,
                    link,
                    from_pattern,
                    to_pattern,
                }
            },
        )
}

fn stage_end() -> impl Strategy<Value = StageEnd> {
    let one = prop_oneof![Just(1u32), size()];
    (one.clone(), 0usize..5, vec(affine(), 0..3), pattern(), one).prop_map(
        |(each, channel, index, pattern, repeat)| StageEnd {
            each,
            channel,
            index,
            pattern,
            repeat,
        },
    )
}

fn stage() -> impl Strategy<Value = Stage> {
    let ends = (vec(stage_end(), 0..3), vec(stage_end(), 0..3));
    let block = (element(), vec(size(), 0..3));
    (name(), vec(size(), 0..3), affine(), block, size(), ends).prop_map(
        |(name, dims, col, (element, block), copies, (fills, drains))| Stage {
            name,
            dims,
            col,
            element,
            block,
            copies,
            fills,
            drains,
        },
    )
}

fn transfer() -> impl Strategy<Value = Transfer> {
    let dims = vec(size(), 0..3);
    let index = vec(affine(), 0..3);
    (
        dims,
        vec(affine(), 0..3),
        0usize..5,
        0usize..5,
        index,
        pattern(),
    )
        .prop_map(|(dims, loops, arg, channel, index, pattern)| Transfer {
            dims,
            loops,
            arg,
            channel,
            index,
            pattern,
        })
}

fn op() -> impl Strategy<Value = Op> {
    let index = || vec(affine(), 0..3);
    let operand = prop_oneof![
        (0usize..5).prop_map(Operand::Local),
        any::<u8>().prop_map(Operand::Block),
    ];
    let leaf = prop_oneof![
        (0usize..5, index(), any::<u8>()).prop_map(|(channel, index, block)| Op::Get {
            channel,
            index,
            block
        }),
        (0usize..5, index(), any::<u8>()).prop_map(|(channel, index, block)| Op::New {
            channel,
            index,
            block
        }),
        any::<u8>().prop_map(|block| Op::Free { block }),
        any::<u8>().prop_map(|block| Op::Put { block }),
        (
            name(),
            vec(size(), 0..3),
            vec(operand, 0..4),
            index(),
            vec(any::<u32>(), 0..3)
        )
            .prop_map(|(kernel, dims, operands, scalars, constants)| Op::Call {
                kernel,
                dims,
                operands,
                scalars,
                constants
            }),
    ];
    let condition = prop::sample::select(vec![
        Condition::Zero,
        Condition::NotZero,
        Condition::Negative,
        Condition::NotNegative,
    ]);
    leaf.prop_recursive(3, 12, 3, move |inner| {
        prop_oneof![
            (affine(), vec(inner.clone(), 0..3)).prop_map(|(count, body)| Op::Loop { count, body }),
            (
                affine(),
                condition.clone(),
                vec(inner.clone(), 0..3),
                vec(inner, 0..3)
            )
                .prop_map(|(value, condition, then, otherwise)| Op::If {
                    value,
                    condition,
                    then,
                    otherwise
                }),
        ]
    })
}

fn herd() -> impl Strategy<Value = Herd> {
    let local = (name(), element(), vec(size(), 0..3)).prop_map(|(name, element, shape)| Local {
        name,
        element,
        shape,
    });
    (
        name(),
        (size(), size(), size(), size()),
        vec(local, 0..4),
        vec(op(), 0..5),
    )
        .prop_map(|(name, (col, row, cols, rows), locals, body)| Herd {
            name,
            col,
            row,
            cols,
            rows,
            locals,
            body,
        })
}

fn launch() -> impl Strategy<Value = Launch> {
    let order = prop::sample::select(vec![GridOrder::Sequential, GridOrder::Streamed]);
    (
        (
            name(),
            vec(0usize..5, 0..4),
            vec(size(), 0..3),
            order,
            any::<bool>(),
        ),
        (
            vec(channel(), 0..4),
            vec(stage(), 0..3),
            vec(transfer(), 0..3),
            vec(herd(), 0..3),
        ),
    )
        .prop_map(
            |((name, args, grid, order, resident), (channels, stages, transfers, herds))| Launch {
                name,
                args,
                grid,
                order,
                resident,
                channels,
                stages,
                transfers,
                herds,
            },
        )
}

/// Any program that the types allow: names may clash and references dangle.
pub(super) fn program() -> impl Strategy<Value = Program> {
    let roles = vec![Role::Static, Role::Input, Role::Intermediate, Role::Output];
    let dim = prop_oneof![8 => 0u64..600, 1 => any::<u64>()];
    let slot = (
        name(),
        element(),
        vec(dim, 0..4),
        prop::sample::select(roles),
    )
        .prop_map(|(name, element, shape, role)| millrace_npu::Slot {
            name,
            element,
            shape,
            role,
        });
    (name(), vec(slot, 0..4), vec(launch(), 0..3)).prop_map(|(name, slots, launches)| Program {
        name,
        slots,
        launches,
    })
}
