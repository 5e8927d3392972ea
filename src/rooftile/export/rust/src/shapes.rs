//! How many elements the tensors of an op have: a manifest that says otherwise is wrong.

use rooftile_host::{Error, KernelSpec, Result};

/// Checks what the manifest's shapes give for every tensor; an op that is not known here has none.
pub fn check(
    spec: &KernelSpec,
    size: impl Fn(&str) -> usize,
    elements: impl Fn(&str) -> Result<usize>,
) -> Result<()> {
    let product = |sizes: &str| {
        let factors = sizes.split_whitespace().map(&size);
        factors.fold(1usize, |product, factor| product.saturating_mul(factor))
    };
    for tensor in &spec.tensors {
        let Some(sizes) = sizes_of(&spec.op, &tensor.name) else { continue };
        let halved = if ["cos", "sin"].contains(&tensor.name.as_str()) { 2 } else { 1 };
        let (wanted, came) = (product(sizes) / halved, elements(&tensor.name)?);
        if came != wanted {
            return Err(Error::bundle(format!(
                "{}: tensor {} of {} must have {wanted} elements, its shape gives {came}",
                spec.symbol, tensor.name, spec.op
            )));
        }
    }
    let lacks = needed(&spec.op).iter().find(|name| spec.tensors.iter().all(|t| t.name != **name));
    lacks.map_or(Ok(()), |name| {
        Err(Error::bundle(format!("{}: {} needs a tensor {name}", spec.symbol, spec.op)))
    })
}

/// The sizes whose product a tensor's elements are; of angles the half of it.
fn sizes_of(op: &str, tensor: &str) -> Option<&'static str> {
    Some(match (op, tensor) {
        ("swiglu" | "geglu", _) => "elements",
        ("rotary_embedding", "cos" | "sin") => "positions head_dim",
        ("rotary_embedding", _) => "batch positions heads head_dim",
        ("attention" | "attention_causal", "q" | "o") => "batch kv_heads group queries head_dim",
        ("attention" | "attention_causal", "lse") => "batch kv_heads group queries",
        ("attention" | "attention_causal", _) => "batch kv_heads keys head_dim",
        ("cross_entropy", "target" | "loss" | "lse") => "rows",
        (_, "weight" | "bias") => "cols",
        (_, "x" | "y" | "h" | "residual") => "rows cols",
        _ => return None,
    })
}

/// The results that are compared.
fn needed(op: &str) -> &'static [&'static str] {
    match op {
        "attention" | "attention_causal" => &["o", "lse"],
        "cross_entropy" => &["loss", "lse"],
        "add_rms_norm" | "add_layer_norm" => &["y", "h"],
        _ => &["y"],
    }
}
