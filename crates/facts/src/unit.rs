//! Units: a key's name ends with its unit.

/// Endings of keys and their units. A longer ending comes before any that it ends with.
const UNITS: &[(&str, &str)] = &[
    ("elements_per_s", "elements/s"),
    ("gflop_per_s", "GFLOP/s"),
    ("bytes_per_s", "bytes/s"),
    ("gb_per_s", "GB/s"),
    ("mb_per_s", "MB/s"),
    ("ops_per_s", "operations/s"),
    ("bytes_per_cycle", "bytes/cycle"),
    ("bytes_per_ns", "bytes/ns"),
    ("percent", "%"),
    ("cycles", "cycles"),
    ("bytes", "bytes"),
    ("kib", "KiB"),
    ("mib", "MiB"),
    ("gib", "GiB"),
    ("kb", "KB"),
    ("mb", "MB"),
    ("gb", "GB"),
    ("bits", "bits"),
    ("watts", "W"),
    ("mw", "mW"),
    ("w", "W"),
    ("ghz", "GHz"),
    ("mhz", "MHz"),
    ("khz", "kHz"),
    ("hz", "Hz"),
    ("ns", "ns"),
    ("us", "us"),
    ("ms", "ms"),
    ("s", "s"),
];

/// The unit that a key names at its end: `Hz` of `clock_hz`.
pub fn unit_of(key: &str) -> Option<&'static str> {
    split(key).map(|(_, unit)| unit)
}

/// The quantity that a key measures, and its unit.
pub(crate) fn split(key: &str) -> Option<(&str, &'static str)> {
    let mut found = UNITS.iter().filter_map(|(ending, unit)| {
        let stem = key.strip_suffix(ending)?.strip_suffix(['_', '.'])?;
        (!stem.is_empty()).then_some((stem, *unit))
    });
    found.next()
}
