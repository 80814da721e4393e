//! A planner from what was asked for.

use super::attention::AttentionBy;
use super::planner::{Mode, ROTATION, Rk3588};
use super::{NAME, Row};
use crate::machine::Machine;
use crate::matmul::Kind;
use crate::profile::Profile;
use millrace_plan::{Choice, Facts, SettingError, Settings, Target};

/// How a profile's constant is told from a fact of the machine in changes.
const PROFILE_PREFIX: &str = "profile.";

/// Nodes that are multiplied in fp16, as a change.
const FP16: &str = "fp16=";

/// Who computes attention, as a change.
const ATTENTION: &str = "attention=";

/// Whether a change is one of plans, not of the machine or the profile.
fn is_of_plans(change: &str) -> bool {
    change.starts_with(FP16) || change.starts_with(ATTENTION)
}

/// Who computes attention: the last that is named.
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

/// A planner set up so.
pub(super) fn planner(settings: &Settings) -> Result<Rk3588, SettingError> {
    let options = Row.options();
    let mode = match settings.mode.as_deref() {
        None => Mode::AtLoad,
        Some(name) => (Mode::ALL.into_iter().find(|mode| mode.name() == name))
            .ok_or_else(|| SettingError::unknown(NAME, "mode", name, &options.modes))?,
    };
    let kind = match settings.numerics.as_deref() {
        None | Some("int8") => Kind::Int8Int32,
        Some("fp16") => Kind::Fp16F32,
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
    let options = Row.options();
    let unknown = |what, name: &str, choices: &[Choice]| -> SettingError {
        SettingError::unknown(NAME, what, name, choices)
    };
    let (machine_name, mut machine) = match &settings.machine {
        None => ("rk3588", Machine::BUILTIN.to_owned()),
        Some(Facts::Named(name)) if name == "rk3588" => ("rk3588", Machine::BUILTIN.to_owned()),
        Some(Facts::Named(name)) => return Err(unknown("machine", name, &options.machines)),
        Some(Facts::Text { name, text }) => (name.as_str(), text.clone()),
    };
    let named = |name: &str| {
        let text = Profile::builtin_text(name).map(str::to_owned);
        text.ok_or_else(|| unknown("profile", name, &options.profiles))
    };
    let (profile_name, mut profile) = match &settings.profile {
        None => (Profile::DEFAULT, named(Profile::DEFAULT)?),
        Some(Facts::Named(name)) => (name.as_str(), named(name)?),
        Some(Facts::Text { name, text }) => (name.as_str(), text.clone()),
    };
    let changes = settings.set.iter().filter(|set| !is_of_plans(set));
    let mut is_changed = false;
    for change in changes {
        let changed = match change.strip_prefix(PROFILE_PREFIX) {
            Some(of_profile) => changed(&profile, of_profile, true).and_then(|text| {
                profile = text;
                parse_profile(profile_name, &profile).map(|_| ())
            }),
            None => changed(&machine, change, false).and_then(|text| {
                machine = text;
                parse_machine(machine_name, &machine).map(|_| ())
            }),
        };
        changed.map_err(|problem| SettingError::Change {
            change: change.clone(),
            problem,
        })?;
        is_changed = true;
    }
    let machine = parse_machine(machine_name, &machine).map_err(SettingError::Facts)?;
    let mut profile = parse_profile(profile_name, &profile).map_err(SettingError::Facts)?;
    if is_changed {
        // The stated error was found without a change; the label must not claim it.
        profile.name.push_str(" changed by --set");
        profile.error = None;
    }
    Ok((machine, profile))
}

fn parse_machine(name: &str, text: &str) -> Result<Machine, String> {
    Machine::from_toml(text).map_err(|error| format!("{name}: {error}"))
}

fn parse_profile(name: &str, text: &str) -> Result<Profile, String> {
    Profile::from_toml(text).map_err(|error| format!("{name}: {error}"))
}

/// The text of facts or constants with one of them changed.
fn changed(text: &str, change: &str, is_profile: bool) -> Result<String, String> {
    let (key, value) = change
        .split_once('=')
        .ok_or("write key=value, or profile.key=value")?;
    let number: toml::Value = match (value.parse::<i64>(), value.parse::<f64>()) {
        (Ok(whole), _) => whole.into(),
        (_, Ok(number)) => number.into(),
        _ => return Err(format!("`{value}` is no number")),
    };
    let mut table: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    let known = |table: &toml::Table| {
        let keys = table.iter().filter(|(_, value)| value.is_table());
        let keys: Vec<&str> = keys.map(|(key, _)| key.as_str()).collect();
        format!("no `{key}`; there are {}", keys.join(", "))
    };
    if !is_profile && !table.get(key).is_some_and(toml::Value::is_table) {
        return Err(known(&table));
    }
    let mut entry = toml::Table::new();
    entry.insert("value".into(), number);
    entry.insert("source".into(), "--set".into());
    if is_profile {
        entry.insert("origin".into(), "assumed".into());
    }
    table.insert(key.to_owned(), entry.into());
    Ok(table.to_string())
}
