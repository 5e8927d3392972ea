//! The dtypes of tensors, to and from float32.

use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DType {
    Float32,
    Float16,
    BFloat16,
    /// Of classes: whole numbers that float32 holds exactly.
    Int64,
}

impl DType {
    pub fn parse(name: &str) -> Result<DType> {
        match name {
            "float32" => Ok(DType::Float32),
            "float16" => Ok(DType::Float16),
            "bfloat16" => Ok(DType::BFloat16),
            "int64" => Ok(DType::Int64),
            _ => Err(Error::argument(format!(
                "dtype must be float32, float16, bfloat16 or int64, got {name:?}"
            ))),
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            DType::Int64 => 8,
            DType::Float32 => 4,
            DType::Float16 | DType::BFloat16 => 2,
        }
    }

    /// Elements as they lie in memory, rounded to the nearest.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            DType::Float32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            DType::Float16 => values.iter().flat_map(|v| to_half(*v).to_le_bytes()).collect(),
            DType::BFloat16 => values.iter().flat_map(|v| to_bfloat(*v).to_le_bytes()).collect(),
            DType::Int64 => values.iter().flat_map(|v| (*v as i64).to_le_bytes()).collect(),
        }
    }

    /// The elements in memory as float32, exactly.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let half = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
        match self {
            DType::Float32 => bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            DType::Float16 => bytes.chunks_exact(2).map(|b| from_half(half(b))).collect(),
            DType::BFloat16 => {
                bytes.chunks_exact(2).map(|b| f32::from_bits(u32::from(half(b)) << 16)).collect()
            }
            DType::Int64 => bytes
                .chunks_exact(8)
                .map(|b| {
                    i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32
                })
                .collect(),
        }
    }
}

pub(crate) fn to_bfloat(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

pub(crate) fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let size = value.abs();
    if value.is_nan() {
        return sign | 0x7e00;
    }
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // below 2^-14 a step is 2^-24: float32's own rounding, ties to even, does it
    let exponent = ((size.to_bits() >> 23) as i32 - 127).max(-14);
    let step = f32::from_bits(((exponent - 10 + 127) as u32) << 23);
    let steps = (size / step).round_ties();
    let half = (((exponent + 14) as u32) << 10) + steps as u32;
    sign | half as u16
}

trait RoundTies {
    fn round_ties(self) -> f32;
}

impl RoundTies for f32 {
    /// Nearest whole number, ties to even; of numbers below 2^23.
    fn round_ties(self) -> f32 {
        (self + 8_388_608.0) - 8_388_608.0
    }
}

fn from_half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_comes_back() {
        for bits in 0..=u16::MAX {
            let value = from_half(bits);
            assert!(value.is_nan() || to_half(value) == bits, "{bits:#x}");
        }
    }

    #[test]
    fn ties_go_to_even() {
        assert_eq!(to_bfloat(1.0 + 1.0 / 256.0), 0x3f80);
        assert_eq!(to_bfloat(1.0 + 3.0 / 256.0), 0x3f82);
        assert_eq!(to_half(1.0 + 1.0 / 2048.0), 0x3c00);
        assert_eq!(to_half(1.0 + 3.0 / 2048.0), 0x3c02);
        assert_eq!(to_half(65519.0), 0x7bff);
        assert_eq!(to_half(65520.0), 0x7c00);
        assert_eq!(to_half(2f32.powi(-25)), 0);
        assert_eq!(to_half(3.0 * 2f32.powi(-25)), 2);
    }

    #[test]
    fn bytes_come_back() {
        let values = [0.0, -1.5, 3.25, 1e-3];
        let back = DType::Float32.decode(&DType::Float32.encode(&values));
        assert_eq!(back, values);
        assert_eq!(
            DType::Int64.decode(&DType::Int64.encode(&[262143.0, -100.0])),
            [262143.0, -100.0]
        );
        assert_eq!(DType::BFloat16.decode(&DType::BFloat16.encode(&[1.5, -2.0])), [1.5, -2.0]);
    }
}
