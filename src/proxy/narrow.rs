//! narrow: what an authorized request may ask for: a served route and method, and a body that can be taken.
//!
//! Path and method only narrow what is served; they never choose whose it is.

use super::head::Screened;
use super::refusal::Refusal;
use super::routes::{NoRoute, Route, Routes};
use crate::telemetry::reason::Reason;

/// The route of a request, once its declared body is acceptable.
pub(super) fn narrow<'r>(screened: &Screened<'_>, routes: &'r Routes, max_body: u64) -> Result<&'r Route, Refusal> {
    let head = screened.head();
    let route = routes.find(head.method, screened.target().path()).map_err(|missing| match missing {
        NoRoute::Path => Refusal::of(Reason::UnknownRoute),
        NoRoute::Method(allow) => Refusal::method(allow),
    })?;
    // The gateway inflates encoded bodies, so a small one can be a bomb.
    if head.values("content-encoding").any(|value| !value.trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Err(Refusal::of(Reason::ContentEncoding));
    }
    if let Some(declared) = head.values("content-length").next() {
        // The engine has parsed it; what does not fit in 64 bits is over any limit.
        let length = std::str::from_utf8(declared).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if length.is_none_or(|length| length > max_body) {
            return Err(Refusal::of(Reason::BodyTooLarge));
        }
    }
    if head.values("expect").any(|value| !value.trim_ascii().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Refusal::of(Reason::Expectation));
    }
    Ok(route)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Host, Routes as RouteConfig};
    use crate::proxy::head::{AllowedHosts, HeadView, Line};

    fn narrowed(method: &str, path: &str, lines: &[(&str, &str)]) -> Result<&'static str, Reason> {
        let routes = Routes::new(&RouteConfig::default());
        let mut all = vec![Line { name: "host", value: b"h" }];
        all.extend(lines.iter().map(|(name, value)| Line { name, value: value.as_bytes() }));
        let head = HeadView { method, authority: None, path_and_query: path, lines: &all };
        let hosts = AllowedHosts::new(&[Host::parse("h", 80).unwrap()]);
        let screened = Screened::new(head, &hosts).unwrap();
        narrow(&screened, &routes, 10).map(Route::template).map_err(|refusal| refusal.reason())
    }

    #[test]
    fn decisions_come_in_their_order() {
        let encoded = ("content-encoding", "gzip");
        assert_eq!(narrowed("GET", "/v1/nothing", &[encoded]), Err(Reason::UnknownRoute));
        assert_eq!(narrowed("PUT", "/v1/runs", &[encoded]), Err(Reason::UnknownMethod));
        assert_eq!(narrowed("POST", "/v1/runs", &[encoded, ("content-length", "11")]), Err(Reason::ContentEncoding));
        assert_eq!(
            narrowed("POST", "/v1/runs", &[("content-length", "11"), ("expect", "x")]),
            Err(Reason::BodyTooLarge)
        );
        assert_eq!(narrowed("POST", "/v1/runs", &[("expect", "200-ok")]), Err(Reason::Expectation));
        assert_eq!(
            narrowed("POST", "/v1/runs", &[("content-length", "10"), ("expect", "100-Continue")]),
            Ok("/v1/runs")
        );
    }
}
