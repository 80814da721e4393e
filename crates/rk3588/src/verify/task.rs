//! One task: its commands read back, compared with those of the product it computes.

use super::Rule;
use crate::command::Command;
use crate::machine::Machine;
use crate::matmul::{Banks, Emit, MatmulKind, Precision, Task, data_banks, kernel_group_banks};
use crate::regs::{Block, Reg, cna, core, dpu, dpu_rdma, pc};
use std::collections::BTreeMap;

/// A rule that a task breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskViolation {
    /// The rule.
    pub rule: Rule,
    /// The value that was found, and a valid one.
    pub detail: String,
}

fn broken(rule: Rule, detail: String) -> TaskViolation {
    TaskViolation { rule, detail }
}

/// Register values by place; the last write counts.
type Values = BTreeMap<Reg, u32>;

/// Reads a task's commands back into the product they compute.
///
/// # Errors
/// Every rule that the task breaks by itself; rules about reuse of tiles, slots and other tasks are not checked here.
pub fn task(commands: &[Command], machine: &Machine) -> Result<Task, Vec<TaskViolation>> {
    let mut found = structure(commands);
    let values = values(commands);
    let get = |reg: Reg| values.get(&reg).copied().unwrap_or(0);
    let Some(kind) = kind(&values) else {
        let input = cna::CONV_CON1::IN_PRECISION.get(get(cna::CONV_CON1::REG));
        let output = dpu::DATA_FORMAT::OUT_PRECISION.get(get(dpu::DATA_FORMAT::REG));
        let kinds = MatmulKind::ALL.map(MatmulKind::name).join(", ");
        found.push(broken(
            Rule::Precision,
            format!("Codes {input} to {output} are no known kind; there are {kinds}."),
        ));
        return Err(found);
    };
    let cbuf = get(cna::CBUF_CON0::REG);
    let task = Task {
        kind,
        m: cna::DATA_SIZE0::DATAIN_HEIGHT.get(get(cna::DATA_SIZE0::REG)),
        n: cna::WEIGHT_SIZE2::WEIGHT_KERNELS.get(get(cna::WEIGHT_SIZE2::REG)),
        k: cna::DATA_SIZE1::DATAIN_CHANNEL.get(get(cna::DATA_SIZE1::REG)),
        banks: Banks {
            data: cna::CBUF_CON0::DATA_BANK.get(cbuf),
            weight: cna::CBUF_CON0::WEIGHT_BANK.get(cbuf),
        },
        data_reuse: cna::CBUF_CON0::DATA_REUSE.get(cbuf) == 1,
        weight_reuse: cna::CBUF_CON0::WEIGHT_REUSE.get(cbuf) == 1,
        a: get(cna::FEATURE_DATA_ADDR::REG),
        b: get(cna::DCOMP_ADDR0::REG),
        c: get(dpu::DST_BASE_ADDR::REG),
    };
    found.extend(registers(commands, &values, &task));
    found.extend(shape(&task, &values, machine));
    found.extend(banks(&task, cbuf, machine));
    match found.is_empty() {
        true => Ok(task),
        false => Err(found),
    }
}

fn values(commands: &[Command]) -> Values {
    let writes = commands.iter().filter_map(|command| match *command {
        Command::Write { reg, value } => Some((reg, value)),
        _ => None,
    });
    writes.collect()
}

fn kind(values: &Values) -> Option<MatmulKind> {
    let field = |field: crate::regs::Field| field.get(*values.get(&field.reg).unwrap_or(&0));
    let input = Precision::from_code(field(cna::CONV_CON1::IN_PRECISION))?;
    let output = Precision::from_code(field(dpu::DATA_FORMAT::OUT_PRECISION))?;
    MatmulKind::of(input, output)
}

