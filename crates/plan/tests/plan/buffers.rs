//! The buffer of each slot. The module [`run`](super::run::run) checks over the same random plans that no live value is
//! overwritten. The tests here check the number of buffers and the bytes that cross.

use super::device::{Manner, Toy, kinds};
use super::model::Sizes;
use super::run::run;
use millrace_graph::Graph;
use millrace_npu::Role;
use millrace_plan::{
    Binding, BufferKind, Buffers, Call, HostMove, HostRows, Lowering, PassKind, Plan, PlannedBuffer,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn lowered(sizes: &Sizes, manner: &Manner, kind: &PassKind) -> (Graph, Plan, Buffers) {
    let graph = sizes.graph();
    let plan = Toy(manner.clone()).lower(&graph, kind).expect("a plan");
    let buffers = Buffers::of(&plan, &graph);
    (graph, plan, buffers)
}

fn is_cache(binding: &Binding) -> bool {
    matches!(binding, Binding::Cache { .. })
}

/// The slots of the plan's calls that are not static: call, slot, size, content, role.
fn moving(plan: &Plan) -> Vec<(usize, usize, u64, &Binding, Role)> {
    let mut found = Vec::new();
    for (index, call) in plan.calls().enumerate() {
        let slots = plan.programs[call.program].slots();
        for (number, (slot, binding)) in slots.iter().zip(&call.bindings).enumerate() {
            if slot.role != Role::Static && !is_cache(binding) {
                let size = slot.size_bytes().expect("a size");
                found.push((index, number, size, binding, slot.role));
            }
        }
    }
    found
}

/// By size, how many contents are needed at once: each from the call that brings it on to the last that reads it.
fn most_at_once(plan: &Plan) -> HashMap<u64, usize> {
    let slots = moving(plan);
    let mut lives: Vec<(u64, usize, usize)> = Vec::new();
    let mut known: Vec<(&Binding, u64, usize)> = Vec::new();
    // Calls with the contents that a slot of theirs has.
    let mut here: Vec<(usize, usize)> = Vec::new();
    for &(call, _, size, binding, role) in &slots {
        let same = |k: &&(&Binding, u64, usize)| {
            k.0 == binding && k.1 == size && !here.contains(&(call, k.2))
        };
        let life = known.iter().find(same).map(|k| k.2);
        match (role, life) {
            (Role::Input, Some(life)) => {
                lives[life].2 = call;
                here.push((call, life));
            }
            _ => {
                here.push((call, lives.len()));
                if role != Role::Intermediate {
                    known.push((binding, size, lives.len()));
                }
                lives.push((size, call, call));
            }
        }
    }
    let mut most: HashMap<u64, usize> = HashMap::new();
    for call in 0..plan.calls().count() {
        let mut now: HashMap<u64, usize> = HashMap::new();
        for &(size, first, last) in &lives {
            if (first..=last).contains(&call) {
                *now.entry(size).or_default() += 1;
            }
        }
        for (size, n) in now {
            let most = most.entry(size).or_default();
            *most = n.max(*most);
        }
    }
    most
}

proptest! {
    /// With aliases there are as many registers of a size as contents of that size at once: fewer would not do.
    #[test]
    fn registers_are_as_few_as_can_be(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let manner = Manner { alias: true, ..manner };
        let (_, plan, buffers) = lowered(&sizes, &manner, &kind);
        let mut found: HashMap<u64, usize> = HashMap::new();
        for buffer in &buffers.buffers {
            if !matches!(buffer.kind, BufferKind::Static(_)) {
                *found.entry(buffer.size_bytes).or_default() += 1;
            }
        }
        prop_assert_eq!(found, most_at_once(&plan));
    }

    /// Without, each slot has a buffer that no other call has; the host writes each input and reads each output.
    #[test]
    fn without_aliases_nothing_is_shared_but_weights(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let manner = Manner { alias: false, ..manner };
        let (_, plan, buffers) = lowered(&sizes, &manner, &kind);
        let mut seen = HashSet::new();
        for (call, slot, _, binding, role) in moving(&plan) {
            let used = buffers.calls[call][slot];
            prop_assert!(seen.insert(used.buffer), "buffer {} twice", used.buffer);
            prop_assert_eq!(&buffers.buffers[used.buffer].name, &None);
            match role {
                Role::Input => prop_assert_eq!(used.host, HostMove::Write),
                Role::Output => {
                    let is_all = used.host == HostMove::Read(HostRows::All);
                    prop_assert!(is_all, "{:?} of {:?}", used.host, binding);
                }
                _ => prop_assert_eq!(used.host, HostMove::None),
            }
        }
    }

    /// Static buffers are one for each content, have unique names, and are never moved.
    #[test]
    fn static_contents_are_there_once(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let (_, plan, buffers) = lowered(&sizes, &manner, &kind);
        for buffer in &buffers.buffers {
            let BufferKind::Static(content) = &buffer.kind else { continue };
            let same = |b: &&PlannedBuffer| matches!(&b.kind, BufferKind::Static(c) if c == content);
            let n_buffers = buffers.buffers.iter().filter(same).count();
            // Two slots of a call are two buffers, even with equal content.
            let in_call = |call: &Call| call.bindings.iter().filter(|b| *b == content).count();
            prop_assert_eq!(Some(n_buffers), plan.calls().map(in_call).max(), "{:?}", content);
        }
        let names: Vec<&String> = buffers.buffers.iter().filter_map(|b| b.name.as_ref()).collect();
        prop_assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        for (call, uses) in plan.calls().zip(&buffers.calls) {
            for (binding, used) in call.bindings.iter().zip(uses) {
                if let BufferKind::Static(content) = &buffers.buffers[used.buffer].kind {
                    prop_assert_eq!(content, binding);
                    prop_assert_eq!(used.host, HostMove::None);
                }
            }
        }
    }

    /// Bytes of buffers are the sum of both kinds, and the bytes that cross agree with the slots.
    #[test]
    fn sizes_and_traffic_add_up(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
        n_real in 1..=9_u64,
    ) {
        let (_, plan, buffers) = lowered(&sizes, &manner, &kind);
        let all: u64 = buffers.buffers.iter().map(|b| b.size_bytes).sum();
        prop_assert_eq!(buffers.static_bytes() + buffers.other_bytes(), all);
        for (index, uses) in buffers.calls.iter().enumerate() {
            let sum = |is: fn(HostMove) -> bool| -> u64 {
                let uses = uses.iter().filter(|used| is(used.host));
                uses.map(|used| buffers.buffers[used.buffer].size_bytes).sum()
            };
            let traffic = buffers.traffic(&plan, index, n_real.min(plan.n_tokens));
            let written = sum(|host| host == HostMove::Write);
            prop_assert_eq!(traffic.written_bytes, written);
            prop_assert_eq!(traffic.to_device_bytes, written);
            prop_assert_eq!(traffic.read_bytes, traffic.from_device_bytes);
            prop_assert!(traffic.read_bytes <= sum(|host| matches!(host, HostMove::Read(_))));
            let whole = buffers.traffic(&plan, index, plan.n_tokens);
            prop_assert!(traffic.read_bytes <= whole.read_bytes);
        }
        let beyond = buffers.traffic(&plan, buffers.calls.len(), 1);
        prop_assert_eq!((beyond.written_bytes, beyond.read_bytes), (0, 0));
    }

    /// Rows of a buffer: the last real one is within the real ones, and these within all.
    #[test]
    fn rows_lie_within_each_other(row_bytes in 1..100_u64, n_rows in 1..50_u64, n_real in 0..60_u64) {
        let size = row_bytes * n_rows;
        let [last, real, all] =
            [HostRows::Last, HostRows::Real, HostRows::All].map(|rows| rows.bytes(size, n_rows, n_real));
        prop_assert_eq!(all, 0..size);
        let n_real = n_real.min(n_rows);
        prop_assert_eq!(&real, &(0..row_bytes * n_real));
        prop_assert_eq!(last.end, real.end);
        prop_assert_eq!(last.end - last.start, if n_real == 0 { 0 } else { row_bytes });
    }
}

/// Two layers of one op a call, on paper. The residual stream stays in one register while a norm and a projection of the
/// same size come and go.
#[test]
fn a_value_stays_in_its_buffer_until_its_last_reader() {
    let kind = PassKind::prefill(3);
    let (graph, plan, buffers) = lowered(&Sizes::LEAST, &Manner::all(), &kind);
    let hidden = graph.hidden[0];
    let mut places = HashSet::new();
    let mut readers = Vec::new();
    for (call, uses) in plan.calls().zip(&buffers.calls) {
        for (binding, used) in call.bindings.iter().zip(uses) {
            if binding.value() == Some(hidden) {
                places.insert(used.buffer);
                readers.push(call.set.as_str());
                assert_eq!(used.host, HostMove::None);
            }
        }
    }
    assert_eq!(places.len(), 1);
    assert_eq!(readers, ["embed", "attn_norm_L0", "attn_add_L0"]);
}

/// The check itself is tested: it finds a plan that gives a value's register away before its last reader.
#[test]
fn a_register_given_away_too_early_is_found() {
    let kind = PassKind::prefill(3);
    let (graph, plan, buffers) = lowered(&Sizes::LEAST, &Manner::all(), &kind);
    assert_eq!(run(&plan, &graph, &buffers), Ok(()));
    let call = plan.calls().position(|call| call.set == "attn_add_L0");
    let call = call.expect("a call");
    // The first product after it takes the place of the residual stream, before it is added.
    let mut wrong = buffers.clone();
    let hidden = |c: usize, value| {
        let bindings = &plan.calls().nth(c).expect("a call").bindings;
        bindings.iter().position(|b| b.value() == Some(value))
    };
    let slot = hidden(call, graph.hidden[0]).expect("the stream");
    let taken = wrong.calls[call][slot].buffer;
    let other = wrong.calls[call - 1]
        .iter_mut()
        .find(|used| {
            let buffer = &buffers.buffers[used.buffer];
            buffer.kind == BufferKind::Values
                && buffer.size_bytes == buffers.buffers[taken].size_bytes
        })
        .expect("a value of that size");
    other.buffer = taken;
    assert!(run(&plan, &graph, &wrong).is_err());
}

/// It also finds a row that the host does not read.
#[test]
fn a_row_that_is_not_read_is_found() {
    let kind = PassKind::prefill(3).with_head(millrace_plan::HeadRows::All);
    let (graph, plan, buffers) = lowered(&Sizes::LEAST, &Manner::all(), &kind);
    let mut wrong = buffers.clone();
    let uses = wrong.calls.last_mut().expect("a call");
    let read = uses
        .iter_mut()
        .find(|used| matches!(used.host, HostMove::Read(_)));
    read.expect("logits").host = HostMove::Read(HostRows::Last);
    assert!(run(&plan, &graph, &buffers).is_ok());
    let error = run(&plan, &graph, &wrong).expect_err("rows are missing");
    assert!(error.contains("needed Real"), "{error}");
}

/// Rotations of queries and keys with as many heads take equal tables. A token's call that has both writes two buffers,
/// because a device refuses one buffer in two slots.
#[test]
fn equal_inputs_of_a_call_have_a_buffer_each() {
    let sizes = Sizes {
        group: 1,
        ..Sizes::LEAST
    };
    let manner = Manner {
        most: 6,
        ..Manner::all()
    };
    let (graph, plan, buffers) = lowered(&sizes, &manner, &PassKind::decode());
    let is_table = |b: &&Binding| matches!(b, Binding::RopeTable { .. });
    let tables = |call: &Call| call.bindings.iter().filter(is_table).count();
    assert!(
        plan.calls().any(|call| tables(call) == 2),
        "no call has both rotations"
    );
    assert_eq!(run(&plan, &graph, &buffers), Ok(()));
}
