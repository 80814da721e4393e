//! The driver's path over a kernel in software.

use super::*;
use millrace_xdna2_silicon::amdxdna::{
    AmdxdnaDriver, AmdxdnaNode, BoKind, DriverFault, Errno, FakeFaults, FakeKernel, FirmwareVersion,
};
use millrace_xdna2_silicon::run::board_of;
use millrace_xdna2_words::TxnOperation;
use millrace_xdna2_words::probe::{ProbeDesign, designs};

fn fake(faults: FakeFaults) -> FakeKernel<'static> {
    FakeKernel::plain(BoardOptions::default(), faults)
}

fn design() -> ProbeDesign {
    designs()
        .unwrap()
        .into_iter()
        .find(|design| design.name == "queue")
        .unwrap()
}

fn run_design(
    driver: &mut AmdxdnaDriver<FakeKernel<'_>>,
    design: &ProbeDesign,
) -> Result<Vec<u8>, DriverFault> {
    let mut arguments = [design.input.clone(), vec![0; design.expected.len()]];
    driver.run(&design.stream, &mut arguments)?;
    let [_, found] = arguments;
    Ok(found)
}

#[test]
fn programs_of_dma_run_through_the_driver_and_leave_nothing() {
    let mut driver = AmdxdnaDriver::open(fake(FakeFaults::default())).unwrap();
    let open = driver.node().n_open();
    for design in designs().unwrap() {
        let found =
            run_design(&mut driver, &design).unwrap_or_else(|e| panic!("{}: {e}", design.name));
        assert!(found == design.expected, "{}", design.name);
        assert_eq!(driver.node().n_open(), open);
    }
    assert_eq!(driver.close().unwrap().n_open(), 0);
}

/// A GEMM's words through the driver give the simulator's bytes.
#[test]
fn a_kernel_with_cores_runs_through_the_driver() {
    let (program, slots) = case("gemm-stream", "64x64x64", "");
    let cpu = cpu();
    let lowered = lower(&program, &Machine::npu2()).unwrap();
    let expected = simulated(&program, &slots, &cpu);
    let board = board_of(&lowered[0], &cpu, BoardOptions::default()).unwrap();
    let mut driver = AmdxdnaDriver::open(FakeKernel::new(board, FakeFaults::default())).unwrap();
    let mut found = slots;
    driver.run(&lowered[0].stream, &mut found).unwrap();
    assert!(found == expected);
}

#[test]
fn old_firmware_is_told() {
    let faults = FakeFaults {
        firmware: FirmwareVersion {
            major: 6,
            minor: 12,
        },
        ..FakeFaults::default()
    };
    let fault = AmdxdnaDriver::open(fake(faults)).err().unwrap();
    let text = "firmware 6.12: streams without a PDI need 6.15; update linux-firmware (amdnpu) and the kernel";
    assert_eq!(fault.to_string(), text);
}

#[test]
fn a_hang_ends_as_the_watchdog_ends_it() {
    let mut driver = AmdxdnaDriver::open(fake(FakeFaults::default())).unwrap();
    let mut design = design();
    for op in &mut design.stream.operations {
        if let TxnOperation::Write {
            address, value: 2, ..
        } = op.operation
            && address & 0xF_FFFF == 0xC0000
        {
            op.operation = TxnOperation::Write { address, value: 0 };
        }
    }
    let fault = run_design(&mut driver, &design).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "the command ended as Timeout: the watchdog saw no progress"
    );
    let said = driver.node().last_error().unwrap().to_string();
    assert!(said.contains("waits for 1 of lock 0"), "{said}");
    // The context goes on.
    assert!(run_design(&mut driver, &self::design()).is_ok());
}

/// Each call of the kernel fails once: an error every time, nothing left open.
#[test]
fn every_call_may_fail() {
    let design = design();
    let whole = {
        let mut driver = AmdxdnaDriver::open(fake(FakeFaults::default())).unwrap();
        run_design(&mut driver, &design).unwrap();
        driver.node().n_calls()
    };
    assert!(whole > 15);
    for at in 0..whole {
        let faults = FakeFaults {
            at_call: Some((at, Errno::NoMem)),
            ..FakeFaults::default()
        };
        let Ok(mut driver) = AmdxdnaDriver::open(fake(faults)) else {
            continue;
        };
        let open = driver.node().n_open();
        let fault = run_design(&mut driver, &design).unwrap_err();
        assert!(fault.to_string().ends_with("ENOMEM"), "{at}: {fault}");
        assert_eq!(driver.node().n_open(), open, "call {at}");
        assert!(run_design(&mut driver, &design).is_ok(), "call {at}");
    }
}

#[test]
fn the_kernel_refuses_what_amdxdna_refuses() {
    let mut node = fake(FakeFaults::default());
    assert_eq!(node.create_bo(BoKind::Dev, 4096), Err(Errno::Again));
    assert_eq!(node.create_bo(BoKind::DevHeap, 1 << 20), Err(Errno::Inval));
    assert_eq!(
        node.create_bo(BoKind::DevHeap, 576 << 20),
        Err(Errno::NoSpc)
    );
    assert_eq!(node.create_bo(BoKind::Share, 0), Err(Errno::Inval));
    assert_eq!(node.create_context(8), Err(Errno::Inval), "no heap yet");
    let heap = node.create_bo(BoKind::DevHeap, 64 << 20).unwrap();
    assert_eq!(node.create_context(9), Err(Errno::Inval));
    let context = node.create_context(8).unwrap();
    let command = node.create_bo(BoKind::Share, 48).unwrap();
    assert_eq!(node.execute(77, command.handle, &[]), Err(Errno::NoEnt));
    assert_eq!(
        node.execute(context, command.handle, &[]),
        Err(Errno::OpNotSupp),
        "no packet"
    );
    assert_eq!(
        node.execute(context, command.handle, &[99]),
        Err(Errno::Inval)
    );
    assert_eq!(node.wait(context, 5, 1), Err(Errno::Time));
    assert_eq!(node.close_bo(99), Err(Errno::Inval));
    let code = node.create_bo(BoKind::Dev, 64).unwrap();
    assert_eq!(node.close_bo(heap.handle), Err(Errno::Inval), "in use");
    assert!(node.close_bo(code.handle).is_ok() && node.close_bo(heap.handle).is_ok());
}
