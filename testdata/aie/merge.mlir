// Two cores send four words each to one channel of a memory tile, which receives out of order: each packet's
// header names the descriptor that places it, whoever is first.
module {
  aie.device(npu2) {
    %shim = aie.tile(0, 0)
    %mem = aie.tile(0, 1)
    %a = aie.tile(0, 2)
    %b = aie.tile(0, 3)
    %of_a = aie.buffer(%a) : memref<4xi32> = dense<[1, 2, 3, 4]>
    %of_b = aie.buffer(%b) : memref<4xi32> = dense<[10, 20, 30, 40]>
    %merged = aie.buffer(%mem) {sym_name = "merged"} : memref<8xi32>
    %came = aie.lock(%mem, 0) {init = 0 : i32, sym_name = "came"}
    aie.packet_flow(1) {
      aie.packet_source<%a, DMA : 0>
      aie.packet_dest<%mem, DMA : 0>
    } {keep_pkt_header = true}
    aie.packet_flow(2) {
      aie.packet_source<%b, DMA : 0>
      aie.packet_dest<%mem, DMA : 0>
    } {keep_pkt_header = true}
    aie.flow(%mem, DMA : 0, %shim, DMA : 0)
    aie.mem(%a) {
      %s = aie.dma_start(MM2S, 0, ^one, ^end)
    ^one:
      aie.dma_bd(%of_a : memref<4xi32>, 0, 4) {packet = #aie.packet_info<pkt_type = 0, pkt_id = 1>, out_of_order_id = 7 : i32}
      aie.next_bd ^end
    ^end:
      aie.end
    }
    aie.mem(%b) {
      %s = aie.dma_start(MM2S, 0, ^one, ^end)
    ^one:
      aie.dma_bd(%of_b : memref<4xi32>, 0, 4) {packet = #aie.packet_info<pkt_type = 0, pkt_id = 2>, out_of_order_id = 3 : i32}
      aie.next_bd ^end
    ^end:
      aie.end
    }
    aie.memtile_dma(%mem) {
      %r = aie.dma_start(S2MM, 0, ^first, ^send) {out_of_order}
    ^first:
      aie.dma_bd(%merged : memref<8xi32>, 0, 4) {bd_id = 7 : i32, packet = #aie.packet_info<pkt_type = 0, pkt_id = 0>}
      aie.use_lock(%came, Release, 1)
      aie.next_bd ^second
    ^second:
      aie.dma_bd(%merged : memref<8xi32>, 4, 4) {bd_id = 3 : i32, packet = #aie.packet_info<pkt_type = 0, pkt_id = 0>}
      aie.use_lock(%came, Release, 1)
      aie.next_bd ^end
    ^send:
      %e = aie.dma_start(MM2S, 0, ^out, ^end)
    ^out:
      aie.use_lock(%came, AcquireGreaterEqual, 2)
      aie.dma_bd(%merged : memref<8xi32>, 0, 8)
      aie.next_bd ^end
    ^end:
      aie.end
    }
    aie.shim_dma_allocation @out(%shim, S2MM, 0)
    aie.runtime_sequence(%to: memref<8xi32>) {
      aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 8][0, 0, 0, 1]) {id = 0 : i64, metadata = @out} : memref<8xi32>
      aiex.npu.dma_wait {symbol = @out}
    }
  }
}
