//! A part of the head for guesses: the rows of tokens that a text is likely to continue with.
//!
//! A guess of a draft layer reads one block and the head. With a vocabulary of 248,320 the head is most of that. Guesses need
//! no other rows than those of their tokens, so they read the first rows, which byte-pair encodings give to the most frequent
//! tokens (Zhao et al. 2025, FR-Spec, counts frequencies instead), and those of the tokens that texts had lately. The model's
//! own head stays whole, so no text changes: a token without a row here is never guessed.

use std::collections::HashMap;
use std::time::Instant;

use millrace_graph::WeightId;
use millrace_kernels::Cpu;
use millrace_kernels::matmul::{Activations, Multiplication, WeightMatrix, matmul};
use millrace_quant::DType;
use millrace_text::TokenKind;

use crate::engine::StepOutput;
use crate::execute::head_of;
use crate::load::LoadedModel;

/// The number of rows of a short head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortHeadSize {
    /// Rows from the head's beginning.
    pub n_first: usize,
    /// Rows of other tokens: tokens of texts replace each other there, after the control tokens.
    pub n_recent: usize,
}

impl Default for ShortHeadSize {
    /// In Qwen 2's vocabulary, 90 to 95 % of the tokens of English pages and of programs were among the first 32,768.
    fn default() -> ShortHeadSize {
        ShortHeadSize {
            n_first: 32_768,
            n_recent: 4_096,
        }
    }
}

/// Least share of tokens of texts that had a row, for a short head to be used.
const MIN_SHARE: f64 = 0.5;

/// Tokens after which an older one counts a third.
const MEMORY: f64 = 200.0;

/// Control tokens that keep their rows.
const MAX_CONTROL: usize = 256;

/// The rows, and the scratch of their products.
pub(super) struct ShortHead {
    weight: WeightId,
    dtype: DType,
    /// Rows and columns of the whole head.
    n: usize,
    k: usize,
    size: ShortHeadSize,
    /// Tokens behind the first ones, with their rows in the same order.
    recent: Vec<u32>,
    recent_rows: Vec<u8>,
    slots: HashMap<u32, usize>,
    /// Of `recent`, those that stay.
    n_control: usize,
    /// The slot that the next token gets, once all are taken.
    next_slot: usize,
    /// The running share of tokens that had a row.
    share: f64,
    activations: Activations,
    logits: Vec<f32>,
    elapsed_ns: u64,
}

impl ShortHead {
    /// A short head of a model; `None` where it would not be less than half of the whole, where something follows the product,
    /// and for formats that store several rows together.
    pub(super) fn new(model: &LoadedModel, size: ShortHeadSize) -> Option<ShortHead> {
        let graph = &model.model().graph;
        let head = &graph.nodes[head_of(graph)?];
        let product = head.op.product()?.plain()?;
        let spec = graph.weights.get(product.weight.0)?;
        let is_last = graph.logits == Some(head.output) && product.bias.is_none();
        let is_less = 2 * (size.n_first + size.n_recent) < spec.n;
        if !is_last || !is_less || spec.dtype.block_rows() > 1 {
            return None;
        }
        let mut short = ShortHead {
            weight: product.weight,
            dtype: spec.dtype,
            n: spec.n,
            k: spec.k,
            size,
            recent: Vec::new(),
            recent_rows: Vec::new(),
            slots: HashMap::new(),
            n_control: 0,
            next_slot: 0,
            share: 1.0,
            activations: Activations::default(),
            logits: Vec::new(),
            elapsed_ns: 0,
        };
        short.add_control_tokens(model);
        Some(short)
    }

    /// Ends of texts and turns are rare, and guesses of them save a step.
    fn add_control_tokens(&mut self, model: &LoadedModel) {
        // Guesses need no tokenizer, and files without one have no known control tokens.
        let Ok(tokenizer) = model.tokenizer() else {
            return;
        };
        let most = MAX_CONTROL.min(self.size.n_recent / 2);
        let known = u32::try_from(tokenizer.n_vocab().min(self.n)).unwrap_or(u32::MAX);
        let others = u32::try_from(self.size.n_first).unwrap_or(u32::MAX)..known;
        let control = others.filter(|id| tokenizer.token_kind(*id) == TokenKind::Control);
        control.take(most).for_each(|id| self.add(model, id));
        self.n_control = self.recent.len();
        self.next_slot = self.n_control;
    }

    /// Whether texts mostly have tokens that are here.
    pub(super) fn is_useful(&self) -> bool {
        self.share >= MIN_SHARE
    }

    /// Time of its products so far.
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }

    fn has(&self, token: u32) -> bool {
        (token as usize) < self.size.n_first || self.slots.contains_key(&token)
    }

    /// Tells that a text has this token.
    pub(super) fn read(&mut self, model: &LoadedModel, token: u32) {
        // Rows of images have numbers beyond the vocabulary.
        if token as usize >= self.n {
            return;
        }
        let had = self.has(token);
        self.share += (f64::from(u8::from(had)) - self.share) / MEMORY;
        if !had {
            self.add(model, token);
        }
    }

    fn add(&mut self, model: &LoadedModel, token: u32) {
        let rows = model.matrix_bytes(self.weight, 0);
        let row_bytes = rows.len() / self.n;
        let row = &rows[token as usize * row_bytes..][..row_bytes];
        let slot = match self.recent.len() < self.size.n_recent {
            true => {
                self.recent.push(token);
                self.recent_rows.extend_from_slice(row);
                self.recent.len() - 1
            }
            false => {
                let slot = self.next_slot;
                self.next_slot = match slot + 1 == self.size.n_recent {
                    true => self.n_control,
                    false => slot + 1,
                };
                self.slots.remove(&self.recent[slot]);
                self.recent[slot] = token;
                self.recent_rows[slot * row_bytes..][..row_bytes].copy_from_slice(row);
                slot
            }
        };
        self.slots.insert(token, slot);
    }

    /// Puts the logits `[1, vocab]` after the last row of the head's inputs into the output of a step that has none. Logits
    /// of tokens without a row are `-inf`.
    pub(super) fn complete(&mut self, cpu: &Cpu, model: &LoadedModel, output: &mut StepOutput) {
        let start = Instant::now();
        let ShortHead { dtype, k, .. } = *self;
        let (n_first, n_recent) = (self.size.n_first, self.recent.len());
        let rows = model.matrix_bytes(self.weight, 0);
        let first_bytes = rows.len() / self.n * n_first;
        let matrix = |n: usize, bytes| {
            WeightMatrix::new(dtype, n, k, bytes).expect("rows of a matrix that was checked")
        };
        self.logits.resize(n_first + n_recent, 0.0);
        let (first, recent) = self.logits.split_at_mut(n_first);
        let products = [
            (matrix(n_first, &rows[..first_bytes]), first),
            (matrix(n_recent, &self.recent_rows), recent),
        ];
        let mut products = products.map(|(weight, out)| Multiplication {
            weight,
            bias: None,
            out,
        });
        let n_products = if n_recent == 0 { 1 } else { 2 };
        let x = output.head_input(0);
        let x = &x[x.len() - k..];
        let products = &mut products[..n_products];
        matmul(cpu, x, 1, &mut self.activations, products);
        let row = output.add_row(self.n, f32::NEG_INFINITY);
        row[..n_first].copy_from_slice(&self.logits[..n_first]);
        for (token, logit) in self.recent.iter().zip(&self.logits[n_first..]) {
            row[*token as usize] = *logit;
        }
        self.elapsed_ns += u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests;
