//! The time that templates are told.

use super::strftime::Moment;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment on the clock of UTC.
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

/// The present on the clock of this place: what `datetime.now()` shows. The place is that of the
/// variable TZ, else of /etc/localtime; where neither is of use it is UTC, as in the C library.
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
