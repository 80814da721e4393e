//! Views of views.

use crate::core::value::MemoryView;

/// Elements of a view, at most: bytes of the largest memory.
const MOST_ELEMENTS: i64 = 1 << 20;

/// So many elements in a row of the last dimension.
pub(super) fn row(view: &MemoryView, indices: &[i64], n: usize) -> Result<MemoryView, String> {
    let offset = view.position(indices)?;
    let (Some(&last), Some(&size)) = (indices.last(), view.sizes.last()) else {
        return Err("a vector of a memref without dimensions".to_owned());
    };
    if last.saturating_add(n as i64) > size {
        return Err(format!(
            "{n} elements from index {last} of a dimension of {size}"
        ));
    }
    let stride = view.strides.last().copied().unwrap_or(1);
    Ok(MemoryView {
        base: view.base,
        offset,
        sizes: vec![n as i64],
        strides: vec![stride],
        number: view.number,
    })
}

pub(super) fn sub_view(
    of: &MemoryView,
    offsets: &[i64],
    (sizes, strides): (Vec<i64>, &[i64]),
    is_cast: bool,
) -> Result<MemoryView, String> {
    if sizes.iter().any(|&size| size < 0) || sizes.len() != strides.len() {
        return Err("a view of negative sizes".to_owned());
    }
    let n = sizes
        .iter()
        .fold(1i64, |product, &size| product.saturating_mul(size));
    if n > MOST_ELEMENTS {
        return Err(format!(
            "a view of {n} elements, more than any memory here has"
        ));
    }
    if is_cast {
        let [offset] = offsets else {
            return Err("a cast has one offset".to_owned());
        };
        return Ok(MemoryView {
            base: of.base,
            offset: *offset,
            sizes,
            strides: strides.to_vec(),
            number: of.number,
        });
    }
    if [offsets.len(), sizes.len()]
        .iter()
        .any(|&n| n != of.sizes.len())
    {
        return Err("a view of another number of dimensions".to_owned());
    }
    let mut view = MemoryView {
        sizes,
        ..of.clone()
    };
    for d in 0..of.sizes.len() {
        let last =
            offsets[d].saturating_add(view.sizes[d].saturating_sub(1).saturating_mul(strides[d]));
        if offsets[d] < 0 || last >= of.sizes[d].max(1) || last < 0 {
            return Err(format!(
                "a view of elements to {last} of a dimension of {}",
                of.sizes[d]
            ));
        }
        view.offset = view
            .offset
            .saturating_add(offsets[d].saturating_mul(of.strides[d]));
        view.strides[d] = of.strides[d].saturating_mul(strides[d]);
    }
    Ok(view)
}
