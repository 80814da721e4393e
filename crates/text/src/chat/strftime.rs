//! `strftime` for `strftime_now`, in UTC and English.

use std::fmt::Write;

const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment, taken apart.
#[derive(Clone, Copy, Debug)]
struct Time {
    year: i64,
    /// 1 to 12
    month: usize,
    /// 1 to 31
    day: usize,
    /// 1 to 366
    day_of_year: i64,
    /// Days since Monday
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

/// The date of a number of days since 1970-01-01 in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year, in eras of 400
/// years, which all have the same number of days.
fn date(days: i64) -> (i64, usize, usize) {
    const DAYS_OF_ERA: i64 = 146_097;
    // From 0000-03-01.
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_OF_ERA);
    let day_of_era = days.rem_euclid(DAYS_OF_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_from_march + 2) / 5 + 1;
    let month = if months_from_march < 10 {
        months_from_march + 3
    } else {
        months_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month as usize, day as usize)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

impl Time {
    fn at(seconds: i64) -> Time {
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = date(days);
        const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let leap_day = i64::from(month > 2 && is_leap(year));
        Time {
            year,
            month,
            day,
            day_of_year: BEFORE[month - 1] + day as i64 + leap_day,
            // 1970-01-01 was a Thursday.
            weekday: (days + 3).rem_euclid(7) as usize,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// Appends what a directive stands for; an unknown one as it is written.
    fn directive(&self, directive: char, pad: bool, out: &mut String) {
        let hour12 = (self.hour + 11) % 12 + 1;
        let (number, width) = match directive {
            'd' => (self.day as i64, 2),
            'm' => (self.month as i64, 2),
            'y' => (self.year.rem_euclid(100), 2),
            'Y' => (self.year, 4),
            'H' => (self.hour, 2),
            'I' => (hour12, 2),
            'M' => (self.minute, 2),
            'S' => (self.second, 2),
            'f' => (0, 6),
            'j' => (self.day_of_year, 3),
            'u' => (self.weekday as i64 + 1, 1),
            'w' => ((self.weekday as i64 + 1) % 7, 1),
            _ => return self.text_directive(directive, pad, out),
        };
        let width = if pad { width } else { 1 };
        write!(out, "{number:0width$}").expect("strings can be written to");
    }

    fn text_directive(&self, directive: char, pad: bool, out: &mut String) {
        let (day, month) = (DAYS[self.weekday], MONTHS[self.month - 1]);
        match directive {
            'A' => out.push_str(day),
            'a' => out.push_str(&day[..3]),
            'B' => out.push_str(month),
            'b' | 'h' => out.push_str(&month[..3]),
            'p' => out.push_str(if self.hour < 12 { "AM" } else { "PM" }),
            'e' => write!(out, "{:2}", self.day).expect("strings can be written to"),
            'D' | 'x' => self.write("%m/%d/%y", out),
            'F' => self.write("%Y-%m-%d", out),
            'T' | 'X' => self.write("%H:%M:%S", out),
            'R' => self.write("%H:%M", out),
            'c' => self.write("%a %b %e %H:%M:%S %Y", out),
            // A time without a zone, as the clock of templates is.
            'Z' | 'z' => {}
            '%' => out.push('%'),
            other => {
                out.push('%');
                if !pad {
                    out.push('-');
                }
                out.push(other);
            }
        }
    }

    fn write(&self, format: &str, out: &mut String) {
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('-') => match chars.next() {
                    Some(directive) => self.directive(directive, false, out),
                    None => out.push_str("%-"),
                },
                Some(directive) => self.directive(directive, true, out),
                None => out.push('%'),
            }
        }
    }
}

/// A time in seconds since 1970 as a format string asks for it.
pub(super) fn format(format: &str, seconds: i64) -> String {
    let mut out = String::new();
    Time::at(seconds).write(format, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        // From Python: datetime.fromtimestamp(s, UTC).strftime(…)
        for (seconds, want) in [
            (
                0,
                "Thursday Thu 01 January Jan 1970 70 00 12 AM 00 00 001 4 4",
            ),
            (
                1_709_164_800,
                "Thursday Thu 29 February Feb 2024 24 00 12 AM 00 00 060 4 4",
            ),
            (
                1_735_689_599,
                "Tuesday Tue 31 December Dec 2024 24 23 11 PM 59 59 366 2 2",
            ),
            (
                -1,
                "Wednesday Wed 31 December Dec 1969 69 23 11 PM 59 59 365 3 3",
            ),
            (
                4_107_542_400,
                "Monday Mon 01 March Mar 2100 00 00 12 AM 00 00 060 1 1",
            ),
            (
                951_782_400,
                "Tuesday Tue 29 February Feb 2000 00 00 12 AM 00 00 060 2 2",
            ),
        ] {
            assert_eq!(
                format("%A %a %d %B %b %Y %y %H %I %p %M %S %j %u %w", seconds),
                want
            );
        }
    }

    #[test]
    fn composed_unpadded_and_unknown() {
        let t = 1_709_198_705;
        assert_eq!(
            format("%F %T|%D %R|%c|%e", t),
            "2024-02-29 09:25:05|02/29/24 09:25|Thu Feb 29 09:25:05 2024|29"
        );
        assert_eq!(format("%-d/%-m %-I", 86_400 * 31 + 3600), "1/2 1");
        assert_eq!(format("100%% %q %-q % %", t), "100% %q %-q % %");
        assert_eq!(format("%Z%z", t), "");
    }

    #[test]
    fn every_day_follows_the_day_before() {
        let mut last = date(-800_000);
        for day in -799_999..800_000 {
            let this = date(day);
            let next_day = this == (last.0, last.1, last.2 + 1);
            let next_month = this == (last.0, last.1 + 1, 1) || this == (last.0 + 1, 1, 1);
            assert!(
                next_day || (next_month && last.2 >= 28),
                "{last:?} {this:?}"
            );
            last = this;
        }
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        for seconds in [i64::MIN, i64::MAX] {
            format("%c %j", seconds);
        }
    }
}
