//! Where a block stores its points, and the tables of their codes. The byte layout is that of the formats' files in `quant`.

use super::{Indices, Points, every, load};
use crate::x86::avx2::levels::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use millrace_quant::codebooks;
use std::arch::x86_64::*;

/// Points as codes: byte `h` of a point has those of its elements `h·E/2..(h + 1)·E/2`, the first at the bottom.
#[repr(align(64))]
struct Codes<const N: usize>([[u8; N]; 2]);

/// Codes of points of `E` elements: the number of an element's magnitude among `levels`.
const fn codes<const N: usize, const E: usize>(points: &[[i8; E]; N], levels: &[i8]) -> Codes<N> {
    let bits = if E == 8 { 2 } else { 3 };
    let mut codes = [[0; N]; 2];
    let mut point = 0;
    while point < N {
        let mut i = 0;
        while i < E {
            let mut code = 0;
            while levels[code] != points[point][i] {
                code += 1;
            }
            codes[i / (E / 2)][point] |= (code as u8) << (bits * (i % (E / 2)));
            i += 1;
        }
        point += 1;
    }
    Codes(codes)
}

/// Magnitudes by the code at the bottom of a byte.
#[repr(align(64))]
struct Magnitudes([u8; 64]);

const fn magnitudes(levels: &[i8], bits: usize) -> Magnitudes {
    let mut of = [0; 64];
    let mut i = 0;
    while i < 64 {
        let code = i % (1 << bits);
        of[i] = if code < levels.len() {
            levels[code] as u8
        } else {
            0
        };
        i += 1;
    }
    Magnitudes(of)
}

const THREE: &[i8] = &[8, 25, 43];
const EIGHT: &[i8] = &[4, 12, 20, 28, 36, 44, 52, 62];
const ODD: &[i8] = &[1, 3, 5, 7, 9, 11, 13, 15];

const TERNARY: &[i8] = &[-1, 0, 1];

/// Eight times an element of IQ1_*, plus eight.
static OF_TERNARY: Magnitudes = magnitudes(&[0, 8, 16], 2);
static OF_THREE: Magnitudes = magnitudes(THREE, 2);
static OF_EIGHT: Magnitudes = magnitudes(EIGHT, 3);
static OF_ODD: Magnitudes = magnitudes(ODD, 3);
static IQ1: Codes<2048> = codes(&codebooks::IQ1_S, TERNARY);
static IQ2_XXS: Codes<256> = codes(&codebooks::IQ2_XXS, THREE);
static IQ2_XS: Codes<512> = codes(&codebooks::IQ2_XS, THREE);
static IQ2_S: Codes<1024> = codes(&codebooks::IQ2_S, THREE);
static IQ3_XXS: Codes<256> = codes(&codebooks::IQ3_XXS, EIGHT);
static IQ3_S: Codes<512> = codes(&codebooks::IQ3_S, ODD);

/// Eight signs by the seven that are stored: the number of negative ones is even.
static EVEN: [u8; 128] = {
    let mut signs = [0; 128];
    let mut stored = 0;
    while stored < 128 {
        signs[stored] = stored as u8 | ((stored as u8).count_ones() as u8 & 1) << 7;
        stored += 1;
    }
    signs
};

/// Bytes 0, 1, 2 and so on, each repeated `times` times.
const fn repeated(times: usize) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = (i / times) as u8;
        i += 1;
    }
    bytes
}

/// 32 bytes at `AT` of two rows.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn two_halves<const AT: usize>(rows: [*const u8; 2]) -> __m512i {
    // SAFETY: forwarded.
    let [a, b] = rows.map(|row| unsafe { _mm256_loadu_si256(row.add(AT).cast()) });
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b)
}

/// The signs of eight elements from seven bits; an eighth bit is not looked at.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn even_signs(stored: __m512i) -> __m512i {
    // SAFETY: twice 64 readable bytes.
    let [low, high] = [0, 64].map(|at| unsafe { _mm512_loadu_si512(EVEN.as_ptr().add(at).cast()) });
    _mm512_permutex2var_epi8(low, stored, high)
}

