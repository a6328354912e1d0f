//! The text of a double on the wire: the one place that decides it. Knows neither RESP2 nor RESP3.

/// Appends the text of `value`.
pub fn format_double(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    }
    if value == 0.0 {
        return out.extend_from_slice(if value.is_sign_negative() {
            b"-0"
        } else {
            b"0"
        });
    }
    if value.abs() <= (i64::MAX / 2) as f64 && value as i64 as f64 == value {
        return out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    }
    out.extend_from_slice(zmij::Buffer::new().format(value).as_bytes());
}
