//! The CPU as the kernels see it: a thread pool and an instruction-set level that this machine has.

use crate::error::Error;
use crate::level::Level;
use crate::pool::{Pool, PoolOptions};

/// Options of [`Cpu::new`]; `Default` leaves everything to detection.
#[derive(Debug, Clone, Default)]
pub struct CpuOptions {
    /// Threads, the caller included. `None`: one for each physical core
    /// ([`crate::pool::default_threads`]).
    pub n_threads: Option<usize>,
    /// Instruction-set level to force. `None`: [`Level::preferred`].
    pub level: Option<Level>,
}

/// A pool and a level. Holding one is the proof that this CPU has the level's instructions, so that
/// every op can be a safe function of `&Cpu`.
pub struct Cpu {
    pool: Pool,
    level: Level,
}

impl Cpu {
    /// Checks the level and starts the threads.
    ///
    /// # Errors
    /// [`Error::UnsupportedLevel`], and as [`Pool::new`].
    pub fn new(options: CpuOptions) -> Result<Cpu, Error> {
        let pool_options = PoolOptions {
            n_threads: options.n_threads,
            ..PoolOptions::default()
        };
        let level = options.level.unwrap_or_else(Level::preferred);
        checked(level)?;
        let pool = Pool::with_options(&pool_options)?;
        Ok(Cpu { pool, level })
    }

    /// Uses an existing pool; checks the level.
    ///
    /// # Errors
    /// [`Error::UnsupportedLevel`].
    pub fn with_pool(pool: Pool, level: Level) -> Result<Cpu, Error> {
        checked(level)?;
        Ok(Cpu { pool, level })
    }

    /// The threads.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The instruction-set level in use; this CPU has it.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }
}

/// Refuses a level that this CPU lacks.
fn checked(level: Level) -> Result<(), Error> {
    if level.is_supported() {
        return Ok(());
    }
    Err(Error::UnsupportedLevel {
        asked: level,
        best: Level::detect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_level_opens_and_others_are_refused() {
        for level in Level::ALL {
            let opened = Cpu::new(CpuOptions {
                n_threads: Some(1),
                level: Some(level),
            });
            match opened {
                Ok(cpu) => assert!(level.is_supported() && cpu.level() == level),
                Err(Error::UnsupportedLevel { asked, best }) => {
                    assert!(asked == level && best.is_supported() && !level.is_supported())
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn defaults_take_the_best_level() {
        let cpu = Cpu::new(CpuOptions::default()).expect("defaults");
        assert_eq!(cpu.level(), Level::preferred());
        assert_eq!(cpu.pool().n_threads(), crate::pool::default_threads());
        assert!(
            Cpu::new(CpuOptions {
                n_threads: Some(0),
                level: None
            })
            .is_err()
        );
    }
}
