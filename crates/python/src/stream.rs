//! Text piece by piece.

use crate::errors::exception;
use crate::generation::Completion;
use crate::process::Owner;
use crate::watch::WorkWatch;
use millrace::{Error, Generation, Stream};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An iterator over pieces of text. Each step computes until there is more. `close`, the end of a `with` block, or
/// dropping it ends the generation.
#[pyclass(frozen, name = "Stream", module = "millrace")]
#[derive(Debug)]
pub(crate) struct TextStream {
    state: Mutex<StreamState>,
    watch: WorkWatch,
    owner: Owner,
}

#[derive(Debug)]
struct StreamState {
    /// None after it ended.
    stream: Option<Stream>,
    /// The prompt was read: steps are short from here on.
    began: bool,
    generation: Option<Generation>,
}

impl StreamState {
    fn next(&mut self) -> Option<Result<String, Error>> {
        self.stream.as_mut()?.next()
    }

    /// Ends the generation and keeps the text so far.
    fn finish(&mut self) -> Result<(), Error> {
        if let Some(stream) = self.stream.take() {
            self.generation = Some(stream.finish()?);
        }
        Ok(())
    }
}

impl TextStream {
    pub(crate) fn new(stream: Stream, watch: WorkWatch) -> TextStream {
        TextStream {
            state: Mutex::new(StreamState {
                stream: Some(stream),
                began: false,
                generation: None,
            }),
            watch,
            owner: Owner::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the generation; the pieces already returned are kept.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| self.lock().finish());
        ended.map_err(|error| exception(py, &error))
    }

    /// The next piece. The first step reads the prompt, so it runs under a watch.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Result<String, Error>>> {
        self.owner.check(py)?;
        let began = py.detach(|| self.lock().began);
        if !began {
            let piece = self.watch.run(py, || {
                let mut state = self.lock();
                state.began = true;
                state.next()
            });
            return piece;
        }
        self.watch.look();
        let piece = py.detach(|| self.lock().next());
        py.check_signals()?;
        Ok(piece)
    }
}

#[pymethods]
impl TextStream {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        match self.step(py) {
            Ok(Some(Ok(piece))) => Ok(Some(piece)),
            Ok(Some(Err(error))) => {
                py.detach(|| drop(self.lock().stream.take()));
                Err(exception(py, &error))
            }
            Ok(None) => {
                self.end(py)?;
                Ok(None)
            }
            Err(interrupt) => {
                self.close(py)?;
                Err(interrupt)
            }
        }
    }

    /// Ends the generation here. The text so far stays in `completion`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.owner.is_lost() {
            return Ok(());
        }
        self.watch.cancel.cancel();
        self.end(py)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        self.close(py)
    }

    /// The whole text with its tokens and times; None before the end.
    #[getter]
    fn completion(&self, py: Python<'_>) -> PyResult<Option<Completion>> {
        self.owner.check(py)?;
        Ok(py.detach(|| self.lock().generation.clone()).map(Completion))
    }
}

impl Drop for TextStream {
    /// Releasing a sequence takes the session's lock. Another thread that holds it may need the interpreter first.
    fn drop(&mut self) {
        if self.owner.is_lost() {
            // Freeing it would wait for locks and threads that a fork does not have.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            return std::mem::forget(state.stream.take());
        }
        if let Some(stream) = self.lock().stream.take() {
            Python::attach(|py| py.detach(|| drop(stream)));
        }
    }
}
