//! The virtual board: a kernel with the rocket driver, and three cores behind it.
//!
//! It behaves as Linux does, traps included, and keeps its own clock:
//!
//! - SUBMIT answers success regardless of faults in single jobs;
//! - a job that hangs is reset after 500 ms, and waiting for it succeeds with its output untouched;
//! - deadlines are absolute; only outputs can be waited for;
//! - an open file is one entity of the scheduler, so it never runs on two cores at once;
//! - addresses begin at 0 in every open file, and a handle means nothing in another;
//! - PREP_BO answers 0 or the remaining time, as kernels differ.
//!
//! Where Linux cannot see a mistake (memory touched without PREP_BO, a job on memory that the host holds) it is an
//! error here. [`BoardMode::Strict`] also reports errors that Linux would hide.
//!
//! Cores fetch commands from memory through the address map of their open file, [`verify`](crate::verify) each task and
//! compute real numbers.

mod compute;
mod descriptor;
mod faults;
mod job;
mod memory;

pub use faults::{Faults, TaskAt};

use crate::machine::Machine;
use crate::profile::Profile;
use crate::rocket::{DRIVER_NAME, Host, Node};
use crate::timing::Schedule;
use descriptor::Descriptor;
use rustix::io::Errno;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How the virtual kernel answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoardMode {
    /// As Linux does.
    #[default]
    Faithful,
    /// SUBMIT answers EINVAL where a job would not run as intended; the log has the reason.
    Strict,
}

/// Options of a board.
#[derive(Clone, Debug)]
pub struct BoardOptions {
    /// Facts.
    pub machine: Machine,
    /// Constants of its clock.
    pub profile: Profile,
    /// How it answers.
    pub mode: BoardMode,
    /// PREP_BO answers the remaining time, as kernel 6.18 does, instead of 0.
    pub prep_answers_time_left: bool,
    /// The driver's name.
    pub driver_name: String,
    /// The kernel's release.
    pub kernel_release: String,
    /// Whether there is a node.
    pub has_node: bool,
    /// Whether the vendor's driver is there.
    pub has_vendor_driver: bool,
}

impl Default for BoardOptions {
    fn default() -> BoardOptions {
        BoardOptions {
            machine: Machine::rk3588(),
            profile: Profile::rocket_200(),
            mode: BoardMode::default(),
            prep_answers_time_left: true,
            driver_name: DRIVER_NAME.into(),
            kernel_release: "6.18.0".into(),
            has_node: true,
            has_vendor_driver: false,
        }
    }
}

/// A virtual board. Clones are the same board.
#[derive(Clone)]
pub struct Board {
    inner: Arc<Inner>,
}

struct Inner {
    options: BoardOptions,
    state: Mutex<BoardState>,
}

/// State that all open files share.
struct BoardState {
    schedule: Schedule,
    clock_ns: f64,
    n_jobs: u64,
    n_files: u64,
    n_bos: u64,
    gone: bool,
    faults: Faults,
    log: Vec<String>,
}

/// The path of the board's node.
pub const PATH: &str = "/dev/accel/accel0";

/// Lines that the log keeps until they are read.
const LOG_LINES: usize = 1000;

impl Board {
    /// A board.
    pub fn new(options: BoardOptions) -> Board {
        let state = BoardState {
            schedule: Schedule::new(&options.machine, &options.profile),
            clock_ns: 0.0,
            n_jobs: 0,
            n_files: 0,
            n_bos: 0,
            gone: false,
            faults: Faults::default(),
            log: Vec::new(),
        };
        let inner = Inner {
            options,
            state: Mutex::new(state),
        };
        Board {
            inner: Arc::new(inner),
        }
    }

    /// Sets the faults from now on; the default clears them. A lost board comes back.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.inner.lock();
        state.faults = faults;
        state.gone = false;
    }

    /// Changes the faults; a lost board stays away.
    pub(crate) fn change_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.inner.lock().faults);
    }

    /// Jobs that were accepted so far: the number of the next one.
    pub fn n_jobs(&self) -> u64 {
        self.inner.lock().n_jobs
    }

    /// Buffer objects of all open files.
    pub fn n_bos(&self) -> u64 {
        self.inner.lock().n_bos
    }

    /// The board's clock, in nanoseconds.
    pub fn clock_ns(&self) -> f64 {
        self.inner.lock().clock_ns
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BoardState {
    fn log(&mut self, line: String) {
        if self.log.len() < LOG_LINES {
            self.log.push(line);
        }
    }

    /// Whether the device is there at all.
    fn present(&self) -> Result<(), Errno> {
        match self.gone {
            true => Err(Errno::NODEV),
            false => Ok(()),
        }
    }
}

impl Host for Board {
    fn describe(&self) -> String {
        let options = &self.inner.options;
        format!("virtual board, kernel {}", options.kernel_release)
    }

    fn paths(&self) -> Vec<String> {
        match self.inner.options.has_node {
            true => vec![PATH.into()],
            false => Vec::new(),
        }
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Node>, Errno> {
        if path != PATH || !self.inner.options.has_node {
            return Err(Errno::NOENT);
        }
        let mut state = self.inner.lock();
        if let Some(error) = state.faults.open {
            return Err(error);
        }
        state.present()?;
        let worker = state.n_files;
        state.n_files += 1;
        drop(state);
        let descriptor = Descriptor::open(self.inner.clone(), worker)?;
        Ok(Arc::new(descriptor))
    }

    fn kernel_release(&self) -> Option<String> {
        Some(self.inner.options.kernel_release.clone())
    }

    fn shared(&self) -> Arc<dyn Host> {
        Arc::new(self.clone())
    }

    fn board(&self) -> Option<&Board> {
        Some(self)
    }

    fn has_vendor_driver(&self) -> bool {
        self.inner.options.has_vendor_driver
    }
}
