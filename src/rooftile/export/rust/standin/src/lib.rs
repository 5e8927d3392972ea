//! Stands in for NVIDIA's driver in tests: device memory is host memory, and the kernels it "runs"
//! are softmax and RMS norm, their arguments read at the offsets in the CUBIN's own table.
//!
//! The environment says what GPU and driver it plays: `STANDIN_CAPABILITY` (90), `STANDIN_DEVICES`
//! (1), `STANDIN_VERSION` (13040, CUDA 13.4), `STANDIN_LOAD` (an error code for every load), and
//! `STANDIN_WRONG` (any value: results are off).
#![allow(non_snake_case)]

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
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    _: c_uint,
    _: *mut c_int,
    _: *mut *mut c_void,
) -> c_int {
    let refused = setting("STANDIN_LOAD", 0);
    if refused != 0 {
        return refused;
    }
    let start: *const u8 = image.cast();
    let header = std::slice::from_raw_parts(start, 5);
    let image = if header == b"\x7fELF\x02" {
        let header = std::slice::from_raw_parts(start, 64);
        let Some(bytes) = elf::length(header) else { return INVALID_IMAGE };
        std::slice::from_raw_parts(start, bytes).to_vec()
    } else {
        let text = CStr::from_ptr(image.cast()).to_bytes();
        let code = accepted(text);
        if code != 0 {
            return code;
        }
        text.to_vec()
    };
    *module = Box::into_raw(Box::new(Module { image })).cast();
    0
}

/// As the driver's compiler: PTX of a newer version or for a later GPU is refused.
fn accepted(ptx: &[u8]) -> c_int {
    let text = String::from_utf8_lossy(ptx);
    let after = |word: &str| text.lines().find_map(|line| line.strip_prefix(word)).map(str::trim);
    let Some((major, minor)) = after(".version").and_then(|version| version.split_once('.')) else {
        return INVALID_IMAGE;
    };
    let version = major.parse::<c_int>().unwrap_or(99) * 10 + minor.parse::<c_int>().unwrap_or(9);
    let driver = setting("STANDIN_VERSION", 13040);
    let (cuda, point) = (driver / 1000, driver % 1000 / 10);
    let newest = if cuda >= 13 {
        90 + point
    } else if point >= 6 {
        79 + point
    } else {
        80 + point
    };
    if version > newest {
        return UNSUPPORTED_PTX;
    }
    let target = after(".target").unwrap_or("").trim_start_matches("sm_");
    let own: c_int = target.trim_end_matches('a').parse().unwrap_or(999);
    let fits = own == capability() || (own < capability() && !target.ends_with('a'));
    if fits {
        0
    } else {
        NO_BINARY
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuModuleUnload(module: Handle) -> c_int {
    drop(Box::from_raw(module.cast::<Module>()));
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> c_int {
    let image = &(*module.cast::<Module>()).image;
    let name = CStr::from_ptr(name).to_string_lossy().into_owned();
    let (parameters, threads) = if image.starts_with(b"\x7fELF") {
        let Ok(cubin) = elf::read(image, &name) else { return NOT_FOUND };
        let later = cubin.capability / 10 == capability() as u32 / 10
            && cubin.capability <= capability() as u32;
        if !later {
            return NO_BINARY;
        }
        (cubin.parameters, cubin.threads)
    } else {
        let Some(parameters) = ptx_parameters(&String::from_utf8_lossy(image), &name) else {
            return NOT_FOUND;
        };
        (parameters, None)
    };
    *function =
        Box::into_raw(Box::new(Function { name, parameters, threads, shared: 48 * 1024 })).cast();
    0
}

/// Offsets and sizes of an entry's parameters, of plain numbers alone.
fn ptx_parameters(text: &str, name: &str) -> Option<Vec<(usize, usize)>> {
    let list = text.split_once(&format!(".entry {name}("))?.1.split_once(')')?.0;
    let mut end = 0usize;
    let sizes = list.split(',').map(|line| if line.contains("64") { 8 } else { 4 });
    Some(
        sizes
            .map(|size| {
                let at = (end + size - 1) / size * size;
                end = at + size;
                (at, size)
            })
            .collect(),
    )
}

#[no_mangle]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, _: c_int, _: Handle) -> c_int {
    *value = 0;
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuFuncSetAttribute(function: Handle, which: c_int, value: c_int) -> c_int {
    if which == 8 {
        (*function.cast::<Function>()).shared = value;
    }
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuFuncGetParamInfo(
    function: Handle,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> c_int {
    let Some(place) = (&(*function.cast::<Function>()).parameters).get(index) else {
        return INVALID_VALUE;
    };
    (*offset, *size) = *place;
    0
}

#[no_mangle]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
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
pub use kernels::cuLaunchKernel;
