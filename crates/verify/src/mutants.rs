//! The test of the checks themselves: devices that are wrong in one slot of one program.

use crate::ops::{Mismatch, OpCheck};
use crate::verification::{Baseline, Continuation, PathStep, follow, judge};
use millrace_npu::{Corruption, Inject, Injection};
use millrace_runtime::npu::{NpuError, NpuModel, NpuSession};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A device with one fault.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mutant {
    /// The program.
    pub program: String,
    /// The slot.
    pub slot: String,
    /// How its content is wrong, in every run.
    pub how: Corruption,
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.program, self.slot, self.how.name())
    }
}

/// The check that finds a mutant.
#[derive(Clone, Debug, PartialEq)]
pub enum Detection {
    /// The logits: a statistic beyond its bound.
    Logits(&'static str),
    /// The session ends with an error.
    Error(String),
    /// Only the check of every op; the string is the slot that it names.
    Ops(String),
    /// Nothing.
    Missed {
        /// Whether a byte of the slot was ever changed: twice zero is zero.
        changed: bool,
    },
}

/// Mutants of the programs that ran, and their slots.
type MutantSet = (Vec<Mutant>, BTreeSet<(String, String)>);

/// Mutants of a model on a device.
pub struct MutationTest {
    npu: Arc<NpuModel>,
    baselines: Vec<Baseline>,
    mutants: Vec<Mutant>,
}

impl MutationTest {
    /// Runs a correct device along the continuations, and lists the mutants of its programs.
    ///
    /// # Errors
    /// As [`follow`]; a device that cannot inject faults.
    pub fn new(npu: Arc<NpuModel>, baselines: Vec<Baseline>) -> Result<MutationTest, NpuError> {
        let seen: Arc<Mutex<MutantSet>> = Arc::default();
        let mut session = NpuSession::new(&npu)?;
        let to = seen.clone();
        session.observe(Some(Box::new(move |at| {
            let mut seen = to.lock().unwrap_or_else(PoisonError::into_inner);
            let (mutants, known) = &mut *seen;
            let program = &at.plan.programs[at.call.program];
            for slot in program.slots() {
                if known.insert((program.name().to_owned(), slot.name.clone())) {
                    let kinds = Corruption::WHOLE.into_iter();
                    mutants.extend(kinds.filter(|how| how.applies_to(slot)).map(|how| Mutant {
                        program: program.name().to_owned(),
                        slot: slot.name.clone(),
                        how,
                    }));
                }
            }
        })));
        for baseline in &baselines {
            follow(&mut session, baseline, &mut |_| true)?;
        }
        let mut mutants =
            std::mem::take(&mut seen.lock().unwrap_or_else(PoisonError::into_inner).0);
        if npu.planner().observed().is_some() {
            let slots = own_slots(&npu, &baselines)?;
            mutants.retain(|mutant| slots.contains(&(mutant.program.clone(), mutant.slot.clone())));
        }
        Ok(MutationTest {
            npu,
            baselines,
            mutants,
        })
    }

    /// Every slot of every program that ran, in each of the four ways that can change something of its size.
    pub fn mutants(&self) -> &[Mutant] {
        &self.mutants
    }

    /// Whether a right device passes; otherwise no mutant says anything.
    ///
    /// # Errors
    /// As [`follow`].
    pub fn honest(&self) -> Result<Detection, NpuError> {
        self.injector()?.clear();
        self.look()
    }

    /// Tests a mutant, and returns the check that finds it.
    ///
    /// # Errors
    /// If ops cannot be checked.
    pub fn test(&self, mutant: &Mutant) -> Result<Detection, NpuError> {
        self.injector()?.clear();
        self.injector()?.inject(Injection::Corrupt {
            program: mutant.program.clone(),
            slot: mutant.slot.clone(),
            how: mutant.how,
        });
        let detection = self.look();
        self.injector()?.clear();
        self.npu.wipe_caches()?;
        detection
    }

    fn injector(&self) -> Result<&dyn Inject, NpuError> {
        let device = self.npu.device();
        device.injector().ok_or_else(|| {
            NpuError::plan(
                self.npu.device_name(),
                "it does not fail on purpose, as a virtual device does",
            )
        })
    }

    fn look(&self) -> Result<Detection, NpuError> {
        let mut session = NpuSession::new(&self.npu)?;
        if let Some(detection) = self.logits(&mut session) {
            return Ok(detection);
        }
        if let Some(detection) = self.ops(&mut session)? {
            return Ok(detection);
        }
        let changed = self.injector()?.corrupted().n_changed > 0;
        Ok(Detection::Missed { changed })
    }

