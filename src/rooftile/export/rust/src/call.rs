//! The arguments of a launch, by name, checked against the manifest.

use crate::cuda::Address;
use crate::error::{Error, Result};
use crate::float::{to_bfloat, to_half, DType};
use crate::gpu::Buffer;
use crate::manifest::{KernelSpec, Parameter, Role, MOST_PARAMETERS};

const MOST_GRID_YZ: u32 = 65535;

/// The arguments of a launch; it can be launched again and again.
#[derive(Clone)]
pub struct Call<'k> {
    spec: &'k KernelSpec,
    sizes: Vec<Option<i64>>,
    tensors: Vec<Option<(Address, u64)>>,
    given: Vec<Option<f64>>,
    strides: Vec<Option<i64>>,
    contiguous: bool,
    grid: Option<[u32; 3]>,
}

impl<'k> Call<'k> {
    /// A launch with nothing set.
    pub fn new(spec: &'k KernelSpec) -> Call<'k> {
        Call {
            spec,
            sizes: vec![None; spec.sizes.len()],
            tensors: vec![None; spec.tensors.len()],
            given: vec![None; spec.parameters.len()],
            strides: vec![None; spec.parameters.len()],
            contiguous: true,
            grid: None,
        }
    }

    pub(crate) fn spec(&self) -> &'k KernelSpec {
        self.spec
    }

    /// Sets a size.
    pub fn size(&mut self, name: &str, value: i64) -> Result<&mut Self> {
        let at = find(&self.spec.sizes, |size| size.name == name).ok_or_else(|| {
            self.unknown("size", name, self.spec.sizes.iter().map(|s| s.name.as_str()))
        })?;
        self.sizes[at] = Some(value);
        Ok(self)
    }

    /// Gives a tensor by its address and how many bytes are there.
    pub fn tensor(&mut self, name: &str, address: Address, bytes: u64) -> Result<&mut Self> {
        let at = find(&self.spec.tensors, |tensor| tensor.name == name).ok_or_else(|| {
            self.unknown("tensor", name, self.spec.tensors.iter().map(|t| t.name.as_str()))
        })?;
        self.tensors[at] = Some((address, bytes));
        Ok(self)
    }

    /// Gives a tensor.
    pub fn buffer(&mut self, name: &str, buffer: &Buffer) -> Result<&mut Self> {
        self.tensor(name, buffer.address, buffer.bytes as u64)
    }

    /// Sets a scalar, such as `eps`.
    pub fn scalar(&mut self, name: &str, value: f64) -> Result<&mut Self> {
        let scalar = |p: &&Parameter| matches!(p.role, Role::Scalar(_));
        let at =
            find(&self.spec.parameters, |p| p.name == name && scalar(&p)).ok_or_else(|| {
                self.unknown(
                    "scalar",
                    name,
                    self.spec.parameters.iter().filter(scalar).map(|p| p.name.as_str()),
                )
            })?;
        self.given[at] = Some(value);
        Ok(self)
    }

    /// Sets a stride [elements] other than that of contiguous tensors.
    pub fn stride(&mut self, name: &str, value: i64) -> Result<&mut Self> {
        let stride = |p: &&Parameter| matches!(p.role, Role::Whole { stride: true, .. });
        let at =
            find(&self.spec.parameters, |p| p.name == name && stride(&p)).ok_or_else(|| {
                self.unknown(
                    "stride",
                    name,
                    self.spec.parameters.iter().filter(stride).map(|p| p.name.as_str()),
                )
            })?;
        self.strides[at] = Some(value);
        self.contiguous = false;
        Ok(self)
    }

    /// Sets the grid of a kernel whose bundle has no formula for it.
    pub fn blocks(&mut self, grid: [u32; 3]) -> Result<&mut Self> {
        if self.spec.grid.is_some() {
            return Err(Error::argument(format!("{} has a grid of its own", self.spec.symbol)));
        }
        self.grid = Some(grid);
        Ok(self)
    }

    /// Checks the arguments and gives what a launch passes: the value of every parameter in the
    /// kernel's order, the addresses of scratch memory null, and the grid in clusters. None where
    /// there is nothing to do.
    ///
    /// `Kernel::launch` does this; it is for programs that launch by other means.
    pub fn pack(&self, values: &mut [u64; MOST_PARAMETERS]) -> Result<Option<[u32; 3]>> {
        let mut sizes = [0i64; MOST_PARAMETERS];
        if self.read_sizes(&mut sizes)? {
            return Ok(None);
        }
        let grid = self.grid(&sizes)?;
        if grid.contains(&0) {
            return Ok(None);
        }
        for (i, parameter) in self.spec.parameters.iter().enumerate() {
            values[i] = self.value(i, parameter, &sizes)?;
        }
        Ok(Some(grid))
    }

