//! A model on one chip or several: memory, and times of a prompt and a token.
//!
//! *Pipeline* gives each chip a run of layers. *Tensor* gives each chip a share of every layer, by heads of keys and
//! values and by columns of the feed-forward. It adds up after each half of a layer: a shuffle over the link to each
//! other chip, then a vector addition. Times are of one pass of one batch, from its tokens to its logits; of the host
//! they contain only the constants of the profile.

use crate::Element;
use crate::lower::{
    self, Dims, LowerError, PassSizes, Target, TcpLowerOptions, TcpLowering, key_bucket,
    token_bucket,
};
use crate::timing::{TimedProgram, Timing, sequence};
use crate::{Machine, Profile};
use millrace_model::ModelConfig;
use std::collections::HashMap;
use std::ops::Range;

mod dispatches;

use dispatches::StageDispatches;

/// How chips share a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Each has some of the layers.
    Pipeline,
    /// Each has a share of all layers.
    Tensor,
}

/// Chips and how they share a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How layers are shared.
    pub split: Split,
    /// Number of chips.
    pub n_chips: u64,
}

impl Plan {
    /// Stages that follow each other: chips of a pipeline, one where all share every layer.
    pub fn n_stages(&self) -> u64 {
        match self.split {
            Split::Pipeline => self.n_chips,
            Split::Tensor => 1,
        }
    }

    /// The layers of a model in a stage.
    pub fn layers(&self, stage: u64, n_layers: u64) -> Range<u64> {
        let first = |stage: u64| stage * n_layers / self.n_stages().max(1);
        first(stage)..first(stage + 1)
    }
}

/// Why a plan is impossible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// More chips than a device has, or none.
    #[error("{asked} chips; a device has 1 to {limit}")]
    Chips {
        /// Chips asked for.
        asked: u64,
        /// Chips of a device.
        limit: u64,
    },
    /// More stages than layers.
    #[error("{n_chips} stages for {n_layers} layers: a stage needs a layer")]
    Stages {
        /// Stages.
        n_chips: u64,
        /// Layers.
        n_layers: u64,
    },
    /// Weights that exceed the memory.
    #[error(
        "the weights take {asked_bytes} bytes of each of {n_chips} chips, which have {limit_bytes}; take \
         more chips or narrower weights"
    )]
    Memory {
        /// Bytes of weights a chip.
        asked_bytes: u64,
        /// Chips.
        n_chips: u64,
        /// Memory of a chip.
        limit_bytes: u64,
    },
    /// A pass that cannot be lowered.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A program that makes no sense: a fault of the lowering.
    #[error("program `{program}`: {message}")]
    Broken {
        /// The program.
        program: String,
        /// Why.
        message: String,
    },
}

/// Memory that a plan needs on each chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Bytes of weights of the chip that has most.
    pub weight_bytes: u64,
    /// Bytes of keys and values a token, of that chip.
    pub token_bytes: u64,
    /// Tokens of all sequences that fit beside the weights; `None` where the weights do not fit.
    pub n_tokens: Option<u64>,
}

/// A model with how it is lowered.
#[derive(Clone, Debug)]
pub struct ParallelModel<'c> {
    /// The hyperparameters.
    pub config: &'c ModelConfig,
    /// Weights, buffering, order of rows; `n_shards` is the plan's.
    pub options: TcpLowerOptions,
    /// The machine.
    pub machine: &'c Machine,
    /// The profile.
    pub profile: &'c Profile,
}

/// A pass's time.
#[derive(Clone, Debug, PartialEq)]
pub struct PassTime {
    /// From tokens to logits, in nanoseconds, modelled.
    pub total_ns: f64,
    /// Bytes that the memories of all stages moved; those of one chip where layers are shared.
    pub hbm_bytes: f64,
    /// Commands of one chip.
    pub n_commands: usize,
}

/// The programs of a pass on one chip.
struct Programs {
    embed: TimedProgram,
    attention: TimedProgram,
    feed_forward: TimedProgram,
    head: TimedProgram,
    /// Exchange and sum, where layers are shared.
    joint: Option<(TimedProgram, TimedProgram)>,
}