    fn logits(&self, session: &mut NpuSession) -> Option<Detection> {
        let (mut found, mut rounding): (Vec<PathStep>, Vec<PathStep>) = Default::default();
        // One step may be so far off that no mean can save it.
        let all = self.baselines.iter().flat_map(Baseline::rounding);
        let most = 8.0 * all.map(|step| step.deviation.kl).fold(0.0, f64::max);
        for baseline in &self.baselines {
            let mut is_far = false;
            let ended = follow(session, baseline, &mut |step| {
                found.push(step);
                // Not a number is too far as well.
                is_far = !matches!(step.deviation.kl.partial_cmp(&most), Some(o) if o.is_le());
                !is_far
            });
            if let Err(error) = ended {
                return Some(Detection::Error(error.to_string()));
            }
            if is_far {
                return Some(Detection::Logits("largest KL"));
            }
            rounding.extend(baseline.rounding());
        }
        let verdict = judge(&found, &rounding);
        verdict
            .failure()
            .map(|statistic| Detection::Logits(statistic.name))
    }

    /// Checks every op of a prompt and of the token after it. Continuations are taken from the last on; those whose
    /// plans were seen before are skipped.
    fn ops(&self, session: &mut NpuSession) -> Result<Option<Detection>, NpuError> {
        let sequences = self.npu.sequences();
        let mut seen = Vec::new();
        for continuation in self.baselines.iter().rev().map(Baseline::continuation) {
            let n_prompt = continuation.prompt.len() as u64;
            let mut kinds = sequences.prefills(&[n_prompt]);
            kinds.push(sequences.decode(n_prompt));
            if kinds.iter().all(|kind| seen.contains(kind)) {
                continue;
            }
            seen.append(&mut kinds);
            let detection = self.ops_of(session, continuation)?;
            if detection.is_some() {
                return Ok(detection);
            }
        }
        Ok(None)
    }

    fn ops_of(
        &self,
        session: &mut NpuSession,
        continuation: &Continuation,
    ) -> Result<Option<Detection>, NpuError> {
        let (check, observer) = OpCheck::new(&self.npu);
        session.observe(Some(observer));
        session.truncate(0)?;
        let ended = session.prefill(&continuation.prompt).map(|_| ());
        let token = continuation
            .choices
            .first()
            .map_or(0, |choice| choice.token);
        let ended = ended.and_then(|()| session.decode(token).map(|_| ()));
        let finding = check.summary()?.finding;
        Ok(match (finding, ended) {
            (Some(finding), _) => {
                let how = match finding.what {
                    Mismatch::Op { .. } => "computed",
                    Mismatch::Static { .. } => "loaded",
                    Mismatch::Value { .. } => "moved",
                };
                Some(Detection::Ops(format!(
                    "{}:{} {how}",
                    finding.program, finding.slot_name
                )))
            }
            (None, Err(error)) => Some(Detection::Error(error.to_string())),
            (None, Ok(())) => None,
        })
    }
}

/// Slots of the programs that run without an observer. Slots that only observed programs have are not part of the device's work.
fn own_slots(
    npu: &NpuModel,
    baselines: &[Baseline],
) -> Result<BTreeSet<(String, String)>, NpuError> {
    let sequences = npu.sequences();
    let continuations = baselines.iter().map(Baseline::continuation);
    let prompts: Vec<u64> = continuations
        .map(|continuation| continuation.prompt.len() as u64)
        .collect();
    let mut slots = BTreeSet::new();
    for kind in sequences
        .prefills(&prompts)
        .into_iter()
        .chain(sequences.decodes())
    {
        let plan = npu.planner().lower(sequences.graph, &kind);
        let plan = plan.map_err(|error| NpuError::plan(kind.name(), error.to_string()))?;
        for program in &plan.programs {
            let names = program.slots().iter();
            slots.extend(names.map(|slot| (program.name().to_owned(), slot.name.clone())));
        }
    }
    Ok(slots)
}

/// A sample of about `n`, spread evenly over all; the kinds alternate.
pub fn sample(mutants: &[Mutant], n: usize) -> Vec<Mutant> {
    // Not a multiple of the number of kinds, so that each has its turn.
    let mut stride = mutants.len().div_ceil(n.max(1)).max(1);
    if stride > 1 && stride.is_multiple_of(2) {
        stride += 1;
    }
    mutants.iter().step_by(stride).cloned().collect()
}
