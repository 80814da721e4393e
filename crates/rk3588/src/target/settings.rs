//! A planner from settings.

use super::attention::AttentionBy;
use super::planner::{ROTATION, Rk3588, WeightMode};
use super::{NAME, Rk3588Target};
use crate::machine::Machine;
use crate::matmul::MatmulKind;
use crate::profile::Profile;
use millrace_plan::settings::machine_and_profile;
use millrace_plan::{Choice, SettingError, Settings, Target};

/// Nodes that are multiplied in fp16, as a change.
const FP16: &str = "fp16=";

/// Who computes attention, as a change.
const ATTENTION: &str = "attention=";

/// Whether a change concerns plans, not the machine or the profile.
fn is_of_plans(change: &str) -> bool {
    change.starts_with(FP16) || change.starts_with(ATTENTION)
}

/// Who computes attention: the last choice named.
fn attention(settings: &Settings) -> Result<AttentionBy, SettingError> {
    let mut by = AttentionBy::default();
    for change in &settings.set {
        let Some(name) = change.strip_prefix(ATTENTION) else {
            continue;
        };
        let named = AttentionBy::ALL.into_iter().find(|by| by.name() == name);
        by = named.ok_or_else(|| SettingError::Change {
            change: change.clone(),
            problem: format!(
                "no `{name}`; there are {}",
                AttentionBy::ALL.map(AttentionBy::name).join(", ")
            ),
        })?;
    }
    Ok(by)
}

pub(super) fn numerics() -> Vec<Choice> {
    vec![
        Choice::new(
            "int8",
            "8-bit weights with a scale a row, 8-bit activations with a scale a token",
        ),
        Choice::new(
            "fp16",
            "weights and activations in fp16: twice the memory, half the rate (single layers: \
             `--set fp16=ffn_down+lm_head`, `--set fp16=ffn_down@0`)",
        ),
    ]
}

/// A planner with those settings.
pub(super) fn planner(settings: &Settings) -> Result<Rk3588, SettingError> {
    let options = Rk3588Target.options();
    let mode = match settings.mode.as_deref() {
        None => WeightMode::AtLoad,
        Some(name) => (WeightMode::ALL.into_iter().find(|mode| mode.name() == name))
            .ok_or_else(|| SettingError::unknown(NAME, "mode", name, &options.modes))?,
    };
    let kind = match settings.numerics.as_deref() {
        None | Some("int8") => MatmulKind::Int8Int32,
        Some("fp16") => MatmulKind::Fp16F32,
        Some(name) => {
            return Err(SettingError::unknown(
                NAME,
                "numerics",
                name,
                &options.numerics,
            ));
        }
    };
    let other = settings.without.iter().find(|name| *name != ROTATION);
    if let Some(name) = other {
        return Err(SettingError::unknown(
            NAME,
            "feature",
            name,
            &options.features,
        ));
    }
    if let Some(name) = &settings.host {
        return Err(SettingError::unknown(NAME, "host", name, &[]));
    }
    let (machine, profile) = machine(settings)?;
    let fp16 = settings.set.iter().filter_map(|set| set.strip_prefix(FP16));
    let fp16 = fp16.flat_map(|nodes| nodes.split('+')).map(str::to_owned);
    Ok(Rk3588::new(machine, profile, mode, kind)
        .with_rotation(settings.without.is_empty())
        .with_fp16(fp16.collect())
        .with_attention(attention(settings)?))
}

/// The machine with its profile, changes applied.
pub(super) fn machine(settings: &Settings) -> Result<(Machine, Profile), SettingError> {
    let changes = || settings.set.iter().filter(|set| !is_of_plans(set));
    let (machine, mut profile): (Machine, Profile) =
        machine_and_profile(NAME, settings, changes())?;
    if changes().next().is_some() {
        // The stated error was found without a change.
        profile.error = None;
    }
    Ok((machine, profile))
}
