//! One job of the probe: objects, commands, data, and results.

use crate::command;
use crate::driver::{self, Bo, DriverError};
use crate::machine::Machine;
use crate::matmul::{Banks, Emit, MatmulKind, Task};
use crate::rocket::{JobArgs, Node, TaskArgs};
use crate::tiling::{Grid, Matmul, Order, Tiling};
use crate::timing::mac_cycles;
use std::sync::Arc;

/// Failure of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunError {
    Driver(DriverError),
    /// The mark at its end is still there.
    Unwritten {
        waited_ns: i64,
        log: Vec<String>,
    },
    Wrong {
        n_wrong: usize,
        row: usize,
        col: usize,
        found: i32,
        expected: i32,
    },
}

impl From<DriverError> for RunError {
    fn from(error: DriverError) -> RunError {
        RunError::Driver(error)
    }
}

/// A job of equal tasks over the same operands.
pub(super) struct TaskBench {
    node: Arc<dyn Node>,
    grid: Grid,
    n_tasks: u32,
    regcmd: Bo,
    a: Bo,
    b: Bo,
    c: Bo,
    n_words: usize,
}

/// A value that no sum of products of bytes has.
const MARK: [u8; 16] = [0x7f; 16];

/// Time that a job may take, with the kernel's reset.
const WAIT_NS: i64 = 3_000_000_000;

fn element(row: usize, col: usize, seed: usize) -> i8 {
    ((row * 37 + col * 11 + seed * 101 + row * col) % 255) as i8
}

impl TaskBench {
    /// 64 × 64 × 64.
    pub(super) fn small(node: &Arc<dyn Node>, machine: &Machine) -> Result<TaskBench, DriverError> {
        TaskBench::new(node, machine, [64, 64, 64], 1)
    }

    /// So many tasks whose time is the array's: 128 rows for every weight.
    pub(super) fn array_bound(
        node: &Arc<dyn Node>,
        n_tasks: u32,
        machine: &Machine,
    ) -> Result<TaskBench, DriverError> {
        TaskBench::new(node, machine, [128, 512, 2048], n_tasks)
    }

    /// Tasks whose time is that of reading weights: one row.
    pub(super) fn memory_bound(
        node: &Arc<dyn Node>,
        machine: &Machine,
    ) -> Result<TaskBench, DriverError> {
        TaskBench::new(node, machine, [1, 8192, 2048], 4)
    }

