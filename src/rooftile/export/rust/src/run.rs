//! `run`: launches a kernel on random numbers, compares with a reference, and times it.

use crate::clock;
use crate::reference::{reference, Tensors};
use crate::shapes;
use rooftile_host::error::{Error, Kind, Result};
use rooftile_host::float::DType;
use rooftile_host::manifest::{Golden, KernelSpec, Tensor};
use rooftile_host::{Buffer, Bundle, Call, Gpu, Kernel, Source, Stream};
use std::collections::BTreeMap;
use std::time::Instant;

const MOST_ELEMENTS: usize = 1 << 31; // of a tensor: 8 GiB as float32 on the host

/// What the command line asks for.
pub struct Request {
    pub bundle: String,
    pub kernel: String,
    pub sizes: Vec<(String, i64)>,
    pub dtype: String,
    pub source: Source,
    pub driver: String,
    pub device: i32,
    pub launches: usize,
}

/// Runs an op or a symbol of a bundle.
pub fn run(request: &Request) -> Result<()> {
    let bundle = Bundle::open(&request.bundle)?;
    let gpu = Gpu::open_with(&request.driver, request.device)?;
    let (major, minor) = gpu.driver_version;
    println!("gpu       {}, sm_{}, driver for CUDA {major}.{minor}", gpu.name, gpu.capability);
    let sizes: Vec<(&str, i64)> = request.sizes.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let spec = match bundle.symbol(&request.kernel) {
        Some(spec) => spec,
        None => bundle.find(&request.kernel, &request.dtype, &sizes, &gpu)?,
    };
    let begun = Instant::now();
    let kernel = bundle.load(&gpu, spec, request.source)?;
    println!("kernel    {}, loaded in {:.2} ms", spec.symbol, begun.elapsed().as_secs_f64() * 1e3);
    if spec.tensors.iter().any(|tensor| tensor.dtype.is_empty()) {
        return Err(Error::argument(format!(
            "{} is not an op of rooftile: what its tensors are is not known",
            spec.symbol
        )));
    }
    for golden in bundle.manifest.golden.iter().filter(|g| g.op == spec.op && g.dtype == spec.dtype)
    {
        check_golden(&bundle, &gpu, &kernel, golden)?;
    }
    let inputs = random_inputs(spec, &sizes)?;
    let (buffers, errors) = launch_once(&gpu, &kernel, &sizes, &inputs)?;
    report(spec, errors)?;
    let bytes = buffers.values().map(|buffer| buffer.bytes).sum();
    clock::time(&gpu, &kernel, &call_of(&kernel, &sizes, &buffers)?, bytes, request.launches)
}

type Buffers = BTreeMap<String, Buffer>;
type Sizes<'a> = [(&'a str, i64)];

fn values_of(spec: &KernelSpec, sizes: &Sizes) -> Result<Vec<i64>> {
    spec.sizes
        .iter()
        .map(|size| {
            let given = sizes.iter().find(|(name, _)| *name == size.name).map(|(_, value)| *value);
            given.ok_or_else(|| {
                Error::argument(format!("--{} must be given for {}", size.name, spec.symbol))
            })
        })
        .collect()
}

fn elements(spec: &KernelSpec, tensor: &Tensor, sizes: &Sizes) -> Result<usize> {
    let values = values_of(spec, sizes)?;
    let product = tensor
        .shape
        .iter()
        .try_fold(1i64, |n, extent| extent.value(&values).and_then(|e| n.checked_mul(e)));
    product.and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= MOST_ELEMENTS).ok_or_else(|| {
        let name = &tensor.name;
        Error::argument(format!("tensor {name} must have 0 to {MOST_ELEMENTS} elements to be run"))
    })
}

/// Numbers in [-2, 2), as the dtype holds them; the same every time.
fn random_inputs(spec: &KernelSpec, sizes: &Sizes) -> Result<Tensors> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    };
    let inputs = spec.tensors.iter().filter(|tensor| tensor.input);
    inputs
        .map(|tensor| {
            let dtype = DType::parse(&tensor.dtype)?;
            let below = sizes.iter().find(|(name, _)| *name == tensor.below).map(|(_, n)| *n);
            let number = |v: f32| below.map_or(v, |n| ((v + 2.0) / 4.0 * n as f32).floor());
            let count = elements(spec, tensor, sizes)?;
            let values: Vec<f32> = (0..count).map(|_| number(next())).collect();
            Ok((tensor.name.clone(), dtype.decode(&dtype.encode(&values))))
        })
        .collect()
}

fn call_of<'k>(kernel: &'k Kernel, sizes: &Sizes, buffers: &Buffers) -> Result<Call<'k>> {
    let mut call = kernel.call();
    for (size, value) in kernel.spec().sizes.iter().zip(values_of(kernel.spec(), sizes)?) {
        call.size(&size.name, value)?;
    }
    for (name, buffer) in buffers {
        call.buffer(name, buffer)?;
    }
    Ok(call)
}

fn upload(gpu: &Gpu, spec: &KernelSpec, sizes: &Sizes, inputs: &Tensors) -> Result<Buffers> {
    spec.tensors
        .iter()
        .map(|tensor| {
            let dtype = DType::parse(&tensor.dtype)?;
            let buffer = match inputs.get(&tensor.name) {
                Some(values) => gpu.upload(&dtype.encode(values))?,
                // NaN, so that what is not written is found
                None => gpu.upload(&vec![0xff; elements(spec, tensor, sizes)? * dtype.bytes()])?,
            };
            Ok((tensor.name.clone(), buffer))
        })
        .collect()
}

