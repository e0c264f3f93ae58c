//! What holds for any bytes that a gateway may say; tried by the property tests below and by the fuzz targets.

use super::answer::{Answer, AnswerError, Framing, Parsed};
use super::content::Content;

/// A response head is read in one way, however it is cut, and what is told of it lies in it.
pub fn answer(bytes: &[u8]) {
    let whole = Answer::parse(bytes, false);
    let shown = |parsed: &Result<Parsed, AnswerError>| format!("{parsed:?}");
    // The first prefix that is no partial head is read like everything that begins with it.
    let cut = (0..=bytes.len()).step_by(1 + bytes.len() / 64).find(|&cut| {
        let parsed = Answer::parse(&bytes[..cut], false);
        !matches!(parsed, Ok(Parsed::Partial))
    });
    if let Some(cut) = cut {
        let early = Answer::parse(&bytes[..cut], false);
        // An error is found at the latest with the whole; which of two it is may depend on the cut.
        match &early {
            Ok(_) => assert_eq!(shown(&early), shown(&whole)),
            Err(_) => assert!(whole.is_err(), "{early:?} {whole:?}"),
        }
    }
    let Ok(Parsed::Head(answer, length)) = whole else { return };
    let head = &bytes[..length];
    assert!(head.starts_with(b"HTTP/1."));
    let named = |name: &[u8]| answer.lines().filter(|(own, _)| own.eq_ignore_ascii_case(name)).count();
    let (lengths, codings) = (named(b"content-length"), named(b"transfer-encoding"));
    assert!(lengths + codings <= 1, "framed in two ways");
    match answer.framing() {
        Framing::Length(_) => assert_eq!(lengths, 1),
        Framing::Chunked => assert_eq!(codings, 1),
        Framing::Close => assert!(lengths + codings == 0 && !answer.is_persistent()),
        Framing::Empty => {}
    }
    for (name, value) in answer.lines() {
        let value = value.bytes();
        assert!(!name.is_empty() && name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b':'));
        assert!(!value.contains(&b'\n') && !value.contains(&0));
        assert!(head.windows(name.len()).any(|window| window == name));
    }
}

/// A chunked body is the same however it is cut, never longer than what came, and over only once.
pub fn content(bytes: &[u8]) {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut content, mut out, mut taken) = (Content::new(Framing::Chunked), Vec::new(), 0);
        for piece in pieces {
            match content.take(piece, &mut out) {
                Ok(length) => taken += length,
                Err(error) => return (Err(error), out),
            }
            if content.is_done() {
                break;
            }
        }
        (Ok((content.is_done(), taken)), out)
    };
    let whole = read(&mut std::iter::once(bytes));
    let cut = bytes.first().map_or(0, |&byte| usize::from(byte) % bytes.len());
    let two = read(&mut [&bytes[..cut], &bytes[cut..]].into_iter());
    let single = read(&mut bytes.chunks(1));
    assert_eq!(whole, two);
    assert_eq!(whole, single);
    assert!(whole.1.len() <= bytes.len());
    if let Ok((true, taken)) = whole.0 {
        assert!(bytes[..taken].ends_with(b"\r\n\r\n") || bytes[..taken].ends_with(b"\r\n"));
        // What follows is not looked at.
        let more = [&bytes[..taken], b"5\r\nhello\r\n"].concat();
        assert_eq!(read(&mut std::iter::once(&more[..])), (Ok((true, taken)), whole.1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// Bytes that are often nearly right.
    fn nearly(parts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            8 => proptest::sample::select(parts).prop_map(|part| part.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(part, 0..14).prop_map(|parts| parts.concat())
    }

    const HEADS: &[&str] = &[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 204 No\r\n",
        "HTTP/1.1 100 C\r\n\r\n",
        "Content-Length: 5\r\n",
        "content-length:0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "A: b\r\n",
        " c\r\n",
        "\r\n",
        "\n",
        ":",
        "x",
    ];
    const CHUNKS: &[&str] =
        &["5", "0", "1", "a", "\r\n", "hello", ";a=b", ";a=\"b;\"", "\"", ";", "x", "X: y\r\n", "\n", "\r", " "];

    proptest! {
        #[test]
        fn a_head_is_read_in_one_way(bytes in nearly(HEADS)) {
            super::answer(&bytes);
        }

        #[test]
        fn chunks_are_read_in_one_way(bytes in nearly(CHUNKS)) {
            super::content(&bytes);
        }
    }
}
