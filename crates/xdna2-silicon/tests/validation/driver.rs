//! The driver's path over a kernel in software.

use super::*;
use millrace_xdna2_silicon::amdxdna::packet::CommandState;
use millrace_xdna2_silicon::amdxdna::{
    AmdxdnaDriver, AmdxdnaNode, ArrayShape, BoInfo, BoKind, DriverFault, Errno, FakeFaults,
    FakeKernel, NPU2,
};
use millrace_xdna2_silicon::run::board_of;
use millrace_xdna2_words::TxnOperation;
use millrace_xdna2_words::probe::{ProbeDesign, designs};
use std::sync::atomic::Ordering::Relaxed;

fn fake(faults: FakeFaults) -> FakeKernel<'static> {
    FakeKernel::plain(BoardOptions::default(), faults)
}

fn open(faults: FakeFaults) -> AmdxdnaDriver<FakeKernel<'static>> {
    AmdxdnaDriver::open(fake(faults)).unwrap()
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
    let mut driver = open(FakeFaults::default());
    let n_open = driver.node().n_open();
    let open = n_open.load(Relaxed);
    for design in designs().unwrap() {
        let found =
            run_design(&mut driver, &design).unwrap_or_else(|e| panic!("{}: {e}", design.name));
        assert!(found == design.expected, "{}", design.name);
        assert_eq!(n_open.load(Relaxed), open);
    }
    driver.close().unwrap();
    assert_eq!(n_open.load(Relaxed), 0);
}

/// A GEMM's words through the driver give the simulator's bytes.
#[test]
fn a_kernel_with_cores_runs_through_the_driver() {
    let (program, slots) = case("gemm-stream", "64x64x64", "");
    let cpu = cpu();
    let lowered = lower(&program, &Machine::npu2()).unwrap();
    let expected = simulated(&program, &slots, &cpu);
    let board = board_of(
        &lowered[0].flat,
        &lowered[0].words.cores,
        &cpu,
        BoardOptions::default(),
    )
    .unwrap();
    let mut driver = AmdxdnaDriver::open(FakeKernel::new(board, FakeFaults::default())).unwrap();
    let mut found = slots;
    driver.run(&lowered[0].words.stream, &mut found).unwrap();
    assert!(found == expected);
}

/// The release's version is not the protocol's: firmware 1.1 may speak 6.18, and reports by itself if it does not.
#[test]
fn firmware_that_lacks_the_command_is_told_with_what_to_do() {
    let mut driver = open(FakeFaults {
        protocol: (6, 14),
        ..FakeFaults::default()
    });
    let fault = run_design(&mut driver, &design()).unwrap_err();
    let text = "the kernel did not give the command to firmware 1.1.2.64: streams without a PDI need one that speaks \
                protocol 6.15 or newer; update linux-firmware (amdnpu) and the kernel";
    assert_eq!(fault.to_string(), text);
    let mut driver = open(FakeFaults {
        protocol: (6, 15),
        ..FakeFaults::default()
    });
    assert!(run_design(&mut driver, &design()).is_ok());
}

#[test]
fn another_array_is_refused() {
    let phoenix = ArrayShape { cols: 5, ..NPU2 };
    let faults = FakeFaults {
        shape: phoenix,
        ..FakeFaults::default()
    };
    let fault = AmdxdnaDriver::open(fake(faults)).err().unwrap();
    let text = "an array of 5 columns and 6 rows: the words are for the 8 columns and 6 rows of Strix and Krackan";
    assert_eq!(fault.to_string(), text);
}

#[test]
fn a_hang_ends_as_the_watchdog_ends_it() {
    let mut driver = open(FakeFaults::default());
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
    let said = driver.node().explanation().unwrap();
    assert!(said.contains("waits for 1 of lock 0"), "{said}");
    // A new context works.
    assert!(run_design(&mut driver, &self::design()).is_ok());
}

/// Commands that never end, or are taken along by another's hang: said, and nothing stays open.
#[test]
fn a_lost_command_ends_its_context_and_the_next_one_has_another() {
    let endless = FakeFaults {
        is_endless: true,
        ..FakeFaults::default()
    };
    let aborted = FakeFaults {
        ending: Some(CommandState::Abort),
        ..FakeFaults::default()
    };
    for (faults, says) in [
        (endless, "SYNCOBJ_TIMELINE_WAIT failed"),
        (aborted, "the context was restarted"),
    ] {
        let mut driver = open(faults);
        let n_open = driver.node().n_open();
        let open = n_open.load(Relaxed);
        for _ in 0..3 {
            let fault = run_design(&mut driver, &design()).unwrap_err().to_string();
            assert!(fault.contains(says), "{fault}");
            assert_eq!(n_open.load(Relaxed), open);
        }
    }
}

/// Calls of a whole life: opening, a run, closing.
fn calls_of_a_life() -> (u64, u64, u64) {
    let mut driver = open(FakeFaults::default());
    let opened = driver.node().n_calls();
    run_design(&mut driver, &design()).unwrap();
    let ran = driver.node().n_calls();
    // A context, its timeline, the heap.
    (opened, ran, ran + 3)
}

