//! The rules by code, and refusals.

use std::fmt;

millrace_npu::rules! {
    TooLarge "TC001" "Sizes stay within what the verifier examines." "a bound of this verifier, far above real programs";
    Mapping "TC101" "Mapping expressions make sense over the program's axes." "book, mapping-tensors: constructors and their sizes";
    Factors "TC102" "Each factor of an axis is used once, and none is left out." "book, mapping-tensors: a tensor is a total function";
    StageOrder "TC103" "Stages follow each other in the order of the pipeline." "book, computing-tensors: fetch to commit; vector-engine/intra-slice-chain";
    Values "TC104" "A stage hands on the values it gets: none lost, none made up, reduced only where it reduces." "book, computing-tensors: each stage's constraints";
    Place "TC105" "Streams begin and end in data memory or register files; DMA moves between memories." "book, memory and stages";
    Elements "TC106" "Element types are those that a stage takes and makes." "book, fetch-adapter, contraction-engine/outer, cast-engine: their tables";
    Operand "TC107" "A vector operand lies with its stream and has no axis beyond it." "book, vector-engine/intra-slice-chain: operands";
    Region "TC108" "The two sides of a move hold the same values." "book, moving-tensors/dma-engine";
    Index "TC109" "Indices are i32 in the chip's memory, over axes of the move." "book, moving-tensors/dma-engine: gather and scatter";
    Spatial "TC201" "Clusters are 1 or 2; slices 64, 128 or 256; lanes 1, 2, 4 or 8." "examples, constraints.rs; book, contraction-engine/outer";
    DataMemory "TC202" "A tensor ends within the 512 KiB of a slice's data memory." "book, moving-tensors/memory-performance";
    Alignment "TC203" "Tensors in data memory begin at multiples of 256 bytes." "furiosa-opt-std 0.10.0: residents are aligned";
    TensorRegisters "TC204" "A tensor ends within the 8 KiB of a lane's register file." "book, computing-tensors/register-files";
    VectorRegisters "TC205" "A tensor ends within the 8 KiB of a slice's vector register file, 7 KiB beside a stash." "book, vector-engine/intra-slice-chain: 1,024 bytes are reserved";
    Flit "TC301" "Flits are of 32 bytes at most; vector stages take eight elements." "book, computing-tensors/collect-engine";
    PacketSize "TC302" "Packets to be multiplied are of 32 or 64 bytes." "book, contraction-engine/outer";
    Sequencer "TC303" "A fetch or a commit has at most eight loops, each to 65,536." "book, moving-tensors/sequencer";
    Accumulators "TC304" "Sums in flight fit the time reducer's slots." "book, contraction-engine/time-reducer";
    ReduceSlots "TC305" "Reductions within a slice keep at most eight results in flight." "book, vector-engine/intra-slice-reduce";
    AluOnce "TC306" "A kernel uses each ALU of the vector engine once." "book, vector-engine/intra-slice-chain: stages";
    StashOnce "TC307" "A kernel stashes once, and reads it once." "book, vector-engine/intra-slice-chain: operands";
    SubContext "TC308" "The sub context fills register files and nothing else." "book, computing-tensors: execution contexts";
    Second "TC309" "An interleaved tensor is used once, where one was fetched." "book, moving-tensors/fetch-engine: interleaving";
    Engines "TC401" "A move uses engines that are there." "book, moving-tensors/dma-engine: eight";
    Units "TC402" "What DMA moves of a slice is whole units of 8 bytes." "book, moving-tensors/dma-engine";
    ReadUnwritten "TC501" "What a command reads was written before." "the machine clears nothing";
    Overwritten "TC502" "What a command reads was not overwritten since by a tensor at its address." "contexts are ordered by address alone";
    StaticWritten "TC503" "No command writes a static or input slot." "static slots are written once, by the host";
    OutputUnwritten "TC504" "Every element of an output slot is written." "the host reads it";
    WrittenTwice "TC505" "Parts of a tensor that are written do not overlap each other in part." "a bound of this verifier: parts are counted";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpViolation {
    /// The rule.
    pub rule: Rule,
    /// The tensor, or the command and stage.
    pub place: String,
    /// The fault: the value that was asked for, and the limit.
    pub message: String,
}

impl fmt::Display for TcpViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.rule, self.place, self.message)
    }
}

impl std::error::Error for TcpViolation {}
