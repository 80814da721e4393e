// The physical level: buffers, locks, descriptors and flows by number. Eight blocks are transposed in L2
// on their way to a core, which doubles them in place.
module {
  aie.device(npu2) {
    %shim = aie.tile(1, 0)
    %mem = aie.tile(1, 1)
    %core = aie.tile(1, 2)
    %block = aie.buffer(%mem) {address = 4096 : i32, sym_name = "block"} : memref<8x4xi32>
    %empty = aie.lock(%mem, 0) {init = 1 : i32, sym_name = "empty"}
    %full = aie.lock(%mem, 1) {init = 0 : i32, sym_name = "full"}
    %tile = aie.buffer(%core) {address = 1024 : i32, sym_name = "tile"} : memref<32xi32>
    %tile_empty = aie.lock(%core, 0) {init = 1 : i32}
    %tile_full = aie.lock(%core, 1) {init = 0 : i32}
    %tile_done = aie.lock(%core, 2) {init = 0 : i32}
    aie.flow(%shim, DMA : 0, %mem, DMA : 0)
    aie.flow(%mem, DMA : 1, %core, DMA : 0)
    aie.flow(%core, DMA : 0, %shim, DMA : 0)
    aie.shim_dma_allocation @in(MM2S, 0, 1)
    aie.shim_dma_allocation @out(%shim, S2MM, 0)
    %memtile_dma_1_1 = aie.memtile_dma(%mem) {
      %0 = aie.dma_start(S2MM, 0, ^bb1, ^bb2)
    ^bb1:  // 2 preds: ^bb0, ^bb1
      aie.use_lock(%empty, AcquireGreaterEqual)
      aie.dma_bd(%block : memref<8x4xi32>, 0, 32) {bd_id = 0 : i32, next_bd_id = 0 : i32}
      aie.use_lock(%full, Release)
      aie.next_bd ^bb1
    ^bb2:  // pred: ^bb0
      %1 = aie.dma_start(MM2S, 1, ^bb3, ^bb4)
    ^bb3:  // 2 preds: ^bb2, ^bb3
      aie.use_lock(%full, AcquireGreaterEqual, 1)
      aie.dma_bd(%block : memref<8x4xi32>, 0, 32, [<size = 4, stride = 1>, <size = 8, stride = 4>]) {bd_id = 24 : i32}
      aie.use_lock(%empty, Release, 1)
      aie.next_bd ^bb3
    ^bb4:  // pred: ^bb2
      aie.end
    }
    %mem_1_2 = aie.mem(%core) {
      %0 = aie.dma_start(S2MM, 0, ^bb1, ^bb2)
    ^bb1:
      aie.use_lock(%tile_empty, AcquireGreaterEqual, 1)
      aie.dma_bd(%tile : memref<32xi32>, 0, 32)
      aie.use_lock(%tile_full, Release, 1)
      aie.next_bd ^bb1
    ^bb2:
      %1 = aie.dma_start(MM2S, 0, ^bb3, ^bb4)
    ^bb3:
      aie.use_lock(%tile_done, AcquireGreaterEqual, 1)
      aie.dma_bd(%tile : memref<32xi32>, 0, 32)
      aie.use_lock(%tile_empty, Release, 1)
      aie.next_bd ^bb3
    ^bb4:
      aie.end
    }
    %core_1_2 = aie.core(%core) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c32 = arith.constant 32 : index
      %forever = arith.constant 4294967295 : index
      scf.for %n = %c0 to %forever step %c1 {
        aie.use_lock(%tile_full, AcquireGreaterEqual, 1)
        scf.for %i = %c0 to %c32 step %c1 {
          %x = memref.load %tile[%i] : memref<32xi32>
          %y = arith.addi %x, %x : i32
          memref.store %y, %tile[%i] : memref<32xi32>
        }
        aie.use_lock(%tile_done, Release, 1)
      }
      aie.end
    }
    aiex.runtime_sequence @sequence(%from: memref<256xi32>, %to: memref<256xi32>) {
      aiex.npu.dma_memcpy_nd(0, 0, %to[0, 0, 0, 0][1, 1, 1, 256][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<256xi32>
      aiex.npu.dma_memcpy_nd(0, 0, %from[0, 0, 0, 0][1, 1, 1, 256][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<256xi32>
      aiex.npu.sync {channel = 0 : i32, column = 1 : i32, column_num = 1 : i32, direction = 0 : i32, row = 0 : i32, row_num = 1 : i32}
    }
  }
}
