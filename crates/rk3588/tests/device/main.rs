//! The device on the virtual board: the contract, numbers, and every failure.
#![allow(clippy::unwrap_used)] // A test may panic.

mod data;
mod failures;
mod numbers;

use millrace_npu::conformance::{self, Subject};
use millrace_npu::{Buffer, Device, DeviceError, Direction, LoadedProgram};
use millrace_rk3588::matmul::MatmulKind;
use millrace_rk3588::simulate::{Board, BoardOptions};
use millrace_rk3588::{Machine, RkDevice};
use std::sync::Arc;

/// A device on the given board.
pub(crate) fn device_on(board: &Board, n_workers: usize) -> RkDevice {
    RkDevice::with_host(board, Machine::rk3588(), n_workers).unwrap()
}

pub(crate) fn board() -> Board {
    Board::new(BoardOptions::default())
}

/// A product loaded on a device, with its buffers.
pub(crate) struct Ready {
    pub(crate) case: data::Case,
    program: Arc<dyn LoadedProgram>,
    buffers: Vec<Arc<Buffer>>,
}

impl Ready {
    pub(crate) fn new(device: &RkDevice, case: data::Case) -> Ready {
        let container = case.program.to_container(&Machine::rk3588()).unwrap();
        let program = device.load(&container).unwrap();
        let buffers: Vec<Arc<Buffer>> = (container.slots().iter())
            .map(|slot| {
                let bytes = slot.size_bytes().unwrap();
                device.alloc(bytes, slot.role.into()).unwrap()
            })
            .collect();
        for (buffer, data) in buffers.iter().zip([case.packed_a(), case.packed_b()]) {
            buffer.write(0, &data).unwrap();
            buffer.sync(Direction::ToDevice).unwrap();
        }
        Ready {
            case,
            program,
            buffers,
        }
    }

    pub(crate) fn run(&self, device: &RkDevice) -> Result<u64, DeviceError> {
        let fence = device.submit(&device.bind(&self.program, &self.buffers)?)?;
        Ok(device.wait(fence)?.duration_ns)
    }

    pub(crate) fn result(&self) -> Vec<u8> {
        self.buffers[2].sync(Direction::FromDevice).unwrap();
        let mut c = vec![0; self.case.grid.c_bytes() as usize];
        self.buffers[2].read(0, &mut c).unwrap();
        c
    }

    pub(crate) fn check(&self) {
        self.case.check(&self.result());
    }
}

#[test]
fn it_keeps_the_contract_of_devices() {
    let cases = [
        data::case(MatmulKind::Int8Int32, 4, 96, 64, data::tiling(4, 32, 64, 3)),
        data::case(MatmulKind::Int8Int32, 8, 64, 32, data::tiling(4, 32, 32, 1)),
    ];
    for answers_time_left in [true, false] {
        let failures = conformance::run_virtual(&|| {
            let board = Board::new(BoardOptions {
                prep_answers_time_left: answers_time_left,
                ..BoardOptions::default()
            });
            // Little memory, so that the suite can fill it.
            Subject {
                device: Arc::new(device_on(&board, 3).with_memory(1 << 20)),
                samples: cases.iter().map(data::Case::sample).collect(),
                faulty: None,
            }
        });
        let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }
}
