//! Limits of this machine: reading memory, and arithmetic in registers.
//!
//! A kernel that touches each weight once cannot be faster than memory delivers the weights, nor than the arithmetic units
//! multiply them. Both are measured with all threads of a [`Cpu`], because a processor's own description gives neither.
//! Clocks depend on the instructions, and virtual machines see a share of the memory.
//!
//! Every number is the best of many short passes, so that other work on the machine lowers it as little as possible.

#[cfg(target_arch = "aarch64")]
use crate::aarch64;
use crate::cpu::Cpu;
use crate::level::Level;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{Input, LINE_BYTES};
#[cfg(target_arch = "x86_64")]
use crate::x86::{amx, avx_vnni, avx2, avx512};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The limits of one level on this machine, all threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roof {
    /// Bytes a second read from memory.
    pub read_bytes_per_s: f64,
    /// Multiplications and additions a second of f32, fused where the level has the instruction.
    pub f32_flops_per_s: f64,
    /// Multiplications and additions a second of bf16 pairs summed in f32; `None` below
    /// [`Level::Avx512Bf16`].
    pub bf16_flops_per_s: Option<f64>,
    /// Multiplications and additions a second of i8, summed in i32 (in i16 at [`Level::Avx2`], which has no such
    /// dot product); `None` at [`Level::Scalar`].
    pub int8_ops_per_s: Option<f64>,
}

impl Roof {
    /// The arithmetic limit of kernels whose panels have this layout, in operations a second.
    #[must_use]
    pub fn ops_per_s(&self, layout: PanelLayout) -> Option<f64> {
        match layout.input() {
            Input::F32 => Some(self.f32_flops_per_s),
            Input::Bf16 => self.bf16_flops_per_s,
            Input::I8x32 | Input::I8x256 => self.int8_ops_per_s,
        }
    }

    /// A level has the instructions of the level below, so it is at least as fast.
    fn or_better(self, below: &Roof) -> Roof {
        let better = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        Roof {
            read_bytes_per_s: self.read_bytes_per_s.max(below.read_bytes_per_s),
            f32_flops_per_s: self.f32_flops_per_s.max(below.f32_flops_per_s),
            bf16_flops_per_s: better(self.bf16_flops_per_s, below.bf16_flops_per_s),
            int8_ops_per_s: better(self.int8_ops_per_s, below.int8_ops_per_s),
        }
    }
}

/// How much to spend on a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Bytes to walk through: several times the size of the caches, since otherwise the caches are measured.
    pub read_bytes: usize,
    /// Time for each loop of arithmetic, and for each of a few ways to read.
    pub time: Duration,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            read_bytes: 256 << 20,
            time: Duration::from_millis(100),
        }
    }
}

/// Measures the roof of the CPU's own level. Takes a second or two and 256 MiB.
#[must_use]
pub fn measure(cpu: &Cpu) -> Roof {
    let roofs = measure_levels(cpu, &Effort::default());
    let (_, roof) = roofs.last().expect("every CPU has the scalar level");
    *roof
}

/// Measures the roof of each level that `cpu` can run, from [`Level::Scalar`] up; memory is measured once, with the
/// widest loads.
#[must_use]
pub fn measure_levels(cpu: &Cpu, effort: &Effort) -> Vec<(Level, Roof)> {
    let read_bytes_per_s = read_bytes_per_s(cpu, effort);
    let mut roofs: Vec<(Level, Roof)> = Vec::new();
    for level in Level::ALL {
        if level <= cpu.level() && level.is_supported() {
            let roof = at_level(cpu, level, read_bytes_per_s, effort.time);
            let below = roofs.last().map(|(_, below)| below);
            roofs.push((level, below.map_or(roof, |below| roof.or_better(below))));
        }
    }
    roofs
}

/// `level` is at most the CPU's.
fn at_level(cpu: &Cpu, level: Level, read_bytes_per_s: f64, time: Duration) -> Roof {
    let loops = loops(level);
    let peak = |register_loop: RegisterLoop| ops_per_s(cpu, &register_loop, time);
    Roof {
        read_bytes_per_s,
        f32_flops_per_s: peak(loops.f32),
        bf16_flops_per_s: loops.bf16.map(peak),
        int8_ops_per_s: loops.int8.map(peak),
    }
}

/// Arithmetic on registers, over and over.
#[derive(Clone, Copy)]
pub(crate) struct RegisterLoop {
    /// Runs that many rounds. The CPU must have the level's instructions.
    pub(crate) run: unsafe fn(rounds: usize),
    /// Multiplications and additions of one round.
    pub(crate) ops_a_round: usize,
}

