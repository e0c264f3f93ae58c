//! A reader over one TOML table that collects every problem instead of stopping at the first.

use std::num::NonZeroU32;
use std::time::Duration;

use toml::{Table, Value};

use super::ConfigProblem;
use super::values::{duration_text, parse_duration};

/// One table being read. Keys are taken out; what is left at [`Section::finish`] is unknown.
pub(super) struct Section<'p> {
    name: String,
    table: Table,
    problems: &'p mut Vec<ConfigProblem>,
}

impl<'p> Section<'p> {
    pub(super) fn root(table: Table, problems: &'p mut Vec<ConfigProblem>) -> Self {
        Section { name: String::new(), table, problems }
    }

    fn full(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// Notes a problem with a key of this section.
    pub(super) fn problem(&mut self, key: &str, message: impl Into<String>) {
        let key = self.full(key);
        self.problems.push(ConfigProblem { key, message: message.into() });
    }

    fn not(&mut self, key: &str, value: &Value, allowed: &str) {
        let shown: String = value.to_string().chars().take(80).collect();
        self.problem(key, format!("{shown} is not allowed here; give {allowed}"));
    }

    /// A sub-table, empty when absent.
    pub(super) fn table(&mut self, key: &str) -> Section<'_> {
        let name = self.full(key);
        let table = match self.table.remove(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(other) => {
                self.not(key, &other, "a table");
                Table::new()
            }
        };
        Section { name, table, problems: self.problems }
    }

    /// Calls `each` for every table of an array of tables and gathers what it returns.
    pub(super) fn tables<T>(&mut self, key: &str, mut each: impl FnMut(&mut Section<'_>) -> Option<T>) -> Vec<T> {
        let mut out = Vec::new();
        for (at, value) in self.array(key, "an array of tables").into_iter().enumerate() {
            match value {
                Value::Table(table) => {
                    let name = format!("{}[{at}]", self.full(key));
                    let mut section = Section { name, table, problems: self.problems };
                    out.extend(each(&mut section));
                    section.finish();
                }
                other => self.not(key, &other, "an array of tables"),
            }
        }
        out
    }

    fn array(&mut self, key: &str, allowed: &str) -> Vec<Value> {
        match self.table.remove(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values,
            Some(other) => {
                self.not(key, &other, allowed);
                Vec::new()
            }
        }
    }

    /// Whether the key is set, without reading it.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Refuses a key whose feature this version does not have, in place of ignoring it.
    pub(super) fn not_yet(&mut self, key: &str) {
        if self.table.remove(key).is_some() {
            self.problem(key, "is reserved; this version does not have it");
        }
    }

    /// A text that `parse` turns into a value; its error says what is allowed.
    pub(super) fn parsed<T, E: ToString>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        let value = self.table.remove(key)?;
        match value.as_str().map(parse) {
            Some(Ok(parsed)) => Some(parsed),
            Some(Err(allowed)) => {
                self.not(key, &value, &allowed.to_string());
                None
            }
            None => {
                self.not(key, &value, "a string");
                None
            }
        }
    }

    /// An array of texts.
    pub(super) fn list<T, E: ToString>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, E>) -> Vec<T> {
        let mut out = Vec::new();
        for value in self.array(key, "an array of strings") {
            match value.as_str().map(&parse) {
                Some(Ok(parsed)) => out.push(parsed),
                Some(Err(allowed)) => self.not(key, &value, &allowed.to_string()),
                None => self.not(key, &value, "an array of strings"),
            }
        }
        out
    }

    /// A boolean.
    pub(super) fn boolean(&mut self, key: &str, default: bool) -> bool {
        match self.table.remove(key) {
            None => default,
            Some(Value::Boolean(value)) => value,
            Some(other) => {
                self.not(key, &other, "true or false");
                default
            }
        }
    }

    /// A whole number within bounds.
    pub(super) fn integer(&mut self, key: &str, range: std::ops::RangeInclusive<i64>) -> Option<u64> {
        let value = self.table.remove(key)?;
        match value.as_integer() {
            Some(number) if range.contains(&number) => u64::try_from(number).ok(),
            _ => {
                self.not(key, &value, &format!("a whole number from {} to {}", range.start(), range.end()));
                None
            }
        }
    }

    /// The same, as a count with a default.
    pub(super) fn count(&mut self, key: &str, range: std::ops::RangeInclusive<i64>, default: usize) -> usize {
        self.integer(key, range).and_then(|n| usize::try_from(n).ok()).unwrap_or(default)
    }

    /// Times a second.
    pub(super) fn rate(&mut self, key: &str) -> Option<NonZeroU32> {
        self.integer(key, 1..=1_000_000).and_then(|n| u32::try_from(n).ok()).and_then(NonZeroU32::new)
    }

    /// A duration within bounds.
    pub(super) fn duration(&mut self, key: &str, least: Duration, most: Duration, default: Duration) -> Duration {
        let allowed = format!("a duration such as \"30s\", from {} to {}", duration_text(least), duration_text(most));
        self.parsed(key, |text| match parse_duration(text) {
            Some(duration) if duration >= least && duration <= most => Ok(duration),
            _ => Err(allowed),
        })
        .unwrap_or(default)
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(&mut self) {
        let unknown: Vec<String> = std::mem::take(&mut self.table).into_iter().map(|(key, _)| key).collect();
        for key in unknown {
            self.problem(&key, "is not a key that botgate knows");
        }
    }
}
