//! Split GGUF files: `NAME-00001-of-00003.gguf` and its siblings, opened as one.
//!
//! The first shard has the model's metadata; every shard has `split.no` (from 0), `split.count` and
//! `split.tensors.count` (of all shards together).

use std::path::{Path, PathBuf};

use super::{Header, MAGIC, Metadata};
use crate::mmap::FileMapping;
use crate::{Error, recognize};

/// The metadata keys of a split.
pub mod keys {
    /// This shard's number, from 0.
    pub const NO: &str = "split.no";
    /// Number of shards.
    pub const COUNT: &str = "split.count";
    /// Number of tensors in all shards together.
    pub const TENSORS_COUNT: &str = "split.tensors.count";
}

/// Parts of a shard's file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitName {
    /// Folder and name, up to the dash before the numbers.
    pub prefix: PathBuf,
    /// From 1.
    pub number: u32,
    /// Number of shards.
    pub count: u32,
    extension: &'static str,
}

impl SplitName {
    /// Reads `NAME-00002-of-00003.gguf`; `None` for other names.
    pub fn parse(path: &Path) -> Option<SplitName> {
        SplitName::parse_with(path, ".gguf")
    }

    /// The same for another extension, which includes its dot.
    pub(crate) fn parse_with(path: &Path, extension: &'static str) -> Option<SplitName> {
        let name = path.file_name()?.to_str()?.strip_suffix(extension)?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then(|| SplitName {
            prefix: path.with_file_name(prefix),
            number,
            count,
            extension,
        })
    }

    /// The path of shard `number`, from 1.
    pub fn shard(&self, number: u32) -> PathBuf {
        let mut name = self.prefix.clone().into_os_string();
        let (count, extension) = (self.count, self.extension);
        name.push(format!("-{number:05}-of-{count:05}{extension}"));
        name.into()
    }
}

fn five_digits(text: &str) -> Option<u32> {
    if text.len() != 5 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// One opened file of a model.
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    pub(crate) mapping: FileMapping,
    pub(crate) header: Header,
}

impl Shard {
    pub(crate) fn open(path: &Path) -> Result<Shard, Error> {
        let mapping = FileMapping::open(path)?;
        recognize::check_weights(&mapping, path)?;
        let header = Header::parse(&mapping, path)?;
        check_not_joined(&mapping, &header, path)?;
        Ok(Shard {
            path: path.to_owned(),
            mapping,
            header,
        })
    }
}

/// Refuses shards that were joined with `cat`: a shard's data ends where another file begins.
fn check_not_joined(bytes: &[u8], header: &Header, path: &Path) -> Result<(), Error> {
    if header.metadata.get_u64(keys::COUNT)?.unwrap_or(1) < 2 {
        return Ok(());
    }
    let ends = header
        .tensors
        .iter()
        .map(|tensor| tensor.offset + tensor.size_bytes as u64);
    let end = ends.max().unwrap_or(header.data_offset);
    // A writer pads the last tensor to the alignment.
    let rest = bytes.get(end as usize..).unwrap_or_default();
    let rest = &rest[..rest.len().min(header.alignment as usize + MAGIC.len())];
    if !rest.windows(MAGIC.len()).any(|window| window == MAGIC) {
        return Ok(());
    }
    Err(Error::NotAModel {
        file: path.to_owned(),
        what: "several shards of a GGUF model, joined into one file".to_owned(),
        advice:
            "do not join them: name the first shard, NAME-00001-of-0000N.gguf, beside the others, \
                 or merge them with `llama-gguf-split --merge`"
                .to_owned(),
    })
}

/// Opens a GGUF file and, if it is a shard, all its siblings, first shard first.
pub(crate) fn open_split(path: &Path) -> Result<Vec<Shard>, Error> {
    let opened = Shard::open(path)?;
    let count = opened.header.metadata.get_u64(keys::COUNT)?;
    let name = SplitName::parse(path);
    match (&name, count) {
        (None, None | Some(0 | 1)) => return Ok(vec![opened]),
        (None, Some(count)) => {
            return Err(Error::ShardName {
                file: path.to_owned(),
                count,
            });
        }
        (Some(name), _) => check_count(path, name, &opened.header.metadata)?,
    }
    let Some(name) = name.filter(|name| name.count > 1) else {
        return Ok(vec![opened]);
    };
    let first_path = name.shard(1);
    let mut opened = Some(opened);
    let mut shards: Vec<Shard> = Vec::new();
    for number in 1..=name.count {
        let shard_path = name.shard(number);
        let shard = match opened.take_if(|_| number == name.number) {
            Some(shard) => shard,
            None => open_sibling(&shard_path, path)?,
        };
        check_count(&shard_path, &name, &shard.header.metadata)?;
        check_number(&shard, number)?;
        if let Some(first) = shards.first() {
            check_same_model(&shard, first)?;
        }
        shards.push(shard);
    }
    check_total(&shards, &first_path)?;
    Ok(shards)
}

fn open_sibling(shard: &Path, opened: &Path) -> Result<Shard, Error> {
    // A link without a target gives its own error.
    if !shard.exists() && shard.read_link().is_err() {
        return Err(Error::MissingShard {
            shard: shard.to_owned(),
            listed_in: opened.to_owned(),
        });
    }
    Shard::open(shard)
}

/// The shard's own count must equal that of its name. A name with a count of 1 needs no keys.
fn check_count(path: &Path, name: &SplitName, metadata: &Metadata) -> Result<(), Error> {
    let found = metadata.get_u64(keys::COUNT)?;
    if found == Some(u64::from(name.count)) || (name.count == 1 && found.is_none()) {
        return Ok(());
    }
    Err(Error::ShardCount {
        file: path.to_owned(),
        expected: u64::from(name.count),
        found: found.map_or("none".to_owned(), |n| n.to_string()),
    })
}

/// `split.no` counts from 0, names from 1.
fn check_number(shard: &Shard, number: u32) -> Result<(), Error> {
    let metadata = &shard.header.metadata;
    let found = metadata.required(keys::NO, metadata.get_u64(keys::NO)?)?;
    if found == u64::from(number) - 1 {
        return Ok(());
    }
    Err(Error::DuplicateShard {
        file: shard.path.clone(),
        expected: u64::from(number),
        found: found.saturating_add(1),
    })
}

fn check_same_model(shard: &Shard, first: &Shard) -> Result<(), Error> {
    let (ours, theirs) = (&shard.header.metadata, &first.header.metadata);
    for key in [keys::TENSORS_COUNT, "general.architecture"] {
        // Later shards may leave the model's own keys out.
        if let (Some(our), Some(their)) = (ours.get(key), theirs.get(key))
            && our != their
        {
            return Err(Error::MixedShards {
                file: shard.path.clone(),
                first: first.path.clone(),
                reason: format!("{key} is {}, expected {}", our.describe(), their.describe()),
            });
        }
    }
    Ok(())
}

fn check_total(shards: &[Shard], first_path: &Path) -> Result<(), Error> {
    let metadata = &shards[0].header.metadata;
    let total = metadata.get_u64(keys::TENSORS_COUNT)?;
    let expected = metadata.required(keys::TENSORS_COUNT, total)?;
    let found: u64 = shards
        .iter()
        .map(|shard| shard.header.tensors.len() as u64)
        .sum();
    if found == expected {
        return Ok(());
    }
    let last = &shards[shards.len() - 1];
    Err(Error::MixedShards {
        file: last.path.clone(),
        first: first_path.to_owned(),
        reason: format!("the shards hold {found} tensors, expected {expected}"),
    })
}
