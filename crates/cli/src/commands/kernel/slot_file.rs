//! Slots of a program and the files with their bytes.

use crate::exit::{CommandFailure, CommandResult};
use millrace_npu::Slot;
use millrace_plan::workbench::described;
use std::path::{Path, PathBuf};

/// A slot and the file with its bytes, as `--input x=x.bin`.
#[derive(Clone, Debug)]
pub(super) struct SlotFile {
    pub(super) slot: String,
    pub(super) path: PathBuf,
}

impl std::str::FromStr for SlotFile {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotFile, String> {
        match text.split_once('=') {
            Some((slot, path)) if !slot.is_empty() && !path.is_empty() => Ok(SlotFile {
                slot: slot.to_owned(),
                path: path.into(),
            }),
            _ => Err("write SLOT=FILE, as x=x.bin".to_owned()),
        }
    }
}

impl SlotFile {
    /// Finds the slot of this name in a program.
    pub(super) fn slot<'s>(&self, slots: &'s [Slot], program: &Path) -> CommandResult<&'s Slot> {
        let found = slots.iter().find(|slot| slot.name == self.slot);
        found.ok_or_else(|| {
            let known: Vec<String> = slots.iter().map(described).collect();
            let message = format!("{} has no slot `{}`", program.display(), self.slot);
            CommandFailure::usage(message).hint(format!("its slots: {}", known.join("; ")))
        })
    }

    /// Reads the file; returns the slot's name and its bytes.
    pub(super) fn read(&self, slots: &[Slot], program: &Path) -> CommandResult<(String, Vec<u8>)> {
        let slot = self.slot(slots, program)?;
        let cannot = |error| CommandFailure::reading_file(&self.path, &error);
        let found = std::fs::metadata(&self.path).map_err(cannot)?.len();
        if Some(found) != slot.size_bytes() {
            let message = format!(
                "{} has {found} bytes; slot {} is wanted, row by row, little-endian, without a header",
                self.path.display(),
                described(slot)
            );
            return Err(CommandFailure::bad_input(message));
        }
        let bytes = std::fs::read(&self.path).map_err(cannot)?;
        Ok((self.slot.clone(), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_files_are_joined_by_an_equals_sign() {
        let file: SlotFile = "x=a=b.bin".parse().expect("a slot and a file");
        assert_eq!((file.slot.as_str(), file.path), ("x", "a=b.bin".into()));
        for bad in ["x", "=x", "x="] {
            assert!(bad.parse::<SlotFile>().is_err(), "{bad}");
        }
    }
}
