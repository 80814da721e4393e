//! Any bytes as the index of a sharded model: an error, or shards that are plain file names.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use millrace_format::safetensors::Index;

fuzz_target!(|bytes: &[u8]| {
    match Index::parse(bytes, Path::new("fuzz.index.json")) {
        Ok(index) => {
            for shard in index.shards() {
                let path = Path::new("folder").join(shard);
                assert_eq!(path.parent(), Some(Path::new("folder")));
            }
            let again = Index::parse(index.to_json(0).as_bytes(), Path::new("again.json"));
            assert_eq!(again.ok(), Some(index));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
