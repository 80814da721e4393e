//! Any bytes as a register program of RK3588, and programs that are right with words changed: an error, refusals, or a
//! program that the virtual board runs.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use millrace_fuzz::edits;
use millrace_npu::{Container, Device, DeviceError, Direction};
use millrace_rk3588::matmul::MatmulKind;
use millrace_rk3588::simulate::{Board, BoardOptions};
use millrace_rk3588::tiling::{Matmul, Order, Tiling};
use millrace_rk3588::{Machine, Program, RkDevice, verify};

fn right(input: &mut Unstructured<'_>) -> Result<Program> {
    let shape = Matmul {
        kind: *input.choose(&[MatmulKind::Int8Int32, MatmulKind::Fp16F32])?,
        m: 16,
        n: 128,
        k: 64,
    };
    let tiling = Tiling {
        rows: 8,
        cols: 32,
        depth: 64,
        workers: 2,
        order: Order::Columns,
        job_tasks: 4,
    };
    Ok(Program::build("fuzz", shape, tiling, &Machine::rk3588()).expect("a right program"))
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let bytes = match input.ratio(3, 4)? {
        true => {
            let mut bytes = right(input)?.encode();
            let n = bytes.len();
            edits::edit_bytes(&mut bytes, n, input)?;
            bytes
        }
        false => input.bytes(input.len())?.to_vec(),
    };
    let machine = Machine::rk3588();
    let Ok(program) = Program::decode("fuzz", &bytes) else {
        return Ok(());
    };
    let again = Program::decode("fuzz", &program.encode());
    assert_eq!(
        again.as_ref().ok(),
        Some(&program),
        "encode and decode agree"
    );
    if verify::program(&program, &machine).is_err() {
        return Ok(());
    }
    let container = program.to_container(&machine).expect("an accepted program");
    if let Err(error) = on_board(&container, program.tiling.workers as usize) {
        panic!("accepted, and then: {error}");
    }
    Ok(())
}

fn on_board(container: &Container, n_workers: usize) -> std::result::Result<(), DeviceError> {
    let board = Board::new(BoardOptions::default());
    let device = RkDevice::with_host(&board, Machine::rk3588(), n_workers).expect("a board");
    let program = device.load(container)?;
    let mut buffers = Vec::new();
    for slot in container.slots() {
        let bytes = slot.size_bytes().expect("an accepted slot has a size");
        let buffer = device.alloc(bytes, slot.role.into())?;
        buffer.sync(Direction::ToDevice)?;
        buffers.push(buffer);
    }
    let fence = device.submit(&device.bind(&program, &buffers)?)?;
    device.wait(fence).map(|_| ())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&mut Unstructured::new(bytes));
});
