//! The lines of an import, read as they come. No message repeats a line: it may hold a key.

use axum::http::StatusCode;
use http_body_util::BodyExt;
use zeroize::Zeroizing;

use super::answer::Refused;
use super::wire::ImportLine;
use crate::lifecycle::{IMPORT_LINES_MAX, ImportItem};
use crate::names::{Login, Role};
use crate::secret::ApiServerKey;

/// Longest import, in bytes.
const IMPORT_MAX_BYTES: usize = 64 * 1024 * 1024;
/// Longest line, in bytes.
const LINE_MAX_BYTES: usize = 16 * 1024;

/// The lines that were understood, and those that were not: number and trouble.
pub(super) async fn read_lines(mut body: axum::body::Body) -> Result<(Vec<ImportItem>, Vec<(usize, String)>), Refused> {
    let mut lines = Lines::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refused::bad_request("the body broke off; nothing was imported"))?;
        if let Ok(data) = frame.into_data() {
            lines.take(&data)?;
        }
    }
    lines.end()?;
    Ok((lines.items, lines.problems))
}

#[derive(Default)]
struct Lines {
    pending: Zeroizing<Vec<u8>>,
    taken: usize,
    number: usize,
    items: Vec<ImportItem>,
    problems: Vec<(usize, String)>,
}

impl Lines {
    fn take(&mut self, mut data: &[u8]) -> Result<(), Refused> {
        self.taken += data.len();
        if self.taken > IMPORT_MAX_BYTES {
            let message = format!("more than {IMPORT_MAX_BYTES} bytes; nothing was imported");
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "too_much", message));
        }
        while let Some(at) = data.iter().position(|&byte| byte == b'\n') {
            self.extend(&data[..at])?;
            self.end()?;
            data = &data[at + 1..];
        }
        self.extend(data)
    }

    fn extend(&mut self, part: &[u8]) -> Result<(), Refused> {
        if self.pending.len() + part.len() > LINE_MAX_BYTES {
            let message =
                format!("line {} is longer than {LINE_MAX_BYTES} bytes; nothing was imported", self.number + 1);
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "too_much", message));
        }
        self.pending.extend_from_slice(part);
        Ok(())
    }

    /// The pending bytes are a whole line.
    fn end(&mut self) -> Result<(), Refused> {
        let line = std::mem::take(&mut self.pending);
        self.number += 1;
        if self.number > IMPORT_LINES_MAX + 1 {
            let message = format!("more than {IMPORT_LINES_MAX} lines; nothing was imported");
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "too_much", message));
        }
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        match understand(self.number, &line) {
            Ok(item) => self.items.push(item),
            Err(message) => self.problems.push((self.number, message)),
        }
        Ok(())
    }
}

fn understand(line: usize, text: &[u8]) -> Result<ImportItem, String> {
    let raw: ImportLine = serde_json::from_slice(text).map_err(|error| {
        format!("column {}: not a JSON object of login, and perhaps role and api_server_key", error.column())
    })?;
    let key_text = raw.api_server_key.map(Zeroizing::new);
    let login = Login::parse(&raw.login).map_err(|error| format!("the login {error}"))?;
    let role = Role::parse(raw.role.as_deref().unwrap_or("member")).map_err(|error| format!("the role {error}"))?;
    let key = key_text.map(|text| ApiServerKey::parse(&text)).transpose();
    let key = key.map_err(|error| format!("the api_server_key {error}"))?;
    Ok(ImportItem { line, login, role, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&[u8]]) -> Lines {
        let mut lines = Lines::default();
        for part in parts {
            lines.take(part).unwrap();
        }
        lines.end().unwrap();
        lines
    }

    #[test]
    fn lines_are_found_wherever_the_parts_break() {
        let text = b"{\"login\":\"a\"}\n\n{\"login\":\"b\",\"role\":\"admin\"}\r\n{\"login\":\"c\"}";
        for at in 0..text.len() {
            let lines = read(&[&text[..at], &text[at..]]);
            let found: Vec<_> = lines.items.iter().map(|item| (item.line, item.login.as_str())).collect();
            assert_eq!(found, [(1, "a"), (3, "b"), (4, "c")], "break at {at}");
        }
    }

    #[test]
    fn trouble_names_the_line_and_no_value() {
        let lines = read(&[b"{\"login\":\"a\",\"api_server_key\":\"hunter2\"}\n{\"login\":7}\nhunter2\n{\"login\":\" x\"}\n{\"login\":\"d\",\"hunter2\":1}"]);
        assert!(lines.items.is_empty());
        assert_eq!(lines.problems.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(!format!("{:?}", lines.problems).contains("hunter2"));
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut lines = Lines::default();
        assert!(lines.take(&[b'x'; LINE_MAX_BYTES]).is_ok());
        assert!(lines.take(b"x").is_err());
    }
}
