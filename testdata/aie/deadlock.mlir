// Two cores hand blocks to one another, and each takes one before it gives one: both wait for ever.
module {
  aie.device(npu2) {
    %shim = aie.tile(0, 0)
    %left = aie.tile(0, 2)
    %right = aie.tile(0, 4)
    aie.objectfifo @in(%shim, {%left}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
    aie.objectfifo @there(%left, {%right}, 1 : i32) : !aie.objectfifo<memref<16xi32>>
    aie.objectfifo @back(%right, {%left}, 1 : i32) : !aie.objectfifo<memref<16xi32>>
    aie.objectfifo @out(%left, {%shim}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
    %core_left = aie.core(%left) {
      %0 = aie.objectfifo.acquire @back(Consume, 1) : !aie.objectfifosubview<memref<16xi32>>
      %1 = aie.objectfifo.acquire @there(Produce, 1) : !aie.objectfifosubview<memref<16xi32>>
      %2 = aie.objectfifo.acquire @out(Produce, 1) : !aie.objectfifosubview<memref<16xi32>>
      aie.objectfifo.release @there(Produce, 1)
      aie.objectfifo.release @back(Consume, 1)
      aie.objectfifo.release @out(Produce, 1)
      aie.end
    }
    %core_right = aie.core(%right) {
      %0 = aie.objectfifo.acquire @there(Consume, 1) : !aie.objectfifosubview<memref<16xi32>>
      %1 = aie.objectfifo.acquire @back(Produce, 1) : !aie.objectfifosubview<memref<16xi32>>
      aie.objectfifo.release @back(Produce, 1)
      aie.objectfifo.release @there(Consume, 1)
      aie.end
    }
    aie.runtime_sequence(%from: memref<16xi32>, %to: memref<16xi32>) {
      aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 16][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<16xi32>
      aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 16][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<16xi32>
      aiex.npu.dma_wait {symbol = @out}
    }
  }
}
