//! HAProxy: tokens in two map files, a listening socket for each thread, connections to the upstream shared by all clients.

use std::path::Path;

use super::{Certificate, Ground, Peer, Proxy, REFUSAL, free_address, lines, written};
use crate::process::Child;
use crate::trouble::Outcome;

pub(super) fn start(ground: &Ground, certificate: Option<&Certificate>, dir: &Path) -> Outcome<Proxy> {
    let address = free_address()?;
    let people = &ground.people;
    let profiles = lines(people, |person| format!("{} {}", person.token, person.profile.as_str()));
    let keys = lines(people, |person| format!("{} Bearer {}", person.profile.as_str(), person.key.expose()));
    let (profiles, keys) = (written(dir, "profiles.map", &profiles)?, written(dir, "keys.map", &keys)?);
    let (profiles, keys) = (profiles.display(), keys.display());
    let (cores, upstream) = (ground.cores, ground.upstream);
    let tls = certificate.map_or_else(String::new, |certificate| {
        format!(" ssl crt {} alpn h2,http/1.1 ssl-min-ver TLSv1.2", certificate.both.display())
    });
    let refusal = format!(
        "http-request return status 401 content-type application/json hdr WWW-Authenticate Bearer hdr Cache-Control no-store string '{REFUSAL}'"
    );
    let text = format!(
        r#"global
  nbthread {cores}
  maxconn 15000
  no strict-limits
defaults
  mode http
  option http-no-delay
  timeout connect 2s
  timeout client 15m
  timeout server 15m
  timeout http-request 10s
  timeout http-keep-alive 75s
frontend edge
  bind {address} shards by-thread backlog 4096{tls}
  http-request set-var(txn.profile) http_auth_bearer,map_str({profiles})
  {refusal} unless {{ var(txn.profile) -m found }}
  {refusal} if {{ path_beg /p/ }} !{{ path,field(3,/),strcmp(txn.profile) eq 0 }}
  {refusal} unless {{ path_beg /v1/ /p/ }}
  http-request set-path /p/%[var(txn.profile)]%[path] unless {{ path_beg /p/ }}
  http-request set-header Authorization %[var(txn.profile),map_str({keys})]
  http-request del-header x-forwarded- -m beg
  http-request del-header Cookie
  http-request del-header X-Real-IP
  http-request del-header Forwarded
  http-request del-header Keep-Alive
  http-request del-header TE
  http-request del-header Proxy-Connection
  http-request del-header Proxy-Authorization
  http-request set-header X-Forwarded-For %[src]
  default_backend gateway
backend gateway
  http-reuse always
  server gateway {upstream} pool-max-conn 1024 pool-purge-delay 1h
"#
    );
    let config = written(dir, "haproxy.cfg", &text)?;
    let arguments = ["-db", "-f", &config.display().to_string()];
    let child = Child::start(Path::new("haproxy"), &arguments.map(str::to_owned), dir.join("output"))?;
    Ok(Proxy::with(Peer::Haproxy, address, child))
}
