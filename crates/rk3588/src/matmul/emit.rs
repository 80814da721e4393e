//! The register commands of a task.

use super::{Banks, MatmulKind, Precision, Task, data_banks};
use crate::command::Command;
use crate::machine::Machine;
use crate::regs::{Block, Field, Reg, cna, core, dpu, dpu_rdma, pc};

/// Driver that a stream is formed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// For the vendor's driver: CNA, CORE and DPU.
    Vendor,
    /// For mainline rocket: the operand readers (DPU_RDMA) are set up, switched off, and enabled;
    /// without them a task never ends there.
    Rocket,
}

/// Choices in which open implementations differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Emit {
    /// The form of the stream.
    pub form: Form,
    /// Sets `QD_EN` for 8-bit integers, as Mesa does; mtx512 and rocket-userspace do not.
    pub quantised: bool,
}

impl Emit {
    /// The choices of this crate: rocket's form with Mesa's bit.
    pub const MILLRACE: Emit = Emit {
        form: Form::Rocket,
        quantised: true,
    };
    /// The choices of mtx512/rk3588-npu.
    pub const MTX512: Emit = Emit {
        form: Form::Vendor,
        quantised: false,
    };
    /// The choices of gregordinary/rocket-userspace.
    pub const ROCKET_USERSPACE: Emit = Emit {
        form: Form::Rocket,
        quantised: false,
    };

    /// The CBUF's division as that implementation makes it; `None` where it refuses. The exact rule is [`Banks::of`]:
    /// mtx512 counts rows without their granule and requires that one kernel fits a bank, rocket-userspace gives 8-bit
    /// features a bank to spare.
    pub fn banks(self, m: u32, k: u32, kind: MatmulKind, machine: &Machine) -> Option<Banks> {
        let data = match self {
            Emit::MTX512 => {
                if kind.row_bytes(k) > machine.cbuf_bank_bytes {
                    return None;
                }
                let bytes = u64::from(m) * kind.row_bytes(k);
                u32::try_from(bytes.div_ceil(machine.cbuf_bank_bytes)).ok()?
            }
            Emit::ROCKET_USERSPACE if kind.input() == Precision::Int8 => {
                data_banks(m, k, kind, machine).checked_add(1)?
            }
            _ => return Banks::of(m, k, kind, machine),
        };
        let weight = machine.cbuf_banks.checked_sub(data)?;
        (weight > 0).then_some(Banks { data, weight })
    }
}

/// A register of zeros.
fn zero(reg: Reg) -> Command {
    Command::Write { reg, value: 0 }
}

fn one(field: Field, value: u32) -> Command {
    Command::write(field.reg, &[(field, value)])
}

impl Task {
    /// The words of the task in a form. Shapes that the registers cannot hold are cut to their
    /// fields; [`verify`](crate::verify) refuses them.
    pub fn commands(&self, emit: Emit) -> Vec<Command> {
        let mut out = Vec::with_capacity(126);
        out.push(Command::write(
            dpu::S_POINTER::REG,
            &[
                (dpu::S_POINTER::POINTER_PP_MODE, 1),
                (dpu::S_POINTER::EXECUTER_PP_EN, 1),
                (dpu::S_POINTER::POINTER_PP_EN, 1),
            ],
        ));
        if emit.form == Form::Rocket {
            out.push(Command::write(
                dpu_rdma::RDMA_S_POINTER::REG,
                &[
                    (dpu_rdma::RDMA_S_POINTER::POINTER_PP_MODE, 1),
                    (dpu_rdma::RDMA_S_POINTER::EXECUTER_PP_EN, 1),
                    (dpu_rdma::RDMA_S_POINTER::POINTER_PP_EN, 1),
                ],
            ));
        }
        self.cna(&mut out);
        self.core(emit, &mut out);
        self.dpu(&mut out);
        if emit.form == Form::Rocket {
            self.dpu_rdma(&mut out);
        }
        tail(emit.form, &mut out);
        out
    }

