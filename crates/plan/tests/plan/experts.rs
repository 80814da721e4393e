//! Products of experts: a call for each node, as many dispatches as the choice asks for.

use super::device::kinds;
use super::model::Sizes;
use super::products::products;
use super::run::run;
use millrace_graph::Op;
use millrace_plan::offload::{self, OffloadedOp, Product};
use millrace_plan::{
    Binding, BufferKind, Buffers, ExpertCall, HostMove, HostRows, NodePlace, PassKind, Phase, Plan,
    Reason,
};
use proptest::prelude::*;

fn mixtures() -> impl Strategy<Value = Sizes> {
    (Sizes::any(), 1..=6_usize, 1..=4_usize).prop_map(|(sizes, n_experts, n_used)| Sizes {
        experts: Some((n_experts, n_used.min(n_experts))),
        ..sizes
    })
}

fn experts(plan: &Plan) -> impl Iterator<Item = (usize, ExpertCall)> {
    let calls = plan.calls().enumerate();
    calls.filter_map(|(index, call)| Some((index, call.experts?)))
}

proptest! {
    /// The host has the choice and all rows before the call, and all results behind it, even where buffers are shared.
    #[test]
    fn experts_are_computed_once_from_what_is_there(
        sizes in mixtures(),
        kind in kinds(),
        alias in any::<bool>(),
    ) {
        let graph = sizes.graph();
        let plan = Plan { alias, ..products(&graph, &kind, None).expect("a plan") };
        prop_assert_eq!(run(&plan, &graph, &Buffers::of(&plan, &graph)), Ok(()));
        prop_assert_eq!(plan.check(&graph), Ok(()));
        prop_assert_eq!(experts(&plan).count(), 2 * sizes.n_layers);
        for placement in &plan.placement {
            let on_device = matches!(
                graph.nodes[placement.node].op,
                Op::Linear(_) | Op::ExpertLinear(_)
            );
            prop_assert_eq!(placement.place != NodePlace::Host, on_device);
        }
    }

    /// Rows and results of a dispatch cross whole; a matrix has a buffer for each expert, which equal plans share.
    #[test]
    fn a_dispatch_takes_rows_and_a_matrix(sizes in mixtures(), kind in kinds()) {
        let graph = sizes.graph();
        let plan = products(&graph, &kind, None).expect("a plan");
        let buffers = Buffers::of(&plan, &graph);
        for (index, experts) in experts(&plan) {
            let uses = &buffers.calls[index];
            prop_assert_eq!(uses[0].host, HostMove::Write);
            prop_assert_eq!(uses[2].host, HostMove::Read(HostRows::All));
            let matrix = &buffers.buffers[uses[1].buffer];
            let n_experts = sizes.experts.map(|(n, _)| n);
            let BufferKind::Expert(Binding::Weight { .. }, n) = &matrix.kind else {
                return Err(TestCaseError::fail("no matrix of an expert"));
            };
            prop_assert_eq!(Some(*n), n_experts);
            prop_assert!(matrix.name.is_some());
            let most = if kind.phase == Phase::Decode { 1 } else { kind.n_tokens };
            prop_assert!((1..=most).contains(&experts.rows));
        }
        let matrices: u64 = graph.weights.iter().filter(|w| w.n_experts > 1).map(|w| 4 * w.n_elems()).sum();
        if sizes.experts.is_some_and(|(n, _)| n > 1) {
            prop_assert_eq!(buffers.expert_bytes(), matrices);
        }
        // Every token needs as many dispatches as experts that it uses, independent of other tokens, and no more.
        let n = plan.dispatches(&graph);
        let (_, n_used) = sizes.experts.expect("a mixture");
        let dense = (plan.calls().count() - 2 * sizes.n_layers) as u64;
        let most = dense + 2 * sizes.n_layers as u64 * plan.n_tokens * n_used as u64;
        prop_assert!(n >= dense + 2 * sizes.n_layers as u64 && n <= most, "{} of {}", n, most);
    }
}

/// Rows of dispatches are those that experts get on average, and more where the device takes no fewer.
#[test]
fn a_device_is_offered_few_rows_first() {
    let sizes = Sizes {
        experts: Some((4, 2)),
        ..Sizes::LEAST
    };
    let graph = sizes.graph();
    let rows_of = |kind: &PassKind, least: u64, offered: &mut Vec<u64>| {
        let plan = offload::products(&graph, kind, &mut |product: &Product| {
            offered.push(product.m);
            match product.m >= least {
                true => take(product),
                false => Err(Reason(format!("{} rows are too few", product.m))),
            }
        });
        let plan = plan.unwrap();
        experts(&plan).map(|(_, experts)| experts.rows).next()
    };
    let mut offered = Vec::new();
    assert_eq!(rows_of(&PassKind::prefill(96), 1, &mut offered), Some(64));
    assert_eq!(rows_of(&PassKind::prefill(96), 65, &mut offered), Some(96));
    assert_eq!(rows_of(&PassKind::prefill(24), 1, &mut offered), Some(16));
    assert_eq!(rows_of(&PassKind::prefill(9), 1, &mut offered), Some(9));
    assert_eq!(rows_of(&PassKind::decode(), 1, &mut offered), Some(1));
    assert_eq!(rows_of(&PassKind::prefill(96), 97, &mut offered), None);
}

fn take(product: &Product) -> Result<OffloadedOp, Reason> {
    super::products::take(product)
}

/// Operands that the host cannot gather are refused with the slot's name.
#[test]
fn other_operands_are_refused_by_name() {
    let sizes = Sizes {
        experts: Some((4, 2)),
        ..Sizes::LEAST
    };
    let graph = sizes.graph();
    let plan = offload::products(&graph, &PassKind::decode(), &mut |product: &Product| {
        let mut taken = take(product)?;
        taken.bindings[0] = Binding::Position;
        Ok(taken)
    });
    let plan = plan.unwrap();
    let is_expert = |node: usize| matches!(graph.nodes[node].op, Op::ExpertLinear(_));
    let mut refused = plan.placement.iter().filter(|p| is_expert(p.node));
    assert!(refused.all(|p| p.place == NodePlace::Host && p.reason.contains("slot `a`")));
}

/// A stored plan whose experts are other nodes is refused.
#[test]
fn calls_of_experts_that_are_none_are_found() {
    let sizes = Sizes {
        experts: Some((4, 2)),
        ..Sizes::LEAST
    };
    let graph = sizes.graph();
    let plan = products(&graph, &PassKind::prefill(3), None).unwrap();
    let spoil = |change: &dyn Fn(&mut ExpertCall)| {
        let mut plan = plan.clone();
        for step in &mut plan.steps {
            if let millrace_plan::Step::Call(call) = step
                && let Some(experts) = &mut call.experts
            {
                change(experts);
                break;
            }
        }
        plan.check(&graph)
    };
    assert_eq!(spoil(&|_| {}), Ok(()));
    for error in [
        spoil(&|experts| experts.rows = 0),
        spoil(&|experts| experts.node += 1),
        spoil(&|experts| experts.node = usize::MAX),
    ] {
        assert!(error.is_err_and(|e| e.contains("ExpertCall")));
    }
}
