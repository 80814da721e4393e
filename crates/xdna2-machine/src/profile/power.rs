//! Energy from published powers.

use super::Profile;
use millrace_npu::{Energy, Provenance};

/// Mean powers while the array works, in watts; 0 where no source states one. Rails contain each
/// other and come from different sensors, so they are never added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Power {
    /// The NPU's own rail.
    pub npu_w: f64,
    /// CPU, GPU and NPU together, without memory and board.
    pub package_w: f64,
}

impl Profile {
    /// Energy of that much time on the device: rails `npu` and `package`, as far as the profile
    /// states powers; `None` where it states none.
    ///
    /// The powers are means over whole runs. So the energy of one short program is an estimate, and its error was never
    /// measured.
    pub fn energy(&self, duration_ns: u64) -> Option<Energy> {
        let mut energy = Energy::default();
        for (rail, power_w) in [("npu", self.power.npu_w), ("package", self.power.package_w)] {
            let provenance = Provenance::Modelled {
                profile: self.name.clone(),
                error: None,
            };
            if power_w > 0.0 {
                energy.add(rail, power_w, duration_ns, provenance).ok()?;
            }
        }
        (!energy.rails.is_empty()).then_some(energy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_are_those_that_sources_state() {
        let default = Profile::builtin(Profile::DEFAULT).unwrap();
        assert_eq!(default.energy(1_000), None);
        let paper = Profile::builtin("paper-kraken").unwrap();
        let energy = paper.energy(2_000_000_000).unwrap();
        assert_eq!(energy.names(), ["npu", "package"]);
        // Table 5: the mean of 1.8, 1.6, 1.2 and 1.1 W, two seconds long.
        assert!((energy.joules("npu").unwrap() - 2.85).abs() < 1e-9);
        assert!(energy.joules("package").unwrap() > energy.joules("npu").unwrap());
        assert!(!energy.is_measured("npu"));
        let mut only_npu = default;
        only_npu.set("power.npu_w = 1.5").unwrap();
        assert_eq!(only_npu.energy(1).unwrap().names(), ["npu"]);
        assert!(only_npu.set("power.npu_w = -1").is_err());
    }
}
