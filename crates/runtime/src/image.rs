//! Images in a text model: rows instead of embeddings, under separate ids.
//!
//! A vision encoder turns an image into a block of rows, each as wide as an embedding. An [`Image`] is such a block with an id for
//! every row. The ids are tokens beyond any vocabulary, so prompts, caches and the index of prefixes treat an image like tokens. An
//! engine gets the image together with the tokens ([`BatchItem::images`](crate::BatchItem::images)). Every image of the process has
//! unique ids, which are never reused. Equal ids mean equal rows, so results for one image are never used for another.
//!
//! Rows of an image that see each other in both directions are computed in one pass: such an image is never cut. The rows of other images
//! only look back, as tokens do ([`ImageSight`]); [on a grid](Image::on_grid) they also have places in rows and columns (`planes`).

pub(crate) mod planes;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_graph::{Graph, Node, Op};
use millrace_model::ImageSight;

use crate::Error;

/// Ids from here on are rows of images; no vocabulary reaches so far.
const FIRST_ID: u32 = 1 << 31;

/// Ids from here on are rows of images on grids.
const FIRST_GRID_ID: u32 = 3 << 30;

/// The id of a row of an image not yet made, in prompts that [`place`] completes.
pub const PLACEHOLDER: u32 = u32::MAX;

/// The next unused id.
static NEXT_ID: AtomicU32 = AtomicU32::new(FIRST_ID);

/// An image's rows, ready for a text model.
#[derive(Debug)]
pub struct Image {
    ids: Range<u32>,
    sight: ImageSight,
    width: usize,
    rows: Vec<f32>,
    /// By layer of the text model, the rows added after it; as many elements as `rows` each.
    summands: Vec<Vec<f32>>,
}

impl Image {
    /// An image from `rows`, `[n, width]` f32, row-major; at least one. They see each other in both directions.
    ///
    /// # Errors
    /// [`Error::BadImage`] if there are no rows, or no whole ones; [`Error::TooManyImages`] after
    /// some four million images in one process.
    pub fn new(width: usize, rows: Vec<f32>) -> Result<Arc<Image>, Error> {
        Image::seen_both_ways(ImageSight::All, width, rows)
    }

    /// An image whose rows see the parts of it that `sight` says, in a text model where they have positions like tokens.
    ///
    /// # Errors
    /// As [`new`](Image::new).
    pub fn with_sight(
        sight: ImageSight,
        width: usize,
        rows: Vec<f32>,
    ) -> Result<Arc<Image>, Error> {
        match sight {
            ImageSight::All | ImageSight::AllInWindows => Image::seen_both_ways(sight, width, rows),
            ImageSight::Before => {
                let n = n_rows(width, &rows)? as usize;
                Image::on_grid(width, rows, (1, n), Vec::new())
            }
        }
    }

    fn seen_both_ways(
        sight: ImageSight,
        width: usize,
        rows: Vec<f32>,
    ) -> Result<Arc<Image>, Error> {
        let n = n_rows(width, &rows)?;
        // One id stays unused: neighbouring ids are of one image.
        let take = |next: u32| {
            let end = next.checked_add(n)?.checked_add(1)?;
            (end <= FIRST_GRID_ID).then_some(end)
        };
        let first = NEXT_ID
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .map_err(|_| Error::TooManyImages)?;
        Ok(Arc::new(Image {
            ids: first..first + n,
            sight,
            width,
            rows,
            summands: Vec::new(),
        }))
    }

    /// An image of `height` by `width` rows in a text model that rotates heads by places in images. `rows` are
    /// as in [`new`](Image::new); summands are the rows added after each layer of the text model.
    ///
    /// # Errors
    /// As [`new`](Image::new), also if the number of rows differs from the grid's, or the summands have another number.
    pub fn on_grid(
        d_model: usize,
        rows: Vec<f32>,
        (height, width): (usize, usize),
        summands: Vec<Vec<f32>>,
    ) -> Result<Arc<Image>, Error> {
        let n = n_rows(d_model, &rows)?;
        let fits = summands.iter().all(|added| added.len() == rows.len());
        if !fits || height.checked_mul(width) != Some(n as usize) {
            return Err(Error::BadImage {
                reason: format!("{n} rows are not {height} times {width}, with as many summands"),
            });
        }
        let first = planes::add(height, width).ok_or(Error::TooManyImages)?;
        Ok(Arc::new(Image {
            ids: first..first + n,
            sight: ImageSight::Before,
            width: d_model,
            rows,
            summands,
        }))
    }

