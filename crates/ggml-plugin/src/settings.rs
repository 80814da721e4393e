//! Settings from environment variables.

use millrace_kernels::Level;
use std::fmt;

/// Devices to offer: a list of names.
pub(crate) const DEVICES: &str = "MILLRACE_GGML_DEVICES";

/// `1`: print at exit the ops that were computed, and why others were not.
pub(crate) const REPORT: &str = "MILLRACE_GGML_REPORT";

/// Tokens from which products are taken, in place of the measured numbers: for checks.
pub(crate) const LEAST_ROWS: &str = "MILLRACE_GGML_LEAST_ROWS";

/// Instructions that `Millrace` computes with, in place of the best: for checks.
pub(crate) const LEVEL: &str = "MILLRACE_GGML_LEVEL";

/// `1`: leave weights in the mapped file, where a program maps files.
pub(crate) const MAP: &str = "MILLRACE_GGML_MAP";

/// Part of the name of a tensor whose computation fails: a test of how a program reacts.
pub(crate) const FAIL: &str = "MILLRACE_GGML_FAIL";

/// Settings of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginSettings {
    /// Names as written; `None` selects the CPU's kernels alone.
    pub(crate) devices: Option<Vec<String>>,
    pub(crate) report: bool,
    pub(crate) map: bool,
    pub(crate) least_rows: Option<usize>,
    /// One that this processor has.
    pub(crate) level: Option<Level>,
    pub(crate) fail: Option<String>,
}

/// A variable that makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SettingError {
    pub(crate) variable: &'static str,
    pub(crate) value: String,
    pub(crate) expected: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingError {
            variable,
            value,
            expected,
        } = self;
        write!(f, "{variable}={value}: expected {expected}")
    }
}

impl std::error::Error for SettingError {}

impl PluginSettings {
    /// Reads the variables through `get`.
    ///
    /// # Errors
    /// An invalid value.
    pub(crate) fn read(
        get: &dyn Fn(&str) -> Option<String>,
    ) -> Result<PluginSettings, SettingError> {
        let least_rows = match get(LEAST_ROWS) {
            None => None,
            Some(value) => match value.parse() {
                Ok(rows) => Some(rows),
                Err(_) => {
                    return Err(SettingError {
                        variable: LEAST_ROWS,
                        value,
                        expected: "a number of tokens".to_owned(),
                    });
                }
            },
        };
        let devices = get(DEVICES).filter(|text| !text.trim().is_empty());
        let devices = devices.map(|text| {
            let names = text.split(',').map(|name| name.trim().to_owned());
            names.filter(|name| !name.is_empty()).collect()
        });
        Ok(PluginSettings {
            devices,
            report: flag(get, REPORT)?,
            map: flag(get, MAP)?,
            least_rows,
            level: level(get)?,
            fail: get(FAIL).filter(|text| !text.is_empty()),
        })
    }
}

/// Instructions by their name.
fn level(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Level>, SettingError> {
    let Some(value) = get(LEVEL).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match value.parse::<Level>() {
        Ok(level) if level.is_supported() => Ok(Some(level)),
        _ => {
            let names: Vec<_> = Level::supported()
                .iter()
                .map(|level| level.name())
                .collect();
            Err(SettingError {
                variable: LEVEL,
                value,
                expected: format!("one that this processor has: {}", names.join(", ")),
            })
        }
    }
}

/// A variable that is 0 or 1.
fn flag(
    get: &dyn Fn(&str) -> Option<String>,
    variable: &'static str,
) -> Result<bool, SettingError> {
    match get(variable).as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(SettingError {
            variable,
            value: other.to_owned(),
            expected: "0 or 1".to_owned(),
        }),
    }
}
