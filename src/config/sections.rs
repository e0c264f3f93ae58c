//! The file's sections, in its order: each reads its keys, applies defaults and notes what is wrong.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use super::read::Section;
use super::values::{GatewayUrl, HeaderText, Host};
use super::{
    CertificateFiles, ClientCertificates, Config, ConfigProblem, Deadlines, ExtraRoute, Gateway, Limits, Listen,
    RouteGroup, Routes, Tls, WhenFull,
};
use crate::names::GatewayName;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Validates the text of a configuration file; relative paths are taken from `base`.
///
/// # Errors
/// Every problem of the text.
pub fn parse(text: &str, base: &Path) -> Result<Config, Vec<ConfigProblem>> {
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            let message = error.to_string();
            return Err(vec![ConfigProblem { key: String::new(), message: message.trim_end().to_owned() }]);
        }
    };
    let mut problems = Vec::new();
    let mut root = Section::root(table, &mut problems);
    let data_dir = path(&mut root, "data_dir", base).unwrap_or_else(|| base.join("data"));
    let listen = listen(&mut root.table("listen"), base);
    let metrics_address = admin(&mut root.table("admin"));
    let gateways = gateways(&mut root, base);
    let routes = routes(&mut root.table("routes"));
    let limits = limits(&mut root.table("limits"));
    let deadlines = deadlines(&mut root.table("deadlines"));
    let access_log = log(&mut root.table("log"));
    let audit_when_full = audit(&mut root.table("audit"));
    let insecure_loopback_cookies = sign_in(&mut root.table("sign_in"), &listen);
    root.not_yet("mcp");
    root.finish();
    match problems.is_empty() {
        true => Ok(Config {
            data_dir,
            listen,
            metrics_address,
            gateways,
            routes,
            limits,
            deadlines,
            access_log,
            audit_when_full,
            insecure_loopback_cookies,
        }),
        false => Err(problems),
    }
}

fn path(section: &mut Section<'_>, key: &str, base: &Path) -> Option<PathBuf> {
    section.parsed(key, |text| match text {
        "" => Err("a path"),
        text if text.starts_with('~') => Err("a path; ~ is not expanded here"),
        // Leaves out `.` segments, so that a path reads the same however it was written.
        text => Ok(base.join(text).components().collect()),
    })
}

fn address(section: &mut Section<'_>, key: &str) -> Option<SocketAddr> {
    section.parsed(key, |text| text.parse().map_err(|_| "an address and port such as 127.0.0.1:8080"))
}

fn listen(section: &mut Section<'_>, base: &Path) -> Listen {
    let address = address(section, "address").unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080)));
    let public = section.parsed("public_url", |text| {
        let allowed = "an http or https URL of scheme, host and port only";
        let uri: http::Uri = text.parse().map_err(|_| allowed)?;
        let default_port = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return Err(allowed),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(allowed);
        }
        let authority = uri.authority().ok_or(allowed)?;
        let host = Host::parse(authority.as_str(), default_port).ok_or(allowed)?;
        Ok((text.trim_end_matches('/').to_owned(), host))
    });
    let tls = tls(section, base);
    let secure = public.as_ref().map_or(tls.is_some(), |(url, _)| url.starts_with("https:"));
    let default_port = if secure { 443 } else { 80 };
    let mut hosts = section.list("additional_hosts", |text| {
        Host::parse(text, default_port).ok_or("a host, or host and port, such as 127.0.0.1:8080")
    });
    let public_url = public.map(|(url, host)| {
        hosts.push(host);
        url
    });
    let trusted_forwarders = section.list("trusted_forwarders", network);
    section.finish();
    Listen { address, public_url, hosts, tls, trusted_forwarders }
}

fn tls(section: &mut Section<'_>, base: &Path) -> Option<Tls> {
    let certificates = section.tables("tls", |pair| {
        for key in ["certificate", "key"] {
            if !pair.has(key) {
                pair.problem(key, "is missing; give the path of a PEM file");
            }
        }
        let (certificate, key) = (path(pair, "certificate", base), path(pair, "key", base));
        Some(CertificateFiles { certificate: certificate?, key: key? })
    });
    let authorities = path(section, "client_ca", base);
    let asked = section.parsed("client_certificate", |text| match text {
        "off" => Ok(None),
        "optional" => Ok(Some(false)),
        "required" => Ok(Some(true)),
        _ => Err("\"off\", \"optional\" or \"required\""),
    });
    let clients = match (asked.flatten(), authorities) {
        (Some(required), Some(authorities)) => Some(ClientCertificates { authorities, required }),
        (Some(_), None) => {
            section.problem("client_certificate", "asks for certificates; name those who may sign them in client_ca");
            None
        }
        (None, _) => None,
    };
    if clients.is_some() && certificates.is_empty() {
        section.problem("client_certificate", "asks for certificates, which needs TLS; give listen.tls");
    }
    (!certificates.is_empty()).then_some(Tls { certificates, clients })
}

