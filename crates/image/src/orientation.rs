//! Orientation of the camera, and the image turned upright.

use crate::RgbImage;

/// The eight ways in which rows may be stored: the value of EXIF's tag 0x0112 (TIFF 6.0, *Orientation*). 1 is upright.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orientation(u16);

impl Default for Orientation {
    fn default() -> Orientation {
        Orientation(1)
    }
}

/// Bytes of a directory's entry: tag, type, count, value.
const ENTRY_BYTES: usize = 12;
const TAG: u16 = 0x0112;
/// The type of a 16-bit number.
const SHORT: u16 = 3;

impl Orientation {
    /// The orientation in the first directory of `exif` (from its TIFF header on); none where it has none, or an invalid one.
    pub(crate) fn in_exif(exif: &[u8]) -> Option<Orientation> {
        let little = match exif.get(..4)? {
            b"II*\0" => true,
            b"MM\0*" => false,
            _ => return None,
        };
        let short = |at: &[u8]| {
            let pair = *at.first_chunk()?;
            let number = if little {
                u16::from_le_bytes
            } else {
                u16::from_be_bytes
            };
            Some(number(pair))
        };
        let long = |at: &[u8]| {
            let four = *at.first_chunk()?;
            let number = if little {
                u32::from_le_bytes
            } else {
                u32::from_be_bytes
            };
            Some(number(four))
        };
        let directory = exif.get(long(&exif[4..])? as usize..)?;
        let n_entries = usize::from(short(directory)?);
        let entries = directory[2..].chunks_exact(ENTRY_BYTES).take(n_entries);
        for entry in entries {
            if (short(entry)?, short(&entry[2..])?, long(&entry[4..])?) == (TAG, SHORT, 1) {
                let value = short(&entry[8..])?;
                return (1..=8).contains(&value).then_some(Orientation(value));
            }
        }
        None
    }

    /// The image as it was seen.
    pub(crate) fn applied_to(self, image: RgbImage) -> RgbImage {
        if self == Orientation::default() {
            return image;
        }
        let (right, bottom) = (image.width() - 1, image.height() - 1);
        let (width, height) = match self.0 {
            5..=8 => (image.height(), image.width()),
            _ => (image.width(), image.height()),
        };
        let mut rgb = Vec::with_capacity(image.rgb().len());
        for y in 0..height {
            for x in 0..width {
                let (column, row) = match self.0 {
                    2 => (right - x, y),
                    3 => (right - x, bottom - y),
                    4 => (x, bottom - y),
                    5 => (y, x),
                    6 => (y, bottom - x),
                    7 => (right - y, bottom - x),
                    8 => (right - y, x),
                    _ => (x, y),
                };
                let at = (row * image.width() + column) * 3;
                rgb.extend_from_slice(&image.rgb()[at..at + 3]);
            }
        }
        RgbImage::new(width, height, rgb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header and a directory of two entries, the second of which is the orientation.
    fn exif(little: bool, value: u16) -> Vec<u8> {
        let short = |n: u16| {
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let long = |n: u32| {
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let mut bytes = if little { b"II*\0" } else { b"MM\0*" }.to_vec();
        bytes.extend(long(10));
        bytes.extend([0, 0]);
        bytes.extend(short(2));
        for (tag, value) in [(0x0100, 640), (TAG, value)] {
            bytes.extend([short(tag), short(SHORT)].concat());
            bytes.extend(long(1));
            bytes.extend([short(value), short(0)].concat());
        }
        bytes
    }

    #[test]
    fn a_directory_is_read_in_both_orders_of_bytes() {
        for little in [false, true] {
            for value in 1..=8 {
                let found = Orientation::in_exif(&exif(little, value));
                assert_eq!(found, Some(Orientation(value)));
            }
            for value in [0, 9, 0x600] {
                assert_eq!(Orientation::in_exif(&exif(little, value)), None);
            }
            let whole = exif(little, 6);
            for end in 0..whole.len() {
                assert_eq!(Orientation::in_exif(&whole[..end]), None, "{end} bytes");
            }
            // A directory whose offset is far outside.
            let mut outside = whole;
            outside[4..8].fill(0xff);
            assert_eq!(Orientation::in_exif(&outside), None);
        }
    }

    /// Each way of storing `a b / c d / e f`, as the standard describes where its first row and column are seen.
    #[test]
    fn every_way_is_turned_upright() {
        let upright = "ab cd ef";
        let stored = [
            (1, "ab cd ef"), // row 0 is at the top, column 0 on the left
            (2, "ba dc fe"), // top, right
            (3, "fe dc ba"), // bottom, right
            (4, "ef cd ab"), // bottom, left
            (5, "ace bdf"),  // left, top
            (6, "bdf ace"),  // right, top
            (7, "fdb eca"),  // right, bottom
            (8, "eca fdb"),  // left, bottom
        ];
        let image = |rows: &str| {
            let rows: Vec<&str> = rows.split(' ').collect();
            let rgb = rows.concat().bytes().flat_map(|c| [c, 0, 1]).collect();
            RgbImage::new(rows[0].len(), rows.len(), rgb)
        };
        for (value, rows) in stored {
            let found = Orientation(value).applied_to(image(rows));
            assert_eq!(found, image(upright), "orientation {value}");
        }
    }
}
