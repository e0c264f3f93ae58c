//! The one credential of a request, from header lines of any engine.
//!
//! Two of anything, both kinds, or an empty one is refused: what two readers could understand in two ways is no proof of
//! who asks. Nothing but these two places is ever read.

use crate::secret::PresentedToken;
use crate::telemetry::reason::Reason;

/// Name of the session cookie. The prefix makes browsers insist on HTTPS, on `Path=/` and on no `Domain`.
pub const SESSION_COOKIE: &str = "__Host-botgate";

/// Where a credential was found. A cookie is sent by browsers on their own, so that its requests need an Origin check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// `Authorization: Bearer …`
    Bearer,
    /// The cookie `__Host-botgate`.
    Cookie,
}

/// The one credential of a request. Whose it is, is not known yet.
#[derive(Debug, Clone, Copy)]
pub struct Credential {
    /// The token, of the right shape.
    pub token: PresentedToken,
    /// Where it was found.
    pub carrier: Carrier,
}

/// Finds the one credential among header lines (name, value without outer white space).
///
/// Cookies are as if not sent unless `cookies_count`.
///
/// # Errors
/// [`Reason::CredentialMissing`], [`Reason::CredentialMalformed`] or [`Reason::CredentialAmbiguous`].
pub fn credential<'a>(
    lines: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    cookies_count: bool,
) -> Result<Credential, Reason> {
    let mut found: Option<(Carrier, &[u8])> = None;
    for (name, value) in lines {
        if name.eq_ignore_ascii_case(b"authorization") {
            keep_only(&mut found, Carrier::Bearer, value)?;
        } else if cookies_count && name.eq_ignore_ascii_case(b"cookie") {
            for value in session_cookies(value) {
                keep_only(&mut found, Carrier::Cookie, value)?;
            }
        }
    }
    let (carrier, value) = found.ok_or(Reason::CredentialMissing)?;
    let text = match carrier {
        Carrier::Bearer => bearer(value).ok_or(Reason::CredentialMalformed)?,
        Carrier::Cookie => value,
    };
    let token = PresentedToken::parse(text).ok_or(Reason::CredentialMalformed)?;
    Ok(Credential { token, carrier })
}

fn keep_only<'a>(found: &mut Option<(Carrier, &'a [u8])>, carrier: Carrier, value: &'a [u8]) -> Result<(), Reason> {
    match found.replace((carrier, value)) {
        None => Ok(()),
        Some(_) => Err(Reason::CredentialAmbiguous),
    }
}

/// The text behind `Bearer` (in any case) and one or more spaces.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || rest.first() != Some(&b' ') {
        return None;
    }
    let start = rest.iter().position(|&byte| byte != b' ')?;
    Some(&rest[start..])
}

