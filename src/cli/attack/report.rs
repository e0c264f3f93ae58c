//! What an attack came to.

use serde::Serialize;

/// One case and what came of it.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) source: String,
    pub(super) expected: String,
    pub(super) seen: String,
    /// Why it failed; null: it passed.
    pub(super) failure: Option<String>,
}

/// The whole.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) url: String,
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// Cases that make no sense here: cookies that do not count.
    pub(super) left_out: usize,
    /// Times that the neighbour was asked meanwhile and got their own answer.
    pub(super) neighbour: usize,
    pub(super) notes: Vec<String>,
    pub(super) cases: Vec<Line>,
}

impl Report {
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for case in self.cases.iter().filter(|case| case.failure.is_some()) {
            let why = case.failure.as_deref().unwrap_or_default();
            text.push_str(&format!(
                "FAILED  {}\n        {why}; expected {}, seen {} ({})\n",
                case.name, case.expected, case.seen, case.source
            ));
        }
        let mut classes: Vec<(&str, usize, usize)> = Vec::new();
        for case in &self.cases {
            if classes.last().is_none_or(|last| last.0 != case.class) {
                classes.push((&case.class, 0, 0));
            }
            if let Some(last) = classes.last_mut() {
                last.1 += 1;
                last.2 += usize::from(case.failure.is_some());
            }
        }
        for (class, count, failed) in classes {
            text.push_str(&format!("{class:<11} {count:>4} cases, {failed} failed\n"));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text.push_str(&format!(
            "{}: {} passed, {} failed, {} left out; the neighbour got their own answer {} times meanwhile\n",
            self.url, self.passed, self.failed, self.left_out, self.neighbour
        ));
        text
    }
}
