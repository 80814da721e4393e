//! The ring of a hang: each party that waits, and the party that it waits for.

use crate::core::{CascadeWait, Code, CoreLog, CoreWait, Instruction, LockAmount};
use crate::design::{Design, Lock};
use crate::lower::Places;
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::board::{BoardActor, BoardWait, WaitFor};
use millrace_xdna2_words::port;
use millrace_xdna2_words::tile::Direction;
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::BTreeMap;

/// Facts about a design whose run hangs.
pub(crate) struct Parties<'d> {
    pub(crate) design: &'d Design,
    pub(crate) places: &'d Places,
    pub(crate) codes: BTreeMap<Tile, &'d Code>,
    pub(crate) logs: BTreeMap<Tile, CoreLog>,
}

/// A wait, with the parties that could end it.
struct WaitLink {
    text: String,
    others: Vec<BoardActor>,
}

impl WaitLink {
    /// A wait that no known party could end.
    fn alone(text: String) -> WaitLink {
        WaitLink {
            text,
            others: Vec::new(),
        }
    }
}

/// The ring of waits, or the chain to a party that has nothing to do; and all waits.
pub(crate) fn ring(parties: &Parties<'_>, waits: &[BoardWait]) -> (Vec<String>, Vec<String>) {
    let links: BTreeMap<BoardActor, WaitLink> = waits
        .iter()
        .map(|wait| (wait.actor, parties.link(wait)))
        .collect();
    let all = links
        .iter()
        .map(|(actor, link)| format!("{} {}", name(*actor), link.text));
    let all = all.collect();
    let (path, closes) = walk(BoardActor::Firmware, &links);
    let mut lines = parties.told(&path, closes, &links);
    if closes.is_none() {
        // Somebody without anything to do is where the chain ends; a ring elsewhere may be why.
        let elsewhere = links.keys().map(|&actor| walk(actor, &links));
        let ring = elsewhere
            .filter_map(|(path, closes)| Some((path, closes?)))
            .next();
        if let Some((path, start)) = ring {
            lines.push("beside it:".to_owned());
            lines.extend(parties.told(&path[start..], Some(0), &links));
        }
    }
    (lines, all)
}

/// The way from a party: where in it a ring closes, or the longest one to a party that does not wait.
fn walk(
    from: BoardActor,
    links: &BTreeMap<BoardActor, WaitLink>,
) -> (Vec<BoardActor>, Option<usize>) {
    let (mut path, mut seen, mut best) = (Vec::new(), Vec::new(), Vec::new());
    let closes = follow(from, links, (&mut path, &mut seen, &mut best));
    (if closes.is_some() { path } else { best }, closes)
}

/// Walks to the parties that could end a wait. Returns where in the path a ring closes. Without one, `best` is the
/// longest way to a party that does not wait.
fn follow(
    actor: BoardActor,
    links: &BTreeMap<BoardActor, WaitLink>,
    (path, seen, best): (
        &mut Vec<BoardActor>,
        &mut Vec<BoardActor>,
        &mut Vec<BoardActor>,
    ),
) -> Option<usize> {
    if let Some(start) = path.iter().position(|&before| before == actor) {
        return Some(start);
    }
    if seen.contains(&actor) {
        return None;
    }
    seen.push(actor);
    path.push(actor);
    let others = links.get(&actor).map_or(&[][..], |link| &link.others);
    for &other in others {
        if let Some(start) = follow(other, links, (path, seen, best)) {
            return Some(start);
        }
    }
    if path.len() > best.len() {
        best.clone_from(path);
    }
    path.pop();
    None
}

fn name(actor: BoardActor) -> String {
    match actor {
        BoardActor::Firmware => "the sequence".to_owned(),
        BoardActor::Channel(at) => channel(at),
        BoardActor::Core(tile) => format!("the program of {tile}"),
    }
}

fn channel(at: ChannelAt) -> String {
    format!("{} {} {}", at.tile, at.direction.name(), at.number)
}

fn channels(all: &[ChannelAt]) -> String {
    let names: Vec<String> = all.iter().map(|&at| channel(at)).collect();
    names.join(", ")
}

