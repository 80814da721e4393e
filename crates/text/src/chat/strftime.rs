//! `strftime` for `strftime_now`, in English.

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

/// A moment, split into its parts.
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
    moment: Moment,
}

/// The date of a number of days since 1970-01-01 in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year. Eras of 400 years
/// all have the same number of days.
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

/// The time of `strftime_now`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    /// Seconds since 1970 in local time.
    pub(super) local_seconds: i64,
    pub(super) microseconds: u32,
    /// Offset of local time from UTC.
    pub(super) utc_offset_seconds: i32,
}

/// Flags and width between the `%` and the directive, as the C library takes them.
#[derive(Clone, Copy, Debug, Default)]
struct PadFlags {
    /// `-` for none, `_` for spaces, `0` for zeros.
    padding: Option<char>,
    is_upper: bool,
    is_swapped: bool,
    width: Option<usize>,
}

/// Characters that one directive may be padded to.
const MAX_WIDTH: usize = 1024;

type Chars<'s> = std::iter::Peekable<std::str::Chars<'s>>;

impl PadFlags {
    fn new(chars: &mut Chars<'_>) -> Result<PadFlags, String> {
        let mut style = PadFlags::default();
        while let Some(flag) = chars.next_if(|c| "_-0^#".contains(*c)) {
            match flag {
                '^' => style.is_upper = true,
                '#' => style.is_swapped = true,
                padding => style.padding = Some(padding),
            }
        }
        let mut width = String::new();
        width.extend(std::iter::from_fn(|| chars.next_if(char::is_ascii_digit)));
        if !width.is_empty() {
            let n = width.parse().ok().filter(|n| *n <= MAX_WIDTH);
            style.width = Some(n.ok_or_else(|| {
                format!(
                    "strftime_now pads to {width} characters, and at most {MAX_WIDTH} are allowed"
                )
            })?);
        }
        // Other eras and digits are the usual ones in the C locale.
        chars.next_if(|c| matches!(c, 'E' | 'O'));
        Ok(style)
    }

    /// A number with this many digits, unless the style says otherwise.
    fn number(self, n: i64, width: usize, padding: char, out: &mut String) {
        let padding = self.padding.unwrap_or(padding);
        let width = match (padding, self.width) {
            (_, Some(own)) => own,
            ('-', None) => 0,
            (_, None) => width,
        };
        let sign = if n < 0 { "-" } else { "" };
        let digits = n.unsigned_abs().to_string();
        let missing = width.saturating_sub(digits.len() + sign.len());
        match padding {
            '_' | '-' => {
                out.extend(std::iter::repeat_n(' ', missing));
                out.extend([sign, &digits]);
            }
            _ => {
                out.push_str(sign);
                out.extend(std::iter::repeat_n('0', missing));
                out.push_str(&digits);
            }
        }
    }

    fn text(self, text: &str, swaps_to_lower: bool, out: &mut String) {
        let text = match (self.is_swapped, self.is_upper) {
            (true, _) if swaps_to_lower => text.to_lowercase(),
            (true, _) | (_, true) => text.to_uppercase(),
            _ => text.to_owned(),
        };
        let missing = self.width.unwrap_or(0).saturating_sub(text.len());
        let fill = if self.padding == Some('0') { '0' } else { ' ' };
        out.extend(std::iter::repeat_n(fill, missing));
        out.push_str(&text);
    }
}

