//! Hangs that depend on the speed of an actor.

use millrace_aie::{Design, RunOptions, RunReport, Verdict, run};

/// Two cores send a packet each to a third one, through one arbiter of its switch. The first takes long before it
/// sends. If it were sooner, its second half would hold the arbiter, and the words that the third core needs would not
/// pass.
const RACE: &str = r#"aie.device(npu2) {
  %shim = aie.tile(0, 0)
  %mem = aie.tile(0, 1)
  %sink = aie.tile(0, 2)
  %late = aie.tile(0, 3)
  %early = aie.tile(0, 4)
  %x = aie.buffer(%late) {sym_name = "x"} : memref<128xi32>
  %y = aie.buffer(%early) {sym_name = "y"} : memref<64xi32>
  %a = aie.buffer(%sink) {sym_name = "a"} : memref<64xi32>
  %b = aie.buffer(%sink) {sym_name = "b"} : memref<64xi32>
  %x_full = aie.lock(%late, 0) {init = 0 : i32}
  %y_full = aie.lock(%early, 0) {init = 0 : i32}
  %a_empty = aie.lock(%sink, 0) {init = 1 : i32}
  %a_full = aie.lock(%sink, 1) {init = 0 : i32}
  %b_empty = aie.lock(%sink, 2) {init = 1 : i32}
  %b_full = aie.lock(%sink, 3) {init = 0 : i32}
  aie.switchbox(%early) {
    %0 = aie.amsel<0> (0)
    aie.masterset(South : 1, %0)
    aie.packet_rules(DMA : 0) {
      aie.rule(31, 2, %0)
    }
  }
  aie.switchbox(%late) {
    %0 = aie.amsel<0> (0)
    %1 = aie.amsel<1> (0)
    aie.masterset(South : 0, %0)
    aie.masterset(South : 1, %1)
    aie.packet_rules(DMA : 0) {
      aie.rule(31, 1, %0)
    }
    aie.packet_rules(North : 1) {
      aie.rule(31, 2, %1)
    }
  }
  aie.switchbox(%sink) {
    aie.connect<DMA : 0, South : 0>
    %0 = aie.amsel<0> (0)
    %1 = aie.amsel<0> (1)
    aie.masterset(DMA : 0, %0)
    aie.masterset(DMA : 1, %1)
    aie.packet_rules(North : 0) {
      aie.rule(31, 1, %0)
    }
    aie.packet_rules(North : 1) {
      aie.rule(31, 2, %1)
    }
  }
  aie.switchbox(%mem) {
    aie.connect<North : 0, South : 0>
  }
  aie.switchbox(%shim) {
    aie.connect<North : 0, South : 2>
  }
  aie.shim_mux(%shim) {
    aie.connect<North : 2, DMA : 0>
  }
  aie.core(%late) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %n = arith.constant 100000 : index
    %c128 = arith.constant 128 : index
    %seven = arith.constant 7 : i32
    scf.for %i = %c0 to %n step %c1 {
      %j = arith.addi %i, %c1 : index
    }
    scf.for %i = %c0 to %c128 step %c1 {
      memref.store %seven, %x[%i] : memref<128xi32>
    }
    aie.use_lock(%x_full, Release, 1)
    aie.end
  }
  aie.core(%early) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %nine = arith.constant 9 : i32
    scf.for %i = %c0 to %c64 step %c1 {
      memref.store %nine, %y[%i] : memref<64xi32>
    }
    aie.use_lock(%y_full, Release, 1)
    aie.end
  }
  aie.mem(%late) {
    aie.dma(MM2S, 0) [{
      aie.use_lock(%x_full, AcquireGreaterEqual, 1)
      aie.dma_bd(%x : memref<128xi32>) {packet = #aie.packet_info<pkt_type = 0, pkt_id = 1>}
    }]
    aie.end
  }
  aie.mem(%early) {
    aie.dma(MM2S, 0) [{
      aie.use_lock(%y_full, AcquireGreaterEqual, 1)
      aie.dma_bd(%y : memref<64xi32>) {packet = #aie.packet_info<pkt_type = 0, pkt_id = 2>}
    }]
    aie.end
  }
  aie.mem(%sink) {
    aie.dma(S2MM, 0) [{
      aie.use_lock(%a_empty, AcquireGreaterEqual, 1)
      aie.dma_bd(%a : memref<64xi32>)
      aie.use_lock(%a_full, Release, 1)
    }]
    aie.dma(S2MM, 1) [{
      aie.use_lock(%b_empty, AcquireGreaterEqual, 1)
      aie.dma_bd(%b : memref<64xi32>)
      aie.use_lock(%b_full, Release, 1)
    }]
    aie.dma(MM2S, 0) [{
      aie.use_lock(%b_full, AcquireGreaterEqual, 1)
      aie.dma_bd(%b : memref<64xi32>)
      aie.use_lock(%b_empty, Release, 1)
    }, {
      aie.use_lock(%a_full, AcquireGreaterEqual, 1)
      aie.dma_bd(%a : memref<64xi32>)
      aie.use_lock(%a_empty, Release, 1)
    }]
    aie.end
  }
  aie.shim_dma_allocation @out(%shim, S2MM, 0)
  aie.runtime_sequence(%to: memref<128xi32>) {
    aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 128][0, 0, 0, 1]) {id = 0 : i64, metadata = @out} : memref<128xi32>
    aiex.npu.dma_wait {symbol = @out}
  }
}"#;

fn tried(text: &str, slow_orders: usize) -> RunReport {
    let design = Design::read(text).unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions {
        slow_orders,
        ..RunOptions::default()
    };
    run(&design, &[vec![0; 512]], options).unwrap_or_else(|error| panic!("{error}"))
}

/// Orders at random do not find it with any seed: the late core needs many turns. A slow early one does.
#[test]
fn a_hang_that_needs_a_slow_core_is_found() {
    let report = tried(RACE, 0);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    assert_eq!(report.orders.len(), 3);
    assert!(report.n_untried > 5, "{}", report.n_untried);
    let report = tried(RACE, 24);
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
    let order = report.failing_order.unwrap();
    assert!(order.ends_with("slowest"), "{order}");
    assert!(report.orders.len() >= 3);
    // With an arbiter each it passes in every order.
    let apart = RACE.replace("%1 = aie.amsel<0> (1)", "%1 = aie.amsel<1> (0)");
    assert_ne!(apart, RACE);
    let report = tried(&apart, 24);
    assert_eq!(
        (report.verdict, report.n_untried),
        (Verdict::Pass, 0),
        "{report:#?}"
    );
    for slow in [
        "the sequence slowest",
        "all cores slowest",
        "all DMA slowest",
        "core (0, 4) slowest",
        "shim (0, 0) S2MM 0 slowest",
    ] {
        assert!(
            report.orders.iter().any(|order| order == slow),
            "{slow}: {:?}",
            report.orders
        );
    }
}
