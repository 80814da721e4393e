//! IQ2_* and IQ3_* of one token: 64 points are looked up at once, and multiplied plane by plane.
//!
//! Plane `p` of a block has element `p` of each point. A point's elements take few values, so a table holds them as codes, several
//! in a byte: two bytes a point. `vpermi2b` finds a byte of 64 points, a shift and `vpermb` turn codes into magnitudes, and
//! activations in the same order get the points' signs. The sums are those of the AVX2 functions, which look up one point at a time.

use super::tile_i8x32;
use crate::matmul::panel::{DirectArgs, GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileFn, X32};
use crate::x86::avx2::levels::{Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Unpack, one_or_few};
use millrace_quant::codebooks;
use std::arch::x86_64::*;

/// Columns of a block of these formats.
const BLOCK: usize = 256;

/// Blocks of 32 activations in one.
const PARTS: usize = BLOCK / 32;

/// Rows whose sums are turned together.
const ROWS: usize = 8;

/// Bytes in which the second half of four neighbours is: columns `16..32` of each 32, of points of eight.
const SECOND: __mmask64 = 0xCCCC_CCCC_CCCC_CCCC;

/// Points as codes: byte `h` of a point has those of its elements `h·E/2..(h + 1)·E/2`, the first at the bottom.
#[repr(align(64))]
pub(crate) struct Codes<const N: usize>([[u8; N]; 2]);

/// Codes of points of `E` elements: the number of an element's magnitude among `levels`.
const fn codes<const N: usize, const E: usize>(points: &[[i8; E]; N], levels: &[u8]) -> Codes<N> {
    let bits = if E == 8 { 2 } else { 3 };
    let mut codes = [[0; N]; 2];
    let mut point = 0;
    while point < N {
        let mut i = 0;
        while i < E {
            let mut code = 0;
            while levels[code] != points[point][i] as u8 {
                code += 1;
            }
            codes[i / (E / 2)][point] |= (code as u8) << (bits * (i % (E / 2)));
            i += 1;
        }
        point += 1;
    }
    Codes(codes)
}

/// Magnitudes by what is at the bottom of a byte of codes.
#[repr(align(64))]
pub(crate) struct Magnitudes([u8; 64]);

const fn magnitudes(levels: &[u8], bits: usize) -> Magnitudes {
    let mut of = [0; 64];
    let mut i = 0;
    while i < 64 {
        let code = i % (1 << bits);
        of[i] = if code < levels.len() { levels[code] } else { 0 };
        i += 1;
    }
    Magnitudes(of)
}

const THREE: &[u8] = &[8, 25, 43];
const EIGHT: &[u8] = &[4, 12, 20, 28, 36, 44, 52, 62];
const ODD: &[u8] = &[1, 3, 5, 7, 9, 11, 13, 15];

static OF_THREE: Magnitudes = magnitudes(THREE, 2);
static OF_EIGHT: Magnitudes = magnitudes(EIGHT, 3);
static OF_ODD: Magnitudes = magnitudes(ODD, 3);
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

/// Bytes that `vpermb` and its like select: `from`, `from + step`, ….
const fn every(from: u8, step: u8) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = from.wrapping_add((i as u8).wrapping_mul(step));
        i += 1;
    }
    bytes
}

/// Each of so many bytes `times` times.
const fn repeated(times: usize) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = (i / times) as u8;
        i += 1;
    }
    bytes
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 readable bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Which points 64 bytes stand for, and the signs of their elements.
#[derive(Clone, Copy)]
pub(crate) struct Indices {
    /// The lower eight bits.
    low: __m512i,
    /// The ninth and the tenth bit, of formats that have them.
    high: [__mmask64; 2],
    /// A bit for each element of a point, the first at the bottom: it is negative.
    signs: __m512i,
}

/// A format of points.
pub(crate) trait Points: Unpack {
    /// Elements of a point: 8 or 4. A block of 256 has 32 or 64 points, so 64 are of two rows or of one.
    const ELEMENTS: usize;
    /// How many points there are.
    const N: usize;

    /// `[2, N]` codes, 64-byte aligned, and their magnitudes.
    fn tables() -> (*const u8, &'static [u8; 64]);

    /// The points of a block in two rows, or in the first of them.
    ///
    /// # Safety
    /// The CPU has AVX-512 with VBMI; both are blocks.
    unsafe fn indices(rows: [*const u8; 2]) -> Indices;
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
        // SAFETY: forwarded: eight times four indices and a word of signs and scale behind the block's scale.
        let [a, b] = rows.map(|row| unsafe { _mm512_loadu_si512(row.add(2).cast()) });
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        Indices {
            low: _mm512_permutex2var_epi32(a, even, b),
            high: [0; 2],
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
            high: [_mm512_test_epi8_mask(high, _mm512_set1_epi8(1)), 0],
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
                high: [0; 2],
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
                high: [row.add(66).cast::<u64>().read_unaligned(), 0],
                signs: halves(_mm512_castsi256_si512(signs)),
            }
        }
    }
}

