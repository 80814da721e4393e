//! Views: parts of a tensor, and their names.

use super::module::{ExportResult, Module};
use super::spelling::{identifier, named, renamed, size};
use crate::axes::{Axes, Mapping};
use crate::program::{Place, TensorSharding, View};

/// Extents of a command along its axes, by its own names; axes of one index are left out.
pub(super) type Extents = Vec<(String, u64)>;

pub(super) fn extent(extents: &Extents, axis: &str) -> u64 {
    let found = extents.iter().find(|(name, _)| name == axis);
    found.map_or(1, |(_, n)| *n)
}

/// A part that is cut out of a mapping: the positions of a factor.
#[derive(Clone, Debug)]
struct ViewTile {
    index: Mapping,
    len: u64,
    start: u64,
    size: u64,
}

/// A view without the names that a command gives its axes.
struct CutView {
    /// Mappings of element, slice and cluster, cut factors as `@number`.
    levels: Vec<Mapping>,
    tiles: Vec<ViewTile>,
    /// The calls that cut.
    text: String,
}

/// A view as an expression, with its content by place.
pub(super) struct ViewExpression {
    pub text: String,
    pub cluster: String,
    pub slice: String,
    pub element: String,
}

/// Positions of a factor for one index of `axis`, where that is its outermost one.
fn unit(mapping: &Mapping, axis: &str, axes: &Axes) -> Option<u64> {
    match mapping {
        Mapping::Symbol(name) if name == axis => Some(1),
        Mapping::Resize(inner, _) | Mapping::Padding(inner, _) => unit(inner, axis, axes),
        Mapping::Pair(outer, inner) => {
            let is_outer = unit(outer, axis, axes)? == 1;
            is_outer.then(|| inner.size(axes).ok())?
        }
        _ => None,
    }
}

/// Cuts `len` indices from `start` on out of the factor that counts them. The factor becomes `@number`.
fn cut(
    mapping: &Mapping,
    (axis, start, len): (&str, u64, u64),
    number: usize,
    axes: &Axes,
) -> Option<(Mapping, ViewTile)> {
    let again = |inner: &Mapping| cut(inner, (axis, start, len), number, axes);
    let marked = |len: u64, start: u64| {
        let tile = ViewTile {
            index: mapping.clone(),
            len,
            start,
            size: mapping.size(axes).ok()?,
        };
        Some((Mapping::Symbol(format!("@{number}")), tile))
    };
    match mapping {
        Mapping::Symbol(name) if name == axis => marked(len, start),
        Mapping::Resize(inner, _) if unit(inner, axis, axes).is_some() => marked(len, start),
        Mapping::Stride(inner, n) => {
            let unit = unit(inner, axis, axes)?;
            let (at, len) = (start * unit, (len * unit).div_ceil(*n));
            at.is_multiple_of(*n).then(|| marked(len, at / n))?
        }
        Mapping::Modulo(inner, n) => {
            let Mapping::Stride(whole, step) = &**inner else {
                return None;
            };
            let unit = unit(whole, axis, axes)?;
            let (at, len) = (start * unit, (len * unit).div_ceil(*step));
            let fits = at.is_multiple_of(*step) && at / step + len <= *n;
            fits.then(|| marked(len, at / step))?
        }
        Mapping::Padding(inner, n) => {
            let (inner, tile) = again(inner)?;
            Some((Mapping::Padding(Box::new(inner), *n), tile))
        }
        Mapping::Pair(outer, inner) => {
            if let Some((left, tile)) = again(outer) {
                return Some((Mapping::Pair(Box::new(left), inner.clone()), tile));
            }
            let (right, tile) = again(inner)?;
            Some((Mapping::Pair(outer.clone(), Box::new(right)), tile))
        }
        Mapping::Copies(_) | Mapping::Symbol(_) | Mapping::Resize(..) => None,
    }
}

/// The levels of a memory that a tile may cut, the innermost first, under the vendor's names.
const LEVELS: [&str; 3] = ["tile", "slice_tile", "cluster_tile"];

