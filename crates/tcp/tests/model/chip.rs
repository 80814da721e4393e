//! A model on virtual chips: layers over stages, each layer over shards.

use crate::model::reference::{Layer, Weights as Model};
use millrace_graph::{Rope, RopeStyle};
use millrace_tcp::host::{SequencePart, mask, positions, rope_table, store, store_weight};
use millrace_tcp::lower::{self, Dims, PassSizes, Target, TcpLowerOptions, TcpLowering};
use millrace_tcp::parallel::{Plan, Split};
use millrace_tcp::{Element, Machine, Program, simulate};
use std::collections::HashMap;

/// Slots by the layer and the half of it that have them.
type Memory = HashMap<(usize, bool), HashMap<&'static str, Vec<u8>>>;

/// A model with its caches, on chips that each have some of its layers, or a share of each layer.
pub struct Chips<'m> {
    model: &'m Model,
    machine: Machine,
    options: TcpLowerOptions,
    dims: Dims,
    n_cache: u64,
    /// Content of each chip, by stage and shard: weights and caches of its own layers.
    memory: HashMap<(u64, usize), Memory>,
    n_past: Vec<u64>,
    /// Lets every token see every key.
    pub spoil_mask: bool,
    /// Keys of the smallest bucket.
    pub min_keys: u64,
    /// How layers are divided among chips.
    pub plan: Plan,
    /// A stage that gets the same input as the stage before it.
    pub spoil_stage: Option<u64>,
}

