//! Command packets.
//!
//! A header (state 3:0, words after it 22:12, opcode 27:23, type 31:28), a mask of compute units, and the operands of
//! the opcode. Opcode 22 takes addresses of instructions, of code that saves and of code that restores, their bytes,
//! and a number of properties. Firmware gets no arguments.

/// START_NPU_PREEMPT_ELF.
pub const OPCODE: u32 = 22;
/// Type of the commands that start something.
const KIND: u32 = 3;

/// How a command ended, or has not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandState {
    /// No one has taken it yet.
    New = 1,
    /// It is done.
    Completed = 4,
    /// It went wrong.
    Error = 5,
    /// Another command's hang took it along.
    Abort = 6,
    /// It took longer than the watchdog allows.
    Timeout = 8,
}

impl CommandState {
    /// The state in a header; `None` for those on the way.
    pub fn of(header: u32) -> Option<CommandState> {
        let all = [
            Self::New,
            Self::Completed,
            Self::Error,
            Self::Abort,
            Self::Timeout,
        ];
        all.into_iter().find(|&state| state as u32 == header & 15)
    }
}

/// Words of a packet of opcode 22.
pub const WORDS: usize = 12;

/// The packet for instructions at an address of the device.
pub fn command(address: u64, bytes: u32) -> [u32; WORDS] {
    let header = KIND << 28 | OPCODE << 23 | (WORDS as u32 - 1) << 12 | CommandState::New as u32;
    let [low, high] = [address as u32, (address >> 32) as u32];
    [header, 1, low, high, 0, 0, 0, 0, bytes, 0, 0, 0]
}

/// Address and bytes of the instructions of such a packet.
pub fn instructions(packet: &[u32]) -> Option<(u64, u32)> {
    let header = *packet.first()?;
    let n = (header >> 12 & 0x7FF) as usize;
    let is_it = header >> 23 & 31 == OPCODE && header >> 28 == KIND && n == WORDS - 1;
    let words = packet.get(..WORDS).filter(|_| is_it)?;
    let plain = words[1] == 1 && [4, 5, 6, 7, 9, 10, 11].iter().all(|&at| words[at] == 0);
    plain.then(|| (u64::from(words[2]) | u64::from(words[3]) << 32, words[8]))
}

/// The opcode of a packet.
pub fn opcode(packet: &[u32]) -> u32 {
    packet.first().map_or(0, |header| header >> 23 & 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `libamdf` builds it.
    #[test]
    fn the_packet_is_that_of_libamdf() {
        let packet = command(0x1234_5678_9ABC, 4096);
        assert_eq!(
            packet,
            [
                0x3B00_B001,
                1,
                0x5678_9ABC,
                0x1234,
                0,
                0,
                0,
                0,
                4096,
                0,
                0,
                0
            ]
        );
        assert_eq!(instructions(&packet), Some((0x1234_5678_9ABC, 4096)));
        for at in [0, 1, 5, 11] {
            let mut wrong = packet;
            wrong[at] ^= 1 << 12;
            assert_eq!(instructions(&wrong), None, "{at}");
        }
        assert_eq!(CommandState::of(packet[0]), Some(CommandState::New));
    }
}
