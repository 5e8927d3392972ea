//! Stands in for NVIDIA's driver in tests: device memory is host memory, and the kernels it "runs"
//! are softmax, RMS norm and the example's `scale`, their arguments read at the offsets in the
//! CUBIN's own table.
//!
//! The environment says what GPU and driver it plays: `STANDIN_CAPABILITY` (90), `STANDIN_DEVICES`
//! (1), `STANDIN_VERSION` (13040, CUDA 13.4), `STANDIN_LOAD` (an error code for every load), and
//! `STANDIN_WRONG` (any value: results are off).
#![allow(non_snake_case, clippy::missing_safety_doc)]

#[path = "../../src/elf.rs"]
#[allow(dead_code)]
mod elf;
#[path = "../../src/error.rs"]
#[allow(dead_code)]
mod error;
#[path = "../../src/float.rs"]
#[allow(dead_code)]
mod float;

use float::DType;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::sync::Mutex;

type Handle = *mut c_void;

const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const MEMORY_BYTES: usize = 1 << 30;
const INVALID_IMAGE: c_int = 200;
const NO_BINARY: c_int = 209;
const UNSUPPORTED_PTX: c_int = 222;
const NOT_FOUND: c_int = 500;
const ILLEGAL_ADDRESS: c_int = 700;
const SHARED_BYTES: c_int = 232_448;

/// Address to content of what was allocated.
static MEMORY: Mutex<BTreeMap<u64, Vec<u64>>> = Mutex::new(BTreeMap::new());

struct Module {
    image: Vec<u8>,
}

struct Function {
    name: String,
    parameters: Vec<(usize, usize)>,
    threads: Option<u32>,
    shared: c_int,
}

fn setting(name: &str, default: c_int) -> c_int {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn capability() -> c_int {
    setting("STANDIN_CAPABILITY", 90)
}

#[no_mangle]
pub extern "C" fn cuInit(_: c_uint) -> c_int {
    if setting("STANDIN_DEVICES", 1) == 0 {
        100
    } else {
        0
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    *version = setting("STANDIN_VERSION", 13040);
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    let text: &'static [u8] = match code {
        INVALID_VALUE => b"CUDA_ERROR_INVALID_VALUE\0",
        100 => b"CUDA_ERROR_NO_DEVICE\0",
        INVALID_IMAGE => b"CUDA_ERROR_INVALID_IMAGE\0",
        NO_BINARY => b"CUDA_ERROR_NO_BINARY_FOR_GPU\0",
        UNSUPPORTED_PTX => b"CUDA_ERROR_UNSUPPORTED_PTX_VERSION\0",
        NOT_FOUND => b"CUDA_ERROR_NOT_FOUND\0",
        ILLEGAL_ADDRESS => b"CUDA_ERROR_ILLEGAL_ADDRESS\0",
        _ => b"CUDA_ERROR\0",
    };
    *name = text.as_ptr().cast();
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuGetErrorString(_: c_int, text: *mut *const c_char) -> c_int {
    *text = b"from the stand-in\0".as_ptr().cast();
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    *count = setting("STANDIN_DEVICES", 1);
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, index: c_int) -> c_int {
    *device = index;
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, _: c_int) -> c_int {
    let text = b"Stand-in\0";
    std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len().min(bytes as usize));
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, which: c_int, _: c_int) -> c_int {
    *value = match which {
        75 => capability() / 10,
        76 => capability() % 10,
        97 => SHARED_BYTES,
        _ => return INVALID_VALUE,
    };
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, _: c_int) -> c_int {
    *context = 1 as Handle;
    0
}

#[no_mangle]
pub extern "C" fn cuCtxSetCurrent(_: Handle) -> c_int {
    0
}

#[no_mangle]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    if bytes > MEMORY_BYTES {
        return OUT_OF_MEMORY;
    }
    let (Ok(mut memory), words) = (MEMORY.lock(), bytes / 8 + 3) else { return INVALID_VALUE };
    let block = vec![0u64; words];
    let at = (block.as_ptr() as u64 + 15) / 16 * 16;
    memory.insert(at, block);
    *address = at;
    0
}

#[no_mangle]
pub extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    let Ok(mut memory) = MEMORY.lock() else { return INVALID_VALUE };
    if memory.remove(&address).is_some() {
        0
    } else {
        INVALID_VALUE
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int {
    std::ptr::copy_nonoverlapping(from.cast::<u8>(), to as *mut u8, bytes);
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_int {
    std::ptr::copy_nonoverlapping(from as *const u8, to.cast::<u8>(), bytes);
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuEventCreate(event: *mut Handle, _: c_uint) -> c_int {
    *event = 1 as Handle;
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _: c_uint) -> c_int {
    *stream = 1 as Handle;
    0
}

#[no_mangle]
pub extern "C" fn cuStreamDestroy_v2(_: Handle) -> c_int {
    0
}

#[no_mangle]
pub extern "C" fn cuEventRecord(_: Handle, _: Handle) -> c_int {
    0
}

#[no_mangle]
pub extern "C" fn cuEventSynchronize(_: Handle) -> c_int {
    0
}

#[no_mangle]
pub extern "C" fn cuEventDestroy_v2(_: Handle) -> c_int {
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, _: Handle, _: Handle) -> c_int {
    *milliseconds = 1.0;
    0
}

mod kernels;
mod modules;

pub use kernels::*;
pub use modules::*;
