//! Lines: JSON objects, each of which holds the SHA-256 of the line before it.
//!
//! `{"seq":7,"at":1767225600000,"kind":"open", … ,"prev":"<hex>"}`. A line of kind `mac` seals all before it:
//! HMAC-SHA256 over a fixed word, its own number and its `prev`.

use std::io::Write;
use std::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::records::TEXT_MAX_BYTES;

/// `prev` of the very first line.
pub(super) const ORIGIN: [u8; 32] = [0; 32];
const MAC_WORD: &[u8] = b"botgate audit mac 1";

/// The key of the chain's seals; wiped when dropped.
#[derive(Clone)]
pub(super) struct SealKey(Zeroizing<[u8; 32]>);

impl SealKey {
    pub(super) fn new(key: [u8; 32]) -> Self {
        SealKey(Zeroizing::new(key))
    }

    fn mac(&self, seq: u64, prev: &[u8; 32]) -> Hmac<Sha256> {
        // HMAC takes a key of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_slice()).expect("HMAC takes a key of any length");
        mac.update(MAC_WORD);
        mac.update(&seq.to_be_bytes());
        mac.update(prev);
        mac
    }

    /// The seal of the chain up to `prev`.
    fn seal(&self, seq: u64, prev: &[u8; 32]) -> [u8; 32] {
        self.mac(seq, prev).finalize().into_bytes().into()
    }

    /// Whether a seal in hex is the right one.
    pub(super) fn verifies(&self, seq: u64, prev: &[u8; 32], seal: &str) -> bool {
        unhex(seal).is_some_and(|bytes| self.mac(seq, prev).verify_slice(&bytes).is_ok())
    }
}

/// The keys under which a chain was sealed, one after the other: each rotation of the master key brings another.
pub struct AuditKeys {
    // Oldest first.
    past: Vec<SealKey>,
    current: SealKey,
}

impl AuditKeys {
    /// These keys; `past` oldest first.
    pub fn new(past: impl IntoIterator<Item = [u8; 32]>, current: [u8; 32]) -> Self {
        AuditKeys { past: past.into_iter().map(SealKey::new).collect(), current: SealKey::new(current) }
    }

    /// The key of new seals.
    pub(super) fn current(&self) -> &SealKey {
        &self.current
    }

    /// The place of the key that made a seal, none before `from`: a key that was given up seals nothing any more.
    pub(super) fn verifies(&self, from: usize, seq: u64, prev: &[u8; 32], seal: &str) -> Option<usize> {
        let keys = self.past.iter().chain([&self.current]).enumerate().skip(from);
        keys.filter(|(_, key)| key.verifies(seq, prev, seal)).map(|(place, _)| place).next()
    }
}

impl From<[u8; 32]> for AuditKeys {
    fn from(current: [u8; 32]) -> Self {
        AuditKeys::new([], current)
    }
}

/// 64 lower-case hex digits as bytes.
pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0_u8; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// SHA-256 of a line without its newline.
pub(super) fn hash(line: &[u8]) -> [u8; 32] {
    Sha256::digest(line).into()
}

/// The end of a chain: what the next line needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    /// Number of the last line; 0 when there is none.
    pub(super) seq: u64,
    /// Hash of the last line.
    pub(super) hash: [u8; 32],
}

impl Chain {
    pub(super) const START: Chain = Chain { seq: 0, hash: ORIGIN };

    /// Appends a line to `out` and returns its number.
    pub(super) fn append(
        &mut self,
        out: &mut Vec<u8>,
        at: u64,
        kind: &str,
        fields: impl FnOnce(&mut Fields<'_>),
    ) -> u64 {
        let start = out.len();
        let seq = self.seq + 1;
        out.push(b'{');
        let mut line = Fields(out);
        line.number("seq", seq);
        line.number("at", at);
        line.plain("kind", kind);
        fields(&mut line);
        out.extend_from_slice(b"\"prev\":\"");
        out.extend_from_slice(&hex(&self.hash));
        out.extend_from_slice(b"\"}");
        *self = Chain { seq, hash: hash(&out[start..]) };
        out.push(b'\n');
        seq
    }

    /// Appends the line that seals everything before it.
    pub(super) fn seal(&mut self, out: &mut Vec<u8>, at: u64, key: &SealKey) {
        let seal = key.seal(self.seq + 1, &self.hash);
        self.append(out, at, "mac", |line| line.hex("mac", &seal));
    }
}

fn hex(bytes: &[u8; 32]) -> [u8; 64] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0_u8; 64];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    digits
}