    /// Number of leading layers of the text model after which something is added to its rows.
    pub fn n_layers_added(&self) -> usize {
        self.summands.len()
    }

    /// Rows added to its rows after layer `layer` of the text model.
    pub fn summands(&self, layer: usize) -> Option<&[f32]> {
        self.summands.get(layer).map(Vec::as_slice)
    }

    /// The tokens of its rows, in order.
    pub fn ids(&self) -> Range<u32> {
        self.ids.clone()
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.ids.len()
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All rows, `[n, width]`.
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }
}

/// How many rows of `width` elements there are.
fn n_rows(width: usize, rows: &[f32]) -> Result<u32, Error> {
    if width == 0 || rows.is_empty() || !rows.len().is_multiple_of(width) {
        let n = rows.len();
        return Err(Error::BadImage {
            reason: format!("{n} numbers are no rows of {width}"),
        });
    }
    u32::try_from(rows.len() / width).map_err(|_| Error::TooManyImages)
}

/// Whether a token is a row of an image.
pub(crate) fn is_row(token: u32) -> bool {
    token >= FIRST_ID
}

/// Whether `b` is the next row of the image that `a` is a row of.
fn continues(a: u32, b: u32) -> bool {
    is_row(a) && a.checked_add(1) == Some(b)
}

/// Whether `b` is the next row of the image that `a` is a row of, and sees it and is seen by it.
fn is_joined(a: u32, b: u32) -> bool {
    continues(a, b) && !is_on_grid(a)
}

/// Whether a token is a row of an image on a grid.
pub(crate) fn is_on_grid(token: u32) -> bool {
    token >= FIRST_GRID_ID && token != PLACEHOLDER
}

/// The largest place up to `end` where `tokens` can be cut without cutting an image.
pub(crate) fn cut_before(tokens: &[u32], end: usize) -> usize {
    let inside =
        |at: &usize| *at > 0 && *at < tokens.len() && is_joined(tokens[at - 1], tokens[*at]);
    let mut at = end.min(tokens.len());
    while inside(&at) {
        at -= 1;
    }
    at
}

/// Where the run of one image's rows that begins `tokens` ends; 1 for any other token.
pub(crate) fn unit_len(tokens: &[u32]) -> usize {
    let pairs = tokens.windows(2);
    1 + pairs.take_while(|pair| continues(pair[0], pair[1])).count()
}

/// Refuses to cut a sequence of these tokens after `len` of them, if that cuts an image.
pub(crate) fn check_cut(tokens: &[u32], len: usize) -> Result<(), Error> {
    if cut_before(tokens, len) == len.min(tokens.len()) {
        return Ok(());
    }
    Err(Error::BadImage {
        reason: format!("a sequence cannot be cut within one, as after {len} tokens"),
    })
}

/// Some rows of an image in a pass.
#[derive(Clone, Debug)]
pub(crate) struct ImageRows {
    pub(crate) image: Arc<Image>,
    /// The first of the image's rows among them: earlier ones may be in the cache from an earlier pass.
    pub(crate) first: usize,
    /// Their rows in the pass.
    pub(crate) rows: Range<usize>,
}

impl ImageRows {
    /// Their elements, and their range in a pass's embeddings `[_, width]`. They are not scaled as embeddings are.
    pub(crate) fn elements(&self) -> (&[f32], Range<usize>) {
        let width = self.image.width;
        let first = self.first * width;
        let elements = &self.image.rows[first..first + self.rows.len() * width];
        (elements, self.rows.start * width..self.rows.end * width)
    }

    /// The parts of their image that they see.
    pub(crate) fn sight(&self) -> ImageSight {
        self.image.sight
    }

