//! The rules by code, the effect of breaking one on silicon, and refusals.

use std::fmt;

/// Reaction of a core to a task that breaks a rule, as far as sources say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It never ends; the kernel resets it after 500 ms and its output stays unchanged.
    Hang,
    /// It ends with wrong numbers.
    Garbage,
    /// It ends with columns that nobody wrote.
    Unwritten,
    /// It runs as encoded, which is not what the surrounding program means.
    Runs,
}

/// Defines the enum and its table from one list, so that no rule lacks a code, words or a source.
macro_rules! rules {
    ($($variant:ident $code:literal $effect:ident $states:literal $source:literal;)*) => {
        millrace_npu::rules! { $($variant $code $states $source;)* }

        impl Rule {
            /// Effect of breaking it.
            pub const fn effect(self) -> Effect {
                match self { $(Rule::$variant => Effect::$effect,)* }
            }
        }
    };
}

rules! {
    NoEnable "RK101" Hang "A task ends with one marker and one enable command, and nothing follows." "Mesa rocket emits them so; without an enable no block starts";
    EnableMask "RK102" Hang "CNA, CORE, DPU and DPU_RDMA are enabled, and no other block." "rocket-userspace: without DPU_RDMA a task never ends under rocket";
    OperandReaders "RK103" Hang "The operand readers of DPU_RDMA are switched off." "rocket-userspace: a reader without a task waits for ever";
    Partial "RK104" Hang "A task writes every register that a product needs." "rocket-userspace: partial programs do not start reliably, although registers persist";
    Chain "RK105" Hang "No task follows in the same kick." "Linux rocket_job.c writes TASK_NUMBER 1";
    Foreign "RK106" Hang "Only registers of a product are written." "Linux rocket_job.c writes CNA and CORE S_POINTER itself; pooling takes no part";
    Fixed "RK201" Garbage "Registers that no product needs hold their fixed values." "mtx512, rocket-userspace and Mesa agree on them";
    Precision "RK202" Garbage "Operands and results have types that some driver has shown to work." "mtx512, rocket-userspace";
    Sizes "RK203" Hang "All registers that hold a size hold the same." "mtx512, rocket-userspace; what a core does otherwise is not known";
    Range "RK204" Hang "m, n, k and the grains are within their fields." "Mesa registers.xml";
    Shape "RK205" Garbage "k is a multiple of 32, n of the kernel group, m is 1 or a multiple of 4." "mtx512; other m are not known to work";
    Alignment "RK206" Hang "Addresses are multiples of 16." "Mesa registers.xml: lower bits are dropped";
    ReaderStride "RK207" Garbage "The reader's strides are those of packed rows." "derived from mtx512's streams; see the address rule in docs/rk3588.md";
    CbufSplit "RK301" Garbage "Data and weights have banks of their own, together at most 12." "Mesa rkt_task.c";
    CbufFeature "RK302" Garbage "The rows of A fit their banks, each row in whole units of 64 bytes." "derived from the shapes that rocket-userspace lists as failing";
    CbufKernels "RK303" Hang "One group of kernels fits its banks." "derived; it gives the limits that rknpu2-matmul published";
    FcBank "RK304" Garbage "FC_DATA_BANK is 0." "rocket-userspace: anything else corrupts results";
    Entries "RK305" Garbage "DATA_ENTRIES is a row in units of 64 bytes." "mtx512, rocket-userspace";
    StaleReuse "RK306" Garbage "A tile is reused only where the task before, in the same job, left it whole under the same division." "rocket-userspace";
    Writer "RK401" Unwritten "The writer's surfaces are those of a kernel group." "derived from all streams: SIZE_E + 1 surfaces of 16 bytes";
    Head "RK501" Runs "The program's head describes a product that can be cut so." "the program's own definition";
    OutsideSlot "RK502" Hang "A task stays within its slots." "an address outside a buffer object is an IOMMU fault";
    Overlap "RK503" Runs "No two tasks write the same bytes." "the order of workers is not defined";
    TooLong "RK504" Hang "A job ends within 500 ms at the slowest clock." "Linux rocket_job.c JOB_TIMEOUT_MS";
    Uncovered "RK505" Runs "Every byte of the output is written." "bytes that nobody writes are read back as results";
    Workers "RK506" Runs "Jobs have tasks, and workers are those of the head." "Linux rocket_job.c drops a job without commands and says nothing";
    Interleaved "RK507" Runs "Workers write to separate memory." "each worker has a buffer object of its own";
}

/// A rule that a program breaks, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rk3588Violation {
    /// The rule.
    pub rule: Rule,
    /// The job and the task in it, for a rule about one task.
    pub place: Option<(usize, usize)>,
    /// The value that was found, and a valid one.
    pub detail: String,
}

impl fmt::Display for Rk3588Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rule.code())?;
        if let Some((job, task)) = self.place {
            write!(f, " (job {job}, task {task})")?;
        }
        write!(f, ": {} {}", self.rule.states(), self.detail)
    }
}
