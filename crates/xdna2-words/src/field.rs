//! Records of bit fields.
//!
//! A [`Layout`] lists the bits and words of each field. A [`Record`] holds the values of a layout's fields. It is made
//! from words only if every bit outside the fields is zero, and a value that its field cannot hold is refused. So words
//! give a record and that record the same words.

use std::fmt;

macro_rules! fields {
    ($($variant:ident = $name:literal,)*) => {
        /// A field of a descriptor or register.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // Each is described by its name, which is that of the sources.
        pub enum WordField { $($variant,)* }

        impl WordField {
            /// Its name in text.
            pub fn name(self) -> &'static str {
                match self { $(WordField::$variant => $name,)* }
            }
        }
    };
}

fields! {
    Length = "length", Base = "base", PacketEnable = "packet_enable", PacketId = "packet_id",
    PacketType = "packet_type", OutOfOrderId = "out_of_order_id", Compress = "compress",
    D0Step = "d0_step", D0Wrap = "d0_wrap", D1Step = "d1_step", D1Wrap = "d1_wrap",
    D2Step = "d2_step", D2Wrap = "d2_wrap", D3Step = "d3_step",
    D0PadBefore = "d0_pad_before", D1PadBefore = "d1_pad_before", D2PadBefore = "d2_pad_before",
    D0PadAfter = "d0_pad_after", D1PadAfter = "d1_pad_after", D2PadAfter = "d2_pad_after",
    IterationCurrent = "iteration_current", IterationWrap = "iteration_wrap",
    IterationStep = "iteration_step", TlastSuppress = "tlast_suppress", Next = "next",
    UseNext = "use_next", Valid = "valid", ReleaseValue = "release_value", ReleaseId = "release_id",
    AcquireEnable = "acquire_enable", AcquireValue = "acquire_value", AcquireId = "acquire_id",
    Secure = "secure", Burst = "burst", Smid = "smid", AxCache = "axcache", AxQos = "axqos",
    StartDescriptor = "start_bd", Repeat = "repeat", Token = "token",
    ControllerId = "controller_id", OutOfOrder = "out_of_order", Reset = "reset",
    QueueSize = "queue_size", Running = "running", QueueOverflow = "queue_overflow",
    StalledAcquire = "stalled_acquire", StalledRelease = "stalled_release",
    StalledStream = "stalled_stream", StalledToken = "stalled_token",
    LockValue = "value", Enable = "enable", Packet = "packet", DropHeader = "drop_header",
    Configuration = "configuration", SlotId = "id", SlotMask = "mask", Msel = "msel",
    Arbiter = "arbiter", Port2 = "port2", Port3 = "port3", Port4 = "port4", Port5 = "port5",
    Port6 = "port6", Port7 = "port7", CoreDone = "done", CascadeInput = "cascade_input",
    CascadeOutput = "cascade_output", Value = "word",
}

/// Bits `hi` to `lo` of a word.
pub type Bits = (u8, u8, u8);

/// Positions of a record's fields.
pub struct Layout {
    /// Its name in text.
    pub name: &'static str,
    /// Words of a record.
    pub n_words: usize,
    /// Each field's bits as (word, high bit, low bit), the least significant part first.
    pub fields: &'static [(WordField, &'static [Bits])],
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The largest value of a field of so many bits.
fn most(parts: &[Bits]) -> u64 {
    let bits: u32 = parts
        .iter()
        .map(|&(_, hi, lo)| u32::from(hi - lo) + 1)
        .sum();
    (1 << bits) - 1
}

impl Layout {
    /// The largest value of a field; `None` if this layout has none of that name.
    pub fn most(&self, field: WordField) -> Option<u64> {
        let row = self.fields.iter().find(|(name, _)| *name == field)?;
        Some(most(row.1))
    }
}

/// Why words do not make a record, or a value does not fit a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// A value is too large.
    #[error("{field} of a {layout} is {value}, at most {most} fits")]
    TooLarge {
        /// The record's kind.
        layout: &'static str,
        /// The field.
        field: &'static str,
        /// The requested value.
        value: u64,
        /// The largest that fits.
        most: u64,
    },
    /// The layout has no such field.
    #[error("a {layout} has no field {field}")]
    NoField {
        /// The record's kind.
        layout: &'static str,
        /// The field.
        field: &'static str,
    },
    /// Bits are set that no field has.
    #[error("word {word} of a {layout} sets bits {bits:#010x}, which no field has")]
    Reserved {
        /// The record's kind.
        layout: &'static str,
        /// The word.
        word: usize,
        /// The bits.
        bits: u32,
    },
    /// The wrong number of words.
    #[error("a {layout} has {expected} words, {found} were given")]
    Words {
        /// The record's kind.
        layout: &'static str,
        /// Words it has.
        expected: usize,
        /// Words there were.
        found: usize,
    },
}