    fn cna(&self, out: &mut Vec<Command>) {
        let (precision, row_bytes) = (self.kind.input().code(), self.kind.row_bytes(self.k) as u32);
        out.push(Command::write(
            cna::CONV_CON1::REG,
            &[
                (cna::CONV_CON1::PROC_PRECISION, precision),
                (cna::CONV_CON1::IN_PRECISION, precision),
            ],
        ));
        out.push(one(cna::CONV_CON2::FEATURE_GRAINS, self.m + 1));
        out.push(Command::write(
            cna::CONV_CON3::REG,
            &[
                (cna::CONV_CON3::CONV_Y_STRIDE, 1),
                (cna::CONV_CON3::CONV_X_STRIDE, 1),
            ],
        ));
        out.push(Command::write(
            cna::DATA_SIZE0::REG,
            &[
                (cna::DATA_SIZE0::DATAIN_WIDTH, 1),
                (cna::DATA_SIZE0::DATAIN_HEIGHT, self.m),
            ],
        ));
        out.push(Command::write(
            cna::DATA_SIZE1::REG,
            &[
                (cna::DATA_SIZE1::DATAIN_CHANNEL_REAL, self.k.wrapping_sub(1)),
                (cna::DATA_SIZE1::DATAIN_CHANNEL, self.k),
            ],
        ));
        out.push(one(cna::DATA_SIZE2::DATAOUT_WIDTH, 1));
        out.push(one(cna::DATA_SIZE3::DATAOUT_ATOMICS, self.m));
        out.push(one(
            cna::WEIGHT_SIZE0::WEIGHT_BYTES,
            self.n.wrapping_mul(row_bytes),
        ));
        out.push(one(cna::WEIGHT_SIZE1::WEIGHT_BYTES_PER_KERNEL, row_bytes));
        out.push(Command::write(
            cna::WEIGHT_SIZE2::REG,
            &[
                (cna::WEIGHT_SIZE2::WEIGHT_WIDTH, 1),
                (cna::WEIGHT_SIZE2::WEIGHT_HEIGHT, 1),
                (cna::WEIGHT_SIZE2::WEIGHT_KERNELS, self.n),
            ],
        ));
        out.push(Command::write(
            cna::CBUF_CON0::REG,
            &[
                (cna::CBUF_CON0::WEIGHT_REUSE, self.weight_reuse.into()),
                (cna::CBUF_CON0::DATA_REUSE, self.data_reuse.into()),
                (cna::CBUF_CON0::WEIGHT_BANK, self.banks.weight),
                (cna::CBUF_CON0::DATA_BANK, self.banks.data),
            ],
        ));
        out.push(one(cna::CBUF_CON1::DATA_ENTRIES, row_bytes.div_ceil(64)));
        self.cna_readers(out);
    }

    /// The converter is bypassed; the readers take A and B unchanged.
    fn cna_readers(&self, out: &mut Vec<Command>) {
        out.push(Command::write(
            cna::CVT_CON0::REG,
            &[
                (cna::CVT_CON0::DATA_SIGN, 1),
                (cna::CVT_CON0::CVT_TYPE, 1),
                (cna::CVT_CON0::CVT_BYPASS, 1),
            ],
        ));
        out.push(one(cna::CVT_CON1::CVT_SCALE0, 1));
        out.push(one(cna::CVT_CON2::CVT_SCALE1, 1));
        out.push(one(cna::CVT_CON3::CVT_SCALE2, 1));
        out.push(one(cna::CVT_CON4::CVT_SCALE3, 1));
        out.extend([cna::FC_CON0::REG, cna::FC_CON1::REG, cna::PAD_CON0::REG].map(zero));
        out.push(one(cna::FEATURE_DATA_ADDR::FEATURE_BASE_ADDR, self.a));
        out.push(zero(cna::FC_CON2::REG));
        out.push(Command::write(
            cna::DMA_CON0::REG,
            &[
                (cna::DMA_CON0::WEIGHT_BURST_LEN, 15),
                (cna::DMA_CON0::DATA_BURST_LEN, 15),
            ],
        ));
        // Four lines of width 1 in units of 16 bytes. Surfaces follow one another, which makes the stride beyond those
        // four lines negative where m < 4.
        out.push(one(cna::DMA_CON1::LINE_STRIDE, 4));
        out.push(one(cna::DMA_CON2::SURF_STRIDE, self.m.wrapping_sub(4)));
        out.push(Command::write(
            cna::FC_DATA_SIZE0::REG,
            &[
                (cna::FC_DATA_SIZE0::DMA_WIDTH, 1),
                (cna::FC_DATA_SIZE0::DMA_HEIGHT, self.m),
            ],
        ));
        out.push(one(cna::FC_DATA_SIZE1::DMA_CHANNEL, self.k));
        out.extend([cna::DCOMP_CTRL::REG, cna::DCOMP_REGNUM::REG].map(zero));
        out.push(one(cna::DCOMP_ADDR0::DECOMPRESS_ADDR0, self.b));
        let tables = (0x1140..=0x1184).step_by(4);
        out.extend(tables.map(|offset| {
            zero(Reg {
                block: Block::Cna,
                offset,
            })
        }));
    }