/// The loops of a level.
struct Loops {
    f32: RegisterLoop,
    bf16: Option<RegisterLoop>,
    int8: Option<RegisterLoop>,
    read: ReadFn,
}

fn loops(level: Level) -> Loops {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Bf16 | Level::Amx => Loops {
            f32: avx512::roof::F32,
            bf16: match level {
                Level::Avx512 => None,
                Level::Amx => Some(amx::roof::BF16),
                _ => Some(avx512::roof::BF16),
            },
            int8: Some(match level {
                Level::Amx => amx::roof::INT8,
                _ => avx512::roof::INT8,
            }),
            read: avx512::roof::read,
        },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => Loops {
            f32: avx2::roof::F32,
            bf16: None,
            int8: Some(if level == Level::AvxVnni {
                avx_vnni::roof::INT8
            } else {
                avx2::roof::INT8
            }),
            read: avx2::roof::read,
        },
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::DotProd | Level::I8mm => Loops {
            f32: aarch64::roof::F32,
            bf16: None,
            int8: Some(aarch64::roof::int8(level)),
            read: aarch64::roof::read,
        },
        _ => Loops {
            f32: PORTABLE_F32,
            bf16: None,
            int8: None,
            read: read_portable,
        },
    }
}

/// Rounds of a chunk: some ten microseconds, far more than handing out the chunk takes.
const ROUNDS: usize = 4096;

/// Chunks of a pass for each thread: a pass of about a millisecond mostly fits between two interruptions.
const CHUNKS_A_THREAD: usize = 32;

fn ops_per_s(cpu: &Cpu, register_loop: &RegisterLoop, time: Duration) -> f64 {
    let n_chunks = cpu.pool().n_threads() * CHUNKS_A_THREAD;
    let seconds = fastest(time, || {
        cpu.pool().run(n_chunks, &|_| {
            // SAFETY: the loop's level is at most the CPU's, and a `Cpu` proves its level.
            unsafe { (register_loop.run)(ROUNDS) }
        });
    });
    (register_loop.ops_a_round * ROUNDS * n_chunks) as f64 / seconds
}

/// Seconds of the fastest pass among those that the time allows, and a minimum number.
fn fastest(time: Duration, mut pass: impl FnMut()) -> f64 {
    const FEWEST_PASSES: usize = 3;
    let started = Instant::now();
    let mut best = f64::INFINITY;
    let mut n_passes = 0;
    while n_passes < FEWEST_PASSES || started.elapsed() < time {
        let pass_started = Instant::now();
        pass();
        // A clock that did not move would make the rate infinite.
        best = best.min(pass_started.elapsed().as_secs_f64().max(1e-9));
        n_passes += 1;
    }
    best
}

/// Memory that a reading leaf walks through.
pub(crate) struct ReadArgs<'a> {
    /// Starts at a cache line; whole [`READ_STEP`]s for each stream.
    pub(crate) bytes: &'a [u8],
    /// Parts that are read side by side, as a kernel reads the rows of a panel.
    pub(crate) n_streams: usize,
    /// How far ahead of each load its line is fetched.
    pub(crate) ahead_bytes: usize,
}

