//! What differs between two configurations, and what of it an edge can take over while it serves.

use super::{Config, Deadlines, Gateway, Limits, Listen};

/// The keys whose values differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Those that a running edge takes over.
    pub live: Vec<&'static str>,
    /// Those that need a restart.
    pub restart: Vec<&'static str>,
}

impl Config {
    /// What this configuration changes of another. Every key is named here once, so that a new one forces the decision.
    pub fn changes(&self, of: &Config) -> Changes {
        let mut changes = Changes::default();
        let Config {
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
        } = self;
        changes.restart("data_dir", *data_dir != of.data_dir);
        listen.changes(&of.listen, &mut changes);
        changes.restart("admin.metrics_address", *metrics_address != of.metrics_address);
        changes.gateways(gateways, &of.gateways);
        changes.restart("routes", *routes != of.routes);
        limits.changes(&of.limits, &mut changes);
        deadlines.changes(&of.deadlines, &mut changes);
        changes.restart("log.access", *access_log != of.access_log);
        changes.restart("audit.when_full", *audit_when_full != of.audit_when_full);
        changes.live("sign_in.insecure_loopback", *insecure_loopback_cookies != of.insecure_loopback_cookies);
        changes
    }
}

impl Listen {
    fn changes(&self, of: &Listen, changes: &mut Changes) {
        let Listen { address, public_url, hosts, tls, trusted_forwarders } = self;
        changes.restart("listen.address", *address != of.address);
        changes.live("listen.public_url", *public_url != of.public_url);
        changes.live("listen.additional_hosts", *hosts != of.hosts && *public_url == of.public_url);
        changes.restart("listen.tls", *tls != of.tls);
        changes.live("listen.trusted_forwarders", *trusted_forwarders != of.trusted_forwarders);
    }
}

impl Limits {
    fn changes(&self, of: &Limits, changes: &mut Changes) {
        let Limits {
            turns_per_person,
            queue_per_person,
            queue_total,
            queue_wait,
            connections,
            connections_per_address,
            handshakes,
            max_body_bytes,
            requests_per_second_per_person: per_person,
            requests_per_second_per_address: per_address,
        } = self;
        changes.restart("limits.turns_per_person", *turns_per_person != of.turns_per_person);
        changes.restart("limits.queue_per_person", *queue_per_person != of.queue_per_person);
        changes.restart("limits.queue_total", *queue_total != of.queue_total);
        changes.restart("limits.queue_wait", *queue_wait != of.queue_wait);
        changes.live("limits.connections", *connections != of.connections);
        changes.live("limits.connections_per_address", *connections_per_address != of.connections_per_address);
        changes.live("limits.handshakes", *handshakes != of.handshakes);
        changes.live("limits.max_body_bytes", *max_body_bytes != of.max_body_bytes);
        changes.live("limits.requests_per_second_per_person", *per_person != of.requests_per_second_per_person);
        changes.live("limits.requests_per_second_per_address", *per_address != of.requests_per_second_per_address);
    }
}

impl Deadlines {
    fn changes(&self, of: &Deadlines, changes: &mut Changes) {
        let Deadlines { handshake, first_byte, header, connect, response_head, idle, keep_alive, write, body, drain } =
            self;
        changes.live("deadlines.handshake", *handshake != of.handshake);
        changes.live("deadlines.first_byte", *first_byte != of.first_byte);
        changes.live("deadlines.header", *header != of.header);
        changes.live("deadlines.connect", *connect != of.connect);
        changes.live("deadlines.response_head", *response_head != of.response_head);
        changes.live("deadlines.idle", *idle != of.idle);
        changes.live("deadlines.keep_alive", *keep_alive != of.keep_alive);
        changes.live("deadlines.write", *write != of.write);
        changes.live("deadlines.body", *body != of.body);
        changes.restart("deadlines.drain", *drain != of.drain);
    }
}

impl Changes {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }

    fn live(&mut self, key: &'static str, differs: bool) {
        if differs && !self.live.contains(&key) {
            self.live.push(key);
        }
    }

    fn restart(&mut self, key: &'static str, differs: bool) {
        if differs && !self.restart.contains(&key) {
            self.restart.push(key);
        }
    }

    fn gateways(&mut self, new: &[Gateway], old: &[Gateway]) {
        self.restart("gateway", new.len() != old.len());
        for (new, old) in new.iter().zip(old) {
            let Gateway {
                name,
                url,
                max_turns,
                default_api_server_key_file,
                allow_same_user,
                forward_headers,
                max_bots,
            } = new;
            self.restart("gateway.name", *name != old.name);
            self.restart("gateway.url", *url != old.url);
            self.restart("gateway.max_turns", *max_turns != old.max_turns);
            let file = *default_api_server_key_file != old.default_api_server_key_file;
            self.restart("gateway.default_api_server_key_file", file);
            self.restart("gateway.allow_same_user", *allow_same_user != old.allow_same_user);
            self.live("gateway.forward_headers", *forward_headers != old.forward_headers);
            self.restart("gateway.max_bots", *max_bots != old.max_bots);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::parse;

    fn changes(from: &str, to: &str) -> Changes {
        let gateway = "[[gateway]]\nname = \"main\"\nurl = \"http://127.0.0.1:1\"\n";
        let config = |text: &str| parse(&format!("{gateway}{text}"), Path::new("/etc/botgate")).expect("a valid file");
        config(to).changes(&config(from))
    }

    #[test]
    fn what_can_be_taken_over_is_told_from_what_needs_a_restart() {
        assert!(changes("", "# only a remark\n").is_empty());
        let changed = changes(
            "forward_headers = [\"X-A\"]\n[limits]\nmax_body_bytes = 1000\n",
            "forward_headers = [\"X-B\"]\nmax_turns = 11\n[limits]\nmax_body_bytes = 2000\nqueue_total = 7\n[deadlines]\nidle = \"1m\"\n",
        );
        assert_eq!(changed.live, ["gateway.forward_headers", "limits.max_body_bytes", "deadlines.idle"]);
        assert_eq!(changed.restart, ["gateway.max_turns", "limits.queue_total"]);
        let hosts = changes("", "[listen]\nadditional_hosts = [\"edge.example:80\"]\naddress = \"127.0.0.1:9\"\n");
        assert_eq!((hosts.live, hosts.restart), (vec!["listen.additional_hosts"], vec!["listen.address"]));
    }
}
