//! Reads JSON, as far as a manifest needs it: no dependency.

use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

/// Deeper nesting than any manifest has: a file that goes further is refused, not recursed into.
const DEEPEST: usize = 32;
/// Whole numbers up to here are exact in a double.
const LARGEST: f64 = 9_007_199_254_740_992.0;

impl Json {
    /// The value of a JSON text.
    pub fn parse(text: &str) -> Result<Json> {
        let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
        let value = reader.value(0)?;
        reader.space();
        if reader.at < reader.bytes.len() {
            return Err(reader.error("text behind the value"));
        }
        Ok(value)
    }

    /// A field of an object; it must be there.
    pub fn field(&self, name: &str) -> Result<&Json> {
        match self {
            Json::Object(fields) => {
                fields.get(name).ok_or_else(|| Error::bundle(format!("manifest lacks {name:?}")))
            }
            _ => Err(Error::bundle(format!("manifest has no object around {name:?}"))),
        }
    }

    pub fn text(&self, name: &str) -> Result<&str> {
        match self.field(name)? {
            Json::Text(text) => Ok(text),
            other => Err(wrong(name, "text", other)),
        }
    }

    pub fn whole(&self, name: &str) -> Result<i64> {
        match self.field(name)? {
            Json::Number(n) if n.fract() == 0.0 && n.abs() <= LARGEST => Ok(*n as i64),
            other => Err(wrong(name, "a whole number", other)),
        }
    }

    /// A number, or None for null.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        match self.field(name)? {
            Json::Null => Ok(None),
            Json::Number(n) if n.is_finite() => Ok(Some(*n)),
            other => Err(wrong(name, "a number", other)),
        }
    }

    pub fn truth(&self, name: &str) -> Result<bool> {
        match self.field(name)? {
            Json::Bool(b) => Ok(*b),
            other => Err(wrong(name, "true or false", other)),
        }
    }

    pub fn list(&self, name: &str) -> Result<&[Json]> {
        match self.field(name)? {
            Json::List(list) => Ok(list),
            other => Err(wrong(name, "a list", other)),
        }
    }

    pub fn object(&self, name: &str) -> Result<&BTreeMap<String, Json>> {
        match self.field(name)? {
            Json::Object(fields) => Ok(fields),
            other => Err(wrong(name, "an object", other)),
        }
    }

    /// A list of texts.
    pub fn texts(&self, name: &str) -> Result<Vec<String>> {
        self.list(name)?
            .iter()
            .map(|entry| match entry {
                Json::Text(text) => Ok(text.clone()),
                other => Err(wrong(name, "a list of text", other)),
            })
            .collect()
    }
}

fn wrong(name: &str, wanted: &str, came: &Json) -> Error {
    Error::bundle(format!("manifest: {name:?} must be {wanted}, it is {came:?}"))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn error(&self, what: &str) -> Error {
        Error::bundle(format!("manifest is no JSON: {what} at byte {}", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > DEEPEST {
            return Err(self.error("nested too deep"));
        }
        self.space();
        match self.peek() {
            None => Err(self.error("it ends early")),
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'[') => self.items(depth),
            Some(b'{') => self.fields(depth),
            Some(_) => self.digits(),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.error("a word that is none"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn items(&mut self, depth: usize) -> Result<Json> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.more(b']')? {
                return Ok(Json::List(items));
            }
        }
    }

    fn fields(&mut self, depth: usize) -> Result<Json> {
        let mut fields = BTreeMap::new();
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(fields));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.error("no ':' behind a name"));
            }
            self.at += 1;
            let value = self.value(depth + 1)?;
            fields.insert(name, value);
            if self.more(b'}')? {
                return Ok(Json::Object(fields));
            }
        }
    }

    /// Past a comma, or past the end: whether it was the end.
    fn more(&mut self, end: u8) -> Result<bool> {
        self.space();
        let found = self.peek();
        self.at += 1;
        match found {
            Some(b',') => Ok(false),
            Some(byte) if byte == end => Ok(true),
            _ => Err(self.error("neither ',' nor an end")),
        }
    }

    fn digits(&mut self) -> Result<Json> {
        let start = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or("");
        text.parse().map(Json::Number).map_err(|_| self.error("no value"))
    }

    fn string(&mut self) -> Result<String> {
        if self.peek() != Some(b'"') {
            return Err(self.error("no text where one is wanted"));
        }
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let byte = self.peek().ok_or_else(|| self.error("text without an end"))?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).map_err(|_| self.error("text not in UTF-8")),
                b'\\' => {
                    let letter = self.escape()?;
                    out.extend(letter.to_string().bytes());
                }
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let byte = self.peek().ok_or_else(|| self.error("text without an end"))?;
        self.at += 1;
        match byte {
            b'n' => Ok('\n'),
            b't' => Ok('\t'),
            b'r' => Ok('\r'),
            b'b' => Ok('\u{8}'),
            b'f' => Ok('\u{c}'),
            b'"' | b'\\' | b'/' => Ok(byte as char),
            b'u' => {
                let digits = self.bytes.get(self.at..self.at + 4).unwrap_or(b"");
                self.at += 4;
                let code =
                    std::str::from_utf8(digits).ok().and_then(|d| u32::from_str_radix(d, 16).ok());
                code.and_then(char::from_u32).ok_or_else(|| self.error("no such letter"))
            }
            _ => Err(self.error("no such escape")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_read() {
        let json = Json::parse(r#" {"a": [1, -2.5e1, "x\n\u00e9"], "b": {"c": null, "d": true}} "#)
            .unwrap();
        assert_eq!(json.list("a").unwrap()[1], Json::Number(-25.0));
        assert_eq!(json.list("a").unwrap()[2], Json::Text("x\né".into()));
        assert_eq!(json.field("b").unwrap().number("c").unwrap(), None);
        assert!(json.field("b").unwrap().truth("d").unwrap());
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in
            ["", "{", "[1,]", "{\"a\" 1}", "{\"a\": 1} x", "\"a", "nul", "[1 2]", "1..2", "\"\\q\""]
        {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn a_field_of_another_type_is_named() {
        let json = Json::parse(r#"{"threads": "128", "half": 0.5}"#).unwrap();
        assert!(json.whole("threads").unwrap_err().message.contains("threads"));
        assert!(json.whole("half").is_err());
        assert!(json.whole("missing").unwrap_err().message.contains("lacks \"missing\""));
    }
}
