// Two cores send packets over one wire to one channel of a shim; the header says whose they are.
module {
  aie.device(npu2) {
    %shim = aie.tile(0, 0)
    %lower = aie.tile(0, 2)
    %upper = aie.tile(0, 3)
    %a = aie.buffer(%lower) {sym_name = "a"} : memref<8xi32> = dense<11>
    %b = aie.buffer(%upper) {sym_name = "b"} : memref<8xi32> = dense<[1, 2, 3, 4, 5, 6, 7, 8]>
    %a_full = aie.lock(%lower) {init = 1 : i32}
    %b_full = aie.lock(%upper) {init = 0 : i32}
    aie.packet_flow(1) {
      aie.packet_source<%lower, DMA : 0>
      aie.packet_dest<%shim, DMA : 0>
    }
    aie.packet_flow(2) {
      aie.packet_source<%upper, DMA : 0>
      aie.packet_dest<%shim, DMA : 0>
    }
    aie.shim_dma_allocation @out(%shim, S2MM, 0)
    aie.mem(%lower) {
      %0 = aie.dma_start(MM2S, 0, ^bb1, ^bb2)
    ^bb1:
      aie.use_lock(%a_full, AcquireGreaterEqual, 1)
      aie.dma_bd(%a : memref<8xi32>, 0, 8) {packet = #aie.packet_info<pkt_type = 0, pkt_id = 1>}
      aie.next_bd ^bb2
    ^bb2:
      aie.end
    }
    aie.mem(%upper) {
      %0 = aie.dma_start(MM2S, 0, ^bb1, ^bb2)
    ^bb1:
      aie.use_lock(%b_full, AcquireGreaterEqual, 1)
      aie.dma_bd_packet(0, 2)
      aie.dma_bd(%b : memref<8xi32>, 0, 8)
      aie.next_bd ^bb2
    ^bb2:
      aie.end
    }
    aie.runtime_sequence(%to: memref<16xi32>) {
      %0 = aiex.dma_configure_task(%shim, S2MM, 0) {
        aie.dma_bd(%to : memref<16xi32>, 0, 8)
        aie.end
      } {issue_token = true}
      %1 = aiex.dma_configure_task(%shim, S2MM, 0) {
        aie.dma_bd(%to : memref<16xi32>, 8, 8)
        aie.end
      } {issue_token = true}
      aiex.dma_start_task(%0)
      aiex.dma_start_task(%1)
      aiex.dma_await_task(%0)
      aiex.set_lock(%b_full, 1)
      aiex.dma_await_task(%1)
    }
  }
}
