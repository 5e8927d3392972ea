//! The manifest of a bundle, checked as it is read.

use crate::formula::Formula;

pub const KIND: &str = "rooftile.manifest";
pub const SCHEMA_VERSION: i64 = 1;
/// The most parameters that a launch has room for.
pub const MOST_PARAMETERS: usize = 64;

/// A file of the bundle.
#[derive(Debug, Clone)]
pub struct File {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// What a parameter's value is.
#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    /// The address of the tensor at this position of `KernelSpec::tensors`.
    Tensor(usize),
    /// A whole number over the sizes; a stride may be replaced by the caller.
    Whole {
        formula: Formula,
        stride: bool,
    },
    /// A number that the caller may set.
    Scalar(Option<f64>),
    /// This very number.
    Number(f64),
    /// Memory that the launch provides.
    Scratch,
    ProfileScratch,
}

/// One parameter of a kernel.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub name: String,
    pub kind: String,
    pub bytes: usize,
    pub offset: usize,
    pub divisible_by: u64,
    pub role: Role,
    /// The smallest and largest whole number of the type.
    pub range: (i64, i64),
}

/// A size and the range in which the kernel holds.
#[derive(Debug, Clone)]
pub struct Size {
    pub name: String,
    pub least: i64,
    pub most: Option<i64>,
    pub multiple_of: i64,
}

/// A tensor; without a dtype where the bundle does not know its shape.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub input: bool,
    pub dtype: String,
    pub shape: Vec<Formula>,
    /// The size under which whole numbers lie, from 0 on; empty for other tensors.
    pub below: String,
}

/// Bytes for each block and their alignment.
#[derive(Debug, Clone, Copy)]
pub struct Scratch {
    pub bytes_per_block: u64,
    pub alignment: u64,
}

/// One kernel for one architecture.
#[derive(Debug, Clone)]
pub struct KernelSpec {
    pub symbol: String,
    pub op: String,
    pub dtype: String,
    pub form: String,
    pub target: String,
    pub parameters: Vec<Parameter>,
    pub sizes: Vec<Size>,
    pub tensors: Vec<Tensor>,
    pub grid: Option<[Formula; 3]>,
    pub threads: u32,
    pub cluster: u32,
    pub dynamic_shared_bytes: u32,
    pub static_shared_bytes: u32,
    pub registers: i64,
    pub scratch: Scratch,
    pub profile_scratch: Scratch,
    pub cooperative: bool,
    pub dependent_launch: bool,
    pub ptx_version: String,
    pub ptx_target: String,
    pub ptx_driver: String,
    pub binary_driver: String,
    pub binary: Option<File>,
    pub ptx: Option<File>,
    pub absolute_tolerance: Option<f64>,
    pub relative_tolerance: Option<f64>,
}

/// An op's exact result on one input.
#[derive(Debug, Clone)]
pub struct Golden {
    pub op: String,
    pub dtype: String,
    pub sizes: Vec<(String, i64)>,
    pub inputs: Vec<(String, File)>,
    pub outputs: Vec<(String, File)>,
}

/// A bundle's manifest.
#[derive(Debug, Clone)]
pub struct Manifest {
    pub tools: Vec<(String, String)>,
    pub kernels: Vec<KernelSpec>,
    pub golden: Vec<Golden>,
}
