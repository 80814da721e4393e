//! The text form, read. Lines are statements; the text is not trusted.

use super::words::{WordResult, Words, name, short};
use super::{
    Command, Context, Dma, Engine, IndexedAxis, LaneMode, Place, Program, ReduceOp, Side,
    SliceKernel, Stage, Tensor, TensorSharding, Topology, VectorOp, VectorOperand, View,
};
use crate::Element;
use crate::axes::Axes;
use millrace_npu::Role;
use std::collections::HashMap;

/// Why a text is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// Description of the fault.
    pub problem: String,
}

/// Most tensors and commands of one program.
const MAX_PARTS: usize = 1 << 20;

/// Reads a program.
///
/// # Errors
/// The first line that makes no sense.
pub fn parse(text: &str) -> Result<Program, TextError> {
    let mut parser = Parser {
        program: Program {
            name: String::new(),
            axes: Axes::new(),
            tensors: Vec::new(),
            commands: Vec::new(),
        },
        names: HashMap::new(),
        kernel: None,
    };
    let mut state = State::Version;
    let mut line = 0;
    for text in text.lines() {
        line += 1;
        let text = text.split("//").next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        state = parser
            .line(state, text)
            .map_err(|problem| TextError { line, problem })?;
    }
    match state {
        State::End => Ok(parser.program),
        _ => Err(TextError {
            line: line + 1,
            problem: "the text ends before the program's `}`".into(),
        }),
    }
}

#[derive(Clone, Copy)]
enum State {
    Version,
    Head,
    Body,
    End,
}

struct Parser {
    program: Program,
    names: HashMap<String, usize>,
    kernel: Option<SliceKernel>,
}

impl Parser {
    fn line(&mut self, state: State, text: &str) -> WordResult<State> {
        let mut words = Words { rest: text };
        match state {
            State::Version => {
                words.keyword("tcp")?;
                words.keyword("1")?;
                words.end()?;
                Ok(State::Head)
            }
            State::Head => {
                words.keyword("program")?;
                self.program.name = name(words.word("a name")?)?;
                words.keyword("{")?;
                words.end()?;
                Ok(State::Body)
            }
            State::Body => self.body(words),
            State::End => Err(format!("`{}` follows the program's `}}`", short(text))),
        }
    }

    fn body(&mut self, mut words: Words<'_>) -> WordResult<State> {
        let first = words.peek().unwrap_or_default();
        if first == "}" {
            words.keyword("}")?;
            words.end()?;
            let Some(kernel) = self.kernel.take() else {
                return Ok(State::End);
            };
            self.program.commands.push(Command::Kernel(kernel));
            return Ok(State::Body);
        }
        if self.program.commands.len() + self.program.tensors.len() > MAX_PARTS {
            return Err(format!("more than {MAX_PARTS} tensors and commands"));
        }
        if self.kernel.is_some() {
            let stage = self.stage(words)?;
            if let Some(kernel) = &mut self.kernel {
                kernel.stages.push(stage);
            }
            return Ok(State::Body);
        }
        words.next_word();
        match first {
            "axis" => {
                let axis = name(words.word("a name")?)?;
                words.keyword("=")?;
                let size = words.number("a size")?;
                words.end()?;
                let added = self.program.axes.add(&axis, size);
                added.map_err(|error| error.to_string())?;
            }
            "hbm" | "dm" | "trf" | "vrf" => self.tensor(first, words)?,
            "tdma" | "pdma" => self.dma(first, words)?,
            "main" | "sub" => {
                let context = Context::from_word(first).unwrap_or(Context::Main);
                let name = name(words.word("a name")?)?;
                words.keyword("{")?;
                words.end()?;
                self.kernel = Some(SliceKernel {
                    name,
                    context,
                    stages: Vec::new(),
                });
            }
            other => {
                return Err(format!(
                    "expected axis, hbm, dm, trf, vrf, tdma, pdma, main or sub, found `{}`",
                    short(other)
                ));
            }
        }
        Ok(State::Body)
    }

    fn tensor(&mut self, memory: &str, mut words: Words<'_>) -> WordResult<()> {
        let word = words.word("a name and `:`")?;
        let own = name(word.strip_suffix(':').unwrap_or(word))?;
        let element = words.one_of("an element type", Element::from_name)?;
        let place = if memory == "hbm" {
            Place::Hbm {
                role: words.one_of("a role", Role::from_name)?,
                layout: words.mapping()?,
            }
        } else {
            words.keyword("at")?;
            let address = words.number("an address")?;
            let spread = TensorSharding {
                cluster: words.named("cluster")?,
                slice: words.named("slice")?,
            };
            match memory {
                "trf" => Place::Trf {
                    spread,
                    lane: words.named("lane")?,
                    layout: words.named("element")?,
                    address,
                },
                "dm" => Place::Dm {
                    spread,
                    layout: words.named("element")?,
                    address,
                },
                _ => Place::Vrf {
                    spread,
                    layout: words.named("element")?,
                    address,
                },
            }
        };
        words.end()?;
        let number = self.program.tensors.len();
        if self.names.insert(own.clone(), number).is_some() {
            return Err(format!("two tensors are named `{own}`"));
        }
        self.program.tensors.push(Tensor {
            name: own,
            element,
            place,
        });
        Ok(())
    }

    fn known(&self, word: &str) -> WordResult<usize> {
        let known = self.names.get(word).copied();
        known.ok_or_else(|| format!("no tensor is named `{}`", short(word)))
    }