/// Checks of marker, enable command and mask.
fn structure(commands: &[Command]) -> Vec<TaskViolation> {
    let mut found = Vec::new();
    let enables = commands
        .iter()
        .filter(|c| matches!(c, Command::Enable { .. }));
    let markers = commands.iter().filter(|c| **c == Command::Marker);
    let counts = (markers.count(), enables.count());
    let tail = commands.last_chunk::<2>();
    match (counts, tail) {
        ((1, 1), Some([Command::Marker, Command::Enable { mask }])) => {
            let needed = [Block::Cna, Block::Core, Block::Dpu, Block::DpuRdma];
            let bits = needed.into_iter().filter_map(Block::enable_bit);
            let expected = bits.fold(0, |mask, bit| mask | bit);
            if *mask != expected {
                let detail = format!("The mask is {mask:#x}; it must be {expected:#x}.");
                found.push(broken(Rule::EnableMask, detail));
            }
        }
        ((markers, enables), _) => {
            let detail = format!(
                "Found {markers} markers and {enables} enable commands among {} commands.",
                commands.len()
            );
            found.push(broken(Rule::NoEnable, detail));
        }
    }
    found
}

/// Compares every register with the one that this crate emits for the same product.
fn registers(commands: &[Command], values: &Values, task: &Task) -> Vec<TaskViolation> {
    let mut found = Vec::new();
    let emitted = task.commands(Emit::MILLRACE);
    // The usual case, in which there is nothing to compare register by register.
    if commands == emitted {
        return found;
    }
    let expected = self::values(&emitted);
    for (reg, expected) in &expected {
        match values.get(reg) {
            None => {
                let detail = format!("{} is not written.", name(*reg));
                found.push(broken(Rule::Partial, detail));
            }
            Some(value) if value != expected && !may_differ(*reg, *value, *expected, task) => {
                let detail = format!("{} is {value:#x}; it must be {expected:#x}.", name(*reg));
                found.push(broken(rule_of(*reg), detail));
            }
            Some(_) => {}
        }
    }
    for (reg, value) in values.iter().filter(|(reg, _)| !expected.contains_key(reg)) {
        // The address of a next task is written beside its length, which must be 0.
        let chain = *reg == pc::BASE_ADDRESS::REG;
        if chain && *value == 0 {
            continue;
        }
        let rule = if chain { Rule::Chain } else { Rule::Foreign };
        let detail = format!("{} is written ({value:#x}).", name(*reg));
        found.push(broken(rule, detail));
    }
    found
}

fn name(reg: Reg) -> String {
    let register = reg.block.register(reg.offset).map_or("?", |r| r.name);
    format!("{}.{register}", reg.block.name())
}

/// Registers in which valid streams differ.
fn may_differ(reg: Reg, value: u32, expected: u32, task: &Task) -> bool {
    match reg {
        // Checked separately.
        cna::CBUF_CON0::REG | cna::CONV_CON2::REG => true,
        // Mesa sets the bit for integers, others do not.
        core::MISC_CFG::REG => {
            task.kind.is_integer() && (value ^ expected) == core::MISC_CFG::QD_EN.mask()
        }
        _ => false,
    }
}

fn rule_of(reg: Reg) -> Rule {
    use dpu_rdma as r;
    match reg {
        cna::CONV_CON1::REG | core::MISC_CFG::REG | dpu::DATA_FORMAT::REG => Rule::Precision,
        dpu::OUT_CVT_SCALE::REG => Rule::Precision,
        cna::CBUF_CON1::REG => Rule::Entries,
        cna::DMA_CON1::REG | cna::DMA_CON2::REG => Rule::ReaderStride,
        dpu::BS_OW_CFG::REG
        | dpu::SURFACE_ADD::REG
        | dpu::DST_SURF_STRIDE::REG
        | dpu::DATA_CUBE_NOTCH_ADDR::REG => Rule::Writer,
        r::RDMA_FEATURE_MODE_CFG::REG
        | r::RDMA_ERDMA_CFG::REG
        | r::RDMA_BRDMA_CFG::REG
        | r::RDMA_NRDMA_CFG::REG => Rule::OperandReaders,
        pc::REGISTER_AMOUNTS::REG => Rule::Chain,
        cna::DATA_SIZE0::REG
        | cna::DATA_SIZE1::REG
        | cna::DATA_SIZE2::REG
        | cna::DATA_SIZE3::REG
        | cna::WEIGHT_SIZE0::REG
        | cna::WEIGHT_SIZE1::REG
        | cna::WEIGHT_SIZE2::REG
        | cna::FC_DATA_SIZE0::REG
        | cna::FC_DATA_SIZE1::REG
        | core::DATAOUT_SIZE_0::REG
        | core::DATAOUT_SIZE_1::REG
        | dpu::DATA_CUBE_WIDTH::REG
        | dpu::DATA_CUBE_HEIGHT::REG
        | dpu::DATA_CUBE_CHANNEL::REG
        | dpu::WDMA_SIZE_0::REG
        | dpu::WDMA_SIZE_1::REG
        | r::RDMA_DATA_CUBE_WIDTH::REG
        | r::RDMA_DATA_CUBE_HEIGHT::REG
        | r::RDMA_DATA_CUBE_CHANNEL::REG => Rule::Sizes,
        _ => Rule::Fixed,
    }
}