/// Values of a layout's fields.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    layout: &'static Layout,
    values: Vec<u64>,
}

impl PartialEq for Layout {
    fn eq(&self, other: &Layout) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Layout {}

impl Record {
    /// All fields zero.
    pub fn new(layout: &'static Layout) -> Record {
        Record {
            layout,
            values: vec![0; layout.fields.len()],
        }
    }

    /// Its layout.
    pub fn layout(&self) -> &'static Layout {
        self.layout
    }

    /// A field's value; 0 where the layout has none of that name.
    pub fn get(&self, field: WordField) -> u64 {
        let at = self.layout.fields.iter().position(|row| row.0 == field);
        at.map_or(0, |at| self.values[at])
    }

    /// Whether a field of one bit is set.
    pub fn is(&self, field: WordField) -> bool {
        self.get(field) != 0
    }

    /// A field of seven bits as a two's complement number.
    pub fn signed7(&self, field: WordField) -> i32 {
        let value = (self.get(field) & 127) as i32;
        if value >= 64 { value - 128 } else { value }
    }

    /// Sets a field.
    ///
    /// # Errors
    /// The layout has no such field, or the value does not fit it.
    pub fn set(&mut self, field: WordField, value: u64) -> Result<(), FieldError> {
        let (layout, name) = (self.layout.name, field.name());
        let at = self.layout.fields.iter().position(|row| row.0 == field);
        let at = at.ok_or(FieldError::NoField {
            layout,
            field: name,
        })?;
        let most = most(self.layout.fields[at].1);
        if value > most {
            return Err(FieldError::TooLarge {
                layout,
                field: name,
                value,
                most,
            });
        }
        self.values[at] = value;
        Ok(())
    }

    /// This record with fields set.
    ///
    /// # Errors
    /// As [`set`](Record::set).
    pub fn with(mut self, values: &[(WordField, u64)]) -> Result<Record, FieldError> {
        for &(field, value) in values {
            self.set(field, value)?;
        }
        Ok(self)
    }

    /// The words.
    pub fn words(&self) -> Vec<u32> {
        let mut words = vec![0u32; self.layout.n_words];
        for ((_, parts), &value) in self.layout.fields.iter().zip(&self.values) {
            let mut rest = value;
            for &(word, hi, lo) in *parts {
                let bits = u32::from(hi - lo) + 1;
                words[usize::from(word)] |= ((rest & ((1 << bits) - 1)) as u32) << lo;
                rest >>= bits;
            }
        }
        words
    }

    /// The one word of a register.
    pub fn word(&self) -> u32 {
        self.words().first().copied().unwrap_or_default()
    }

    /// The record that words are.
    ///
    /// # Errors
    /// Bits that no field has are set, or the number of words is another.
    pub fn read(layout: &'static Layout, words: &[u32]) -> Result<Record, FieldError> {
        if words.len() != layout.n_words {
            return Err(FieldError::Words {
                layout: layout.name,
                expected: layout.n_words,
                found: words.len(),
            });
        }
        let mut known = vec![0u32; words.len()];
        let value = |(_, parts): &(WordField, &[Bits])| {
            let (mut value, mut at) = (0u64, 0);
            for &(word, hi, lo) in *parts {
                let bits = u32::from(hi - lo) + 1;
                let mask = ((1u64 << bits) - 1) as u32;
                known[usize::from(word)] |= mask << lo;
                value |= u64::from(words[usize::from(word)] >> lo & mask) << at;
                at += bits;
            }
            value
        };
        let values = layout.fields.iter().map(value).collect();
        for (word, (&found, &known)) in words.iter().zip(&known).enumerate() {
            if found & !known != 0 {
                return Err(FieldError::Reserved {
                    layout: layout.name,
                    word,
                    bits: found & !known,
                });
            }
        }
        Ok(Record { layout, values })
    }

    /// Fields that are not zero, in the layout's order.
    pub fn set_fields(&self) -> impl Iterator<Item = (WordField, u64)> {
        let fields = self.layout.fields.iter().map(|row| row.0);
        fields
            .zip(self.values.iter().copied())
            .filter(|row| row.1 != 0)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layout.name)?;
        for (field, value) in self.set_fields() {
            let is_signed = matches!(field, WordField::AcquireValue | WordField::ReleaseValue);
            match is_signed {
                true => write!(f, " {}={}", field.name(), self.signed7(field))?,
                false => write!(f, " {}={value}", field.name())?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
