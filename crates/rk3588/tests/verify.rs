//! Every rule has a program that breaks it and one that nearly does; accepted programs run.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_npu::{Container, Device, Direction};
use millrace_rk3588::command::Command;
use millrace_rk3588::matmul::{Banks, Emit, MatmulKind, Task};
use millrace_rk3588::regs::{Field, Reg, cna, core, dpu, dpu_rdma, pc, ppu};
use millrace_rk3588::simulate::{Board, BoardOptions};
use millrace_rk3588::tiling::{Matmul, Order, Tiling};
use millrace_rk3588::verify::{self, Rule};
use millrace_rk3588::{Machine, Program, RkDevice};
use proptest::prelude::*;

fn build(kind: MatmulKind, m: u32, n: u32, k: u32, tiling: Tiling) -> Program {
    let shape = Matmul { kind, m, n, k };
    Program::build("subject", shape, tiling, &Machine::rk3588()).unwrap()
}

const TILING: Tiling = Tiling {
    rows: 8,
    cols: 32,
    depth: 64,
    workers: 2,
    order: Order::Columns,
    job_tasks: 4,
};

/// Two workers with a job of four tasks each, which reuse nothing.
fn base() -> Program {
    let mut program = build(MatmulKind::Int8Int32, 16, 128, 64, TILING);
    for job in 0..2 {
        for task in 0..4 {
            set(
                &mut program,
                (job, task),
                &[(cna::CBUF_CON0::DATA_REUSE, 0)],
            );
        }
    }
    program
}

/// One task of 160 rows of 2,048: ten banks of data, two of weights.
fn full() -> Program {
    let tiling = Tiling {
        rows: 160,
        depth: 2048,
        workers: 1,
        ..TILING
    };
    build(MatmulKind::Int8Int32, 160, 32, 2048, tiling)
}

/// Sets fields of a register in one task, which writes it.
fn set(program: &mut Program, place: (usize, usize), fields: &[(Field, u32)]) {
    let commands = &mut program.jobs[place.0].tasks[place.1];
    for (field, bits) in fields {
        let value = commands.iter_mut().find_map(|command| match command {
            Command::Write { reg, value } if *reg == field.reg => Some(value),
            _ => None,
        });
        let value = value.unwrap();
        *value = *value & !field.mask() | field.put(*bits);
    }
}

fn with(mut program: Program, fields: &[(Field, u32)]) -> Program {
    set(&mut program, (0, 0), fields);
    program
}

/// Adds a write before the marker.
fn with_write(mut program: Program, reg: Reg, value: u32) -> Program {
    let commands = &mut program.jobs[0].tasks[0];
    let marker = commands.iter().position(|c| *c == Command::Marker).unwrap();
    commands.insert(marker, Command::Write { reg, value });
    program
}

/// Replaces the first task by another product's.
fn with_task(mut program: Program, change: impl Fn(&mut Task)) -> Program {
    let mut task = Task {
        kind: program.shape.kind,
        m: 8,
        n: 32,
        k: 64,
        banks: Banks {
            data: 1,
            weight: 11,
        },
        data_reuse: false,
        weight_reuse: false,
        a: 0,
        b: 0,
        c: 0,
    };
    change(&mut task);
    program.jobs[0].tasks[0] = task.commands(Emit::MILLRACE);
    program
}

fn without(mut program: Program, reg: Reg) -> Program {
    program.jobs[0].tasks[0]
        .retain(|c| !matches!(c, Command::Write { reg: found, .. } if *found == reg));
    program
}

fn edited(mut program: Program, edit: impl Fn(&mut Program)) -> Program {
    edit(&mut program);
    program
}

/// Tasks of 44 microseconds, so many a job.
fn tiny_tasks(job_tasks: u32) -> Program {
    let tiling = Tiling {
        rows: 4,
        depth: 32,
        workers: 1,
        job_tasks,
        ..TILING
    };
    build(MatmulKind::Int8Int32, 48_000, 32, 32, tiling)
}