impl<'m> Chips<'m> {
    pub fn new(
        model: &'m Model,
        options: TcpLowerOptions,
        n_cache: u64,
        batch: usize,
    ) -> Chips<'m> {
        let s = model.sizes;
        let n = options.n_shards;
        let dims = Dims {
            d_model: s.d_model as u64,
            d_ff: s.d_ff as u64 / n,
            n_kv_heads: s.n_kv_heads as u64 / n,
            n_groups: (s.n_heads / s.n_kv_heads) as u64,
            head_dim: s.head_dim as u64,
            vocab_size: s.vocab_size as u64,
            norm_eps: crate::model::reference::EPS as f32,
            attention_scale: 1.0 / (s.head_dim as f32).sqrt(),
        };
        Chips {
            model,
            machine: Machine::rngd(),
            options,
            dims,
            n_cache,
            memory: HashMap::new(),
            n_past: vec![0; batch],
            spoil_mask: false,
            min_keys: 64,
            plan: Plan {
                split: if n == 1 {
                    Split::Pipeline
                } else {
                    Split::Tensor
                },
                n_chips: n,
            },
            spoil_stage: None,
        }
    }

    fn n_shards(&self) -> usize {
        self.options.n_shards as usize
    }

    /// Loads every chip, once.
    fn load(&mut self) {
        let stages = if self.memory.is_empty() {
            self.plan.n_stages()
        } else {
            0
        };
        for stage in 0..stages {
            let layers = self.plan.layers(stage, self.model.layers.len() as u64);
            for shard in 0..self.n_shards() {
                let mut memory = Memory::new();
                for layer in layers.clone() {
                    for half in [true, false] {
                        let own = &self.model.layers[layer as usize];
                        memory.insert((layer as usize, half), self.weights(own, shard, half));
                    }
                }
                self.memory.insert((stage, shard), memory);
            }
        }
    }

    fn target(&self, call: PassSizes) -> Target<'_> {
        Target {
            machine: &self.machine,
            dims: &self.dims,
            options: self.options,
            call,
        }
    }

    /// Logits of the last token of each sequence, all of the same number of new tokens.
    pub fn step(&mut self, tokens: &[Vec<usize>]) -> Vec<Vec<f32>> {
        let n_new = tokens[0].len() as u64;
        let batch = tokens.len() as u64;
        let n_tokens = lower::token_bucket(n_new);
        let longest = self.n_past.iter().max().unwrap() + n_tokens;
        let call = PassSizes {
            batch,
            n_tokens,
            n_keys: lower::key_bucket(longest.max(self.min_keys)),
            n_cache: self.n_cache,
        };
        let parts: Vec<SequencePart> = self
            .n_past
            .iter()
            .map(|&n_past| SequencePart { n_past, n_new })
            .collect();
        let mut ids = Vec::new();
        for sequence in tokens {
            ids.extend((0..n_tokens as usize).map(|i| *sequence.get(i).unwrap_or(&0) as f32));
        }
        let mut slots = HashMap::from([
            ("token", store(Element::I32, &ids)),
            ("table", store(Element::Bf16, &self.model.table)),
        ]);
        let mut x = self.run(lower::embed(self.target(call)).unwrap(), &mut slots, "x");
        let mut seen = mask(call, &parts);
        if self.spoil_mask {
            seen.fill(0);
        }
        let common = [("position", positions(call, &parts)), ("mask", seen)];
        self.load();
        let mut before = x.clone();
        for stage in 0..self.plan.n_stages() {
            // Activations that the link carries from one chip to the next.
            let sent = std::mem::replace(&mut before, x.clone());
            if self.spoil_stage == Some(stage) {
                x = sent;
            }
            for number in self.plan.layers(stage, self.model.layers.len() as u64) {
                x = self.half((stage, number as usize), call, x, &common, true);
                x = self.half((stage, number as usize), call, x, &common, false);
            }
        }
        let bytes = self.head(call, x, n_new);
        self.n_past.iter_mut().for_each(|n| *n += n_new);
        let mut logits = vec![0.0; bytes.len() / 4];
        Element::F32.decode(&bytes, 0, &mut logits);
        logits
            .chunks(self.model.sizes.vocab_size)
            .map(<[f32]>::to_vec)
            .collect()
    }

    /// Logits of each sequence's last token.
    fn head(&mut self, call: PassSizes, x: Vec<u8>, n_new: u64) -> Vec<u8> {
        let last = vec![(n_new - 1) as f32; call.batch as usize];
        let mut slots = HashMap::from([
            ("x", x),
            ("last", store(Element::I32, &last)),
            ("norm", store(Element::F32, &self.model.norm)),
            ("w_head", store(Element::Bf16, &self.model.head)),
        ]);
        let head = lower::head(self.target(call)).unwrap();
        self.run(head, &mut slots, "logits")
    }

    /// Attention or feed-forward of a layer, on all of its chips.
    fn half(
        &mut self,
        (stage, number): (u64, usize),
        call: PassSizes,
        x: Vec<u8>,
        common: &[(&'static str, Vec<u8>); 2],
        is_attention: bool,
    ) -> Vec<u8> {
        let n_shards = self.n_shards();
        let mut parts = Vec::new();
        for shard in 0..n_shards {
            let lowered = match is_attention {
                true => lower::attention(self.target(call)).unwrap(),
                false => lower::feed_forward(self.target(call)).unwrap(),
            };
            let chip = &self.memory[&(stage, shard)];
            let mut slots = chip[&(number, is_attention)].clone();
            slots.insert("x", x.clone());
            if is_attention {
                slots.extend(common.clone());
            }
            let out = if n_shards > 1 { "partial" } else { "x_out" };
            parts.push(self.run(lowered, &mut slots, out));
            let chip = self.memory.get_mut(&(stage, shard)).unwrap();
            let held = chip.get_mut(&(number, is_attention)).unwrap();
            for name in ["k_cache", "v_cache"] {
                held.extend(slots.remove(name).map(|bytes| (name, bytes)));
            }
        }
        if n_shards == 1 {
            return parts.remove(0);
        }
        let names = ["partial_0", "partial_1", "partial_2", "partial_3"];
        let mut slots: HashMap<&str, Vec<u8>> = names.into_iter().zip(parts).collect();
        slots.insert("x", x);
        self.run(
            lower::reduce(self.target(call)).unwrap(),
            &mut slots,
            "x_out",
        )
    }

    /// The slots of a shard's weights: its heads, or its columns of the feed-forward.
    fn weights(
        &self,
        layer: &Layer,
        shard: usize,
        is_attention: bool,
    ) -> HashMap<&'static str, Vec<u8>> {
        let (s, n) = (self.model.sizes, self.n_shards());
        let d = s.d_model;
        let mut slots = HashMap::new();
        let mut add = |name: &'static str, scale: &'static str, values: Vec<f32>, k: usize| {
            let stored = store_weight(&values, k, self.options.weights);
            slots.insert(name, stored.bytes);
            slots.extend(stored.scales.map(|scales| (scale, scales)));
        };
        let rows = |w: &[f32], k: usize| {
            let n_rows = w.len() / k / n;
            w[shard * n_rows * k..(shard + 1) * n_rows * k].to_vec()
        };
        let columns = |w: &[f32], k: usize| -> Vec<f32> {
            let part = k / n;
            w.chunks(k)
                .flat_map(|row| row[shard * part..(shard + 1) * part].to_vec())
                .collect()
        };
        let norm = if is_attention {
            let q = s.n_heads * s.head_dim;
            add("w_q", "w_q_scale", rows(&layer.w_q, d), d);
            add("w_k", "w_k_scale", rows(&layer.w_k, d), d);
            add("w_v", "w_v_scale", rows(&layer.w_v, d), d);
            add("w_o", "w_o_scale", columns(&layer.w_o, q), q / n);
            &layer.attn_norm
        } else {
            add("w_gate", "w_gate_scale", rows(&layer.w_gate, d), d);
            add("w_up", "w_up_scale", rows(&layer.w_up, d), d);
            add(
                "w_down",
                "w_down_scale",
                columns(&layer.w_down, s.d_ff),
                s.d_ff / n,
            );
            &layer.ffn_norm
        };
        slots.insert("norm", store(Element::F32, norm));
        let rope = Rope {
            style: RopeStyle::HalfSplit,
            n_rot: s.head_dim,
            inv_freq: self.model.inv_freq.clone(),
            attention_factor: 1.0,
        };
        slots.insert("rope", rope_table(&rope, self.n_cache));
        slots
    }

    /// Runs a program over named slots; those that have no content are zero. Gives one of them.
    fn run(&self, lowered: TcpLowering, slots: &mut HashMap<&str, Vec<u8>>, out: &str) -> Vec<u8> {
        let program: &Program = &lowered.program;
        millrace_tcp::verify(program, &self.machine).unwrap_or_else(|r| panic!("{}", r[0]));
        let list = program.slots().unwrap();
        let mut content: Vec<Vec<u8>> = Vec::new();
        for slot in &list {
            let size = slot.size_bytes().unwrap() as usize;
            let given = slots.remove(&*slot.name).unwrap_or_else(|| vec![0; size]);
            assert_eq!(given.len(), size, "slot {}", slot.name);
            content.push(given);
        }
        simulate::run(
            program,
            &mut content,
            &simulate::SimulationOptions::default(),
        )
        .unwrap();
        let mut found = Vec::new();
        for (slot, bytes) in list.into_iter().zip(content) {
            match &*slot.name {
                name if name == out => found = bytes,
                "k_cache" => {
                    slots.insert("k_cache", bytes);
                }
                "v_cache" => {
                    slots.insert("v_cache", bytes);
                }
                _ => {}
            }
        }
        found
    }
}