    fn new(
        node: &Arc<dyn Node>,
        machine: &Machine,
        [m, n, k]: [u32; 3],
        n_tasks: u32,
    ) -> Result<TaskBench, DriverError> {
        let kind = MatmulKind::Int8Int32;
        let tiling = Tiling {
            rows: m,
            cols: n,
            depth: k,
            workers: 1,
            order: Order::Columns,
            job_tasks: 1,
        };
        // Shapes are constants of this file, which fit.
        let unfit = |_| DriverError::unfit();
        let grid = Grid::new(Matmul { kind, m, n, k }, tiling, machine).map_err(unfit)?;
        let banks = Banks::of(m, k, kind, machine).ok_or_else(DriverError::unfit)?;
        let (a, b) = (
            Bo::create(node, grid.a_bytes())?,
            Bo::create(node, grid.b_bytes())?,
        );
        let c = Bo::create(node, grid.c_bytes())?;
        let task = Task {
            kind,
            m,
            n,
            k,
            banks,
            data_reuse: false,
            weight_reuse: false,
            a: a.address(),
            b: b.address(),
            c: c.address(),
        };
        let words = command::encode(&task.commands(Emit::MILLRACE));
        let regcmd = Bo::create(node, words.len() as u64 * 8)?;
        regcmd.touch(|bytes| {
            for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&words) {
                *bytes = word.to_le_bytes();
            }
        })?;
        let bench = TaskBench {
            node: node.clone(),
            grid,
            n_tasks,
            regcmd,
            a,
            b,
            c,
            n_words: words.len(),
        };
        bench.fill()?;
        Ok(bench)
    }

    /// Writes A and B.
    fn fill(&self) -> Result<(), DriverError> {
        let shape = self.grid.shape;
        let matrix = |rows: u32, seed| -> Vec<u8> {
            let rows = 0..rows as usize;
            rows.flat_map(|row| (0..shape.k as usize).map(move |k| element(row, k, seed) as u8))
                .collect()
        };
        let (a, b) = (matrix(shape.m, 1), matrix(shape.n, 2));
        let packed = self.a.touch(|bytes| {
            let bytes = &mut bytes[..self.grid.a_bytes() as usize];
            self.grid.pack_a(&a, bytes)
        })?;
        packed.map_err(|_| DriverError::unfit())?;
        let packed = self.b.touch(|bytes| {
            let bytes = &mut bytes[..self.grid.b_bytes() as usize];
            self.grid.pack_b(&b, bytes)
        })?;
        packed.map_err(|_| DriverError::unfit())
    }

    pub(super) fn describe(&self) -> String {
        let bytes = self.grid.a_bytes() + self.grid.b_bytes() + self.grid.c_bytes();
        format!(
            "buffers of {bytes} bytes; A at {:#x}, B at {:#x}, C at {:#x} of the NPU's addresses",
            self.a.address(),
            self.b.address(),
            self.c.address()
        )
    }

    pub(super) fn weight_bytes(&self) -> u64 {
        self.grid.b_bytes() * u64::from(self.n_tasks)
    }

    pub(super) fn mac_cycles(&self, machine: &Machine) -> f64 {
        let shape = self.grid.shape;
        mac_cycles(shape.m, shape.n, shape.k, shape.kind, machine) * f64::from(self.n_tasks)
    }

    /// Marks the output and submits; gives the time before.
    pub(super) fn submit(&self) -> Result<i64, DriverError> {
        let end = self.grid.c_bytes() as usize;
        (self.c).touch(|bytes| bytes[end - MARK.len()..end].copy_from_slice(&MARK))?;
        let task = TaskArgs {
            regcmd: self.regcmd.address(),
            regcmd_count: self.n_words as u32,
        };
        let job = JobArgs {
            tasks: vec![task; self.n_tasks as usize],
            in_handles: vec![self.a.handle(), self.b.handle(), self.regcmd.handle()],
            out_handles: vec![self.c.handle()],
        };
        let before = self.node.now_ns();
        driver::submit(&*self.node, &[job])?;
        Ok(before)
    }

    /// Waits and looks for the mark; gives the time since.
    pub(super) fn wait(&self, started_ns: i64) -> Result<f64, RunError> {
        let end = self.grid.c_bytes() as usize;
        let deadline = self.node.now_ns() + WAIT_NS;
        let unwritten =
            (self.c).touch_by(deadline, |bytes| bytes[end - MARK.len()..end] == MARK)?;
        let waited_ns = self.node.now_ns() - started_ns;
        match unwritten {
            true => Err(RunError::Unwritten {
                waited_ns,
                log: self.node.log(),
            }),
            false => Ok(waited_ns as f64),
        }
    }

    pub(super) fn best_of(&self, times: usize) -> Result<f64, RunError> {
        let mut best = f64::INFINITY;
        for _ in 0..times {
            let started = self.submit()?;
            best = best.min(self.wait(started)?);
        }
        Ok(best)
    }

    /// Compares every result with the host's.
    pub(super) fn compare(&self) -> Result<(), RunError> {
        let shape = self.grid.shape;
        let (n, k) = (shape.n as usize, shape.k as usize);
        let mut found = vec![0i32; shape.m as usize * n];
        let summed = self.c.touch(|bytes| {
            let bytes = &bytes[..self.grid.c_bytes() as usize];
            self.grid.sum_i32(bytes, &mut found)
        })?;
        summed.map_err(|_| DriverError::unfit())?;
        let expected = |at: usize| -> i32 {
            let products =
                (0..k).map(|k| i32::from(element(at / n, k, 1)) * i32::from(element(at % n, k, 2)));
            products.sum()
        };
        let wrong: Vec<usize> = (0..found.len())
            .filter(|&at| found[at] != expected(at))
            .collect();
        match wrong.first() {
            None => Ok(()),
            Some(&at) => Err(RunError::Wrong {
                n_wrong: wrong.len(),
                row: at / n,
                col: at % n,
                found: found[at],
                expected: expected(at),
            }),
        }
    }

    /// Copies the weights out of their object and back; gives the bytes that moved.
    pub(super) fn copy_weights(&self) -> Result<u64, DriverError> {
        let bytes = self.b.touch(|bytes| bytes.to_vec())?;
        self.b.touch(|to| to.copy_from_slice(&bytes))?;
        Ok(2 * bytes.len() as u64)
    }
}
