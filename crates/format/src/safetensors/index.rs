//! The index of a sharded model: which shard holds which tensor.

use std::fmt;
use std::path::{Component, Path};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::{Error, extents};

/// A parsed `model.safetensors.index.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Tensor and the name of its shard, a plain file name in the index's folder; in file order.
    pub weight_map: Vec<(String, String)>,
}

impl Index {
    /// Parses the JSON of the index file `file`.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::BadField`] if it lists nothing, [`Error::DuplicateTensor`],
    /// [`Error::UnsafeShardName`] for a shard that is not a plain file name, [`Error::CyclicIndex`]
    /// for one that is an index.
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Index, Error> {
        let raw: RawIndex = serde_json::from_slice(bytes).map_err(|source| Error::Json {
            file: file.to_owned(),
            what: "the safetensors index is not valid",
            source,
        })?;
        let weight_map = raw.weight_map.0;
        if weight_map.is_empty() {
            return Err(Error::BadField {
                file: file.to_owned(),
                what: "weight_map".to_owned(),
                offset: 0,
                expected: "at least one tensor",
                found: "none".to_owned(),
            });
        }
        extents::check_unique(weight_map.iter().map(|(tensor, _)| tensor.as_str()), file)?;
        for (tensor, shard) in &weight_map {
            check_shard_name(tensor, shard, file)?;
        }
        Ok(Index { weight_map })
    }

    /// The shards' names, each once, in alphabetical order.
    pub fn shards(&self) -> Vec<&str> {
        let mut shards: Vec<&str> = self
            .weight_map
            .iter()
            .map(|(_, shard)| shard.as_str())
            .collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// The JSON of this index; `total_bytes` is the size of all tensors together.
    pub fn to_json(&self, total_bytes: u64) -> String {
        let weights: serde_json::Map<_, _> = self
            .weight_map
            .iter()
            .map(|(tensor, shard)| (tensor.clone(), shard.as_str().into()))
            .collect();
        let json = serde_json::json!({
            "metadata": { "total_size": total_bytes },
            "weight_map": weights,
        });
        format!("{json:#}\n")
    }
}

fn check_shard_name(tensor: &str, shard: &str, index: &Path) -> Result<(), Error> {
    let mut components = Path::new(shard).components();
    let is_plain = matches!(
        (components.next(), components.next()),
        (Some(Component::Normal(name)), None) if name == shard
    );
    // A backslash is a separator on other systems, and a zero byte ends a name for the operating system.
    if !is_plain || shard.contains(['\\', '\0']) {
        return Err(Error::UnsafeShardName {
            index: index.to_owned(),
            tensor: tensor.to_owned(),
            shard: shard.to_owned(),
        });
    }
    if shard.to_ascii_lowercase().ends_with(".json") {
        return Err(Error::CyclicIndex {
            index: index.to_owned(),
            tensor: tensor.to_owned(),
            shard: shard.to_owned(),
        });
    }
    Ok(())
}

#[derive(serde::Deserialize)]
struct RawIndex {
    weight_map: WeightMap,
}

/// In file order and with any duplicates.
struct WeightMap(Vec<(String, String)>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor;

        impl<'de> Visitor<'de> for MapVisitor {
            type Value = WeightMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensor and shard names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(WeightMap(entries))
            }
        }

        deserializer.deserialize_map(MapVisitor)
    }
}
