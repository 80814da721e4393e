//! Before the first step: whether all ranks run the same model in the same way.

use serde::{Deserialize, Serialize};

use millrace_graph::{AllGather, WeightId};
use millrace_kernels::{Cpu, CpuOptions};

use super::{Communicator, RankError};
use crate::Error;
use crate::cpu_engine::EngineOptions;
use crate::load::LoadedModel;

/// Bytes of a weight's beginning that tell files apart.
const SAMPLE_BYTES: usize = 64;

/// Properties that must agree on all ranks for equal results: names and values.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RankSetup(Vec<(String, String)>);

impl RankSetup {
    /// Setup of a whole model and the options of its engine.
    pub(super) fn of(model: &LoadedModel, options: &EngineOptions) -> Result<RankSetup, Error> {
        let cpu = Cpu::new(CpuOptions {
            n_threads: Some(1),
            level: options.level,
        })?;
        // Ranks may have different numbers of threads; sums are taken in a level's order.
        let options = EngineOptions {
            n_threads: None,
            level: None,
            ..options.clone()
        };
        let rows = [
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("weights", format!("{:016x}", fingerprint(model))),
            ("CPU level", cpu.level().to_string()),
            ("options", format!("{options:?}")),
        ];
        let rows = rows.map(|(name, value)| (name.to_owned(), value));
        Ok(RankSetup(rows.to_vec()))
    }

    /// The first difference from the leader's setup, if any.
    fn difference(&self, leader: &RankSetup) -> Option<String> {
        let pairs = self.0.iter().zip(&leader.0);
        let mut pairs = pairs.filter(|(own, leader)| own != leader);
        let ((name, own), (_, other)) = pairs.next()?;
        Some(format!("its {name} is {own}, that of rank 0 is {other}"))
    }
}

/// FNV-1a (Fowler, Noll, Vo) over name, shape, format and first bytes of every weight.
fn fingerprint(model: &LoadedModel) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (id, weight) in model.model().graph.weights.iter().enumerate() {
        let (name, format) = (&weight.name, weight.dtype.name());
        let shape = [weight.n_experts, weight.n, weight.k];
        add(format!("{name} {format} {shape:?}").as_bytes());
        let bytes = model.matrix_bytes(WeightId(id), 0);
        add(&bytes[..bytes.len().min(SAMPLE_BYTES)]);
    }
    hash
}

/// Compares the setups of all ranks.
///
/// # Errors
/// On a rank that differs, the difference; on the others, which rank differs.
pub(super) fn shake_hands(ranks: &mut Communicator, own: &RankSetup) -> Result<(), RankError> {
    let place = ranks.place();
    let mut message = serde_json::to_vec(own).expect("names and values are texts");
    ranks.broadcast(&mut message)?;
    let leader = serde_json::from_slice::<RankSetup>(&message);
    let difference = match &leader {
        Ok(leader) => own.difference(leader),
        Err(_) => Some("its version is another one".to_owned()),
    };
    let flags = AllGather {
        rank: place.rank,
        n_pieces: 1,
        lens: vec![1; place.n_ranks],
        first: 0,
    };
    let mut differs = vec![0.0; place.n_ranks];
    let flag = if difference.is_some() { 1.0 } else { 0.0 };
    ranks.gather(&flags, 1, &[flag], &mut differs)?;
    if let Some(difference) = difference {
        let rank = place.rank;
        return Err(RankError::Differs { rank, difference });
    }
    match differs.iter().position(|flag| *flag != 0.0) {
        None => Ok(()),
        Some(rank) => Err(RankError::Differs {
            rank,
            difference: "its own message names the difference".to_owned(),
        }),
    }
}
