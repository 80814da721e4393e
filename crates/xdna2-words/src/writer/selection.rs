//! Packets by arbiters and their selections, as in others' designs.

use super::{StreamWriter, WriterError};
use crate::port::{self, SwitchPort};
use crate::tile::Tile;

/// A packet slot: ids that agree with `id` in the bits of `mask` go to a selection of an arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRule {
    /// The id.
    pub id: u8,
    /// Bits that are compared.
    pub mask: u8,
    /// The arbiter.
    pub arbiter: u8,
    /// Its selection.
    pub selection: u8,
}

impl StreamWriter {
    /// A master port takes the packets of some of an arbiter's selections (bit i: selection i).
    ///
    /// # Errors
    /// There is no such port, or it carries something already.
    pub fn packet_master(
        &mut self,
        tile: Tile,
        master: SwitchPort,
        (arbiter, selections): (u8, u8),
        drops_header: bool,
    ) -> Result<(), WriterError> {
        let fail = |problem: String| Err(WriterError::Hardware { tile, problem });
        let number = port::number(port::masters(tile.kind()), master);
        let number = number.filter(|_| port::has_master(tile, master));
        let Some(number) = number else {
            return fail(format!("it has no {master}"));
        };
        let place = &mut self.switch(tile).masters[usize::from(number)];
        if *place != 0 {
            return fail(format!("{master} carries something already"));
        }
        let configuration = u32::from(selections & 15) << 3 | u32::from(arbiter & 7);
        *place = 3 << 30 | u32::from(drops_header) << 7 | configuration;
        Ok(())
    }

    /// A slave port takes packets by rules, four at most.
    ///
    /// # Errors
    /// There is no such port, it carries something already, or there are more rules.
    pub fn packet_slave(
        &mut self,
        tile: Tile,
        slave: SwitchPort,
        rules: &[PacketRule],
    ) -> Result<(), WriterError> {
        let fail = |problem: String| Err(WriterError::Hardware { tile, problem });
        let Some(number) = port::number(port::slaves(tile.kind()), slave) else {
            return fail(format!("it has no {slave}"));
        };
        if rules.len() > 4 {
            let n = rules.len();
            return fail(format!("{slave} has 4 packet slots, {n} are needed"));
        }
        let switch = self.switch(tile);
        if switch.slaves[usize::from(number)] != 0 {
            return fail(format!("{slave} carries something already"));
        }
        switch.slaves[usize::from(number)] = 3 << 30;
        let mut slots = [0; 4];
        for (slot, rule) in slots.iter_mut().zip(rules) {
            *slot = u32::from(rule.id & 31) << 24
                | u32::from(rule.mask & 31) << 16
                | 1 << 8
                | u32::from(rule.selection & 3) << 4
                | u32::from(rule.arbiter & 7);
        }
        switch.slots.insert(number, slots);
        Ok(())
    }
}