/// A program that breaks the rule, and one that nearly does.
#[expect(clippy::too_many_lines, reason = "a row a rule")]
fn pair(rule: Rule) -> (Program, Program) {
    use dpu_rdma as r;
    let rows_inner = || {
        let tiling = Tiling {
            order: Order::Rows,
            ..TILING
        };
        build(MatmulKind::Int8Int32, 16, 128, 64, tiling)
    };
    let banks = |data, weight| {
        [
            (cna::CBUF_CON0::DATA_BANK, data),
            (cna::CBUF_CON0::WEIGHT_BANK, weight),
        ]
    };
    match rule {
        Rule::NoEnable => (
            edited(base(), |p| {
                p.jobs[0].tasks[0].pop();
            }),
            edited(base(), |p| p.jobs[0].tasks[0].insert(3, Command::Filler)),
        ),
        Rule::EnableMask => (
            edited(base(), |p| {
                let commands = &mut p.jobs[0].tasks[0];
                commands.pop();
                commands.push(Command::Enable { mask: 0x0d });
            }),
            base(),
        ),
        Rule::OperandReaders => (
            with(base(), &[(r::RDMA_FEATURE_MODE_CFG::MRDMA_DISABLE, 0)]),
            build(
                MatmulKind::Fp16Fp16,
                16,
                32,
                64,
                Tiling { cols: 16, ..TILING },
            ),
        ),
        Rule::Partial => (
            without(base(), dpu::BS_CFG::REG),
            edited(base(), |p| {
                let first = p.jobs[0].tasks[0][0];
                p.jobs[0].tasks[0].insert(1, first);
            }),
        ),
        Rule::Chain => (
            with(base(), &[(pc::REGISTER_AMOUNTS::PC_DATA_AMOUNT, 62)]),
            with_write(base(), pc::BASE_ADDRESS::REG, 0),
        ),
        Rule::Foreign => (
            with_write(base(), ppu::DATA_FORMAT::REG, 0),
            with_write(base(), dpu::OFFSET_PEND::REG, 0),
        ),
        Rule::Fixed => (
            with(base(), &[(dpu::EW_CFG::EW_BYPASS, 0)]),
            with(base(), &[(core::MISC_CFG::QD_EN, 0)]),
        ),
        Rule::Precision => (
            with(base(), &[(dpu::DATA_FORMAT::OUT_PRECISION, 2)]),
            build(MatmulKind::Int8F32, 16, 128, 64, TILING),
        ),
        Rule::Sizes => (
            with(base(), &[(dpu::DATA_CUBE_HEIGHT::HEIGHT, 6)]),
            with_task(base(), |task| task.a = 8 * 64),
        ),
        Rule::Range => (
            with(base(), &[(cna::CONV_CON2::FEATURE_GRAINS, 10)]),
            with(base(), &[(cna::CONV_CON2::FEATURE_GRAINS, 1)]),
        ),
        Rule::Shape => (
            with_task(base(), |task| task.m = 6),
            build(
                MatmulKind::Int8Int32,
                1,
                128,
                64,
                Tiling { rows: 1, ..TILING },
            ),
        ),
        Rule::Alignment => (
            with_task(base(), |task| task.a = 8),
            with_task(base(), |task| task.a = 16),
        ),
        Rule::ReaderStride => (
            with(base(), &[(cna::DMA_CON2::SURF_STRIDE, 5)]),
            build(
                MatmulKind::Int8Int32,
                1,
                64,
                64,
                Tiling { rows: 1, ..TILING },
            ),
        ),
        Rule::CbufSplit => (with(base(), &banks(2, 11)), with(base(), &banks(1, 1))),
        Rule::CbufFeature => (with(full(), &banks(9, 3)), full()),
        Rule::CbufKernels => (with(full(), &banks(11, 1)), full()),
        Rule::FcBank => (
            with(base(), &[(cna::CBUF_CON0::FC_DATA_BANK, 1)]),
            with(base(), &banks(6, 6)),
        ),
        Rule::Entries => (
            with(base(), &[(cna::CBUF_CON1::DATA_ENTRIES, 2)]),
            build(MatmulKind::Int8Int32, 16, 128, 32, TILING),
        ),
        Rule::StaleReuse => (
            with(base(), &[(cna::CBUF_CON0::WEIGHT_REUSE, 1)]),
            rows_inner(),
        ),
        Rule::Writer => (
            with(base(), &[(dpu::BS_OW_CFG::SIZE_E_0, 3)]),
            build(MatmulKind::Bf16F32, 16, 128, 64, TILING),
        ),
        Rule::Head => (
            edited(base(), |p| p.tiling.rows = 6),
            edited(base(), |p| p.tiling.job_tasks = 5),
        ),
        Rule::OutsideSlot => (
            with_task(base(), |task| task.b = 128 * 64),
            with_task(base(), |task| task.b = 96 * 64),
        ),
        Rule::Overlap => (
            edited(base(), |p| p.jobs[0].tasks[1] = p.jobs[0].tasks[0].clone()),
            base(),
        ),
        Rule::TooLong => (tiny_tasks(12_000), tiny_tasks(11_000)),
        Rule::Uncovered => (
            edited(base(), |p| {
                p.jobs[1].tasks.pop();
            }),
            base(),
        ),
        Rule::Workers => (
            edited(base(), |p| p.jobs[1].worker = 2),
            edited(base(), |p| p.jobs.swap(0, 1)),
        ),
        Rule::Interleaved => (
            edited(base(), |p| {
                // The second task of worker 0 goes to worker 1.
                let task = p.jobs[0].tasks.remove(1);
                p.jobs[1].tasks.push(task);
            }),
            edited(base(), |p| {
                // The last task of worker 0 goes to worker 1, whose bytes follow.
                let task = p.jobs[0].tasks.remove(3);
                p.jobs[1].tasks.push(task);
            }),
        ),
    }
}

