//! The 12 bytes in which Q4_K and Q5_K keep eight 6-bit scales and eight 6-bit minimums.
//!
//! Bytes 0–3 hold scales 0–3, bytes 4–7 minimums 0–3, each in the low six bits; bytes 8–11 hold the
//! low nibbles of scales (low) and minimums (high) 4–7, whose upper two bits sit atop bytes 0–3 and
//! 4–7.

/// The eight scales and the eight minimums.
pub(super) fn unpack(packed: &[u8]) -> ([u8; 8], [u8; 8]) {
    let wide = |first: usize, shift: usize, j: usize| {
        if j < 4 {
            packed[first + j] & 0x3F
        } else {
            (packed[8 + j - 4] >> shift & 0x0F) | packed[first + j - 4] >> 6 << 4
        }
    };
    (
        std::array::from_fn(|j| wide(0, 0, j)),
        std::array::from_fn(|j| wide(4, 4, j)),
    )
}

/// The inverse of [`unpack`]; all values below 64.
pub(super) fn pack(scales: &[u8; 8], mins: &[u8; 8], packed: &mut [u8]) {
    for j in 0..4 {
        packed[j] = scales[j] | scales[j + 4] >> 4 << 6;
        packed[4 + j] = mins[j] | mins[j + 4] >> 4 << 6;
        packed[8 + j] = scales[j + 4] & 0x0F | (mins[j + 4] & 0x0F) << 4;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn unpack_inverts_pack() {
        let scales = [0, 63, 17, 32, 48, 15, 16, 62];
        let mins = [63, 1, 40, 5, 31, 47, 0, 33];
        let mut packed = [0; 12];
        super::pack(&scales, &mins, &mut packed);
        assert_eq!(super::unpack(&packed), (scales, mins));
    }
}
