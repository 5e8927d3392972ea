//! What ops must give, in float64, of rows spread over the whole result.

use std::collections::BTreeMap;

pub type Tensors = BTreeMap<String, Vec<f32>>;
/// Output to the places that were computed and what must be there.
pub type Exact = BTreeMap<String, Vec<(usize, f64)>>;

const RMS_EPS: f64 = 1e-6; // the defaults of the exported scalars
const LAYER_EPS: f64 = 1e-5;
const MOST_ELEMENTS: usize = 1 << 20; // one thread in float64 takes 20 ms for them
const MOST_QUERIES: usize = 48;

/// The outputs of an op by name; None for an op that is not known here.
///
/// `size` gives a size by its name, `round` rounds to the dtype of the tensors.
pub fn reference(
    op: &str,
    t: &Tensors,
    size: impl Fn(&str) -> usize,
    round: impl Fn(f32) -> f32,
) -> Option<Exact> {
    match op {
        "softmax" | "log_softmax" => {
            let (x, log) = (t.get("x")?, op == "log_softmax");
            Some(one("y", rows(x.len(), size("cols"), |i| softmax(&wide(&x[i]), log))))
        }
        "rms_norm" | "layer_norm" => {
            let x = t.get("x")?;
            Some(one("y", rows(x.len(), size("cols"), |i| norm(op, &wide(&x[i]), t))))
        }
        "add_rms_norm" | "add_layer_norm" => {
            let (x, residual) = (t.get("x")?, t.get("residual")?);
            let sum: Vec<f32> = x.iter().zip(residual).map(|(a, b)| round(a + b)).collect();
            let mut both = one("h", rows(x.len(), size("cols"), |i| wide(&sum[i])));
            both.extend(one("y", rows(x.len(), size("cols"), |i| norm(op, &wide(&sum[i]), t))));
            Some(both)
        }
        "swiglu" | "geglu" => {
            let (gate, up) = (t.get("gate")?, t.get("up")?);
            let activation = if op == "swiglu" { silu } else { gelu };
            let value = |i: usize| activation(f64::from(gate[i])) * f64::from(up[i]);
            let each = |i: Range| i.map(value).collect();
            Some(one("y", rows(gate.len(), 1, each)))
        }
        "bias_gelu_dropout_residual" => {
            let (x, bias, residual) = (t.get("x")?, t.get("bias")?, t.get("residual")?);
            let cols = size("cols");
            let value = |i: usize| {
                gelu(f64::from(x[i]) + f64::from(bias[i % cols])) + f64::from(residual[i])
            };
            Some(one("y", rows(x.len(), cols, |i| i.map(value).collect())))
        }
        "rotary_embedding" => {
            Some(one("y", rotary(t, size("positions"), size("heads"), size("head_dim"))?))
        }
        "cross_entropy" => Some(cross_entropy(t.get("x")?, t.get("target")?, size("cols"))),
        "attention" | "attention_causal" => {
            let sizes = ["kv_heads", "group", "queries", "keys", "head_dim"].map(size);
            Some(attention([t.get("q")?, t.get("k")?, t.get("v")?], sizes, op != "attention"))
        }
        _ => None,
    }
}

type Range = std::ops::Range<usize>;

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn gelu(x: f64) -> f64 {
    x * (0.5 + 0.5 * erf(x / 2f64.sqrt()))
}

/// The error function, by a series of terms of one sign: no digit is lost.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > f64::EPSILON * sum.abs() {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

fn one(name: &str, values: Vec<(usize, f64)>) -> Exact {
    BTreeMap::from([(name.to_string(), values)])
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| f64::from(*v)).collect()
}

/// Rows at equal distances, so many that they are enough for a check.
fn rows(elements: usize, cols: usize, each: impl Fn(Range) -> Vec<f64>) -> Vec<(usize, f64)> {
    let step = elements.div_ceil(MOST_ELEMENTS).max(1);
    let starts = (0..elements / cols.max(1)).step_by(step).map(|row| row * cols);
    starts.flat_map(|at| (at..).zip(each(at..at + cols))).collect()
}