/// Every value that one cookie line gives our cookie. Quotes do not shield a semicolon, so that a name inside another
/// cookie's quoted value counts too: more found can only mean more refused.
fn session_cookies(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b';').filter_map(|pair| {
        let (name, value) = match pair.iter().position(|&byte| byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        };
        (name.trim_ascii() == SESSION_COOKIE.as_bytes()).then(|| value.trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::{FreshToken, TokenKind};

    fn read(lines: &[(&str, String)], cookies_count: bool) -> Result<Carrier, Reason> {
        let lines = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        credential(lines, cookies_count).map(|found| found.carrier)
    }

    fn token() -> String {
        FreshToken::generate(TokenKind::Session).expose().to_owned()
    }

    #[test]
    fn one_bearer_is_read_whatever_the_case_of_its_scheme() {
        let t = token();
        for value in [format!("Bearer {t}"), format!("bearer {t}"), format!("BEARER {t}"), format!("Bearer   {t}")] {
            assert_eq!(read(&[("authorization", value)], false), Ok(Carrier::Bearer));
        }
        assert_eq!(read(&[("Authorization", format!("Bearer {t}"))], false), Ok(Carrier::Bearer));
    }

    #[test]
    fn a_malformed_authorization_is_no_credential() {
        let t = token();
        for value in [
            String::new(),
            "Bearer".into(),
            "Bearer ".into(),
            format!("Bearer{t}"),
            format!("Bearer\t{t}"),
            format!("Bearer {t} "),
            format!("Bearer {t} x"),
            format!("Bearer {t},Bearer {t}"),
            format!("Bearer \"{t}\""),
            format!("Basic {t}"),
            format!(" Bearer {t}"),
            format!("Bearer Bearer {t}"),
            t.clone(),
            "Bear\u{e9}r x".into(),
        ] {
            assert_eq!(
                read(&[("authorization", value.clone())], true),
                Err(Reason::CredentialMalformed),
                "{value:?} should be malformed"
            );
        }
    }

    #[test]
    fn no_other_place_is_read() {
        let t = token();
        let lines = ["x-api-key", "proxy-authorization", "x-authorization", "set-cookie", "authorization2"]
            .map(|name| (name, format!("Bearer {t}")));
        assert_eq!(read(&lines, true), Err(Reason::CredentialMissing));
        assert_eq!(read(&[], true), Err(Reason::CredentialMissing));
    }

    #[test]
    fn two_of_anything_are_ambiguous() {
        let t = token();
        let bearer = || ("authorization", format!("Bearer {t}"));
        let cookie = || ("cookie", format!("__Host-botgate={t}"));
        for lines in [
            vec![bearer(), bearer()],
            vec![bearer(), ("authorization", String::new())],
            vec![("authorization", "Basic x".into()), bearer()],
            vec![bearer(), cookie()],
            vec![cookie(), bearer()],
            vec![cookie(), cookie()],
            vec![("cookie", format!("__Host-botgate={t}; __Host-botgate={t}"))],
            vec![("cookie", format!("__Host-botgate={t}; a=b; __Host-botgate"))],
            vec![("cookie", format!("__Host-botgate={t}; a=\"x; __Host-botgate={t}\""))],
            vec![("cookie", format!("__Host-botgate={t}; __Host-botgate ={t}"))],
            vec![("authorization", String::new()), cookie()],
        ] {
            assert_eq!(read(&lines, true), Err(Reason::CredentialAmbiguous), "{}", lines.len());
        }
    }

    #[test]
    fn the_cookie_is_counted_by_name_over_all_lines() {
        let t = token();
        let split = [("cookie", "a=b".into()), ("cookie", format!("__Host-botgate={t}")), ("cookie", "c=d".to_owned())];
        assert_eq!(read(&split, true), Ok(Carrier::Cookie));
        let joined = [("cookie", format!("a=b; __Host-botgate={t};c=d;"))];
        assert_eq!(read(&joined, true), Ok(Carrier::Cookie));
    }

    #[test]
    fn a_name_that_only_begins_or_ends_alike_is_another_cookie() {
        let t = token();
        let other =
            format!("__Host-botgate2={t}; x__Host-botgate={t}; __host-botgate={t}; botgate={t}; =__Host-botgate");
        assert_eq!(read(&[("cookie", other.clone())], true), Err(Reason::CredentialMissing));
        assert_eq!(read(&[("cookie", format!("{other}; __Host-botgate={t}"))], true), Ok(Carrier::Cookie));
    }

    #[test]
    fn an_empty_quoted_or_foreign_cookie_value_is_malformed() {
        let t = token();
        for value in ["__Host-botgate=".into(), "__Host-botgate".into(), format!("__Host-botgate=\"{t}\"")] {
            assert_eq!(read(&[("cookie", value)], true), Err(Reason::CredentialMalformed));
        }
    }

    #[test]
    fn cookies_that_do_not_count_are_as_if_not_sent() {
        let t = token();
        let cookie = || ("cookie", format!("__Host-botgate={t}; __Host-botgate={t}"));
        assert_eq!(read(&[cookie()], false), Err(Reason::CredentialMissing));
        assert_eq!(read(&[cookie(), ("authorization", format!("Bearer {t}"))], false), Ok(Carrier::Bearer));
    }
}