/// A network, or one address. Everybody's word cannot count.
fn network(text: &str) -> Result<IpNet, &'static str> {
    let network = text.parse().or_else(|_| text.parse().map(|address: IpAddr| IpNet::from(address.to_canonical())));
    match network {
        Ok(network) if network.prefix_len() > 0 => Ok(network.trunc()),
        _ => Err("a network such as 10.0.0.0/8, or an address, of forwarders of your own"),
    }
}

fn admin(section: &mut Section<'_>) -> Option<SocketAddr> {
    let metrics = address(section, "metrics_address");
    section.finish();
    metrics
}

fn gateways(root: &mut Section<'_>, base: &Path) -> Vec<Gateway> {
    let present = root.has("gateway");
    let gateways = root.tables("gateway", |section| gateway(section, base));
    if !present {
        root.problem("gateway", "is missing; add at least one [[gateway]] with a name and a url");
    }
    for (at, gateway) in gateways.iter().enumerate() {
        if gateways[..at].iter().any(|other| other.name == gateway.name) {
            root.problem("gateway", format!("two gateways are named \"{}\"; names are unique", gateway.name));
        }
    }
    gateways
}

fn gateway(section: &mut Section<'_>, base: &Path) -> Option<Gateway> {
    for key in ["name", "url"] {
        if !section.has(key) {
            section.problem(key, "is missing");
        }
    }
    let name =
        section.parsed("name", |text| GatewayName::parse(text).map_err(|_| "1 to 64 characters of A-Z a-z 0-9 . _ -"));
    let url = section.parsed("url", GatewayUrl::parse);
    let allow_plaintext = section.boolean("allow_plaintext", false);
    if url.as_ref().is_some_and(|url| !url.is_loopback()) && !allow_plaintext {
        section.problem(
            "url",
            "leaves this machine without encryption; set allow_plaintext = true if the network is private",
        );
    }
    let max_turns = section.count("max_turns", 1..=100_000, 10);
    let max_bots = section.integer("max_bots", 1..=1_000_000).and_then(|n| usize::try_from(n).ok());
    let default_api_server_key_file = path(section, "default_api_server_key_file", base);
    let allow_same_user = section.boolean("allow_same_user", false);
    let forward_headers = section.list("forward_headers", HeaderText::parse);
    section.not_yet("keeper");
    section.not_yet("orphans");
    Some(Gateway {
        name: name?,
        url: url?,
        max_turns,
        default_api_server_key_file,
        allow_same_user,
        forward_headers,
        max_bots,
    })
}

fn routes(section: &mut Section<'_>) -> Routes {
    let groups = section.list("groups", |text| match text {
        "sessions" => Ok(RouteGroup::Sessions),
        "jobs" => Ok(RouteGroup::Jobs),
        "browser-control" => {
            Err("\"sessions\" or \"jobs\"; \"browser-control\" is reserved, this version does not have it")
        }
        _ => Err("\"sessions\" or \"jobs\""),
    });
    let extra = section.tables("extra", |extra| {
        for key in ["method", "template"] {
            if !extra.has(key) {
                extra.problem(key, "is missing");
            }
        }
        let method = extra.parsed("method", |text| {
            let served = ["GET", "POST", "PUT", "PATCH", "DELETE"].into_iter().find(|method| *method == text);
            served.ok_or("GET, POST, PUT, PATCH or DELETE")
        });
        let template = extra.parsed("template", template);
        let turn = extra.boolean("turn", false);
        extra.not_yet("upgrade");
        Some(ExtraRoute { method: method?, template: template?, turn })
    });
    section.finish();
    Routes { groups, extra }
}

