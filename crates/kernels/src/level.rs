//! Instruction-set levels of the CPU: named, ordered, detected once.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// A set of instructions that kernels are written for, in order of preference. A level has most of the instructions of the lower
/// levels of its processor architecture: [`Level::includes`] says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// No explicit SIMD: runs everywhere, and is the reference for tests of every other level.
    Scalar,
    /// AVX2, FMA and F16C (x86-64-v3).
    Avx2,
    /// [`Level::Avx2`] and AVX-VNNI: dot products of bytes in 256 bits (Alder Lake and Zen 5 onwards). The processors of
    /// most laptops with an NPU have no more.
    AvxVnni,
    /// AVX-512 F, BW, DQ, VL, VBMI and VNNI (Ice Lake and Zen 4 onwards).
    Avx512,
    /// [`Level::Avx512`] and AVX512-BF16 (Cooper Lake's successors, Zen 4 onwards).
    Avx512Bf16,
    /// [`Level::Avx512Bf16`] and AMX: tiles of bytes and bf16 (Sapphire Rapids onwards), where the system grants their registers.
    Amx,
    /// Advanced SIMD, which every AArch64 processor has.
    Neon,
    /// [`Level::Neon`] and FEAT_DotProd (Armv8.2: Cortex-A55 and A75, Neoverse N1, Apple A11 onwards).
    DotProd,
    /// [`Level::DotProd`] and FEAT_I8MM (Armv8.6: Cortex-A510 and A710, Neoverse V1 and N2, Apple A15 onwards).
    I8mm,
}

impl Level {
    /// Every level, from the most portable to the most demanding of each processor architecture.
    pub const ALL: [Level; 9] = [
        Level::Scalar,
        Level::Avx2,
        Level::AvxVnni,
        Level::Avx512,
        Level::Avx512Bf16,
        Level::Amx,
        Level::Neon,
        Level::DotProd,
        Level::I8mm,
    ];

    /// The name used on command lines and in kernel names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::AvxVnni => "avxvnni",
            Level::Avx512 => "avx512",
            Level::Avx512Bf16 => "avx512bf16",
            Level::Amx => "amx",
            Level::Neon => "neon",
            Level::DotProd => "dotprod",
            Level::I8mm => "i8mm",
        }
    }

    /// The processor architecture of these instructions, as [`std::env::consts::ARCH`] spells it; `None` for
    /// [`Level::Scalar`], which needs none.
    #[must_use]
    pub const fn arch(self) -> Option<&'static str> {
        match self {
            Level::Scalar => None,
            Level::Neon | Level::DotProd | Level::I8mm => Some("aarch64"),
            _ => Some("x86_64"),
        }
    }

    /// Whether this build has the level: it is portable, or of the architecture that the build is for.
    #[must_use]
    pub fn is_native(self) -> bool {
        self.arch()
            .is_none_or(|arch| arch == std::env::consts::ARCH)
    }

    /// All names, those of one processor architecture together, for messages.
    #[must_use]
    pub fn names() -> String {
        let of = |arch: Option<&str>| {
            let levels = Level::ALL.into_iter().filter(|level| level.arch() == arch);
            levels.map(Level::name).collect::<Vec<_>>().join(", ")
        };
        let (any, x86, arm) = (of(None), of(Some("x86_64")), of(Some("aarch64")));
        format!("{any}; on x86-64 {x86}; on AArch64 {arm}")
    }

    /// The most demanding level that this CPU (and operating system) can run.
    #[must_use]
    pub fn detect() -> Level {
        Level::ALL
            .into_iter()
            .rev()
            .find(|level| level.is_supported())
            .unwrap_or(Level::Scalar)
    }

    /// The level to use when none is requested: that of [`detect`](Level::detect), except for
    /// [`Level::Avx512Bf16`] on Intel's processors. Sapphire Rapids and its successors issue
    /// `VDPBF16PS` on one port every other cycle: 0.09 TFLOP/s a core measured, against 0.19 with
    /// f32 FMA. Zen 4 and 5 do twice the work of f32 with it. The choice follows from the vendor
    /// alone, so a machine always gives the same bits.
    #[must_use]
    pub fn preferred() -> Level {
        // Found once: a virtual machine asks its host for the vendor, which takes longer than a small product.
        static PREFERRED: LazyLock<Level> = LazyLock::new(|| match Level::detect() {
            Level::Avx512Bf16 if is_intel() => Level::Avx512,
            level => level,
        });
        *PREFERRED
    }

    /// Whether activations are rounded to bf16 with BF16 weights (at [`Level::Amx`] also with F16 weights).
    #[must_use]
    pub fn rounds_to_bf16(self) -> bool {
        matches!(self, Level::Avx512Bf16 | Level::Amx)
    }

    /// The best level of this CPU that rounds no activation to bf16: for references.
    #[must_use]
    pub fn detect_exact() -> Level {
        match Level::detect() {
            level if level.rounds_to_bf16() => Level::Avx512,
            level => level,
        }
    }

    /// The levels this CPU can run, from [`Level::Scalar`] up.
    #[must_use]
    pub fn supported() -> Vec<Level> {
        Level::ALL
            .into_iter()
            .filter(|level| level.is_supported())
            .collect()
    }

    /// Whether kernels of `other` belong to this level too. AVX-512 comes without the 256-bit encodings of [`Level::AvxVnni`]
    /// on Ice Lake and Zen 4, and never needs them. [`Level::Amx`] has a better use of bf16 than [`Level::Avx512Bf16`].
    #[must_use]
    pub fn includes(self, other: Level) -> bool {
        match other {
            Level::AvxVnni | Level::Avx512Bf16 => self == other,
            _ => other <= self && (other.arch().is_none() || other.arch() == self.arch()),
        }
    }

    /// Why this CPU cannot run the level though it seems made for it. The processor has AMX, but the system or a test prevents its use.
    #[must_use]
    pub fn refusal(self) -> Option<String> {
        match self {
            Level::Amx => amx_refusal(),
            _ => None,
        }
    }

    /// Whether this CPU has every instruction of the level, and the system lets them be used.
    #[must_use]
    pub fn is_supported(self) -> bool {
        match self {
            Level::Scalar => true,
            Level::Avx2 => has_avx2(),
            Level::AvxVnni => has_avx2() && has_avx_vnni(),
            Level::Avx512 => has_avx2() && has_avx512(),
            Level::Avx512Bf16 => has_avx2() && has_avx512() && has_avx512_bf16(),
            Level::Amx => Level::Avx512Bf16.is_supported() && amx_support().is_ok(),
            Level::Neon => cfg!(target_arch = "aarch64"),
            Level::DotProd => has_dotprod(),
            Level::I8mm => has_dotprod() && has_i8mm(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx_vnni() -> bool {
    is_x86_feature_detected!("avxvnni")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_bf16() -> bool {
    is_x86_feature_detected!("avx512bf16")
}

#[cfg(target_arch = "x86_64")]
use crate::x86::amx::detect::{AmxUnavailable, support as amx_support};

#[cfg(target_arch = "x86_64")]
fn amx_refusal() -> Option<String> {
    let refusal = amx_support().err()?;
    (refusal != AmxUnavailable::NoInstructions).then(|| refusal.to_string())
}

/// Whether CPUID leaf 0 spells `GenuineIntel`.
#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0);
    [leaf.ebx, leaf.edx, leaf.ecx] == [*b"Genu", *b"ineI", *b"ntel"].map(u32::from_le_bytes)
}

/// Whether CPUID leaf 0 spells `AuthenticAMD` and leaf 1 says family 19h: Zen 3 and Zen 4, of which Zen 4 has AVX-512.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_zen_4() -> bool {
    static IS: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let leaf = std::arch::x86_64::__cpuid(0);
        let vendor = [leaf.ebx, leaf.edx, leaf.ecx];
        let is_amd = vendor == [*b"Auth", *b"enti", *b"cAMD"].map(u32::from_le_bytes);
        is_amd && has_avx512() && family(std::arch::x86_64::__cpuid(1).eax) == 0x19
    });
    *IS
}

