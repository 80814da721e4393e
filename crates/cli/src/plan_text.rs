//! Plans in words: slots, herds, index sets. Shared by `compile` and `explain`.

use crate::output::{Align, TextTable, bytes};
use millrace_graph::Graph;
use millrace_npu::{Role, Slot};
use millrace_plan::{
    AttentionPart, Binding, CachePart, Explain, IndexSets, Plan, PlannedLaunch, PlannedProgram,
    WeightLayout,
};
use serde_json::{Value, json};

/// `8×4, 1×1`.
pub(crate) fn herds_text(herds: &[(u32, u32)]) -> String {
    let each = herds.iter().map(|(cols, rows)| format!("{cols}×{rows}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Bytes of a program's slots: those of weights and tables, and those of all others.
pub(crate) fn slot_bytes(slots: &[Slot]) -> (u64, u64) {
    let of = |slots: &mut dyn Iterator<Item = &Slot>| slots.filter_map(Slot::size_bytes).sum();
    let is_static = |slot: &&Slot| slot.role == Role::Static;
    (
        of(&mut slots.iter().filter(is_static)),
        of(&mut slots.iter().filter(|slot| !is_static(slot))),
    )
}

/// `static {1, 3}  input {0}  intermediate {2, 4}  output {4}`, as mlir-air counts: outputs are
/// intermediate too.
pub(crate) fn sets_text(slots: &[Slot]) -> String {
    let sets = IndexSets::of(slots);
    let named = [
        ("static", &sets.statics),
        ("input", &sets.input),
        ("intermediate", &sets.intermediate),
        ("output", &sets.output),
    ];
    let one = |(name, slots): (&str, &Vec<usize>)| {
        let slots: Vec<String> = slots.iter().map(ToString::to_string).collect();
        format!("{name} {{{}}}", slots.join(", "))
    };
    named.map(one).join("  ")
}

/// Content of a slot in a call: the weight's name in the checkpoint, a table, a value.
pub(crate) fn holds(binding: &Binding, graph: &Graph) -> String {
    let label = |value: &millrace_graph::ValueId| {
        let mut nodes = graph.nodes.iter();
        nodes
            .find(|node| node.output == *value)
            .map_or("?", |node| node.label)
    };
    match binding {
        Binding::Weight { weight, .. } => {
            let name = graph
                .weights
                .get(weight.0)
                .map(|weight| weight.name.clone());
            name.unwrap_or_default()
        }
        Binding::RopeTable { rows, .. } => {
            format!(
                "cosines and sines, {} tokens × {} heads",
                rows.n_tokens, rows.n_heads
            )
        }
        Binding::Packed {
            value,
            bias: Some(_),
            ..
        } => format!("value of {}, the host adds the bias", label(value)),
        Binding::Value(value) | Binding::Packed { value, .. } => {
            format!("value of {}", label(value))
        }
        Binding::Part { value, start, len } => {
            format!("{} {start}..{}", label(value), start + len)
        }
        Binding::Cache { layer, of } => match of {
            CachePart::Keys => format!("cached keys of layer {layer}"),
            CachePart::Values => format!("cached values of layer {layer}"),
        },
        Binding::AttentionProduct { kv_head, of, .. } => {
            format!("{} of key-value head {kv_head}", attention_part(of))
        }
        Binding::CacheRange { layer, of, range } => {
            let what = match of {
                CachePart::Keys => "keys",
                CachePart::Values => "values",
            };
            let window = range.window;
            format!("cached {what} of layer {layer} that a window of {window} reaches")
        }
        Binding::DeltaRows { .. } => "queries, keys, values and gates by head, f32".to_owned(),
        Binding::StateBefore { index } => format!("state {index} before the token"),
        Binding::StateBehind { index } => format!("state {index} behind the token"),
        Binding::Position => "position of the first token".to_owned(),
        Binding::RangePosition { .. } => "row of the first token among those".to_owned(),
        Binding::PassInput { .. } => {
            "computed by the host from the position of the pass".to_owned()
        }
        Binding::Scratch => "between launches".to_owned(),
    }
}

fn attention_part(part: &AttentionPart) -> &'static str {
    match part {
        AttentionPart::Queries(_) => "queries",
        AttentionPart::Keys => "cached keys",
        AttentionPart::Scores => "scores",
        AttentionPart::Probabilities => "probabilities",
        AttentionPart::Values => "cached values",
        AttentionPart::Sums(_) => "weighted sums",
    }
}

/// Layout of a weight in its slot.
pub(crate) fn layout(binding: &Binding) -> String {
    let Binding::Weight { layout, .. } = binding else {
        return String::new();
    };
    let order = |text: &str, half_split: &Option<usize>| match half_split {
        Some(head_dim) => format!("{text}, heads of {head_dim} half-split"),
        None => text.to_owned(),
    };
    match layout {
        WeightLayout::AsStored { half_split } => order("as stored [n, k]", half_split),
        WeightLayout::Transposed { half_split } => order("transposed [k, n]", half_split),
        WeightLayout::Rows {
            start,
            len,
            padded_to,
        } if padded_to == len => format!("rows {start}..{}", start + len),
        WeightLayout::Rows {
            start,
            len,
            padded_to,
        } => format!("rows {start}..{}, then zeros to {padded_to}", start + len),
        WeightLayout::Vector { offset } if *offset != 0.0 => format!("plus {offset}"),
        WeightLayout::Vector { .. } => String::new(),
        WeightLayout::Own { half_split, .. } => order("the device's own", half_split),
    }
}

/// `[2048, 512] bf16`.
pub(crate) fn shape(slot: &Slot) -> String {
    format!("{:?} {}", slot.shape, slot.element.name())
}

/// Columns of a table of slots.
pub(crate) const SLOT_COLUMNS: [(&str, Align); 7] = [
    ("slot", Align::Right),
    ("name", Align::Left),
    ("role", Align::Left),
    ("shape", Align::Left),
    ("size", Align::Right),
    ("holds in its first call", Align::Left),
    ("layout", Align::Left),
];

/// Table of a program's slots, with the bindings of its first call.
pub(crate) fn slot_table(plan: &Plan, program: usize, graph: &Graph) -> TextTable {
    let mut table = TextTable::new(&SLOT_COLUMNS);
    let first = plan.calls().find(|call| call.program == program);
    let slots = plan
        .programs
        .get(program)
        .map_or(&[][..], PlannedProgram::slots);
    for (number, slot) in slots.iter().enumerate() {
        let binding = first.and_then(|call| call.bindings.get(number));
        table.row(vec![
            number.to_string(),
            slot.name.clone(),
            slot.role.name().to_owned(),
            shape(slot),
            bytes(slot.size_bytes().unwrap_or(0)),
            binding.map_or_else(String::new, |b| holds(b, graph)),
            binding.map_or_else(String::new, layout),
        ]);
    }
    table
}

/// The same table as JSON.
pub(crate) fn slots_json(plan: &Plan, program: usize, graph: &Graph) -> Vec<Value> {
    let first = plan.calls().find(|call| call.program == program);
    let slots = plan
        .programs
        .get(program)
        .map_or(&[][..], PlannedProgram::slots);
    let row = |(number, slot): (usize, &Slot)| {
        let binding = first.and_then(|call| call.bindings.get(number));
        json!({
            "slot": number,
            "name": slot.name,
            "role": slot.role.name(),
            "element": slot.element.name(),
            "shape": slot.shape,
            "size_bytes": slot.size_bytes(),
            "holds": binding.map(|b| holds(b, graph)),
            "layout": binding.map(layout).filter(|text| !text.is_empty()),
        })
    };
    slots.iter().enumerate().map(row).collect()
}

/// Table of a program's logical launches.
pub(crate) fn launch_table(explain: &dyn Explain, planned: &PlannedProgram) -> TextTable {
    let mut table = TextTable::new(&[
        ("launch", Align::Right),
        ("name", Align::Left),
        ("kernel", Align::Left),
        ("shape", Align::Left),
        ("tiling", Align::Left),
        ("physical", Align::Right),
        ("herds", Align::Left),
        ("tiles", Align::Right),
        ("slots", Align::Left),
    ]);
    for (number, launch) in planned.launches.iter().enumerate() {
        let occupied = explain.occupied(planned, launch.physical.clone());
        table.row(vec![
            number.to_string(),
            launch.name.clone(),
            launch.kernel.clone(),
            launch.shape.to_string(),
            launch.tiling.to_string(),
            launch.physical.len().to_string(),
            herds_text(&occupied.herds),
            occupied.n_cores.to_string(),
            slot_list(launch),
        ]);
    }
    table
}

fn slot_list(launch: &PlannedLaunch) -> String {
    let slots: Vec<String> = launch.slots.iter().map(ToString::to_string).collect();
    slots.join(" ")
}

/// The same table as JSON.
pub(crate) fn launches_json(explain: &dyn Explain, planned: &PlannedProgram) -> Vec<Value> {
    let row = |launch: &PlannedLaunch| {
        let occupied = explain.occupied(planned, launch.physical.clone());
        json!({
            "name": launch.name,
            "kernel": launch.kernel,
            "shape": launch.shape,
            "tiling": launch.tiling,
            "n_physical": launch.physical.len(),
            "herds": occupied.herds,
            "n_tiles": occupied.n_cores,
            "slots": launch.slots,
        })
    };
    planned.launches.iter().map(row).collect()
}