/// Reads every byte. The CPU must have the level's instructions.
type ReadFn = unsafe fn(&ReadArgs<'_>);

/// Bytes that a leaf reads of a stream before it switches to the next.
pub(crate) const READ_STEP: usize = 4 * LINE_BYTES;

/// Numbers of streams and distances (bytes) to try: the fastest differs between processors. A distance of 0 leaves fetching to the
/// processor. With it two cores of a Zen 4 read 48 GB/s in two or four streams and 34 in one.
const READ_PATTERNS: [(usize, usize); 8] = [
    (1, 2048),
    (1, 4096),
    (1, 16_384),
    (2, 0),
    (4, 0),
    (4, 768),
    (16, 512),
    (16, 1024),
];

/// Most streams of a pattern.
const MAX_STREAMS: usize = 16;

/// Bytes of a chunk, if the buffer is large enough: the fetches lost at its ends are then negligible.
const READ_CHUNK_BYTES: usize = 2 << 20;

/// Chunks of a pass for each thread. Passes take turns through the buffer: a whole one would take so long that another
/// process would probably run in between.
const READ_CHUNKS_A_THREAD: usize = 8;

fn read_bytes_per_s(cpu: &Cpu, effort: &Effort) -> f64 {
    const GRAIN: usize = MAX_STREAMS * READ_STEP;
    let n_threads = cpu.pool().n_threads();
    let chunk_bytes =
        (effort.read_bytes / n_threads).clamp(GRAIN, READ_CHUNK_BYTES) / GRAIN * GRAIN;
    let n_chunks = (effort.read_bytes / chunk_bytes).max(n_threads);
    // Zeroed memory is not there until each thread has written to its part.
    let mut buffer = vec![0_u8; n_chunks * chunk_bytes + LINE_BYTES];
    let first = buffer.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
    let bytes = &mut buffer[first..first + n_chunks * chunk_bytes];
    let fill = |_, piece: &mut [u8]| piece.fill(1);
    cpu.pool().run_pieces(bytes, chunk_bytes, &fill);
    let bytes = &*bytes;
    let read = loops(cpu.level()).read;
    let n_chunks_a_pass = n_chunks.min(n_threads * READ_CHUNKS_A_THREAD);
    let mut first_chunk = 0;
    let seconds = READ_PATTERNS.map(|(n_streams, ahead_bytes)| {
        fastest(effort.time, || {
            cpu.pool().run(n_chunks_a_pass, &|chunk| {
                let start = (first_chunk + chunk) % n_chunks * chunk_bytes;
                let args = ReadArgs {
                    bytes: &bytes[start..start + chunk_bytes],
                    n_streams,
                    ahead_bytes,
                };
                // SAFETY: a `Cpu` proves its level.
                unsafe { read(&args) }
            });
            first_chunk = (first_chunk + n_chunks_a_pass) % n_chunks;
        })
    });
    let seconds = seconds.into_iter().fold(f64::INFINITY, f64::min);
    (n_chunks_a_pass * chunk_bytes) as f64 / seconds
}

/// Sums of the portable loop: twelve registers of four lanes, the least that any 64-bit target has.
const PORTABLE_SUMS: usize = 48;

const PORTABLE_F32: RegisterLoop = RegisterLoop {
    run: multiply_add_portable,
    ops_a_round: PORTABLE_SUMS * 2,
};

/// The compiler's code for `sum · a + b` on the build's target.
fn multiply_add_portable(rounds: usize) {
    let (a, b) = (black_box(0.5_f32), black_box(1.0_f32));
    let mut sums = [0.0_f32; PORTABLE_SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = *sum * a + b;
        }
    }
    black_box(sums);
}

/// Without intrinsics there is no way to prefetch: the hardware's own prefetcher follows the one stream.
fn read_portable(args: &ReadArgs<'_>) {
    let mut sums = [0_u64; LINE_BYTES / size_of::<u64>()];
    for line in args.bytes.chunks_exact(LINE_BYTES) {
        for (sum, word) in sums.iter_mut().zip(line.chunks_exact(size_of::<u64>())) {
            let word = word.try_into().expect("chunks of eight bytes");
            *sum |= u64::from_le_bytes(word);
        }
    }
    black_box(sums);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuOptions;

    const QUICK: Effort = Effort {
        read_bytes: 100_000,
        time: Duration::from_micros(100),
    };

    fn cpu(n_threads: usize) -> Cpu {
        Cpu::new(CpuOptions {
            n_threads: Some(n_threads),
            level: Some(Level::detect()),
        })
        .expect("the CPU's own level")
    }

    #[test]
    fn every_number_is_positive_and_finite() {
        for n_threads in [1, 3] {
            let roofs = measure_levels(&cpu(n_threads), &QUICK);
            let levels: Vec<Level> = roofs.iter().map(|(level, _)| *level).collect();
            assert_eq!(levels, Level::supported());
            for (level, roof) in roofs {
                assert_eq!(roof.int8_ops_per_s.is_some(), level >= Level::Avx2);
                assert_eq!(roof.bf16_flops_per_s.is_some(), level >= Level::Avx512Bf16);
                let numbers = [Some(roof.read_bytes_per_s), Some(roof.f32_flops_per_s)];
                let more = [roof.bf16_flops_per_s, roof.int8_ops_per_s];
                for number in numbers.into_iter().chain(more).flatten() {
                    assert!(number.is_finite() && number > 0.0, "{level}: {roof:?}");
                }
            }
        }
    }

    #[test]
    fn buffers_smaller_than_a_step_and_than_the_threads_are_rounded_up() {
        for read_bytes in [0, 1, MAX_STREAMS * READ_STEP + 1] {
            let effort = Effort {
                read_bytes,
                ..QUICK
            };
            let rate = read_bytes_per_s(&cpu(5), &effort);
            assert!(rate.is_finite() && rate > 0.0, "{read_bytes}: {rate}");
        }
    }

    #[test]
    fn every_kernel_has_an_arithmetic_roof_at_its_level() {
        let roofs = measure_levels(&cpu(1), &QUICK);
        for kernel in crate::table::kernels() {
            let Some((_, roof)) = roofs.iter().find(|(level, _)| *level == kernel.level) else {
                continue;
            };
            assert!(roof.ops_per_s(kernel.layout).is_some(), "{}", kernel.name());
        }
    }
}