/// Multiplies with a few tokens.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(crate) unsafe fn direct<P: Points>(args: &DirectArgs) {
    let tile: TileFn = const {
        match P::SCALES {
            1 => tile_i8x32::tile,
            _ => tile_i8x32::tile_16,
        }
    };
    // SAFETY: forwarded.
    unsafe {
        match args.m {
            1 => one_token::<P>(args),
            _ => one_or_few::<P, 128>(args, tile),
        }
    }
}

/// As AVX2's function of one token, with [`sums_of_rows`] for its sums: what is added to the accumulators is the same.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], with one token.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma,f16c")]
unsafe fn one_token<P: Points>(args: &DirectArgs) {
    const { assert!(PANEL_ROWS == 2 * ROWS && GROUP_ROWS >= PANEL_ROWS) };
    let source = &args.source;
    let bytes = const { P::DTYPE.block_bytes() };
    // SAFETY: forwarded: sixteen rows of the chunk's blocks, as many records, sixteen accumulators.
    unsafe {
        let mut acc = [0, ROWS].map(|first| _mm256_load_ps(args.acc.add(first)));
        for b in 0..source.k / BLOCK {
            let x = args.x.cast::<X32>().add(b * PARTS);
            let planes = planes::<P>(x);
            for (half, acc) in acc.iter_mut().enumerate() {
                let first = half * ROWS;
                for r in first..first + ROWS {
                    for line in 0..bytes.div_ceil(LINE_BYTES) {
                        source.ahead.fetch_at(r, b * bytes + line * LINE_BYTES);
                    }
                }
                let block = source.base.add(first * source.stride + b * bytes);
                let header = P::header(block, source.stride);
                let sums = sums_of_rows::<P>(block, source.stride, &planes);
                for j in 0..PARTS {
                    let d_x = _mm256_set1_ps((*x.add(j)).d);
                    let scales = P::scales(header, block, source.stride, j);
                    for (sums, d) in sums.iter().zip(scales).take(P::SCALES) {
                        let sum = _mm256_cvtepi32_ps(sums[j]);
                        *acc = _mm256_fmadd_ps(sum, _mm256_mul_ps(d, d_x), *acc);
                    }
                }
            }
        }
        for (first, acc) in [0, ROWS].into_iter().zip(acc) {
            _mm256_store_ps(args.acc.add(first), acc);
        }
    }
}

/// The activations of a block in planes; of points of eight, 32 bytes twice.
///
/// # Safety
/// `x` reaches eight records.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn planes<P: Points>(x: *const X32) -> [__m512i; 8] {
    // SAFETY: forwarded.
    let part = |j: usize| unsafe { _mm256_loadu_si256((*x.add(j)).q.as_ptr().cast()) };
    let two = |j: usize| _mm512_inserti64x4::<1>(_mm512_castsi256_si512(part(j)), part(j + 1));
    let q = [two(0), two(2), two(4), two(6)];
    let mut planes = [_mm512_setzero_si512(); 8];
    for (p, plane) in planes.iter_mut().enumerate().take(P::ELEMENTS) {
        // Of 128 columns 32 or 16 bytes, which are there again behind as many: 7 bits count.
        let step = load(&if P::ELEMENTS == 8 {
            every(0, 8)
        } else {
            every(0, 4)
        });
        let order = _mm512_add_epi8(step, _mm512_set1_epi8(p as i8));
        let low = _mm512_permutex2var_epi8(q[0], order, q[1]);
        let high = _mm512_permutex2var_epi8(q[2], order, q[3]);
        let behind = if P::ELEMENTS == 8 {
            0xFFFF_0000_FFFF_0000
        } else {
            0xFFFF_FFFF_0000_0000
        };
        *plane = _mm512_mask_mov_epi8(low, behind, high);
    }
    planes
}

