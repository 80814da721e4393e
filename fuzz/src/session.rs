//! Files of conversations: written by an engine, then changed so that a reader has to judge more than checksums.

use std::sync::Arc;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use millrace_runtime::{BatchItem, CpuEngine, Engine, EngineOptions, LoadedModel};
use serde_json::Value;
use tempfile::TempDir;

use crate::{edits, models};

/// Bytes before the header: magic, version, the header's length.
const START_BYTES: usize = 16;

/// Bytes of a checksum.
const SUM_BYTES: usize = 4;

/// Tokens of the conversation: more than a page.
const N_TOKENS: u32 = 70;

/// A small model's engine, and the parts of a file that it wrote.
pub struct SessionFiles {
    engine: CpuEngine,
    folder: TempDir,
    /// Magic and version.
    start: Vec<u8>,
    header: Value,
    contents: Vec<u8>,
}

impl SessionFiles {
    /// Files of the golden model of that name.
    pub fn of(name: &str) -> SessionFiles {
        let goldens = models::goldens();
        let path = goldens.iter().find(|folder| folder.ends_with(name));
        let model = LoadedModel::open(path.expect("a golden model")).expect("it opens");
        let options = EngineOptions {
            n_threads: Some(1),
            n_ctx: Some(128),
            max_sequences: 1,
            ..EngineOptions::default()
        };
        let mut engine = CpuEngine::new(Arc::new(model), options).expect("an engine");
        let folder = models::scratch();
        let path = folder.path().join("right.kv");
        let seq = engine.create().expect("a sequence");
        let tokens: Vec<u32> = (0..N_TOKENS).map(|i| i * 7 % 100).collect();
        let item = BatchItem::last(seq, &tokens);
        engine.compute(&[item]).expect("a pass");
        engine.save_sequence(seq, b"a note", &path).expect("a file");
        engine.release(seq).expect("the sequence");
        let bytes = std::fs::read(&path).expect("the file");
        let length = [12, 13, 14, 15].map(|at| bytes[at]);
        let end = START_BYTES + u32::from_le_bytes(length) as usize;
        SessionFiles {
            engine,
            folder,
            start: bytes[..12].to_vec(),
            header: serde_json::from_slice(&bytes[START_BYTES..end]).expect("a header"),
            contents: bytes[end + SUM_BYTES..bytes.len() - SUM_BYTES].to_vec(),
        }
    }

    /// The file with changes in its header, its contents, or its bytes as a whole.
    pub fn edited(&self, input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let (mut header, mut contents) = (self.header.clone(), self.contents.clone());
        if input.ratio(1, 2)? {
            // Tokens and the note come first.
            edits::edit_bytes(&mut contents, 4 * N_TOKENS as usize + 16, input)?;
            header["contents_bytes"] = contents.len().into();
        }
        // The writer's name is compared word for word, so most changes are after it.
        match input.int_in_range(0..=7u8)? {
            0 => edits::edit_json(&mut header, input)?,
            1 => {}
            _ => edits::edit_json(&mut header["contents"], input)?,
        }
        let json = header.to_string().into_bytes();
        let mut bytes = self.start.clone();
        bytes.extend((json.len() as u32).to_le_bytes());
        bytes.extend(json);
        bytes.extend(crc32(&bytes).to_le_bytes());
        bytes.extend(&contents);
        bytes.extend(crc32(&contents).to_le_bytes());
        if input.ratio(1, 8)? {
            edits::edit_bytes(&mut bytes, 64, input)?;
        }
        Ok(bytes)
    }

    /// Loads such a file and goes on behind it.
    ///
    /// # Panics
    /// If the loaded state cannot be computed with.
    pub fn load(&mut self, bytes: &[u8]) {
        let path = self.folder.path().join("fuzz.kv");
        std::fs::write(&path, bytes).expect("a file");
        let engine = &mut self.engine;
        let seq = engine.create().expect("a sequence");
        match engine.load_sequence(seq, &path) {
            Ok(note) => assert!(note.is_some(), "the file is there"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        let room = engine.room(&[seq], 0).expect("the sequence");
        if room > 0 {
            let computed = engine.compute(&[BatchItem::last(seq, &[1])]);
            assert!(!computed.expect("there is room").logits(0).is_empty());
        }
        engine.release(seq).expect("the sequence");
    }
}

/// The checksum of such files (IEEE 802.3), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32| match sum & 1 {
        1 => (sum >> 1) ^ 0xedb8_8320,
        _ => sum >> 1,
    };
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum))
    })
}