    /// The row added to a row of the pass after layer `layer`, if the row is one of these.
    pub(crate) fn summand(&self, layer: usize, row: usize) -> Option<&[f32]> {
        let at = self.first + row.checked_sub(self.rows.start)?;
        let width = self.image.width;
        let summands = self.image.summands(layer)?;
        summands.get(at * width..(at + 1) * width)
    }
}

/// The images among tokens that [`check`] has accepted and that cut none, with their rows; the first token is row
/// `first_row`.
pub(crate) fn placed<'a>(
    tokens: &'a [u32],
    images: &'a [Arc<Image>],
    first_row: usize,
) -> impl Iterator<Item = ImageRows> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < tokens.len() {
            let (row, token) = (at, tokens[at]);
            let Some(image) = find(images, token) else {
                at += 1;
                continue;
            };
            at += unit_len(&tokens[row..]);
            return Some(ImageRows {
                image: Arc::clone(image),
                first: (token - image.ids.start) as usize,
                rows: first_row + row..first_row + at,
            });
        }
        None
    })
}

/// Whether the node is the look-up whose rows images replace: the first. Later look-ups are tables of layers, which use their row for
/// [`in_vocabulary`].
pub(crate) fn is_replaced(graph: &Graph, node: &Node) -> bool {
    let mut nodes = graph.nodes.iter();
    let first = nodes.find(|node| matches!(node.op, Op::Embed(_)));
    first.is_some_and(|first| first.output == node.output)
}

/// The token to look up in tables of embeddings: an arbitrary token of the vocabulary for rows of images.
pub(crate) fn in_vocabulary(token: u32) -> u32 {
    if is_row(token) { 0 } else { token }
}

/// Replaces the [`PLACEHOLDER`]s by the ids of `images`, in order.
///
/// # Errors
/// [`Error::BadImage`] if there are not as many placeholders as rows of images.
pub fn place(tokens: &mut [u32], images: &[Arc<Image>]) -> Result<(), Error> {
    let n_places = tokens.iter().filter(|token| **token == PLACEHOLDER).count();
    let n_rows: usize = images.iter().map(|image| image.n_rows()).sum();
    if n_places != n_rows {
        let n = images.len();
        return Err(Error::BadImage {
            reason: format!(
                "the prompt has {n_places} placeholders, and {n} images have {n_rows} rows"
            ),
        });
    }
    let places = tokens.iter_mut().filter(|token| **token == PLACEHOLDER);
    for (place, id) in places.zip(images.iter().flat_map(|image| image.ids())) {
        *place = id;
    }
    Ok(())
}

/// Refuses appended tokens that a pass cannot compute: rows without their image, images that are cut
/// or longer than a pass, rows of another width than the model's. `last` is the sequence's last token.
pub(crate) fn check(
    tokens: &[u32],
    images: &[Arc<Image>],
    last: Option<u32>,
    (d_model, max_chunk): (usize, usize),
) -> Result<(), Error> {
    if planes::is_cut(last, tokens) {
        return Err(Error::BadImage {
            reason: "the sequence ends within one, and other tokens follow".into(),
        });
    }
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at];
        if !is_row(token) {
            at += 1;
            continue;
        }
        let bad = |reason: &str| {
            Err(Error::BadImage {
                reason: reason.into(),
            })
        };
        let Some(image) = find(images, token) else {
            return bad("a token stands for a row of an image that is not given with the batch");
        };
        let before = if at > 0 { Some(tokens[at - 1]) } else { last };
        if token != image.ids.start && !before.is_some_and(|before| continues(before, token)) {
            return bad("a row stands without those before it");
        }
        let left = (image.ids.end - token) as usize;
        let n = unit_len(&tokens[at..]);
        // One on a grid may go on with the next tokens.
        let may_end = is_on_grid(token) && at + n == tokens.len();
        if n != left && !may_end {
            return bad("the rows of an image are not computed together");
        }
        if image.width != d_model {
            let width = image.width;
            return bad(&format!(
                "its rows have {width} elements, the model's {d_model}"
            ));
        }
        if n > max_chunk && !is_on_grid(token) {
            return Err(Error::BadOption {
                option: "max-chunk",
                found: max_chunk.to_string(),
                expected: "at least the rows of an image, which are computed together",
            });
        }
        at += n;
    }
    Ok(())
}

