//! Elements of a collection, each as a string or all in one listpack. Must not know the collection.

use redline_types::{Element, IntBuf, Pack};

use crate::{
    Corrupt,
    primitive::{Reader, Writer, write_string},
};

/// Appends an element as a string.
pub(crate) fn write_element(out: &mut Writer, element: Element<'_>) {
    write_string(out, element.bytes(&mut IntBuf::new()));
}

/// Appends elements as a listpack.
pub(crate) fn write_elements_packed<'a>(
    out: &mut Writer,
    elements: impl Iterator<Item = Element<'a>>,
) {
    write_pack(out, &pack_of(elements));
}

/// Appends a pack as a listpack.
pub(crate) fn write_pack(out: &mut Writer, pack: &Pack) {
    let mut blob = Vec::with_capacity(pack.listpack_bytes());
    pack.write_listpack(&mut blob);
    write_string(out, &blob);
}

/// Reads a listpack.
pub(crate) fn read_pack(reader: &mut Reader<'_>) -> Result<Pack, Corrupt> {
    Pack::from_listpack(&reader.string()?).ok_or(Corrupt("a listpack"))
}

/// Makes a pack of elements.
pub(crate) fn pack_of<'a>(elements: impl Iterator<Item = Element<'a>>) -> Pack {
    let mut pack = Pack::new();
    elements.for_each(|element| pack.push_back(element.canonical()));
    pack
}
