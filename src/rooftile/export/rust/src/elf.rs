//! Reads from a CUBIN the parameters of its kernel, without a driver.

use crate::error::{Error, Result};

/// What a CUBIN says of its kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// Compute capability times ten.
    pub capability: u32,
    /// Offset and size of each parameter.
    pub parameters: Vec<(usize, usize)>,
    /// Threads of a block in x, where the binary demands them.
    pub threads: Option<u32>,
}

const CUDA: u16 = 190;
const PARAMETER: u8 = 0x17;
const THREADS: u8 = 0x10;

/// Reads a CUBIN's entry of that name.
pub fn read(bytes: &[u8], entry: &str) -> Result<Cubin> {
    if bytes.get(..5) != Some(b"\x7fELF\x02") || half(bytes, 18) != Some(CUDA) {
        return Err(Error::bundle("it is no CUBIN"));
    }
    let table = section(bytes, &format!(".nv.info.{entry}"))?;
    let abi = bytes[8];
    let flags = word(bytes, 48).ok_or_else(cut)?;
    let capability = if abi >= 8 { (flags >> 8) & 0xff } else { flags & 0xff };
    let mut parameters = Vec::new();
    let mut threads = None;
    let mut at = 0;
    while at < table.len() {
        let (form, attribute) = (table[at], *table.get(at + 1).ok_or_else(cut)?);
        let length = half(table, at + 2).ok_or_else(cut)? as usize;
        if form == 4 && attribute == PARAMETER {
            let ordinal = half(table, at + 8).ok_or_else(cut)?;
            let offset = half(table, at + 10).ok_or_else(cut)? as usize;
            let bits = word(table, at + 12).ok_or_else(cut)?;
            parameters.push((ordinal, offset, (bits >> 18) as usize));
        } else if form == 4 && attribute == THREADS {
            threads = word(table, at + 4);
        }
        at += 4 + if form == 4 { length } else { 0 };
    }
    parameters.sort_unstable();
    let parameters = parameters.into_iter().map(|(_, offset, size)| (offset, size)).collect();
    Ok(Cubin { capability, parameters, threads })
}

fn cut() -> Error {
    Error::bundle("the CUBIN is cut short")
}

/// Bytes of the whole file, by its own header; what comes behind is not part of it.
pub fn length(header: &[u8]) -> Option<usize> {
    Some(long(header, 40)? as usize + half(header, 60)? as usize * half(header, 58)? as usize)
}

fn section<'a>(bytes: &'a [u8], wanted: &str) -> Result<&'a [u8]> {
    let table = long(bytes, 40).ok_or_else(cut)? as usize;
    let size = half(bytes, 58).ok_or_else(cut)? as usize;
    let count = half(bytes, 60).ok_or_else(cut)? as usize;
    let names_at = half(bytes, 62).ok_or_else(cut)? as usize;
    let header = |i: usize| -> Option<(usize, usize, usize)> {
        let at = table.checked_add(i * size)?;
        let name = word(bytes, at)? as usize;
        Some((name, long(bytes, at + 24)? as usize, long(bytes, at + 32)? as usize))
    };
    let (_, names, _) = header(names_at).ok_or_else(cut)?;
    for i in 0..count {
        let (name, offset, length) = header(i).ok_or_else(cut)?;
        let name = bytes.get(names.saturating_add(name)..).ok_or_else(cut)?;
        if name.strip_prefix(wanted.as_bytes()).and_then(|rest| rest.first()) == Some(&0) {
            let end = offset.checked_add(length).ok_or_else(cut)?;
            return bytes.get(offset..end).ok_or_else(cut);
        }
    }
    let entry = wanted.trim_start_matches(".nv.info.");
    Err(Error::bundle(format!("the CUBIN has no kernel {entry}")))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cubin_is_refused() {
        assert_eq!(read(b"", "k").unwrap_err().message, "it is no CUBIN");
        let mut header = vec![0u8; 64];
        header[..5].copy_from_slice(b"\x7fELF\x02");
        assert_eq!(read(&header, "k").unwrap_err().message, "it is no CUBIN");
        header[18] = 190;
        assert_eq!(read(&header[..40], "k").unwrap_err().message, "the CUBIN is cut short");
        header[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        header[60] = 2;
        header[58] = 64;
        assert_eq!(read(&header, "k").unwrap_err().message, "the CUBIN is cut short");
    }
}