impl Module<'_> {
    /// Extents of a tensor's axes under a command's names.
    pub(super) fn extents(&self, view: &View) -> ExportResult<Extents> {
        let shape = self.program.tensors[view.tensor].shape(&self.program.axes);
        let shape = shape.map_err(|error| error.to_string())?;
        let name = |axis: usize| self.program.axes.get(axis).0;
        let own = shape.into_iter().map(|(axis, n)| {
            let to = view.renames.iter().find(|(from, _)| from == name(axis));
            (to.map_or(name(axis), |(_, to)| to).to_owned(), n)
        });
        Ok(own.collect())
    }

    /// The part of `view` that a command of these extents takes. With `names`, clusters and slices take those names.
    pub(super) fn view(
        &self,
        view: &View,
        extents: &Extents,
        names: Option<&TensorSharding>,
        mutable: bool,
    ) -> ExportResult<ViewExpression> {
        let tensor = &self.program.tensors[view.tensor];
        let is_hbm = matches!(tensor.place, Place::Hbm { .. });
        let CutView {
            levels,
            tiles,
            text,
        } = self.cut_view(view, extents, mutable)?;
        let name = |level: usize| match levels.get(level) {
            Some(mapping) => self.marked(mapping, &tiles, &[], mutable),
            None => String::new(),
        };
        let mut viewed = ViewExpression {
            element: name(0),
            slice: name(1),
            cluster: name(2),
            text,
        };
        let element = self.marked(&levels[0], &tiles, &view.renames, mutable);
        let spread = names.map_or((viewed.cluster.clone(), viewed.slice.clone()), |names| {
            (names.cluster.to_string(), names.slice.to_string())
        });
        let is_renamed = element != viewed.element || spread != (viewed.cluster, viewed.slice);
        (viewed.cluster, viewed.slice) = spread;
        viewed.element = element;
        if is_renamed {
            let types = match is_hbm {
                true => format!("Chip, {}", viewed.element),
                false => format!(
                    "Chip, {}, {}, {}",
                    viewed.cluster, viewed.slice, viewed.element
                ),
            };
            // SAFETY: in the printed code, names change and positions do not.
            viewed.text = format!("unsafe {{ {}.reshape::<{types}>() }}", viewed.text);
        }
        Ok(viewed)
    }

    /// Cuts the part of a tensor that a view of these extents takes, axis by axis.
    fn cut_view(&self, view: &View, extents: &Extents, mutable: bool) -> ExportResult<CutView> {
        let tensor = &self.program.tensors[view.tensor];
        let mut levels = vec![tensor.layout().clone()];
        levels.extend(tensor.spread().map(|s| s.slice.clone()));
        levels.extend(tensor.spread().map(|s| s.cluster.clone()));
        let call = if mutable { ".view_mut()" } else { ".view()" };
        let mut text = format!("{}{call}", identifier(&tensor.name));
        let mut tiles: Vec<ViewTile> = Vec::new();
        for (axis, full) in self.extents(&View::of(view.tensor))? {
            let to = view.renames.iter().find(|(from, _)| *from == axis);
            let len = extent(extents, to.map_or(axis.as_str(), |(_, to)| to)).min(full);
            let offset = view.offsets.iter().find(|(name, _)| *name == axis);
            let start = offset.map_or(0, |(_, n)| *n);
            if len == full && start == 0 {
                continue;
            }
            let part = (axis.as_str(), start, len);
            let found = levels.iter().enumerate().find_map(|(level, mapping)| {
                let cut = cut(mapping, part, tiles.len(), &self.program.axes)?;
                Some((level, cut))
            });
            let (level, (left, tile)) = found.ok_or_else(|| {
                format!(
                    "indices {start} to {} of `{axis}` of `{}` lie in several factors",
                    start + len,
                    tensor.name
                )
            })?;
            if tile.len == tile.size && tile.start == 0 {
                continue;
            }
            levels[level] = left;
            tiles.push(tile.clone());
            let element = self.marked(&levels[level], &tiles, &[], mutable);
            text.push_str(&format!(
                "\n        .{}::<{}, {}, {element}>({})",
                LEVELS[level], tile.index, tile.len, tile.start
            ));
        }
        Ok(CutView {
            levels,
            tiles,
            text,
        })
    }

    /// A mapping with its cut factors written out.
    fn marked(
        &self,
        mapping: &Mapping,
        tiles: &[ViewTile],
        renames: &[(String, String)],
        mutable: bool,
    ) -> String {
        let mut text = renamed(mapping, renames).to_string();
        let fill = if mutable { "#{!}" } else { "#" };
        for (number, tile) in tiles.iter().enumerate().rev() {
            let index = renamed(&tile.index, renames).to_string();
            let bare = index
                .strip_prefix("m![")
                .and_then(|text| text.strip_suffix(']'));
            let index = match (&tile.index, bare.unwrap_or(&index)) {
                (Mapping::Pair(..), list) => format!("[{list}]"),
                (_, one) => one.to_owned(),
            };
            let part = format!("{index} = {} {fill} {}", tile.len, tile.size);
            text = text.replace(&format!("@{number}"), &part);
        }
        text
    }

    /// For two spreads that are to meet, the one that names more at each level.
    pub(super) fn meeting(
        &self,
        a: &TensorSharding,
        b: &TensorSharding,
    ) -> ExportResult<TensorSharding> {
        let axes = &self.program.axes;
        let more = |a: &Mapping, b: &Mapping| -> ExportResult<Mapping> {
            if size(a, axes)? != size(b, axes)? {
                return Err(format!("{a} and {b} are to meet, and differ in size"));
            }
            Ok(if named(b).len() > named(a).len() {
                b.clone()
            } else {
                a.clone()
            })
        };
        Ok(TensorSharding {
            cluster: more(&a.cluster, &b.cluster)?,
            slice: more(&a.slice, &b.slice)?,
        })
    }
}