    fn view(&self, word: &str) -> WordResult<View> {
        let (own, parts) = match word.split_once('[') {
            None => (word, ""),
            Some((own, parts)) => {
                let parts = parts.strip_suffix(']');
                (
                    own,
                    parts.ok_or_else(|| format!("`{}` has no `]`", short(word)))?,
                )
            }
        };
        let mut view = View::of(self.known(own)?);
        for part in parts.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let words: Vec<&str> = part.split_whitespace().collect();
            match words[..] {
                [axis, "+", n] => {
                    let n = n.parse().ok().filter(|&n: &u64| n > 0 && n < 1 << 40);
                    let n = n.ok_or_else(|| format!("`{part}`: expected an index"))?;
                    view.offsets.push((name(axis)?, n));
                }
                [axis, "as", to] => view.renames.push((name(axis)?, name(to)?)),
                _ => return Err(format!("`{part}`: expected `axis + n` or `axis as name`")),
            }
        }
        Ok(view)
    }

    fn dma(&mut self, engine: &str, mut words: Words<'_>) -> WordResult<()> {
        let engine = match engine {
            "pdma" => Engine::Pdma,
            _ => Engine::Tdma {
                first: words.number("the first engine")?,
                count: words.number("a number of engines")?,
            },
        };
        let word = words.word("a name and `:`")?;
        let own = name(word.strip_suffix(':').unwrap_or(word))?;
        let from = self.view(words.word("a source")?)?;
        words.keyword("->")?;
        let to = self.view(words.word("a destination")?)?;
        let side = words.next_word();
        let indexed = match side {
            None => None,
            Some(word @ ("gather" | "scatter")) => {
                let axis = name(words.word("an axis")?)?;
                words.keyword("by")?;
                let index = self.known(words.word("a tensor")?)?;
                let side = match word {
                    "gather" => Side::From,
                    _ => Side::To,
                };
                Some(IndexedAxis { side, axis, index })
            }
            Some(word) => {
                return Err(format!(
                    "expected gather or scatter, found `{}`",
                    short(word)
                ));
            }
        };
        words.end()?;
        self.program.commands.push(Command::Dma(Dma {
            name: own,
            engine,
            from,
            to,
            indexed,
        }));
        Ok(())
    }

    fn stage(&self, mut words: Words<'_>) -> WordResult<Stage> {
        let kind = words.word("a stage")?;
        let stage = match kind {
            "fetch" => self.fetch(&mut words)?,
            "switch" => Stage::Switch {
                topology: words.one_of("a topology", Topology::from_word)?,
                slice: words.named("slice")?,
                time: words.named("time")?,
            },
            "collect" => Stage::Collect {
                time: words.named("time")?,
                packet: words.named("packet")?,
            },
            "outer" => self.outer(&mut words)?,
            "packet" => Stage::Packet {
                packet: words.mapping()?,
            },
            "time" => Stage::Time {
                time: words.mapping()?,
            },
            "lane" => Stage::Lane {
                mode: words.one_of("interleaved or sequential", LaneMode::from_word)?,
                time: words.named("time")?,
                packet: words.named("packet")?,
            },
            "stash" => Stage::Stash,
            "vector" => Stage::Vector {
                op: words.one_of("an operation", VectorOp::from_word)?,
                operand: self.operand(&mut words)?,
            },
            "reduce" => Stage::Reduce {
                op: words.one_of("add, max or min", ReduceOp::from_word)?,
                time: words.named("time")?,
                packet: words.named("packet")?,
            },
            "ring" => Stage::Ring {
                op: words.one_of("add, max or min", ReduceOp::from_word)?,
                slice: words.named("slice")?,
            },
            "cast" => Stage::Cast {
                to: words.one_of("an element type", Element::from_name)?,
            },
            "transpose" => Stage::Transpose {
                time: words.named("time")?,
                packet: words.named("packet")?,
            },
            "commit" => Stage::Commit {
                to: self.view(words.word("a tensor")?)?,
            },
            "registers" => Stage::ToRegisters {
                tensor: self.known(words.word("a tensor")?)?,
            },
            other => return Err(format!("`{}` is not a stage", short(other))),
        };
        words.end()?;
        Ok(stage)
    }

    fn outer(&self, words: &mut Words<'_>) -> WordResult<Stage> {
        Ok(Stage::Outer {
            trf: self.known(words.word("a tensor")?)?,
            time: words.named("time")?,
            packet: words.named("packet")?,
        })
    }

    fn fetch(&self, words: &mut Words<'_>) -> WordResult<Stage> {
        let view = self.view(words.word("a tensor")?)?;
        let mut with = None;
        if words.peek() == Some("with") {
            words.keyword("with")?;
            with = Some(self.view(words.word("a tensor")?)?);
        }
        let mut cast = None;
        if words.peek() == Some("to") {
            words.keyword("to")?;
            cast = Some(words.one_of("an element type", Element::from_name)?);
        }
        Ok(Stage::Fetch {
            view,
            with,
            cast,
            time: words.named("time")?,
            packet: words.named("packet")?,
        })
    }

    fn operand(&self, words: &mut Words<'_>) -> WordResult<VectorOperand> {
        Ok(match words.next_word() {
            None => VectorOperand::None,
            Some("stream") => VectorOperand::Stream,
            Some("stash") => VectorOperand::Stash,
            Some("second") => VectorOperand::Second,
            Some("vrf") => VectorOperand::Vrf(self.known(words.word("a tensor")?)?),
            Some(word) => {
                let value = word.parse::<f32>().ok().filter(|value| value.is_finite());
                let wrong = || format!("expected a number or an operand, found `{}`", short(word));
                VectorOperand::Constant(value.ok_or_else(wrong)?)
            }
        })
    }
}
