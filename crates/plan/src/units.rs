//! Bytes and times as people read them.

/// A byte count in binary units: `770.4 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A time with three significant digits: `80.0 µs`, `9.97 ms`.
pub fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "µs"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    match value {
        v if v >= 99.95 => format!("{v:.0} {unit}"),
        v if v >= 9.995 => format!("{v:.1} {unit}"),
        v => format!("{v:.2} {unit}"),
    }
}

/// A rate with as many digits as carry meaning: `1234`, `85.3`, `4.21`.
pub fn rate(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_switch_where_the_digits_do() {
        for (value, text) in [(1234.5, "1234"), (85.34, "85.3"), (4.214, "4.21")] {
            assert_eq!(rate(value), text);
        }
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (807_690_624, "770.3 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (1.0, "1.00 ns"),
            (80_000.0, "80.0 µs"),
            (9_970_000.0, "9.97 ms"),
            (999_600.0, "1.00 ms"),
            (1.27e9, "1.27 s"),
            (123e9, "123 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
