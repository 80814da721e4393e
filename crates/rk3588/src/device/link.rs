//! The open files of a device, opened again once a lost NPU is back. Objects of earlier files are gone: buffers and
//! programs carry the number of the link that they were made on.

use crate::driver::Driver;
use crate::rocket::Host;
use millrace_npu::DeviceError;
use millrace_npu::device::unique_number;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Opens and reopens the files.
pub(super) struct Link {
    host: Arc<dyn Host>,
    n_workers: usize,
    device: Arc<str>,
    state: Mutex<LinkState>,
}

struct LinkState {
    driver: Arc<Driver>,
    /// Numbers of links so far; the current one is last.
    owners: Vec<u64>,
    is_lost: bool,
}

/// The open files and their number.
pub(super) struct Files {
    pub(super) driver: Arc<Driver>,
    pub(super) owner: u64,
}

impl Link {
    pub(super) fn new(host: Arc<dyn Host>, driver: Driver, device: Arc<str>) -> Link {
        Link {
            host,
            n_workers: driver.n_workers(),
            device,
            state: Mutex::new(LinkState {
                driver: Arc::new(driver),
                owners: vec![unique_number()],
                is_lost: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn host(&self) -> &dyn Host {
        &*self.host
    }

    pub(super) fn n_workers(&self) -> usize {
        self.n_workers
    }

    /// The open files; new ones where the NPU was lost.
    ///
    /// # Errors
    /// It is still away.
    pub(super) fn files(&self) -> Result<Files, DeviceError> {
        let mut state = self.lock();
        if state.is_lost {
            let Ok(driver) = Driver::open(&*self.host, self.n_workers) else {
                return Err(self.lost());
            };
            state.driver = Arc::new(driver);
            state.owners.push(unique_number());
            state.is_lost = false;
        }
        Ok(Files {
            driver: state.driver.clone(),
            owner: state.owners.last().copied().unwrap_or_default(),
        })
    }

    /// Passes a result on. Where it says that the NPU is gone, the next call opens it again.
    pub(super) fn noticed<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(DeviceError::Lost { .. }) = &result {
            self.lock().is_lost = true;
        }
        result
    }

    /// The error for an object with another number: it is stale, or another device's.
    pub(super) fn not_own(&self, owner: u64, what: &str, foreign: DeviceError) -> DeviceError {
        match self.lock().owners.contains(&owner) {
            true => DeviceError::Stale {
                device: self.device.to_string(),
                what: what.to_owned(),
            },
            false => foreign,
        }
    }

    fn lost(&self) -> DeviceError {
        DeviceError::Lost {
            device: self.device.to_string(),
            place: None,
        }
    }
}