/// Each call of the kernel fails once. Each failure is an error, and nothing stays open except objects that could not
/// be closed.
#[test]
fn every_call_may_fail() {
    let design = design();
    let (opened, ran, whole) = calls_of_a_life();
    assert!(opened >= 8 && ran > opened + 15);
    for at in 0..whole {
        let node = fake(FakeFaults {
            at_call: Some((at, Errno::NOMEM)),
            ..FakeFaults::default()
        });
        let n_open = node.n_open();
        let mut driver = match AmdxdnaDriver::open(node) {
            Ok(driver) => driver,
            Err(fault) => {
                assert!(at < opened && fault.to_string().contains("failed"), "{at}");
                assert_eq!(n_open.load(Relaxed), 0, "call {at}");
                continue;
            }
        };
        let open = n_open.load(Relaxed);
        let first = run_design(&mut driver, &design);
        assert_eq!(first.is_err(), at < ran, "call {at}");
        let mut is_stuck = false;
        if let Err(fault) = first {
            let fault = fault.to_string();
            assert!(fault.contains("memory"), "{at}: {fault}");
            is_stuck = fault.starts_with("GEM_CLOSE");
            let n_open = n_open.load(Relaxed);
            assert_eq!(n_open, open + usize::from(is_stuck), "call {at}");
            assert!(run_design(&mut driver, &design).is_ok(), "call {at}");
        }
        // Memory of the device that is stuck keeps its heap, until the node is closed.
        let closed = driver.close();
        assert!(closed.is_err() == (at >= ran) || is_stuck, "call {at}");
        assert_eq!(n_open.load(Relaxed), 0, "call {at}");
    }
}

/// A device that disappears is reported as gone, at any call.
#[test]
fn a_device_may_disappear_at_any_call() {
    let (opened, ran, _) = calls_of_a_life();
    for from in 0..ran {
        let faults = FakeFaults {
            gone_from: Some(from),
            ..FakeFaults::default()
        };
        let fault = match AmdxdnaDriver::open(fake(faults)) {
            Err(fault) => fault,
            Ok(mut driver) => run_design(&mut driver, &design()).unwrap_err(),
        };
        assert!(
            fault.to_string().contains("the device is gone"),
            "{from}: {fault}"
        );
        let is_lost = matches!(fault, DriverFault::ContextLost { .. });
        assert!(!is_lost || from > opened, "{from}: {fault}");
    }
}

#[test]
fn the_kernel_refuses_what_amdxdna_refuses() {
    let mut node = fake(FakeFaults::default());
    let info = |node: &mut FakeKernel<'_>, handle| node.bo_info(handle).unwrap();
    assert_eq!(node.create_bo(BoKind::Dev, 4096), Err(Errno::AGAIN));
    assert_eq!(node.create_bo(BoKind::DevHeap, 1 << 20), Err(Errno::INVAL));
    let too_large = node.create_bo(BoKind::DevHeap, 576 << 20);
    assert_eq!(too_large, Err(Errno::NOSPC));
    assert_eq!(node.create_bo(BoKind::Share, 0), Err(Errno::INVAL));
    assert_eq!(node.create_context(32), Err(Errno::NOENT), "no heap yet");
    let heap = node.create_bo(BoKind::DevHeap, 64 << 20).unwrap();
    assert_eq!(node.create_context(32), Err(Errno::AGAIN), "not mapped yet");
    assert_eq!(node.create_bo(BoKind::Dev, 4096), Err(Errno::AGAIN));
    let at = info(&mut node, heap);
    let elsewhere = BoInfo {
        map_offset: 0,
        ..at
    };
    assert_eq!(node.map(heap, elsewhere), Err(Errno::INVAL));
    node.map(heap, at).unwrap();
    assert_eq!(node.create_context(36), Err(Errno::INVAL), "nine columns");
    assert_eq!(node.create_context(3), Err(Errno::INVAL), "no column");
    let context = node.create_context(32).unwrap();
    let command = node.create_bo(BoKind::Command, 4096).unwrap();
    assert_eq!(node.mapping(command).err(), Some(Errno::INVAL));
    assert_eq!(info(&mut node, command).xdna_addr, u64::MAX, "not mapped");
    assert_eq!(node.execute(77, command, &[]), Err(Errno::NOENT));
    let unknown = node.execute(context.handle, command, &[99]);
    assert_eq!(unknown, Err(Errno::INVAL));
    let point = node.wait(context.syncobj, 5, 1);
    assert_eq!(point, Err(Errno::TIME));
    assert_eq!(node.wait(context.handle, 1, 1), Err(Errno::NOENT));
    assert_eq!(node.close_bo(99), Err(Errno::INVAL));
    let code = node.create_bo(BoKind::Dev, 64).unwrap();
    assert_eq!(node.close_bo(heap), Err(Errno::INVAL), "in use");
    assert!(node.close_bo(code).is_ok() && node.close_bo(heap).is_ok());
}