/// Four times seven bits of each u32.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn sevens(words: __m512i) -> __m512i {
    let shifts = _mm512_set1_epi64(i64::from_le_bytes([0, 7, 14, 21, 32, 39, 46, 53]));
    _mm512_multishift_epi64_epi8(shifts, words)
}

/// The signs of points of four from those of 32 neighbours: their upper half is the second's.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn halves(signs: __m512i) -> __m512i {
    let twice = _mm512_permutexvar_epi8(load(&const { repeated(2) }), signs);
    let odd: __mmask64 = 0xAAAA_AAAA_AAAA_AAAA;
    _mm512_mask_mov_epi8(twice, odd, _mm512_srli_epi16::<4>(twice))
}

/// Three bits above eight, the lowest of each byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn three_more(bytes: __m512i) -> [__mmask64; 3] {
    [1, 2, 4].map(|bit| _mm512_test_epi8_mask(bytes, _mm512_set1_epi8(bit)))
}

/// Sixteen bytes at `AT` of two rows as u16, widened.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn words<const AT: usize>(rows: [*const u8; 2]) -> __m512i {
    // SAFETY: forwarded.
    let [a, b] = rows.map(|row| unsafe { _mm_loadu_si128(row.add(AT).cast()) });
    _mm512_cvtepu16_epi32(_mm256_set_m128i(b, a))
}

impl Points for Iq1S {
    const ELEMENTS: usize = 8;
    const N: usize = 2048;