    fn core(&self, emit: Emit, out: &mut Vec<Command>) {
        let quantised = emit.quantised || !self.kind.is_integer();
        out.push(Command::write(
            core::MISC_CFG::REG,
            &[
                (core::MISC_CFG::PROC_PRECISION, self.kind.input().code()),
                (core::MISC_CFG::QD_EN, quantised.into()),
            ],
        ));
        out.push(one(
            core::DATAOUT_SIZE_0::DATAOUT_HEIGHT,
            self.m.wrapping_sub(1),
        ));
        out.push(one(
            core::DATAOUT_SIZE_1::DATAOUT_CHANNEL,
            self.n.wrapping_sub(1),
        ));
        out.extend([core::CLIP_TRUNCATE::REG, core::UNNAMED_3030::REG].map(zero));
    }

    fn dpu(&self, out: &mut Vec<Command>) {
        let (m_last, n_last) = (self.m.wrapping_sub(1), self.n.wrapping_sub(1));
        let input = self.kind.input().code();
        out.push(Command::write(
            dpu::FEATURE_MODE_CFG::REG,
            &[
                (dpu::FEATURE_MODE_CFG::BURST_LEN, 15),
                (dpu::FEATURE_MODE_CFG::OUTPUT_MODE, 2),
            ],
        ));
        out.push(Command::write(
            dpu::DATA_FORMAT::REG,
            &[
                (dpu::DATA_FORMAT::OUT_PRECISION, self.kind.output().code()),
                (dpu::DATA_FORMAT::IN_PRECISION, input),
                (dpu::DATA_FORMAT::PROC_PRECISION, input),
            ],
        ));
        out.push(zero(dpu::OFFSET_PEND::REG));
        out.push(one(dpu::DST_BASE_ADDR::DST_BASE_ADDR, self.c));
        out.push(one(dpu::DST_SURF_STRIDE::DST_SURF_STRIDE, self.m));
        out.push(zero(dpu::DATA_CUBE_WIDTH::REG));
        out.push(one(dpu::DATA_CUBE_HEIGHT::HEIGHT, m_last));
        out.push(zero(dpu::DATA_CUBE_NOTCH_ADDR::REG));
        out.push(Command::write(
            dpu::DATA_CUBE_CHANNEL::REG,
            &[
                (dpu::DATA_CUBE_CHANNEL::ORIG_CHANNEL, n_last),
                (dpu::DATA_CUBE_CHANNEL::CHANNEL, n_last),
            ],
        ));
        out.push(bypassed_bs());
        out.extend([0x4044, 0x4048, 0x404c].map(dpu_zero));
        let size_e = self.kind.surfaces() - 1;
        out.push(Command::write(
            dpu::BS_OW_CFG::REG,
            &[
                (dpu::BS_OW_CFG::SIZE_E_2, size_e),
                (dpu::BS_OW_CFG::SIZE_E_1, size_e),
                (dpu::BS_OW_CFG::SIZE_E_0, size_e),
                (dpu::BS_OW_CFG::OD_BYPASS, 1),
            ],
        ));
        out.push(zero(dpu::BS_OW_OP::REG));
        out.push(one(dpu::WDMA_SIZE_0::CHANNEL_WDMA, n_last));
        out.push(one(dpu::WDMA_SIZE_1::HEIGHT_WDMA, m_last));
        out.push(bypassed_bn());
        out.extend([0x4064, 0x4068, 0x406c].map(dpu_zero));
        self.dpu_output(out);
    }

    /// Element-wise stage bypassed, converter, table unused.
    fn dpu_output(&self, out: &mut Vec<Command>) {
        out.push(Command::write(
            dpu::EW_CFG::REG,
            &[
                (dpu::EW_CFG::EW_RELU_BYPASS, 1),
                (dpu::EW_CFG::EW_OP_CVT_BYPASS, 1),
                (dpu::EW_CFG::EW_LUT_BYPASS, 1),
                (dpu::EW_CFG::EW_OP_BYPASS, 1),
                (dpu::EW_CFG::EW_BYPASS, 1),
            ],
        ));
        out.push(zero(dpu::EW_CVT_OFFSET_VALUE::REG));
        out.push(one(dpu::EW_CVT_SCALE_VALUE::EW_OP_CVT_SCALE, 1));
        out.extend([dpu::EW_RELUX_CMP_VALUE::REG, dpu::OUT_CVT_OFFSET::REG].map(zero));
        let to_fp16 = self.kind.output() == Precision::Fp16;
        out.push(Command::write(
            dpu::OUT_CVT_SCALE::REG,
            &[
                (dpu::OUT_CVT_SCALE::FP32TOFP16_EN, to_fp16.into()),
                (dpu::OUT_CVT_SCALE::OUT_CVT_SCALE, 1),
            ],
        ));
        out.push(zero(dpu::OUT_CVT_SHIFT::REG));
        out.extend((0x4090..=0x40ac).step_by(4).map(dpu_zero));
        let surface_add = self.m.wrapping_mul(self.kind.surfaces());
        out.push(one(dpu::SURFACE_ADD::SURF_ADD, surface_add));
        out.push(zero(dpu::UNNAMED_40C4::REG));
        out.extend((0x4100..=0x412c).step_by(4).map(dpu_zero));
    }

