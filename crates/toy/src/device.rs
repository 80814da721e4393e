//! The toy itself: it computes in memory and marks its times as modelled.

use crate::NAME;
use crate::planner::run_ns;
use crate::program::{Program, W, X, Y};
use half::f16;
use half::slice::HalfFloatSliceExt;
use millrace_kernels::Cpu;
use millrace_npu::simulated::{RunStop, SimulatedDevice, Simulator, SimulatorJob};
use millrace_npu::{Completion, Container, DeviceInfo, ErrorPlace, Provenance};

const MEMORY_BYTES: u64 = 8 << 30;

const TIMEOUT_NS: u64 = 1_000_000_000;

/// A virtual toy device.
pub type ToyDevice = SimulatedDevice<Toy>;

/// Simulator behind a [`ToyDevice`].
pub struct Toy {
    pub(crate) cpu: Cpu,
    pub(crate) is_narrow: bool,
}

/// Number of columns that the narrow toy multiplies.
const NARROW_COLUMNS: u64 = 256;

/// Provenance of the toy's times.
pub fn provenance() -> Provenance {
    Provenance::Modelled {
        profile: "imagination".to_owned(),
        error: None,
    }
}

/// Bytes of any alignment as numbers.
fn numbers<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    let each = bytes.chunks_exact(size_of::<T>());
    each.map(bytemuck::pod_read_unaligned).collect()
}

impl Toy {
    /// A toy that computes on that CPU.
    pub fn new(cpu: Cpu) -> Toy {
        Toy {
            cpu,
            is_narrow: false,
        }
    }

    /// Sums in f32, in order of k.
    fn multiply(&self, program: Program, x: &[f32], w: &[f16]) -> Vec<f32> {
        let (k, n) = (program.k as usize, program.n as usize);
        let mut y = vec![0.0; program.m as usize * n];
        let w = w.to_f32_vec();
        self.cpu.pool().run_pieces(&mut y, n, &|row, y| {
            let x = &x[row * k..][..k];
            for (y, w) in y.iter_mut().zip(w.chunks_exact(k)) {
                *y = x.iter().zip(w).map(|(x, w)| x * w).sum();
            }
        });
        y
    }
}

impl Simulator for Toy {
    /// A program with its name.
    type Program = (String, Program);

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "virtual toy".to_owned(),
            target: NAME.to_owned(),
            memory_bytes: MEMORY_BYTES,
            max_buffer_bytes: MEMORY_BYTES,
            coherent: false,
            provenance: provenance(),
        }
    }

    fn timeout_ns(&self) -> u64 {
        TIMEOUT_NS
    }

    fn accept(&self, container: &Container) -> Result<Self::Program, String> {
        let program = Program::from_container(container)?;
        Ok((container.name().to_owned(), program))
    }

    fn substitute(&self, (_, program): &Self::Program) -> Option<String> {
        let wide = self.is_narrow && program.n > NARROW_COLUMNS;
        wide.then(|| {
            format!(
                "{} columns are too many, so the whole toy multiplies",
                program.n
            )
        })
    }

    fn run(
        &self,
        (name, program): &Self::Program,
        content: &mut [Vec<u8>],
        job: &SimulatorJob<'_>,
    ) -> Result<Completion, RunStop> {
        // A product is one unit of work.
        if job.stop_after() == Some(0) {
            return Err(RunStop {
                place: ErrorPlace::of(name),
                reason: "it was stopped before its product".to_owned(),
            });
        }
        let y = self.multiply(*program, &numbers(&content[X]), &numbers(&content[W]));
        content[Y].copy_from_slice(bytemuck::cast_slice(&y));
        job.wrote(&[Y], content);
        Ok(Completion {
            duration_ns: run_ns(*program).round() as u64,
            provenance: provenance(),
            trace: None,
            energy: None,
        })
    }
}