fn shape(task: &Task, values: &Values, machine: &Machine) -> Vec<TaskViolation> {
    let mut found = Vec::new();
    let limits = [
        ("m", task.m, machine.m_max),
        ("n", task.n, machine.n_max),
        ("k", task.k, machine.k_max),
    ];
    for (name, value, max) in limits {
        if !(1..=max).contains(&value) {
            let detail = format!("{name} is {value}; it must be 1 to {max}.");
            found.push(broken(Rule::Range, detail));
        }
    }
    let con2 = values.get(&cna::CONV_CON2::REG).copied().unwrap_or(0);
    let grains = cna::CONV_CON2::FEATURE_GRAINS.get(con2);
    let most = (task.m + 1).min(machine.grains_max);
    let plain = con2 == cna::CONV_CON2::FEATURE_GRAINS.put(grains);
    if values.contains_key(&cna::CONV_CON2::REG) {
        if !(1..=most).contains(&grains) || task.m + 1 > machine.grains_max {
            let detail = format!("The grains are {grains}; they must be 1 to m + 1 = {most}.");
            found.push(broken(Rule::Range, detail));
        } else if !plain {
            let detail = format!("cna.CONV_CON2 is {con2:#x}; it must hold the grains alone.");
            found.push(broken(Rule::Fixed, detail));
        }
    }
    let group = task.kind.n_group();
    let steps = [("k", task.k, machine.k_group), ("n", task.n, group)];
    for (name, value, step) in steps {
        if !value.is_multiple_of(step) {
            let fits = value.next_multiple_of(step);
            let detail = format!("{name} is {value}; {fits} would do.");
            found.push(broken(Rule::Shape, detail));
        }
    }
    if task.m != 1 && !task.m.is_multiple_of(4) {
        let fits = task.m.next_multiple_of(4);
        let detail = format!("m is {}; {fits} would do.", task.m);
        found.push(broken(Rule::Shape, detail));
    }
    for (name, address) in [("A", task.a), ("B", task.b), ("C", task.c)] {
        let align = machine.address_align_bytes;
        if !u64::from(address).is_multiple_of(align) {
            let detail = format!("{name} is at {address:#x}; it must be a multiple of {align}.");
            found.push(broken(Rule::Alignment, detail));
        }
    }
    found
}

fn banks(task: &Task, cbuf: u32, machine: &Machine) -> Vec<TaskViolation> {
    let mut found = Vec::new();
    let Banks { data, weight } = task.banks;
    let fc_bank = cna::CBUF_CON0::FC_DATA_BANK.get(cbuf);
    if fc_bank != 0 {
        found.push(broken(Rule::FcBank, format!("It is {fc_bank}.")));
    }
    if data == 0 || weight == 0 || data + weight > machine.cbuf_banks {
        let detail = format!(
            "{data} and {weight} banks; both must be at least 1, together at most {}.",
            machine.cbuf_banks
        );
        found.push(broken(Rule::CbufSplit, detail));
        return found;
    }
    let needed = data_banks(task.m, task.k, task.kind, machine);
    if needed > data {
        let detail = format!(
            "{} rows of {} take {needed} banks, they have {data}.",
            task.m, task.k
        );
        found.push(broken(Rule::CbufFeature, detail));
    }
    let needed = kernel_group_banks(task.k, task.kind, machine);
    if needed > weight {
        let detail = format!(
            "{} kernels of {} take {needed} banks, they have {weight}; a smaller k would do.",
            task.kind.n_group(),
            task.k
        );
        found.push(broken(Rule::CbufKernels, detail));
    }
    found
}
