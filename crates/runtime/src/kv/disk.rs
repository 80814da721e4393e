//! Pages and sequences on disk.

mod prefix;

use super::pages::LayerGroup;
use super::{KvCache, PAGE_TOKENS};
use crate::Error;
use crate::disk::DiskError;
use crate::disk::file::{FileContents, FileReader, FileWriter, TableSpan};
use crate::disk::store::PageStore;
use crate::sequences::SeqId;

impl KvCache {
    /// Shapes of the memory of each group's layers.
    pub(crate) fn describe(&self) -> String {
        let groups = self.groups.iter().map(|group| {
            let layers = group.layers.iter().map(|layer| &self.layers[*layer].layout);
            let states = match group.is_of_states {
                true => self.states.slot_bytes(),
                false => 0,
            };
            format!(
                "{:?} {:?} {states}\n",
                group.window,
                layers.collect::<Vec<_>>()
            )
        });
        groups.collect()
    }

    /// Keeps full pages in a folder too.
    pub(crate) fn keep_in(&mut self, store: PageStore) {
        self.store = Some(store);
    }

    /// Bytes of a page of a group: keys and values of its layers, or states.
    fn page_bytes(&self, g: usize) -> usize {
        match self.groups[g].is_of_states {
            true => self.states.slot_bytes(),
            false => {
                let layers = self.groups[g].layers.iter();
                layers
                    .map(|layer| 2 * self.layers[*layer].layout.page_bytes())
                    .sum()
            }
        }
    }

    /// Hands the bytes of a page over, part by part.
    fn each_part<E>(
        &self,
        (g, page): (usize, u32),
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.groups[g].is_of_states {
            return take(self.states.slot_bytes_of(page));
        }
        for layer in &self.groups[g].layers {
            let layer = &self.layers[*layer];
            let n_bytes = layer.layout.page_bytes();
            let at = page as usize * n_bytes..(page as usize + 1) * n_bytes;
            take(&layer.k[at.clone()])?;
            take(&layer.v[at])?;
        }
        Ok(())
    }

    /// Has the bytes of a page filled, in the same order.
    fn fill_parts(
        &mut self,
        (g, page): (usize, u32),
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        if self.groups[g].is_of_states {
            return fill(self.states.slot_bytes_mut(page));
        }
        for layer in &self.groups[g].layers {
            let layer = &mut self.layers[*layer];
            let n_bytes = layer.layout.page_bytes();
            let at = page as usize * n_bytes..(page as usize + 1) * n_bytes;
            fill(&mut layer.k[at.clone()])?;
            fill(&mut layer.v[at])?;
        }
        Ok(())
    }

    /// The pages that hold a sequence as far as its states are there: its tokens, and a span of pages a group.
    pub(crate) fn spans(&self, seq: SeqId) -> Result<(&[u32], Vec<TableSpan>), Error> {
        let sequence = self.sequences.get(seq)?;
        let len = match self.state_group {
            Some(_) if sequence.is_rolled_back => sequence.state_len / PAGE_TOKENS * PAGE_TOKENS,
            Some(_) => sequence.state_len,
            None => sequence.tokens.len(),
        };
        let end = len.div_ceil(PAGE_TOKENS);
        let spans = sequence.tables.iter().map(|table| TableSpan {
            first: table.first.min(end) as u64,
            n_pages: end.saturating_sub(table.first) as u64,
        });
        Ok((&sequence.tokens[..len], spans.collect()))
    }

    /// Bytes of the pages of these spans.
    pub(crate) fn span_bytes(&self, spans: &[TableSpan]) -> u64 {
        let bytes = spans.iter().enumerate();
        let bytes = bytes.map(|(g, span)| span.n_pages.saturating_mul(self.page_bytes(g) as u64));
        bytes.fold(0, u64::saturating_add)
    }

    /// Writes the pages of a sequence, group by group.
    pub(crate) fn write_pages(
        &self,
        seq: SeqId,
        spans: &[TableSpan],
        writer: &mut FileWriter,
    ) -> Result<(), Error> {
        let sequence = self.sequences.get(seq)?;
        for (g, (table, span)) in sequence.tables.iter().zip(spans).enumerate() {
            for page in &table.pages[..span.n_pages as usize] {
                self.each_part((g, *page), &mut |bytes| writer.write(bytes))?;
            }
        }
        Ok(())
    }