/// Health paths answer without a key at the gateway and would tell who has a bot, so no template may name them.
fn template(text: &str) -> Result<String, &'static str> {
    let allowed = "an absolute path of literal segments and {id}, such as /v1/things/{id}";
    let rest = text.strip_prefix('/').ok_or(allowed)?;
    let fine = rest.split('/').all(|segment| {
        segment == "{id}"
            || (!matches!(segment, "" | "." | "..")
                && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~:".contains(&b)))
    });
    if !fine || text.len() > 512 {
        return Err(allowed);
    }
    if KEYLESS.iter().any(|keyless| may_reach(text, keyless)) {
        return Err("a path that the gateway answers only with an API key");
    }
    Ok(text.to_owned())
}

/// What the gateway answers without an API key, or by a proof of its own; with a final slash: all that is below.
const KEYLESS: [&str; 7] =
    ["/health", "/v1/health", "/p/", "/api/platforms/", "/api/cron/", "/v1/browser-control/", "/v1/room-members/"];

/// Whether some path of a template is a keyless one; `{id}` stands for any segment.
fn may_reach(template: &str, keyless: &str) -> bool {
    let (path, below) = match keyless.strip_suffix('/') {
        Some(path) => (path, true),
        None => (keyless, false),
    };
    let mut given = template.split('/');
    let begins = path.split('/').all(|segment| given.next().is_some_and(|given| given == segment || given == "{id}"));
    begins && given.next().is_some() == below
}

fn limits(section: &mut Section<'_>) -> Limits {
    let limits = Limits {
        turns_per_person: section.count("turns_per_person", 1..=100_000, 3),
        queue_per_person: section.count("queue_per_person", 0..=100_000, 4),
        queue_total: section.count("queue_total", 0..=1_000_000, 1_000),
        queue_wait: section.duration("queue_wait", SECOND / 10, HOUR, 30 * SECOND),
        connections: section.count("connections", 1..=1_000_000, 20_000),
        connections_per_address: section.count("connections_per_address", 1..=1_000_000, 1_000),
        handshakes: section.count("handshakes", 1..=1_000_000, 1_000),
        max_body_bytes: section.integer("max_body_bytes", 1..=1_000_000_000).unwrap_or(10_000_000),
        requests_per_second_per_person: section.rate("requests_per_second_per_person"),
        requests_per_second_per_address: section.rate("requests_per_second_per_address"),
    };
    section.finish();
    limits
}

fn deadlines(section: &mut Section<'_>) -> Deadlines {
    let least = SECOND / 10;
    let deadlines = Deadlines {
        handshake: section.duration("handshake", least, HOUR, 10 * SECOND),
        first_byte: section.duration("first_byte", least, HOUR, 10 * SECOND),
        header: section.duration("header", least, HOUR, 10 * SECOND),
        connect: section.duration("connect", least, 60 * SECOND, 2 * SECOND),
        response_head: section.duration("response_head", least, 24 * HOUR, 590 * SECOND),
        idle: section.duration("idle", least, 24 * HOUR, 900 * SECOND),
        keep_alive: section.duration("keep_alive", least, HOUR, 75 * SECOND),
        write: section.duration("write", least, HOUR, 60 * SECOND),
        body: section.duration("body", least, HOUR, 10 * SECOND),
        drain: section.duration("drain", least, HOUR, 30 * SECOND),
    };
    section.finish();
    deadlines
}

fn log(section: &mut Section<'_>) -> bool {
    let access = section.boolean("access", false);
    section.finish();
    access
}

fn audit(section: &mut Section<'_>) -> WhenFull {
    let when_full = section.parsed("when_full", |text| match text {
        "refuse" => Ok(WhenFull::Refuse),
        "drop" => Ok(WhenFull::Drop),
        _ => Err("\"refuse\" or \"drop\""),
    });
    section.finish();
    when_full.unwrap_or(WhenFull::Refuse)
}

