//! The machine as data: cores, CBUF, MAC rates, field limits, addresses, clocks.
//!
//! The facts are in `data/machines/rk3588.toml`, each with its source. Constants that software attains (rates,
//! overheads) are not facts of the machine: see [`profile`](crate::profile).

pub use millrace_facts::{Fact, FactsError};

use millrace_facts::{Builtin, Key, Kind, Record, Value};

/// Facts about the NPU. The default is all zeros, which reading a file replaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Name (`rk3588`).
    pub name: String,
    /// Cores; each runs one task at a time.
    pub n_cores: u32,
    /// Banks of the convolution buffer (CBUF) of a core.
    pub cbuf_banks: u32,
    /// Bytes of one bank.
    pub cbuf_bank_bytes: u64,
    /// Granule of a feature row in the CBUF.
    pub cbuf_row_bytes: u64,
    /// Multiply-accumulates of one core in a cycle, by width of the operands.
    pub macs: Macs,
    /// Rows are computed in groups of so many.
    pub row_group: u32,
    /// Width of an address.
    pub address_bits: u32,
    /// Addressable bytes of one open file.
    pub domain_bytes: u64,
    /// Buffer objects are whole pages.
    pub page_bytes: u64,
    /// Alignment of every address that a register holds.
    pub address_align_bytes: u64,
    /// Most rows of a task.
    pub m_max: u32,
    /// Largest value of `FEATURE_GRAINS`, which holds m + 1.
    pub grains_max: u32,
    /// Largest k of a task.
    pub k_max: u32,
    /// Most columns of a task.
    pub n_max: u32,
    /// k is a multiple of this.
    pub k_group: u32,
    /// After this time the kernel resets a job.
    pub job_timeout_ns: u64,
    /// Clocks that the NPU is run at, lowest first.
    pub clocks_hz: Vec<u64>,
    /// Source of each value, in the file's order.
    pub facts: Vec<Fact>,
}

/// Multiply-accumulates of one core in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Macs {
    /// 4-bit integers.
    pub int4: u32,
    /// 8-bit integers.
    pub int8: u32,
    /// 16-bit floats of either kind.
    pub fp16: u32,
}

/// Largest value that a 64-bit key may have.
const MOST: u64 = 1 << 32;

/// Every key. Values are counted with and divided by, so none may be 0.
#[rustfmt::skip]
const KEYS: &[Key<Machine>] = &[
    Key::u32("n_cores", 1, 64, |m| &mut m.n_cores),
    Key::u32("cbuf_banks", 1, 15, |m: &mut Machine| &mut m.cbuf_banks).because("the width of its register's field"),
    Key::u64("cbuf_bank_bytes", 1, MOST, |m| &mut m.cbuf_bank_bytes),
    Key::u64("cbuf_row_bytes", 1, MOST, |m| &mut m.cbuf_row_bytes),
    Key::u32("macs_int4", 1, u32::MAX, |m| &mut m.macs.int4),
    Key::u32("macs_int8", 1, u32::MAX, |m| &mut m.macs.int8),
    Key::u32("macs_fp16", 1, u32::MAX, |m| &mut m.macs.fp16),
    Key::u32("row_group", 1, u32::MAX, |m| &mut m.row_group),
    Key::u32("address_bits", 1, u32::MAX, |m| &mut m.address_bits),
    Key::u64("domain_bytes", 1, MOST, |m| &mut m.domain_bytes),
    Key::u64("page_bytes", 1, MOST, |m| &mut m.page_bytes),
    Key::u64("address_align_bytes", 1, MOST, |m| &mut m.address_align_bytes),
    Key::u32("m_max", 1, u32::MAX, |m| &mut m.m_max),
    Key::u32("grains_max", 1, u32::MAX, |m| &mut m.grains_max),
    Key::u32("k_max", 1, u32::MAX, |m| &mut m.k_max),
    Key::u32("n_max", 1, u32::MAX, |m| &mut m.n_max),
    Key::u32("k_group", 1, u32::MAX, |m| &mut m.k_group),
    Key::u64("job_timeout_ns", 1, MOST, |m| &mut m.job_timeout_ns),
    Key::own("clocks_hz", clocks),
];

/// Sets the clocks from a list.
fn clocks(machine: &mut Machine, value: &Value) -> Result<(), String> {
    let hz = |value: &Value| {
        let hz = u64::try_from(value.as_integer()?).ok()?;
        (1..=100_000_000_000).contains(&hz).then_some(hz)
    };
    let list = value
        .as_array()
        .filter(|list| (1..=64).contains(&list.len()));
    let list = list.and_then(|list| list.iter().map(hz).collect());
    let expected = "a list of 1 to 64 whole numbers from 1 to 100000000000 Hz, lowest first";
    machine.clocks_hz = list.ok_or_else(|| expected.to_owned())?;
    Ok(())
}

/// Machines that come with the crate.
static BUILTIN: [Builtin<Machine>; 1] = [Builtin::new(
    "rk3588",
    include_str!("../data/machines/rk3588.toml"),
)];

impl Record for Machine {
    const KIND: Kind = Kind::Machine;

    fn builtins() -> &'static [Builtin<Machine>] {
        &BUILTIN
    }

    fn keys() -> &'static [Key<Machine>] {
        KEYS
    }

    fn name_mut(&mut self) -> &mut String {
        &mut self.name
    }

    fn facts(&self) -> &[Fact] {
        &self.facts
    }

    fn facts_mut(&mut self) -> &mut Vec<Fact> {
        &mut self.facts
    }
}

impl Machine {
    /// The RK3588's NPU.
    ///
    /// # Panics
    /// Never: the machine is built in.
    pub fn rk3588() -> Machine {
        let machine = millrace_facts::builtin("rk3588");
        machine.cloned().expect("the machine is built in")
    }

    /// A machine from a file such as `data/machines/rk3588.toml`; `path` is for messages. [`millrace_facts`] says how files
    /// are written.
    ///
    /// # Errors
    /// As [`millrace_facts::from_toml`].
    pub fn from_toml(text: &str, path: &str) -> Result<Machine, FactsError> {
        millrace_facts::from_toml(text, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_machine_has_a_source_for_every_value() {
        let machine = Machine::rk3588();
        assert_eq!(machine.facts.len(), 19);
        assert!(machine.facts.iter().all(|fact| !fact.source.is_empty()));
        assert_eq!(
            machine.cbuf_banks as u64 * machine.cbuf_bank_bytes,
            384 << 10
        );
        // 3 cores, 1 GHz, two operations a MAC: the advertised 6 TOPS.
        let ops = 2 * u64::from(machine.macs.int8) * u64::from(machine.n_cores);
        assert_eq!(ops, 6144);
    }

    #[test]
    fn wrong_files_are_refused_by_name() {
        let text = include_str!("../data/machines/rk3588.toml");
        let wrong = [
            (
                text.replace("[k_group]\nvalue = 32", "[k_group]\nvalue = 0"),
                "k_group",
            ),
            (text.replace("[n_cores]", "[n_kernels]"), "n_kernels"),
            (
                text.replace("[cbuf_banks]\nvalue = 12", "[cbuf_banks]\nvalue = 16"),
                "`cbuf_banks` = 16: expected a whole number from 1 to 15 (the width",
            ),
            (String::new(), "`name` is missing"),
            (
                text.replace("[200000000, 600000000, 1000000000]", "[]"),
                "`clocks_hz` = []: expected a list",
            ),
        ];
        for (text, words) in wrong {
            let error = Machine::from_toml(&text, "m.toml").unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