/// The image that a token is a row of.
pub(crate) fn find(images: &[Arc<Image>], token: u32) -> Option<&Arc<Image>> {
    images.iter().find(|image| image.ids.contains(&token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(n: usize) -> Arc<Image> {
        Image::new(2, vec![0.0; 2 * n]).unwrap()
    }

    #[test]
    fn ids_are_given_out_once_and_never_touch() {
        let (a, b) = (image(3), image(2));
        assert_eq!(a.ids().len(), 3);
        assert!(b.ids().start > a.ids().end);
        let tokens: Vec<u32> = [7].into_iter().chain(a.ids()).chain(b.ids()).collect();
        let cuts: Vec<usize> = (0..=6).map(|end| cut_before(&tokens, end)).collect();
        assert_eq!(cuts, [0, 1, 1, 1, 4, 4, 6]);
        assert_eq!((unit_len(&tokens), unit_len(&tokens[1..])), (1, 3));
    }

    #[test]
    fn images_on_grids_are_cut_anywhere_and_go_on() {
        let image = Image::on_grid(2, vec![0.0; 12], (2, 3), Vec::new()).unwrap();
        let images = [Arc::clone(&image)];
        let ids: Vec<u32> = image.ids().collect();
        assert_eq!(cut_before(&ids, 4), 4);
        check_cut(&ids, 4).unwrap();
        let of = |tokens: &[u32], last| check(tokens, &images, last, (2, 4));
        // Longer than a pass, begun, gone on with.
        of(&ids, None).unwrap();
        of(&ids[..3], Some(7)).unwrap();
        of(&[ids[3], ids[4], ids[5], 7], Some(ids[2])).unwrap();
        of(&[7], Some(ids[5])).unwrap();
        of(&[ids[0], ids[1], 7], None).unwrap_err();
        of(&[ids[4]], Some(ids[2])).unwrap_err();
        of(&[7], Some(ids[2])).unwrap_err();
        Image::on_grid(2, vec![0.0; 12], (2, 2), Vec::new()).unwrap_err();
        Image::on_grid(2, vec![0.0; 12], (2, 3), vec![vec![0.0; 10]]).unwrap_err();
    }

    #[test]
    fn placeholders_are_filled_in_order() {
        let images = [image(2), image(1)];
        let mut tokens = [1, PLACEHOLDER, PLACEHOLDER, 2, PLACEHOLDER];
        place(&mut tokens, &images).unwrap();
        let (a, b) = (images[0].ids().start, images[1].ids().start);
        assert_eq!(tokens, [1, a, a + 1, 2, b]);
        let error = place(&mut [PLACEHOLDER; 2], &images).unwrap_err();
        assert!(error.to_string().contains("2 placeholders"), "{error}");
    }

    #[test]
    fn whatever_is_not_a_whole_image_is_refused() {
        let (a, b) = (image(3), image(3));
        let images = [Arc::clone(&a), Arc::clone(&b)];
        let sizes = (2, 8);
        let ids: Vec<u32> = a.ids().collect();
        let of = |tokens: &[u32], last| check(tokens, &images, last, sizes);
        of(&[1, ids[0], ids[1], ids[2], 5], None).unwrap();
        // The rest after a cached prefix.
        of(&[ids[2], 5], Some(ids[1])).unwrap();
        for (tokens, last) in [
            (&[ids[0], ids[1]][..], None),
            (&[ids[1], ids[2]], None),
            (&[ids[1], ids[2]], Some(b.ids().start)),
            (&[ids[0], ids[2]], None),
            (&[PLACEHOLDER], None),
        ] {
            of(tokens, last).unwrap_err();
        }
        check(&ids, &images[1..], None, sizes).unwrap_err();
        check(&ids, &images, None, (3, 8)).unwrap_err();
        check(&ids, &images, None, (2, 2)).unwrap_err();
        Image::new(2, vec![0.0; 3]).unwrap_err();
        Image::new(2, Vec::new()).unwrap_err();
    }
}
