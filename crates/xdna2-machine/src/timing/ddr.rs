//! The shared DDR: a fluid that the active shim channels divide among themselves.

use crate::Profile;
use std::collections::HashMap;

/// Kind of stream that a shim channel carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StreamKind {
    /// Into DDR rather than from it.
    pub(super) writes: bool,
    /// Column of the shim.
    pub(super) col: u32,
    /// Cost of a byte in units of the full rate: (burst + overhead) / burst.
    pub(super) cost: f64,
    /// The one memory channel that all bursts fall on, or all of them.
    pub(super) memory_channel: Option<u32>,
    /// Bytes of a block, which the channel requests at once. Requests are served as they come, so a channel that
    /// requests more gets more.
    pub(super) weight: f64,
}

struct DdrFlow {
    channel: usize,
    left: f64,
    rate: f64,
    stream: StreamKind,
}

/// The state of all transfers under way.
pub(super) struct DdrState<'p> {
    profile: &'p Profile,
    port_gb_per_s: f64,
    flows: Vec<DdrFlow>,
    now: f64,
    changed: bool,
    /// Rates by set of active channels, as long as no stream changes its kind.
    memo: HashMap<u128, Vec<(usize, f64)>>,
    /// Bit of each channel in the memo's sets, and the kind of stream seen there.
    seen: Vec<(usize, StreamKind)>,
    /// Time for which the full rate was used, summed over memory channels and divided by them.
    pub(super) busy_ns: f64,
    /// Longest such time of one memory channel.
    pub(super) channel_busy_ns: Vec<f64>,
}

/// Bytes that count as none.
const DUST: f64 = 1e-6;

