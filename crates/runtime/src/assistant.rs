//! An assistant beside the engine of the model that it drafts for: its graph runs over that engine's cache and appends nothing.

use std::sync::Arc;

use millrace_graph::{Embed, Op, SequenceMemory, WeightValues};
use millrace_kernels::Cpu;

use crate::Error;
use crate::engine::{ItemRows, StepOutput, StepShape, StepSink};
use crate::execute::{Chunk, Executor, Numbers, PassSink, RunSpan};
use crate::image;
use crate::kv::{KvCache, PageTables};
use crate::load::LoadedModel;
use crate::sequences::SeqId;

/// An assistant with its scratch. [`Engine::assist`](crate::Engine::assist) computes its rows, one at a time.
pub struct Assistant {
    model: Arc<LoadedModel>,
    target: Arc<LoadedModel>,
    executor: Executor,
    chunk: Chunk,
    /// How the target embeds tokens.
    embed: Embed,
}

impl Assistant {
    /// An assistant for a target.
    ///
    /// # Errors
    /// As [`LoadedModel::for_target`]; [`Error::BadOption`] for a model that is no assistant, or a target without a table.
    pub fn new(draft: &LoadedModel, target: &Arc<LoadedModel>) -> Result<Assistant, Error> {
        if !draft.is_assistant() {
            return Err(refused(draft.name(), "an assistant"));
        }
        let model = draft.for_target(target)?;
        let graph = &target.model().graph;
        let table = graph.nodes.iter().find_map(|node| match &node.op {
            Op::Embed(embed) if graph.hidden.first() == Some(&node.output) => Some(*embed),
            _ => None,
        });
        let expected = "an assistant of a model whose stream begins with a row of its table";
        let embed = table.ok_or_else(|| refused(draft.name(), expected))?;
        model.decode_packed();
        Ok(Assistant {
            executor: Executor::new(&model, 1)?,
            model: Arc::new(model),
            target: Arc::clone(target),
            chunk: Chunk::default(),
            embed,
        })
    }

    /// The assistant, bound to its target.
    pub fn model(&self) -> &Arc<LoadedModel> {
        &self.model
    }

    /// Refuses an engine that hides its keys and values, for this reason.
    pub(crate) fn refuse(&self, hidden: Option<&'static str>) -> Result<(), Error> {
        match hidden {
            None => Ok(()),
            Some(expected) => Err(refused(self.model.name(), expected)),
        }
    }

    /// A row behind the tokens of a sequence; see [`Engine::assist`](crate::Engine::assist).
    pub(crate) fn row(
        &mut self,
        (cpu, target): (&Cpu, &Arc<LoadedModel>),
        (cache, seq): (&mut KvCache, SeqId),
        (token, state): (u32, &[f32]),
        output: &mut StepOutput,
    ) -> Result<bool, Error> {
        let n_tokens = cache.len(seq)?;
        let config = &target.model().config;
        let (d_model, vocab_size) = (config.d_model, config.vocab_size);
        if !Arc::ptr_eq(&self.target, target) {
            return Err(refused(self.model.name(), "the assistant of this model"));
        }
        if state.len() != d_model {
            let found = format!("{} numbers", state.len());
            let expected = "a row of the model's width";
            return Err(Error::BadOption {
                option: "the state given to an assistant",
                found,
                expected,
            });
        }
        if token as usize >= vocab_size || image::is_row(token) {
            return Err(Error::BadToken { token, vocab_size });
        }
        let Some(last) = n_tokens.checked_sub(1) else {
            return Ok(false);
        };
        if !self.sees_all(cache.shared().1, (seq, last)) {
            return Ok(false);
        }
        self.fill(seq, last, token);
        let embedding = &mut self.chunk.given;
        embedding.resize(d_model, 0.0);
        let vectors = &[];
        let model = &**target;
        let numbers = Numbers {
            cpu,
            model,
            vectors,
        };
        numbers.row(self.embed.table, token as usize, embedding);
        embedding.iter_mut().for_each(|x| *x *= self.embed.scale);
        embedding.extend_from_slice(state);
        output.begin(StepShape {
            n_items: 1,
            vocab_size: self.model.model().config.vocab_size,
            d_model,
        });
        let (cache, sink) = (cache.parts(), &mut RowSink(output));
        self.executor
            .run(cpu, &self.model, cache, None, &self.chunk, sink)?;
        Ok(true)
    }

    /// Whether the cache still holds every position that a layer sees from behind the token `last`.
    fn sees_all(&self, tables: PageTables<'_>, (seq, last): (SeqId, usize)) -> bool {
        let mut nodes = self.model.model().graph.nodes.iter();
        nodes.all(|node| match node.op.memory() {
            SequenceMemory::TargetKv(kv) => kv.seen(last).start >= tables.pages(seq, kv.layer).1,
            _ => true,
        })
    }

    /// One row, which sees the tokens up to `last` and rotates by the position behind.
    fn fill(&mut self, seq: SeqId, last: usize, token: u32) {
        self.chunk.clear();
        self.chunk.push_tokens(&[token], &[]);
        self.chunk.push_positions(last + 1);
        self.chunk.spans.push(RunSpan {
            seq,
            rows: 0..1,
            first_pos: last,
            is_replay: false,
            takes_snapshot: false,
        });
        self.chunk.logit_rows.push(0);
        self.chunk.hidden = true;
    }
}

fn refused(name: &str, expected: &'static str) -> Error {
    Error::BadOption {
        option: "draft",
        found: name.to_owned(),
        expected,
    }
}

/// Takes the logits and the state of a row. The state is an assistant's only hidden one.
struct RowSink<'a>(&'a mut StepOutput);

impl RowSink<'_> {
    fn item(data: &[f32]) -> ItemRows<'_> {
        ItemRows {
            item: 0,
            first_token: 0,
            data,
        }
    }
}

impl PassSink for RowSink<'_> {
    fn hidden(&mut self, _index: usize, rows: &[f32]) {
        StepSink::head_input(self.0, RowSink::item(rows));
    }

    fn head_input(&mut self, _rows: &[f32]) {}

    fn logits(&mut self, rows: &[f32], _width: usize) {
        StepSink::logits(self.0, RowSink::item(rows));
    }
}