fn sign_in(section: &mut Section<'_>, listen: &Listen) -> bool {
    let insecure = section.boolean("insecure_loopback", false);
    if insecure && !listen.address.ip().is_loopback() {
        section.problem("insecure_loopback", "true needs a loopback listen.address");
    }
    section.finish();
    insecure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse(text, Path::new("/etc/botgate"))
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(|p| format!("{}: {}", p.key, p.message))
            .collect()
    }

    const GATEWAY: &str = "[[gateway]]\nname = \"main\"\nurl = \"http://127.0.0.1:8642\"\n";

    #[test]
    fn the_smallest_file_has_the_documented_defaults() {
        let config = parse(GATEWAY, Path::new("/etc/botgate")).unwrap();
        assert_eq!(config.data_dir, Path::new("/etc/botgate/data"));
        assert_eq!(config.listen.address.to_string(), "127.0.0.1:8080");
        assert_eq!(config.gateways[0].max_turns, 10);
        assert_eq!(config.limits.max_body_bytes, 10_000_000);
        assert_eq!(config.deadlines.response_head, Duration::from_secs(590));
        assert_eq!(config.audit_when_full, WhenFull::Refuse);
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let found = problems(
            "data_dir = 3\ncolour = 1\n[listen]\naddress = \"here\"\n[limits]\nqueue_wait = \"soon\"\nturns_per_person = 0\n\
             [routes]\ngroups = [\"all\"]\n[[gateway]]\nname = \"a b\"\nurl = \"http://10.0.0.1:1\"\n",
        );
        for key in [
            "data_dir",
            "colour",
            "listen.address",
            "limits.queue_wait",
            "limits.turns_per_person",
            "routes.groups",
            "gateway[0].name",
            "gateway[0].url",
        ] {
            assert!(found.iter().any(|p| p.starts_with(&format!("{key}: "))), "{key} in {found:#?}");
        }
    }

    #[test]
    fn certificates_come_with_their_keys_and_a_client_ca_when_clients_are_asked() {
        let with = |listen: &str| problems(&format!("[listen]\n{listen}\n{GATEWAY}"));
        let pair = "tls = [{ certificate = \"c.pem\", key = \"k.pem\" }]\n";
        let config = parse(&format!("[listen]\n{pair}{GATEWAY}"), Path::new("/etc/botgate")).unwrap();
        let tls = config.listen.tls.unwrap();
        assert_eq!(tls.certificates[0].key, Path::new("/etc/botgate/k.pem"));
        assert!(tls.clients.is_none());
        assert_eq!(with("tls = [{ certificate = \"c.pem\" }]").len(), 1);
        assert_eq!(with(&format!("{pair}client_certificate = \"required\"")).len(), 1);
        assert_eq!(with(&format!("{pair}client_certificate = \"maybe\"")).len(), 1);
        assert_eq!(with("client_ca = \"ca.pem\"\nclient_certificate = \"optional\"").len(), 1);
        assert!(with(&format!("{pair}client_ca = \"ca.pem\"\nclient_certificate = \"optional\"")).is_empty());
    }

    #[test]
    fn a_gateway_off_loopback_needs_consent_to_plaintext() {
        let text = GATEWAY.replace("127.0.0.1", "10.0.0.1");
        assert_eq!(problems(&text).len(), 1);
        assert!(problems(&format!("{text}allow_plaintext = true\n")).is_empty());
    }

    #[test]
    fn keyless_paths_cannot_be_added_as_routes() {
        for bad in [
            "/health",
            "/v1/health",
            "/v1/{id}",
            "/{id}/health",
            "/{id}",
            "/p/x",
            "/api/platforms/x/events",
            "/api/{id}/{id}",
            "/v1/room-members/capabilities",
            "v1/x",
            "/v1//x",
            "/v1/{name}",
            "/v1/../x",
        ] {
            let text = format!("{GATEWAY}[routes]\nextra = [{{ method = \"GET\", template = \"{bad}\" }}]\n");
            assert_eq!(problems(&text).len(), 1, "{bad}");
        }
        for fine in ["/v1/things/{id}", "/v1/health/detailed", "/health/detailed", "/api/jobs/{id}"] {
            let text = format!("{GATEWAY}[routes]\nextra = [{{ method = \"GET\", template = \"{fine}\" }}]\n");
            assert!(problems(&text).is_empty(), "{fine}");
        }
    }

    #[test]
    fn forwarders_are_networks_and_never_everybody() {
        let of = |text: &str| {
            parse(&format!("[listen]\ntrusted_forwarders = [{text}]\n{GATEWAY}"), Path::new("/etc/botgate"))
        };
        let networks = of("\"10.1.2.3/8\", \"127.0.0.1\", \"2001:db8::/32\"").unwrap().listen.trusted_forwarders;
        assert_eq!(
            networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.0/8", "127.0.0.1/32", "2001:db8::/32"]
        );
        for bad in ["\"0.0.0.0/0\"", "\"::/0\"", "\"10.0.0.0/33\"", "\"proxy.example\"", "\"\"", "8"] {
            assert_eq!(of(bad).unwrap_err().len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_feature_that_is_not_there_is_never_ignored() {
        assert_eq!(problems(&format!("{GATEWAY}[mcp]\nupstream = \"http://127.0.0.1:9000/mcp\"\n")).len(), 1);
    }
}
