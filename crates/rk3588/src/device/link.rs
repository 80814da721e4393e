//! The open files of a device, made anew once an NPU that was away is back. What was made on files of
//! before is gone: buffers and programs carry the number of the link that they were made on.

use crate::driver::Driver;
use crate::rocket::Host;
use millrace_npu::DeviceError;
use millrace_npu::device::unique_number;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where open files come from.
pub(super) struct Link {
    host: Arc<dyn Host>,
    n_workers: usize,
    device: Arc<str>,
    state: Mutex<LinkState>,
}

struct LinkState {
    driver: Arc<Driver>,
    /// Numbers of links so far, this one's last.
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

    /// The open files; new ones where the NPU was away.
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

    /// Passes a result on; where it says that the NPU is gone, the next call opens it again.
    pub(super) fn noticed<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(DeviceError::Lost { .. }) = &result {
            self.lock().is_lost = true;
        }
        result
    }

    /// What is wrong with a thing of another number: it is of before, or another device's.
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
