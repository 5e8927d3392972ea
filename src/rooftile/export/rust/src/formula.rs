//! Formulas over sizes: a product of whole numbers, sizes and `ceil(F / N)`.

use crate::error::{Error, Result};

/// More `ceil` than any formula has: a text that goes further is refused, not recursed into.
const DEEPEST: usize = 16;

#[derive(Debug, Clone, PartialEq)]
enum Factor {
    Number(i64),
    Size(usize),
    Ceil(Formula, i64),
}

/// A formula whose sizes are known by their positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula(Vec<Factor>);

impl Formula {
    /// Reads a formula; `names` are the sizes it may name.
    pub fn parse(text: &str, names: &[String]) -> Result<Formula> {
        let mut reader = Reader { text, rest: text, names, depth: 0 };
        let formula = reader.product()?;
        if !reader.rest.trim().is_empty() {
            return Err(reader.error("an end"));
        }
        Ok(formula)
    }

    /// Its value; None where it does not fit 64 bits.
    #[inline]
    pub fn value(&self, sizes: &[i64]) -> Option<i64> {
        self.0.iter().try_fold(1i64, |product, factor| {
            let value = match factor {
                Factor::Number(n) => *n,
                Factor::Size(i) => sizes[*i],
                Factor::Ceil(inner, by) => {
                    let inner = inner.value(sizes)?;
                    inner.checked_add(by - 1)?.div_euclid(*by)
                }
            };
            product.checked_mul(value)
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    names: &'a [String],
    depth: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, wanted: &str) -> Error {
        let rest = self.rest.trim();
        let came = if rest.is_empty() { "its end" } else { rest };
        Error::bundle(format!("formula {:?} has {came:?} where {wanted} is wanted", self.text))
    }

    fn product(&mut self) -> Result<Formula> {
        let mut factors = vec![self.factor()?];
        while self.take("*") {
            factors.push(self.factor()?);
        }
        Ok(Formula(factors))
    }

    fn factor(&mut self) -> Result<Factor> {
        if let Some(digits) = self.rest.trim_start().strip_prefix('-') {
            self.rest = digits;
            let digits =
                if digits.starts_with(|c: char| c.is_ascii_digit()) { self.word() } else { "" };
            let number = digits.parse::<i64>().map_err(|_| self.error("a number"))?;
            return Ok(Factor::Number(-number));
        }
        let word = self.word();
        if word.is_empty() {
            return Err(self.error("a size or a number"));
        }
        if let Ok(number) = word.parse() {
            return Ok(Factor::Number(number));
        }
        if word == "ceil" {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(Error::bundle(format!("a formula has over {DEEPEST} ceil in it")));
            }
            self.expect("(")?;
            let inner = self.product()?;
            self.expect("/")?;
            let by: i64 = self.word().parse().unwrap_or(0);
            if by < 1 {
                return Err(self.error("a number above 0"));
            }
            self.expect(")")?;
            return Ok(Factor::Ceil(inner, by));
        }
        let position = self.names.iter().position(|name| name == word);
        position.map(Factor::Size).ok_or_else(|| {
            let known = self.names.join(", ");
            Error::bundle(format!("formula {:?} names {word:?}, sizes are {known}", self.text))
        })
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.rest.trim_start().strip_prefix(sign);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        if self.take(sign) {
            return Ok(());
        }
        Err(self.error(sign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["rows".into(), "cols".into()]
    }

    #[test]
    fn values_are_those_of_the_formula() {
        for (text, wanted) in [
            ("7", 7),
            ("-1", -1),
            ("rows", 10),
            ("rows * cols", 1000),
            ("ceil(rows / 4)", 3),
            ("ceil(rows * cols / 128) * 2", 16),
            ("ceil(rows/10)", 1),
        ] {
            let formula = Formula::parse(text, &names()).unwrap();
            assert_eq!(formula.value(&[10, 100]), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_formula_is_refused() {
        for text in [
            "",
            "rows +",
            "heads",
            "ceil(rows / 0)",
            "ceil(rows)",
            "rows rows",
            "* rows",
            "- 1",
            "ceil(rows / -2)",
            "ceil(rows / cols)",
        ] {
            assert!(Formula::parse(text, &names()).is_err(), "{text}");
        }
        assert!(Formula::parse(&"ceil(".repeat(100_000), &names()).is_err());
    }

    #[test]
    fn a_product_past_64_bits_has_no_value() {
        let formula = Formula::parse("rows * cols", &names()).unwrap();
        assert_eq!(formula.value(&[i64::MAX, 2]), None);
    }
}
