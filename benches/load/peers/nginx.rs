//! nginx: tokens in two `map`s, the path by `proxy_pass`, kept-alive connections to the upstream.

use std::path::Path;

use super::{Certificate, Ground, Peer, Proxy, REFUSAL, free_address, lines, written};
use crate::process::Child;
use crate::trouble::Outcome;

pub(super) fn start(ground: &Ground, certificate: Option<&Certificate>, dir: &Path) -> Outcome<Proxy> {
    let address = free_address()?;
    let people = &ground.people;
    let profiles = lines(people, |person| format!("\"Bearer {}\" {};", person.token, person.profile.as_str()));
    let keys = lines(people, |person| format!("\"Bearer {}\" \"Bearer {}\";", person.token, person.key.expose()));
    written(dir, "profiles.map", &profiles)?;
    written(dir, "keys.map", &keys)?;
    // The workers read nothing of their own; the temporary paths are this user's.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let (cores, upstream, dir_text) = (ground.cores, ground.upstream, dir.display());
    let (flags, tls) = match certificate {
        None => ("", String::new()),
        Some(Certificate { certificate, key, .. }) => (
            " ssl http2",
            format!(
                "ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.2 TLSv1.3;",
                certificate.display(),
                key.display()
            ),
        ),
    };
    let refusal = format!(
        "add_header WWW-Authenticate Bearer always; add_header Cache-Control no-store always; return 401 '{REFUSAL}';"
    );
    let text = format!(
        r#"{user}
daemon off;
worker_processes {cores};
pid {dir_text}/nginx.pid;
error_log stderr warn;
events {{
  worker_connections 15000;
}}
http {{
  access_log off;
  server_tokens off;
  default_type application/json;
  client_body_temp_path {dir_text}/body;
  proxy_temp_path {dir_text}/proxy;
  fastcgi_temp_path {dir_text}/fastcgi;
  uwsgi_temp_path {dir_text}/uwsgi;
  scgi_temp_path {dir_text}/scgi;
  client_max_body_size 10m;
  client_header_timeout 10s;
  client_body_timeout 10s;
  keepalive_timeout 75s;
  keepalive_requests 1000000000;
  map_hash_max_size 65536;
  map_hash_bucket_size 256;
  map $http_authorization $profile {{
    default "";
    include {dir_text}/profiles.map;
  }}
  map $http_authorization $key {{
    default "";
    include {dir_text}/keys.map;
  }}
  upstream gateway {{
    server {upstream};
    keepalive 512;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
  }}
  proxy_http_version 1.1;
  proxy_connect_timeout 2s;
  proxy_read_timeout 900s;
  proxy_buffering off;
  proxy_request_buffering off;
  proxy_set_header Connection "";
  proxy_set_header Authorization $key;
  proxy_set_header X-Forwarded-For $remote_addr;
  proxy_set_header X-Forwarded-Host "";
  proxy_set_header X-Forwarded-Proto "";
  proxy_set_header X-Real-IP "";
  proxy_set_header Forwarded "";
  proxy_set_header Cookie "";
  proxy_set_header Proxy-Connection "";
  proxy_set_header Proxy-Authorization "";
  server {{
    listen {address}{flags} reuseport backlog=4096;
    {tls}
    location /v1/ {{
      if ($profile = "") {{ {refusal} }}
      proxy_pass http://gateway/p/$profile$request_uri;
    }}
    location ~ ^/p/(?<asked>[^/]+)/v1/ {{
      if ($asked != $profile) {{ {refusal} }}
      proxy_pass http://gateway;
    }}
    location / {{ {refusal} }}
  }}
}}
"#
    );
    let config = written(dir, "nginx.conf", &text)?;
    let arguments = ["-p", &dir_text.to_string(), "-c", &config.display().to_string(), "-e", "stderr"];
    let child = Child::start(Path::new("nginx"), &arguments.map(str::to_owned), dir.join("output"))?;
    Ok(Proxy::with(Peer::Nginx, address, child))
}
