//! Refusals: place, op and reason.

use crate::{core_design, text};
use millrace_aie::Design;

/// The first refusal of a text, by reading or by checking.
fn refusal(text: &str) -> String {
    match Design::read(text) {
        Err(error) => error.to_string(),
        Ok(design) => match design.check() {
            Err(error) => error.to_string(),
            Ok(_) => panic!("nothing is refused"),
        },
    }
}

/// Texts within a device that has a tile of each kind.
fn in_device(body: &str) -> String {
    format!(
        "aie.device(npu2) {{\n%shim = aie.tile(0, 0)\n%mem = aie.tile(0, 1)\n%core = aie.tile(0, 2)\n{body}\n}}"
    )
}

#[test]
fn refusals_name_line_column_and_op() {
    let rows = [
        (
            "aie.plio(%core)",
            "line 5, column 1: `aie.plio`: this op is not known here",
        ),
        (
            "%x = some.op %core",
            "line 5, column 6: `some.op`: this op is not known here",
        ),
        (
            "\"other.op\"() : () -> ()",
            "line 5, column 1: `other.op`: this op is not known here",
        ),
        (
            "%t = aie.tile(8, 0)",
            "line 5, column 6: `aie.tile`: an NPU2 has no tile (8, 0)",
        ),
        ("%t = aie.tile(0)", "`aie.tile`: expected `,`, found `)`"),
        (
            "%b = aie.buffer(%nothing) : memref<4xi32>",
            "`aie.buffer`: %nothing is no tile",
        ),
        (
            "%b = aie.buffer(%core) : memref<20000xi32>",
            "80000 bytes; core (0, 2) has 65536",
        ),
        (
            "%b = aie.buffer(%core) : memref<4xtf32>",
            "elements of type `tf32` are not known",
        ),
        (
            "%b = aie.buffer(%core) {address = 2 : i32} : memref<4xi32>",
            "16 bytes at 0x2 of the 65536 of core (0, 2)",
        ),
        (
            "%b = aie.buffer(%core) {colour = 2 : i32} : memref<4xi32>",
            "the attribute `colour` is not known here",
        ),
        ("%l = aie.lock(%core, 16)", "core (0, 2) has 16 locks"),
        (
            "%l = aie.lock(%core, 1) {init = 64 : i32}",
            "a lock holds 0 to 63",
        ),
        (
            "%l = aie.lock(%core, 1)\n%m = aie.lock(%core, 1)",
            "line 6, column 6: `aie.lock`: a second lock 1 of core (0, 2)",
        ),
        (
            "aie.flow(%core, DMA : 2, %mem, DMA : 0)",
            "`aie.flow`: core (0, 2) has no port `DMA : 2` there",
        ),
        (
            "aie.flow(%core, PLIO : 0, %mem, DMA : 0)",
            "a flow does not begin or end at `PLIO`",
        ),
        (
            "aie.flow(%shim, DMA : 0, %mem, DMA : 0)\naie.flow(%core, DMA : 0, %mem, DMA : 0)",
            "2 streams want Dma 0",
        ),
        ("aie.packet_flow(32) {\n}", "ids of packets are 0 to 31"),
        (
            "aie.packet_flow(1) {\naie.packet_dest<%mem, DMA : 0>\n}",
            "it has no source",
        ),
        (
            "aie.objectfifo @x(%shim, {%core}, 64 : i32) : !aie.objectfifo<memref<4xi32>>",
            "a depth is 1 to 63",
        ),
        (
            "aie.objectfifo @x(%shim, {%core}, 2 : i32) {repeat_count = 300 : i32} : !aie.objectfifo<memref<4xi32>>",
            "`repeat_count` is 1 to 256",
        ),
        (
            "aie.objectfifo @x(%shim, {}, 2 : i32) : !aie.objectfifo<memref<4xi32>>",
            "it has no consumer",
        ),
        (
            "aie.objectfifo.link [@x] -> [@y]([] [])",
            "it names no object FIFO",
        ),
        ("aie.core(%mem) {\naie.end\n}", "memory (0, 1) has no core"),
        (
            "aie.core(%core) {\naie.end\n}\naie.core(%core) {\naie.end\n}",
            "a second program of core (0, 2)",
        ),
        (
            "aie.mem(%mem) {\naie.end\n}",
            "it is for another kind of tile than memory (0, 1)",
        ),
        (
            "aie.runtime_sequence(%a: memref<?xi32>) {\n}",
            "%a is no memref of a fixed size",
        ),
        (
            "aie.runtime_sequence(%a: memref<1000000000xi32>) {\n}",
            "its arguments have 4000000000 bytes, more than 256 MiB",
        ),
        (
            "memref.global @g : memref<4000000000xi8> = dense<0>",
            "`memref.global`: a global of more than 1048576 bytes",
        ),
        (
            "aie.objectfifo @x(%shim, {%core}, 2 : i32) : !aie.objectfifo<memref<1000000xi32>>",
            "no memrefs of a fixed size that a tile holds",
        ),
        (
            "%b = aie.buffer(%core) : memref<2xi32> = dense<[1, 2, 3]>",
            "`dense` has 3 numbers for 2 elements",
        ),
        ("aie.core(%core) {", "the text ends within a body"),
        ("\u{7}", "the sign '\\u{7}' has no meaning in MLIR"),
        (
            "%s = aie.buffer(%core) {sym_name = \"a} : memref<4xi32>",
            "a string has no end",
        ),
    ];
    for (body, expected) in rows {
        let found = refusal(&in_device(body));
        assert!(
            found.contains(expected),
            "{body}\nexpected {expected}\nfound    {found}"
        );
    }
    assert!(refusal("").contains("the text has no `aie.device`"));
    let two = format!("{}\n{}", in_device(""), in_device(""));
    assert!(refusal(&two).contains("0 of 2 devices have a sequence: say which is meant"));
    assert!(
        refusal("aie.device(xcvc1902) {\n}").contains("the device xcvc1902 is no NPU1 or NPU2")
    );
}