/// The buffers of a launch, and how far the result is off; None for an op without a reference.
fn launch_once(
    gpu: &Gpu,
    kernel: &Kernel,
    sizes: &Sizes,
    inputs: &Tensors,
) -> Result<(Buffers, Option<Errors>)> {
    let spec = kernel.spec();
    let dtype = DType::parse(&spec.dtype)?;
    let size =
        |name: &str| sizes.iter().find(|(own, _)| *own == name).map_or(1, |(_, n)| *n as usize);
    shapes::check(spec, size, |name| elements(spec, tensor_of(spec, name)?, sizes))?;
    let buffers = upload(gpu, spec, sizes, inputs)?;
    kernel.launch(&call_of(kernel, sizes, &buffers)?, Stream::DEFAULT)?;
    gpu.synchronize()?;
    let round = |v: f32| dtype.decode(&dtype.encode(&[v]))[0];
    let Some(exact) = reference(&spec.op, inputs, size, round) else { return Ok((buffers, None)) };
    let mut errors = Errors::default();
    for (name, wanted) in exact {
        let came = result(spec, &name, &buffers)?;
        errors.add(spec, wanted.iter().map(|(at, value)| (came[*at], *value)));
    }
    Ok((buffers, Some(errors)))
}

/// An output as float32.
fn result(spec: &KernelSpec, name: &str, buffers: &Buffers) -> Result<Vec<f32>> {
    let dtype = DType::parse(&tensor_of(spec, name)?.dtype)?;
    let buffer = buffers.get(name).ok_or_else(|| no_tensor(spec, name))?;
    Ok(dtype.decode(&buffer.download()?))
}

fn tensor_of<'s>(spec: &'s KernelSpec, name: &str) -> Result<&'s Tensor> {
    let found = spec.tensors.iter().find(|tensor| tensor.name == name);
    found.ok_or_else(|| no_tensor(spec, name))
}

fn no_tensor(spec: &KernelSpec, name: &str) -> Error {
    Error::bundle(format!("{} has no tensor {name}", spec.symbol))
}

/// How far results are off: the largest difference, and how many pass the tolerance.
#[derive(Default)]
struct Errors {
    largest: f64,
    beyond: usize,
    checked: usize,
}

impl Errors {
    fn add(&mut self, spec: &KernelSpec, pairs: impl Iterator<Item = (f32, f64)>) {
        let absolute = spec.absolute_tolerance.unwrap_or(0.0);
        let relative = spec.relative_tolerance.unwrap_or(0.0);
        for (value, wanted) in pairs {
            let off = (f64::from(value) - wanted).abs();
            if off > self.largest || off.is_nan() {
                self.largest = off;
            }
            let within = off <= absolute + relative * wanted.abs(); // never for NaN
            self.beyond += usize::from(!within);
            self.checked += 1;
        }
    }
}

fn report(spec: &KernelSpec, errors: Option<Errors>) -> Result<()> {
    let Some(errors) = errors else {
        println!("check     no reference for {} here; the golden result was checked", spec.op);
        return Ok(());
    };
    verdict("check", spec, &errors, "a float64 reference")
}

fn verdict(what: &str, spec: &KernelSpec, errors: &Errors, against: &str) -> Result<()> {
    if errors.beyond > 0 {
        return Err(Error::new(Kind::WrongResult, format!(
            "{}: {} of {} elements differ from {against} by more than the tolerance, the most by {:.3e}",
            spec.symbol, errors.beyond, errors.checked, errors.largest)));
    }
    println!(
        "{what:<9} largest error {:.3e} of {} elements against {against}",
        errors.largest, errors.checked
    );
    Ok(())
}

fn check_golden(bundle: &Bundle, gpu: &Gpu, kernel: &Kernel, golden: &Golden) -> Result<()> {
    let spec = kernel.spec();
    let fits = |name: &str, value: i64| {
        spec.sizes.iter().any(|s| {
            s.name == name
                && value >= s.least
                && s.most.map_or(true, |most| value <= most)
                && value % s.multiple_of == 0
        })
    };
    if !golden.sizes.iter().all(|(name, value)| fits(name, *value)) {
        return Ok(());
    }
    let sizes: Vec<(&str, i64)> =
        golden.sizes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let mut inputs = Tensors::new();
    for (name, file) in &golden.inputs {
        let dtype = DType::parse(&tensor_of(spec, name)?.dtype)?;
        inputs.insert(name.clone(), dtype.decode(&bundle.read(file)?));
    }
    let buffers = upload(gpu, spec, &sizes, &inputs)?;
    kernel.launch(&call_of(kernel, &sizes, &buffers)?, Stream::DEFAULT)?;
    gpu.synchronize()?;
    let mut errors = Errors::default();
    for (name, file) in &golden.outputs {
        let exact = DType::Float32.decode(&bundle.read(file)?);
        let came = result(spec, name, &buffers)?;
        if came.len() != exact.len() {
            let (has, wants) = (exact.len(), came.len());
            return Err(Error::bundle(format!("{} has {has} results, not {wants}", file.path)));
        }
        errors.add(spec, came.into_iter().zip(exact.into_iter().map(f64::from)));
    }
    verdict("golden", spec, &errors, "the bundle's result")
}
