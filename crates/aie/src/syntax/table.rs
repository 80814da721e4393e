//! The forms of all known ops, after mlir-aie's and MLIR's `assemblyFormat`s.

use super::form::FormPart::{
    self, Any, Dictionary, Fields, Flags, FunctionType, Indices, Integer, Items, Maybe,
    MaybeIndices, MaybeSymbol, Operand, Operands, Own, Parts, Region, RegionWithArguments, Regions,
    Sign, Successor, Symbol, Symbols, Type, Types, Word,
};
use super::{affine, index, irregular, linalg};

/// One operand and its type.
const UNARY: &[FormPart] = &[Operand, Flags, Dictionary, Sign(":"), Type];
/// Two operands of a type.
const BINARY: &[FormPart] = &[
    Operand,
    Sign(","),
    Operand,
    Flags,
    Dictionary,
    Sign(":"),
    Type,
];
const TERNARY: &[FormPart] = &[
    Operand,
    Sign(","),
    Operand,
    Sign(","),
    Operand,
    Flags,
    Dictionary,
    Sign(":"),
    Types,
];
/// A type, then another that it is converted to.
const CAST: &[FormPart] = &[
    Operand,
    Flags,
    Dictionary,
    Sign(":"),
    Type,
    Sign("to"),
    Type,
];
const COMPARE: &[FormPart] = &[
    Word("predicate"),
    Sign(","),
    Operand,
    Sign(","),
    Operand,
    Flags,
    Dictionary,
    Sign(":"),
    Type,
];
/// Contents of a tile: a region, then attributes.
const OF_TILE: &[FormPart] = &[Sign("("), Operand, Sign(")"), Region, Dictionary];
const SEQUENCE: &[FormPart] = &[MaybeSymbol("sym_name"), RegionWithArguments, Dictionary];
/// Ops of the sequence with attributes only.
const COMMAND: &[FormPart] = &[Items("items"), Dictionary, Maybe(":", &[Types])];
const TASK: &[FormPart] = &[Sign("("), Operand, Sign(")"), Dictionary];
const PORT: &[FormPart] = &[
    Sign("<"),
    Operand,
    Sign(","),
    Word("bundle"),
    Sign(":"),
    Integer("channel"),
    Sign(">"),
];
/// A port of a switch, and the values that go there.
const SWITCH_PORT: &[FormPart] = &[
    Sign("("),
    Word("bundle"),
    Sign(":"),
    Integer("channel"),
    Maybe(",", &[Operands]),
    Sign(")"),
];
const RESHAPE: &[FormPart] = &[
    Operand,
    Any("reassociation"),
    Maybe("output_shape", &[Indices("output_shape")]),
    Sign(":"),
    Type,
    Sign("into"),
    Type,
];
const ALLOCATE: &[FormPart] = &[Sign("("), Operands, Sign(")"), Dictionary, Sign(":"), Type];
/// Two indices, or one and a type.
const INDEX: &[FormPart] = &[Own(index::binary)];
const SUBVIEW: &[FormPart] = &[
    Operand,
    Indices("offsets"),
    Indices("sizes"),
    Indices("strides"),
    Dictionary,
    Sign(":"),
    Type,
    Sign("to"),
    Type,
];

