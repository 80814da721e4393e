//! The binary form of programs: the payload of containers.
//!
//! Little-endian. `RK88PROG`; `u32` version, kind (its position in [`MatmulKind::ALL`]), m, n, k, rows, cols,
//! depth, workers, order (columns 0, rows 1), tasks a job, number of jobs; for each job `u32` worker
//! and number of tasks; for each task `u32` number of words and the words, `u64` each.

use super::{CoreJob, Program};
use crate::command::{self, DecodeError};
use crate::matmul::MatmulKind;
use crate::tiling::{Matmul, Order, Tiling};

const MAGIC: [u8; 8] = *b"RK88PROG";
const VERSION: u32 = 1;

/// Why bytes are not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// Other bytes.
    #[error("not an RK3588 program: it does not begin with `RK88PROG`")]
    Magic,
    /// The bytes end too early.
    #[error(
        "the program ends at byte {offset} within the {field}: {need} bytes needed, {have} left"
    )]
    Truncated {
        /// The field that was being read.
        field: &'static str,
        /// Where it begins.
        offset: usize,
        /// Bytes it needs.
        need: u64,
        /// Bytes there are.
        have: u64,
    },
    /// A value without meaning.
    #[error("{field} at byte {offset} is {found}; expected {expected}")]
    Value {
        /// The field that was being read.
        field: &'static str,
        /// Where it is.
        offset: usize,
        /// The value.
        found: u32,
        /// The valid values.
        expected: &'static str,
    },
    /// Bytes behind the end.
    #[error("{count} bytes follow the program's end at byte {offset}")]
    Trailing {
        /// Where the program ends.
        offset: usize,
        /// How many follow.
        count: usize,
    },
    /// A word that is not a command.
    #[error("job {job}, task {task} (byte {offset}): {error}")]
    Word {
        /// The job.
        job: usize,
        /// The task in it.
        task: usize,
        /// Where the word is.
        offset: usize,
        /// The fault.
        error: DecodeError,
    },
}

impl Program {
    /// The bytes of the program, without its name.
    pub fn encode(&self) -> Vec<u8> {
        let kind = MatmulKind::ALL
            .iter()
            .position(|&kind| kind == self.shape.kind);
        let (shape, tiling) = (&self.shape, &self.tiling);
        let head = [
            VERSION,
            kind.unwrap_or(0) as u32,
            shape.m,
            shape.n,
            shape.k,
            tiling.rows,
            tiling.cols,
            tiling.depth,
            tiling.workers,
            u32::from(tiling.order == Order::Rows),
            tiling.job_tasks,
            self.jobs.len() as u32,
        ];
        let mut out = MAGIC.to_vec();
        let push = |out: &mut Vec<u8>, value: u32| out.extend(value.to_le_bytes());
        head.into_iter().for_each(|value| push(&mut out, value));
        for job in &self.jobs {
            push(&mut out, job.worker);
            push(&mut out, job.tasks.len() as u32);
            for task in &job.tasks {
                push(&mut out, task.len() as u32);
                let words = task.iter().map(|command| command.encode());
                out.extend(words.flat_map(u64::to_le_bytes));
            }
        }
        out
    }

    /// Decodes a program from those bytes. A program that it accepts encodes to the same bytes;
    /// [`verify`](crate::verify) checks whether it can run.
    ///
    /// # Errors
    /// [`ProgramError`]: the fault and its place.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Program, ProgramError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.take("magic", 8).ok() != Some(&MAGIC[..]) {
            return Err(ProgramError::Magic);
        }
        reader.one_of("version", VERSION..=VERSION, "1")?;
        let kind = reader.one_of("kind", 0..=MatmulKind::ALL.len() as u32 - 1, "0 to 5")?;
        let shape = Matmul {
            kind: MatmulKind::ALL[kind as usize],
            m: reader.u32("m")?,
            n: reader.u32("n")?,
            k: reader.u32("k")?,
        };
        let tiling = Tiling {
            rows: reader.u32("rows")?,
            cols: reader.u32("cols")?,
            depth: reader.u32("depth")?,
            workers: reader.u32("workers")?,
            order: match reader.one_of("order", 0..=1, "0 or 1")? {
                0 => Order::Columns,
                _ => Order::Rows,
            },
            job_tasks: reader.u32("tasks a job")?,
        };
        let n_jobs = reader.u32("number of jobs")?;
        // No number that was read allocates memory: every item takes bytes that must be there.
        let mut jobs = Vec::new();
        for job in 0..n_jobs as usize {
            jobs.push(reader.job(job)?);
        }
        if reader.at < bytes.len() {
            return Err(ProgramError::Trailing {
                offset: reader.at,
                count: bytes.len() - reader.at,
            });
        }
        Ok(Program {
            name: name.to_owned(),
            shape,
            tiling,
            jobs,
        })
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn take(&mut self, field: &'static str, need: u64) -> Result<&'b [u8], ProgramError> {
        let rest = &self.bytes[self.at..];
        if need > rest.len() as u64 {
            return Err(ProgramError::Truncated {
                field,
                offset: self.at,
                need,
                have: rest.len() as u64,
            });
        }
        self.at += need as usize;
        Ok(&rest[..need as usize])
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, ProgramError> {
        let mut value = [0; 4];
        value.copy_from_slice(self.take(field, 4)?);
        Ok(u32::from_le_bytes(value))
    }

    fn one_of(
        &mut self,
        field: &'static str,
        range: std::ops::RangeInclusive<u32>,
        expected: &'static str,
    ) -> Result<u32, ProgramError> {
        let offset = self.at;
        let found = self.u32(field)?;
        match range.contains(&found) {
            true => Ok(found),
            false => Err(ProgramError::Value {
                field,
                offset,
                found,
                expected,
            }),
        }
    }

    fn job(&mut self, job: usize) -> Result<CoreJob, ProgramError> {
        let worker = self.u32("worker")?;
        let n_tasks = self.u32("number of tasks")?;
        let mut tasks = Vec::new();
        for task in 0..n_tasks as usize {
            let n_words = self.u32("number of words")?;
            let offset = self.at;
            let bytes = self.take("words", u64::from(n_words) * 8)?;
            let words: Vec<u64> = (bytes.as_chunks::<8>().0.iter())
                .map(|word| u64::from_le_bytes(*word))
                .collect();
            let commands = command::decode(&words).map_err(|error| ProgramError::Word {
                job,
                task,
                offset: offset + error.position * 8,
                error,
            })?;
            tasks.push(commands);
        }
        Ok(CoreJob { worker, tasks })
    }
}
