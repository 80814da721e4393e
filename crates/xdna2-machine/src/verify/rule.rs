//! The rules by code, and refusals.

use std::collections::HashMap;
use std::fmt;

millrace_npu::rules! {
    TooLarge "XD001" "Sizes stay within what the verifier examines." "a bound of this verifier, far above real programs, so that checking ends soon";
    Overflow "XD002" "Expressions and sizes stay below 2^48." "a bound of this verifier: simulators compute in 64 bits";
    Malformed "XD101" "Names, indices, variables and references resolve." "the IR's definition";
    ZeroSize "XD102" "No size, depth, count or repeat is zero." "the IR's definition";
    ChannelUse "XD103" "Each end of a channel has one user, at its place and in its direction." "the IR's definition: a DMA channel belongs to one flow";
    HerdsOverlap "XD104" "A compute tile belongs to one herd of a launch." "the IR's definition: a core runs one program";
    NoCore "XD105" "A channel to or from a core meets a herd there." "the IR's definition";
    ElementType "XD106" "The two sides of a channel and its buffers have one element type." "DMA moves bytes: nothing converts";
    Kernel "XD107" "A call names a known tile kernel and fits its operands." "the table of tile kernels, those of mlir-air's Llama-3.2-1B among them";
    StageEnds "XD108" "A stage has something that fills and something that drains it." "the IR's definition";
    L1 "XD201" "A core's buffers, channel blocks and stack fit its data memory, each from a multiple of 64 bytes on." "Gemma paper 2.1.2: 64 KB; Peano aligns what vectors are loaded from";
    L2 "XD202" "The stages of a memory tile fit it, each copy from a multiple of 64 bytes on." "Gemma paper 2.1.3: 512 KB; as cores' buffers";
    ProgramMemory "XD203" "A core's program fits its program memory, by a low estimate." "Gemma paper 2.1.2: 16 KB";
    BufferSize "XD204" "A shim addresses at most 4 GiB of a buffer object." "mlir-air decode_geometry.py: 32-bit byte offsets";
    CoreChannels "XD301" "A core has two DMA channels a direction." "mlir-aie getNumSourceSwitchboxConnections";
    MemoryChannels "XD302" "A memory tile has six DMA channels a direction." "mlir-aie getNumSourceSwitchboxConnections";
    ShimChannels "XD303" "A shim has two DMA channels a direction." "mlir-aie getNumSourceShimMuxConnections; mlir-air details: herds deeper than their shims' channels are illegal";
    Descriptors "XD304" "A tile has buffer descriptors for all its blocks: 16, or 48 of which a channel reaches 24." "mlir-aie getNumBDs, isBdChannelAccessible; its objectfifo links take one a copy and part";
    TaskQueue "XD305" "At most four tasks are pushed at once on a shim channel." "mlir-aie getDmaTaskQueueDepth; IRON: 8 outstanding hang";
    Dimensions "XD306" "A descriptor has three dimensions, on memory tiles four, on shims an iteration on top." "mlir-aie getBDMaxDims";
    Wrap "XD307" "A dimension's size fits its field, or splits into dimensions that do." "mlir-aie getDmaBdWrapBits: 8 bits, 10 on memory tiles and shims";
    Instruction "XD308" "A stride fits its field." "mlir-aie getDmaBdStepBits: 13, 17 and 20 bits of 4-byte words; mlir-air GEMM: tile_k_l2 x N has a ceiling";
    Length "XD309" "A descriptor's length fits its field." "mlir-aie getDmaBdMaxLen";
    Repeat "XD310" "A repeat is at most 255, an iteration at most 64, both together 256 executions of a task." "mlir-aie AIEXDialect; mlir-air GEMV_bf16.md; the repeat count of a task queue has 8 bits";
    Granularity "XD311" "Offsets, runs and strides are whole 4-byte words." "mlir-aie getAddressGenGranularity; mlir-air GEMV_bf16.md: tile_m=1 is illegal";
    InnerStride "XD312" "Types of less than 4 bytes have inner stride 1: DMA cannot transpose them." "mlir-air GEMV_bf16.md and its guide to Llama-3.2-1B, on layouts";
    StrideSign "XD313" "Strides are positive; only a shim's outermost may be 0, a repeat." "mlir-aie AIEXDialect verifyStridesWraps";
    HerdOutside "XD401" "A herd lies within the array." "amdxdna npu4_regs.c: 8 x 4";
    ColumnOutside "XD402" "Shims and memory tiles lie within the array." "amdxdna npu4_regs.c: 8 columns";
    Cascade "XD403" "A cascade goes to the core south or east of it, one in and one out of a core." "AM027; mlir-aie isValidCascade";
    Neighbour "XD404" "Neighbour-shared L1 joins two adjacent cores." "Gemma paper 2.1.2; mlir-aie isLegalMemAffinity";
    Locks "XD405" "A tile has locks for its buffers: 16, memory tiles 64." "mlir-aie getNumLocks; two semaphores a channel end, as its object FIFOs take";
    LockValue "XD406" "A lock counts to 63: blocks, times the repeats of a drain." "mlir-aie getMaxLockValue; link_repeat_count_test: a repeated drain's locks begin at copies x repeats";
    Routes "XD407" "The stream switches have ports for every channel." "mlir-aie getNumDestSwitchboxConnections";
    LinkEnds "XD408" "Cascades and shared L1 join one core to one core, and no pattern walks them." "AM027: neither passes a DMA";
    StagePieces "XD409" "A descriptor takes one lock: what a fill brings a drain is one stretch of both, unless a grid point brings one block." "mlir-aie dma_task_lock_count_invalid.mlir, objectfifo link; mlir-air use-lock-race-condition-fix: locks counted over several fills race";
    StageShared "XD410" "No two drains of a stage send the same element." "mlir-aie: a full lock is taken once";
    OutOfBounds "XD501" "A pattern stays within its slot, stage or block." "the IR's definition";
    WholeBlocks "XD502" "A pattern is a whole number of its channel's blocks." "the IR's definition";
    StageHole "XD503" "A drain reads only what the fills wrote." "the IR's definition";
    StageOverlap "XD504" "Fills write each element of a block once." "the IR's definition";
    OutputUnwritten "XD505" "Every element of an output slot is written." "mlir-air GEMM: N % (4 tile_n) != 0 is silently wrong";
    WrittenTwice "XD506" "No element is written twice at once." "the IR's definition: grid points order writes, tasks of one do not";
    ReadUnwritten "XD507" "What a launch reads of an intermediate or output slot was written before." "the host writes neither (mlir-air's guide to Llama-3.2-1B, on buffer objects)";
    StaticWritten "XD508" "No transfer writes a static slot." "static slots are written once, by the host (mlir-air's guide to Llama-3.2-1B, on buffer objects)";
    NotHeld "XD601" "A core uses and releases only blocks it holds." "the IR's definition";
    BlockName "XD602" "A block's name is free when taken, and a block is put if new, freed if got." "the IR's definition";
    OverAcquired "XD603" "A core holds at most `depth` blocks of a channel." "mlir-aie object FIFOs: an acquire beyond the depth never returns";
    NotReleased "XD604" "A core holds no block when its program ends." "the IR's definition";
    ReleaseOrder "XD605" "Blocks of one channel are released in the order they were acquired." "mlir-aie object FIFOs: a release gives back the oldest";
    Unbalanced "XD606" "At each grid point a channel carries as many blocks as its users take." "the IR's definition: nothing survives between points but locals";
    Deadlock "XD607" "Every actor finishes." "the IR's definition; mlir-air: weights split by time instead of by row deadlock on hardware";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule.
    pub rule: Rule,
    /// The launch's name; empty where the program as a whole is meant.
    pub launch: String,
    /// The core, tile, channel, stage, transfer or slot.
    pub place: String,
    /// Description: the request, and the limit.
    pub message: String,
    /// The request, if it is a number.
    pub asked: Option<u64>,
    /// The limit, if it is a number.
    pub limit: Option<u64>,
    /// A remedy.
    pub suggestion: String,
    /// How many more copies of the same declaration break the rule.
    pub others: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.rule.code())?;
        if !self.launch.is_empty() {
            write!(f, "launch {}, ", self.launch)?;
        }
        write!(f, "{}: {}.", self.place, self.message)?;
        if !self.suggestion.is_empty() {
            write!(f, " {}.", self.suggestion)?;
        }
        if self.others > 0 {
            write!(f, " ({} more like it.)", self.others)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// A finding at one place, before it is entered.
pub(super) struct RuleFinding {
    pub rule: Rule,
    pub message: String,
    pub numbers: Option<(u64, u64)>,
    pub suggestion: String,
}

impl RuleFinding {
    pub(super) fn new(rule: Rule, message: impl Into<String>) -> RuleFinding {
        RuleFinding {
            rule,
            message: message.into(),
            numbers: None,
            suggestion: String::new(),
        }
    }

    /// Sets the request, and the limit.
    pub(super) fn numbers(mut self, asked: u64, limit: u64) -> RuleFinding {
        self.numbers = Some((asked, limit));
        self
    }

    pub(super) fn fix(mut self, suggestion: impl Into<String>) -> RuleFinding {
        self.suggestion = suggestion.into();
        self
    }
}

/// Refusals so far. Copies of one declaration that break the same rule are counted, not listed.
#[derive(Default)]
pub(super) struct Findings {
    pub list: Vec<Refusal>,
    pub launch: String,
    seen: HashMap<(Rule, String, String), usize>,
}

/// Most refusals listed; a program with more has one cause or is hostile.
const MAX_LISTED: usize = 64;

impl Findings {
    /// Enters a finding; `family` names the declaration that its copies share.
    pub(super) fn add(&mut self, family: &str, place: impl Into<String>, finding: RuleFinding) {
        let key = (finding.rule, self.launch.clone(), family.to_owned());
        if let Some(&at) = self.seen.get(&key) {
            self.list[at].others += 1;
            return;
        }
        if self.list.len() >= MAX_LISTED {
            return;
        }
        self.seen.insert(key, self.list.len());
        self.list.push(Refusal {
            rule: finding.rule,
            launch: self.launch.clone(),
            place: place.into(),
            message: finding.message,
            asked: finding.numbers.map(|n| n.0),
            limit: finding.numbers.map(|n| n.1),
            suggestion: finding.suggestion,
            others: 0,
        });
    }

    /// Returns the refusals if there are any.
    pub(super) fn stop(&mut self) -> Result<(), Vec<Refusal>> {
        if self.list.is_empty() {
            Ok(())
        } else {
            Err(std::mem::take(&mut self.list))
        }
    }
}

/// A number with separated thousands: `71 680`.
pub(super) fn group(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;

    #[test]
    fn codes_are_unique_and_ascending() {
        assert!(Rule::ALL.windows(2).all(|w| w[0].code() < w[1].code()));
        assert!(Rule::ALL.iter().all(|r| r.states().ends_with('.')));
        assert!(Rule::ALL.iter().all(|r| !r.source().is_empty()));
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(group(0), "0");
        assert_eq!(group(999), "999");
        assert_eq!(group(71_680), "71 680");
        assert_eq!(group(4_294_967_296), "4 294 967 296");
    }

    #[test]
    fn copies_are_counted_and_lists_end() {
        let mut findings = Findings::default();
        for copy in 0..3 {
            let finding = RuleFinding::new(Rule::L1, "too much").numbers(2, 1);
            findings.add("herd", format!("core ({copy}, 0)"), finding);
        }
        for other in 0..1000 {
            findings.add(&other.to_string(), "here", RuleFinding::new(Rule::L2, "x"));
        }
        let list = findings.stop().unwrap_err();
        assert_eq!(
            list[0].to_string(),
            "XD201 core (0, 0): too much. (2 more like it.)"
        );
        assert_eq!(list.len(), MAX_LISTED);
    }
}
