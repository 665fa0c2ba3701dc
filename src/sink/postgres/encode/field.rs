//! A field of a tuple: its length, then its bytes.

use super::fault::{Fault, sqlstate};

/// The most bytes that the server takes for one value (`MaxAllocSize`).
const LONGEST: usize = 0x3fff_ffff;

/// NULL.
#[inline]
pub(super) fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xff; 4]);
}

/// A field of one byte.
#[inline]
pub(super) fn one(value: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0, 0, 1, value]);
}

/// A field of two bytes.
#[inline]
pub(super) fn two(value: [u8; 2], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0, 0, 2, value[0], value[1]]);
}

/// A field of four bytes.
#[inline]
pub(super) fn four(value: [u8; 4], out: &mut Vec<u8>) {
    let mut field = [0, 0, 0, 4, 0, 0, 0, 0];
    field[4..].copy_from_slice(&value);
    out.extend_from_slice(&field);
}

/// A field of eight bytes.
#[inline]
pub(super) fn eight(value: [u8; 8], out: &mut Vec<u8>) {
    let mut field = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    field[4..].copy_from_slice(&value);
    out.extend_from_slice(&field);
}

/// A field of bytes that are at hand.
#[inline]
pub(super) fn slice(value: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let len = length(value.len())?;
    out.reserve(4 + value.len());
    out.extend_from_slice(&len);
    out.extend_from_slice(value);
    Ok(())
}

/// A field whose bytes `write` appends.
#[inline]
pub(super) fn with<R>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let result = write(out)?;
    close(start, out)?;
    Ok(result)
}

/// Sets the length of the field that began at `start` with four bytes kept for it.
#[inline]
pub(super) fn close(start: usize, out: &mut [u8]) -> Result<(), Fault> {
    let len = length(out.len() - start - 4)?;
    out[start..start + 4].copy_from_slice(&len);
    Ok(())
}

/// The field that begins at `start`, with its length.
pub(super) fn at(start: usize, bytes: &[u8]) -> &[u8] {
    let rest = &bytes[start..];
    let len = i32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
    &rest[..4 + usize::try_from(len).unwrap_or(0)]
}

#[inline]
fn length(len: usize) -> Result<[u8; 4], Fault> {
    if len > LONGEST {
        let reason = format!("the value has {len} bytes, and the server takes {LONGEST}");
        return Err(Fault::new(sqlstate::LIMIT_EXCEEDED, reason));
    }
    Ok((len as u32).to_be_bytes())
}
