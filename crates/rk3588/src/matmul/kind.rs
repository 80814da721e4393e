//! Operand and result types of products.

/// A precision, as registers name it (registers.xml and the drivers' headers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 8-bit integers.
    Int8,
    /// 16-bit integers.
    Int16,
    /// IEEE binary16.
    Fp16,
    /// Brain floats.
    Bf16,
    /// 32-bit integers.
    Int32,
    /// IEEE binary32.
    Fp32,
    /// 4-bit integers.
    Int4,
}

impl Precision {
    /// The value of precision fields.
    pub const fn code(self) -> u32 {
        match self {
            Precision::Int8 => 0,
            Precision::Int16 => 1,
            Precision::Fp16 => 2,
            Precision::Bf16 => 3,
            Precision::Int32 => 4,
            Precision::Fp32 => 5,
            Precision::Int4 => 6,
        }
    }

    /// The precision of that [`code`](Precision::code).
    pub(crate) const fn from_code(code: u32) -> Option<Precision> {
        Some(match code {
            0 => Precision::Int8,
            1 => Precision::Int16,
            2 => Precision::Fp16,
            3 => Precision::Bf16,
            4 => Precision::Int32,
            5 => Precision::Fp32,
            6 => Precision::Int4,
            _ => return None,
        })
    }

    /// Bits of one number.
    pub const fn bits(self) -> u32 {
        match self {
            Precision::Int4 => 4,
            Precision::Int8 => 8,
            Precision::Int16 | Precision::Fp16 | Precision::Bf16 => 16,
            Precision::Int32 | Precision::Fp32 => 32,
        }
    }
}

/// Operand and result types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatmulKind {
    /// 8-bit integers, exact sums in 32-bit integers.
    Int8Int32,
    /// 8-bit integers, exact sums converted to binary32.
    Int8F32,
    /// binary16, sums in binary32.
    Fp16F32,
    /// binary16, sums in binary32 rounded to binary16.
    Fp16Fp16,
    /// Brain floats, sums in binary32.
    Bf16F32,
    /// 4-bit integers, sums in 16-bit integers. The layout follows the rule of the other types;
    /// that the lower nibble comes first is an assumption.
    Int4Int16,
}

impl MatmulKind {
    /// Every kind.
    pub const ALL: [MatmulKind; 6] = [
        MatmulKind::Int8Int32,
        MatmulKind::Int8F32,
        MatmulKind::Fp16F32,
        MatmulKind::Fp16Fp16,
        MatmulKind::Bf16F32,
        MatmulKind::Int4Int16,
    ];

    /// Name (`int8-int32`).
    pub const fn name(self) -> &'static str {
        match self {
            MatmulKind::Int8Int32 => "int8-int32",
            MatmulKind::Int8F32 => "int8-f32",
            MatmulKind::Fp16F32 => "fp16-f32",
            MatmulKind::Fp16Fp16 => "fp16-fp16",
            MatmulKind::Bf16F32 => "bf16-f32",
            MatmulKind::Int4Int16 => "int4-int16",
        }
    }

    /// The kind of that [`name`](MatmulKind::name).
    pub fn from_name(name: &str) -> Option<MatmulKind> {
        MatmulKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Type of A's and B's elements.
    pub const fn input(self) -> Precision {
        match self {
            MatmulKind::Int8Int32 | MatmulKind::Int8F32 => Precision::Int8,
            MatmulKind::Fp16F32 | MatmulKind::Fp16Fp16 => Precision::Fp16,
            MatmulKind::Bf16F32 => Precision::Bf16,
            MatmulKind::Int4Int16 => Precision::Int4,
        }
    }

    /// Type of C's elements.
    pub const fn output(self) -> Precision {
        match self {
            MatmulKind::Int8Int32 => Precision::Int32,
            MatmulKind::Int8F32 | MatmulKind::Fp16F32 | MatmulKind::Bf16F32 => Precision::Fp32,
            MatmulKind::Fp16Fp16 => Precision::Fp16,
            MatmulKind::Int4Int16 => Precision::Int16,
        }
    }

    /// The kind of those types.
    pub fn of(input: Precision, output: Precision) -> Option<MatmulKind> {
        let mut all = MatmulKind::ALL.into_iter();
        all.find(|kind| kind.input() == input && kind.output() == output)
    }

    /// Kernels (rows of B) that the array computes side by side.
    pub const fn n_group(self) -> u32 {
        match self.input() {
            Precision::Int4 => 64,
            Precision::Int8 => 32,
            _ => 16,
        }
    }

    /// Bytes of k elements of a row of A or B.
    pub const fn row_bytes(self, k: u32) -> u64 {
        k as u64 * self.input().bits() as u64 / 8
    }

    /// Bytes of one element of C.
    pub const fn output_bytes(self) -> u32 {
        self.output().bits() / 8
    }

    /// Elements of C in one 16-byte atom.
    pub(crate) const fn output_atom(self) -> u32 {
        128 / self.output().bits()
    }

    /// 16-byte surfaces that one kernel group writes; the writer's `SIZE_E` holds one less.
    pub(crate) const fn surfaces(self) -> u32 {
        self.n_group() / self.output_atom()
    }

    /// Whether results are exact in any order of additions.
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            MatmulKind::Int8Int32 | MatmulKind::Int8F32 | MatmulKind::Int4Int16
        )
    }

    /// Whether results of parts of k of that depth can be added on the host: they are not rounded to
    /// fewer bits than sums need. 4-bit operands of -7 to 7 stay within 16 bits up to a depth of 512.
    pub const fn adds_parts(self, depth: u32) -> bool {
        match self.output() {
            Precision::Int16 => depth <= 512,
            output => output.bits() == 32,
        }
    }
}

impl std::fmt::Display for MatmulKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