/// The fields of a line under construction. Names are fixed words that need no escaping.
///
/// Two lines are written for every turn, so bytes are copied, not formatted.
pub(super) struct Fields<'a>(pub(super) &'a mut Vec<u8>);

impl Fields<'_> {
    pub(super) fn number(&mut self, name: &str, value: impl Into<u64>) {
        self.name(name);
        self.decimal(value.into());
        self.0.push(b',');
    }

    pub(super) fn boolean(&mut self, name: &str, value: bool) {
        self.name(name);
        self.0.extend_from_slice(if value { b"true," } else { b"false," });
    }

    /// Text, cut after [`TEXT_MAX_BYTES`].
    pub(super) fn text(&mut self, name: &str, value: &str) {
        let value = &value[..value.floor_char_boundary(TEXT_MAX_BYTES)];
        // Without an early end, so that the look at many bytes is one instruction.
        let escaped = |byte| byte < b' ' || byte == b'"' || byte == b'\\';
        if value.bytes().fold(false, |any, byte| any | escaped(byte)) {
            self.value(name, value);
        } else {
            self.plain(name, value);
        }
    }

    /// Text without a character that JSON escapes.
    pub(super) fn plain(&mut self, name: &str, value: &str) {
        self.quoted(name, value.as_bytes());
    }

    pub(super) fn hex(&mut self, name: &str, value: &[u8; 32]) {
        self.quoted(name, &hex(value));
    }

    /// An address, of IPv4 also where it is mapped into IPv6.
    pub(super) fn address(&mut self, name: &str, value: IpAddr) {
        self.name(name);
        self.0.push(b'"');
        match value.to_canonical() {
            IpAddr::V4(v4) => {
                for (place, octet) in v4.octets().into_iter().enumerate() {
                    if place > 0 {
                        self.0.push(b'.');
                    }
                    self.decimal(octet.into());
                }
            }
            // Writing to a Vec cannot fail.
            IpAddr::V6(v6) => _ = write!(self.0, "{v6}"),
        }
        self.0.extend_from_slice(b"\",");
    }

    pub(super) fn null(&mut self, name: &str) {
        self.name(name);
        self.0.extend_from_slice(b"null,");
    }

    /// Fields that were written before, elsewhere.
    pub(super) fn written(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// A list of objects, each of which writes one field at least.
    pub(super) fn objects<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut fields: impl FnMut(&mut Fields<'_>, T),
    ) {
        self.name(name);
        self.0.push(b'[');
        let mut separator = None;
        for item in items {
            self.0.extend(separator.replace(b','));
            self.0.push(b'{');
            fields(self, item);
            // The comma after the last field.
            self.0.pop();
            self.0.push(b'}');
        }
        self.0.extend_from_slice(b"],");
    }

    /// A value that serde knows how to write.
    pub(super) fn value<T: serde::Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.name(name);
        self.json(value);
        self.0.push(b',');
    }

    pub(super) fn optional_text(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(name, value),
            None => self.null(name),
        }
    }

    pub(super) fn optional_number(&mut self, name: &str, value: Option<impl Into<u64>>) {
        match value {
            Some(value) => self.number(name, value),
            None => self.null(name),
        }
    }

    fn name(&mut self, name: &str) {
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn quoted(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.0.push(b'"');
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\",");
    }

    fn decimal(&mut self, value: u64) {
        self.0.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn json<T: serde::Serialize + ?Sized>(&mut self, value: &T) {
        let before = self.0.len();
        if serde_json::to_writer(&mut *self.0, value).is_err() {
            // Text and maps with text keys always serialise; a half-written value must not break the line.
            self.0.truncate(before);
            self.0.extend_from_slice(b"null");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_the_hash_of_the_one_before() {
        let (mut chain, mut out) = (Chain::START, Vec::new());
        chain.append(&mut out, 5, "open", |line| line.text("login", "a\"\n"));
        let first = hash(&out[..out.len() - 1]);
        chain.append(&mut out, 6, "close", |line| line.null("status"));
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["login"], "a\"\n");
        assert_eq!(lines[0]["prev"], "0".repeat(64));
        assert_eq!(unhex(lines[1]["prev"].as_str().unwrap()), Some(first));
        assert_eq!((lines[0]["seq"].as_u64(), lines[1]["seq"].as_u64()), (Some(1), Some(2)));
    }

    #[test]
    fn a_seal_verifies_with_its_key_number_and_hash_only() {
        let key = SealKey::new([1; 32]);
        let seal = String::from_utf8(hex(&key.seal(3, &[7; 32])).to_vec()).unwrap();
        assert!(key.verifies(3, &[7; 32], &seal));
        assert!(!key.verifies(4, &[7; 32], &seal));
        assert!(!key.verifies(3, &[8; 32], &seal));
        assert!(!SealKey::new([2; 32]).verifies(3, &[7; 32], &seal));
        assert!(!key.verifies(3, &[7; 32], &seal[..62]));
    }

    #[test]
    fn every_kind_of_field_reads_as_it_was_meant() {
        let mut out = vec![b'{'];
        let mut line = Fields(&mut out);
        let text = "\u{1f}\u{7f} \"quoted\" back\\slash é\u{2028}";
        line.text("text", text);
        line.text("simple", "é ~ /v1/{id}");
        line.text("empty", "");
        line.number("zero", 0_u64);
        line.number("most", u64::MAX);
        line.boolean("yes", true);
        line.boolean("no", false);
        line.null("nothing");
        line.optional_number("some", Some(7_u16));
        line.hex("hex", &std::array::from_fn(|byte| byte as u8 * 8));
        for (name, address) in [("v4", "192.0.2.10"), ("mapped", "::ffff:10.0.0.255"), ("v6", "2001:db8::1")] {
            line.address(name, address.parse().unwrap());
        }
        line.objects("none", [0_u64; 0], |row, number| row.number("open", number));
        line.objects("rows", [1_u64, 2], |row, number| row.number("open", number));
        assert_eq!(out.pop(), Some(b','));
        out.push(b'}');
        let hex: String = (0..32).map(|byte| format!("{:02x}", byte * 8)).collect();
        let meant = serde_json::json!({"text": text, "simple": "é ~ /v1/{id}", "empty": "", "zero": 0,
            "most": u64::MAX, "yes": true, "no": false, "nothing": null, "some": 7, "hex": hex, "v4": "192.0.2.10",
            "mapped": "10.0.0.255", "v6": "2001:db8::1", "none": [], "rows": [{"open": 1}, {"open": 2}]});
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&out).unwrap(), meant);
    }

    #[test]
    fn a_key_that_was_given_up_seals_nothing_any_more() {
        let keys = AuditKeys::new([[1; 32], [2; 32]], [3; 32]);
        let seal = |key| String::from_utf8(hex(&SealKey::new([key; 32]).seal(9, &[7; 32])).to_vec()).unwrap();
        let place = |from, key| keys.verifies(from, 9, &[7; 32], &seal(key));
        assert_eq!([place(0, 1), place(0, 2), place(0, 3), place(0, 4)], [Some(0), Some(1), Some(2), None]);
        assert_eq!([place(1, 1), place(1, 2), place(2, 2), place(2, 3)], [None, Some(1), None, Some(2)]);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let mut out = Vec::new();
        Fields(&mut out).text("object", &"é".repeat(TEXT_MAX_BYTES));
        assert_eq!(out.len(), "\"object\":\"\",".len() + TEXT_MAX_BYTES);
    }
}