/// Names and forms, a row each.
#[rustfmt::skip]
static FORMS: &[(&str, &[FormPart])] = &[
    ("module", &[MaybeSymbol("sym_name"), Maybe("attributes", &[Dictionary]), Region]),
    ("builtin.module", &[MaybeSymbol("sym_name"), Maybe("attributes", &[Dictionary]), Region]),
    // Structure.
    ("aie.device", &[Sign("("), Word("device"), Sign(")"), MaybeSymbol("sym_name"), Region, Dictionary]),
    ("aie.tile", &[Sign("("), Integer("col"), Sign(","), Integer("row"), Sign(")"), Dictionary]),
    ("aie.buffer", &[Sign("("), Operand, Sign(")"), Dictionary, Sign(":"), Type, Maybe("=", &[Any("initial_value")])]),
    ("aie.lock", &[Sign("("), Operand, Maybe(",", &[Integer("lockID")]), Sign(")"), Dictionary]),
    ("aie.core", OF_TILE),
    ("aie.mem", OF_TILE),
    ("aie.memtile_dma", OF_TILE),
    ("aie.shim_dma", OF_TILE),
    ("aie.end", &[]),
    ("aie.logical_tile", &[Sign("<"), Word("tile_type"), Sign(">"), Sign("("), Own(irregular::place), Sign(")"), Dictionary]),
    // Traces.
    ("aie.trace", &[Symbol("sym_name"), Sign("("), Operand, Sign(")"), Own(irregular::passed_over)]),
    ("aie.trace.host_config", &[Own(irregular::settings)]),
    ("aie.trace.start_config", &[Symbol("trace_config"), Dictionary]),
    ("aie.event", &[Sign("("), Integer("val"), Sign(")")]),
    // DMA.
    ("aie.dma_start", &[Sign("("), Word("channel_dir"), Sign(","), Integer("channel_index"), Sign(","), Successor, Sign(","), Successor, Fields, Sign(")"), Dictionary]),
    ("aie.dma", &[Sign("("), Word("channel_dir"), Sign(","), Integer("channel_index"), Sign(")"), Dictionary, Regions, Dictionary]),
    ("aie.dma_bd", &[Own(irregular::descriptor)]),
    ("aie.dma_bd_packet", &[Sign("("), Integer("packet_type"), Sign(","), Integer("packet_id"), Sign(")"), Dictionary]),
    ("aie.next_bd", &[Successor, Dictionary]),
    ("aie.use_lock", &[Sign("("), Operand, Sign(","), Word("action"), Maybe(",", &[Any("value")]), Sign(")"), Dictionary]),
    // Streams.
    ("aie.flow", &[Sign("("), Operand, Sign(","), Word("source_bundle"), Sign(":"), Integer("source_channel"), Sign(","), Operand, Sign(","), Word("dest_bundle"), Sign(":"), Integer("dest_channel"), Sign(")"), Dictionary]),
    ("aie.packet_flow", &[Sign("("), Integer("ID"), Sign(")"), Region, Dictionary]),
    ("aie.packet_source", PORT),
    ("aie.packet_dest", PORT),
    ("aie.cascade_flow", &[Sign("("), Operand, Sign(","), Operand, Sign(")"), Dictionary]),
    ("aie.put_cascade", &[Sign("("), Operand, Sign(":"), Type, Sign(")"), Dictionary]),
    ("aie.get_cascade", &[Sign("("), Sign(")"), Dictionary, Sign(":"), Type]),
    ("aie.shim_dma_allocation", &[Symbol("sym_name"), Items("items"), Dictionary]),
    // Routes.
    ("aie.switchbox", OF_TILE),
    ("aie.shim_mux", OF_TILE),
    ("aie.connect", &[Sign("<"), Word("source_bundle"), Sign(":"), Integer("source_channel"), Sign(","), Word("dest_bundle"), Sign(":"), Integer("dest_channel"), Sign(">"), Dictionary]),
    ("aie.amsel", &[Sign("<"), Integer("arbiterID"), Sign(">"), Sign("("), Integer("msel"), Sign(")"), Dictionary]),
    ("aie.masterset", &[Parts(SWITCH_PORT), Dictionary]),
    ("aie.packet_rules", &[Parts(SWITCH_PORT), Region, Dictionary]),
    ("aie.rule", &[Sign("("), Integer("mask"), Sign(","), Integer("value"), Sign(","), Operand, Sign(")"), Dictionary]),
    ("aie.wire", &[Sign("("), Operand, Sign(":"), Word("source_bundle"), Sign(","), Operand, Sign(":"), Word("dest_bundle"), Sign(")"), Dictionary]),
    // Object FIFOs.
    ("aie.objectfifo", &[Own(irregular::object_fifo)]),
    ("aie.objectfifo.link", &[Symbols("fifoIns"), Sign("->"), Symbols("fifoOuts"), Own(irregular::link_offsets), Dictionary]),
    ("aie.objectfifo.allocate", &[Symbol("objFifo_name"), Sign("("), Operand, Sign(")"), Dictionary]),
    ("aie.objectfifo.acquire", &[Symbol("objFifo_name"), Sign("("), Word("port"), Sign(","), Integer("size"), Sign(")"), Dictionary, Maybe(":", &[Type])]),
    ("aie.objectfifo.release", &[Symbol("objFifo_name"), Sign("("), Word("port"), Sign(","), Integer("size"), Sign(")"), Dictionary]),
    ("aie.objectfifo.subview.access", &[Operand, Sign("["), Integer("index"), Sign("]"), Dictionary, Sign(":"), Type, Sign("->"), Type]),
    // The sequence.
    ("aie.runtime_sequence", SEQUENCE),
    ("aiex.runtime_sequence", SEQUENCE),
    ("aiex.npu.dma_memcpy_nd", &[Own(irregular::memcpy)]),
    ("aiex.npu.dma_wait", COMMAND),
    ("aiex.npu.sync", COMMAND),
    ("aiex.npu.write32", COMMAND),
    ("aiex.npu.maskwrite32", COMMAND),
    ("aiex.npu.address_patch", COMMAND),
    ("aiex.npu.load_pdi", COMMAND),
    ("aiex.npu.preempt", COMMAND),
    ("aiex.npu.writebd", COMMAND),
    ("aiex.npu.rtp_write", &[Sign("("), Symbol("buffer"), Sign(","), Integer("index"), Sign(","), Any("value"), Sign(")"), Dictionary, Maybe(":", &[Type])]),
    ("aiex.npu.blockwrite", &[Sign("("), Operand, Sign(")"), Dictionary, Sign(":"), Type]),
    ("aiex.npu.push_queue", &[Sign("("), Integer("column"), Sign(","), Integer("row"), Sign(","), Word("channel_dir"), Sign(":"), Integer("channel"), Sign(")"), Maybe("bd_id", &[Any("bd_id")]), Maybe("repeat", &[Any("repeat_count")]), Dictionary, Maybe(":", &[Types])]),
    ("aiex.npu.maskpoll", COMMAND),
    ("aiex.npu.create_scratchpad", &[Dictionary]),
    ("aiex.npu.update_from_scratchpad", &[Maybe("<", &[Word("func"), Sign(">")]), Dictionary]),
    ("aiex.scratchpad_parameter", &[Symbol("sym_name"), Sign(":"), Type, Dictionary]),
    ("aiex.read_scratchpad_parameter", &[Symbol("parameter"), Sign(":"), Type, Dictionary]),
    ("aiex.sync_scratchpad_parameters_from_host", &[Dictionary]),
    ("aiex.configure", &[Symbol("symbol"), Region, Dictionary]),
    ("aiex.run", &[Symbol("callee"), Sign("("), Operands, Sign(")"), Dictionary, Sign(":"), Sign("("), Types, Sign(")")]),
    ("aiex.core_reset", TASK),
    ("aiex.dma_channel_reset", &[Sign("("), Operand, Sign(","), Word("channel_dir"), Sign(","), Integer("channel"), Sign(")"), Dictionary]),
    ("aiex.buffer_clear", &[Sign("("), Operand, Sign(","), Integer("address"), Sign(","), Integer("n_words"), Sign(")"), Dictionary]),
    ("aiex.set_lock", &[Sign("("), Operand, Sign(","), Integer("value"), Sign(")"), Dictionary]),
    ("aiex.dma_configure_task", &[Sign("("), Operand, Sign(","), Word("channel_dir"), Sign(","), Integer("channel"), Fields, Sign(")"), Region, Dictionary]),
    ("aiex.dma_configure_task_for", &[Symbol("alloc"), Fields, Region, Dictionary]),
    ("aie.bd_chain", &[Symbol("sym_name"), RegionWithArguments, Dictionary]),
    ("aiex.dma_start_bd_chain", &[Symbol("symbol"), Sign("("), Operands, Sign(")"), Sign(":"), Types, Sign("on"), Sign("("), Any("tile"), Sign(","), Word("channel_dir"), Sign(","), Integer("channel"), Sign(")"), Dictionary]),
    ("aiex.dma_start_bd_chain_for", &[Symbol("symbol"), Sign("("), Operands, Sign(")"), Sign(":"), Types, Sign("for"), Symbol("alloc"), Dictionary]),
    ("aiex.dma_bd_pool_pop", &[Sign("("), Integer("column"), Sign(","), Integer("row"), Maybe(",", &[Integer("channel")]), Sign(")"), Dictionary, Maybe(":", &[Type])]),
    ("aiex.dma_bd_pool_push", &[Sign("("), Integer("column"), Sign(","), Integer("row"), Maybe(",", &[Integer("channel")]), Sign(")"), Sign("bd_id"), Any("bd_id"), Dictionary, Maybe(":", &[Type])]),
    ("aiex.control_packet", COMMAND),
    ("aiex.dma_start_task", TASK),
    ("aiex.dma_await_task", TASK),
    ("aiex.dma_free_task", TASK),
    // Functions and their flow.
    ("func.func", &[Own(irregular::function)]),
    ("func.call", &[Symbol("callee"), Sign("("), Operands, Sign(")"), Dictionary, Sign(":"), FunctionType]),
    ("call", &[Symbol("callee"), Sign("("), Operands, Sign(")"), Dictionary, Sign(":"), FunctionType]),
    ("func.return", &[Operands, Maybe(":", &[Types])]),
    ("return", &[Operands, Maybe(":", &[Types])]),
    ("scf.for", &[Own(irregular::scf_for)]),
    ("scf.if", &[Operand, Maybe("->", &[Types]), Region, Maybe("else", &[Region]), Dictionary]),
    ("scf.while", &[Own(irregular::scf_while)]),
    ("scf.index_switch", &[Own(irregular::index_switch)]),
    ("scf.yield", &[Operands, Maybe(":", &[Types])]),
    ("scf.condition", &[Sign("("), Operand, Sign(")"), Operands, Maybe(":", &[Types])]),
    ("affine.for", &[Own(affine::affine_for)]),
    ("affine.yield", &[Operands, Maybe(":", &[Types])]),
    ("affine.apply", &[Own(affine::apply)]),
    ("affine.min", &[Own(affine::apply)]),
    ("affine.max", &[Own(affine::apply)]),
    ("affine.load", &[Own(affine::load)]),
    ("affine.store", &[Own(affine::store)]),
    ("cf.br", &[Successor]),
    ("cf.cond_br", &[Operand, Sign(","), Successor, Sign(","), Successor, Dictionary]),
    // Values.
    ("arith.constant", &[Own(irregular::constant)]),
    ("arith.addi", BINARY),
    ("arith.subi", BINARY),
    ("arith.muli", BINARY),
    ("arith.divsi", BINARY),
    ("arith.divui", BINARY),
    ("arith.remsi", BINARY),
    ("arith.remui", BINARY),
    ("arith.ceildivsi", BINARY),
    ("arith.floordivsi", BINARY),
    ("arith.andi", BINARY),
    ("arith.ori", BINARY),
    ("arith.xori", BINARY),
    ("arith.shli", BINARY),
    ("arith.shrsi", BINARY),
    ("arith.shrui", BINARY),
    ("arith.maxsi", BINARY),
    ("arith.minsi", BINARY),
    ("arith.maxui", BINARY),
    ("arith.minui", BINARY),
    ("arith.addf", BINARY),
    ("arith.subf", BINARY),
    ("arith.mulf", BINARY),
    ("arith.divf", BINARY),
    ("arith.maximumf", BINARY),
    ("arith.minimumf", BINARY),
    ("arith.maxnumf", BINARY),
    ("arith.minnumf", BINARY),
    ("arith.negf", UNARY),
    ("math.sqrt", UNARY),
    ("math.rsqrt", UNARY),
    ("math.exp", UNARY),
    ("math.tanh", UNARY),
    ("math.absf", UNARY),
    ("math.absi", UNARY),
    ("math.exp2", UNARY),
    ("math.log", UNARY),
    ("math.sin", UNARY),
    ("math.cos", UNARY),
    ("math.floor", UNARY),
    ("math.ceil", UNARY),
    ("math.powf", BINARY),
    ("math.fma", TERNARY),
    ("arith.cmpi", COMPARE),
    ("arith.cmpf", COMPARE),
    ("arith.select", TERNARY),
    ("arith.extsi", CAST),
    ("arith.extui", CAST),
    ("arith.trunci", CAST),
    ("arith.extf", CAST),
    ("arith.truncf", CAST),
    ("arith.sitofp", CAST),
    ("arith.uitofp", CAST),
    ("arith.fptosi", CAST),
    ("arith.fptoui", CAST),
    ("arith.index_cast", CAST),
    ("arith.index_castui", CAST),
    ("arith.bitcast", CAST),
    ("index.add", INDEX),
    ("index.sub", INDEX),
    ("index.mul", INDEX),
    ("index.divs", INDEX),
    ("index.divu", INDEX),
    ("index.ceildivs", INDEX),
    ("index.floordivs", INDEX),
    ("index.rems", INDEX),
    ("index.remu", INDEX),
    ("index.maxs", INDEX),
    ("index.maxu", INDEX),
    ("index.mins", INDEX),
    ("index.minu", INDEX),
    ("index.and", INDEX),
    ("index.or", INDEX),
    ("index.xor", INDEX),
    ("index.shl", INDEX),
    ("index.shrs", INDEX),
    ("index.cmp", &[Own(index::compare)]),
    ("index.constant", &[Own(index::constant)]),
    ("index.casts", &[Own(index::cast)]),
    ("index.castu", &[Own(index::cast)]),
    // Memory.
    ("memref.global", &[Own(irregular::global)]),
    ("memref.get_global", &[Symbol("name"), Dictionary, Sign(":"), Type]),
    ("memref.load", &[Operand, Indices("indices"), Dictionary, Sign(":"), Type]),
    ("memref.store", &[Operand, Sign(","), Operand, Indices("indices"), Dictionary, Sign(":"), Type]),
    ("memref.alloc", ALLOCATE),
    ("memref.alloca", ALLOCATE),
    ("memref.dealloc", UNARY),
    ("memref.copy", &[Operand, Sign(","), Operand, Dictionary, Sign(":"), Type, Sign("to"), Type]),
    ("memref.dim", &[Operand, Sign(","), Operand, Dictionary, Sign(":"), Type]),
    ("memref.cast", CAST),
    ("memref.subview", SUBVIEW),
    ("memref.view", &[Operand, Indices("offsets"), Indices("sizes"), Dictionary, Sign(":"), Type, Sign("to"), Type]),
    ("memref.reinterpret_cast", &[Operand, Sign("to"), Sign("offset"), Sign(":"), Indices("offsets"), Sign(","), Sign("sizes"), Sign(":"), Indices("sizes"), Sign(","), Sign("strides"), Sign(":"), Indices("strides"), Dictionary, Sign(":"), Type, Sign("to"), Type]),
    ("memref.collapse_shape", RESHAPE),
    ("memref.expand_shape", RESHAPE),
    ("memref.assume_alignment", &[Own(irregular::alignment)]),
    // Tensors.
    ("bufferization.to_tensor", &[Operand, Flags, Dictionary, Sign(":"), Type, Maybe("to", &[Type])]),
    ("bufferization.to_buffer", &[Operand, Flags, Dictionary, Sign(":"), Type, Maybe("to", &[Type])]),
    ("bufferization.to_memref", &[Operand, Flags, Dictionary, Sign(":"), Type, Maybe("to", &[Type])]),
    ("bufferization.materialize_in_destination", &[Operand, Sign("in"), Flags, Operand, Dictionary, Sign(":"), FunctionType]),
    ("bufferization.alloc_tensor", &[Sign("("), Operands, Sign(")"), Dictionary, Sign(":"), Type]),
    ("tensor.empty", &[Sign("("), Operands, Sign(")"), Dictionary, Sign(":"), Type]),
    ("tensor.extract", &[Operand, Indices("indices"), Dictionary, Sign(":"), Type]),
    ("tensor.insert", &[Operand, Sign("into"), Operand, Indices("indices"), Dictionary, Sign(":"), Type]),
    ("tensor.cast", CAST),
    ("tensor.collapse_shape", RESHAPE),
    ("tensor.expand_shape", RESHAPE),
    // Loops over elements.
    ("linalg.generic", &[Own(linalg::generic)]),
    ("linalg.yield", &[Operands, Maybe(":", &[Types])]),
    ("linalg.index", &[Integer("dim"), Maybe(":", &[Type])]),
    ("linalg.fill", &[Own(linalg::named)]),
    ("linalg.copy", &[Own(linalg::named)]),
    ("linalg.add", &[Own(linalg::named)]),
    ("linalg.sub", &[Own(linalg::named)]),
    ("linalg.mul", &[Own(linalg::named)]),
    ("linalg.max", &[Own(linalg::named)]),
    ("linalg.matmul", &[Own(linalg::named)]),
    // Vectors.
    ("vector.load", &[Operand, Indices("indices"), Dictionary, Sign(":"), Type, Sign(","), Type]),
    ("vector.store", &[Operand, Sign(","), Operand, Indices("indices"), Dictionary, Sign(":"), Type, Sign(","), Type]),
    ("vector.transfer_read", &[Operand, Indices("indices"), Sign(","), Operand, Dictionary, Sign(":"), Type, Sign(","), Type]),
    ("vector.transfer_write", &[Operand, Sign(","), Operand, Indices("indices"), Dictionary, Sign(":"), Type, Sign(","), Type]),
    ("vector.broadcast", CAST),
    ("vector.splat", UNARY),
    ("vector.fma", TERNARY),
    ("vector.reduction", &[Sign("<"), Word("kind"), Sign(">"), Sign(","), Operand, Maybe(",", &[Operand]), Flags, Sign(":"), Type, Sign("into"), Type]),
    ("vector.shape_cast", CAST),
    ("vector.bitcast", CAST),
    ("vector.insert", &[Operand, Sign(","), Operand, MaybeIndices("position"), Dictionary, Sign(":"), Type, Sign("into"), Type]),
    ("vector.shuffle", &[Operand, Sign(","), Operand, Indices("mask"), Dictionary, Sign(":"), Type, Sign(","), Type]),
    ("vector.extract", &[Operand, MaybeIndices("position"), Dictionary, Sign(":"), Type, Maybe("from", &[Type])]),
];

/// Message about an op without a form, with the known op that a typo may have meant.
pub(super) fn unknown(name: &str) -> String {
    if name == "aie.external_buffer" {
        let problem = "memory of the host that no argument names: what gives an NPU its address no source says; make it an argument of the sequence, and move it by tasks";
        return problem.to_owned();
    }
    /// Edits that may lie between a name and a typo of it.
    const MOST_EDITS: usize = 2;
    const MOST_BYTES: usize = 64;
    let all = FORMS.iter().filter(|_| name.len() <= MOST_BYTES);
    let all = all.map(|row| (strsim::damerau_levenshtein(name, row.0), row.0));
    match all.min().filter(|row| row.0 <= MOST_EDITS) {
        Some((_, nearest)) => {
            format!("this op is not known here; did you mean `{nearest}`?")
        }
        None => "this op is not known here".to_owned(),
    }
}

/// The form of an op; `None` for an unknown one.
pub(super) fn form(name: &str) -> Option<&'static [FormPart]> {
    FORMS.iter().find(|row| row.0 == name).map(|row| row.1)
}