    fn unknown<'a>(&self, what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
        let known: Vec<&str> = known.collect();
        let list = if known.is_empty() { "none".into() } else { known.join(", ") };
        Error::argument(format!("{} has no {what} {name:?}; it has {list}", self.spec.symbol))
    }

    fn wrong(&self, what: String) -> Error {
        Error::argument(format!("{}: {what}", self.spec.symbol))
    }

    /// Sizes in order; whether there is nothing to do.
    fn read_sizes(&self, sizes: &mut [i64]) -> Result<bool> {
        let mut empty = false;
        for (i, size) in self.spec.sizes.iter().enumerate() {
            let value = self.sizes[i]
                .ok_or_else(|| self.wrong(format!("size {} is not set", size.name)))?;
            empty |= value == 0 && size.least > 0;
            let past = size.most.is_some_and(|most| value > most);
            if value < 0
                || (value != 0 && (value < size.least || past || value % size.multiple_of != 0))
            {
                let most = size.most.map_or("any".into(), |most| most.to_string());
                return Err(self.wrong(format!(
                    "{} must be {} to {most} by {}, got {value}",
                    size.name, size.least, size.multiple_of
                )));
            }
            sizes[i] = value;
        }
        Ok(empty)
    }

    fn grid(&self, sizes: &[i64]) -> Result<[u32; 3]> {
        let Some(formulas) = &self.spec.grid else {
            return self.grid.ok_or_else(|| self.wrong("its grid is not set".into()));
        };
        let mut grid = [0u32; 3];
        for (extent, formula) in grid.iter_mut().zip(formulas) {
            let value = formula.value(sizes).and_then(|v| u32::try_from(v).ok());
            *extent = value.ok_or_else(|| self.wrong("the grid passes 32 bits".into()))?;
        }
        let x = u64::from(grid[0]) * u64::from(self.spec.cluster);
        if x > i32::MAX as u64 || grid[1] > MOST_GRID_YZ || grid[2] > MOST_GRID_YZ {
            return Err(self.wrong(format!("a grid of {grid:?} is more than a GPU takes")));
        }
        Ok(grid)
    }

    /// The bits of an argument.
    fn value(&self, at: usize, parameter: &Parameter, sizes: &[i64]) -> Result<u64> {
        let value = match &parameter.role {
            Role::Tensor(tensor) => self.address(*tensor, sizes)?,
            Role::Whole { formula, .. } => {
                let value = self.strides[at].or_else(|| formula.value(sizes));
                let value = value
                    .ok_or_else(|| self.wrong(format!("{} passes 64 bits", parameter.name)))?;
                return self.whole(parameter, value);
            }
            Role::Scalar(default) => {
                let value = self.given[at].or(*default);
                let value = value
                    .ok_or_else(|| self.wrong(format!("scalar {} is not set", parameter.name)))?;
                return self.float(parameter, value);
            }
            Role::Number(value) => return self.float(parameter, *value),
            Role::Scratch | Role::ProfileScratch => 0,
        };
        if value % parameter.divisible_by != 0 {
            return Err(self.wrong(format!(
                "the address of {} must be a multiple of {}, it is {value:#x}; the form \"any\" takes every address",
                parameter.name, parameter.divisible_by)));
        }
        Ok(value)
    }

    fn whole(&self, parameter: &Parameter, value: i64) -> Result<u64> {
        let (least, most) = parameter.range;
        if value < least || value > most {
            return Err(self.wrong(format!(
                "{} is an {}, {value} does not fit",
                parameter.name, parameter.kind
            )));
        }
        if value % parameter.divisible_by as i64 != 0 {
            return Err(self.wrong(format!(
                "{} must be a multiple of {}, got {value}",
                parameter.name, parameter.divisible_by
            )));
        }
        Ok(value as u64)
    }

    fn float(&self, parameter: &Parameter, value: f64) -> Result<u64> {
        match parameter.kind.as_str() {
            "fp32" => Ok(u64::from((value as f32).to_bits())), // 4 bytes, not a C double
            "fp64" => Ok(value.to_bits()),
            "fp16" => Ok(u64::from(to_half(value as f32))),
            "bf16" => Ok(u64::from(to_bfloat(value as f32))),
            kind => Err(self.wrong(format!("{}: a {kind} cannot be passed", parameter.name))),
        }
    }

    fn address(&self, at: usize, sizes: &[i64]) -> Result<u64> {
        let tensor = &self.spec.tensors[at];
        let (address, bytes) = self.tensors[at]
            .ok_or_else(|| self.wrong(format!("tensor {} is not given", tensor.name)))?;
        if self.contiguous && !tensor.dtype.is_empty() {
            let width = DType::parse(&tensor.dtype)?.bytes() as i64;
            let elements = tensor.shape.iter().try_fold(1i64, |product, extent| {
                extent.value(sizes).and_then(|extent| product.checked_mul(extent))
            });
            let wanted = elements.and_then(|n| n.checked_mul(width)).unwrap_or(i64::MAX) as u64;
            if bytes < wanted {
                return Err(self.wrong(format!(
                    "tensor {} must have {wanted} bytes, got {bytes}",
                    tensor.name
                )));
            }
        }
        Ok(address)
    }
}

fn find<T>(list: &[T], wanted: impl Fn(&T) -> bool) -> Option<usize> {
    list.iter().position(wanted)
}