/// The processor's family in register EAX of CPUID leaf 1: bits 8 to 11, and where those are all set bits 20 to 27 more.
#[cfg(target_arch = "x86_64")]
const fn family(signature: u32) -> u32 {
    match signature >> 8 & 0xf {
        0xf => 0xf + (signature >> 20 & 0xff),
        base => base,
    }
}

#[cfg(target_arch = "aarch64")]
fn has_dotprod() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

#[cfg(target_arch = "aarch64")]
fn has_i8mm() -> bool {
    std::arch::is_aarch64_feature_detected!("i8mm")
}

#[cfg(not(target_arch = "aarch64"))]
fn has_dotprod() -> bool {
    false
}

#[cfg(not(target_arch = "aarch64"))]
fn has_i8mm() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn amx_refusal() -> Option<String> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn amx_support() -> Result<(), ()> {
    Err(())
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx_vnni() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512_bf16() -> bool {
    false
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(name: &str) -> Result<Level, Error> {
        Level::ALL
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| Error::UnknownLevel {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_strangers_are_named() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse::<Level>().expect("own name"), level);
            assert_eq!(
                level
                    .name()
                    .to_uppercase()
                    .parse::<Level>()
                    .expect("upper case"),
                level
            );
        }
        let message = "sse9".parse::<Level>().expect_err("unknown").to_string();
        assert!(
            message.contains("sse9")
                && Level::ALL
                    .iter()
                    .all(|level| message.contains(level.name())),
            "{message}"
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn families_are_those_that_amd_and_intel_print() {
        // Genoa, Turin, Sapphire Rapids, Pentium Pro.
        let known = [
            (0xa1_0f11, 0x19),
            (0xb0_0f21, 0x1a),
            (0x8_06f8, 6),
            (0x619, 6),
        ];
        for (signature, expected) in known {
            assert_eq!(family(signature), expected, "{signature:#x}");
        }
        assert!(!is_zen_4() || (Level::Avx512Bf16.is_supported() && !is_intel()));
    }

    #[test]
    fn a_supported_level_has_all_that_it_includes() {
        let best = Level::detect();
        for level in Level::ALL {
            assert!(level.includes(level) && level.includes(Level::Scalar));
            assert!(!level.is_supported() || level <= best);
            for other in Level::ALL {
                let has = other.is_supported() || !level.is_supported();
                assert!(has || !level.includes(other), "{level} without {other}");
            }
        }
        assert_eq!(Level::supported().last(), Some(&best));
        assert!(Level::preferred().is_supported());
        assert!(Level::preferred() >= best.min(Level::Avx512));
        assert!(Level::preferred() > Level::Scalar || Level::supported().len() == 1);
        assert!(!Level::Avx512.includes(Level::AvxVnni) && Level::AvxVnni.includes(Level::Avx2));
        let exact = Level::detect_exact();
        assert!(exact.is_supported() && !exact.rounds_to_bf16());
    }
}
