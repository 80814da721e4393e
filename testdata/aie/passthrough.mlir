// Sixteen blocks of 64 words through a memory tile, without a core: object FIFOs and a link.
module {
  aie.device(npu2_1col) {
    %shim_0_0 = aie.tile(0, 0)
    %mem_0_1 = aie.tile(0, 1)
    aie.objectfifo @in(%shim_0_0, {%mem_0_1}, 2 : i32) : !aie.objectfifo<memref<64xi32>>
    aie.objectfifo @out(%mem_0_1, {%shim_0_0}, 2 : i32) : !aie.objectfifo<memref<64xi32>>
    aie.objectfifo.link [@in] -> [@out]([] [])
    aie.runtime_sequence(%from: memref<1024xi32>, %to: memref<1024xi32>) {
      aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 1024][0, 0, 0, 1]) {id = 1 : i64, issue_token = true, metadata = @out} : memref<1024xi32>
      aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 1024][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<1024xi32>
      aiex.npu.dma_wait {symbol = @out}
    }
  }
}
