//! Whether this process may use the tile unit.

use super::emulated::EmulatedUnit;
use super::unit::Amx;
use super::unit::{
    SUMS_00, Shapes, TILE_ROW_BYTES, TILE_ROWS, TILES, TOKENS_0, TileUnit, WEIGHTS_0,
};
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::fmt;
use std::sync::OnceLock;

/// Why the tile unit cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmxUnavailable {
    /// The processor has no AMX, or not of bytes and bf16.
    NoInstructions,
    /// The system does not save the registers of tiles (XCR0).
    NotEnabled,
    /// The system refused the request with this error number.
    Refused(i32),
    /// There is no code to request it from this system.
    #[cfg(not(target_os = "linux"))]
    UnknownSystem,
    /// Registers have other sizes than these kernels are written for.
    OtherShapes,
    /// A product came out wrong.
    WrongProduct,
}

impl fmt::Display for AmxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AmxUnavailable::NoInstructions => f.write_str("the processor has no AMX"),
            AmxUnavailable::NotEnabled => f.write_str(
                "the processor has AMX, but the system (or the virtual machine) has not enabled its registers",
            ),
            AmxUnavailable::Refused(errno) => write!(
                f,
                "the processor has AMX, but Linux refused the use of its registers (arch_prctl ARCH_REQ_XCOMP_PERM, error {errno}); \
                 kernels before 5.16 cannot grant it"
            ),
            #[cfg(not(target_os = "linux"))]
            AmxUnavailable::UnknownSystem => {
                f.write_str("the processor has AMX; on this system there is no code yet that asks for its use")
            }
            AmxUnavailable::OtherShapes => {
                f.write_str("the processor's AMX has registers of other sizes than these kernels know")
            }
            AmxUnavailable::WrongProduct => {
                f.write_str("the processor has AMX, but a test product came out wrong: please report this machine")
            }
        }
    }
}

/// Asks once for the process.
pub(crate) fn support() -> Result<(), AmxUnavailable> {
    static SUPPORT: OnceLock<Result<(), AmxUnavailable>> = OnceLock::new();
    *SUPPORT.get_or_init(|| {
        instructions()?;
        permission()?;
        // SAFETY: the unit is there and may be used.
        if unsafe { products::<Amx>() == products::<EmulatedUnit>() } {
            Ok(())
        } else {
            Err(AmxUnavailable::WrongProduct)
        }
    })
}

/// CPUID leaf 7: AMX-BF16, AMX-TILE and AMX-INT8 in EDX.
const AMX_FEATURES: u32 = 1 << 22 | 1 << 24 | 1 << 25;

/// CPUID leaf 1: OSXSAVE in ECX, without which XCR0 cannot be read.
const OSXSAVE: u32 = 1 << 27;

/// XCR0: TILECFG and TILEDATA.
const TILE_STATE: u64 = 1 << 17 | 1 << 18;

fn instructions() -> Result<(), AmxUnavailable> {
    let last_leaf = __cpuid(0).eax;
    if last_leaf < 0x1E || __cpuid_count(7, 0).edx & AMX_FEATURES != AMX_FEATURES {
        return Err(AmxUnavailable::NoInstructions);
    }
    // SAFETY: OSXSAVE says that the instruction is there.
    if __cpuid(1).ecx & OSXSAVE == 0 || unsafe { xcr0() } & TILE_STATE != TILE_STATE {
        return Err(AmxUnavailable::NotEnabled);
    }
    // Leaf 1DH describes palette 1: bytes of a register, of a row, registers, rows. Leaf 1EH: rows and bytes of a product.
    let (palette, products) = (__cpuid_count(0x1D, 1), __cpuid_count(0x1E, 0));
    let found = [
        palette.eax >> 16,
        palette.ebx & 0xFFFF,
        palette.ebx >> 16,
        palette.ecx & 0xFFFF,
        products.ebx & 0xFF,
        products.ebx >> 8 & 0xFFFF,
    ];
    let known = [
        TILE_ROWS * TILE_ROW_BYTES,
        TILE_ROW_BYTES,
        TILES,
        TILE_ROWS,
        TILE_ROWS,
        TILE_ROW_BYTES,
    ];
    let is_enough = found
        .iter()
        .zip(known)
        .all(|(found, known)| *found as usize >= known);
    if is_enough {
        Ok(())
    } else {
        Err(AmxUnavailable::OtherShapes)
    }
}

