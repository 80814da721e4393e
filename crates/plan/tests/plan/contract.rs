//! The contract of targets: its defaults and typed numbers; a caller may take only the part that it needs.

use super::device::{Manner, Toy};
use super::model::Sizes;
use millrace_graph::ValueId;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_plan::{
    Arrangement, Binding, Explain, InputId, Lowering, Numerics, OperandArrangement, OwnSlot,
    PassKind, PassPosition, Plan, Planner, Scales, ValueArrangement, VisionShape,
    WeightArrangement, WeightLayout, WeightSource,
};
use std::sync::Arc;

fn plan() -> Plan {
    let graph = Sizes::LEAST.graph();
    Toy(Manner::all())
        .lower(&graph, &PassKind::decode())
        .unwrap()
}

/// A plan in a cache has bare numbers. One with other names does not parse, and is lowered anew.
#[test]
fn typed_numbers_are_stored_as_numbers() {
    let packed = Binding::Packed {
        value: ValueId(3),
        id: ValueArrangement(7),
        bias: None,
    };
    let made = Binding::PassInput { id: InputId(8) };
    let own = WeightLayout::Own {
        id: WeightArrangement(9),
        half_split: Some(64),
    };
    for (found, expected) in [
        (
            serde_json::to_string(&packed),
            r#"{"Packed":{"value":3,"id":7,"bias":null}}"#,
        ),
        (serde_json::to_string(&made), r#"{"PassInput":{"id":8}}"#),
        (
            serde_json::to_string(&own),
            r#"{"Own":{"id":9,"half_split":64}}"#,
        ),
    ] {
        assert_eq!(found.unwrap(), expected);
    }
    let read: Binding = serde_json::from_str(r#"{"PassInput":{"id":8}}"#).unwrap();
    assert_eq!(read, made);
}

/// A caller that needs only lowering takes that part; a planner is all of its parts.
#[test]
fn a_planner_is_each_of_its_parts() {
    fn mode(lowering: &dyn Lowering) -> String {
        lowering.mode()
    }
    fn n_launches(explain: &dyn Explain, plan: &Plan) -> usize {
        explain.occupied(&plan.programs[0], 0..3).n_launches
    }
    let planner: Arc<dyn Planner> = Arc::new(Toy(Manner::all()));
    assert_eq!(mode(&*planner), "plain");
    assert_eq!(n_launches(&*planner, &plan()), 3);
    let arrangement: Arc<dyn Arrangement> = planner.clone();
    let layout = WeightLayout::AsStored { half_split: None };
    assert_eq!(
        arrangement.becomes(millrace_quant::DType::F32, &layout),
        None
    );
    let numerics: &dyn Numerics = &*planner;
    let launch = &plan().programs[0].launches[0];
    assert_eq!(numerics.arithmetic(launch), Default::default());
    assert!(planner.pricer().is_none() && planner.observed().is_none());
    assert!(format!("{planner:?}").starts_with("toy "));
}

/// A target without its own arrangements refuses each with its number, so that the error names the one in a plan.
#[test]
fn what_a_target_does_not_arrange_is_refused_by_number() {
    let (plan, toy) = (plan(), Toy(Manner::all()));
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    fn at<I>(plan: &Plan, id: I) -> OwnSlot<'_, I> {
        OwnSlot {
            program: &plan.programs[0],
            slot: 0,
            id,
        }
    }
    let weight = WeightSource {
        dtype: millrace_quant::DType::F32,
        bytes: &[0; 4],
        n: 1,
        k: 1,
        half_split: None,
    };
    let graph = Sizes::LEAST.graph();
    let position = PassPosition {
        graph: &graph,
        tokens: &[1],
        n_real: 1,
        first: 0,
    };
    let (rows, none) = (&mut [0.0], Scales::default());
    let value = at(&plan, ValueArrangement(32));
    let operand = at(&plan, OperandArrangement::Value(ValueArrangement(34)));
    let refusals = [
        (
            31,
            toy.fill(&cpu, &at(&plan, WeightArrangement(31)), &weight, &mut [])
                .map(drop),
        ),
        (32, toy.pack(&cpu, &value, rows, 1, &mut []).map(drop)),
        (32, toy.unpack(&cpu, &value, &[], &[], 1, rows)),
        (33, toy.make(&at(&plan, InputId(33)), &position, &mut [])),
        (34, toy.operand(&cpu, &operand, &[], &none, rows)),
    ];
    for (number, refused) in refusals {
        let problem = refused.unwrap_err();
        assert!(problem.contains(&number.to_string()), "{problem}");
    }
    let launch = &plan.programs[0].launches[0];
    assert_eq!(toy.read_weight(launch, WeightArrangement(31), &[], 1), None);
}

#[test]
fn a_target_without_a_encoder_says_so_by_name() {
    let shape = VisionShape {
        n_patches: 16,
        d_model: 8,
        d_ff: 16,
        n_heads: 2,
        head_dim: 4,
        patch_elems: 12,
        n_tokens: 4,
        d_text: 8,
    };
    let reason = Toy(Manner::all()).vision_encoder(&shape).unwrap_err();
    assert!(reason.0.starts_with("toy has no programs"), "{reason}");
}
