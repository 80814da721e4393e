//! Tests the instructions as they are assembled, on processors without them. Each raises the signal of illegal instructions; a handler
//! decodes it and has the emulated unit execute it. This covers registers, addresses and strides of the assembly too.

use super::super::detect::products;
use super::super::emulated::{EmulatedUnit, TileProduct};
use super::super::roof;
use super::super::unit::{Amx, Shapes, TileUnit};
use crate::level::Level;
use crate::matmul::activations::Activations;
use crate::matmul::ahead::Ahead;
use crate::matmul::panel::{GROUP_ROWS, PANEL_ROWS, PackArgs, PanelSource, TileArgs};
use crate::matmul::scratch::AlignedBytes;
use crate::table::{EMULATED, MatmulKernel, kernels};
use crate::{Cpu, CpuOptions};
use millrace_quant::encode_matrix;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};

thread_local! {
    static UNIT: RefCell<EmulatedUnit> = RefCell::new(EmulatedUnit::new());
    static EXECUTED: Cell<usize> = const { Cell::new(0) };
}

/// `struct sigaction` of Linux's C libraries on x86-64.
#[repr(C)]
struct SigAction {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

unsafe extern "C" {
    fn sigaction(signal: c_int, new: *const SigAction, old: *mut SigAction) -> c_int;
}

const SIGILL: c_int = 4;
const SA_SIGINFO: c_int = 4;
const SA_NODEFER: c_int = 0x4000_0000;

/// Where `ucontext_t` has the registers, in the order of [`REGISTERS`] and with the instruction's address after.
const CONTEXT_REGISTERS: usize = 40 / 8;

/// Places of rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi and r8 to r15, as instructions number them.
const REGISTERS: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
const INSTRUCTION: usize = 16;

/// An instruction's operands.
struct Operands {
    /// Register in the field `reg`.
    reg: usize,
    /// Register in the field `rm`, if there is no address.
    rm: Option<usize>,
    /// Register in the prefix.
    prefix: usize,
    address: usize,
    /// The scaled index, which is a stride to instructions of tiles.
    stride: usize,
    n_bytes: usize,
}

/// # Safety
/// `at` is an instruction of three-byte prefix; `context` are the registers.
unsafe fn decode(at: *const u8, context: *const usize) -> Operands {
    // SAFETY: an instruction has these bytes, and the context the registers.
    unsafe {
        let byte = |i: usize| usize::from(*at.add(i));
        let register = |number: usize| *context.add(CONTEXT_REGISTERS + REGISTERS[number]);
        let extend = |bit: usize| (!byte(1) >> bit & 1) << 3;
        let modrm = byte(4);
        let mut operands = Operands {
            reg: modrm >> 3 & 7 | extend(7),
            rm: None,
            prefix: !byte(2) >> 3 & 15,
            address: 0,
            stride: 0,
            n_bytes: 5,
        };
        let (mode, rm) = (modrm >> 6, modrm & 7);
        if mode == 3 {
            operands.rm = Some(rm | extend(5));
            return operands;
        }
        assert!(
            mode != 0 || rm != 5,
            "no address relative to the instruction"
        );
        let mut base = rm;
        if rm == 4 {
            let sib = byte(5);
            base = sib & 7;
            assert!(mode != 0 || base != 5, "an address has a base");
            let index = sib >> 3 & 7 | extend(6);
            // Index 4 means no index.
            operands.stride = if index == 4 {
                0
            } else {
                register(index) << (sib >> 6)
            };
            operands.n_bytes += 1;
        }
        let displacement = at.add(operands.n_bytes);
        let offset = match mode {
            1 => isize::from(*displacement.cast::<i8>()),
            2 => displacement.cast::<i32>().read_unaligned() as isize,
            _ => 0,
        };
        operands.n_bytes += [0, 1, 4][mode];
        operands.address = register(base | extend(5)).wrapping_add_signed(offset);
        operands
    }
}

/// Executes the instruction that raised the signal, or aborts.
unsafe extern "C" fn execute(_: c_int, _: *mut c_void, context: *mut c_void) {
    // SAFETY: the system passes a context of the thread that raised the signal by an instruction of these tests.
    unsafe {
        let context: *mut usize = context.cast();
        let instruction = context.add(CONTEXT_REGISTERS + INSTRUCTION);
        let at = *instruction as *const u8;
        let [escape, map, prefix, code, _] = at.cast::<[u8; 5]>().read();
        if escape != 0xC4 || map & 31 != 2 {
            std::process::abort();
        }
        let operands = decode(at, context);
        let Operands {
            reg,
            rm,
            address,
            stride,
            ..
        } = operands;
        let tiles = || [reg, rm.expect("a register"), operands.prefix];
        UNIT.with_borrow_mut(|unit| match (code, prefix & 3) {
            (0x49, 0) if rm.is_none() => unit.set_shapes(&*(address as *const Shapes)),
            (0x49, 0) => unit.release(),
            (0x49, 3) => unit.zero_tile(reg),
            (0x4B, 3) => unit.load_tile(reg, address as *const u8, stride),
            (0x4B, 2) => unit.store_tile(reg, address as *mut u8, stride),
            (0x5E, 2) => unit.product(TileProduct::SignedUnsigned, tiles()),
            (0x5E, 3) => unit.product(TileProduct::Signed, tiles()),
            (0x5C, 2) => unit.product(TileProduct::Bf16, tiles()),
            _ => std::process::abort(),
        });
        EXECUTED.set(EXECUTED.get() + 1);
        *instruction += operands.n_bytes;
    }
}

/// Runs `f` with every tile instruction executed by the emulated unit; returns its result and the number of those instructions.
fn trapped<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let handler = SigAction {
        handler: execute as *const () as usize,
        mask: [0; 16],
        flags: SA_SIGINFO | SA_NODEFER,
        restorer: 0,
    };
    let mut old = SigAction {
        handler: 0,
        mask: [0; 16],
        flags: 0,
        restorer: 0,
    };
    // SAFETY: both are actions; the handler is undone before this function returns.
    let error = unsafe { sigaction(SIGILL, &raw const handler, &raw mut old) };
    assert_eq!(error, 0);
    EXECUTED.set(0);
    let result = f();
    // SAFETY: as above.
    let error = unsafe { sigaction(SIGILL, &raw const old, std::ptr::null_mut()) };
    assert_eq!(error, 0);
    (result, EXECUTED.get())
}