#[test]
fn programs_of_cores_are_refused_where_they_are_wrong() {
    let rows = [
        (
            "%x = memref.load %nothing[%c0] : memref<16xi32>",
            "%nothing has no value here",
        ),
        (
            "%x = tensor.generate : tensor<4xi32>",
            "`tensor.generate`: this op is not known here",
        ),
        (
            "aie.objectfifo.release @other(Consume, 1)",
            "there is no object FIFO @other",
        ),
        (
            "%y = aie.objectfifo.acquire @in(Produce, 1) : !aie.objectfifosubview<memref<16xi32>>",
            "core (0, 2) has no such end of @in",
        ),
        (
            "%y = aie.objectfifo.acquire @in(Consume, 3) : !aie.objectfifosubview<memref<16xi32>>",
            "it acquires 3 objects of 2",
        ),
        ("func.call @again() : () -> ()", "@again calls itself"),
        (
            "%q = func.call @other(%in) : (memref<16xi32>) -> i32",
            "%q is what a kernel of another file gives",
        ),
        (
            "%v = arith.constant 1 : !other.type",
            "`arith.constant`: a constant of type !other.type",
        ),
    ];
    let again = "func.func @again() {\n    func.call @again() : () -> ()\n    return\n  }";
    for (body, expected) in rows {
        // An acquire of three would need a deeper pool, so the depth is set for either side.
        let design = core_design(again, body).replace("{%core}, 2 : i32", "{%core}, [2, 2]");
        let found = refusal(&design);
        assert!(
            found.contains(expected),
            "{body}\nexpected {expected}\nfound    {found}"
        );
    }
}

#[test]
fn descriptors_and_sequences_are_refused_where_they_are_wrong() {
    let rows = [
        (
            "passthrough",
            "[0, 0, 0, 0][1, 1, 1, 1024][0, 0, 0, 1]) {id = 0",
            "[0, 0, 0, 0][1, 1, 512, 2][0, 0, 0, 1]) {id = 0",
            "a step of 0 has no words",
        ),
        (
            "passthrough",
            "[1, 1, 1, 1024][0, 0, 0, 1]) {id = 0",
            "[300, 1, 1, 1][0, 0, 0, 1]) {id = 0",
            "300 repetitions; a task has at most 256",
        ),
        (
            "passthrough",
            "metadata = @in}",
            "metadata = @other}",
            "no shim's channel has the name @other",
        ),
        (
            "passthrough",
            "{symbol = @out}",
            "{symbol = @nobody}",
            "no shim's channel has the name @nobody",
        ),
        (
            "passthrough",
            "%from[0",
            "%other[0",
            "%other is no argument of the sequence",
        ),
        (
            "passthrough",
            "id = 0 : i64",
            "id = 16 : i64",
            "it has no descriptor 16",
        ),
        (
            "physical",
            "bd_id = 24 : i32",
            "bd_id = 2 : i32",
            "reaches no free descriptor of that number",
        ),
        (
            "physical",
            "aie.use_lock(%full, Release)",
            "aie.use_lock(%empty, Acquire)",
            "a descriptor acquires one lock and releases one",
        ),
        (
            "physical",
            "[<size = 4, stride = 1>, <size = 8, stride = 4>]",
            "[<size = 4, stride = 0>, <size = 8, stride = 4>]",
            "a step of 0 has no words",
        ),
        (
            "physical",
            "aie.dma_bd(%block : memref<8x4xi32>, 0, 32)",
            "aie.dma_bd(%block : memref<8x4xi32>, 8, 32)",
            "elements 8 to 40 of 32",
        ),
        (
            "vector_add",
            "} {issue_token = true}",
            "}",
            "it awaits a task that sends no token",
        ),
        (
            "vector_add",
            "aiex.dma_start_task(%2)",
            "aiex.dma_start_task(%7)",
            "%7 is no task",
        ),
        (
            "join",
            "[@in_left, @in_right]([] [0, 8])",
            "[@in_left, @in_right]([] [0, 12])",
            "ends at byte 80 of the 64 of @in",
        ),
    ];
    for (name, from, to, expected) in rows {
        let good = text(name);
        assert!(good.contains(from), "{name}: {from}");
        let found = refusal(&good.replacen(from, to, 1));
        assert!(
            found.contains(expected),
            "{to}\nexpected {expected}\nfound    {found}"
        );
        assert!(found.starts_with("line "), "{found}");
    }
}
