// C = A·B of 16 x 16 matrices: two cores have eight rows each, B goes to both, the memory tile joins C.
module {
  aie.device(npu2) {
    %shim = aie.tile(0, 0)
    %mem = aie.tile(0, 1)
    %upper = aie.tile(0, 2)
    %lower = aie.tile(0, 3)
    func.func private @zero_i32(memref<8x16xi32>)
    func.func private @matmul_scalar_i16_i32(memref<8x16xi16>, memref<16x16xi16>, memref<8x16xi32>)
    aie.objectfifo @a(%shim, {%mem}, 2 : i32) : !aie.objectfifo<memref<16x16xi16>>
    aie.objectfifo @a_upper(%mem, {%upper}, 2 : i32) : !aie.objectfifo<memref<8x16xi16>>
    aie.objectfifo @a_lower(%mem, {%lower}, 2 : i32) : !aie.objectfifo<memref<8x16xi16>>
    aie.objectfifo.link [@a] -> [@a_upper, @a_lower]([] [0, 128])
    aie.objectfifo @b(%shim, {%mem}, 2 : i32) : !aie.objectfifo<memref<16x16xi16>>
    aie.objectfifo @b_both(%mem, {%upper, %lower}, 2 : i32) : !aie.objectfifo<memref<16x16xi16>>
    aie.objectfifo.link [@b] -> [@b_both]([] [])
    aie.objectfifo @c_upper(%upper, {%mem}, 2 : i32) : !aie.objectfifo<memref<8x16xi32>>
    aie.objectfifo @c_lower(%lower, {%mem}, 2 : i32) : !aie.objectfifo<memref<8x16xi32>>
    aie.objectfifo @c(%mem, {%shim}, 2 : i32) : !aie.objectfifo<memref<16x16xi32>>
    aie.objectfifo.link [@c_upper, @c_lower] -> [@c]([0, 128] [])
    %core_upper = aie.core(%upper) {
      cf.br ^bb1
    ^bb1:
      %0 = aie.objectfifo.acquire @c_upper(Produce, 1) : !aie.objectfifosubview<memref<8x16xi32>>
      %1 = aie.objectfifo.subview.access %0[0] : !aie.objectfifosubview<memref<8x16xi32>> -> memref<8x16xi32>
      func.call @zero_i32(%1) : (memref<8x16xi32>) -> ()
      %2 = aie.objectfifo.acquire @a_upper(Consume, 1) : !aie.objectfifosubview<memref<8x16xi16>>
      %3 = aie.objectfifo.subview.access %2[0] : !aie.objectfifosubview<memref<8x16xi16>> -> memref<8x16xi16>
      %4 = aie.objectfifo.acquire @b_both(Consume, 1) : !aie.objectfifosubview<memref<16x16xi16>>
      %5 = aie.objectfifo.subview.access %4[0] : !aie.objectfifosubview<memref<16x16xi16>> -> memref<16x16xi16>
      func.call @matmul_scalar_i16_i32(%3, %5, %1) : (memref<8x16xi16>, memref<16x16xi16>, memref<8x16xi32>) -> ()
      aie.objectfifo.release @a_upper(Consume, 1)
      aie.objectfifo.release @b_both(Consume, 1)
      aie.objectfifo.release @c_upper(Produce, 1)
      cf.br ^bb1
    } {link_with = "mm.o", stack_size = 3328 : i32}
    %core_lower = aie.core(%lower) {
      cf.br ^bb1
    ^bb1:
      %0 = aie.objectfifo.acquire @c_lower(Produce, 1) : !aie.objectfifosubview<memref<8x16xi32>>
      %1 = aie.objectfifo.subview.access %0[0] : !aie.objectfifosubview<memref<8x16xi32>> -> memref<8x16xi32>
      func.call @zero_i32(%1) : (memref<8x16xi32>) -> ()
      %2 = aie.objectfifo.acquire @a_lower(Consume, 1) : !aie.objectfifosubview<memref<8x16xi16>>
      %3 = aie.objectfifo.subview.access %2[0] : !aie.objectfifosubview<memref<8x16xi16>> -> memref<8x16xi16>
      %4 = aie.objectfifo.acquire @b_both(Consume, 1) : !aie.objectfifosubview<memref<16x16xi16>>
      %5 = aie.objectfifo.subview.access %4[0] : !aie.objectfifosubview<memref<16x16xi16>> -> memref<16x16xi16>
      func.call @matmul_scalar_i16_i32(%3, %5, %1) : (memref<8x16xi16>, memref<16x16xi16>, memref<8x16xi32>) -> ()
      aie.objectfifo.release @a_lower(Consume, 1)
      aie.objectfifo.release @b_both(Consume, 1)
      aie.objectfifo.release @c_lower(Produce, 1)
      cf.br ^bb1
    } {link_with = "mm.o", stack_size = 3328 : i32}
    aie.runtime_sequence(%a: memref<16x16xi16>, %b: memref<16x16xi16>, %c: memref<16x16xi32>) {
      aiex.npu.dma_memcpy_nd(%c[0, 0, 0, 0][1, 1, 1, 256][0, 0, 0, 1]) {id = 0 : i64, issue_token = true, metadata = @c} : memref<16x16xi32>
      aiex.npu.dma_memcpy_nd(%a[0, 0, 0, 0][1, 1, 1, 256][0, 0, 0, 1]) {id = 1 : i64, metadata = @a} : memref<16x16xi16>
      aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 256][0, 0, 0, 1]) {id = 2 : i64, metadata = @b} : memref<16x16xi16>
      aiex.npu.dma_wait {symbol = @c}
    }
  }
}
