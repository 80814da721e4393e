// Two packet streams into a core, and back to the host: the second block of @a waits in the core's switch until
// @b has come. Behind the design stand its routes. With one arbiter for both streams in the switch of (0, 2)
// it hangs.
module {
  aie.device(npu2) {
    %shim = aie.tile(0, 0)
    %core = aie.tile(0, 2)
    %a = aie.buffer(%core) {sym_name = "a"} : memref<64xi32>
    %b = aie.buffer(%core) {sym_name = "b"} : memref<64xi32>
    %a_empty = aie.lock(%core, 0) {init = 1 : i32, sym_name = "a_empty"}
    %a_full = aie.lock(%core, 1) {init = 0 : i32, sym_name = "a_full"}
    %b_empty = aie.lock(%core, 2) {init = 1 : i32, sym_name = "b_empty"}
    %b_full = aie.lock(%core, 3) {init = 0 : i32, sym_name = "b_full"}
    aie.packet_flow(1) {
      aie.packet_source<%shim, DMA : 0>
      aie.packet_dest<%core, DMA : 0>
    }
    aie.packet_flow(2) {
      aie.packet_source<%shim, DMA : 1>
      aie.packet_dest<%core, DMA : 1>
    }
    aie.flow(%core, DMA : 0, %shim, DMA : 0)
    aie.shim_dma_allocation @a(%shim, MM2S, 0, <pkt_id = 1>)
    aie.shim_dma_allocation @b(%shim, MM2S, 1, <pkt_id = 2>)
    aie.shim_dma_allocation @out(%shim, S2MM, 0)
    %dma = aie.mem(%core) {
      %0 = aie.dma(S2MM, 0) [{
        aie.use_lock(%a_empty, AcquireGreaterEqual, 1)
        aie.dma_bd(%a : memref<64xi32>)
        aie.use_lock(%a_full, Release, 1)
      }]
      %1 = aie.dma(S2MM, 1) [{
        aie.use_lock(%b_empty, AcquireGreaterEqual, 1)
        aie.dma_bd(%b : memref<64xi32>)
        aie.use_lock(%b_full, Release, 1)
      }]
      %2 = aie.dma(MM2S, 0) [{
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
    aie.runtime_sequence(%from_a: memref<128xi32>, %from_b: memref<64xi32>, %to: memref<2x64xi32>) {
      aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 2, 64][0, 0, 64, 1]) {id = 0 : i64, issue_token = true, metadata = @out} : memref<2x64xi32>
      aiex.npu.dma_memcpy_nd(%from_a[0, 0, 0, 0][1, 1, 1, 128][0, 0, 0, 1]) {id = 1 : i64, issue_token = true, metadata = @a} : memref<128xi32>
      aiex.npu.dma_memcpy_nd(%from_b[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {id = 2 : i64, metadata = @b} : memref<64xi32>
      aiex.npu.dma_wait {symbol = @out}
    }
  }
}

// -----

module {
  aie.device(npu2) {
    %tile_0_0 = aie.tile(0, 0)
    %switchbox_0_0 = aie.switchbox(%tile_0_0) {
      aie.connect<North : 0, South : 2>
      %0 = aie.amsel<0> (0)
      %1 = aie.amsel<1> (0)
      %2 = aie.masterset(North : 1, %0)
      %3 = aie.masterset(North : 2, %1)
      aie.packet_rules(South : 3) {
        aie.rule(31, 1, %0)
      }
      aie.packet_rules(South : 7) {
        aie.rule(31, 2, %1)
      }
    }
    %shim_mux_0_0 = aie.shim_mux(%tile_0_0) {
      aie.connect<DMA : 0, North : 3>
      aie.connect<DMA : 1, North : 7>
      aie.connect<North : 2, DMA : 0>
    }
    %tile_0_1 = aie.tile(0, 1)
    %switchbox_0_1 = aie.switchbox(%tile_0_1) {
      aie.connect<North : 0, South : 0>
      %0 = aie.amsel<0> (0)
      %1 = aie.amsel<1> (0)
      %2 = aie.masterset(North : 1, %0)
      %3 = aie.masterset(North : 2, %1)
      aie.packet_rules(South : 1) {
        aie.rule(31, 1, %0)
      }
      aie.packet_rules(South : 2) {
        aie.rule(31, 2, %1)
      }
    }
    %tile_0_2 = aie.tile(0, 2)
    %switchbox_0_2 = aie.switchbox(%tile_0_2) {
      aie.connect<DMA : 0, South : 0>
      %of_a = aie.amsel<0> (0)
      %of_b = aie.amsel<1> (0)
      %2 = aie.masterset(DMA : 0, %of_a)
      %3 = aie.masterset(DMA : 1, %of_b)
      aie.packet_rules(South : 1) {
        aie.rule(31, 1, %of_a)
      }
      aie.packet_rules(South : 2) {
        aie.rule(31, 2, %of_b)
      }
    }
    aie.wire(%tile_0_1 : North, %tile_0_2 : South)
  }
}
