//! Loading, as the driver does it: what does not fit the GPU or the driver is refused.

use super::*;

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