impl Parties<'_> {
    /// A way in words.
    fn told(
        &self,
        path: &[BoardActor],
        closes: Option<usize>,
        links: &BTreeMap<BoardActor, WaitLink>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for (i, &actor) in path.iter().enumerate() {
            if closes == Some(i) && i > 0 {
                lines.push("from here on it is a ring:".to_owned());
            }
            lines.push(match links.get(&actor) {
                Some(link) => format!("{} {}", name(actor), link.text),
                None => format!("{} {}", name(actor), self.idle(actor)),
            });
        }
        if let Some(start) = closes {
            lines.push(format!("and so back to {}", name(path[start])));
        }
        lines
    }

    fn link(&self, wait: &BoardWait) -> WaitLink {
        let of = |all: &[ChannelAt]| all.iter().map(|&at| BoardActor::Channel(at)).collect();
        let at = wait
            .descriptor
            .map_or_else(String::new, |n| format!("(descriptor {n}) "));
        match &wait.waits_for {
            WaitFor::Lock {
                tile,
                lock,
                amount,
                is_equal,
                held,
            } => {
                let found = self.lock_number(*tile, *lock);
                let amount = match is_equal {
                    true => LockAmount::Equal(*amount),
                    false => LockAmount::AtLeast(*amount),
                };
                self.lock_link(found, (amount, *held), &at)
            }
            WaitFor::Words { from } => {
                let from = match (from.is_empty(), wait.actor) {
                    (true, BoardActor::Channel(at)) => self.sources(at),
                    _ => from.clone(),
                };
                let text = match from.is_empty() {
                    true => format!("{at}waits for words, and no stream leads there"),
                    false => format!("{at}waits for words from {}", channels(&from)),
                };
                let others = of(&from);
                WaitLink { text, others }
            }
            WaitFor::Room { at: sinks } => WaitLink {
                text: format!("{at}waits for room at {}", channels(sinks)),
                others: of(sinks),
            },
            WaitFor::Arbiters { held_by } => {
                let names: Vec<String> = held_by.iter().map(|&actor| name(actor)).collect();
                WaitLink {
                    text: format!("{at}waits for an arbiter that {} holds", names.join(", ")),
                    others: held_by.clone(),
                }
            }
            WaitFor::Tokens { of: missing } => WaitLink {
                text: format!("awaits the token of {}", channels(missing)),
                others: of(missing),
            },
            WaitFor::Place { channel: at } => WaitLink {
                text: format!("waits for a place in the queue of {}", channel(*at)),
                others: vec![BoardActor::Channel(*at)],
            },
            WaitFor::Idle { channel: at } => WaitLink {
                text: format!("has ended, and {} is to write on", channel(*at)),
                others: vec![BoardActor::Channel(*at)],
            },
            WaitFor::Own(text) => match wait.actor {
                BoardActor::Core(tile) => self.core_link(tile, text),
                _ => WaitLink::alone(text.clone()),
            },
        }
    }

    fn core_link(&self, tile: Tile, text: &str) -> WaitLink {
        let Some(log) = self.logs.get(&tile) else {
            return WaitLink::alone(text.to_owned());
        };
        match log.waits {
            Some(CoreWait::Lock(lock, amount)) => {
                self.lock_link(Some(lock), (amount, 0), &format!("({}) ", log.at))
            }
            Some(CoreWait::Cascade(wait)) => {
                let mut cascades = self.design.cascades.iter();
                let other = match wait {
                    CascadeWait::Room => cascades.find(|row| row.0 == tile).map(|row| row.1),
                    CascadeWait::Value => cascades.find(|row| row.1 == tile).map(|row| row.0),
                };
                WaitLink {
                    text: format!("({}) {}", log.at, wait.name()),
                    others: other.map(BoardActor::Core).into_iter().collect(),
                }
            }
            None => WaitLink {
                text: format!("({}) {text}", log.at),
                others: Vec::new(),
            },
        }
    }

    /// A wait for a lock: those who release it could end it.
    fn lock_link(
        &self,
        lock: Option<usize>,
        (amount, held): (LockAmount, u8),
        at: &str,
    ) -> WaitLink {
        let Some((number, lock)) = lock.map(|lock| (lock, &self.design.locks[lock])) else {
            return WaitLink {
                text: format!("{at}waits for {amount} of a lock"),
                others: Vec::new(),
            };
        };
        let others = self.releasers(number);
        let by = match others.is_empty() {
            true => "nobody releases".to_owned(),
            false => {
                let names: Vec<String> = others.iter().map(|&actor| name(actor)).collect();
                format!("{} releases", names.join(" or "))
            }
        };
        let Lock {
            name: lock_name,
            tile,
            ..
        } = lock;
        let lock_number = self.places.locks[number];
        let text = format!(
            "{at}waits for {amount} of {lock_name}, lock {lock_number} of {tile}, which is {held} and {by}"
        );
        WaitLink { text, others }
    }

    fn lock_number(&self, tile: Tile, lock: u8) -> Option<usize> {
        let mut all = self.design.locks.iter().zip(&self.places.locks);
        all.position(|(of, &number)| of.tile == tile && number == lock)
    }

    fn releasers(&self, lock: usize) -> Vec<BoardActor> {
        let mut all = Vec::new();
        for chain in &self.design.chains {
            let descriptors = crate::lower::chain_descriptors(self.design, chain.first);
            let mut releases = descriptors
                .iter()
                .map(|&at| self.design.descriptors[at].release);
            if releases.any(|release| release.is_some_and(|row| row.0 == lock)) {
                all.push(BoardActor::Channel(chain.channel));
            }
        }
        for (tile, code) in &self.codes {
            let releases = |instruction: &Instruction| match instruction {
                Instruction::Release(at, _) => at.lock == lock,
                Instruction::ReleaseObjects(end, _) => code.ends[*end].release.lock == lock,
                _ => false,
            };
            if code.instructions.iter().any(releases) {
                all.push(BoardActor::Core(*tile));
            }
        }
        all
    }

    /// Channels whose flows lead to a channel.
    fn sources(&self, sink: ChannelAt) -> Vec<ChannelAt> {
        let port = port::of_dma(sink.tile.kind(), Direction::S2mm, sink.number);
        let flows = self.design.flows.iter();
        let leading = flows.filter(|flow| {
            flow.to
                .iter()
                .any(|end| end.tile == sink.tile && Some(end.port) == port)
        });
        let source = |flow: &crate::design::Flow| {
            let kind = flow.from.tile.kind();
            let of = |n: &u8| port::of_dma(kind, Direction::Mm2s, *n) == Some(flow.from.port);
            let number = (0..kind.channels()).find(of)?;
            Some(ChannelAt {
                tile: flow.from.tile,
                direction: Direction::Mm2s,
                number,
            })
        };
        leading.filter_map(source).collect()
    }

    /// Description of a party that does not wait.
    fn idle(&self, actor: BoardActor) -> String {
        match actor {
            BoardActor::Core(tile) if self.codes.contains_key(&tile) => "has ended".to_owned(),
            BoardActor::Core(_) => "is not there".to_owned(),
            BoardActor::Firmware => "has ended".to_owned(),
            BoardActor::Channel(_) => "has no task".to_owned(),
        }
    }
}
