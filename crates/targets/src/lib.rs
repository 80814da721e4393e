//! The registry of targets: every kind of NPU is one row here, and named nowhere else outside its crate.
#![forbid(unsafe_code)]

use millrace_plan::Target;

/// Every target; the first is the default of NPU commands.
pub static ALL: &[&dyn Target] = &[
    &millrace_xdna2::target::Xdna2Target,
    &millrace_rk3588::target::Rk3588Target,
    &millrace_tcp::target::TcpTarget,
];

#[cfg(test)]
mod tests {
    use super::ALL;
    use millrace_plan::{Choice, Settings};

    /// Every option that the command line lists is accepted, and the first of each list is the default.
    #[test]
    fn every_target_takes_what_it_lists() {
        assert!(!ALL.is_empty());
        for target in ALL {
            let plain = target.planner(&Settings::default());
            let plain = plain.unwrap_or_else(|e| panic!("{target:?}: {e}"));
            assert_eq!(plain.target(), target.name());
            assert!(!target.title().is_empty());
            let options = target.options();
            let first = |choices: &[Choice]| choices.first().map(|c| c.name.clone());
            let said = Settings {
                mode: first(&options.modes),
                numerics: first(&options.numerics),
                ..Settings::default()
            };
            let said = target.planner(&said).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(said.identity(), plain.identity(), "{target:?}");
            for mode in &options.modes {
                let settings = Settings {
                    mode: Some(mode.name.clone()),
                    ..Settings::default()
                };
                assert!(target.planner(&settings).is_ok(), "{}", mode.name);
            }
            for feature in &options.features {
                let settings = Settings {
                    without: vec![feature.name.clone()],
                    ..Settings::default()
                };
                let without = target.planner(&settings);
                let without = without.unwrap_or_else(|e| panic!("{}: {e}", feature.name));
                assert!(!without.features().contains(&feature.name.as_str()));
                assert!(!feature.summary.is_empty());
            }
            let unknown = Settings {
                mode: Some("no such mode".to_owned()),
                ..Settings::default()
            };
            assert!(target.planner(&unknown).is_err());
        }
    }
}
