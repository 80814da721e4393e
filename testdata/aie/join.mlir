// One stream is distributed to two cores, each adds its own number, and their blocks are joined again.
module @join {
  aie.device(npu2) {
    %shim = aie.tile(0, 0)
    %mem = aie.tile(0, 1)
    %left = aie.tile(0, 2)
    %right = aie.tile(0, 3)
    aie.objectfifo @in(%shim, {%mem}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
    aie.objectfifo @in_left(%mem, {%left}, 2 : i32) : !aie.objectfifo<memref<8xi32>>
    aie.objectfifo @in_right(%mem, {%right}, 2 : i32) : !aie.objectfifo<memref<8xi32>>
    aie.objectfifo.link [@in] -> [@in_left, @in_right]([] [0, 8])
    aie.objectfifo @out_left(%left, {%mem}, 2 : i32) : !aie.objectfifo<memref<8xi32>>
    aie.objectfifo @out_right(%right, {%mem}, 2 : i32) : !aie.objectfifo<memref<8xi32>>
    aie.objectfifo @out(%mem, {%shim}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
    aie.objectfifo.link [@out_left, @out_right] -> [@out]([0, 8] [])
    func.func @add_number(%from: memref<8xi32>, %to: memref<8xi32>, %number: i32) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      scf.for %i = %c0 to %c8 step %c1 {
        %x = memref.load %from[%i] : memref<8xi32>
        %y = arith.addi %x, %number : i32
        memref.store %y, %to[%i] : memref<8xi32>
      }
      return
    }
    %core_left = aie.core(%left) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %blocks = arith.constant 4294967295 : index
      %number = arith.constant 100 : i32
      scf.for %block = %c0 to %blocks step %c1 {
        %0 = aie.objectfifo.acquire @in_left(Consume, 1) : !aie.objectfifosubview<memref<8xi32>>
        %1 = aie.objectfifo.subview.access %0[0] : !aie.objectfifosubview<memref<8xi32>> -> memref<8xi32>
        %2 = aie.objectfifo.acquire @out_left(Produce, 1) : !aie.objectfifosubview<memref<8xi32>>
        %3 = aie.objectfifo.subview.access %2[0] : !aie.objectfifosubview<memref<8xi32>> -> memref<8xi32>
        func.call @add_number(%1, %3, %number) : (memref<8xi32>, memref<8xi32>, i32) -> ()
        aie.objectfifo.release @in_left(Consume, 1)
        aie.objectfifo.release @out_left(Produce, 1)
      }
      aie.end
    }
    %core_right = aie.core(%right) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %blocks = arith.constant 4294967295 : index
      %number = arith.constant 200 : i32
      scf.for %block = %c0 to %blocks step %c1 {
        %0 = aie.objectfifo.acquire @in_right(Consume, 1) : !aie.objectfifosubview<memref<8xi32>>
        %1 = aie.objectfifo.subview.access %0[0] : !aie.objectfifosubview<memref<8xi32>> -> memref<8xi32>
        %2 = aie.objectfifo.acquire @out_right(Produce, 1) : !aie.objectfifosubview<memref<8xi32>>
        %3 = aie.objectfifo.subview.access %2[0] : !aie.objectfifosubview<memref<8xi32>> -> memref<8xi32>
        func.call @add_number(%1, %3, %number) : (memref<8xi32>, memref<8xi32>, i32) -> ()
        aie.objectfifo.release @in_right(Consume, 1)
        aie.objectfifo.release @out_right(Produce, 1)
      }
      aie.end
    }
    aie.runtime_sequence(%from: memref<128xi32>, %to: memref<128xi32>) {
      aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 128][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<128xi32>
      aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 128][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<128xi32>
      aiex.npu.dma_wait {symbol = @out}
    }
  }
}