    #[inline]
    fn tables() -> (*const u8, &'static [u8; 64]) {
        (IQ1.0.as_ptr().cast(), &OF_TERNARY.0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn indices(rows: [*const u8; 2]) -> Indices {
        // SAFETY: forwarded: 32 indices, and for every four of them three more bits each and their shift.
        let (low, words) = unsafe { (two_halves::<2>(rows), words::<34>(rows)) };
        let shifts = _mm512_set1_epi64(i64::from_le_bytes([0, 3, 6, 9, 32, 35, 38, 41]));
        let less = _mm512_test_epi32_mask(words, _mm512_set1_epi32(1 << 15));
        Indices {
            low,
            high: three_more(_mm512_multishift_epi64_epi8(shifts, words)),
            signs: _mm512_mask_mov_epi32(_mm512_set1_epi8(2), less, _mm512_setzero_si512()),
        }
    }
}

impl Points for Iq1M {
    const ELEMENTS: usize = 8;
    const N: usize = 2048;

    #[inline]
    fn tables() -> (*const u8, &'static [u8; 64]) {
        (IQ1.0.as_ptr().cast(), &OF_TERNARY.0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn indices(rows: [*const u8; 2]) -> Indices {
        // SAFETY: forwarded: 32 indices, and for each of them three more bits and one that shifts it.
        let (low, words) = unsafe { (two_halves::<0>(rows), words::<32>(rows)) };
        let shifts = _mm512_set1_epi64(i64::from_le_bytes([0, 4, 8, 12, 32, 36, 40, 44]));
        let nibbles = _mm512_multishift_epi64_epi8(shifts, words);
        let less = _mm512_test_epi8_mask(nibbles, _mm512_set1_epi8(8));
        Indices {
            low,
            high: three_more(nibbles),
            signs: _mm512_mask_mov_epi8(_mm512_set1_epi8(2), less, _mm512_setzero_si512()),
        }
    }
}

impl Points for Iq2Xxs {
    const ELEMENTS: usize = 8;
    const N: usize = 256;

    #[inline]
    fn tables() -> (*const u8, &'static [u8; 64]) {
        (IQ2_XXS.0.as_ptr().cast(), &OF_THREE.0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn indices(rows: [*const u8; 2]) -> Indices {
        // SAFETY: forwarded: eight times four indices and a word of signs and scale after the block's scale.
        let [a, b] = rows.map(|row| unsafe { _mm512_loadu_si512(row.add(2).cast()) });
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        Indices {
            low: _mm512_permutex2var_epi32(a, even, b),
            high: [0; 3],
            signs: even_signs(sevens(_mm512_permutex2var_epi32(a, odd, b))),
        }
    }
}

impl Points for Iq2Xs {
    const ELEMENTS: usize = 8;
    const N: usize = 512;

    #[inline]
    fn tables() -> (*const u8, &'static [u8; 64]) {
        (IQ2_XS.0.as_ptr().cast(), &OF_THREE.0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn indices(rows: [*const u8; 2]) -> Indices {
        // SAFETY: forwarded: 32 words of nine bits of an index and seven signs.
        let [a, b] = rows.map(|row| unsafe { _mm512_loadu_si512(row.add(2).cast()) });
        let high = _mm512_permutex2var_epi8(a, load(&const { every(1, 2) }), b);
        Indices {
            low: _mm512_permutex2var_epi8(a, load(&const { every(0, 2) }), b),
            high: [_mm512_test_epi8_mask(high, _mm512_set1_epi8(1)), 0, 0],
            signs: even_signs(_mm512_srli_epi16::<1>(high)),
        }
    }
}

impl Points for Iq2S {
    const ELEMENTS: usize = 8;
    const N: usize = 1024;

    #[inline]
    fn tables() -> (*const u8, &'static [u8; 64]) {
        (IQ2_S.0.as_ptr().cast(), &OF_THREE.0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn indices(rows: [*const u8; 2]) -> Indices {
        // SAFETY: forwarded: 32 indices, 32 bytes of signs, and two bits more of each index.
        unsafe {
            let [a, b] = rows.map(|row| row.add(66).cast::<i64>().read_unaligned());
            let high = _mm512_castsi128_si512(_mm_set_epi64x(b, a));
            let high = _mm512_permutexvar_epi8(load(&const { repeated(4) }), high);
            let ninth = _mm512_set1_epi32(i32::from_le_bytes([1, 4, 16, 64]));
            let tenth = _mm512_add_epi8(ninth, ninth);
            Indices {
                low: two_halves::<2>(rows),
                high: [
                    _mm512_test_epi8_mask(high, ninth),
                    _mm512_test_epi8_mask(high, tenth),
                    0,
                ],
                signs: two_halves::<34>(rows),
            }
        }
    }
}

impl Points for Iq3Xxs {
    const ELEMENTS: usize = 4;
    const N: usize = 256;

    #[inline]
    fn tables() -> (*const u8, &'static [u8; 64]) {
        (IQ3_XXS.0.as_ptr().cast(), &OF_EIGHT.0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn indices([row, _]: [*const u8; 2]) -> Indices {
        // SAFETY: forwarded: 64 indices and eight words of signs and scale.
        unsafe {
            let words = _mm256_loadu_si256(row.add(66).cast());
            Indices {
                low: _mm512_loadu_si512(row.add(2).cast()),
                high: [0; 3],
                signs: halves(even_signs(sevens(_mm512_castsi256_si512(words)))),
            }
        }
    }
}

impl Points for Iq3S {
    const ELEMENTS: usize = 4;
    const N: usize = 512;

    #[inline]
    fn tables() -> (*const u8, &'static [u8; 64]) {
        (IQ3_S.0.as_ptr().cast(), &OF_ODD.0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn indices([row, _]: [*const u8; 2]) -> Indices {
        // SAFETY: forwarded: 64 indices, a bit more of each, and 32 bytes of signs.
        unsafe {
            let signs = _mm256_loadu_si256(row.add(74).cast());
            Indices {
                low: _mm512_loadu_si512(row.add(2).cast()),
                high: [row.add(66).cast::<u64>().read_unaligned(), 0, 0],
                signs: halves(_mm512_castsi256_si512(signs)),
            }
        }
    }
}