impl Time {
    fn at(moment: Moment) -> Time {
        let seconds = moment.local_seconds;
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
            moment,
        }
    }

    /// Year and week of ISO 8601: the first week has the year's first Thursday.
    fn iso_week(&self) -> (i64, i64) {
        let thursday = self.day_of_year - 1 + 3 - self.weekday as i64;
        let days_of = |year| if is_leap(year) { 366 } else { 365 };
        match thursday {
            ..0 => (self.year - 1, (thursday + days_of(self.year - 1)) / 7 + 1),
            day if day >= days_of(self.year) => (self.year + 1, 1),
            day => (self.year, day / 7 + 1),
        }
    }

    /// Appends the value of a directive; whether it is known.
    fn directive(
        &self,
        directive: char,
        style: PadFlags,
        out: &mut String,
    ) -> Result<bool, String> {
        let hour12 = (self.hour + 11) % 12 + 1;
        let from_sunday = (self.weekday as i64 + 1) % 7;
        let week = |first_day: i64| (self.day_of_year - 1 + 7 - first_day) / 7;
        let (number, width, padding) = match directive {
            'd' => (self.day as i64, 2, '0'),
            'e' => (self.day as i64, 2, '_'),
            'm' => (self.month as i64, 2, '0'),
            'y' => (self.year.rem_euclid(100), 2, '0'),
            'Y' => (self.year, 1, '0'),
            'C' => (self.year.div_euclid(100), 2, '0'),
            'G' => (self.iso_week().0, 1, '0'),
            'g' => (self.iso_week().0.rem_euclid(100), 2, '0'),
            'V' => (self.iso_week().1, 2, '0'),
            'U' => (week(from_sunday), 2, '0'),
            'W' => (week(self.weekday as i64), 2, '0'),
            'H' => (self.hour, 2, '0'),
            'k' => (self.hour, 2, '_'),
            'I' => (hour12, 2, '0'),
            'l' => (hour12, 2, '_'),
            'M' => (self.minute, 2, '0'),
            'S' => (self.second, 2, '0'),
            's' => {
                let offset = i64::from(self.moment.utc_offset_seconds);
                (self.moment.local_seconds.saturating_sub(offset), 1, '0')
            }
            'f' => (i64::from(self.moment.microseconds), 6, '0'),
            'j' => (self.day_of_year, 3, '0'),
            'u' => (self.weekday as i64 + 1, 1, '0'),
            'w' => (from_sunday, 1, '0'),
            _ => return self.text_directive(directive, style, out),
        };
        style.number(number, width, padding, out);
        Ok(true)
    }

    fn text_directive(
        &self,
        directive: char,
        style: PadFlags,
        out: &mut String,
    ) -> Result<bool, String> {
        let (day, month) = (DAYS[self.weekday], MONTHS[self.month - 1]);
        let half = if self.hour < 12 { "AM" } else { "PM" };
        match directive {
            'A' => style.text(day, false, out),
            'a' => style.text(&day[..3], false, out),
            'B' => style.text(month, false, out),
            'b' | 'h' => style.text(&month[..3], false, out),
            'p' => style.text(half, true, out),
            'P' => style.text(&half.to_lowercase(), true, out),
            'D' | 'x' => self.composed("%m/%d/%y", style, out)?,
            'F' => self.composed("%Y-%m-%d", style, out)?,
            'T' | 'X' => self.composed("%H:%M:%S", style, out)?,
            'R' => self.composed("%H:%M", style, out)?,
            'r' => self.composed("%I:%M:%S %p", style, out)?,
            'c' => self.composed("%a %b %e %H:%M:%S %Y", style, out)?,
            'n' => style.text("\n", false, out),
            't' => style.text("\t", false, out),
            // A time without a zone, as the clock of templates is.
            'Z' | 'z' => {}
            '%' => style.text("%", false, out),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn composed(&self, format: &str, style: PadFlags, out: &mut String) -> Result<(), String> {
        let mut text = String::new();
        self.write(format, &mut text)?;
        style.text(&text, false, out);
        Ok(())
    }

    fn write(&self, format: &str, out: &mut String) -> Result<(), String> {
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let mut chars = rest[at + 1..].chars().peekable();
            let style = PadFlags::new(&mut chars)?;
            let directive = chars.next();
            let after: usize = chars.map(char::len_utf8).sum();
            let end = rest.len() - after;
            let is_known = match directive {
                Some(directive) => self.directive(directive, style, out)?,
                None => false,
            };
            // An unknown directive is copied.
            if !is_known {
                out.push_str(&rest[at..end]);
            }
            if out.len() > MAX_BYTES {
                return Err(format!("strftime_now writes more than {MAX_BYTES} bytes"));
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        Ok(())
    }
}

/// The longest text that is written.
const MAX_BYTES: usize = 1 << 20;

/// A time as a format string asks for it, in Python's C locale.
///
/// # Errors
/// The bound that a format exceeds.
pub(super) fn format(format: &str, moment: Moment) -> Result<String, String> {
    let mut out = String::new();
    Time::at(moment).write(format, &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, local_seconds: i64) -> String {
        let moment = Moment {
            local_seconds,
            ..Moment::default()
        };
        format(text, moment).expect("it is short")
    }

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
                at("%A %a %d %B %b %Y %y %H %I %p %M %S %j %u %w", seconds),
                want
            );
        }
    }

    #[test]
    fn directives_flags_and_widths() {
        // From Python: datetime.fromtimestamp(s, UTC).replace(tzinfo=None).strftime(…), with TZ=UTC
        let directives = "%C|%g %G %V|%U %W|%k %l|%r|%P|%s|%n%t|%h|%x %X|%Ey %Od|%_d %-m %05d %^a %#p %10B|%_5Y %-j|%3d|%010A|%-5d|%+|%f|%^10b|%#Z|%5%|%_H%-M%e%-e%0e|%12c|%-12T|%#b%#A|%4y|%u%w|%D %R";
        for (seconds, want) in [
            (
                0,
                "19|70 1970 01|00 00| 0 12|12:00:00 AM|am|0|\n\t|Jan|01/01/70 00:00:00|70 01| 1 1 00001 THU am    January| 1970 1|001|00Thursday|    1|%+|000000|       JAN||    %| 00 1101|Thu Jan  1 00:00:00 1970|    00:00:00|JANTHURSDAY|0070|44|01/01/70 00:00",
            ),
            (
                1709164800,
                "20|24 2024 09|08 09| 0 12|12:00:00 AM|am|1709164800|\n\t|Feb|02/29/24 00:00:00|24 29|29 2 00029 THU am   February| 2024 60|029|00Thursday|   29|%+|000000|       FEB||    %| 00292929|Thu Feb 29 00:00:00 2024|    00:00:00|FEBTHURSDAY|0024|44|02/29/24 00:00",
            ),
            (
                1735689599,
                "20|25 2025 01|52 53|23 11|11:59:59 PM|pm|1735689599|\n\t|Dec|12/31/24 23:59:59|24 31|31 12 00031 TUE pm   December| 2024 366|031|000Tuesday|   31|%+|000000|       DEC||    %|2359313131|Tue Dec 31 23:59:59 2024|    23:59:59|DECTUESDAY|0024|22|12/31/24 23:59",
            ),
            (
                1104537600,
                "20|04 2004 53|00 00| 0 12|12:00:00 AM|am|1104537600|\n\t|Jan|01/01/05 00:00:00|05 01| 1 1 00001 SAT am    January| 2005 1|001|00Saturday|    1|%+|000000|       JAN||    %| 00 1101|Sat Jan  1 00:00:00 2005|    00:00:00|JANSATURDAY|0005|66|01/01/05 00:00",
            ),
            (
                1230768000,
                "20|09 2009 01|00 00| 0 12|12:00:00 AM|am|1230768000|\n\t|Jan|01/01/09 00:00:00|09 01| 1 1 00001 THU am    January| 2009 1|001|00Thursday|    1|%+|000000|       JAN||    %| 00 1101|Thu Jan  1 00:00:00 2009|    00:00:00|JANTHURSDAY|0009|44|01/01/09 00:00",
            ),
            (
                1609459200,
                "20|20 2020 53|00 00| 0 12|12:00:00 AM|am|1609459200|\n\t|Jan|01/01/21 00:00:00|21 01| 1 1 00001 FRI am    January| 2021 1|001|0000Friday|    1|%+|000000|       JAN||    %| 00 1101|Fri Jan  1 00:00:00 2021|    00:00:00|JANFRIDAY|0021|55|01/01/21 00:00",
            ),
            (
                1704067199,
                "20|23 2023 52|53 52|23 11|11:59:59 PM|pm|1704067199|\n\t|Dec|12/31/23 23:59:59|23 31|31 12 00031 SUN pm   December| 2023 365|031|0000Sunday|   31|%+|000000|       DEC||    %|2359313131|Sun Dec 31 23:59:59 2023|    23:59:59|DECSUNDAY|0023|70|12/31/23 23:59",
            ),
            (
                306000,
                "19|70 1970 01|01 00|13  1|01:00:00 PM|pm|306000|\n\t|Jan|01/04/70 13:00:00|70 04| 4 1 00004 SUN pm    January| 1970 4|004|0000Sunday|    4|%+|000000|       JAN||    %|130 4404|Sun Jan  4 13:00:00 1970|    13:00:00|JANSUNDAY|0070|70|01/04/70 13:00",
            ),
            (
                1262329261,
                "20|09 2009 53|00 00| 7  7|07:01:01 AM|am|1262329261|\n\t|Jan|01/01/10 07:01:01|10 01| 1 1 00001 FRI am    January| 2010 1|001|0000Friday|    1|%+|000000|       JAN||    %| 71 1101|Fri Jan  1 07:01:01 2010|    07:01:01|JANFRIDAY|0010|55|01/01/10 07:01",
            ),
        ] {
            assert_eq!(at(directives, seconds), want);
        }
        let moment = Moment {
            local_seconds: 7200,
            microseconds: 678,
            utc_offset_seconds: 3600,
        };
        assert_eq!(format("%f %s", moment).unwrap(), "000678 3600");
        assert!(format("%1000000000d", moment).is_err());
        assert!(format(&"%1000d".repeat(2000), moment).is_err());
    }

    #[test]
    fn composed_unpadded_and_unknown() {
        let t = 1_709_198_705;
        assert_eq!(
            at("%F %T|%D %R|%c|%e", t),
            "2024-02-29 09:25:05|02/29/24 09:25|Thu Feb 29 09:25:05 2024|29"
        );
        assert_eq!(at("%-d/%-m %-I", 86_400 * 31 + 3600), "1/2 1");
        assert_eq!(at("100%% %q %-q % %", t), "100% %q %-q % %");
        assert_eq!(at("%Z%z", t), "");
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
            at("%c %j %V %U %s", seconds);
        }
    }
}