    /// Fills a sequence with tokens and their pages from a file. It is empty if that fails.
    pub(crate) fn read_pages(
        &mut self,
        seq: SeqId,
        tokens: &[u32],
        spans: &[TableSpan],
        mut reader: FileReader,
    ) -> Result<(), Error> {
        self.cut(seq, 0)?;
        let firsts = self.check_spans(tokens.len(), spans, &reader)?;
        let mut tables = vec![Vec::new(); self.groups.len()];
        let groups = spans.iter().zip(&firsts).zip(&mut tables).enumerate();
        let mut read = groups.map(|(g, ((span, first), pages))| {
            self.read_span((g, *first), *span, &mut reader, pages)
        });
        let read = read.try_for_each(|read| read);
        if let Err(error) = read.and_then(|()| reader.finish()) {
            self.drop_pages(&tables);
            return Err(error.into());
        }
        self.hold(seq, tokens, tables, &firsts)
    }

    /// Reads the pages of a group from the first that is wanted on; those before it only count for the checksum.
    fn read_span(
        &mut self,
        (g, first): (usize, usize),
        span: TableSpan,
        reader: &mut FileReader,
        pages: &mut Vec<u32>,
    ) -> Result<(), DiskError> {
        let n_skipped = first - span.first as usize;
        skip(reader, n_skipped * self.page_bytes(g))?;
        for _ in n_skipped..span.n_pages as usize {
            let page = self.take(g);
            pages.push(page);
            self.fill_parts((g, page), &mut |out| reader.read(out))?;
        }
        Ok(())
    }

    /// Makes an empty sequence hold tokens, and pages that it has references to.
    fn hold(
        &mut self,
        seq: SeqId,
        tokens: &[u32],
        tables: Vec<Vec<u32>>,
        firsts: &[usize],
    ) -> Result<(), Error> {
        let sequence = self.sequences.get_mut(seq)?;
        for ((table, pages), first) in sequence.tables.iter_mut().zip(tables).zip(firsts) {
            table.pages.extend(pages);
            table.first = *first;
        }
        sequence.tokens.extend_from_slice(tokens);
        sequence.replace_states(tokens.len());
        Ok(())
    }

    /// Refuses spans that no sequence of this length has, and those for which there is no room. Returns the first page by
    /// group that may be seen again.
    fn check_spans(
        &self,
        len: usize,
        spans: &[TableSpan],
        reader: &FileReader,
    ) -> Result<Vec<usize>, Error> {
        let end = len.div_ceil(PAGE_TOKENS);
        let fits = |(group, span): (&LayerGroup, &TableSpan)| {
            let needed = (group.oldest_needed(len) / PAGE_TOKENS).min(end);
            span.first <= needed as u64 && span.first.checked_add(span.n_pages) == Some(end as u64)
        };
        let is_whole = spans.len() == self.groups.len()
            && self.groups.iter().zip(spans).all(fits)
            && self.span_bytes(spans) == reader.left();
        if !is_whole {
            let problem = format!("its pages are not those of {len} tokens");
            return Err(reader.damaged("header", problem).into());
        }
        let first = |(group, span): (&LayerGroup, &TableSpan)| {
            let rolled_back = len.saturating_sub(self.sizes.rollback_tokens);
            let first = (group.oldest_needed(rolled_back) / PAGE_TOKENS).max(span.first as usize);
            let (needed, free) = (end - first, group.available());
            match needed <= free {
                true => Ok(first),
                false => Err(Error::CacheFull {
                    needed,
                    free,
                    page_tokens: PAGE_TOKENS,
                }),
            }
        };
        self.groups.iter().zip(spans).map(first).collect()
    }

    fn drop_pages(&mut self, tables: &[Vec<u32>]) {
        self.now += 1;
        for (group, pages) in self.groups.iter_mut().zip(tables) {
            pages.iter().for_each(|page| group.unref(*page, self.now));
        }
    }
}

/// Skips unneeded bytes, which count for the checksum.
fn skip(reader: &mut FileReader, mut n_bytes: usize) -> Result<(), DiskError> {
    let mut scratch = [0; 4096];
    while n_bytes > 0 {
        let part = n_bytes.min(scratch.len());
        reader.read(&mut scratch[..part])?;
        n_bytes -= part;
    }
    Ok(())
}

/// The parts of a header of a sequence; refuses one of a page.
pub(crate) fn sequence_of(
    contents: FileContents,
    reader: &FileReader,
) -> Result<(u64, u64, Vec<TableSpan>), DiskError> {
    match contents {
        FileContents::Sequence {
            n_tokens,
            note_bytes,
            tables,
        } => Ok((n_tokens, note_bytes, tables)),
        FileContents::Page { .. } => {
            let problem = "it is of a page of a cache folder, not of a conversation".to_owned();
            Err(reader.damaged("header", problem))
        }
    }
}