    fn dpu_rdma(&self, out: &mut Vec<Command>) {
        use dpu_rdma as r;
        out.push(zero(r::RDMA_DATA_CUBE_WIDTH::REG));
        out.push(one(
            r::RDMA_DATA_CUBE_HEIGHT::HEIGHT,
            self.m.wrapping_sub(1),
        ));
        out.push(one(
            r::RDMA_DATA_CUBE_CHANNEL::CHANNEL,
            self.n.wrapping_sub(1),
        ));
        let unused = [
            r::RDMA_SRC_BASE_ADDR::REG,
            r::RDMA_BRDMA_CFG::REG,
            r::RDMA_BS_BASE_ADDR::REG,
            r::RDMA_NRDMA_CFG::REG,
            r::RDMA_BN_BASE_ADDR::REG,
        ];
        out.extend(unused.map(zero));
        out.push(one(r::RDMA_ERDMA_CFG::ERDMA_DISABLE, 1));
        out.extend([r::RDMA_EW_BASE_ADDR::REG, r::RDMA_EW_SURF_STRIDE::REG].map(zero));
        let to_fp16 = self.kind.output() == Precision::Fp16;
        out.push(Command::write(
            r::RDMA_FEATURE_MODE_CFG::REG,
            &[
                (r::RDMA_FEATURE_MODE_CFG::BURST_LEN, 15),
                (r::RDMA_FEATURE_MODE_CFG::MRDMA_DISABLE, 1),
                (
                    r::RDMA_FEATURE_MODE_CFG::MRDMA_FP16TOFP32_EN,
                    to_fp16.into(),
                ),
            ],
        ));
        let unused = [
            r::RDMA_SRC_DMA_CFG::REG,
            r::RDMA_SURF_NOTCH::REG,
            r::RDMA_PAD_CFG::REG,
        ];
        out.extend(unused.map(zero));
        out.push(Command::write(
            r::RDMA_WEIGHT::REG,
            &[
                (r::RDMA_WEIGHT::E_WEIGHT, 1),
                (r::RDMA_WEIGHT::N_WEIGHT, 1),
                (r::RDMA_WEIGHT::B_WEIGHT, 1),
                (r::RDMA_WEIGHT::M_WEIGHT, 1),
            ],
        ));
        out.push(zero(r::RDMA_EW_SURF_NOTCH::REG));
    }
}

fn dpu_zero(offset: u16) -> Command {
    zero(Reg {
        block: Block::Dpu,
        offset,
    })
}

fn bypassed_bs() -> Command {
    Command::write(
        dpu::BS_CFG::REG,
        &[
            (dpu::BS_CFG::BS_RELU_BYPASS, 1),
            (dpu::BS_CFG::BS_MUL_BYPASS, 1),
            (dpu::BS_CFG::BS_ALU_BYPASS, 1),
            (dpu::BS_CFG::BS_BYPASS, 1),
        ],
    )
}

fn bypassed_bn() -> Command {
    Command::write(
        dpu::BN_CFG::REG,
        &[
            (dpu::BN_CFG::BN_RELU_BYPASS, 1),
            (dpu::BN_CFG::BN_MUL_BYPASS, 1),
            (dpu::BN_CFG::BN_ALU_BYPASS, 1),
            (dpu::BN_CFG::BN_BYPASS, 1),
        ],
    )
}

/// No further task, the marker, and the blocks to start.
fn tail(form: Form, out: &mut Vec<Command>) {
    out.extend([
        Command::Filler,
        zero(pc::REGISTER_AMOUNTS::REG),
        Command::Marker,
    ]);
    let blocks: &[Block] = match form {
        Form::Vendor => &[Block::Cna, Block::Core, Block::Dpu],
        Form::Rocket => &[Block::Cna, Block::Core, Block::Dpu, Block::DpuRdma],
    };
    let bits = blocks.iter().filter_map(|b| b.enable_bit());
    let mask = bits.fold(0, |mask, bit| mask | bit);
    out.push(Command::Enable { mask });
}
