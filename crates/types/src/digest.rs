//! The contents of a value, as a digest is told them: equal contents are told alike, whatever their encoding and the order
//! in which a table is walked. Must not know how a digest is computed.

use crate::{Element, IntBuf};

/// A digest that is told contents: see [`DataType::digest`](crate::DataType::digest). A fresh one has been told nothing.
pub trait Digest: Default {
    /// Takes the next bytes of what has an order.
    fn mix(&mut self, bytes: &[u8]);

    /// Takes bytes of what has no order.
    fn combine(&mut self, bytes: &[u8]);

    /// Takes the next number, whose text is the digest's affair.
    fn mix_f64(&mut self, number: f64);

    /// Takes a part of what has no order, of which there is a digest.
    fn combine_part(&mut self, part: &Self);

    /// The same as [`Digest::mix`] of an element's bytes.
    fn mix_element(&mut self, element: Element<'_>) {
        self.mix(element.bytes(&mut IntBuf::new()));
    }

    /// The same as [`Digest::combine`] of an element's bytes.
    fn combine_element(&mut self, element: Element<'_>) {
        self.combine(element.bytes(&mut IntBuf::new()));
    }
}
