//! Gated delta nets on the array: every op of a right device passes, each slot of a wrong one is found and named.

use crate::goldens::{open, problem, tokens};
use crate::support::{on, padded_to, planner, random};
use millrace_npu::{Corruption, Inject, Injection};
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_testkit::golden::Golden;
use millrace_verify::ops::{CheckSummary, Mismatch, OpCheck};
use millrace_xdna2::lower::{Feature, Features, Mode};
use std::sync::Arc;

fn features() -> Features {
    Features::of(Mode::Fast).with(Feature::DeltaNets)
}

#[test]
fn fixtures_pass_with_them_on_the_array() {
    let mut n_found = 0;
    for golden in Golden::all() {
        if !["qwen35", "qwen3next"]
            .iter()
            .any(|name| golden.name.starts_with(name))
        {
            continue;
        }
        n_found += 1;
        let model = open(golden.hf());
        let options = NpuOptions {
            n_ctx: Some(128),
            n_threads: Some(2),
            ..padded_to(64)
        };
        let npu = NpuModel::load(model.clone(), planner(features()), options).unwrap();
        let plan = npu.plan(0, &npu.sequences().decode(0)).unwrap();
        let on_array = plan.programs.iter().any(|p| p.name() == "delta_net");
        // Heads of 24 values stay on the host.
        assert_eq!(on_array, golden.name != "qwen35-wide");
        let wrong = problem(&model, npu, &[]);
        assert_eq!(wrong, None, "{}", golden.name);
    }
    assert!(n_found >= 3, "{n_found}");
}

/// A prompt and three tokens.
fn checked(npu: &Arc<NpuModel>) -> CheckSummary {
    let mut session = NpuSession::new(npu).unwrap();
    let (check, observer) = OpCheck::new(npu);
    session.observe(Some(observer));
    session.prefill(&tokens(70, 3, 500)).unwrap();
    for token in [7, 55, 31] {
        session.decode(token).unwrap();
    }
    check.summary().unwrap()
}

#[test]
fn a_wrong_slot_is_named() {
    let model = random("qwen35-tiny", None);
    let device = crate::support::device();
    let options = NpuOptions {
        n_ctx: Some(300),
        ..padded_to(64)
    };
    let npu = on(&model, &device, features(), options).unwrap();
    let found = checked(&npu);
    assert_eq!(found.finding, None);
    assert!(found.unchecked.is_empty(), "{found:?}");
    // A tolerance far above the errors would let an error pass.
    let share = found.worst["delta_net"];
    assert!(share > 0.2 && share < 1.0, "{share}");
    let corruptions = [Corruption::Some, Corruption::WHOLE[0]];
    for slot in ["delta_rows", "state", "state_behind", "delta_net"] {
        for how in corruptions {
            device.inject(Injection::Corrupt {
                program: "delta_net".to_owned(),
                slot: slot.to_owned(),
                how,
            });
            let finding = checked(&npu).finding;
            device.clear();
            npu.wipe_caches().unwrap();
            let finding = finding.unwrap_or_else(|| panic!("{slot} {how:?}: not found"));
            assert_eq!(finding.program, "delta_net", "{slot} {how:?}: {finding:?}");
            assert_eq!(finding.slot_name, slot, "{how:?}: {finding:?}");
            let is_moved = matches!(finding.what, Mismatch::Value { .. });
            assert_eq!(is_moved, slot == "state", "{how:?}: {finding:?}");
        }
    }
    assert_eq!(checked(&npu).finding, None);
}