impl ParallelModel<'_> {
    /// Memory that a plan needs on each chip.
    ///
    /// # Errors
    /// Where the number of chips, layers or heads does not allow it; not where it does not fit.
    pub fn fit(&self, plan: Plan) -> Result<Fit, PlanError> {
        let (n, c) = (plan.n_chips, self.config);
        self.check(plan)?;
        let dims = self.dims(plan)?;
        let (d, f, head) = (dims.d_model, dims.d_ff, dims.head_dim);
        let kv = dims.n_kv_heads * head;
        let q = kv * dims.n_groups;
        let rows = q + 2 * kv + d + 2 * f + d;
        let matrices = d * (q + 2 * kv) + q * d + 3 * d * f;
        let stored = self.options.weights.stored();
        let scales = if stored == Element::Bf16 { 0 } else { 4 * rows };
        let layer = stored.bytes(matrices) + scales + 2 * 4 * d;
        let table = Element::Bf16.bytes(c.vocab_size as u64 * d);
        let n_layers = c.n_layers as u64;
        let (weight_bytes, layers) = match plan.split {
            _ if n == 1 => {
                let ends = if c.tied_head { table } else { 2 * table };
                (n_layers * layer + ends + 4 * d, n_layers)
            }
            // The first stage has the table, the last the head.
            Split::Pipeline => {
                let layers = n_layers.div_ceil(n);
                (layers * layer + table + 4 * d, layers)
            }
            Split::Tensor => (n_layers * layer + 2 * table / n + 4 * d, n_layers),
        };
        let token_bytes = layers * 2 * Element::Bf16.bytes(kv);
        let left = self.machine.hbm_bytes.checked_sub(weight_bytes);
        Ok(Fit {
            weight_bytes,
            token_bytes,
            n_tokens: left.map(|left| left / token_bytes),
        })
    }

    fn check(&self, plan: Plan) -> Result<(), PlanError> {
        let (n, n_layers) = (plan.n_chips, self.config.n_layers as u64);
        if n == 0 || n > self.machine.chips {
            return Err(PlanError::Chips {
                asked: n,
                limit: self.machine.chips,
            });
        }
        if plan.split == Split::Pipeline && n > n_layers {
            return Err(PlanError::Stages {
                n_chips: n,
                n_layers,
            });
        }
        Ok(())
    }

    fn shards(&self, plan: Plan) -> u64 {
        match plan.split {
            Split::Pipeline => 1,
            Split::Tensor => plan.n_chips,
        }
    }

    fn dims(&self, plan: Plan) -> Result<Dims, PlanError> {
        Ok(Dims::of(self.config, self.shards(plan))?)
    }

    fn fits(&self, plan: Plan) -> Result<(), PlanError> {
        let fit = self.fit(plan)?;
        match fit.n_tokens {
            Some(_) => Ok(()),
            None => Err(PlanError::Memory {
                asked_bytes: fit.weight_bytes,
                n_chips: plan.n_chips,
                limit_bytes: self.machine.hbm_bytes,
            }),
        }
    }

    fn programs(&self, plan: Plan, call: PassSizes) -> Result<Programs, PlanError> {
        let n_shards = self.shards(plan);
        let dims = self.dims(plan)?;
        let options = TcpLowerOptions {
            n_shards,
            ..self.options
        };
        let target = Target {
            machine: self.machine,
            dims: &dims,
            options,
            call,
        };
        let timed = |lowered: Result<TcpLowering, LowerError>| -> Result<TimedProgram, PlanError> {
            let program = lowered?.program;
            let timed = TimedProgram::new(&program, self.machine, self.profile);
            timed.map_err(|broken| PlanError::Broken {
                program: program.name.clone(),
                message: broken.message,
            })
        };
        // The head is shared by rows.
        let head_dims = Dims {
            vocab_size: dims.vocab_size.div_ceil(n_shards),
            ..dims.clone()
        };
        let head = Target {
            dims: &head_dims,
            ..target
        };
        let joint = match n_shards {
            1 => None,
            _ => Some((
                timed(lower::exchange(target))?,
                timed(lower::reduce(target))?,
            )),
        };
        Ok(Programs {
            embed: timed(lower::embed(target))?,
            attention: timed(lower::attention(target))?,
            feed_forward: timed(lower::feed_forward(target))?,
            head: timed(lower::head(head))?,
            joint,
        })
    }

    /// A pass over the bucket of these sizes: from tokens to logits.
    ///
    /// # Errors
    /// Where the plan does not fit, or the pass cannot be lowered.
    pub fn pass(&self, plan: Plan, call: PassSizes) -> Result<PassTime, PlanError> {
        self.fits(plan)?;
        let programs = self.programs(plan, call)?;
        let n_layers = self.config.n_layers as u64;
        let stages = plan.n_stages();
        let mut total = PassTime {
            total_ns: 0.0,
            hbm_bytes: 0.0,
            n_commands: 0,
        };
        let mut known: HashMap<(u64, bool, bool), (Timing, usize)> = HashMap::new();
        for stage in 0..stages {
            let own = plan.layers(stage, n_layers);
            let layers = own.end - own.start;
            let ends = (stage == 0, stage + 1 == stages);
            let key = (layers, ends.0, ends.1);
            let (timing, n_commands) = known
                .entry(key)
                .or_insert_with(|| self.stage(&programs, layers, ends));
            total.total_ns += timing.total_ns;
            total.hbm_bytes += timing.hbm_bytes;
            total.n_commands = total.n_commands.max(*n_commands);
        }
        let bytes = (call.n_rows() * self.config.d_model as u64 * 2) as f64;
        let link = self.machine.host_link_bytes as f64 / self.machine.cycle_ns();
        let start = self.profile.dma_start_cycles * self.machine.cycle_ns();
        let hop = bytes / link + start + self.profile.hop_ns;
        total.total_ns += (stages - 1) as f64 * hop;
        Ok(total)
    }

    /// One stage. Layers are alike: each layer beyond eight adds a quarter of the difference between eight and four.
    fn stage(&self, programs: &Programs, layers: u64, ends: (bool, bool)) -> (Timing, usize) {
        const FEW: u64 = 4;
        if layers <= 2 * FEW {
            return self.whole_stage(programs, layers, ends);
        }
        let (few, n_few) = self.whole_stage(programs, FEW, ends);
        let (mut timing, n_more) = self.whole_stage(programs, 2 * FEW, ends);
        let rest = (layers - 2 * FEW) as f64 / FEW as f64;
        timing.total_ns += rest * (timing.total_ns - few.total_ns);
        timing.hbm_bytes += rest * (timing.hbm_bytes - few.hbm_bytes);
        let n_commands = n_more + (n_more - n_few) * (layers - 2 * FEW) as usize / FEW as usize;
        (timing, n_commands)
    }

    /// All layers of a stage with separate buffers; the stream of activations is handed on.
    fn whole_stage(
        &self,
        programs: &Programs,
        layers: u64,
        (is_first, is_last): (bool, bool),
    ) -> (Timing, usize) {
        let mut stage = StageDispatches::default();
        if is_first {
            stage.push(&programs.embed);
        }
        for half in 0..2 * layers {
            let from = stage.push(match half % 2 {
                0 => &programs.attention,
                _ => &programs.feed_forward,
            });
            if let Some((exchange, reduce)) = &programs.joint {
                stage.push_sum(exchange, reduce, from);
            }
        }
        if is_last {
            stage.push(&programs.head);
        }
        let list = stage.list;
        let n_commands = list.iter().map(|one| one.program.n_commands()).sum();
        let (mut timing, _) = sequence(&list, self.machine, self.profile);
        timing.total_ns += (list.len() as f64 - 1.0) * self.profile.dispatch_ns;
        (timing, n_commands)
    }

    /// Time to the first token of a prompt: as few passes as data memory allows.
    ///
    /// # Errors
    /// As [`pass`](ParallelModel::pass).
    pub fn prompt(&self, plan: Plan, n_tokens: u64) -> Result<PassTime, PlanError> {
        let mut largest = token_bucket(n_tokens);
        loop {
            match self.prompt_in(plan, n_tokens, largest) {
                Err(PlanError::Lower(LowerError::DataMemory { .. })) if largest > 1 => {
                    largest = token_bucket(largest.div_ceil(2));
                }
                other => return other,
            }
        }
    }

    fn prompt_in(&self, plan: Plan, n_tokens: u64, largest: u64) -> Result<PassTime, PlanError> {
        let mut total: Option<PassTime> = None;
        let mut done = 0;
        while done < n_tokens {
            let part = (n_tokens - done).min(largest);
            let bucket = token_bucket(part);
            let n_keys = key_bucket(done + bucket);
            let call = PassSizes {
                batch: 1,
                n_tokens: bucket,
                n_keys,
                n_cache: n_keys,
            };
            let pass = self.pass(plan, call)?;
            done += part;
            total = Some(match total {
                None => pass,
                Some(sum) => PassTime {
                    total_ns: sum.total_ns + pass.total_ns,
                    hbm_bytes: sum.hbm_bytes + pass.hbm_bytes,
                    n_commands: sum.n_commands + pass.n_commands,
                },
            });
        }
        total.ok_or(PlanError::Lower(LowerError::Size {
            what: "the prompt".into(),
            found: 0,
            expected: "at least one token".into(),
        }))
    }

    /// Time of a token of each of `batch` sequences with so many tokens in the cache.
    ///
    /// # Errors
    /// As [`pass`](ParallelModel::pass).
    pub fn token(&self, plan: Plan, batch: u64, n_keys: u64) -> Result<PassTime, PlanError> {
        let n_keys = key_bucket(n_keys);
        self.pass(
            plan,
            PassSizes {
                batch: batch.next_power_of_two(),
                n_tokens: 1,
                n_keys,
                n_cache: n_keys,
            },
        )
    }
}

#[cfg(test)]
mod tests;
