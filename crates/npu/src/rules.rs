//! Rules that programs must keep, as every target's verifier lists them.

/// Makes `enum Rule` of lines `Variant "CODE" "Statement." "source";`, in the order of their codes, with `ALL`, `code`,
/// `states` and `source`.
///
/// ```
/// millrace_npu::rules! {
///     TooLarge "EX001" "Sizes stay below 2^48." "a bound of this verifier";
///     Aligned "EX101" "Addresses are multiples of 16." "the manual, chapter 3";
/// }
/// assert_eq!(Rule::ALL.len(), 2);
/// assert_eq!(Rule::Aligned.code(), "EX101");
/// ```
#[macro_export]
macro_rules! rules {
    ($($variant:ident $code:literal $states:literal $source:literal;)*) => {
        /// Rules that a program may break. The order is that of the codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $(#[doc = concat!($code, ": ", $states, " Source: ", $source, ".")] $variant,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)*];

            /// The code: letters of the target, three digits.
            pub const fn code(self) -> &'static str {
                match self { $(Rule::$variant => $code,)* }
            }

            /// Its statement, in a sentence.
            pub const fn states(self) -> &'static str {
                match self { $(Rule::$variant => $states,)* }
            }

            /// Where it comes from.
            pub const fn source(self) -> &'static str {
                match self { $(Rule::$variant => $source,)* }
            }
        }
    };
}