impl<'p> DdrState<'p> {
    pub(super) fn new(profile: &'p Profile, stream_gb_per_s: f64) -> DdrState<'p> {
        DdrState {
            profile,
            port_gb_per_s: profile.shim.port_gb_per_s.min(stream_gb_per_s),
            flows: Vec::new(),
            now: 0.0,
            changed: false,
            memo: HashMap::new(),
            seen: Vec::new(),
            busy_ns: 0.0,
            channel_busy_ns: vec![0.0; profile.ddr.channels.max(1) as usize],
        }
    }

    /// Starts a block.
    pub(super) fn start(&mut self, channel: usize, bytes: f64, stream: StreamKind) {
        self.flows.push(DdrFlow {
            channel,
            left: bytes.max(DUST),
            rate: 0.0,
            stream,
        });
        self.changed = true;
    }

    /// Moves on to a time.
    fn advance(&mut self, now: f64) {
        let step = now - self.now;
        self.now = now;
        if step <= 0.0 {
            return;
        }
        for flow in &mut self.flows {
            flow.left -= flow.rate * step;
        }
    }

    /// Moves on to a time and takes out the channels whose blocks are through, in order.
    pub(super) fn finished(&mut self, now: f64) -> Vec<usize> {
        self.advance(now);
        let mut done = Vec::new();
        self.flows.retain(|flow| {
            // A remainder that takes less than a femtosecond is rounding.
            let through = flow.left <= DUST.max(flow.rate * 1e-6);
            if through {
                done.push(flow.channel);
            }
            !through
        });
        self.changed |= !done.is_empty();
        done
    }

    /// After changes at a time: new rates, and when the next block is through.
    pub(super) fn next(&mut self, now: f64) -> Option<f64> {
        if !self.changed {
            return None;
        }
        self.advance(now);
        self.changed = false;
        self.share();
        let end = |f: &DdrFlow| now + f.left / f.rate;
        self.flows.iter().map(end).min_by(f64::total_cmp)
    }

    fn key(&mut self) -> Option<u128> {
        let mut key = 0u128;
        for flow in &self.flows {
            let bit = match self.seen.iter().position(|s| s.0 == flow.channel) {
                Some(bit) => {
                    if self.seen[bit].1 != flow.stream {
                        self.seen[bit].1 = flow.stream;
                        self.memo.clear();
                    }
                    bit
                }
                None => {
                    self.seen.push((flow.channel, flow.stream));
                    self.seen.len() - 1
                }
            };
            key |= 1u128.checked_shl(bit as u32)?;
        }
        (self.seen.len() <= 128).then_some(key)
    }

    fn share(&mut self) {
        let key = self.key();
        if let Some(rates) = key.and_then(|key| self.memo.get(&key)) {
            for flow in &mut self.flows {
                let known = rates.iter().find(|r| r.0 == flow.channel);
                flow.rate = known.map_or(flow.rate, |r| r.1);
            }
            return;
        }
        let streams: Vec<StreamKind> = self.flows.iter().map(|f| f.stream).collect();
        let rates = fair_rates(&streams, self.profile, self.port_gb_per_s);
        for (flow, &rate) in self.flows.iter_mut().zip(&rates) {
            flow.rate = rate;
        }
        if let Some(key) = key {
            let rates = self.flows.iter().map(|f| (f.channel, f.rate)).collect();
            self.memo.insert(key, rates);
        }
    }

    /// Counts the usage of a finished block.
    pub(super) fn count(&mut self, bytes: f64, stream: StreamKind) {
        if stream.writes {
            return;
        }
        let full_ns = bytes * stream.cost / self.profile.ddr.read_gb_per_s;
        self.busy_ns += full_ns;
        let n = self.channel_busy_ns.len();
        match stream.memory_channel {
            Some(one) => self.channel_busy_ns[one as usize % n] += full_ns * n as f64,
            None => self.channel_busy_ns.iter_mut().for_each(|b| *b += full_ns),
        }
    }
}

/// Weighted max-min fair rates in bytes per nanosecond: all rise together, in proportion to their
/// weights, until something is full. Users of that stay, the others rise on.
pub(super) fn fair_rates(streams: &[StreamKind], profile: &Profile, port: f64) -> Vec<f64> {
    let limits = limits(streams, profile);
    let mut rates = vec![0.0; streams.len()];
    let mut fixed = vec![false; streams.len()];
    while fixed.contains(&false) {
        let level = |limit: &Limit| {
            let used: f64 = limit.share(|i| if fixed[i] { rates[i] } else { 0.0 });
            let rising: f64 = limit.share(|i| if fixed[i] { 0.0 } else { streams[i].weight });
            if rising > 0.0 {
                ((limit.capacity - used) / rising).max(0.0)
            } else {
                f64::INFINITY
            }
        };
        let levels: Vec<f64> = limits.iter().map(level).collect();
        let own = |i: usize| port / streams[i].weight;
        let rising = (0..streams.len()).filter(|&i| !fixed[i]);
        let lowest = (rising.map(own))
            .chain(levels.iter().copied())
            .fold(f64::INFINITY, f64::min);
        let full = |level: f64| level <= lowest * (1.0 + 1e-12);
        let before = fixed.clone();
        for i in (0..streams.len()).filter(|&i| !before[i]) {
            rates[i] = (lowest * streams[i].weight).max(1e-9);
            let shared = (limits.iter().zip(&levels))
                .any(|(limit, &level)| full(level) && limit.weights[i] > 0.0);
            fixed[i] = shared || full(own(i));
        }
    }
    rates
}

/// A capacity that streams use in proportion to their rates.
struct Limit {
    capacity: f64,
    weights: Vec<f64>,
}

impl Limit {
    fn share(&self, of: impl Fn(usize) -> f64) -> f64 {
        let terms = self.weights.iter().enumerate();
        terms.map(|(i, weight)| weight * of(i)).sum()
    }
}

fn limits(streams: &[StreamKind], profile: &Profile) -> Vec<Limit> {
    let ddr = &profile.ddr;
    let limit = |capacity: f64, weight: &dyn Fn(&StreamKind) -> f64| Limit {
        capacity,
        weights: streams.iter().map(weight).collect(),
    };
    let mut limits = vec![
        limit(ddr.read_gb_per_s, &|s| if s.writes { 0.0 } else { s.cost }),
        limit(ddr.write_gb_per_s, &|s| if s.writes { s.cost } else { 0.0 }),
        limit(ddr.total_gb_per_s, &|s| s.cost),
    ];
    let n = f64::from(ddr.channels.max(1));
    for channel in 0..ddr.channels {
        limits.push(limit(ddr.read_gb_per_s / n, &|s| match s.memory_channel {
            _ if s.writes => 0.0,
            None => s.cost / n,
            Some(one) if one == channel => s.cost,
            Some(_) => 0.0,
        }));
    }
    let mut cols: Vec<u32> = streams.iter().map(|s| s.col).collect();
    cols.sort_unstable();
    cols.dedup();
    for col in cols {
        limits.push(limit(profile.shim.column_read_gb_per_s, &|s| {
            f64::from(u8::from(s.col == col && !s.writes))
        }));
    }
    limits
}
