//! The clock that templates read.

use super::strftime::Moment;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in UTC.
pub(super) fn in_utc(time: SystemTime) -> Moment {
    // Before 1970 the microseconds are left out.
    let (seconds, microseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()), after.subsec_micros()),
        Err(before) => (
            i64::try_from(before.duration().as_secs()).map(|secs| -secs),
            0,
        ),
    };
    Moment {
        local_seconds: seconds.unwrap_or(i64::MAX),
        microseconds,
        utc_offset_seconds: 0,
    }
}

/// The present in the local time zone, as `datetime.now()` shows it. The zone is that of the
/// variable TZ, else of /etc/localtime; where neither is usable it is UTC, as in the C library.
pub(super) fn here_and_now() -> Moment {
    let now = in_utc(SystemTime::now());
    let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
    let moment = Timestamp::from_second(now.local_seconds);
    let offset = moment.map_or(0, |moment| zone.to_offset(moment).seconds());
    Moment {
        local_seconds: now.local_seconds + i64::from(offset),
        utc_offset_seconds: offset,
        ..now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SHOWN: &str = "hours and offset:";

    /// Run by the test below in a process with a set time zone; the variable must not change while others read it.
    #[test]
    fn show_the_clock() {
        let (moment, now) = (here_and_now(), in_utc(SystemTime::now()));
        let ahead = moment.local_seconds - now.local_seconds;
        println!("{SHOWN} {ahead} {}", moment.utc_offset_seconds);
    }

    #[test]
    fn the_clock_is_that_of_the_place() {
        let program = std::env::current_exe().expect("the tests have a file");
        // Zones by rule need no files; an unknown one is UTC.
        for (zone, want) in [
            ("XXX-14", 14 * 3600),
            ("<+12>12", -12 * 3600),
            ("UTC0", 0),
            ("", 0),
            ("Nowhere/Never", 0),
        ] {
            let mut command = Command::new(&program);
            command.args(["show_the_clock", "--nocapture", "--test-threads=1"]);
            let output = command.env("TZ", zone).output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout);
            let line = text.lines().find_map(|line| line.split_once(SHOWN));
            let numbers: Vec<i64> = line
                .map(|(_, numbers)| numbers.split_whitespace().flat_map(str::parse).collect())
                .unwrap_or_default();
            let [ahead, offset] = numbers[..] else {
                panic!("{zone}: {text}");
            };
            // A second may pass between the two readings of the clock.
            assert!(
                (ahead - want).abs() <= 1 && offset == want,
                "{zone}: {text}"
            );
        }
    }
}
