//! The machine as data: cores, CBUF, MAC rates, field limits, addresses, clocks.
//!
//! The facts are in `data/machines/rk3588.toml`, each with its source. Constants that software
//! attains (rates, overheads) are no facts of the machine: see [`profile`](crate::profile).

use serde::Deserialize;
use std::sync::LazyLock;

/// Facts about the NPU.
#[derive(Clone, Debug, PartialEq)]
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
    /// Where each value comes from, in the file's order.
    pub facts: Vec<Fact>,
}

/// Multiply-accumulates of one core in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    /// 4-bit integers.
    pub int4: u32,
    /// 8-bit integers.
    pub int8: u32,
    /// 16-bit floats of either kind.
    pub fp16: u32,
}

/// A value's origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name in the file.
    pub name: String,
    /// The value as text.
    pub value: String,
    /// The source.
    pub source: String,
    /// What contradicts it, or what it is derived from.
    pub note: Option<String>,
}

/// Why a text is no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("machine file: {0}")]
pub struct MachineError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Value<T> {
    value: T,
    source: String,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    n_cores: Value<u32>,
    cbuf_banks: Value<u32>,
    cbuf_bank_bytes: Value<u64>,
    cbuf_row_bytes: Value<u64>,
    macs_int4: Value<u32>,
    macs_int8: Value<u32>,
    macs_fp16: Value<u32>,
    row_group: Value<u32>,
    address_bits: Value<u32>,
    domain_bytes: Value<u64>,
    page_bytes: Value<u64>,
    address_align_bytes: Value<u64>,
    m_max: Value<u32>,
    grains_max: Value<u32>,
    k_max: Value<u32>,
    n_max: Value<u32>,
    k_group: Value<u32>,
    job_timeout_ns: Value<u64>,
    clocks_hz: Value<Vec<u64>>,
}

/// Takes values out of the file and records where each comes from.
struct Facts(Vec<Fact>);

impl Facts {
    fn take<T: std::fmt::Debug>(&mut self, name: &str, value: Value<T>) -> T {
        self.0.push(Fact {
            name: name.to_owned(),
            value: format!("{:?}", value.value),
            source: value.source,
            note: value.note,
        });
        value.value
    }

    /// A value that is counted with and divided by.
    fn positive<T>(&mut self, name: &str, value: Value<T>) -> Result<T, MachineError>
    where
        T: std::fmt::Debug + Copy + Into<u64>,
    {
        match value.value.into() {
            1..=0x1_0000_0000 => Ok(self.take(name, value)),
            found => Err(MachineError(format!(
                "`{name}` is {found}; expected 1 to 2^32"
            ))),
        }
    }
}

impl Machine {
    /// The text of the RK3588's facts.
    pub(crate) const BUILTIN: &str = include_str!("../data/machines/rk3588.toml");

    /// The RK3588's NPU.
    pub fn rk3588() -> Machine {
        static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
            Machine::from_toml(Machine::BUILTIN)
                .expect("the file is a part of the crate and tested")
        });
        MACHINE.clone()
    }

    /// A machine from a file such as `data/machines/rk3588.toml`.
    ///
    /// # Errors
    /// What is missing, unknown or out of range.
    pub fn from_toml(text: &str) -> Result<Machine, MachineError> {
        let file: File = toml::from_str(text).map_err(|e| MachineError(e.to_string()))?;
        let mut facts = Facts(Vec::new());
        let machine = Machine {
            name: file.name,
            n_cores: facts.positive("n_cores", file.n_cores)?,
            cbuf_banks: facts.positive("cbuf_banks", file.cbuf_banks)?,
            cbuf_bank_bytes: facts.positive("cbuf_bank_bytes", file.cbuf_bank_bytes)?,
            cbuf_row_bytes: facts.positive("cbuf_row_bytes", file.cbuf_row_bytes)?,
            macs: Macs {
                int4: facts.positive("macs_int4", file.macs_int4)?,
                int8: facts.positive("macs_int8", file.macs_int8)?,
                fp16: facts.positive("macs_fp16", file.macs_fp16)?,
            },
            row_group: facts.positive("row_group", file.row_group)?,
            address_bits: facts.positive("address_bits", file.address_bits)?,
            domain_bytes: facts.positive("domain_bytes", file.domain_bytes)?,
            page_bytes: facts.positive("page_bytes", file.page_bytes)?,
            address_align_bytes: facts.positive("address_align_bytes", file.address_align_bytes)?,
            m_max: facts.positive("m_max", file.m_max)?,
            grains_max: facts.positive("grains_max", file.grains_max)?,
            k_max: facts.positive("k_max", file.k_max)?,
            n_max: facts.positive("n_max", file.n_max)?,
            k_group: facts.positive("k_group", file.k_group)?,
            job_timeout_ns: facts.positive("job_timeout_ns", file.job_timeout_ns)?,
            clocks_hz: facts.take("clocks_hz", file.clocks_hz),
            facts: Vec::new(),
        };
        if machine.n_cores > 64 || machine.cbuf_banks > 15 {
            return Err(MachineError(
                "at most 64 cores and 15 CBUF banks (the width of its field) are known".into(),
            ));
        }
        let facts = facts.0;
        Ok(Machine { facts, ..machine })
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
                "15 CBUF",
            ),
            (String::new(), "name"),
        ];
        for (text, words) in wrong {
            let error = Machine::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
