//! Sequences that are kept in a file between runs.

use crate::session::Lease;
use crate::stream::Stream;
use crate::{Event, Options, PromptTokens, Result, Session};
use millrace_runtime::disk::FileLock;
use millrace_runtime::{Engine, Generation, SeqId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a sequence, locked as long as this lives.
#[derive(Debug)]
pub(crate) struct SequenceFile {
    path: PathBuf,
    _lock: FileLock,
}

impl SequenceFile {
    pub(crate) fn lock(path: &Path) -> Result<SequenceFile> {
        Ok(SequenceFile {
            _lock: FileLock::beside(path).map_err(millrace_runtime::Error::from)?,
            path: path.to_owned(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills the sequence from the file; returns the file's note, which is empty if there is no file.
    pub(crate) fn load(&self, engine: &mut dyn Engine, seq: SeqId) -> Result<Vec<u8>> {
        Ok(engine.load_sequence(seq, &self.path)?.unwrap_or_default())
    }

    pub(crate) fn save(&self, engine: &dyn Engine, seq: SeqId, note: &[u8]) -> Result<()> {
        Ok(engine.save_sequence(seq, note, &self.path)?)
    }
}

/// A sequence whose keys, values and states are kept in a file, so that another run of the program need not compute
/// them again. [`Session::kept_in`] makes one. The texts are the same with it and without.
///
/// ```
/// use millrace::{Model, Options, Prompt};
///
/// # fn main() -> Result<(), millrace::Error> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("story.session");
/// let model = Model::open("demo")?;
/// let session = model.on("cpu")?;
/// let how = Options::greedy().max_tokens(8);
/// let mut kept = session.kept_in(&path)?;
/// let text = kept.generate("Once upon a time there was a little dog", &how)?.text;
/// kept.save()?;
/// drop(kept);
///
/// let mut kept = session.kept_in(&path)?;
/// let again = kept.generate("Once upon a time there was a little dog", &how)?;
/// assert_eq!(again.text, text);
/// assert!(again.timings.n_prefill < 4);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KeptSequence {
    lease: Arc<Lease>,
    file: SequenceFile,
    /// The chat's own data beside it.
    note: Vec<u8>,
}

impl Session {
    /// A sequence that continues where the file ends; an empty one if there is no file. The file is locked until the
    /// sequence is dropped.
    ///
    /// # Errors
    /// A file that is damaged, or of another model, build, level or cache format; a file locked by another process; a
    /// session on a device.
    pub fn kept_in(&self, path: impl AsRef<Path>) -> Result<KeptSequence> {
        let file = SequenceFile::lock(path.as_ref())?;
        let lease = Arc::new(Lease::new(self)?);
        let note = file.load(&mut *self.lock().engine, lease.seq)?;
        Ok(KeptSequence { lease, file, note })
    }
}

impl KeptSequence {
    /// Number of tokens in the sequence.
    pub fn n_tokens(&self) -> usize {
        let session = self.lease.session();
        session.with_engine(|engine| engine.len(self.lease.seq).unwrap_or(0))
    }

    /// Generates text after a prompt, which is the whole context: the part that the sequence already holds is not
    /// computed again.
    ///
    /// # Errors
    /// As [`Session::generate_with`].
    pub fn generate(
        &mut self,
        prompt: impl Into<crate::Prompt>,
        options: &Options,
    ) -> Result<Generation> {
        let prepared = self.lease.session().model().prepare(prompt)?;
        self.generate_prepared(prepared, options, &mut |_| {})
    }

    /// As [`generate`](KeptSequence::generate), for a prepared prompt; `on_event` gets the events.
    ///
    /// # Errors
    /// As [`Session::generate_prepared`].
    pub fn generate_prepared(
        &mut self,
        prepared: PromptTokens,
        options: &Options,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generation> {
        let turn = self.lease.session().turn(prepared, options, on_event)?;
        let stream = Stream::of(Arc::clone(&self.lease), turn, options.cancel_handle())?;
        stream.finish_events(on_event)
    }

    /// Writes the sequence to its file, whole or not at all.
    ///
    /// # Errors
    /// A file that cannot be written; a sequence with images.
    pub fn save(&self) -> Result<()> {
        let session = self.lease.session();
        session.with_engine(|engine| self.file.save(engine, self.lease.seq, &self.note))
    }
}