fn softmax(row: &[f64], log: bool) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|v| (v - most).exp()).sum();
    let each = |v: &f64| if log { v - most - sum.ln() } else { (v - most).exp() / sum };
    row.iter().map(each).collect()
}

fn norm(op: &str, row: &[f64], t: &Tensors) -> Vec<f64> {
    let n = row.len() as f64;
    let layer = op.ends_with("layer_norm");
    let mean = if layer { row.iter().sum::<f64>() / n } else { 0.0 };
    let square = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (square + if layer { LAYER_EPS } else { RMS_EPS }).sqrt();
    let at = |name: &str, i: usize, other: f64| t.get(name).map_or(other, |v| f64::from(v[i]));
    let each =
        |(i, v): (usize, &f64)| (v - mean) * scale * at("weight", i, 1.0) + at("bias", i, 0.0);
    row.iter().enumerate().map(each).collect()
}

/// Each half of a head turned by the angles of its position.
fn rotary(t: &Tensors, positions: usize, heads: usize, width: usize) -> Option<Vec<(usize, f64)>> {
    let (x, cos, sin) = (t.get("x")?, t.get("cos")?, t.get("sin")?);
    let half = width / 2;
    let value = |i: usize| {
        let (place, d) = (i / width / heads % positions * half, i % width);
        let angle = place + d % half;
        let (c, s) = (f64::from(cos[angle]), f64::from(sin[angle]));
        let (own, other) = (f64::from(x[i]), f64::from(x[i - d + (d + half) % width]));
        own * c + if d < half { -other * s } else { other * s }
    };
    Some(rows(x.len(), width, |i| i.map(value).collect()))
}

/// Loss and log-sum-exp of rows.
fn cross_entropy(x: &[f32], target: &[f32], cols: usize) -> Exact {
    let step = x.len().div_ceil(MOST_ELEMENTS).max(1);
    let (mut loss, mut lse) = (Vec::new(), Vec::new());
    for row in (0..target.len()).step_by(step) {
        let logits = wide(&x[row * cols..][..cols]);
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|v| (v - most).exp()).sum();
        lse.push((row, most + sum.ln()));
        loss.push((row, most + sum.ln() - logits.get(target[row] as usize).unwrap_or(&f64::NAN)));
    }
    BTreeMap::from([("loss".to_string(), loss), ("lse".to_string(), lse)])
}