/// Sums of `m` tokens with sixteen or thirty-two rows by a row of the table.
fn sums(row: &MatmulKernel, n_panels: usize, m: usize, k: usize) -> Vec<u32> {
    let n = (n_panels * PANEL_ROWS).next_multiple_of(row.dtype.block_rows());
    let number = |i: usize| ((i * i) as f32 * 0.37).sin();
    let weights: Vec<f32> = (0..n * k).map(number).collect();
    let mut bytes = vec![0; row.dtype.size_bytes(n, k).unwrap()];
    encode_matrix(row.dtype, &weights, n, k, &mut bytes).unwrap();
    let x: Vec<f32> = (0..m * k).map(|i| number(3 * i + 1)).collect();
    let cpu = Cpu::new(CpuOptions {
        n_threads: Some(1),
        level: Some(Level::Avx512),
    })
    .unwrap();
    let mut activations = Activations::default();
    activations.prepare(&cpu, &x, k, row.layout.input());
    let view = activations.view(&x, k, row.layout.input());
    let is_tiled = row.dtype.block_rows() > 1;
    let row_bytes = k / row.dtype.block_elems() * row.dtype.block_bytes();
    let (mut panels, mut acc) = (AlignedBytes::default(), AlignedBytes::default());
    let panel_stride = row.layout.panel_bytes(k);
    let panels = panels.at_least(n_panels * panel_stride).as_mut_ptr();
    let acc = &mut acc.at_least(4 * m * GROUP_ROWS)[..4 * m * GROUP_ROWS];
    acc.fill(0);
    // SAFETY: the level is supported except for tiles, which the caller provides; rows, tokens, panels and sums exist.
    unsafe {
        for p in 0..n_panels {
            let source = PanelSource {
                dtype: row.dtype,
                base: if is_tiled {
                    bytes.as_ptr()
                } else {
                    bytes.as_ptr().add(p * PANEL_ROWS * row_bytes)
                },
                stride: if is_tiled {
                    row.dtype.block_bytes()
                } else {
                    row_bytes
                },
                tile_row: if is_tiled { p * PANEL_ROWS } else { 0 },
                k,
                ahead: Ahead::NONE,
            };
            (row.pack)(&PackArgs {
                source,
                panel: panels.add(p * panel_stride),
            });
        }
        (row.tile)(&TileArgs {
            panels,
            panel_stride,
            n_panels,
            k,
            x: view.start,
            x_stride: view.stride,
            m,
            acc: acc.as_mut_ptr().cast(),
        });
    }
    acc.as_chunks()
        .0
        .iter()
        .map(|bytes| u32::from_ne_bytes(*bytes))
        .collect()
}

#[test]
fn assembled_instructions_do_what_the_emulated_unit_does() {
    if Level::Amx.is_supported() || !Level::Avx512.is_supported() {
        println!("skipped: needs AVX-512 and no AMX");
        return;
    }
    let rows: Vec<_> = kernels().filter(|row| row.level == Level::Amx).collect();
    assert_eq!(rows.len(), EMULATED.len());
    for (row, emulated) in rows.into_iter().zip(EMULATED) {
        assert_eq!(row.dtype, emulated.dtype);
        for (n_panels, m) in [(1, 5), (2, 35)] {
            let k = if row.dtype.block_elems() == 1 {
                77
            } else {
                512
            };
            let (found, executed) = trapped(|| sums(row, n_panels, m, k));
            assert!(executed > 10, "{}: {executed} instructions", row.name());
            let expected = sums(emulated, n_panels, m, k);
            assert!(
                found == expected,
                "{}, {n_panels} panels, {m} tokens",
                row.name()
            );
        }
    }
    // The products of detection, and a round of each roof.
    // SAFETY: the handler executes the instructions.
    unsafe {
        let (found, executed) = trapped(|| products::<Amx>());
        assert_eq!((found, executed), (products::<EmulatedUnit>(), 14));
        for roof in [roof::INT8, roof::BF16] {
            let ((), executed) = trapped(|| (roof.run)(2));
            assert_eq!(executed, 1 + 2 * 4 + 1);
        }
    }
}