/// # Safety
/// The CPU and the system have XGETBV.
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: forwarded.
    unsafe { _xgetbv(0) }
}

/// Linux makes room for the registers, 8 KiB a thread, only in processes that ask.
#[cfg(target_os = "linux")]
fn permission() -> Result<(), AmxUnavailable> {
    /// `arch_prctl` on x86-64.
    const SYS_ARCH_PRCTL: isize = 158;
    /// `asm/prctl.h`.
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    /// The component of XCR0 that holds the registers.
    const XFEATURE_XTILEDATA: usize = 18;
    let mut result = SYS_ARCH_PRCTL;
    // SAFETY: a system call with two numbers that touches no memory; it clobbers rcx and r11.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    match result {
        0 => Ok(()),
        error => Err(AmxUnavailable::Refused(-error as i32)),
    }
}

#[cfg(not(target_os = "linux"))]
fn permission() -> Result<(), AmxUnavailable> {
    Err(AmxUnavailable::UnknownSystem)
}

/// A tile of 16 rows of 64 bytes or 16 lanes.
pub(super) type Bytes = [[u8; TILE_ROW_BYTES]; TILE_ROWS];

/// One product of each kind, of fewer rows than a register has.
///
/// # Safety
/// The unit may be used.
pub(super) unsafe fn products<U: TileUnit>() -> [Bytes; 3] {
    const N_TOKENS: usize = 11;
    let byte = |i: usize, j: usize, factor: usize| (i * 37 + j * factor + i * j) as u8;
    let tile = |factor: usize| -> Bytes {
        std::array::from_fn(|i| std::array::from_fn(|j| byte(i, j, factor)))
    };
    // Numbers of either sign from 2⁻⁶ to 2: upper bytes 3Ch to 40h and BCh to C0h.
    let number = |i: usize, j: usize| -> u8 {
        match j % 2 {
            0 => byte(i, j, 5),
            _ => 0x3C + (byte(i, j, 3) % 4) + (byte(j, i, 7) & 0x80),
        }
    };
    let numbers: Bytes = std::array::from_fn(|i| std::array::from_fn(|j| number(i, j)));
    let (a, b) = (tile(11), tile(29));
    let mut found = [[[0; TILE_ROW_BYTES]; TILE_ROWS]; 3];
    let mut unit = U::new();
    // SAFETY: forwarded; shapes are set first; all tiles have sixteen rows.
    unsafe {
        unit.set_shapes(&Shapes::new(N_TOKENS, N_TOKENS, TILE_ROW_BYTES));
        unit.load::<TOKENS_0>(a.as_ptr().cast(), TILE_ROW_BYTES);
        unit.load::<WEIGHTS_0>(b.as_ptr().cast(), TILE_ROW_BYTES);
        unit.dot_signed_unsigned::<SUMS_00, TOKENS_0, WEIGHTS_0>();
        unit.store::<SUMS_00>(found[0].as_mut_ptr().cast(), TILE_ROW_BYTES);
        unit.zero::<SUMS_00>();
        unit.dot_signed::<SUMS_00, TOKENS_0, WEIGHTS_0>();
        unit.store::<SUMS_00>(found[1].as_mut_ptr().cast(), TILE_ROW_BYTES);
        unit.zero::<SUMS_00>();
        unit.load::<TOKENS_0>(numbers.as_ptr().cast(), TILE_ROW_BYTES);
        unit.load::<WEIGHTS_0>(numbers.as_ptr().cast(), TILE_ROW_BYTES);
        unit.dot_bf16::<SUMS_00, TOKENS_0, WEIGHTS_0>();
        unit.store::<SUMS_00>(found[2].as_mut_ptr().cast(), TILE_ROW_BYTES);
        unit.release();
    }
    found
}