/// Σ w·q of each 32 columns in eight rows, a lane each; of a format with two scales, of the first and the second sixteen.
///
/// # Safety
/// As [`Points::indices`], for eight rows, `stride` bytes apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn sums_of_rows<P: Points>(
    block: *const u8,
    stride: usize,
    planes: &[__m512i; 8],
) -> [[__m256i; PARTS]; 2] {
    let mut all = [_mm256_setzero_si256(); ROWS];
    let mut second = all;
    for r in (0..ROWS).step_by(2) {
        // SAFETY: forwarded.
        let sums = unsafe {
            let rows = [block.add(r * stride), block.add((r + 1) * stride)];
            sums_of_two::<P>(rows, planes)
        };
        for (of, sums) in [&mut all, &mut second].into_iter().zip(sums) {
            of[r] = _mm512_castsi512_si256(sums);
            of[r + 1] = _mm512_extracti64x4_epi64::<1>(sums);
        }
    }
    let all = transpose(all);
    if P::SCALES == 1 {
        return [all, second];
    }
    let second = transpose(second);
    let mut first = all;
    for (first, second) in first.iter_mut().zip(second) {
        *first = _mm256_sub_epi32(*first, second);
    }
    [first, second]
}

/// Σ w·q of each 32 columns of two rows, eight lanes each, and that of the second sixteen of them.
///
/// # Safety
/// As [`Points::indices`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn sums_of_two<P: Points>(rows: [*const u8; 2], planes: &[__m512i; 8]) -> [__m512i; 2] {
    // SAFETY: forwarded.
    unsafe {
        if P::ELEMENTS == 8 {
            return products::<P>(P::indices(rows), planes);
        }
        // Of points of four, a lane has 16 columns.
        let [a, b] = rows.map(|row| products::<P>(P::indices([row; 2]), planes)[0]);
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        let low = _mm512_permutex2var_epi32(a, even, b);
        let high = _mm512_permutex2var_epi32(a, odd, b);
        [_mm512_add_epi32(low, high), _mm512_setzero_si512()]
    }
}

/// Σ w·q of four points in each lane, and where there are two scales that of the last two of them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn products<P: Points>(indices: Indices, planes: &[__m512i; 8]) -> [__m512i; 2] {
    let (codes, levels) = P::tables();
    let levels = load(levels);
    let eighth = _mm512_movepi8_mask(indices.low);
    let zero = _mm512_setzero_si512();
    let (mut all, mut second) = (zero, zero);
    for half in 0..2 {
        // SAFETY: `N` codes of each half.
        let mut codes = unsafe { look_up::<P>(codes.add(half * P::N), &indices, eighth) };
        for i in 0..P::ELEMENTS / 2 {
            let p = half * P::ELEMENTS / 2 + i;
            let w = _mm512_permutexvar_epi8(codes, levels);
            // What comes over from the byte above is above the bits that count.
            codes = if P::ELEMENTS == 8 {
                _mm512_srli_epi16::<2>(codes)
            } else {
                _mm512_srli_epi16::<3>(codes)
            };
            let negative = _mm512_test_epi8_mask(indices.signs, _mm512_set1_epi8((1u8 << p) as i8));
            let q = _mm512_mask_sub_epi8(planes[p], negative, zero, planes[p]);
            all = _mm512_dpbusd_epi32(all, w, q);
            if P::SCALES == 2 {
                second = _mm512_dpbusd_epi32(second, _mm512_maskz_mov_epi8(SECOND, w), q);
            }
        }
    }
    [all, second]
}

/// A byte of codes of each of 64 points.
///
/// # Safety
/// `N` readable bytes at `codes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn look_up<P: Points>(codes: *const u8, indices: &Indices, eighth: __mmask64) -> __m512i {
    // Of 256 points from `first` on.
    // SAFETY: forwarded.
    let of_256 = |first: usize| unsafe {
        let line = |i: usize| _mm512_load_si512(codes.add(first + 64 * i).cast());
        let low = _mm512_permutex2var_epi8(line(0), indices.low, line(1));
        let high = _mm512_permutex2var_epi8(line(2), indices.low, line(3));
        _mm512_mask_mov_epi8(low, eighth, high)
    };
    let of_512 =
        |first: usize| _mm512_mask_mov_epi8(of_256(first), indices.high[0], of_256(first + 256));
    match P::N {
        256 => of_256(0),
        512 => of_512(0),
        _ => _mm512_mask_mov_epi8(of_512(0), indices.high[1], of_512(512)),
    }
}

/// Turns 8 × 8 lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let quad = |a, b, c, d| {
        let (ab_lo, ab_hi) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd_lo, cd_hi) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab_lo, cd_lo),
            _mm256_unpackhi_epi64(ab_lo, cd_lo),
            _mm256_unpacklo_epi64(ab_hi, cd_hi),
            _mm256_unpackhi_epi64(ab_hi, cd_hi),
        ]
    };
    let (low, high) = (quad(a, b, c, d), quad(e, f, g, h));
    let mut out = [_mm256_setzero_si256(); 8];
    for i in 0..4 {
        out[i] = _mm256_permute2x128_si256::<0x20>(low[i], high[i]);
        out[i + 4] = _mm256_permute2x128_si256::<0x31>(low[i], high[i]);
    }
    out
}
