//! What the kernels compute, from their arguments as the hardware finds them.

use super::*;

/// Arguments packed as the driver packs them: each at its offset, with its size.
struct Arguments {
    buffer: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Arguments {
    unsafe fn pack(places: &[(usize, usize)], given: *mut *mut c_void) -> Arguments {
        let end = places.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
        let mut buffer = vec![0u8; end];
        for (i, (offset, size)) in places.iter().enumerate() {
            let from = *given.add(i) as *const u8;
            std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr().add(*offset), *size);
        }
        Arguments { buffer, places: places.to_vec() }
    }

    fn bits(&self, i: usize) -> u64 {
        let (offset, size) = self.places[i];
        let mut bytes = [0u8; 8];
        bytes[..size].copy_from_slice(&self.buffer[offset..offset + size]);
        u64::from_le_bytes(bytes)
    }

    fn float(&self, i: usize) -> f64 {
        f64::from(f32::from_bits(self.bits(i) as u32))
    }
}

#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    threads: c_uint,
    _: c_uint,
    _: c_uint,
    shared: c_uint,
    _: Handle,
    given: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    let function = &*function.cast::<Function>();
    let wanted = function.threads.is_some_and(|own| own != threads);
    if x * y * z == 0 || threads % 32 != 0 || wanted || shared as c_int > function.shared {
        return INVALID_VALUE;
    }
    let arguments = Arguments::pack(&function.parameters, given);
    let last = function.parameters.len() - 1;
    if arguments.bits(last) != 0 || arguments.bits(last - 1) != 0 {
        return ILLEGAL_ADDRESS; // neither kernel has scratch
    }
    let done = if function.name.starts_with("softmax_fwd_") {
        softmax(&function.name, &arguments, x)
    } else if function.name.starts_with("rms_norm_fwd_") {
        rms_norm(&function.name, &arguments, x)
    } else if function.name.starts_with("scale_") {
        scale(&arguments)
    } else {
        None
    };
    if done.is_some() {
        0
    } else {
        ILLEGAL_ADDRESS
    }
}

fn dtype(name: &str) -> DType {
    if name.contains("_bf16_") {
        DType::BFloat16
    } else if name.contains("_fp16_") {
        DType::Float16
    } else {
        DType::Float32
    }
}

/// Elements at an address, which must be allocated.
unsafe fn read(address: u64, start: u64, count: u64, dtype: DType) -> Option<Vec<f32>> {
    let from = address + start * dtype.bytes() as u64;
    let bytes = count as usize * dtype.bytes();
    inside(from, bytes)?;
    Some(dtype.decode(std::slice::from_raw_parts(from as *const u8, bytes)))
}

unsafe fn write(address: u64, start: u64, values: &[f64], dtype: DType) -> Option<()> {
    let off = if std::env::var("STANDIN_WRONG").is_ok() { 1.5 } else { 1.0 };
    let data = dtype.encode(&values.iter().map(|v| (v * off) as f32).collect::<Vec<_>>());
    let to = address + start * dtype.bytes() as u64;
    inside(to, data.len())?;
    std::ptr::copy_nonoverlapping(data.as_ptr(), to as *mut u8, data.len());
    Some(())
}

fn inside(address: u64, bytes: usize) -> Option<()> {
    let memory = MEMORY.lock().ok()?;
    let (start, block) = memory.range(..=address).next_back()?;
    let end = start + (block.len() as u64 - 2) * 8;
    (address + bytes as u64 <= end).then_some(())
}

/// x, y, rows, cols, then for x and y the strides of rows and of outer rows.
unsafe fn softmax(name: &str, a: &Arguments, blocks: u32) -> Option<()> {
    let (dtype, rows, cols) = (dtype(name), a.bits(2), a.bits(3));
    for row in 0..rows.min(u64::from(blocks)) {
        let x = read(a.bits(0), row * a.bits(4), cols, dtype)?;
        let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let terms: Vec<f64> = x.iter().map(|v| f64::from(v - most).exp()).collect();
        let sum: f64 = terms.iter().sum();
        let y: Vec<f64> = terms.iter().map(|term| term / sum).collect();
        write(a.bits(1), row * a.bits(6), &y, dtype)?;
    }
    Some(())
}

/// x, y, n, factor; in bfloat16.
unsafe fn scale(a: &Arguments) -> Option<()> {
    let x = read(a.bits(0), 0, a.bits(2), DType::BFloat16)?;
    let y: Vec<f64> = x.iter().map(|v| f64::from(*v) * a.float(3)).collect();
    write(a.bits(1), 0, &y, DType::BFloat16)
}

/// x, residual, weight, sum, y, rows, cols, two strides of x, two of the residual, eps, offset.
unsafe fn rms_norm(name: &str, a: &Arguments, blocks: u32) -> Option<()> {
    let (dtype, rows, cols) = (dtype(name), a.bits(5), a.bits(6));
    let weight = read(a.bits(2), 0, cols, dtype)?;
    for row in 0..rows.min(u64::from(blocks)) {
        let x = read(a.bits(0), row * a.bits(7), cols, dtype)?;
        let square = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / cols as f64;
        let scale = 1.0 / (square + a.float(11)).sqrt();
        let pairs = x.iter().zip(&weight);
        let y: Vec<f64> =
            pairs.map(|(v, w)| f64::from(*v) * scale * (f64::from(*w) + a.float(12))).collect();
        write(a.bits(4), row * cols, &y, dtype)?;
    }
    Some(())
}