/// Some queries of `[batch, heads, queries, width]`; the last query stands at the last key.
fn attention([q, k, v]: [&Vec<f32>; 3], sizes: [usize; 5], causal: bool) -> Exact {
    let [kv_heads, group, queries, keys, width] = sizes;
    let lines = q.len() / width.max(1);
    let step = lines.div_ceil(MOST_QUERIES).max(1) | 1; // odd: queries of every kind come up
    let (mut o, mut lse) = (Vec::new(), Vec::new());
    for line in (0..lines).step_by(step) {
        let (row, head) = (line % queries, line / queries);
        let kv = head / (kv_heads * group) * kv_heads + head % (kv_heads * group) / group;
        let seen = if causal { (row + 1 + keys).saturating_sub(queries) } else { keys };
        let query = &q[line * width..][..width];
        let dot = |key: &[f32]| {
            query.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
        };
        let at = |i: usize| (kv * keys + i) * width;
        let scores: Vec<f64> =
            (0..seen).map(|i| dot(&k[at(i)..][..width]) / (width as f64).sqrt()).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
        lse.push((line, most + sum.ln()));
        for d in 0..width {
            let terms =
                scores.iter().enumerate().map(|(i, s)| (s - most).exp() * f64::from(v[at(i) + d]));
            let total: f64 = terms.sum();
            o.push((line * width + d, if seen == 0 { 0.0 } else { total / sum }));
        }
    }
    BTreeMap::from([("o".to_string(), o), ("lse".to_string(), lse)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(list: &[(&str, &[f32])]) -> Tensors {
        list.iter().map(|(name, values)| (name.to_string(), values.to_vec())).collect()
    }

    fn values(op: &str, list: &[(&str, &[f32])], name: &str) -> Vec<f64> {
        let exact = reference(op, &tensors(list), |_| 2, |v| v).unwrap();
        exact[name].iter().map(|(_, value)| *value).collect()
    }

    fn close(came: &[f64], wanted: &[f64]) {
        assert_eq!(came.len(), wanted.len());
        assert!(came.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{came:?}");
    }

    #[test]
    fn rows_are_those_worked_out_by_hand() {
        let ln3 = 3f32.ln();
        close(&values("softmax", &[("x", &[0.0, ln3, 1.0, 1.0])], "y"), &[0.25, 0.75, 0.5, 0.5]);
        let x: &[(&str, &[f32])] = &[("x", &[3.0, 4.0]), ("weight", &[1.0, 2.0])];
        close(&values("rms_norm", x, "y"), &[3.0 / 12.5f64.sqrt(), 8.0 / 12.5f64.sqrt()]);
        let x: &[(&str, &[f32])] = &[
            ("x", &[1.0, 3.0]),
            ("residual", &[0.0, 0.0]),
            ("weight", &[1.0, 1.0]),
            ("bias", &[0.5, 0.5]),
        ];
        close(&values("add_layer_norm", x, "y"), &[-0.5, 1.5]);
        close(
            &values("swiglu", &[("gate", &[0.0, 1.0]), ("up", &[5.0, 2.0])], "y"),
            &[0.0, 1.462117],
        );
        close(
            &values("geglu", &[("gate", &[-1.0, 3.0]), ("up", &[5.0, 2.0])], "y"),
            &[-0.793276, 5.991900],
        );
    }

    #[test]
    fn the_other_ops_are_those_worked_out_by_hand() {
        let list: &[(&str, &[f32])] =
            &[("x", &[-1.5, 2.0]), ("bias", &[0.5, 1.0]), ("residual", &[1.0, 0.25])];
        close(&values("bias_gelu_dropout_residual", list, "y"), &[0.841345, 3.245950]);
        // all sizes 2: two positions of two heads of one pair; cosine and sine of each position
        let x = [1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 4.0];
        let list: &[(&str, &[f32])] = &[("x", &x), ("cos", &[0.0, 0.5]), ("sin", &[1.0, 2.0])];
        let wanted = [0.0, 1.0, -1.0, 0.0, -3.5, 3.0, -6.5, 8.0];
        close(&values("rotary_embedding", list, "y"), &wanted);
        let list: &[(&str, &[f32])] = &[("x", &[0.0, 3f32.ln()]), ("target", &[1.0])];
        close(&values("cross_entropy", list, "lse"), &[4f64.ln()]);
        close(&values("cross_entropy", list, "loss"), &[4f64.ln() - 3f64.ln()]);
    }

    #[test]
    fn attention_is_that_worked_out_by_hand() {
        // two heads of keys, each of two query heads: all sizes 2; equal keys weigh their values alike
        let q = [1.0; 16 * 2];
        let k = [0.5; 8 * 2];
        let v: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let list: &[(&str, &[f32])] = &[("q", &q), ("k", &k), ("v", &v)];
        let o = values("attention", list, "o");
        close(&o[..2], &[1.0, 2.0]);
        close(&o[8..10], &[5.0, 6.0]); // the third query head reads the second head of values
        close(&values("attention_causal", list, "o")[..4], &[0.0, 1.0, 1.0, 2.0]);
        close(&values("attention", list, "lse")[..1], &[1.0 / 2f64.sqrt() + 2f64.ln()]);
    }
}
