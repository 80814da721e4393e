//! A sequence of an engine in a file.

use super::file::{FileContents, FileHeader, FileReader, FileWriter};
use super::{CacheIdentity, DiskError};
use crate::Error;
use crate::image::is_row;
use crate::kv::disk::sequence_of;
use crate::sequences::SeqId;
use crate::shell::Shell;
use std::path::Path;

/// Writes the memory of a sequence, with a note.
pub(crate) fn save(
    shell: &Shell,
    identity: &CacheIdentity,
    seq: SeqId,
    note: &[u8],
    path: &Path,
) -> Result<(), Error> {
    let (tokens, spans) = shell.cache.spans(seq)?;
    if tokens.iter().any(|token| is_row(*token)) {
        return Err(DiskError::Images.into());
    }
    let (n_tokens, note_bytes) = (tokens.len() as u64, note.len() as u64);
    let header = FileHeader {
        identity: identity.clone(),
        contents_bytes: size_of_val(tokens) as u64 + note_bytes + shell.cache.span_bytes(&spans),
        contents: FileContents::Sequence {
            n_tokens,
            note_bytes,
            tables: spans.clone(),
        },
    };
    let mut writer = FileWriter::create(path, &header)?;
    for token in tokens {
        writer.write(&token.to_le_bytes())?;
    }
    writer.write(note)?;
    shell.cache.write_pages(seq, &spans, &mut writer)?;
    writer.commit()?;
    Ok(())
}

/// Loads a sequence from a file, and returns the note; `None` if the file does not exist.
pub(crate) fn load(
    shell: &mut Shell,
    identity: &CacheIdentity,
    seq: SeqId,
    path: &Path,
) -> Result<Option<Vec<u8>>, Error> {
    let Some((contents, mut reader)) = FileReader::open(path, identity)? else {
        return Ok(None);
    };
    let (n_tokens, note_bytes, spans) = sequence_of(contents, &reader)?;
    let n_ctx = shell.limits.n_ctx;
    if n_tokens > n_ctx as u64 {
        return Err(DiskError::TooLong {
            path: path.to_owned(),
            n_tokens,
            n_ctx,
        }
        .into());
    }
    // Before room is made for it: the file cannot have more than it has.
    if n_tokens * 4 > reader.left() || note_bytes > reader.left() - n_tokens * 4 {
        let problem = format!("{n_tokens} tokens and a note of {note_bytes} bytes are too many");
        return Err(reader.damaged("header", problem).into());
    }
    let mut tokens = vec![0; n_tokens as usize];
    reader.read_tokens(&mut tokens)?;
    let mut note = vec![0; note_bytes as usize];
    reader.read(&mut note)?;
    let vocab_size = shell.model.model().config.vocab_size;
    if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab_size) {
        let problem = format!("token {token} is not in the vocabulary of {vocab_size}");
        return Err(reader.damaged("contents", problem).into());
    }
    shell.cache.read_pages(seq, &tokens, &spans, reader)?;
    Ok(Some(note))
}
