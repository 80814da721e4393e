//! Parsing: declarations of slots and launches.

use super::ParseError;
use super::lexer::Token;
use super::parse::{NameTable, ProgramParser};
use crate::program::{
    Channel, ChannelLink, GridOrder, Herd, Launch, Local, Place, Stage, StageEnd, Transfer,
};
use millrace_npu::{Element, Role, Slot};

impl ProgramParser<'_> {
    fn element(&mut self) -> Result<Element, ParseError> {
        let element = match self.token {
            Token::Word(word) => Element::from_name(word),
            _ => None,
        };
        let error = || self.expected("an element type (u8, i8, i16, bf16, i32, f32)");
        let element = element.ok_or_else(error)?;
        self.bump()?;
        Ok(element)
    }

    pub(super) fn slot(&mut self) -> Result<Slot, ParseError> {
        let name = self.name()?;
        self.mark(":")?;
        let element = self.element()?;
        let shape = self.list(("[", "]"), |p| p.number("a size"))?;
        let role = match self.token {
            Token::Word(word) => Role::from_name(word),
            _ => None,
        };
        let error = || self.expected("a role (static, input, intermediate, output)");
        let role = role.ok_or_else(error)?;
        self.bump()?;
        Ok(Slot {
            name,
            element,
            shape,
            role,
        })
    }

    pub(super) fn launch(&mut self, slots: &NameTable) -> Result<Launch, ParseError> {
        let name = self.name()?;
        let args = self.list(("(", ")"), |p| p.reference(slots))?;
        let mut launch = Launch {
            name,
            args,
            ..Launch::default()
        };
        let mut channels = NameTable::new("channel");
        let arguments = slots.of_arguments(&launch.args);
        self.mark("{")?;
        if self.take_word("grid")? {
            launch.grid = self.sizes()?;
        }
        if self.take_word("order")? {
            launch.order = match self.take_word("streamed")? {
                true => GridOrder::Streamed,
                false => self.word("sequential").map(|()| GridOrder::Sequential)?,
            };
        }
        launch.resident = self.take_word("resident")?;
        while !self.take_mark("}")? {
            if self.take_word("channel")? {
                let channel = self.channel()?;
                channels.declare(&channel.name);
                launch.channels.push(channel);
            } else if self.take_word("stage")? {
                launch.stages.push(self.stage(&channels)?);
            } else if self.take_word("transfer")? {
                let transfer = self.transfer(&launch.channels, &channels, &arguments)?;
                launch.transfers.push(transfer);
            } else if self.take_word("herd")? {
                launch.herds.push(self.herd(&channels)?);
            } else {
                return Err(self.expected("`channel`, `stage`, `transfer`, `herd` or `}`"));
            }
        }
        Ok(launch)
    }

    fn channel(&mut self) -> Result<Channel, ParseError> {
        let name = self.name()?;
        let dims = self.optional_sizes()?;
        self.mark(":")?;
        let element = self.element()?;
        let block = self.sizes()?;
        self.word("from")?;
        let from = self.place()?;
        self.word("to")?;
        let to = self.place()?;
        self.word("depth")?;
        let depth = self.number("a depth")?;
        let mut link = ChannelLink::Stream;
        if self.take_word("link")? {
            link = if self.take_word("cascade")? {
                ChannelLink::Cascade
            } else if self.take_word("neighbour")? {
                ChannelLink::Neighbour
            } else {
                self.word("stream").map(|()| ChannelLink::Stream)?
            };
        }
        let mut patterns = [None, None];
        for (word, pattern) in ["send", "receive"].into_iter().zip(&mut patterns) {
            if self.take_word(word)? {
                *pattern = Some(self.pattern()?);
            }
        }
        let [from_pattern, to_pattern] = patterns;
        Ok(Channel {
            name,
            dims,
            element,
            block,
            from,
            to,
            depth,
            link,
            from_pattern,
            to_pattern,
        })
    }

    fn stage(&mut self, channels: &NameTable) -> Result<Stage, ParseError> {
        let name = self.name()?;
        let dims = self.optional_sizes()?;
        self.word("at")?;
        let col = self.affine()?;
        self.mark(":")?;
        let element = self.element()?;
        let block = self.sizes()?;
        self.word("copies")?;
        let copies = self.number("a number of copies")?;
        let mut stage = Stage {
            name,
            dims,
            col,
            element,
            block,
            copies,
            fills: Vec::new(),
            drains: Vec::new(),
        };
        self.mark("{")?;
        while !self.take_mark("}")? {
            let ends = if self.take_word("fill")? {
                &mut stage.fills
            } else if self.take_word("drain")? {
                &mut stage.drains
            } else {
                return Err(self.expected("`fill`, `drain` or `}`"));
            };
            ends.push(self.stage_end(channels)?);
        }
        Ok(stage)
    }

    fn stage_end(&mut self, channels: &NameTable) -> Result<StageEnd, ParseError> {
        let channel = self.reference(channels)?;
        let index = self.index()?;
        let each = match self.take_word("each")? {
            true => self.number("a number of ends")?,
            false => 1,
        };
        self.word("walk")?;
        let pattern = self.pattern()?;
        let repeat = match self.take_word("repeat")? {
            true => self.number("a number of repeats")?,
            false => 1,
        };
        Ok(StageEnd {
            each,
            channel,
            index,
            pattern,
            repeat,
        })
    }

    fn transfer(
        &mut self,
        decls: &[Channel],
        channels: &NameTable,
        arguments: &NameTable,
    ) -> Result<Transfer, ParseError> {
        let arg = self.reference(arguments)?;
        let at = self.at;
        let reads = self.take_mark("->")?;
        if !reads && !self.take_mark("<-")? {
            return Err(self.expected("`->` or `<-`"));
        }
        let channel = self.reference(channels)?;
        let from_shim = |c: &Channel| matches!(c.from, Place::Shim(_));
        if decls.get(channel).is_some_and(from_shim) != reads {
            return Err(at.error("`->` is for a channel that comes from a shim, `<-` for others"));
        }
        let index = self.index()?;
        let dims = match self.take_word("over")? {
            true => self.sizes()?,
            false => Vec::new(),
        };
        let loops = match self.take_word("loops")? {
            true => self.list(("[", "]"), |p| p.affine())?,
            false => Vec::new(),
        };
        self.word("walk")?;
        Ok(Transfer {
            dims,
            loops,
            arg,
            channel,
            index,
            pattern: self.pattern()?,
        })
    }

    fn herd(&mut self, channels: &NameTable) -> Result<Herd, ParseError> {
        let name = self.name()?;
        let mut pairs = [(0, 0); 2];
        for (word, pair) in ["at", "size"].into_iter().zip(&mut pairs) {
            self.word(word)?;
            self.mark("(")?;
            pair.0 = self.number("a column")?;
            self.mark(",")?;
            pair.1 = self.number("a row")?;
            self.mark(")")?;
        }
        let [(col, row), (cols, rows)] = pairs;
        self.mark("{")?;
        let mut locals = Vec::new();
        let mut names = NameTable::new("local");
        while self.take_word("local")? {
            let name = self.name()?;
            self.mark(":")?;
            let element = self.element()?;
            let shape = self.sizes()?;
            names.declare(&name);
            locals.push(Local {
                name,
                element,
                shape,
            });
        }
        let body = self.body(channels, &names, 0, 0)?;
        Ok(Herd {
            name,
            col,
            row,
            cols,
            rows,
            locals,
            body,
        })
    }
}
