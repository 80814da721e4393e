//! The ends of channels.

use super::check::{self, FlatDefect, FlatError, PortScope, fail};
use super::{Flat, FlatChannel, MAX_COPIES, Port, indexed};
use crate::program::{Env, IndexRange, Indices, Place};

impl Flat<'_> {
    pub(super) fn expand_channels(&mut self) -> Result<(), FlatError> {
        let launch = self.launch;
        let ends = check::ends_by_channel(self)?;
        let mut n_sinks = 0;
        for (bundle, decl) in launch.channels.iter().enumerate() {
            for index in Indices::new(&decl.dims) {
                let name = || indexed(&decl.name, &index);
                let env = Env {
                    index: &index,
                    ..Env::default()
                };
                let scope = PortScope {
                    env,
                    id: self.channels.len(),
                    ends: &ends,
                };
                let from = self
                    .ports(&decl.from, &scope, false)
                    .or_else(|p| fail(launch, &name(), p))?;
                let to = self
                    .ports(&decl.to, &scope, true)
                    .or_else(|p| fail(launch, &name(), p))?;
                n_sinks += check::copies(launch, &decl.name, &[to.len() as u32], n_sinks)?;
                let [from] = from[..] else {
                    return fail(launch, &name(), FlatDefect::Sources(from.len()));
                };
                self.channels.push(FlatChannel {
                    bundle,
                    index,
                    decl,
                    from,
                    to,
                });
            }
        }
        Ok(())
    }

    fn ports(
        &self,
        place: &Place,
        scope: &PortScope<'_>,
        sink: bool,
    ) -> Result<Vec<Port>, FlatDefect> {
        match place {
            Place::Shim(col) => {
                if !scope.ends.shim[scope.id] {
                    return Err(FlatDefect::Unused {
                        user: "transfer",
                        sink,
                    });
                }
                let col = column(col.at(&scope.env))?;
                Ok(vec![Port::Shim { col }])
            }
            Place::Memory(col) => {
                let col = column(col.at(&scope.env))?;
                let Some((stage, end)) = scope.ends.of(scope.id, sink) else {
                    return Err(FlatDefect::Unused {
                        user: "stage",
                        sink,
                    });
                };
                if self.stages[stage].col != col {
                    let (stage, at) = (self.stage_name(stage), self.stages[stage].col);
                    return Err(FlatDefect::Column { stage, at, col });
                }
                Ok(vec![Port::Memory { col, stage, end }])
            }
            Place::Core { col, row } => {
                let cols = span(col, &scope.env)?;
                let rows = span(row, &scope.env)?;
                let mut ports = Vec::new();
                for col in cols {
                    for row in rows.clone() {
                        let core = self.core_at(col, row);
                        let core = core.ok_or(FlatDefect::NoCore { col, row })?;
                        ports.push(Port::Core { core });
                    }
                }
                Ok(ports)
            }
        }
    }

    pub(super) fn link_cores(&mut self) {
        for (id, channel) in self.channels.iter().enumerate() {
            if let Port::Core { core } = channel.from {
                self.cores[core].outputs.push(id);
            }
            for port in &channel.to {
                if let Port::Core { core } = *port {
                    self.cores[core].inputs.push(id);
                }
            }
        }
    }
}

pub(super) fn column(value: i64) -> Result<u32, FlatDefect> {
    u32::try_from(value).map_err(|_| FlatDefect::Place(value))
}

fn span(span: &IndexRange, env: &Env<'_>) -> Result<std::ops::Range<u32>, FlatDefect> {
    let (start, len) = match span {
        IndexRange::At(at) => (column(at.at(env))?, 1),
        IndexRange::Range { start, len } => (*start, *len),
    };
    match start.checked_add(len) {
        Some(end) if len > 0 && len as usize <= MAX_COPIES => Ok(start..end),
        _ => Err(FlatDefect::Span { start, len }),
    }
}