fn device() -> RkDevice {
    let board = Board::new(BoardOptions::default());
    RkDevice::with_host(&board, Machine::rk3588(), 2).unwrap()
}

/// Runs a program on zeros.
fn run(device: &RkDevice, container: &Container) -> Result<(), millrace_npu::DeviceError> {
    let program = device.load(container)?;
    let mut buffers = Vec::new();
    for slot in container.slots() {
        let buffer = device.alloc(slot.size_bytes().unwrap(), slot.role.into())?;
        buffer.sync(Direction::ToDevice)?;
        buffers.push(buffer);
    }
    let fence = device.submit(&device.bind(&program, &buffers)?)?;
    device.wait(fence).map(|_| ())
}

#[test]
fn every_rule_refuses_one_program_and_lets_one_pass_that_runs() {
    let (machine, device) = (Machine::rk3588(), device());
    for &rule in Rule::ALL {
        let (rejected, accepted) = pair(rule);
        let refusals = verify::program(&rejected, &machine).unwrap_err();
        assert!(
            refusals.iter().any(|refusal| refusal.rule == rule),
            "{}: {refusals:?}",
            rule.code()
        );
        let text = refusals[0].to_string();
        assert!(text.contains(refusals[0].rule.code()), "{text}");
        if let Err(refusals) = verify::program(&accepted, &machine) {
            panic!("{} is nearly broken: {}", rule.code(), refusals[0]);
        }
        let container = accepted.to_container(&machine).unwrap();
        run(&device, &container).unwrap_or_else(|error| panic!("{}: {error}", rule.code()));
    }
}

#[test]
fn most_rules_are_broken_alone() {
    // Rules that cannot be broken without another.
    let never_alone = [
        // Bytes that are written twice leave others unwritten in a program of fixed size.
        Rule::Overlap,
        // Its division is wrong in two ways, or its sizes disagree.
        Rule::Precision,
        Rule::EnableMask,
    ];
    let machine = Machine::rk3588();
    for &rule in Rule::ALL {
        let refusals = verify::program(&pair(rule).0, &machine).unwrap_err();
        let alone = refusals.iter().all(|refusal| refusal.rule == rule);
        assert!(
            alone || never_alone.contains(&rule),
            "{}: {refusals:#?}",
            rule.code()
        );
    }
}

#[test]
fn codes_are_unique_and_in_order() {
    let codes: Vec<&str> = Rule::ALL.iter().map(|rule| rule.code()).collect();
    assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
    assert!(
        Rule::ALL
            .iter()
            .all(|r| r.states().ends_with('.') && !r.source().is_empty())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// One bit of one command, anywhere: the program is refused, or it runs.
    #[test]
    fn what_is_accepted_runs(
        job in 0usize..2,
        task in 0usize..4,
        word in any::<prop::sample::Index>(),
        bit in 0u32..64,
    ) {
        let machine = Machine::rk3588();
        let mut program = base();
        let commands = &mut program.jobs[job].tasks[task];
        let at = word.index(commands.len());
        let Ok(command) = Command::decode(commands[at].encode() ^ 1 << bit) else {
            return Ok(());
        };
        commands[at] = command;
        if verify::program(&program, &machine).is_ok() {
            let container = program.to_container(&machine).unwrap();
            prop_assert!(run(&device(), &container).is_ok());
        }
    }
}
